// SPDX-License-Identifier: BSD-3-Clause
// A failing storage: never classified, never the fallback's business, and never in the way of a callback that has run.
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "breaker/scripted_storage.hpp"
#include "shmcb/circuit_breaker.hpp"

namespace shmcb {
namespace {

using test::Script;
using test::ScriptedStorage;
using ::testing::ElementsAre;

class CallStorageFailure : public ::testing::Test {
 protected:
  std::shared_ptr<Script> script = std::make_shared<Script>();
  ScriptedStorage storage{script};
  std::vector<StorageFailure> heard;
  int judged = 0;

  auto breaker_with(BreakerOptions options = {}) {
    options.on_storage_failure = [this](const StorageFailure& failure) { heard.push_back(failure); };
    return CircuitBreaker{storage,
                          [this](std::exception_ptr) {
                            ++judged;
                            return true;
                          },
                          AlwaysSuccess{}, std::move(options)};
  }
  void fail_admit() { script->admits.push_back({.error = Errc::corrupt}); }
  void fail_record() { script->records.push_back({.error = Errc::records_exhausted}); }
};

TEST_F(CallStorageFailure, OfAdmitIsThrownAndNothingElseHappens) {
  auto breaker = breaker_with();
  fail_admit();
  fail_admit();
  try {
    breaker.call([] { ADD_FAILURE(); }, [] { ADD_FAILURE(); });
    FAIL();
  } catch (const StorageFailure& failure) {
    EXPECT_EQ(failure.operation(), StorageOperation::admit);
    EXPECT_EQ(failure.breaker_name(), "scripted");
    EXPECT_EQ(failure.cause(), Errc::corrupt);
    EXPECT_EQ(failure.downstream_outcome(), nullptr);
  }
  EXPECT_THROW(breaker.call([] { ADD_FAILURE(); }), StorageFailure);
  EXPECT_EQ(judged, 0);
  EXPECT_TRUE(heard.empty());  // the callers have them
  EXPECT_EQ(breaker.storage_failures(), 2U);
  EXPECT_THAT(script->operations, ElementsAre("admit", "admit"));
}

TEST_F(CallStorageFailure, OfAdmitLetsTheCallThroughIfChosen) {
  auto breaker = breaker_with({.on_admit_failure = OnAdmitFailure::let_through});
  fail_admit();
  EXPECT_EQ(breaker.call([] { return 1; }), 1);
  fail_admit();
  EXPECT_THROW(breaker.call([] { throw std::runtime_error("down"); }), std::runtime_error);
  fail_admit();
  EXPECT_EQ(breaker.call([]() -> int { throw std::runtime_error("down"); }, [] { return 2; }), 2);
  EXPECT_THAT(script->operations, ElementsAre("admit", "admit", "admit"));  // nothing is recorded
  ASSERT_EQ(heard.size(), 3U);
  EXPECT_EQ(heard[0].operation(), StorageOperation::admit);
  EXPECT_EQ(breaker.storage_failures(), 3U);
}

TEST_F(CallStorageFailure, OfAdmitTurnsTheCallAwayIfChosen) {
  auto breaker = breaker_with({.on_admit_failure = OnAdmitFailure::turn_away});
  fail_admit();
  try {
    breaker.call([] { ADD_FAILURE(); });
    FAIL();
  } catch (const CircuitOpenError& error) {
    EXPECT_EQ(error.breaker_name(), "scripted");
    EXPECT_EQ(error.retry_after(), Millis{0});
  }
  fail_admit();
  EXPECT_EQ(breaker.call([] { return 1; }, [] { return 2; }), 2);
  EXPECT_EQ(heard.size(), 2U);
}

TEST_F(CallStorageFailure, OfRecordLeavesTheCallerItsValue) {
  auto breaker = breaker_with();
  fail_record();
  EXPECT_EQ(*breaker.call([] { return std::make_unique<int>(7); }, [] { return nullptr; }), 7);
  ASSERT_EQ(heard.size(), 1U);
  EXPECT_EQ(heard[0].operation(), StorageOperation::record_outcome);
  EXPECT_EQ(heard[0].cause(), Errc::records_exhausted);
  EXPECT_EQ(heard[0].downstream_outcome(), nullptr);
  EXPECT_EQ(breaker.storage_failures(), 1U);
  EXPECT_THAT(script->operations, ElementsAre("admit", "record success"));  // not tried again
}

TEST_F(CallStorageFailure, OfRecordLeavesTheCallerItsException) {
  auto breaker = breaker_with();
  fail_record();
  EXPECT_THROW(breaker.call([] { throw std::range_error("down"); }), std::range_error);
  ASSERT_EQ(heard.size(), 1U);
  EXPECT_THROW(std::rethrow_exception(heard[0].downstream_outcome()), std::range_error);
}

TEST_F(CallStorageFailure, OfRecordLeavesTheCallerItsFallback) {
  auto breaker = breaker_with();
  fail_record();
  EXPECT_EQ(breaker.call([]() -> int { throw std::range_error("down"); }, [] { return 3; }), 3);
  EXPECT_EQ(heard.size(), 1U);
}

struct Pinned {
  Pinned() = default;
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  ~Pinned() = default;
};

TEST_F(CallStorageFailure, OfRecordLeavesTheCallerAValueThatCannotBeMoved) {
  auto breaker = breaker_with({.raise_record_failure = true});
  fail_record();
  [[maybe_unused]] const Pinned pinned = breaker.call([] { return Pinned{}; });
  EXPECT_EQ(heard.size(), 1U);
}

TEST_F(CallStorageFailure, OfRecordIsCountedWithoutAnyoneToHearIt) {
  CircuitBreaker breaker{storage, [](std::exception_ptr) { return true; }};
  fail_record();
  EXPECT_EQ(breaker.call([] { return 1; }), 1);
  EXPECT_EQ(breaker.storage_failures(), 1U);
  EXPECT_EQ(breaker.metrics().storage_failures, 1U);
}

TEST_F(CallStorageFailure, IsNotReplacedByWhatItsHandlerThrows) {
  BreakerOptions options;
  options.on_storage_failure = [](const StorageFailure&) { throw std::logic_error("handler"); };
  CircuitBreaker breaker{storage, [](std::exception_ptr) { return true; }, {}, options};
  fail_record();
  EXPECT_EQ(breaker.call([] { return 1; }), 1);
  fail_record();
  EXPECT_THROW(breaker.call([] { throw std::range_error("down"); }), std::range_error);
}

TEST_F(CallStorageFailure, OfRecordIsThrownInsteadIfChosen) {
  auto breaker = breaker_with({.raise_record_failure = true});
  fail_record();
  EXPECT_THROW(breaker.call([] { return 1; }), StorageFailure);
  fail_record();
  EXPECT_THROW(breaker.call([] {}), StorageFailure);
  fail_record();
  try {
    breaker.call([] { throw std::range_error("down"); }, [] { ADD_FAILURE() << "the fallback was used"; });
    FAIL();
  } catch (const StorageFailure& failure) {
    EXPECT_EQ(failure.operation(), StorageOperation::record_outcome);
    EXPECT_THROW(std::rethrow_exception(failure.downstream_outcome()), std::range_error);
  }
  EXPECT_TRUE(heard.empty());
  EXPECT_EQ(judged, 1);
  EXPECT_THAT(script->operations,
              ElementsAre("admit", "record success", "admit", "record success", "admit", "record failure"));
}

TEST_F(CallStorageFailure, DoesNotHideWhatAClassifierThrew) {
  BreakerOptions options{.raise_record_failure = true};
  options.on_storage_failure = [this](const StorageFailure& failure) { heard.push_back(failure); };
  CircuitBreaker breaker{storage, [](std::exception_ptr) -> bool { throw std::logic_error("is_failure"); },
                         [](int) -> Outcome { throw std::out_of_range("classify_result"); }, options};
  fail_record();
  EXPECT_THROW(breaker.call([] { throw std::runtime_error("down"); }), std::logic_error);
  fail_record();
  EXPECT_THROW(breaker.call([] { return 1; }), std::out_of_range);
  ASSERT_EQ(heard.size(), 2U);
  EXPECT_THROW(std::rethrow_exception(heard[0].downstream_outcome()), std::runtime_error);
}

TEST_F(CallStorageFailure, OfADroppedPermitIsHeard) {
  auto breaker = breaker_with();
  fail_record();
  { const auto acquired = breaker.try_acquire(); }
  ASSERT_EQ(heard.size(), 1U);
  EXPECT_EQ(heard[0].operation(), StorageOperation::record_outcome);
}

TEST_F(CallStorageFailure, OfTheOtherOperationsIsThrown) {
  auto breaker = breaker_with();
  script->force.error = Errc::read_only;
  script->snapshot.error = Errc::corrupt;
  script->peek.error = Errc::corrupt;
  const auto operation_of = [](auto act) {
    try {
      act();
    } catch (const StorageFailure& failure) {
      return failure.operation();
    }
    return StorageOperation::admit;
  };
  EXPECT_EQ(operation_of([&] { breaker.force_open(); }), StorageOperation::force_state);
  EXPECT_EQ(operation_of([&] { breaker.force_closed(); }), StorageOperation::force_state);
  EXPECT_EQ(operation_of([&] { static_cast<void>(breaker.metrics()); }), StorageOperation::snapshot);
  EXPECT_EQ(operation_of([&] { static_cast<void>(breaker.state()); }), StorageOperation::snapshot);
}

TEST_F(CallStorageFailure, MakesCanCallAnswerWhatACallWouldMeet) {
  script->peek.error = Errc::corrupt;
  const auto can_call = [this](OnAdmitFailure choice) {
    return CircuitBreaker{storage, NoClassifier{}, {}, {.on_admit_failure = choice}}.can_call();
  };
  EXPECT_TRUE(can_call(OnAdmitFailure::raise));
  EXPECT_TRUE(can_call(OnAdmitFailure::let_through));
  EXPECT_FALSE(can_call(OnAdmitFailure::turn_away));
}

}  // namespace
}  // namespace shmcb
