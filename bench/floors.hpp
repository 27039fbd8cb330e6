// SPDX-License-Identifier: BSD-3-Clause
// The floors: the least that an operation could cost which does what the contract asks, made of the same instructions
// and nothing else. And single instructions, as yardsticks.
#pragma once

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <optional>

#include "measured.hpp"
#include "shmcb/time.hpp"

namespace shmcb::bench {

/// Memory that processes share, all zeros: for each breaker what floors read and write, in lines of their own.
class SharedWords {
 public:
  static constexpr std::size_t kRingSlots = 16;
  static constexpr std::size_t kLargestCount = 4096;
  static constexpr std::size_t kOwnLines = 256;

  using Word = std::atomic<std::uint64_t>;
  struct alignas(64) Line {
    Word word{0};
  };
  struct Words {
    Line read;
    struct alignas(64) {
      Word swapped{0};
      Word stored{0};
    } record;
    Line head;
    alignas(64) std::array<Word, kRingSlots> ring{};
    Line added;
    Line joined;
    std::array<Line, kOwnLines> own{};
    alignas(64) std::array<Word, kLargestCount> counted{};
  };

  explicit SharedWords(unsigned breakers = 1) : size_(breakers * sizeof(Words)) {
    void* memory = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    words_ = static_cast<Words*>(memory);
    for (unsigned i = 0; i < breakers; ++i)
      ::new (&words_[i]) Words;
  }
  SharedWords(const SharedWords&) = delete;
  SharedWords& operator=(const SharedWords&) = delete;
  ~SharedWords() { ::munmap(words_, size_); }
  [[nodiscard]] Words& of(unsigned breaker) const noexcept { return words_[breaker]; }

 private:
  std::size_t size_;
  Words* words_ = nullptr;
};

class Floor {
 public:
  static constexpr const char* kGroup = "floor";
  static constexpr bool kShared = true;
  using Place = SharedWords;
  explicit Floor(const Place& place, unsigned breaker = 0, unsigned /*company*/ = 1) : words_(&place.of(breaker)) {}

  [[nodiscard]] static bool as_prepared() noexcept { return true; }

 protected:
  SharedWords::Words* words_;
};

inline constexpr const char* kLoadFloor = "a load";
inline constexpr const char* kRecordFloor = "clock, CAS, load, store";
inline constexpr const char* kRingFloor = "clock, ticket, store in a shared ring";
inline constexpr const char* kRejectFloor = "load, clock, locked add on an own line";

/// The loop alone; of the paced modes the work between two operations, which is subtracted from the others.
struct NothingFloor : Floor {
  static constexpr const char* kName = "nothing";
  using Floor::Floor;
  [[gnu::always_inline]] void operator()() const { keep(0); }
};

struct CallFloor : Floor {
  static constexpr const char* kName = "the bare call";
  using Floor::Floor;
  [[gnu::always_inline]] void operator()() const { keep(downstream(1)); }
};

struct LoadFloor : Floor {
  static constexpr const char* kName = kLoadFloor;
  using Floor::Floor;
  // Acquire: the load of an admit, which pairs with the release of a transition.
  [[gnu::always_inline]] void operator()() const { keep(words_->read.word.load(std::memory_order_acquire)); }
};

struct LockedAddFloor : Floor {
  static constexpr const char* kName = "a locked add";
  using Floor::Floor;
  // Relaxed: a statistic, nothing is published by it.
  [[gnu::always_inline]] void operator()() const { keep(words_->added.word.fetch_add(1, std::memory_order_relaxed)); }
  [[nodiscard]] static std::uint64_t counted(const Place& place, unsigned breaker) noexcept {
    return place.of(breaker).added.word.load(std::memory_order_relaxed);
  }
};

template <Clock C>
struct ClockFloor : Floor {
  static constexpr const char* kName = "the clock";
  using Floor::Floor;
  [[gnu::always_inline]] void operator()() const { keep(C{}.now().time_since_epoch().count()); }
};

template <Clock C>
[[nodiscard, gnu::always_inline]] inline std::uint64_t now_of() noexcept {
  return static_cast<std::uint64_t>(C{}.now().time_since_epoch().count());
}

/// The least that an outcome could cost that is stamped with the time and shared: one load, one swap that is not
/// repeated when it is lost, one store, on a line that all processes write.
template <Clock C>
struct RecordFloor : Floor {
  static constexpr const char* kName = kRecordFloor;
  using Floor::Floor;
  [[gnu::always_inline]] void operator()() const {
    const std::uint64_t now = now_of<C>();
    auto& line = words_->record;
    std::uint64_t seen = line.swapped.load(std::memory_order_acquire);  // pairs with the swap of others
    keep(line.swapped.compare_exchange_strong(seen, seen + 1, std::memory_order_acq_rel, std::memory_order_relaxed));
    line.stored.store(now, std::memory_order_release);  // as a reader of the outcome would need it
  }
};

/// The same for a ring in which no outcome may be lost: a ticket from a shared head, one store into its slot on the
/// lines that follow.
template <Clock C>
struct RingFloor : Floor {
  static constexpr const char* kName = kRingFloor;
  using Floor::Floor;
  [[gnu::always_inline]] void operator()() const {
    const std::uint64_t now = now_of<C>();
    // Relaxed: the ticket only names the slot, whose store releases the outcome.
    const std::uint64_t ticket = words_->head.word.fetch_add(1, std::memory_order_relaxed);
    words_->ring[ticket % SharedWords::kRingSlots].store(now, std::memory_order_release);
  }
  [[nodiscard]] static std::uint64_t counted(const Place& place, unsigned breaker) noexcept {
    return place.of(breaker).head.word.load(std::memory_order_relaxed);
  }
};

/// A rejection reads the state and the time, and counts itself where nobody else does.
template <Clock C>
struct RejectFloor : Floor {
  static constexpr const char* kName = kRejectFloor;
  explicit RejectFloor(const Place& place, unsigned breaker = 0, unsigned company = 1)
      : Floor(place, breaker, company),
        own_(&words_->own[words_->joined.word.fetch_add(1, std::memory_order_relaxed) % SharedWords::kOwnLines].word) {}
  [[gnu::always_inline]] void operator()() const {
    keep(words_->read.word.load(std::memory_order_acquire));
    keep(now_of<C>());
    own_->fetch_add(1, std::memory_order_relaxed);
  }

