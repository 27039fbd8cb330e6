// SPDX-License-Identifier: BSD-3-Clause
// Histories recorded from real processes: two or three of them perform a few operations on one breaker at once, with
// invocations and responses in a global order. For the test and for shmcb-prove-torture.
#pragma once

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "process/linearizable.hpp"
#include "shmcb/shm_storage.hpp"
#include "support/processes.hpp"
#include "support/test_segment.hpp"

namespace shmcb::test::histories {

inline constexpr Instant kStart{std::chrono::hours{1}};
inline constexpr std::size_t kProcesses = 3;
inline constexpr std::size_t kMaxOperations = 4;
inline constexpr std::size_t kPrepared = 4;  ///< attempts that were admitted before
static_assert(kPrepared + kProcesses * kMaxOperations <= kHistoryAttempts);

using Breaker = ShmStorage<FakeClock>;

inline BreakerConfig config_of(std::uint32_t kind) {
  BreakerConfig config{.name = "b" + std::to_string(kind),
                       .failure_threshold = {.failures = 2, .window = 4, .within = Millis{1'000}},
                       .cooldown = {Millis{10}},
                       .success_threshold = 2,
                       .probe_limit = 2,
                       .probe_timeout = Millis{20}};
  if (kind == 1) config.failure_rate = {.percent = 50, .minimum_calls = 3};
  if (kind == 2) {
    config.failure_threshold.failures = 0;
    config.consecutive_failures = {.failures = 2};
    config.probe_limit = 1;
  }
  return config;
}
inline constexpr std::uint32_t kKinds = 3;

/// What the processes of a round do, and are answered.
struct Round {
  struct Part {
    std::size_t count = 0;
    std::uint32_t offset = 0;     ///< turns to wait before the first
    std::uint32_t in_pieces = 0;  ///< not 0: yields in the midst of operations, by this seed
    std::array<Event, kMaxOperations> events{};
  };
  std::uint32_t kind = 0;
  std::size_t processes = 2;
  std::array<Part, kProcesses> parts{};
  std::array<Token, kHistoryAttempts> tokens{};
};
struct Arena {
  std::atomic<std::uint32_t> round{0};  ///< that is to be played
  std::atomic<std::uint32_t> ready{0};
  std::atomic<std::uint32_t> done{0};
  std::atomic<std::uint64_t> order{0};
  std::atomic<bool> enough{false};
  Round play{};
};

/// Performs an operation on the real breaker.
inline Event::Answer perform(Breaker& breaker, FakeClock& clock, const Event& event,
                             std::array<Token, kHistoryAttempts>& tokens) {
  clock.set(kStart + Millis{event.now});
  Event::Answer answer;
  const auto keep = [&](const std::optional<CircuitTransition>& t) {
    if (!t) return;
    answer.change = {.from = t->from,
                     .to = t->to,
                     .reason = t->reason,
                     .at = std::chrono::floor<Millis>(t->occurred_at - kStart).count()};
  };
  switch (event.kind) {
    case Event::Kind::admit: {
      const AdmitResult r = breaker.admit();
      tokens.at(event.attempt) = r.token;
      answer = {.error = r.error, .admission = r.admission, .state = r.state, .retry_after = r.retry_after.count()};
      keep(r.transition);
      break;
    }
    case Event::Kind::record: {
      const RecordResult r = breaker.record_outcome(tokens.at(event.attempt), event.outcome);
      answer.error = r.error;
      answer.status = r.status;
      keep(r.transition);
      break;
    }
    case Event::Kind::force: {
      const ForceResult r = breaker.force_state(event.to);
      answer.error = r.error;
      keep(r.transition);
      break;
    }
  }
  return answer;
}

/// Gives the processor away before some of the atomic accesses, so that operations fall into the midst of each other
/// however few processors there are.
struct YieldStep {
  static void step() noexcept {
    constexpr std::uint32_t kOneIn = 12;
    state_ = state_ * 1'664'525 + 1'013'904'223;
    if ((state_ >> 16U) % kOneIn == 0) ::sched_yield();
  }
  static void seed(std::uint32_t seed) noexcept { state_ = seed; }

 private:
  static inline std::uint32_t state_ = 1;
};
using YieldEnv = core::AtomicEnv<YieldStep>;

/// The same on the cell beneath the storage.
inline Event::Answer perform_in_pieces(const core::BreakerCell<YieldEnv>& cell, const Event& event,
                                       std::array<Token, kHistoryAttempts>& tokens) {
  constexpr auto no_chance = []() noexcept { return 0U; };
  const auto now_us = static_cast<core::Bits>(event.now) * 1'000;
  Event::Answer answer;
  const auto keep = [&](Errc error, const std::optional<core::CellTransition>& t) {
    answer.error = error;
    if (t) answer.change = {.from = t->from, .to = t->after.state, .reason = t->reason, .at = t->at};
  };
  Token& token = tokens.at(event.attempt);
  switch (event.kind) {
    case Event::Kind::admit: {
      std::uint64_t period = 0;
      answer.admission = Admission::allowed;
      if (cell.allowed(period)) {
        token = {.period = period, .admission = Admission::allowed};
        break;
      }
      const core::CellAdmit a = cell.admit(now_us, no_chance);
      token = {.period = a.period, .admission = a.admission};
      answer = {.admission = a.admission, .state = a.state};
      if (a.admission == Admission::rejected) answer.retry_after = a.retry_after;
      keep(a.error, a.transition);
      break;
    }
    case Event::Kind::record: {
      if (token.admission == Admission::rejected) {
        answer.status = RecordStatus::rejected;
        break;
      }
      if (token.admission == Admission::allowed && event.outcome == Outcome::ignored) {
        answer.status = RecordStatus::ignored;
        break;
      }
      core::SearchStart start;
      const bool failure = event.outcome == Outcome::failure;
      const core::CellRecord r =
          token.admission == Admission::allowed
              ? cell.record_allowed({.period = token.period, .failure = failure, .now_us = now_us}, start, no_chance)
              : cell.record_probe({.probe = token.period, .outcome = event.outcome}, now_us);
      answer.status = r.status;
      keep(r.error, r.transition);
      break;
    }
    case Event::Kind::force: {
      const core::CellRecord r = cell.force(event.to, now_us, no_chance);
      keep(r.error, r.transition);
      break;
    }
  }
  return answer;
}

/// Yields now and then: there may be fewer processors than processes.
template <class Condition>
[[nodiscard]] bool spin_until(Condition condition) {
  constexpr int kTurns = 2'000;
  for (int i = 0; i < kTurns; ++i) {
    if (condition()) return true;
  }
  return wait_until(condition);
}

/// Where there are enough: else the scheduler may let one after the other run to its end.
inline void stay_on_a_processor_of_its_own(std::size_t p) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  std::size_t nth = p % static_cast<std::size_t>(CPU_COUNT(&allowed));
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || nth-- > 0) continue;
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET(cpu, &own);
    (void)::sched_setaffinity(0, sizeof own, &own);
    return;
  }
}

