// SPDX-License-Identifier: BSD-3-Clause
// Calls the observers and handlers that BreakerOptions name. Whatever those do, nothing gets past here: they are called
// from destructors and noexcept functions.
#pragma once

#include <pthread.h>

#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include "shmcb/breaker_options.hpp"
#include "shmcb/failure.hpp"
#include "shmcb/types.hpp"

namespace shmcb::detail {

inline const std::exception_ptr kNothingThrown{};

/// While it lives, pthread_cancel waits: its unwinding must not meet a handler that swallows everything.
class CancellationOff {
 public:
  CancellationOff() noexcept { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~CancellationOff() { ::pthread_setcancelstate(before_, nullptr); }
  CancellationOff(const CancellationOff&) = delete;
  CancellationOff& operator=(const CancellationOff&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

/// Safe from any thread.
class BreakerReports {
 public:
  explicit BreakerReports(BreakerOptions options) noexcept : options_(std::move(options)) {}

  [[nodiscard]] const BreakerOptions& options() const noexcept { return options_; }

  void transition(const CircuitTransition& transition) const noexcept {
    const CancellationOff cancellation_off;
    for (const CircuitObserver& observer : options_.observers) {
      if (!observer.on_transition) continue;
      try {
        observer.on_transition(transition);
      } catch (...) {
        observer_error(observer, transition);
      }
    }
  }

  void storage_failure(StorageOperation operation, std::string_view breaker_name, Errc error,
                       const std::exception_ptr& downstream = kNothingThrown) const noexcept {
    if (!options_.on_storage_failure) return;
    const CancellationOff cancellation_off;
    try {
      options_.on_storage_failure(StorageFailure(operation, std::string{breaker_name}, error, downstream));
    } catch (...) {  // the caller has its own result to get
    }
  }

 private:
  /// To be called while what the observer threw is handled.
  static void observer_error(const CircuitObserver& observer, const CircuitTransition& transition) noexcept {
    try {
      observer.on_error(std::current_exception(), transition);
    } catch (...) {  // there is nobody left to tell
    }
  }

  BreakerOptions options_;
};

}  // namespace shmcb::detail
