// SPDX-License-Identifier: BSD-3-Clause
#include "shmcb/types.hpp"

#include <set>
#include <string>
#include <type_traits>

#include <gtest/gtest.h>

#include "shmcb/error.hpp"
#include "shmcb/failure.hpp"
#include "shmcb/storage.hpp"

namespace shmcb {
namespace {

static_assert(std::is_trivially_copyable_v<Token>);
static_assert(std::is_trivially_copyable_v<StateRecord>);
static_assert(std::is_trivially_copyable_v<AdmitResult>, "answers are handed on without allocation");
static_assert(sizeof(Token) == 16);

TEST(Names, AreThoseOfTracesAndRedis) {
  EXPECT_EQ(to_string(CircuitState::closed), "closed");
  EXPECT_EQ(to_string(CircuitState::open), "open");
  EXPECT_EQ(to_string(CircuitState::half_open), "half-open");
  EXPECT_EQ(to_string(Outcome::success), "success");
  EXPECT_EQ(to_string(Outcome::failure), "failure");
  EXPECT_EQ(to_string(Outcome::ignored), "ignored");
  EXPECT_EQ(to_string(Admission::allowed), "allowed");
  EXPECT_EQ(to_string(Admission::probe), "probe");
  EXPECT_EQ(to_string(Admission::rejected), "rejected");
  EXPECT_EQ(to_string(TransitionReason::failure_threshold_reached), "failure-threshold-reached");
  EXPECT_EQ(to_string(TransitionReason::cooldown_elapsed), "cooldown-elapsed");
  EXPECT_EQ(to_string(TransitionReason::probe_succeeded), "probe-succeeded");
  EXPECT_EQ(to_string(TransitionReason::probe_failed), "probe-failed");
  EXPECT_EQ(to_string(TransitionReason::forced_open), "forced-open");
  EXPECT_EQ(to_string(TransitionReason::forced_closed), "forced-closed");
  EXPECT_EQ(to_string(TransitionReason::forced_half_open), "forced-half-open");
}

TEST(Names, OfValuesThatAreNoneOfTheirTypeSaySo) {
  EXPECT_EQ(to_string(static_cast<CircuitState>(3)), "invalid");
  EXPECT_EQ(to_string(static_cast<Outcome>(3)), "invalid");
  EXPECT_EQ(to_string(static_cast<Admission>(3)), "invalid");
  EXPECT_EQ(to_string(static_cast<TransitionReason>(99)), "invalid");
  EXPECT_EQ(to_string(static_cast<RecordStatus>(9)), "invalid");
  EXPECT_EQ(to_string(static_cast<Errc>(200)), "unknown");
}

TEST(Errc, HasADistinctNameForEveryCode) {
  std::set<std::string> names;
  for (int code = 0; code <= static_cast<int>(Errc::system); ++code) {
    names.emplace(to_string(static_cast<Errc>(code)));
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(Errc::system) + 1);
  EXPECT_FALSE(names.contains("unknown"));
}

TEST(Token, OfNoAttemptIsARejectedOne) {
  EXPECT_EQ(Token{}.admission, Admission::rejected);
}

TEST(Result, HoldsAValueOrAnError) {
  const Result<int> seven = 7;
  ASSERT_TRUE(seven.has_value());
  EXPECT_EQ(*seven, 7);
  const Result<int> none = Error{Errc::no_space, "full"};
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code, Errc::no_space);
  EXPECT_EQ(none.error().message, "full");
}

TEST(Result, ThrowsAConfigErrorForAConfigAndASegmentErrorForAnyOtherCause) {
  EXPECT_EQ(Result<int>{7}.value(), 7);
  EXPECT_THROW((void)(Result<int>{Error{Errc::invalid_config, "x"}}.value()), ConfigError);
  EXPECT_THROW((void)(Result<int>{Error{Errc::config_mismatch, "x"}}.value()), ConfigError);
  try {
    (void)(Result<int>{Error{Errc::no_space, "full"}}.value());
    FAIL() << "nothing was thrown";
  } catch (const SegmentError& error) {
    EXPECT_EQ(error.code(), Errc::no_space);
    EXPECT_STREQ(error.what(), "full");
  }
}

TEST(CircuitOpenError, SaysWhoAndHowLong) {
  const CircuitOpenError error{"payments", CircuitState::open, Millis{1500}};
  EXPECT_STREQ(error.what(), "breaker 'payments' is open: retry in 1500 ms");
  EXPECT_EQ(error.breaker_name(), "payments");
  EXPECT_EQ(error.state(), CircuitState::open);
  EXPECT_EQ(error.retry_after(), Millis{1500});
}

TEST(StorageFailure, SaysWhichOperationFailedAndWhy) {
  const StorageFailure error{StorageOperation::record_outcome, "payments", Errc::corrupt};
  EXPECT_STREQ(error.what(), "storage of breaker 'payments' failed in record_outcome: corrupt");
  EXPECT_EQ(error.operation(), StorageOperation::record_outcome);
  EXPECT_EQ(error.cause(), Errc::corrupt);
  EXPECT_EQ(error.downstream_outcome(), nullptr);
}

TEST(AnyStorage, AnswersUnusableWhenEmpty) {
  AnyStorage storage;
  EXPECT_EQ(storage.admit().error, Errc::unusable);
  EXPECT_EQ(storage.record_outcome({}, Outcome::success).error, Errc::unusable);
  EXPECT_EQ(storage.force_state(CircuitState::open).error, Errc::unusable);
  EXPECT_EQ(storage.snapshot().error, Errc::unusable);
  EXPECT_EQ(storage.peek().error, Errc::unusable);
  EXPECT_EQ(storage.name(), "");
  EXPECT_TRUE(storage.degraded());
}

}  // namespace
}  // namespace shmcb