/// The processes and the breakers that they act on.
class Recorder {
 public:
  explicit Recorder(std::uint64_t seed) : random_(seed) {
    for (std::uint32_t kind = 0; kind < kKinds; ++kind) {
      auto opened = Breaker::open(test_.segment(), config_of(kind), OnMismatch::refuse, clock_);
      if (!opened) throw std::runtime_error(opened.error().message);
      breakers_.push_back(*std::move(opened));
    }
    for (std::size_t p = 0; p < kProcesses; ++p)
      children_.push_back(fork_child([this, p] { return play(p); }));
  }
  ~Recorder() { arena_->enough.store(true); }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// Records a history and checks it. `spread`: how far apart the instants of operations may be.
  void round(rules::Tick spread) {
    Round& r = arena_->play;
    r = {};
    r.kind = below(kKinds);
    r.processes = 2 + below(kProcesses - 1);
    time_ += 1'000'000;  // whatever was before has left the window, and no lease or cooldown is left
    SequentialBreaker reference(config_of(r.kind));
    prepare(reference, spread);
    for (std::size_t p = 0; p < r.processes; ++p)
      plan(r.parts.at(p), p, spread);
    ++number_;
    arena_->ready.store(0);
    arena_->done.store(0);
    arena_->order.store(0);
    arena_->round.store(number_);
    ASSERT_TRUE(wait_until([&] { return arena_->done.load() == r.processes; })) << "a process is stuck";
    History history;
    for (std::size_t p = 0; p < r.processes; ++p) {
      const Round::Part& part = r.parts.at(p);
      history.processes.emplace_back(part.events.begin(),
                                     part.events.begin() + static_cast<std::ptrdiff_t>(part.count));
    }
    const SnapshotResult after = breakers_[r.kind].snapshot();
    ASSERT_EQ(after.error, Errc::ok);
    history.after = after.record;
    const LinearizabilityCheck check(reference, history);
    ASSERT_TRUE(check.explained()) << "breaker of kind " << r.kind << ", prepared " << prepared_ << "\n"
                                   << text_of(history);
    operations_ += count_of(history);
    overlapped_ += overlaps(history) ? 1U : 0U;
    tried_ += check.tried();
  }

