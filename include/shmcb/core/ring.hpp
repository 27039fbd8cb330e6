// SPDX-License-Identifier: BSD-3-Clause
// The sliding window: a ring of slots, appended by compare-and-swap ON the slot at the first one not yet written in
// this lap. The swap is the moment the outcome exists; positions have no gaps, generations and times never decrease
// along it. Nothing is ever cleared: a slot carries its lap and the generation of its period, and what does not match
// does not count.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>

#include "shmcb/core/layout.hpp"
#include "shmcb/core/rules.hpp"

namespace shmcb::core {

/// What one operation may spend before it gives up with Errc::corrupt. A round lost is another process's progress, so
/// only words that no correct process wrote use this up (arbitrary, far above what contention can cost; tens of
/// milliseconds).
class Work {
 public:
  explicit constexpr Work(std::uint64_t budget = kBase) noexcept : left_(budget) {}
  /// For an operation that may have to count a ring of so many slots again and again, because it loses its processor
  /// while it counts.
  [[nodiscard]] static constexpr Work on_ring(std::uint64_t capacity) noexcept { return Work(kBase + 64 * capacity); }
  /// False: spent.
  [[nodiscard]] constexpr bool charge(std::uint64_t amount = 1) noexcept {
    left_ -= std::min(left_, amount);
    return left_ != 0;
  }

 private:
  static constexpr std::uint64_t kBase = 1U << 22U;
  std::uint64_t left_;
};

/// Looks in vain, while nobody moved, after which a ring does not fit together for good (arbitrary; a thousandth of a
/// blink). Among correct processes the hint has moved on whenever what it led to did not fit.
inline constexpr std::uint32_t kMaxVain = 1'000;

/// Where a handle begins to look for the tail: the position after its own newest entry, so process-local and of any
/// age. An old one is noticed and costs a look at the hint. On a line of its own, because every record writes it and
/// every admit reads the handle beside it.
class alignas(kLine) SearchStart {
 public:
  SearchStart() = default;
  SearchStart(const SearchStart& other) noexcept : position_(other.get()) {}
  SearchStart& operator=(const SearchStart& other) noexcept {
    set(other.get());
    return *this;
  }
  ~SearchStart() = default;

