// SPDX-License-Identifier: BSD-3-Clause
// A segment with one breaker and a forked process that performs one operation on it, to be killed or stopped at a chosen atomic
// access. The parent prepares, and lives on with production code.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <new>
#include <optional>
#include <system_error>
#include <utility>

#include "process/census.hpp"
#include "process/script.hpp"
#include "shmcb/memory_storage.hpp"
#include "shmcb/shm_storage.hpp"
#include "support/kill_step.hpp"
#include "support/test_segment.hpp"

namespace shmcb::test {

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
  const auto keep = [&answer](const core::CellRecord& r) {
    answer.error = r.error;
    answer.status = r.status;
    answer.reason = r.transition.reason;
  };
  switch (op.kind) {
    case Op::Kind::admit: {
      const core::CellAdmit r = cell.admit([now_us] { return now_us; });
      answer.error = r.error;
      answer.admission = r.admission;
      answer.reason = r.transition.reason;
      break;
    }
    case Op::Kind::record:
      if (token.admission == Admission::rejected) break;
      keep(token.admission == Admission::allowed ? cell.record_allowed(token.period, op.outcome, now_us)
                                                 : cell.record_probe(token.period, op.outcome, now_us));
      break;
    case Op::Kind::force: keep(cell.force(op.to, now_us)); break;
    case Op::Kind::replace: answer.error = cell.replace_settings(settings); break;
    case Op::Kind::snapshot: {
      core::CellState state;
      answer.error = cell.snapshot(state);
      break;
    }
    case Op::Kind::advance: break;
  }
  return answer;
}

/// A forked process. Killed at the latest with this object; by an alarm if it hangs; with its parent.
class Child {
 public:
  template <class Work>
  explicit Child(Work work) : pid_(::fork()) {
    if (pid_ < 0) throw std::system_error(errno, std::generic_category(), "fork");
    if (pid_ > 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    constexpr unsigned kWatchdogSeconds = 60;  // arbitrary
    ::alarm(kWatchdogSeconds);
    work();
    ::_exit(0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    (void)wait_status(0);
  }

  enum class End { completed, killed, stopped, broken };
  /// Waits for it to end or to stop.
  End wait() {
    const int status = wait_status(WUNTRACED);
    if (WIFSTOPPED(status)) return End::stopped;
    pid_ = 0;
    if (WIFSIGNALED(status)) return WTERMSIG(status) == SIGKILL ? End::killed : End::broken;
    return WEXITSTATUS(status) == 0 ? End::completed : End::broken;
  }
  void send(int signal) const { ::kill(pid_, signal); }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  [[nodiscard]] int wait_status(int options) const {
    int status = 0;
    while (::waitpid(pid_, &status, options) < 0 && errno == EINTR) {
    }
    return status;
  }
  pid_t pid_;
};

/// One value in memory that forked children share with their parent. Constructed before they are forked.
template <class T>
class Shared {
 public:
  Shared() {
    void* memory = ::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
    value_ = ::new (memory) T{};
  }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  ~Shared() { ::munmap(value_, sizeof(T)); }
  T* operator->() const { return value_; }
  T& operator*() const { return *value_; }

 private:
  T* value_;
};

/// A fresh segment and breaker, the clock of scripts, and the children that act on it.
class Stage {
 public:
  explicit Stage(const BreakerConfig& config)
      : test_({.breakers = 4, .ring_slots = 256, .participants = 16, .epoch = kScriptStart}), runner_(open(test_, config, clock_), clock_) {}

  [[nodiscard]] const Segment& segment() const { return test_.segment(); }
  [[nodiscard]] ScriptRunner<ShmStorage<FakeClock>>& runner() { return runner_; }

  /// In a child: performs `op`, getting `signal` at its k-th access.
  std::unique_ptr<Child> perform_in_child(const Op& op, const Settings& settings, std::uint64_t k, int signal) {
    *answer_ = {};
    return std::make_unique<Child>([&] {
      core::Presence& presence = segment().presence();
      const auto view = segment().view().in_environment<KillEnv>();
      core::BreakerCell<KillEnv> cell;
      if (!presence.ensure_current() ||
          core::Registry<KillEnv>(view, presence).find(runner_.storage().name(), cell) != Errc::ok) {
        ::_exit(1);
      }
      const auto now_us = static_cast<core::Bits>((runner_.clock().now() - kScriptStart).count());
      KillStep::arm(k, signal);
      VictimAnswer answer = perform(cell, op, runner_.tokens()[op.attempt], settings, now_us);
      answer.steps = KillStep::steps();
      KillStep::disarm();
      *answer_ = answer;
    });
  }
  [[nodiscard]] const VictimAnswer& answer() const { return *answer_; }

 private:
  static ShmStorage<FakeClock> open(const TestSegment& test, const BreakerConfig& config, const FakeClock& clock) {
    auto opened = ShmStorage<FakeClock>::open(test.segment(), config, OnMismatch::refuse, clock);
    if (!opened) throw std::runtime_error(opened.error().message);
    return *std::move(opened);
  }

  FakeClock clock_{kScriptStart};
  TestSegment test_;
  ScriptRunner<ShmStorage<FakeClock>> runner_;
  Shared<VictimAnswer> answer_;
};

/// Finds that `runner`'s breaker can still be led into each of its states, whatever state it is in.
inline void expect_every_state_can_be_left(ScriptRunner<ShmStorage<FakeClock>>& runner) {
  ShmStorage<FakeClock>& breaker = runner.storage();
  const Settings settings = breaker.settings();
  const auto close = [&] {
    for (std::uint32_t round = 0; round < settings.success_threshold + 4; ++round) {
      if (breaker.peek().state == CircuitState::closed) return;
      runner.clock().advance(std::max(Millis{settings.cooldown_ms}, Millis{settings.probe_timeout_ms}));
      const AdmitResult probe = breaker.admit();
      ASSERT_EQ(probe.error, Errc::ok);
      ASSERT_EQ(probe.admission, Admission::probe) << "cooldown and lease are over";
      ASSERT_EQ(breaker.record_outcome(probe.token, Outcome::success).status, RecordStatus::counted);
    }
    ADD_FAILURE() << "successful probes do not close the breaker";
  };
  const auto open = [&] {
    const AdmitResult allowed = breaker.admit();
    ASSERT_EQ(allowed.admission, Admission::allowed);
    for (std::uint32_t i = 0; i < settings.failures && breaker.peek().state == CircuitState::closed; ++i) {
      ASSERT_EQ(breaker.record_outcome(allowed.token, Outcome::failure).error, Errc::ok);
    }
    ASSERT_EQ(breaker.peek().state, CircuitState::open) << "failures do not open the breaker";
    ASSERT_EQ(breaker.admit().admission, Admission::rejected);
  };
  close();
  open();
  close();
  open();
}

}  // namespace shmcb::test