  void print(const char* what) const {
    std::printf(
        "[ histories] %s: %u histories of %lu operations, %u with operations beside each other, %lu steps tried\n",
        what, number_, static_cast<unsigned long>(operations_), overlapped_, static_cast<unsigned long>(tried_));
  }
  [[nodiscard]] std::uint32_t overlapped() const { return overlapped_; }

 private:
  int play(std::size_t p) {
    stay_on_a_processor_of_its_own(p);
    if (!test_->presence().ensure_current()) return 1;
    const auto view = test_->view().in_environment<YieldEnv>();
    const core::Registry<YieldEnv> registry(view, test_->presence());
    std::array<core::BreakerCell<YieldEnv>, kKinds> cells;
    for (std::uint32_t kind = 0; kind < kKinds; ++kind) {
      if (registry.find(breakers_[kind].name(), cells.at(kind)) != Errc::ok) return 1;
    }
    for (std::uint32_t last = 0;;) {
      if (!wait_until([&] { return arena_->enough.load() || arena_->round.load() != last; })) return 2;
      if (arena_->enough.load()) return 0;
      last = arena_->round.load();
      Round& r = arena_->play;
      if (p >= r.processes) continue;
      Round::Part& part = r.parts.at(p);
      YieldStep::seed(part.in_pieces);
      arena_->ready.fetch_add(1);
      if (!spin_until([&] { return arena_->ready.load() >= r.processes; })) return 3;
      for (std::uint32_t i = 0; i < part.offset; ++i)
        std::atomic_signal_fence(std::memory_order_seq_cst);  // so that it takes its time
      for (std::size_t i = 0; i < part.count; ++i) {
        Event& event = part.events.at(i);
        event.invoked = arena_->order.fetch_add(1, std::memory_order_seq_cst);
        event.answer = part.in_pieces != 0 ? perform_in_pieces(cells.at(r.kind), event, r.tokens)
                                           : perform(breakers_[r.kind], clock_, event, r.tokens);
        event.responded = arena_->order.fetch_add(1, std::memory_order_seq_cst);
      }
      arena_->done.fetch_add(1);
    }
  }

