// SPDX-License-Identifier: BSD-3-Clause
// The environment the shared-memory code is written over: its atomic words with their orders, the widths of its tags
// and an empty step. Production uses StdEnv; schedulers, kill tests and model checkers bring their own and run the same
// source.
#pragma once

#include <atomic>
#include <cstdint>

namespace shmcb::core {

/// Widths of the wrapping tags in the shared words, in bits. Tests make them tiny; docs/segment-format.md says why
/// wrapping is harmless at these.
// NOLINTBEGIN(readability-identifier-naming): widths and orders are named as what they are
struct StdWidths {
  static constexpr unsigned lap = 9;
  static constexpr unsigned slot_generation = 4;
  static constexpr unsigned generation = 24;
  static constexpr unsigned version = 12;
};
// NOLINTEND(readability-identifier-naming)

/// Atomic 64-bit words of the host. `Step::step()` runs before every access.
template <class Step, class WidthsOf = StdWidths>
struct AtomicEnv {
  using Word = std::atomic<std::uint64_t>;
  using Widths = WidthsOf;
  static_assert(Word::is_always_lock_free && sizeof(Word) == 8, "a shared word must be lock-free, and so address-free");

  using Order = std::memory_order;
  // NOLINTBEGIN(readability-identifier-naming): as above
  static constexpr Order relaxed = std::memory_order_relaxed;
  static constexpr Order acquire = std::memory_order_acquire;
  static constexpr Order release = std::memory_order_release;
  static constexpr Order acq_rel = std::memory_order_acq_rel;
  // NOLINTEND(readability-identifier-naming)

  static std::uint64_t load(const Word& word, Order order) noexcept {
    Step::step();
    return word.load(order);
  }
  static void store(Word& word, std::uint64_t value, Order order) noexcept {
    Step::step();
    word.store(value, order);
  }
  /// One attempt, no spurious failure; a failure loads relaxed. `expected` is left as it was.
  static bool cas(Word& word, std::uint64_t expected, std::uint64_t desired, Order order) noexcept {
    Step::step();
    return word.compare_exchange_strong(expected, desired, order, std::memory_order_relaxed);
  }
  static std::uint64_t fetch_add(Word& word, std::uint64_t value, Order order) noexcept {
    Step::step();
    return word.fetch_add(value, order);
  }
};

struct NoStep {
  static void step() noexcept {}
};

using StdEnv = AtomicEnv<NoStep>;

}  // namespace shmcb::core
