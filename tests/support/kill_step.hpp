// SPDX-License-Identifier: BSD-3-Clause
// An environment in which a process counts the atomic accesses of one operation and sends itself a signal before the
// k-th: SIGKILL to die there, SIGSTOP to stand there until it is continued. The words and orders are those of
// production.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <limits>

#include "shmcb/core/env.hpp"

namespace shmcb::test {

/// One counter a process: for operations of one thread.
struct KillStep {
  static constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

  static void step() noexcept {
    if (++steps_ == at_) ::kill(::getpid(), signal_);
  }
  /// From now on the first access is number 1.
  static void arm(std::uint64_t at, int signal) noexcept {
    steps_ = 0;
    at_ = at;
    signal_ = signal;
  }
  static void disarm() noexcept { at_ = kNever; }
  /// Accesses since `arm`.
  [[nodiscard]] static std::uint64_t steps() noexcept { return steps_; }

 private:
  static inline std::uint64_t steps_ = 0;
  static inline std::uint64_t at_ = kNever;
  static inline int signal_ = 0;
};

using KillEnv = core::AtomicEnv<KillStep>;

}  // namespace shmcb::test
