// SPDX-License-Identifier: BSD-3-Clause
// The same errors as exceptions, for code that uses exceptions. Not included by the parts that work without them.
#pragma once

#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "shmcb/types.hpp"

namespace shmcb {

/// Base of the library's own exceptions: `code()` for programs, `what()` for people.
class BreakerError : public std::runtime_error {
 public:
  explicit BreakerError(const Error& error) : std::runtime_error(error.message), code_(error.code) {}
  [[nodiscard]] Errc code() const noexcept { return code_; }

 private:
  Errc code_;
};

/// A configuration was refused; nothing was written.
class ConfigError : public BreakerError {
  using BreakerError::BreakerError;
};

/// A segment could not be created, attached or used; nothing was changed.
class SegmentError : public BreakerError {
  using BreakerError::BreakerError;
};

/// A call was turned away: the callback did not run.
class CircuitOpenError : public std::runtime_error {
 public:
  CircuitOpenError(std::string breaker_name, CircuitState state, Millis retry_after)
      : std::runtime_error("breaker '" + breaker_name + "' is " + std::string{to_string(state)} + ": retry in " +
                           std::to_string(retry_after.count()) + " ms"),
        breaker_name_(std::move(breaker_name)),
        state_(state),
        retry_after_(retry_after) {}

  [[nodiscard]] const std::string& breaker_name() const noexcept { return breaker_name_; }
  [[nodiscard]] CircuitState state() const noexcept { return state_; }
  [[nodiscard]] Millis retry_after() const noexcept { return retry_after_; }

 private:
  std::string breaker_name_;
  CircuitState state_;
  Millis retry_after_;
};

/// Which storage operation failed.
enum class StorageOperation : std::uint8_t { admit, record_outcome, snapshot, force_state, set_mode };

[[nodiscard]] constexpr std::string_view to_string(StorageOperation operation) noexcept {
  switch (operation) {
    case StorageOperation::admit: return "admit";
    case StorageOperation::record_outcome: return "record_outcome";
    case StorageOperation::snapshot: return "snapshot";
    case StorageOperation::force_state: return "force_state";
    case StorageOperation::set_mode: return "set_mode";
  }
  return "invalid";
}

/// The storage failed; never the downstream.
class StorageFailure : public std::runtime_error {
 public:
  StorageFailure(StorageOperation operation, std::string breaker_name, Errc cause,
                 std::exception_ptr downstream_outcome = nullptr)
      : std::runtime_error("storage of breaker '" + breaker_name + "' failed in " + std::string{to_string(operation)} +
                           ": " + std::string{to_string(cause)}),
        operation_(operation),
        breaker_name_(std::move(breaker_name)),
        cause_(cause),
        downstream_outcome_(std::move(downstream_outcome)) {}

  [[nodiscard]] StorageOperation operation() const noexcept { return operation_; }
  [[nodiscard]] const std::string& breaker_name() const noexcept { return breaker_name_; }
  [[nodiscard]] Errc cause() const noexcept { return cause_; }
  /// What the callback threw, when the storage failed while recording it; null otherwise.
  [[nodiscard]] const std::exception_ptr& downstream_outcome() const noexcept { return downstream_outcome_; }

 private:
  StorageOperation operation_;
  std::string breaker_name_;
  Errc cause_;
  std::exception_ptr downstream_outcome_;
};

namespace detail {
template <class T>
struct Raise {
  [[noreturn]] static void raise(const Error& error) {
    if (error.code == Errc::invalid_config || error.code == Errc::config_mismatch) throw ConfigError(error);
    throw SegmentError(error);
  }
};
}  // namespace detail

}  // namespace shmcb
