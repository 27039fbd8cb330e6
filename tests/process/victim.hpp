// SPDX-License-Identifier: BSD-3-Clause
// A segment with one breaker and a forked process that performs one operation on it, to be killed or stopped at a
// chosen atomic access. The parent prepares, and lives on with production code.
#pragma once

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <utility>

#include <gtest/gtest.h>

#include "process/census.hpp"
#include "process/script.hpp"
#include "shmcb/memory_storage.hpp"
#include "shmcb/random.hpp"
#include "shmcb/shm_storage.hpp"
#include "support/kill_points.hpp"
#include "support/kill_step.hpp"
#include "support/processes.hpp"
#include "support/test_segment.hpp"

namespace shmcb::test {

/// What a scenario leaves to chance comes out the same in all storages.
using ScriptedBreaker = ShmStorage<FakeClock, FakeRandom>;
using ScriptedReference = MemoryStorage<FakeClock, FakeRandom>;

template <Storage S>
void expect_every_state_can_be_left(ScriptRunner<S>& runner) {
  ASSERT_EQ(runner.storage().set_mode({}).error, Errc::ok);
  expect_every_state_can_be_left(runner.storage(), [&runner](Millis by) { runner.clock().advance(by); });
}

/// What an operation under test came back with, for the parent to read.
struct VictimAnswer {
  bool done = false;
  Errc error = Errc::ok;
  RecordStatus status = RecordStatus::stale;
  Admission admission = Admission::rejected;
  TransitionReason reason = TransitionReason::none;
  std::uint64_t steps = 0;
};

/// Performs one operation of a script, in any environment.
template <class Env>
VictimAnswer perform(const core::BreakerCell<Env>& cell, const Op& op, Token token, const Settings& settings,
                     core::Bits now_us) {
  VictimAnswer answer{.done = true};
  constexpr auto no_chance = []() noexcept { return 0U; };
  const auto keep = [&answer](const core::CellRecord& r) {
    answer.error = r.error;
    answer.status = r.status;
    answer.reason = r.transition ? r.transition->reason : TransitionReason::none;
  };
  const auto report = [&](Outcome outcome) {  // as the storage does it
    if (token.admission == Admission::rejected) return;
    if (token.admission == Admission::allowed && outcome == Outcome::ignored) {
      cell.count_ignored();
      answer.status = RecordStatus::ignored;
      return;
    }
    core::LocalNotes start;
    const bool failure = outcome == Outcome::failure;
    const core::CellRecord r =
        token.admission == Admission::allowed
            ? cell.record_allowed(
                  {.period = token.period, .started = token.started, .failure = failure, .now_us = now_us}, start,
                  no_chance)
            : cell.record_probe({.probe = token.period, .outcome = outcome, .started = token.started}, now_us);
    if (r.error == Errc::ok && !r.in_ring) {
      if (r.status == RecordStatus::stale) cell.count_stale();
      if (r.status == RecordStatus::ignored) cell.count_ignored();
    }
    keep(r);
  };
  switch (op.kind) {
    case Op::Kind::admit: {
      std::uint64_t period = 0;
      CircuitState state = CircuitState::closed;
      if (cell.allowed(period) || cell.stands_aside(state) || cell.allowed_timed(period)) {  // as the storage asks
        answer.admission = Admission::allowed;
        break;
      }
      const core::CellAdmit r = cell.admit(now_us, no_chance);
      answer.error = r.error;
      answer.admission = r.admission;
      answer.reason = r.transition ? r.transition->reason : TransitionReason::none;
      break;
    }
    case Op::Kind::record: report(op.outcome); break;
    case Op::Kind::abandon:
      if (token.admission != Admission::rejected) cell.count_abandoned();
      report(Outcome::ignored);
      break;
    case Op::Kind::mode: {
      const rules::Tick now = core::CellCore<Env>::tick(now_us);
      const rules::Tick until = op.by.count() == 0 ? rules::kNever : now + op.by.count();
      answer.error = cell.set_mode(op.mode, until, core::NoteText::of({.who = "victim"}), now_us).error;
      break;
    }
    case Op::Kind::peek: {
      core::CellPeek peek;
      answer.error = cell.peek([now_us] { return now_us; }, peek);
      break;
    }
    case Op::Kind::counters: {
      Counters counters;
      answer.error = cell.counters(now_us, counters);
      break;
    }
    case Op::Kind::force: keep(cell.force(op.to, now_us, no_chance)); break;
    case Op::Kind::replace: answer.error = cell.replace_settings(settings, now_us, no_chance); break;
    case Op::Kind::snapshot: {
      core::CellState state;
      answer.error = cell.snapshot(state);
      break;
    }
    case Op::Kind::advance: break;
  }
  return answer;
}

/// Waits until a child has stopped or ended. True: stopped.
[[nodiscard]] inline bool comes_to_a_stop(const Child& child) {
  siginfo_t info{};
  const bool seen = wait_until([&] {
    info = {};
    return ::waitid(P_PID, static_cast<id_t>(child.pid()), &info, WEXITED | WSTOPPED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == child.pid();
  });
  return seen && info.si_code == CLD_STOPPED;
}

/// A fresh segment and breaker, the clock of scripts, and the children that act on it.
class Stage {
 public:
  explicit Stage(const BreakerConfig& config, std::uint32_t journal_entries = 64)
      : test_({.breakers = 4,
               .ring_slots = 256,
               .participants = 16,
               .journal_entries = journal_entries,
               .epoch = kScriptStart}),
        runner_(open(test_, config, clock_), clock_) {}

  [[nodiscard]] const Segment& segment() const { return test_.segment(); }
  [[nodiscard]] const SegmentOptions& segment_options() const { return test_.options(); }
  [[nodiscard]] ScriptRunner<ScriptedBreaker>& runner() { return runner_; }

  /// In a child: performs `op`, getting `signal` at its k-th access.
  [[nodiscard]] Child perform_in_child(const Op& op, const Settings& settings, std::uint64_t k, int signal) {
    *answer_ = {};
    return fork_child([this, op, settings, k, signal] {
      if (!segment().presence().ensure_current()) return 1;
      *answer_ = perform_here(op, settings, k, signal);
      return answer_->done ? 0 : 1;
    });
  }
  /// The same in this process.
  [[nodiscard]] VictimAnswer perform_here(const Op& op, const Settings& settings, std::uint64_t k, int signal) {
    const auto view = segment().view().in_environment<KillEnv>();
    core::BreakerCell<KillEnv> cell;
    if (core::Registry<KillEnv>(view, segment().presence()).find(runner_.storage().name(), cell) != Errc::ok) return {};
    const auto now_us = static_cast<core::Bits>((runner_.clock().now() - kScriptStart).count());
    const Token token = runner_.tokens()[op.attempt];
    KillStep::arm(k, signal);
    VictimAnswer answer = perform(cell, op, token, settings, now_us);
    answer.steps = KillStep::steps();
    KillStep::disarm();
    return answer;
  }
  [[nodiscard]] const VictimAnswer& answer() const { return *answer_; }

 private:
  static ScriptedBreaker open(const TestSegment& test, const BreakerConfig& config, const FakeClock& clock) {
    auto opened = ScriptedBreaker::open(test.segment(), config, OnMismatch::refuse, clock, FakeRandom{});
    if (!opened) throw std::runtime_error(opened.error().message);
    return *std::move(opened);
  }

  FakeClock clock_{kScriptStart};
  TestSegment test_;
  ScriptRunner<ScriptedBreaker> runner_;
  SharedArea<VictimAnswer> answer_;
};

}  // namespace shmcb::test