 private:
  SharedWords::Word* own_;
};

/// The names of what exists once for each size of window; these are measured: 10, 100, 1,000 and 4,096.
constexpr const char* name_of_count(std::uint32_t window) {
  switch (window) {
    case 10: return "counting 10 slots";
    case 100: return "counting 100 slots";
    case 1000: return "counting 1000 slots";
    case 4096: return "counting 4096 slots";
    default: return nullptr;
  }
}
constexpr const char* name_of_failure_floor(std::uint32_t window) {
  switch (window) {
    case 10: return "clock, CAS, load, store, counting 10 slots";
    case 100: return "clock, CAS, load, store, counting 100 slots";
    case 1000: return "clock, CAS, load, store, counting 1000 slots";
    case 4096: return "clock, CAS, load, store, counting 4096 slots";
    default: return nullptr;
  }
}

/// Looks at each slot once: the failures among them, by their top bits.
template <std::uint32_t kWindow>
[[gnu::always_inline]] inline std::uint64_t count_slots(const SharedWords::Words& words) noexcept {
  std::uint64_t failures = 0;
#pragma GCC unroll 4
  for (std::uint32_t i = 0; i < kWindow; ++i)
    failures += words.counted[i].load(std::memory_order_relaxed) >> 63U;  // as the count reads slots: the control word
                                                                          // that is read afterwards orders them
  return failures;
}

template <std::uint32_t kWindow>
struct CountFloor : Floor {
  static constexpr const char* kName = name_of_count(kWindow);
  using Floor::Floor;
  [[gnu::always_inline]] void operator()() const { keep(count_slots<kWindow>(*words_)); }
};

template <std::uint32_t kWindow, Clock C>
struct FailureFloor : RecordFloor<C> {
  static constexpr const char* kName = name_of_failure_floor(kWindow);
  using RecordFloor<C>::RecordFloor;
  [[gnu::always_inline]] void operator()() const {
    RecordFloor<C>::operator()();
    keep(count_slots<kWindow>(*this->words_));
  }
};

template <Clock C>
using Floors = Types<NothingFloor, CallFloor, LoadFloor, LockedAddFloor, ClockFloor<C>, RecordFloor<C>, RingFloor<C>,
                     RejectFloor<C>, CountFloor<10>, CountFloor<100>, CountFloor<1000>, CountFloor<4096>,
                     FailureFloor<10, C>, FailureFloor<100, C>, FailureFloor<1000, C>, FailureFloor<4096, C>>;

}  // namespace shmcb::bench
