// SPDX-License-Identifier: BSD-3-Clause
#include "shmcb/classify.hpp"

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <system_error>

#include <gtest/gtest.h>

#include "shmcb/circuit_breaker.hpp"
#include "shmcb/memory_storage.hpp"

namespace shmcb {
namespace {

template <class Classifier, class T>
concept Takes = std::is_invocable_r_v<Outcome, const Classifier&, const T&>;

using Empty = decltype(classify::empty_is_failure);
using ErrorCode = decltype(classify::error_code_is_failure);
using Expected = decltype(classify::expected_is_failure);
using Negative = decltype(classify::negative_is_failure);

TEST(Classify, AlwaysSuccessTakesEverything) {
  static_assert(AlwaysSuccess{}() == Outcome::success);
  static_assert(AlwaysSuccess{}(-1) == Outcome::success);
}

TEST(Classify, EmptyIsFailure) {
  using classify::empty_is_failure;
  const int value = 0;
  EXPECT_EQ(empty_is_failure(std::optional<int>{}), Outcome::failure);
  EXPECT_EQ(empty_is_failure(std::optional<int>{0}), Outcome::success);
  EXPECT_EQ(empty_is_failure(std::unique_ptr<int>{}), Outcome::failure);
  EXPECT_EQ(empty_is_failure(std::make_shared<int>(0)), Outcome::success);
  EXPECT_EQ(empty_is_failure(&value), Outcome::success);
  EXPECT_EQ(empty_is_failure(static_cast<const int*>(nullptr)), Outcome::failure);
}

TEST(Classify, EmptyIsFailureRefusesTypesWhereFalseIsGood) {
  static_assert(Takes<Empty, std::optional<int>>);
  static_assert(!Takes<Empty, int> && !Takes<Empty, bool>);
  static_assert(!Takes<Empty, std::error_code> && !Takes<Empty, std::error_condition> && !Takes<Empty, std::errc>);
  static_assert(!Takes<Empty, std::string>);
}

TEST(Classify, ErrorCodeIsFailure) {
  using classify::error_code_is_failure;
  EXPECT_EQ(error_code_is_failure(std::error_code{}), Outcome::success);
  EXPECT_EQ(error_code_is_failure(std::make_error_code(std::errc::timed_out)), Outcome::failure);
  EXPECT_EQ(error_code_is_failure(std::error_condition{}), Outcome::success);
  EXPECT_EQ(error_code_is_failure(std::errc::timed_out), Outcome::failure);
  EXPECT_EQ(error_code_is_failure(std::errc{}), Outcome::success);
  EXPECT_EQ(error_code_is_failure(0), Outcome::success);
  EXPECT_EQ(error_code_is_failure(-1), Outcome::failure);
  static_assert(!Takes<ErrorCode, bool> && !Takes<ErrorCode, std::optional<int>>);
}

TEST(Classify, ExpectedIsFailure) {
  using classify::expected_is_failure;
  EXPECT_EQ(expected_is_failure(Result<int>{1}), Outcome::success);
  EXPECT_EQ(expected_is_failure(Result<int>{Error{Errc::system, "down"}}), Outcome::failure);
  static_assert(!Takes<Expected, int> && !Takes<Expected, std::unique_ptr<int>>);
}

TEST(Classify, NegativeIsFailure) {
  using classify::negative_is_failure;
  EXPECT_EQ(negative_is_failure(ssize_t{-1}), Outcome::failure);
  EXPECT_EQ(negative_is_failure(0), Outcome::success);
  static_assert(!Takes<Negative, std::size_t> && !Takes<Negative, double>);
}

TEST(Classify, FitsIntoABreaker) {
  CircuitBreaker breaker{MemoryStorage<>::open({.name = "classify"}).value(), [](std::exception_ptr) { return true; },
                         classify::negative_is_failure};
  EXPECT_EQ(breaker.call([] { return -1; }), -1);
  EXPECT_EQ(breaker.call([] { return 5; }), 5);
  EXPECT_EQ(breaker.metrics().failures, 1U);
  EXPECT_EQ(breaker.metrics().successes, 1U);
}

}  // namespace
}  // namespace shmcb
