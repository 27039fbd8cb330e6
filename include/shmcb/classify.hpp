// SPDX-License-Identifier: BSD-3-Clause
// Ready-made `classify_result` callables, for downstreams that report failures in what they return. Each accepts only
// types for which its question makes sense; anything else does not compile. Works without exceptions.
#pragma once

#include <concepts>
#include <system_error>
#include <type_traits>

#include "shmcb/types.hpp"

namespace shmcb {

/// The default: every normal return is a success.
struct AlwaysSuccess {
  template <class... Result>
  [[nodiscard]] constexpr Outcome operator()(const Result&...) const noexcept {
    return Outcome::success;
  }
};

namespace classify {

namespace detail {

[[nodiscard]] constexpr Outcome failure_if(bool failed) noexcept {
  return failed ? Outcome::failure : Outcome::success;
}

template <class T>
concept ErrorCode = std::same_as<T, std::error_code> || std::same_as<T, std::error_condition>;

template <class T>
concept ErrorEnum = std::is_error_code_enum_v<T> || std::is_error_condition_enum_v<T>;

// A number, an enumerator or an error code that is false means "went well": not for these.
template <class T>
concept FalseWhenEmpty = !std::is_arithmetic_v<T> && !std::is_enum_v<T> && !ErrorCode<T> &&
                         requires(const T& value) { static_cast<bool>(value); };

template <class T>
concept Expected = requires(const T& value) {
  { value.has_value() } -> std::convertible_to<bool>;
};

struct EmptyIsFailure {
  template <FalseWhenEmpty Result>
  [[nodiscard]] constexpr Outcome operator()(const Result& result) const {
    return failure_if(!static_cast<bool>(result));
  }
};

struct ErrorCodeIsFailure {
  template <ErrorCode Result>
  [[nodiscard]] Outcome operator()(const Result& result) const noexcept {
    return failure_if(static_cast<bool>(result));
  }
  template <ErrorEnum Result>
  [[nodiscard]] constexpr Outcome operator()(Result result) const noexcept {
    return failure_if(result != Result{});
  }
  [[nodiscard]] constexpr Outcome operator()(int error_number) const noexcept { return failure_if(error_number != 0); }
  Outcome operator()(bool) const = delete;  // true would be a failure: surely not what was meant
};

struct ExpectedIsFailure {
  template <Expected Result>
  [[nodiscard]] constexpr Outcome operator()(const Result& result) const {
    return failure_if(!result.has_value());
  }
};

struct NegativeIsFailure {
  template <std::signed_integral Result>
  [[nodiscard]] constexpr Outcome operator()(Result result) const noexcept {
    return failure_if(result < 0);
  }
};

}  // namespace detail

/// For a callback that returns something or nothing, where nothing means that the downstream failed: std::optional,
/// pointers, smart pointers. Not where "not found" is a good answer: that would open the breaker on missing keys.
// NOLINTNEXTLINE(readability-identifier-naming): called like a function
inline constexpr detail::EmptyIsFailure empty_is_failure{};

/// For a callback that returns how it went: std::error_code, std::error_condition, their enumerations (std::errc), or
/// an int that is zero or an error number (pthread_*, posix_*). Every error counts: where some are the caller's own
/// fault (no such file), a callable of your own should call those Outcome::ignored.
// NOLINTNEXTLINE(readability-identifier-naming): called like a function
inline constexpr detail::ErrorCodeIsFailure error_code_is_failure{};

/// For a callback that returns a value or an error: std::expected, shmcb::Result and what has `has_value()`. Every
/// error counts.
// NOLINTNEXTLINE(readability-identifier-naming): called like a function
inline constexpr detail::ExpectedIsFailure expected_is_failure{};

/// For a callback that returns a count or -1, as read(2), send(2) and most C interfaces do.
// NOLINTNEXTLINE(readability-identifier-naming): called like a function
inline constexpr detail::NegativeIsFailure negative_is_failure{};

}  // namespace classify

}  // namespace shmcb
