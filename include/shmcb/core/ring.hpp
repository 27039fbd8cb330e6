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
#include "shmcb/core/process_identity.hpp"
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

/// What a handle remembers for itself, process-local. On a line of its own, because every record writes it and every
/// admit reads the handle beside it. Relaxed throughout: any value will do, also another thread's.
class alignas(kLine) LocalNotes {
 public:
  LocalNotes() = default;
  LocalNotes(const LocalNotes& other) noexcept : start_(other.start()) {}
  LocalNotes& operator=(const LocalNotes& other) noexcept {
    if (this == &other) return *this;
    start_from(other.start());
    left_out_.store(0, std::memory_order_relaxed);
    told_.store(0, std::memory_order_relaxed);
    return *this;
  }
  ~LocalNotes() = default;

  /// Where to begin to look for the tail: the position after the handle's own newest entry. An old one is noticed and
  /// costs a look at the hint. 0: nothing appended yet.
  [[nodiscard]] std::uint64_t start() const noexcept { return start_.load(std::memory_order_relaxed); }
  void start_from(std::uint64_t position) noexcept { start_.store(position, std::memory_order_relaxed); }

  /// One more success that was left out of the ring. True: so many that they are to be told to the segment, by
  /// `take_untold`. (Of threads that share a handle one may overwrite what another has just counted.)
  [[nodiscard]] bool leave_one_out() noexcept {
    const std::uint64_t count = left_out_.load(std::memory_order_relaxed) + 1;
    left_out_.store(count, std::memory_order_relaxed);
    return count % kBatch == 0;
  }
  /// Those that were not told to the segment yet. 0 in a forked child until it has told some.
  [[nodiscard]] std::uint64_t untold() const noexcept {
    const std::uint64_t count = left_out_.load(std::memory_order_relaxed);
    const std::uint64_t told = told_.load(std::memory_order_relaxed);
    const bool ours = process_.load(std::memory_order_relaxed) == current_process();
    return ours && count > told ? count - told : 0;
  }
  /// The same, and from now on they are told. 0 in a forked child, whose first ones cannot be told from its parent's.
  [[nodiscard]] std::uint64_t take_untold() noexcept {
    std::uint64_t told = told_.load(std::memory_order_relaxed);
    const std::uint64_t count = left_out_.load(std::memory_order_relaxed);
    // Only ever raised: what one thread overwrites of another's count is lost, and never told twice.
    if (count <= told || !told_.compare_exchange_strong(told, count, std::memory_order_relaxed)) return 0;
    return process_.exchange(current_process(), std::memory_order_relaxed) == current_process() ? count - told : 0;
  }

 private:
  static constexpr std::uint64_t kBatch = 1'024;  // arbitrary: what a killed process takes along, for display only

  std::atomic<std::uint64_t> start_{0};
  std::atomic<std::uint64_t> left_out_{0};
  std::atomic<std::uint64_t> told_{0};
  std::atomic<std::uint64_t> process_{current_process()};
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
      : slots_(slots), mask_(capacity - 1), log2_(static_cast<unsigned>(std::countr_zero(capacity))), hint_(hint) {}

  [[nodiscard]] std::uint64_t capacity() const noexcept { return mask_ + 1; }
  [[nodiscard]] bool fits(std::uint32_t window) const noexcept { return ring_capacity(window) <= capacity(); }
  [[nodiscard]] Bits lap_of(Position position) const noexcept {
    return (position >> log2_) & low_bits(Env::Widths::lap);
  }
  /// The lap tag comes round here: an entry must differ in its time from the one that stood here with the same tag.
  [[nodiscard]] bool lap_tag_wraps(Position position) const noexcept {
    return (position & low_bits(log2_ + Env::Widths::lap)) == 0;
  }
  /// The first position of the same lap.
  [[nodiscard]] Position lap_begin(Position position) const noexcept { return position & ~mask_; }
  [[nodiscard]] Word& slot(Position position) const noexcept { return slots_[position & mask_]; }

