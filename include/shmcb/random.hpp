// SPDX-License-Identifier: BSD-3-Clause
// Chance, injected like the clock: one draw for the jitter of a cooldown, one for each call while a breaker ramps up.
#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>
#include <memory>

#include "shmcb/core/process_identity.hpp"
#include "shmcb/core/rules.hpp"

namespace shmcb {

/// A source of draws, even over [0, rules::kDraws). Called only by an operation that opens a breaker, replaces its
/// settings, or admits while it ramps up. Safe to call from any thread.
template <class R>
concept Random = std::copy_constructible<R> && requires(const R& random) {
  { random.draw() } noexcept -> std::same_as<std::uint32_t>;
};

/// A generator of each thread's own (splitmix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators",
/// OOPSLA 2014). The process is mixed into every draw, so a forked child does not repeat its parent's. The default.
struct SystemRandom {
  [[nodiscard]] std::uint32_t draw() const noexcept {
    thread_local std::uint64_t state = 0;
    if (state == 0) state = reinterpret_cast<std::uintptr_t>(&state);  // another one in each thread
    std::uint64_t z = (state += 0x9e37'79b9'7f4a'7c15) ^ core::current_process();
    z = (z ^ (z >> 30U)) * 0xbf58'476d'1ce4'e5b9;
    z = (z ^ (z >> 27U)) * 0x94d0'49bb'1331'11eb;
    z ^= z >> 31U;
    return static_cast<std::uint32_t>(((z >> 32U) * rules::kDraws) >> 32U);
  }
};

/// For tests: draws what it was told last. Copies share it; safe from any thread.
class FakeRandom {
 public:
  explicit FakeRandom(std::uint32_t draw = 0) : draw_(std::make_shared<std::atomic<std::uint32_t>>(draw)) {}

  // Relaxed: a test that hands draws between threads orders them by its own means.
  [[nodiscard]] std::uint32_t draw() const noexcept { return draw_->load(std::memory_order_relaxed); }
  /// Requires draw < rules::kDraws.
  void set(std::uint32_t draw) noexcept { draw_->store(draw, std::memory_order_relaxed); }

 private:
  std::shared_ptr<std::atomic<std::uint32_t>> draw_;
};

}  // namespace shmcb
