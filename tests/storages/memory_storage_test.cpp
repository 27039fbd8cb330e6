// SPDX-License-Identifier: BSD-3-Clause
#include "shmcb/memory_storage.hpp"

#include <chrono>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "conformance_suite.hpp"
#include "shmcb/failure.hpp"

namespace shmcb::test {
namespace {

struct MemoryFactory {
  Result<MemoryStorage<FakeClock, FakeRandom>> open(const BreakerConfig& config, FakeClock clock, FakeRandom random) {
    return MemoryStorage<FakeClock, FakeRandom>::open(config, clock, random);
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Memory, StorageConformance, MemoryFactory);

/// The same storage behind the type-erased interface.
struct AnyFactory {
  Result<AnyStorage> open(const BreakerConfig& config, FakeClock clock, FakeRandom random) {
    auto storage = MemoryStorage<FakeClock, FakeRandom>::open(config, clock, random);
    if (!storage) return storage.error();
    return AnyStorage{*storage};
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(AnyOfMemory, StorageConformance, AnyFactory);

MemoryStorage<FakeClock> open(const FakeClock& clock = FakeClock{}) {
  return MemoryStorage<FakeClock>::open(conformance_config(), clock).value();
}

TEST(MemoryStorage, CopiesShareTheState) {
  auto one = open();
  auto other = one;
  (void)one.force_state(CircuitState::open);
  EXPECT_EQ(other.snapshot().record.state, CircuitState::open);
  EXPECT_EQ(other.admit().admission, Admission::rejected);
  EXPECT_EQ(one.snapshot().record.rejected, 1U);
}

TEST(MemoryStorage, IsNeverDegraded) {
  EXPECT_FALSE(open().degraded());
}

TEST(MemoryStorage, TwoOfOneNameShareNothing) {
  auto one = open();
  auto other = open();
  (void)one.force_state(CircuitState::open);
  EXPECT_EQ(other.snapshot().record.state, CircuitState::closed);
}

TEST(MemoryStorage, KeepsTheNameForTransitionsAfterTheConfigIsGone) {
  auto config = std::make_unique<BreakerConfig>(conformance_config());
  config->name = std::string(200, 'n');  // no short-string storage
  auto storage = MemoryStorage<FakeClock>::open(*config, FakeClock{}).value();
  config.reset();
  EXPECT_EQ(storage.force_state(CircuitState::open).transition->breaker_name, std::string(200, 'n'));
}

TEST(MemoryStorage, RefusesAWindowBeyondItsLimit) {
  BreakerConfig config = conformance_config();
  config.failure_threshold.window = MemoryStorage<>::kMaxWindow;
  EXPECT_TRUE(MemoryStorage<>::open(config).has_value());
  ++config.failure_threshold.window;
  const auto result = MemoryStorage<>::open(config);
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, Errc::invalid_config);
  EXPECT_EQ(result.error().message,
            "failure_threshold.window is 1048577; it must be at most 1048576 in a memory storage");
}

/// Counts how often it is read.
struct CountingClock {
  std::shared_ptr<int> reads = std::make_shared<int>(0);
  [[nodiscard]] Instant now() const noexcept {
    ++*reads;
    return Instant{std::chrono::seconds{1}};
  }
};

TEST(MemoryStorage, ReadsTheClockAtMostOncePerOperationAndNotForAClosedAdmit) {
  const CountingClock clock;
  auto storage = MemoryStorage<CountingClock>::open(conformance_config(), clock).value();
  const auto reads_of = [&clock](auto operation) {
    *clock.reads = 0;
    operation();
    return *clock.reads;
  };
  Token token;
  EXPECT_EQ(reads_of([&] { token = storage.admit().token; }), 0);
  EXPECT_EQ(reads_of([&] { (void)storage.record_outcome(token, Outcome::failure); }), 1);
  EXPECT_EQ(reads_of([&] { (void)storage.record_outcome(token, Outcome::ignored); }), 0);
  EXPECT_EQ(reads_of([&] { (void)storage.snapshot(); }), 0);
  EXPECT_EQ(reads_of([&] { (void)storage.peek(); }), 0);
  EXPECT_EQ(reads_of([&] { (void)storage.force_state(CircuitState::open); }), 1);
  EXPECT_EQ(reads_of([&] { token = storage.admit().token; }), 1);
  EXPECT_EQ(reads_of([&] { (void)storage.record_outcome(token, Outcome::failure); }), 0);
  EXPECT_EQ(reads_of([&] { (void)storage.peek(); }), 1);
}

TEST(MemoryStorage, TakesAnInstantBelowZeroForZero) {
  auto storage = open(FakeClock{Instant{std::chrono::hours{-1}}});
  (void)storage.force_state(CircuitState::open);
  EXPECT_EQ(storage.snapshot().record.opened_at, Instant{});
  EXPECT_EQ(storage.admit().retry_after, Millis{50});
}

TEST(MemoryStorage, WorksWithTheSystemClock) {
  auto storage = MemoryStorage<>::open(conformance_config()).value();
  const Instant before = SystemClock{}.now();
  const auto transition = storage.force_state(CircuitState::open).transition;
  ASSERT_TRUE(transition.has_value());
  EXPECT_GE(transition->occurred_at, before - Millis{1});  // floored
  EXPECT_LE(transition->occurred_at, SystemClock{}.now());
}

}  // namespace
}  // namespace shmcb::test