  /// One after the other, in both: the state in which the history begins.
  void prepare(SequentialBreaker& reference, rules::Tick spread) {
    Round& r = arena_->play;
    prepared_.clear();
    const auto both = [&](Event event) {
      event.answer = perform(breakers_[r.kind], clock_, event, r.tokens);
      const Event::Answer expected = reference.apply(event);
      prepared_ += "\n  " + text_of(event);
      if (event.kind == Event::Kind::record) {
        EXPECT_EQ(event.answer.status, expected.status) << prepared_;
      } else if (event.kind == Event::Kind::admit) {
        EXPECT_EQ(event.answer.admission, expected.admission) << prepared_;
      }
    };
    both({.kind = Event::Kind::force, .to = CircuitState::closed, .now = time_});
    if (below(4) == 0) both({.kind = Event::Kind::force, .to = static_cast<CircuitState>(below(3)), .now = time_});
    for (std::size_t i = 0; i < kPrepared; ++i)
      both({.kind = Event::Kind::admit, .attempt = i, .now = time_});
    for (std::uint32_t i = below(4); i > 0; --i)
      both({.kind = Event::Kind::record, .attempt = below(kPrepared), .outcome = any_outcome(), .now = time_});
    if (below(2) == 0) time_ += 10;  // the cooldown is over
    if (below(3) == 0) {
      for (std::size_t i = 0; i < 2; ++i)
        both({.kind = Event::Kind::admit, .attempt = i, .now = time_});
    }
    if (spread != 0 && below(4) == 0) time_ += 20;  // the lease is over
  }

  void plan(Round::Part& part, std::size_t p, rules::Tick spread) {
    part.count = 2 + below(kMaxOperations - 1);
    part.offset = below(3) == 0 ? below(2'000) : below(50);
    part.in_pieces = below(2) * (1 + below(1'000'000));
    const std::size_t own = kPrepared + p * kMaxOperations;
    std::size_t admitted = 0;
    for (std::size_t i = 0; i < part.count; ++i) {
      Event& event = part.events.at(i);
      event.now = time_ + (spread == 0 ? 0 : static_cast<rules::Tick>(below(static_cast<std::uint32_t>(spread))));
      const std::uint32_t choice = below(100);
      if (choice < 35) {
        event.kind = Event::Kind::admit;
        event.attempt = own + admitted++;
      } else if (choice < 90) {
        event.kind = Event::Kind::record;
        // Its own, or one that others may report too.
        event.attempt =
            admitted > 0 && below(3) != 0 ? own + below(static_cast<std::uint32_t>(admitted)) : below(kPrepared);
        event.outcome = any_outcome();
      } else {
        event.kind = Event::Kind::force;
        event.to = static_cast<CircuitState>(below(3));
      }
    }
  }

  [[nodiscard]] Outcome any_outcome() {
    const std::uint32_t choice = below(10);
    return choice < 5 ? Outcome::failure : choice < 9 ? Outcome::success : Outcome::ignored;
  }
  [[nodiscard]] static std::size_t count_of(const History& history) {
    std::size_t count = 0;
    for (const auto& process : history.processes)
      count += process.size();
    return count;
  }
  [[nodiscard]] static bool overlaps(const History& history) {
    for (const auto& process : history.processes) {
      if (std::any_of(process.begin(), process.end(), [](const Event& e) { return e.responded != e.invoked + 1; }))
        return true;
    }
    return false;
  }
  [[nodiscard]] std::uint32_t below(std::uint32_t end) { return static_cast<std::uint32_t>(random_() % end); }

  std::mt19937_64 random_;
  FakeClock clock_{kStart};  // each process has one of its own from the fork on
  TestSegment test_{{.breakers = kKinds, .participants = 16, .epoch = kStart}};
  std::vector<Breaker> breakers_;
  SharedArea<Arena> arena_;
  std::vector<Child> children_;
  rules::Tick time_ = 0;
  std::string prepared_;
  std::uint32_t number_ = 0;
  std::uint64_t operations_ = 0;
  std::uint32_t overlapped_ = 0;
  std::uint64_t tried_ = 0;
};

}  // namespace shmcb::test::histories
