// SPDX-License-Identifier: BSD-3-Clause
// TscClock against CLOCK_MONOTONIC, on this machine and on one whose counter jumps, stops and changes its rate; and
// what a breaker does whose processes read different clocks.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "shmcb/shm_storage.hpp"
#include "shmcb/tsc_clock.hpp"
#include "support/processes.hpp"
#include "support/random_input.hpp"
#include "support/test_segment.hpp"
#include "support/threads.hpp"

namespace shmcb::test {
namespace {

constexpr std::int64_t kSpan = std::int64_t{1} << 23U;  // docs/performance.md: for how many ticks an anchor serves

/// A machine that does as it is told; each test has one of its own, with its own clock over it.
template <class Test>
struct FakeMachine {
  static bool available() noexcept { return there.load(std::memory_order_relaxed); }
  static std::uint64_t ticks() noexcept {
    looks.fetch_add(1, std::memory_order_relaxed);
    return tick.load(std::memory_order_relaxed);
  }
  static std::int64_t monotonic_ns() noexcept {
    reads.fetch_add(1, std::memory_order_relaxed);
    return ns.load(std::memory_order_relaxed);
  }

  /// Time passes, at three ticks a nanosecond.
  static void pass(std::int64_t nanoseconds) {
    ns.fetch_add(nanoseconds, std::memory_order_relaxed);
    jump(3 * nanoseconds);
  }
  static void jump(std::int64_t ticks) { tick.fetch_add(static_cast<std::uint64_t>(ticks), std::memory_order_relaxed); }
  /// Until the clock goes by the counter.
  static void settle() {
    for (int i = 0; i < 4; ++i) {
      (void)Clock::now();
      pass(kSpan / 3 + 1'000);
    }
    (void)Clock::now();
    const int before = reads.load(std::memory_order_relaxed);
    (void)Clock::now();
    ASSERT_EQ(reads.load(std::memory_order_relaxed), before) << "still reads CLOCK_MONOTONIC";
  }
  /// Microseconds ahead of CLOCK_MONOTONIC.
  static std::int64_t error() {
    const std::int64_t now = Clock::now().time_since_epoch().count();
    return now - ns.load(std::memory_order_relaxed) / 1'000;
  }

  struct Clock {
    static Instant now() noexcept { return BasicTscClock<FakeMachine>{}.now(); }
  };
  static inline std::atomic<bool> there{true};
  static inline std::atomic<std::uint64_t> tick{777'000'000'000};
  static inline std::atomic<std::int64_t> ns{3'600'000'000'000};
  static inline std::atomic<int> looks{0};
  static inline std::atomic<int> reads{0};
};

/// This machine, counting how often CLOCK_MONOTONIC was read.
struct CountedMachine : TscMachine {
  static std::int64_t monotonic_ns() noexcept {
    reads.fetch_add(1, std::memory_order_relaxed);
    return TscMachine::monotonic_ns();
  }
  static inline std::atomic<std::int64_t> reads{0};
};

TEST(TscClock, AgreesWithTheMonotonicClockInAllThreads) {
  if (!TscClock::available()) GTEST_SKIP() << "no invariant time stamp counter that the kernel goes by";
  constexpr Micros kTolerance{20};  // five times the error that is stated
  constexpr Micros kLong = std::chrono::seconds{2};
  const BasicTscClock<CountedMachine> clock;
  std::atomic<std::int64_t> looks{0};
  std::atomic<std::int64_t> worst{0};
  const Instant end = SystemClock{}.now() + kLong;
  run_threads(4, [&](std::size_t) {
    std::int64_t furthest = 0;
    std::int64_t count = 0;
    for (Instant before = SystemClock{}.now(); before < end; ++count) {
      const Instant now = clock.now();
      const Instant after = SystemClock{}.now();
      furthest = std::max({furthest, (before - now).count(), (now - after).count()});
      before = after;
    }
    looks.fetch_add(count, std::memory_order_relaxed);
    for (std::int64_t seen = worst.load(); seen < furthest && !worst.compare_exchange_weak(seen, furthest);) {
    }
  });
  EXPECT_LE(worst.load(), kTolerance.count());
  EXPECT_LT(CountedMachine::reads.load(), looks.load() / 2) << "it does not go by the counter";
  RecordProperty("worst_us", static_cast<int>(worst.load()));
}

TEST(TscClock, IsTheMonotonicClockWhereThereIsNoSuchCounter) {
  using Machine = FakeMachine<struct NoCounter>;
  Machine::there = false;
  EXPECT_FALSE(BasicTscClock<Machine>::available());
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(Machine::error(), 0);
    Machine::pass(kSpan);
  }
  EXPECT_EQ(Machine::reads, 10);
  EXPECT_EQ(Machine::looks, 0) << "where reading the counter is forbidden it would be fatal";
}

TEST(TscClock, GoesByTheCounterOnceTwoIntervalsAgree) {
  using Machine = FakeMachine<struct Settles>;
  Machine::settle();
  const Instant before = Machine::Clock::now();
  Machine::jump(3 * 1'000'000);  // the counter alone: a millisecond, as it knows
  EXPECT_EQ(Machine::Clock::now() - before, Millis{1});
}

TEST(TscClock, IsRightToTheMicrosecondAtASteadyRate) {
  using Machine = FakeMachine<struct Steady>;
  Machine::settle();
  std::mt19937_64 random{test_seed()};
  for (int i = 0; i < 100'000; ++i) {
    Machine::pass(static_cast<std::int64_t>(random() % (std::uint64_t{1} << (random() % 31U))));
    const std::int64_t error = Machine::error();
    ASSERT_TRUE(error >= -1 && error <= 1) << error << " us, step " << i;
  }
}

TEST(TscClock, IsOffByAtMostTheChangeOfRateWithinOneInterval) {
  using Machine = FakeMachine<struct Slewed>;
  Machine::settle();
  std::mt19937_64 random{test_seed()};
  constexpr std::int64_t kBound = kSpan / 3 / 1'000 / 5 + 2;  // from a tenth too slow to a tenth too fast
  Instant newest{};
  std::int64_t slew = 0;  // percent
  for (int i = 0; i < 100'000; ++i) {
    if (random() % 100 == 0) slew = static_cast<std::int64_t>(random() % 21) - 10;
    const auto step = static_cast<std::int64_t>(random() % 300'000);
    Machine::jump(3 * step);
    Machine::ns.fetch_add(step + step * slew / 100);
    const std::int64_t error = Machine::error();
    ASSERT_TRUE(error >= -kBound && error <= kBound) << error << " us, step " << i;
    const Instant now = Machine::Clock::now();
    ASSERT_GE(now, newest - Micros{kBound});
    newest = std::max(newest, now);
  }
}

TEST(TscClock, IsRightAtOnceAfterAJumpOfMoreThanAnInterval) {
  using Machine = FakeMachine<struct Jumps>;
  for (const std::int64_t jump : {kSpan, 100 * kSpan, std::int64_t{1} << 40U, -1000 * kSpan, -2 * kSpan}) {
    Machine::settle();
    Machine::pass(1'000'000);
    Machine::jump(jump);  // a machine that was suspended or moved: the counter jumps, the clock does not
    for (int i = 0; i < 1'000; ++i) {
      const std::int64_t error = Machine::error();
      ASSERT_TRUE(error >= -1 && error <= 1) << error << " us after a jump of " << jump << ", step " << i;
      Machine::pass(100'000);
    }
  }
}

TEST(TscClock, KeepsItsAnchorWhereAProcessorIsALittleBehindAnother) {
  using Machine = FakeMachine<struct Apart>;
  Machine::settle();
  Machine::jump(-10'000);
  EXPECT_EQ(Machine::error(), 0);
  Machine::jump(+10'000);
  const int before = Machine::reads;
  EXPECT_LE(std::abs(Machine::error()), 1);
  EXPECT_EQ(Machine::reads, before);
}

TEST(TscClock, IsOffByNoMoreThanAnIntervalAndForNoLongerAfterASmallerJump) {
  using Machine = FakeMachine<struct SmallJumps>;
  for (const std::int64_t jump : {kSpan / 3, kSpan - 10, -10 * kSpan / 100}) {
    Machine::settle();
    Machine::jump(jump);
    for (std::int64_t passed = 0; passed < kSpan; passed += kSpan / 100) {
      const std::int64_t error = Machine::error();
      ASSERT_TRUE(error >= -kSpan / 3'000 - 1 && error <= kSpan / 3'000 + 1) << error << " us after " << jump;
      Machine::pass(kSpan / 300);
    }
    for (std::int64_t passed = 0; passed < 10 * kSpan; passed += kSpan / 100) {
      const std::int64_t error = Machine::error();
      ASSERT_TRUE(error >= -kSpan / 24'000 - 1 && error <= kSpan / 24'000 + 1) << error << " us later on";
      Machine::pass(kSpan / 300);
    }
    ASSERT_LE(std::abs(Machine::error()), 1);
  }
}

TEST(TscClock, StandsStillWithItsCounterAndIsRightAnIntervalAfterIt) {
  using Machine = FakeMachine<struct Stops>;
  Machine::settle();
  const Instant before = Machine::Clock::now();
  for (int i = 0; i < 10; ++i) {
    Machine::ns.fetch_add(1'000'000'000);
    EXPECT_EQ(Machine::Clock::now(), before);
  }
  for (int i = 0; i < 100; ++i)
    Machine::pass(kSpan / 300), (void)Machine::Clock::now();
  EXPECT_LE(std::abs(Machine::error()), 1);
}

TEST(TscClock, IsNotMisledByAClockThatStops) {
  using Machine = FakeMachine<struct ClockStops>;
  Machine::settle();
  for (int i = 0; i < 10; ++i) {
    Machine::jump(kSpan);
    ASSERT_EQ(Machine::error(), 0);
  }
  Machine::settle();
  EXPECT_LE(std::abs(Machine::error()), 1);
}

/// The clock is a function of the counter, so that no two readings of them are of different times.
struct CoupledMachine {
  static bool available() noexcept { return true; }
  static std::uint64_t ticks() noexcept { return tick.load(std::memory_order_relaxed); }
  static std::int64_t monotonic_ns() noexcept { return static_cast<std::int64_t>(ticks() / 3); }
  static inline std::atomic<std::uint64_t> tick{std::uint64_t{1} << 40U};
};

TEST(TscClock, HasNoHalfOfAnAnchorWhileThreadsRenewItAllTheTime) {
  const BasicTscClock<CoupledMachine> clock;
  const auto micros = [] { return CoupledMachine::monotonic_ns() / 1'000; };
  run_threads(4, [&](std::size_t) {
    for (int i = 0; i < 500'000; ++i) {
      CoupledMachine::tick.fetch_add(i % 64 == 0 ? kSpan : 3'000, std::memory_order_relaxed);
      const std::int64_t before = micros();
      const std::int64_t now = clock.now().time_since_epoch().count();
      const std::int64_t after = micros();
      ASSERT_GE(now, before - 1);
      ASSERT_LE(now, after + 1);
    }
  });
}

TEST(TscClock, GoesByTheCounterInAChildForkedWhileAThreadRenewsTheAnchor) {
  using Machine = FakeMachine<struct Forks>;
  std::atomic<bool> stop{false};
  std::thread renews([&] {
    while (!stop.load(std::memory_order_relaxed))
      Machine::pass(kSpan / 2), (void)Machine::Clock::now();
  });
  for (int i = 0; i < 300; ++i) {  // of which many in the midst of it
    const Ended ended = run_in_child([]() -> int {
      Machine::settle();
      Machine::pass(100'000);
      return !::testing::Test::HasFailure() && std::abs(Machine::error()) <= 1 ? 0 : 1;
    });
    if (ended != exited(0)) {
      ADD_FAILURE() << "child " << i;
      break;
    }
  }
  stop = true;
  renews.join();
}

// ---- breakers over clocks
// -------------------------------------------------------------------------------------------------------------

BreakerConfig config() {
  return {.name = "clocks",
          .failure_threshold = {.failures = 3, .window = 8, .within = Millis{40}},
          .cooldown = {Millis{25}},
          .success_threshold = 2,
          .probe_limit = 2,
          .probe_timeout = Millis{15}};
}

template <class C>
ShmStorage<C> open(const TestSegment& segment, C clock = {}) {
  auto storage = ShmStorage<C>::open(segment.segment(), config(), OnMismatch::refuse, clock);
  if (!storage) throw std::runtime_error(storage.error().message);
  return *std::move(storage);
}

TEST(TscClock, MakesABreakerAnswerAsTheClockThatItFollows) {
  using Machine = FakeMachine<struct Differential>;
  Machine::settle();
  FakeClock clock{Instant{Micros{Machine::ns.load() / 1'000}}};
  const SegmentOptions options{.breakers = 1, .participants = 2, .epoch = clock.now() - Millis{1}};
  const TestSegment first{options};
  const TestSegment second{options};
  auto by_counter = open<BasicTscClock<Machine>>(first);
  auto by_clock = open<FakeClock>(second, clock);

  std::mt19937_64 random{test_seed()};
  std::array<int, 3> states{};
  for (int i = 0; i < 50'000; ++i) {
    // In the middle of a millisecond: a difference of a microsecond is not one of the rules'.
    const std::int64_t ms = static_cast<std::int64_t>(random() % (random() % 50 == 0 ? 2'000 : 8));
    const std::int64_t now = (Machine::ns.load() / 1'000'000 + ms) * 1'000'000 + 500'000;
    Machine::pass(std::max<std::int64_t>(now - Machine::ns.load(), 0));
    clock.set(Instant{Micros{Machine::ns.load() / 1'000}});

    const AdmitResult a = by_counter.admit();
    const AdmitResult b = by_clock.admit();
    ASSERT_EQ(a.admission, b.admission) << "step " << i;
    ASSERT_EQ(a.retry_after, b.retry_after) << "step " << i;
    const Outcome outcome = random() % 3 == 0 ? Outcome::failure : Outcome::success;
    const RecordResult c = by_counter.record_outcome(a.token, outcome);
    const RecordResult d = by_clock.record_outcome(b.token, outcome);
    ASSERT_EQ(c.status, d.status) << "step " << i;
    ASSERT_EQ(c.transition.has_value(), d.transition.has_value()) << "step " << i;
    const StateRecord e = by_counter.snapshot().record;
    const StateRecord f = by_clock.snapshot().record;
    ASSERT_EQ(e.state, f.state) << "step " << i;
    ASSERT_EQ(e.failures, f.failures) << "step " << i;
    ++states.at(static_cast<std::size_t>(e.state));
  }
  for (const int count : states)
    EXPECT_GT(count, 100) << "the history hardly went there";
}

/// A clock that moves in ticks, as CLOCK_MONOTONIC_COARSE does.
class TickingClock {
 public:
  static constexpr Micros kTick{4'000};
  explicit TickingClock(FakeClock precise) : precise_(std::move(precise)) {}
  [[nodiscard]] Instant now() const noexcept { return Instant{precise_.now().time_since_epoch() / kTick * kTick}; }

 private:
  FakeClock precise_;
};

class MixedClocks : public ::testing::Test {
 protected:
  FakeClock clock{Instant{std::chrono::hours{1}} + Micros{3'900}};  // just before a tick
  TestSegment segment{SegmentOptions{.breakers = 1, .participants = 2, .epoch = Instant{std::chrono::minutes{59}}}};
  ShmStorage<FakeClock> precise = open(segment, clock);
  ShmStorage<TickingClock> coarse = open(segment, TickingClock{clock});

  template <class Storage>
  static void fail_until_open(Storage& storage) {
    while (storage.snapshot().record.state == CircuitState::closed)
      (void)storage.record_outcome(storage.admit().token, Outcome::failure);
  }
  /// How long after now `storage` turns calls away.
  template <class Storage>
  Millis turns_away(Storage& storage) {
    Millis waited{0};
    for (; storage.admit().admission == Admission::rejected; ++waited)
      clock.advance(Millis{1});
    return waited;
  }
};

TEST_F(MixedClocks, WhatAPreciseOneOpensACoarseOneProbesUpToATickLater) {
  fail_until_open(precise);
  const AdmitResult behind = coarse.admit();  // its clock says that the breaker will open only in 3.9 ms
  EXPECT_EQ(behind.admission, Admission::rejected);
  EXPECT_EQ(behind.retry_after, config().cooldown.base) << "no longer than the cooldown";
  const Millis waited = turns_away(coarse);
  EXPECT_GE(waited, config().cooldown.base);
  EXPECT_LE(waited, config().cooldown.base + TickingClock::kTick);
}

TEST_F(MixedClocks, WhatACoarseOneOpensAPreciseOneProbesUpToATickEarlier) {
  fail_until_open(coarse);
  const Millis waited = turns_away(precise);
  EXPECT_LE(waited, config().cooldown.base);
  EXPECT_GE(waited, config().cooldown.base - TickingClock::kTick);
  EXPECT_LT(waited, config().cooldown.base) << "3.9 ms behind shows";
}

TEST_F(MixedClocks, AFailureOfACoarseOneCountsForATickLessAtMost) {
  for (int i = 0; i < 2; ++i)
    (void)coarse.record_outcome(coarse.admit().token, Outcome::failure);
  EXPECT_EQ(coarse.snapshot().record.failures, 2U);
  clock.advance(config().failure_threshold.within - TickingClock::kTick);
  (void)precise.record_outcome(precise.admit().token, Outcome::failure);
  EXPECT_EQ(precise.snapshot().record.state, CircuitState::open) << "a tick before their time they count";
}

TEST_F(MixedClocks, MoveNoTransitionByMoreThanATick) {
  std::mt19937_64 random{test_seed()};
  Instant newest{};
  int transitions = 0;
  const auto step = [&](auto& storage) {
    const AdmitResult admitted = storage.admit();
    const RecordResult recorded =
        storage.record_outcome(admitted.token, random() % 3 == 0 ? Outcome::failure : Outcome::success);
    for (const auto& transition : {admitted.transition, recorded.transition}) {
      if (!transition) continue;
      ++transitions;
      // A Closed period that is less than a tick old knows no instant yet that a coarse failure would be too early for.
      ASSERT_GE(transition->occurred_at, newest - TickingClock::kTick - Millis{1});
      ASSERT_LE(transition->occurred_at, clock.now());
      ASSERT_GE(transition->occurred_at, clock.now() - TickingClock::kTick - Millis{1});
      newest = std::max(newest, transition->occurred_at);
    }
  };
  for (int i = 0; i < 20'000 && !HasFatalFailure(); ++i) {
    clock.advance(Micros{static_cast<std::int64_t>(random() % 3'000)});
    if (random() % 2 == 0)
      step(precise);
    else
      step(coarse);
  }
  EXPECT_GT(transitions, 100);
}

}  // namespace
}  // namespace shmcb::test
