// SPDX-License-Identifier: BSD-3-Clause
// What is_failure and classify_result decide, and what happens when they throw themselves.
#include <pthread.h>

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "breaker/scripted_storage.hpp"
#include "shmcb/circuit_breaker.hpp"
#include "shmcb/memory_storage.hpp"

namespace shmcb {
namespace {

using test::Script;
using test::ScriptedStorage;
using ::testing::ElementsAre;

constexpr auto kEveryException = [](std::exception_ptr) { return true; };

class CallClassifier : public ::testing::Test {
 protected:
  std::shared_ptr<Script> script = std::make_shared<Script>();
  ScriptedStorage storage{script};

  /// What a call throws whose callback throws std::runtime_error("down") and whose is_failure does `broken`.
  template <class Broken>
  std::exception_ptr thrown_with(Broken broken) {
    CircuitBreaker breaker{storage, [broken](std::exception_ptr thrown) -> bool {
                             broken(thrown);
                             return true;
                           }};
    try {
      breaker.call([] { throw std::runtime_error("down"); }, [] { ADD_FAILURE() << "the fallback was used"; });
    } catch (...) {
      return std::current_exception();
    }
    return nullptr;
  }
};

/// The message of what is nested in `outer`; empty: nothing.
std::string nested_in(const std::exception& outer) {
  try {
    std::rethrow_if_nested(outer);
  } catch (const std::exception& inner) {
    return inner.what();
  }
  return {};
}

TEST_F(CallClassifier, GetsTheExceptionAndDecides) {
  CircuitBreaker breaker{storage, [](std::exception_ptr thrown) {
                           try {
                             std::rethrow_exception(thrown);
                           } catch (const std::invalid_argument&) {
                             return false;
                           } catch (...) {
                             return true;
                           }
                         }};
  EXPECT_THROW(breaker.call([] { throw std::invalid_argument("caller"); }), std::invalid_argument);
  EXPECT_THROW(breaker.call([] { throw std::runtime_error("down"); }), std::runtime_error);
  EXPECT_THAT(script->operations, ElementsAre("admit", "record ignored", "admit", "record failure"));
}

TEST_F(CallClassifier, MayRethrowWhatIsBeingHandled) {
  CircuitBreaker breaker{storage, [](const std::exception_ptr&) {
                           try {
                             throw;
                           } catch (const std::runtime_error&) {
                             return true;
                           } catch (...) {
                             return false;
                           }
                         }};
  EXPECT_THROW(breaker.call([] { throw std::runtime_error("down"); }), std::runtime_error);
  EXPECT_THAT(script->operations, ElementsAre("admit", "record failure"));
}

TEST_F(CallClassifier, ThatThrowsHasIgnoredRecordedAndTheCallbacksExceptionNested) {
  try {
    std::rethrow_exception(thrown_with([](auto&&) { throw std::logic_error("classifier"); }));
  } catch (const std::logic_error& outer) {
    EXPECT_STREQ(outer.what(), "classifier");
    EXPECT_EQ(nested_in(outer), "down");
  }
  EXPECT_THAT(script->operations, ElementsAre("admit", "record ignored"));
}

TEST_F(CallClassifier, ThatThrowsStandardTypesKeepsThem) {
  const auto is = [this]<class E>(const E& broken) {
    try {
      std::rethrow_exception(thrown_with([&](auto&&) { throw broken; }));
    } catch (const E& outer) {
      return nested_in(outer) == "down" && std::string{outer.what()} == broken.what();
    }
    return false;
  };
  EXPECT_TRUE(is(std::out_of_range("classifier")));
  EXPECT_TRUE(is(std::system_error(std::make_error_code(std::errc::io_error), "classifier")));
  EXPECT_TRUE(is(std::bad_function_call{}));
  EXPECT_TRUE(is(std::bad_alloc{}));
  EXPECT_TRUE(is(std::exception{}));
}

TEST_F(CallClassifier, MayNestByItself) {
  struct Own : std::runtime_error {
    using std::runtime_error::runtime_error;
  };
  try {
    std::rethrow_exception(thrown_with([](auto&&) { std::throw_with_nested(Own("classifier")); }));
  } catch (const Own& outer) {
    EXPECT_EQ(nested_in(outer), "down");
  }
}

TEST_F(CallClassifier, ThatThrowsATypeOfItsOwnLetsItPropagate) {
  struct Final final : std::runtime_error {
    using std::runtime_error::runtime_error;
  };
  struct Own : std::runtime_error {
    using std::runtime_error::runtime_error;
  };
  EXPECT_THROW(std::rethrow_exception(thrown_with([](auto&&) { throw Final("classifier"); })), Final);
  EXPECT_THROW(std::rethrow_exception(thrown_with([](auto&&) { throw Own("classifier"); })), Own);
  EXPECT_THROW(std::rethrow_exception(thrown_with([](auto&&) { throw 42; })), int);
  EXPECT_THAT(script->operations,
              ElementsAre("admit", "record ignored", "admit", "record ignored", "admit", "record ignored"));
}

TEST_F(CallClassifier, ThatRethrowsTheCallbacksExceptionLetsItPropagate) {
  struct Timeout : std::runtime_error {
    using std::runtime_error::runtime_error;
  };
  CircuitBreaker breaker{storage, [](std::exception_ptr thrown) -> bool { std::rethrow_exception(thrown); }};
  EXPECT_THROW(breaker.call([] { throw Timeout("down"); }), Timeout);
  EXPECT_THAT(script->operations, ElementsAre("admit", "record ignored"));
}

TEST_F(CallClassifier, OfResultsDecidesAndTheValueIsReturnedInEveryCase) {
  for (const Outcome outcome : {Outcome::success, Outcome::failure, Outcome::ignored}) {
    CircuitBreaker breaker{storage, kEveryException, [outcome](const int&) { return outcome; }};
    EXPECT_EQ(breaker.call([] { return 3; },
                           [] {
                             ADD_FAILURE() << "the fallback was used";
                             return 0;
                           }),
              3);
    EXPECT_EQ(script->operations.back(), "record " + std::string{to_string(outcome)});
  }
  EXPECT_EQ(script->operations.size(), 6U);
}

TEST_F(CallClassifier, OfResultsSeesTheResultItself) {
  int value = 4;
  const int* seen = nullptr;
  CircuitBreaker breaker{storage, kEveryException, [&seen](const int& result) {
                           seen = &result;
                           return Outcome::failure;
                         }};
  int& returned = breaker.call([&]() -> int& { return value; });
  EXPECT_EQ(&returned, &value);
  EXPECT_EQ(seen, &value);
}

TEST_F(CallClassifier, OfResultsMayBeGeneric) {
  CircuitBreaker breaker{storage, kEveryException,
                         [](const auto& result) { return sizeof(result) == 1 ? Outcome::failure : Outcome::success; }};
  EXPECT_EQ(breaker.call([] { return 'c'; }), 'c');
  EXPECT_EQ(*breaker.call([] { return std::make_unique<int>(1); }), 1);
  breaker.call([] {});
  EXPECT_THAT(script->operations,
              ElementsAre("admit", "record failure", "admit", "record success", "admit", "record success"));
}

TEST_F(CallClassifier, OfVoidResultsIsAskedIfItTakesNothing) {
  CircuitBreaker breaker{storage, kEveryException, [] { return Outcome::ignored; }};
  breaker.call([] {});
  EXPECT_THAT(script->operations, ElementsAre("admit", "record ignored"));
}

TEST_F(CallClassifier, OfResultsThatThrowsHasIgnoredRecordedAndItsExceptionPropagates) {
  int judged = 0;
  CircuitBreaker breaker{storage,
                         [&judged](std::exception_ptr) {
                           ++judged;
                           return true;
                         },
                         [](const auto&...) -> Outcome { throw std::logic_error("classifier"); }};
  const auto fallback = [] { ADD_FAILURE() << "the fallback was used"; };
  EXPECT_THROW(breaker.call([] { return 1; }), std::logic_error);
  EXPECT_THROW(breaker.call([] {}, fallback), std::logic_error);
  EXPECT_EQ(judged, 0);
  EXPECT_THAT(script->operations, ElementsAre("admit", "record ignored", "admit", "record ignored"));
}

TEST_F(CallClassifier, IsRefusedWhereItIsEmpty) {
  using IsFailure = std::function<bool(std::exception_ptr)>;
  using Classify = std::function<Outcome(const int&)>;
  try {
    CircuitBreaker breaker{storage, IsFailure{}};
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.code(), Errc::invalid_config);
    EXPECT_STREQ(error.what(), "is_failure is empty; it must be callable");
  }
  EXPECT_THROW((CircuitBreaker{storage, kEveryException, Classify{}}), ConfigError);
  bool (*null)(std::exception_ptr) = nullptr;
  EXPECT_THROW((CircuitBreaker{storage, null}), ConfigError);
}

struct Cancelled {
  CircuitBreaker<ScriptedStorage, bool (*)(std::exception_ptr)>& breaker;
  std::atomic<bool> running{false};
  std::atomic<bool> went_on{false};
};

void* call_until_cancelled(void* argument) {
  auto& cancelled = *static_cast<Cancelled*>(argument);
  cancelled.breaker.call(
      [&] {
        cancelled.running = true;
        for (;;)
          ::pthread_testcancel();
      },
      [&] { cancelled.went_on = true; });
  cancelled.went_on = true;
  return nullptr;
}

TEST_F(CallClassifier, NeverSeesThreadCancellationWhichIsRecordedAsIgnored) {
  CircuitBreaker<ScriptedStorage, bool (*)(std::exception_ptr)> breaker{storage, [](std::exception_ptr) {
                                                                          ADD_FAILURE();
                                                                          return true;
                                                                        }};
  Cancelled cancelled{breaker};
  pthread_t thread{};
  ASSERT_EQ(::pthread_create(&thread, nullptr, &call_until_cancelled, &cancelled), 0);
  while (!cancelled.running)
    ::sched_yield();
  ASSERT_EQ(::pthread_cancel(thread), 0);
  void* result = nullptr;
  ASSERT_EQ(::pthread_join(thread, &result), 0);
  EXPECT_EQ(result, PTHREAD_CANCELED);
  EXPECT_FALSE(cancelled.went_on);
  EXPECT_THAT(script->operations, ElementsAre("admit", "record ignored"));
}

}  // namespace
}  // namespace shmcb