  /// 0: nothing appended yet. Relaxed: any value will do, also another thread's.
  [[nodiscard]] std::uint64_t get() const noexcept { return position_.load(std::memory_order_relaxed); }
  void set(std::uint64_t position) noexcept { position_.store(position, std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> position_{0};
};

/// One breaker's ring, as a handle that was checked when the breaker was opened. Holds no state of its own.
template <class Env>
class Ring {
 public:
  using Word = typename Env::Word;
  using Entry = Slot<typename Env::Widths>;
  using Position = std::uint64_t;

  Ring() = default;
  Ring(Word* slots, std::uint32_t capacity, Word* hint) noexcept
      : slots_(slots), log2_(static_cast<unsigned>(std::countr_zero(capacity))), hint_(hint) {}

  [[nodiscard]] std::uint64_t capacity() const noexcept { return std::uint64_t{1} << log2_; }
  [[nodiscard]] bool fits(std::uint32_t window) const noexcept { return ring_capacity(window) <= capacity(); }
  [[nodiscard]] Bits lap_of(Position position) const noexcept {
    return (position >> log2_) & low_bits(Env::Widths::lap);
  }
  /// The lap tag comes round here: an entry must differ in its time from the one that stood here with the same tag.
  [[nodiscard]] bool lap_tag_wraps(Position position) const noexcept {
    return (position & low_bits(log2_ + Env::Widths::lap)) == 0;
  }
  [[nodiscard]] Word& slot(Position position) const noexcept { return slots_[position & low_bits(log2_)]; }

  /// The entry at a position; it is another's if its lap is not that position's. Relaxed where an entry behind it was
  /// loaded with acquire: every swap released what its appender had seen, back to the beginning (sync: ring).
  [[nodiscard]] Entry at(Position position) const noexcept { return {Env::load(slot(position), Env::relaxed)}; }
  [[nodiscard]] bool holds(Position position, Entry entry) const noexcept { return entry.lap() == lap_of(position); }

  /// A position at most kHintEvery before the tail. Relaxed: an old value costs a scan or a retry, nothing else.
  [[nodiscard]] Position hint() const noexcept { return Env::load(*hint_, Env::relaxed); }

  /// Whether `position` can be the tail, judged by the hint now: told apart from the same place any number of laps ago.
  [[nodiscard]] bool near_hint(Position position) const noexcept { return position - hint() <= kHintEvery; }

  /// Whether others have passed `position` meanwhile, but by less than a lap: what was counted before it is still
  /// there.
  [[nodiscard]] bool passed(Position position) const noexcept { return hint() - position < capacity(); }

  /// What stands at the tail: the free slot, and the entry before it.
  struct Tail {
    Position position = 0;
    Entry free{};
    Entry previous{};
  };

  /// One look for the tail from `from`; false: what was seen does not fit together, look again from the hint.
  [[nodiscard]] bool find_tail(Position from, Tail& tail) const noexcept {
    Position position = from;
    for (std::uint64_t scanned = 0; scanned <= kHintEvery; ++scanned, ++position) {
      // sync: ring (acquire): a free slot that was touched comes with the control word before the period that it begins
      const Entry entry{Env::load(slot(position), Env::acquire)};
      if (holds(position, entry)) continue;
      if (!holds(position - capacity(), entry)) return false;  // `from` is laps old
      // sync: ring (acquire): the entry before ours and all that its appender saw, above all the control word of its
      // period
      const Entry previous{Env::load(slot(position - 1), Env::acquire)};
      if (!holds(position - 1, previous)) return false;
      tail = {position, entry, previous};
      return true;
    }
    return false;
  }

  /// The same from the hint, and sure that it is the tail and not the same place some laps ago.
  [[nodiscard]] bool locate_tail(Tail& tail) const noexcept {
    return find_tail(hint(), tail) && near_hint(tail.position);
  }

  /// Before the slot at `position` may be swapped in: raises the hint where it is due. False: look again from the hint.
  [[nodiscard]] bool raise_hint(Position position) const noexcept {
    if (position % kHintEvery != 0) return true;
    const Position seen = hint();
    if (seen == position) return true;
    // relaxed: whoever reads a slot beyond the new hint has acquired it through the ring
    return seen == position - kHintEvery && Env::cas(*hint_, seen, position, Env::relaxed);
  }

  /// Swaps an entry in at the tail. From here on the outcome exists.
  [[nodiscard]] bool append(const Tail& tail, Entry entry) const noexcept {
    return Env::cas(slot(tail.position), tail.free.bits, entry.bits, Env::release);  // sync: ring
  }

  /// The tail, for whoever begins a new Closed period: the free slot there gets another value, so that every straggler
  /// of an older period that had read it loses its swap and must look at the control word again. False: no progress
  /// (corrupt).
  [[nodiscard]] bool touch_tail(Work& work, Position& position) const noexcept {
    Position seen = hint();
    for (std::uint32_t vain = 0; vain < kMaxVain && work.charge();) {
      Tail tail;
      if (!locate_tail(tail)) {
        const Position now = hint();
        vain = now == seen ? vain + 1 : 0;
        seen = now;
        continue;
      }
      if (!Env::cas(slot(tail.position), tail.free.bits, tail.free.touched().bits, Env::release))
        continue;  // sync: ring
      position = tail.position;
      return true;
    }
    return false;
  }

 private:
  Word* slots_ = nullptr;
  unsigned log2_ = 0;
  Word* hint_ = nullptr;
};

/// What the entries of one Closed period that end at a position amount to; carried forward over the entries that others
/// append meanwhile, so that a long count does not starve behind a stream of successes.
template <class Env>
class WindowCount {
 public:
  using Position = typename Ring<Env>::Position;
  using Entry = typename Ring<Env>::Entry;

  WindowCount() = default;
  /// `at_most`: entries that fit into the window. `begin`: nothing before it counts.
  WindowCount(const Ring<Env>& ring, Bits generation, std::uint32_t at_most, std::int64_t within_ms,
              Position begin) noexcept
      : ring_(ring), tag_(Entry::generation_tag(generation)), at_most_(at_most), within_ms_(within_ms), begin_(begin) {}

  /// Counts the entries in front of `end`, none of them too old at `time_us`. False: lapped meanwhile, or the work is
  /// spent.
  [[nodiscard]] bool count_before(Position end, Bits time_us, Work& work) noexcept {
    const std::int64_t oldest_us = (static_cast<std::int64_t>(time_us / 1'000) - within_ms_) * 1'000;
    const auto young = [oldest_us](Entry entry) { return static_cast<std::int64_t>(entry.time_us()) >= oldest_us; };
    if (!work.charge()) return false;
    const bool carry = started_ && end >= end_ && end - end_ <= at_most_;  // else nothing of what was counted remains
    const Position old_first = carry ? first_ : end;
    const Position old_end = carry ? end_ : end;
    started_ = carry ? carry_forward(end, young) : count_back(end, young);
    const std::uint64_t looked_at = carry ? (end_ - old_end) + (first_ - old_first) : end_ - first_;
    return work.charge(looked_at) && started_;
  }

  /// What was counted so far is not trusted any more.
  void restart() noexcept { started_ = false; }

  [[nodiscard]] const rules::WindowCounts& counts() const noexcept { return counts_; }
  /// The position of the oldest that counts; the end where none does.
  [[nodiscard]] Position first() const noexcept { return first_; }

 private:
  // Generations and times never decrease along the ring: what counts is one run that ends in front of `end`.
  template <class Young>
  bool count_back(Position end, Young young) noexcept {
    const Position limit = std::max(begin_, end - std::min<Position>(ring_.capacity() - 1, at_most_));
    counts_ = {};
    end_ = end;
    for (first_ = end; first_ > limit; --first_) {
      const Entry entry = ring_.at(first_ - 1);
      if (!ring_.holds(first_ - 1, entry)) return false;
      if (entry.generation() != tag_ || !young(entry)) break;
      counts_.add_oldest(entry.failure(), entry.slow());
    }
    return true;
  }

  template <class Young>
  bool carry_forward(Position end, Young young) noexcept {
    for (; end_ < end; ++end_) {
      const Entry entry = ring_.at(end_);
      if (!ring_.holds(end_, entry) || entry.generation() != tag_) return false;
      counts_.add_newest(entry.failure(), entry.slow());
    }
    for (; first_ < end_; ++first_) {
      const Entry entry = ring_.at(first_);
      if (!ring_.holds(first_, entry)) return false;
      if (counts_.entries <= at_most_ && young(entry)) break;
      counts_.drop_oldest(entry.failure(), entry.slow());
    }
    return true;
  }

  Ring<Env> ring_{};
  Bits tag_ = 0;
  std::uint64_t at_most_ = 0;
  std::int64_t within_ms_ = 0;
  Position begin_ = 0;
  Position first_ = 0;
  Position end_ = 0;
  rules::WindowCounts counts_{};
  bool started_ = false;
};

}  // namespace shmcb::core
