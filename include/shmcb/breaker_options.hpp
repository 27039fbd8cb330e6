// SPDX-License-Identifier: BSD-3-Clause
// What a CircuitBreaker tells whom, and what it does when its storage fails. Values that belong to one breaker object,
// not to the numbers that processes share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "shmcb/config.hpp"
#include "shmcb/error.hpp"
#include "shmcb/failure.hpp"
#include "shmcb/types.hpp"

namespace shmcb {

/// Hears of committed transitions, together with who hears of its own exceptions: both or neither. Called after the
/// commit, outside of any storage operation, on the thread that committed, from several threads at once. Must not end
/// its thread; what it throws never reaches the caller.
struct CircuitObserver {
  std::function<void(const CircuitTransition&)> on_transition{};
  /// Hears what `on_transition` threw. What it throws itself changes nothing.
  std::function<void(std::exception_ptr, const CircuitTransition&)> on_error{};
};

/// What `call` does when the storage cannot admit.
enum class OnAdmitFailure : std::uint8_t {
  raise,        ///< throws StorageFailure; the callback does not run (default)
  let_through,  ///< runs the callback; its outcome is recorded nowhere
  turn_away,    ///< as a rejection: the fallback, else CircuitOpenError {open, retry after 0 ms}
};

/// Options of a CircuitBreaker, in the order of their use.
struct BreakerOptions {
  std::vector<CircuitObserver> observers{};  ///< called in this order
  OnAdmitFailure on_admit_failure = OnAdmitFailure::raise;
  /// Hears of storage failures that no caller gets: an outcome that could not be recorded (`downstream_outcome` is what
  /// the callback threw), and an admit that was let through or turned away. Called from several threads at once, must
  /// not end its thread; what it throws is swallowed.
  std::function<void(const StorageFailure&)> on_storage_failure{};
  /// True: an outcome that cannot be recorded is thrown as StorageFailure INSTEAD of the callback's value or exception,
  /// and the value is lost. Permits, and results that cannot be moved, go to `on_storage_failure` all the same.
  bool raise_record_failure = false;
};

/// The first rule that options break, as an error that names the field, the value and the rule; or no error.
[[nodiscard]] inline Error check(const BreakerOptions& options) {
  for (std::size_t i = 0; i < options.observers.size(); ++i) {
    const CircuitObserver& observer = options.observers[i];
    if (static_cast<bool>(observer.on_transition) == static_cast<bool>(observer.on_error)) continue;
    const std::string field = "observers[" + std::to_string(i) + "].";
    if (observer.on_transition) return detail::bad_field(field + "on_error", "empty", "given where on_transition is");
    return detail::bad_field(field + "on_transition", "empty", "given where on_error is");
  }
  return {};
}

}  // namespace shmcb