namespace shmcb {
namespace {

TEST(Stamp, IsWhenTheCallbackThrewHoweverLongIsFailureTakes) {
  FakeClock clock;
  const Instant completed_at = clock.now();
  CircuitBreaker breaker{
      MemoryStorage<FakeClock>::open({.name = "stamp", .failure_threshold = {.failures = 1}}, clock).value(),
      [clock](std::exception_ptr) {
        FakeClock{clock}.advance(Millis{10});
        return true;
      }};
  EXPECT_THROW(breaker.call([]() -> int { throw std::runtime_error("down"); }), std::runtime_error);
  EXPECT_EQ(breaker.metrics().opened_at, completed_at);
}

TEST(Stamp, IsWhenTheCallbackReturnedHoweverLongClassifyResultTakes) {
  FakeClock clock;
  const Instant completed_at = clock.now();
  CircuitBreaker breaker{
      MemoryStorage<FakeClock>::open({.name = "stamp", .failure_threshold = {.failures = 1}}, clock).value(),
      [](std::exception_ptr) { return true; },
      [clock](int) {
        FakeClock{clock}.advance(Millis{10});
        return Outcome::failure;
      }};
  EXPECT_EQ(breaker.call([] { return 1; }), 1);
  EXPECT_EQ(breaker.metrics().opened_at, completed_at);
}

}  // namespace
}  // namespace shmcb
