// SPDX-License-Identifier: BSD-3-Clause
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "breaker/scripted_storage.hpp"
#include "shmcb/circuit_breaker.hpp"
#include "shmcb/memory_storage.hpp"

namespace shmcb {
namespace {

using ::testing::ElementsAre;

const auto kEveryException = [](std::exception_ptr) { return true; };
const auto kNoError = [](std::exception_ptr, const CircuitTransition&) { ADD_FAILURE(); };

std::string text_of(const CircuitTransition& transition) {
  return std::string{transition.breaker_name} + ": " + std::string{to_string(transition.from)} + " -> " +
         std::string{to_string(transition.to)} + ", " + std::string{to_string(transition.reason)};
}

class Observer : public ::testing::Test {
 protected:
  FakeClock clock;
  MemoryStorage<FakeClock> storage =
      MemoryStorage<FakeClock>::open(
          {.name = "db", .failure_threshold = {.failures = 1, .window = 1}, .cooldown = {Millis{1000}}}, clock)
          .value();
  std::vector<std::string> heard;

  CircuitObserver listening() {
    return {.on_transition = [this](const CircuitTransition& t) { heard.push_back(text_of(t)); }, .on_error = kNoError};
  }
};

TEST_F(Observer, HearsEveryTransitionOnce) {
  CircuitBreaker breaker{storage, kEveryException, {}, {.observers = {listening()}}};
  EXPECT_THROW(breaker.call([] { throw std::runtime_error("down"); }), std::runtime_error);
  EXPECT_THROW(breaker.call([] {}), CircuitOpenError);
  clock.advance(Millis{1000});
  breaker.call([] {});
  breaker.force_open();
  breaker.force_open();
  breaker.force(CircuitState::half_open);
  breaker.force_closed();
  EXPECT_THAT(heard,
              ElementsAre("db: closed -> open, failure-threshold-reached", "db: open -> half-open, cooldown-elapsed",
                          "db: half-open -> closed, probe-succeeded", "db: closed -> open, forced-open",
                          "db: open -> half-open, forced-half-open", "db: half-open -> closed, forced-closed"));
}

TEST_F(Observer, HearsTransitionsOfPermits) {
  CircuitBreaker breaker{storage, NoClassifier{}, {}, {.observers = {listening()}}};
  auto acquired = breaker.try_acquire();
  acquired.permit().failure();
  EXPECT_THAT(heard, ElementsAre("db: closed -> open, failure-threshold-reached"));
}

TEST_F(Observer, HearsTheWayToHalfOpenBeforeTheProbeRuns) {
  CircuitBreaker breaker{storage, kEveryException, {}, {.observers = {listening()}}};
  breaker.force_open();
  heard.clear();
  clock.advance(Millis{1000});
  breaker.call([&] { EXPECT_THAT(heard, ElementsAre("db: open -> half-open, cooldown-elapsed")); });
}

TEST_F(Observer, MayUseTheBreakerBecauseTheCommitIsOver) {
  CircuitState seen = CircuitState::closed;
  std::unique_ptr<CircuitBreaker<MemoryStorage<FakeClock>>> breaker;
  BreakerOptions options;
  options.observers.push_back({[&](const CircuitTransition&) { seen = breaker->state(); }, kNoError});
  breaker = std::make_unique<CircuitBreaker<MemoryStorage<FakeClock>>>(storage, options);
  breaker->force_open();
  EXPECT_EQ(seen, CircuitState::open);
}

TEST_F(Observer, ThatThrowsReachesItsErrorHandlerAndNeverTheCaller) {
  std::string message;
  BreakerOptions options;
  options.observers.push_back({[](const CircuitTransition&) { throw std::logic_error("observer"); },
                               [&](std::exception_ptr thrown, const CircuitTransition& transition) {
                                 try {
                                   std::rethrow_exception(thrown);
                                 } catch (const std::logic_error& error) {
                                   message = error.what() + (" of " + text_of(transition));
                                 }
                               }});
  options.observers.push_back(listening());
  CircuitBreaker breaker{storage, kEveryException, {}, options};
  EXPECT_EQ(breaker.call([]() -> int { throw std::runtime_error("down"); }, [] { return 1; }), 1);
  EXPECT_EQ(message, "observer of db: closed -> open, failure-threshold-reached");
  EXPECT_EQ(heard.size(), 1U);  // the others hear it nevertheless
}

TEST_F(Observer, WhoseErrorHandlerThrowsChangesNothing) {
  BreakerOptions options;
  options.observers.push_back({[](const CircuitTransition&) { throw std::logic_error("observer"); },
                               [](std::exception_ptr, const CircuitTransition&) { throw 42; }});
  CircuitBreaker breaker{storage, kEveryException, {}, options};
  EXPECT_THROW(breaker.call([] { throw std::runtime_error("down"); }), std::runtime_error);
  EXPECT_EQ(breaker.state(), CircuitState::open);
}

TEST_F(Observer, WithoutItsErrorHandlerIsRefused) {
  const auto refusal_of = [this](CircuitObserver observer) -> std::string {
    try {
      CircuitBreaker breaker{storage, BreakerOptions{.observers = {listening(), std::move(observer)}}};
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.code(), Errc::invalid_config);
      return error.what();
    }
    return {};
  };
  EXPECT_EQ(refusal_of({.on_transition = [](const CircuitTransition&) {}}),
            "observers[1].on_error is empty; it must be given where on_transition is");
  EXPECT_EQ(refusal_of({.on_error = kNoError}),
            "observers[1].on_transition is empty; it must be given where on_error is");
  EXPECT_EQ(refusal_of({}), "");
}

TEST(ObserverOfTwo, HearsATransitionOfARecordThatAlsoSucceeds) {
  auto script = std::make_shared<test::Script>();
  script->records.push_back({.status = RecordStatus::stale, .transition = test::opening()});
  std::vector<std::string> heard;
  BreakerOptions options;
  options.observers.push_back({[&](const CircuitTransition& t) { heard.push_back(text_of(t)); }, kNoError});
  CircuitBreaker breaker{test::ScriptedStorage{script}, NoClassifier{}, {}, options};
  breaker.call([]() noexcept {});  // completes a transition that another process had decided
  EXPECT_THAT(heard, ElementsAre("scripted: closed -> open, failure-threshold-reached"));
}

}  // namespace
}  // namespace shmcb
