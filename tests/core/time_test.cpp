// SPDX-License-Identifier: BSD-3-Clause
#include "shmcb/time.hpp"

#include <chrono>
#include <concepts>
#include <type_traits>

#include <gtest/gtest.h>

#include "shmcb/config.hpp"

namespace shmcb {
namespace {

static_assert(Clock<SystemClock> && Clock<CoarseClock> && Clock<FakeClock>);
static_assert(!std::is_convertible_v<std::chrono::system_clock::time_point, Instant>, "wall-clock time stays out");
static_assert(!std::is_convertible_v<std::chrono::steady_clock::time_point, Instant>);
static_assert(std::is_convertible_v<std::chrono::seconds, Millis>);
static_assert(!std::is_convertible_v<std::chrono::microseconds, Millis>, "a fraction of a millisecond is refused");
static_assert(!std::is_convertible_v<std::chrono::duration<double>, Millis>, "no floating point");
static_assert(std::is_same_v<decltype(BreakerConfig{}.cooldown.base), Millis>);

TEST(SystemClock, ReadsTheMonotonicTimeline) {
  const auto steady_micros = [] {
    return std::chrono::floor<Micros>(std::chrono::steady_clock::now().time_since_epoch());
  };
  const Micros before = steady_micros();
  const Micros now = SystemClock{}.now().time_since_epoch();
  EXPECT_LE(before, now);
  EXPECT_LE(now, steady_micros());
}

TEST(CoarseClock, IsOnTheSameTimelineAndNotAhead) {
  const Instant coarse = CoarseClock{}.now();
  EXPECT_LE(coarse, SystemClock{}.now());
  EXPECT_GT(coarse.time_since_epoch().count(), 0);
}

TEST(FakeClock, StandsStillUntilItIsSet) {
  FakeClock clock;
  const Instant start = clock.now();
  EXPECT_EQ(clock.now(), start);
  clock.advance(Micros{7});
  EXPECT_EQ(clock.now(), start + Micros{7});
  clock.set(start - Micros{1});
  EXPECT_EQ(clock.now(), start - Micros{1});
}

TEST(FakeClock, SharesItsTimeWithCopies) {
  FakeClock clock;
  const FakeClock copy = clock;
  clock.advance(Millis{5});
  EXPECT_EQ(copy.now(), clock.now());
}

}  // namespace
}  // namespace shmcb
