// SPDX-License-Identifier: BSD-3-Clause
// What the cases and their loops share: a fence for the optimizer, the call that is protected, the pause between two
// operations.
#pragma once

#include <time.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <type_traits>
#include <utility>

#include "shmcb/error.hpp"
#include "shmcb/time.hpp"

namespace shmcb::bench {

/// The compiler may neither leave out how `value` came about nor carry anything in memory over from one call to the
/// next.
template <class T>
[[gnu::always_inline]] inline void keep(T value) noexcept {
  asm volatile("" : : "r"(value) : "memory");
}

template <class T>
[[nodiscard]] T require(Result<T> result) {
  if (result) return *std::move(result);
  std::fprintf(stderr, "%s\n", result.error().message.c_str());
  std::abort();
}

template <class... T>
struct Types {
  template <class F>
  static void for_each(F f) {
    (f(std::type_identity<T>{}), ...);
  }
};

/// In place of the clock where instructions are counted: callgrind does not see the vDSO, and takes the real one for a
/// system call.
struct StillClock {
  static inline std::atomic<std::int64_t> now_us{SystemClock{}.now().time_since_epoch().count()};
  [[nodiscard]] Instant now() const noexcept { return Instant{Micros{now_us.load(std::memory_order_relaxed)}}; }
};

/// Of CLOCK_MONOTONIC.
[[nodiscard]] inline std::uint64_t clock_ns() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(now.tv_nsec);
}

/// Stands for what a breaker protects: not inlined, does nothing.
[[gnu::noinline]] inline int downstream(int argument) noexcept {
  asm volatile("" : "+r"(argument));
  return argument;
}

/// About 1 us of work that touches no memory.
inline void pace(std::uint64_t& x) noexcept {
  constexpr int kSteps = 900;
  for (int i = 0; i < kSteps; ++i) {
    x = x * 6364136223846793005U + 1442695040888963407U;
    asm volatile("" : "+r"(x));
  }
}

}  // namespace shmcb::bench