  /// The entry at a position; it is another's if its lap is not that position's. Relaxed where an entry behind it was
  /// loaded with acquire: every swap released what its appender had seen, back to the beginning (sync: ring).
  [[nodiscard]] Entry at(Position position) const noexcept { return {Env::load(slot(position), Env::relaxed)}; }
  [[nodiscard]] bool holds(Position position, Entry entry) const noexcept { return entry.lap() == lap_of(position); }

  /// Whether the entry there is of the lap before.
  [[nodiscard]] bool is_free(Position position, Entry entry) const noexcept {
    return entry.lap() == ((lap_of(position) - 1) & low_bits(Env::Widths::lap));
  }

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
  [[nodiscard, gnu::always_inline]] bool find_tail(Position from, Tail& tail) const noexcept {
    Position position = from;
    for (std::uint64_t scanned = 0; scanned <= kHintEvery; ++scanned, ++position) {
      // sync: ring (acquire): a free slot that was touched comes with the control word before the period that it begins
      const Entry entry{Env::load(slot(position), Env::acquire)};
      if (holds(position, entry)) continue;
      if (!is_free(position, entry)) return false;  // `from` is laps old
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
  [[nodiscard, gnu::always_inline]] bool raise_hint(Position position) const noexcept {
    return position % kHintEvery != 0 || raise_hint_to(position);
  }

  /// Swaps an entry in at the tail. From here on the outcome exists.
  [[nodiscard]] bool append(const Tail& tail, Entry entry) const noexcept {
    return Env::cas(slot(tail.position), tail.free.bits, entry.bits, Env::release);  // sync: ring
  }

  struct Flags {
    std::uint64_t failures = 0;
    std::uint64_t slow = 0;  ///< where they are asked for
  };

  /// How many of the entries from `begin` to `end` failed and were slow, whatever lap they are of.
  template <typename Env::Order kOrder, bool kSlow>
  [[nodiscard, gnu::always_inline]] Flags count_flags(Position begin, Position end) const noexcept {
    Flags flags;
    std::uint64_t left = begin < end ? std::min(end - begin, capacity()) : 0;
    for (std::uint64_t from = begin & mask_; left != 0; from = 0) {  // lap by lap
      const std::uint64_t length = std::min(left, capacity() - from);
      const Word* const slots = &slots_[from];
#pragma GCC unroll 4
      for (std::uint64_t i = 0; i < length; ++i) {
        const Bits bits = Env::load(slots[i], kOrder);
        flags.failures += bits >> Entry::kFailureShift & 1U;
        if constexpr (kSlow) flags.slow += bits >> Entry::kSlowShift & 1U;
      }
      left -= length;
    }
    return flags;
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
  [[nodiscard]] bool raise_hint_to(Position position) const noexcept {
    const Position seen = hint();
    if (seen == position) return true;
    // sync: hint (release): with the hint comes every lean mark that the failures before it have raised
    return seen == position - kHintEvery && Env::cas(*hint_, seen, position, Env::release);
  }

  Word* slots_ = nullptr;
  std::uint64_t mask_ = 0;
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
  /// `at_most`: entries that fit into the window. `begin`: nothing before it counts. `only_looks`: no swap at the tail
  /// will tell whether what was counted was still there.
  WindowCount(const Ring<Env>& ring, Bits generation, std::uint32_t at_most, std::int64_t within_ms, Position begin,
              bool only_looks) noexcept
      : ring_(ring),
        tag_(Entry::generation_tag(generation)),
        at_most_(at_most),
        within_ms_(within_ms),
        begin_(begin),
        only_looks_(only_looks) {}

  /// Counts the entries in front of `end`, none of them too old at `time_us`. False: lapped meanwhile, or the work is
  /// spent.
  [[nodiscard]] bool count_before(Position end, Bits time_us, Work& work) noexcept {
    const std::int64_t oldest_us = (static_cast<std::int64_t>(time_us / 1'000) - within_ms_) * 1'000;
    const Bits oldest = static_cast<Bits>(std::max<std::int64_t>(0, oldest_us));
    if (!work.charge()) return false;
    const bool carry = started_ && end >= end_ && end - end_ <= at_most_;  // else nothing of what was counted remains
    const Position old_first = carry ? first_ : end;
    const Position old_end = carry ? end_ : end;
    started_ = carry ? carry_forward(end, oldest) : count_back(end, oldest);
    const std::uint64_t looked_at = carry ? (end_ - old_end) + (first_ - old_first) : end_ - first_;
    return work.charge(looked_at) && started_;
  }

  /// What was counted so far is not trusted any more.
  void restart() noexcept { started_ = false; }

  /// What was counted; the failures in a row at its newer end are looked for up to `longest`.
  [[nodiscard]] rules::WindowCounts counts(std::uint64_t longest = 0) const noexcept {
    rules::WindowCounts counts{.entries = end_ - first_, .failures = flags_.failures, .slow = flags_.slow};
    while (counts.failing_run < std::min(longest, counts.entries)) {
      const Position position = end_ - 1 - counts.failing_run;
      const Entry entry = ring_.at(position);
      // One that was written over meanwhile: who counted finds the hint moved on.
      if (!ring_.holds(position, entry) || !entry.failure()) break;
      ++counts.failing_run;
    }
    return counts;
  }
  /// The position of the oldest that counts; the end where none does.
  [[nodiscard]] Position first() const noexcept { return first_; }

 private:
  // Generations and times never decrease along the ring: what counts is one run that ends in front of `end`. So where
  // the oldest that the window has room for counts, all behind it do.
  [[nodiscard]] bool count_back(Position end, Bits oldest) noexcept {
    const Position limit = std::max(begin_, end - std::min<Position>(ring_.capacity() - 1, at_most_));
    end_ = first_ = end;
    flags_ = {};
    if (limit >= end) return true;
    // The newest: who only looks may have a record of an earlier period.
    if (counts(limit, ring_.at(limit), oldest) && counts(end - 1, ring_.at(end - 1), oldest)) {
      first_ = limit;
      // relaxed: an entry written over meanwhile moves the tail, and our swap fails. acquire: where there is no swap,
      // the oldest is looked at once more, which is written over before all others
      flags_ = only_looks_ ? ring_.template count_flags<Env::acquire, true>(limit, end)
                           : ring_.template count_flags<Env::relaxed, true>(limit, end);
      return !only_looks_ || ring_.holds(limit, ring_.at(limit));
    }
    for (; first_ > limit; --first_) {
      const Entry entry = ring_.at(first_ - 1);
      if (!ring_.holds(first_ - 1, entry)) return false;
      if (entry.generation() != tag_ || entry.time_us() < oldest) break;
      flags_.failures += flag(entry.failure());
      flags_.slow += flag(entry.slow());
    }
    return true;
  }

  [[nodiscard]] bool counts(Position position, Entry entry, Bits oldest) const noexcept {
    return ring_.holds(position, entry) && entry.generation() == tag_ && entry.time_us() >= oldest;
  }

  [[nodiscard]] bool carry_forward(Position end, Bits oldest) noexcept {
    for (; end_ < end; ++end_) {
      const Entry entry = ring_.at(end_);
      if (!ring_.holds(end_, entry) || entry.generation() != tag_) return false;
      flags_.failures += flag(entry.failure());
      flags_.slow += flag(entry.slow());
    }
    for (; first_ < end_; ++first_) {
      const Entry entry = ring_.at(first_);
      if (!ring_.holds(first_, entry)) return false;
      if (end_ - first_ <= at_most_ && entry.time_us() >= oldest) break;
      flags_.failures -= flag(entry.failure());
      flags_.slow -= flag(entry.slow());
    }
    return true;
  }

  Ring<Env> ring_{};
  Bits tag_ = 0;
  std::uint64_t at_most_ = 0;
  std::int64_t within_ms_ = 0;
  Position begin_ = 0;
  bool only_looks_ = false;
  Position first_ = 0;
  Position end_ = 0;
  typename Ring<Env>::Flags flags_{};
  bool started_ = false;
};

}  // namespace shmcb::core
