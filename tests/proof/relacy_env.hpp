// SPDX-License-Identifier: BSD-3-Clause
// The shared-memory code under Relacy: an environment whose words are Relacy's atomics, over a segment of the
// production layout. A case builds its segment once in plain memory, by production code; every execution begins with a
// copy.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <queue>
#include <set>
#include <sstream>
#include <stack>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shmcb/core/group_cell.hpp"
#include "shmcb/core/registry.hpp"

// clang-format off: last of all, because its macros would get into other headers
#include <relacy/relacy.hpp>
// clang-format on

// Words of the language and of <cstdlib> that it redefines for the code under test, which is not written that way.
#undef new
#undef delete
#undef malloc
#undef calloc
#undef realloc
#undef free
#undef assert
#undef errno

namespace shmcb::proof {

/// Ends the execution as a violation. Relacy switches to another stack and never comes back: no exception, so this may
/// be called from within noexcept code.
inline void require(bool holds, const char* what) {
  if (!holds) rl::ctx().fail_test(what, rl::test_result_user_assert_failed, rl::debug_info("", "", 0));
}

/// The words that Relacy knows about, by their place in the segment. Others (settings, notes, counters) are plain:
/// nobody loses the processor at one, and a read sees the newest value but nothing else that its writer did before. So
/// what goes wrong only by an old value of such a word is missed, and what only such a word keeps in order would be a
/// false alarm.
class Memory {
 public:
  using Atomic = rl::atomic<std::uint64_t>;

  explicit Memory(std::size_t bytes)
      : bytes_(bytes),
        base_(static_cast<std::byte*>(std::aligned_alloc(4096, bytes))),
        image_(bytes),
        word_at_(bytes / 8, kPlain) {
    std::memset(base_, 0, bytes);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { std::free(base_); }

  [[nodiscard]] void* base() const noexcept { return base_; }

  /// Before `freeze`: Relacy shall know about this word.
  void know(const void* word, const std::string& name) {
    word_at_[place_of(word)] = static_cast<std::int32_t>(known_.size());
    known_.push_back({place_of(word), name});
  }
  void freeze() {
    std::memcpy(image_.data(), base_, bytes_);
    atomics_ = static_cast<Atomic*>(std::malloc(known_.size() * sizeof(Atomic)));
  }

  // Called by an execution.
  void construct() {
    for (std::size_t i = 0; i < known_.size(); ++i)
      new (&atomics_[i]) Atomic();
  }
  void destroy() {
    for (std::size_t i = 0; i < known_.size(); ++i)
      atomics_[i].~Atomic();
  }
  void restore() {
    std::memcpy(base_, image_.data(), bytes_);
    for (std::size_t i = 0; i < known_.size(); ++i) {
      std::uint64_t value = 0;
      std::memcpy(&value, image_.data() + known_[i].place * 8, 8);
      atomics_[i].store(value, rl::mo_relaxed, rl::debug_info("", "", 0));
    }
  }

  struct Known {
    std::size_t place;
    std::string name;
  };
  [[nodiscard]] Atomic* find(const void* word, const char*& name) noexcept {
    const std::int32_t index = word_at_[place_of(word)];
    if (index == kPlain) return nullptr;
    name = known_[static_cast<std::size_t>(index)].name.c_str();
    return &atomics_[index];
  }

 private:
  static constexpr std::int32_t kPlain = -1;

  [[nodiscard]] std::size_t place_of(const void* word) const noexcept {
    return static_cast<std::size_t>(static_cast<const std::byte*>(word) - base_) / 8;
  }

  std::size_t bytes_;
  std::byte* base_;
  std::vector<std::byte> image_;
  std::vector<std::int32_t> word_at_;
  std::vector<Known> known_;
  Atomic* atomics_ = nullptr;
};

/// The execution that runs; none while a case builds its segment, which is plain memory then.
struct Execution {
  Memory* memory = nullptr;
  std::array<unsigned, 4> stride{1, 1, 1, 1};  ///< by thread: it may lose the processor at one access in so many
};
inline Execution* running = nullptr;

/// Relacy's random scheduler moves all threads on at one pace. Here each has a stride of its own, drawn anew for every
/// execution, so that one also stands still while another does a whole operation.
class Pace {
 public:
  Pace() : held_(holds()) {
    if (held_) rl::ctx().disable_preemption();
  }
  Pace(const Pace&) = delete;
  Pace& operator=(const Pace&) = delete;
  ~Pace() {
    if (held_) rl::ctx().enable_preemption();
  }

 private:
  [[nodiscard]] static bool holds() {
    const unsigned stride = running->stride[static_cast<std::size_t>(rl::ctx().current_thread())];
    return stride > 1 && rl::rand(stride) != 0;
  }
  bool held_;
};

template <class WidthsOf = core::StdWidths>
struct RelacyEnv {
  struct Word {
    std::uint64_t bits;
  };
  using Widths = WidthsOf;

  enum class Order : std::uint8_t { relaxed, acquire, release, acq_rel };
  // NOLINTBEGIN(readability-identifier-naming): as in core/env.hpp
  static constexpr Order relaxed = Order::relaxed;
  static constexpr Order acquire = Order::acquire;
  static constexpr Order release = Order::release;
  static constexpr Order acq_rel = Order::acq_rel;
  // NOLINTEND(readability-identifier-naming)

  [[gnu::noinline]] static std::uint64_t load(const Word& word, Order order) noexcept {
    const char* name = nullptr;
    auto* known = find(word, name);
    if (known == nullptr) return word.bits;
    const Pace pace;
    return known->load(order == relaxed ? rl::mo_relaxed : rl::mo_acquire, rl::debug_info(name, "", 0));
  }
  [[gnu::noinline]] static void store(Word& word, std::uint64_t value, Order order) noexcept {
    const char* name = nullptr;
    auto* known = find(word, name);
    if (known == nullptr) {
      word.bits = value;
      return;
    }
    const Pace pace;
    known->store(value, order == relaxed ? rl::mo_relaxed : rl::mo_release, rl::debug_info(name, "", 0));
  }
  [[gnu::noinline]] static bool cas(Word& word, std::uint64_t expected, std::uint64_t desired, Order order) noexcept {
    const char* name = nullptr;
    auto* known = find(word, name);
    if (known == nullptr) {
      if (word.bits != expected) return false;
      word.bits = desired;
      return true;
    }
    const Pace pace;
    const rl::debug_info info(name, "", 0);
    // A swap that is lost is a relaxed load, and may be lost to an older value. Relacy's own always looks at the
    // newest.
    if (rl::rand(4) == 0 && known->load(rl::mo_relaxed, info) != expected) return false;
    std::uint64_t seen = expected;
    return known->compare_exchange_strong(seen, desired, relacy(order), info, rl::mo_relaxed, info);
  }
  [[gnu::noinline]] static std::uint64_t fetch_add(Word& word, std::uint64_t amount, Order order) noexcept {
    const char* name = nullptr;
    auto* known = find(word, name);
    if (known == nullptr) return std::exchange(word.bits, word.bits + amount);
    const Pace pace;
    return known->fetch_add(amount, relacy(order), rl::debug_info(name, "", 0));
  }

  /// What a kernel compares a futex with: the newest value, at once.
  static std::uint64_t newest(const Word& word) noexcept {
    const char* name = nullptr;
    auto* known = find(word, name);
    return known == nullptr ? word.bits : known->debug_value();
  }

 private:
  [[nodiscard]] static Memory::Atomic* find(const Word& word, const char*& name) noexcept {
    return running == nullptr ? nullptr : running->memory->find(&word, name);
  }
  [[nodiscard]] static rl::memory_order relacy(Order order) noexcept {
    switch (order) {
      case Order::relaxed: return rl::mo_relaxed;
      case Order::acquire: return rl::mo_acquire;
      case Order::release: return rl::mo_release;
      case Order::acq_rel: break;
    }
    return rl::mo_acq_rel;
  }
};

inline constexpr std::uint16_t kBuilder = 40;  ///< built the segment; lives, and keeps no spares
inline constexpr std::uint16_t kDead = 41;     ///< died
inline constexpr std::uint16_t kHoarder = 42;  ///< lives and holds what a case does not want to be free

/// One attached process.
class Participant final : public core::Presence::Kernel {
 public:
  [[nodiscard]] core::Presence& presence() noexcept { return presence_; }
  bool renew(core::Presence& /*presence*/) noexcept override { return true; }
  bool is_dead(const core::Presence& /*presence*/, std::uint16_t number,
               std::uint32_t /*incarnation*/) noexcept override {
    return number == kDead;
  }
  bool is_unheld(const core::Presence& /*presence*/, std::uint16_t number) noexcept override { return number == kDead; }
  void wake(const void* /*word*/) noexcept override {
    if (wakes != nullptr) *wakes = true;
  }
  bool* wakes = nullptr;  ///< set by a wake-up

 private:
  core::Presence presence_{*this};
};

inline constexpr auto kNoChance = []() noexcept { return 0U; };

/// The segment of a case, and the words of it that Relacy knows about.
template <class Env>
class Stage {
 public:
  using Control = core::ControlWord<typename Env::Widths>;

  Stage(std::uint32_t breakers, std::uint32_t participants)
      : geometry_(core::geometry_of(breakers, participants, std::uint64_t{breakers} * core::kMinRing, 2)),
        memory_(geometry_.total_bytes),
        view_(memory_.base(), geometry_) {
    builder_.presence().become(kBuilder, 1);
  }

  [[nodiscard]] const core::SegmentView<Env>& view() const noexcept { return view_; }
  [[nodiscard]] core::Presence& builder() noexcept { return builder_.presence(); }
  [[nodiscard]] Memory& memory() noexcept { return memory_; }

  /// A handle without a step.
  [[nodiscard]] core::BreakerCell<Env> cell(core::Presence& presence, std::uint32_t breaker) const noexcept {
    auto& cells = *view_.breaker(breaker);
    const auto ring = core::RingWord::request(core::kMinRing).assigned_at(breaker);
    return core::BreakerCell<Env>(
        core::CellCore<Env>(view_, presence, breaker, cells, view_.ring(ring), core::kMinRing));
  }

  /// Adds a breaker, as production does.
  void add(std::string_view name, const Settings& settings, const core::Member& member = {}) {
    core::BreakerCell<Env> breaker;
    bool created = false;
    const Errc error = core::Registry<Env>(view_, builder()).find_or_add(name, settings, 0, breaker, created, member);
    if (error != Errc::ok || !created) throw std::logic_error("a case could not build its segment");
  }
  /// Leaves so many records free.
  void leave_free(std::uint32_t records) {
    for (std::uint32_t i = 1; i < geometry_.records; ++i) {
      auto& owner = view_.record(i)->owner;
      if (owner.bits != 0) continue;
      if (records != 0)
        --records;
      else
        owner.bits = core::OwnerWord::make(kHoarder, 1, i).bits;
    }
  }

  void freeze() {
    auto& words = view_.words();
    know(words.breaker_cursor, "cursor of places");
    know(words.arena, "arena");
    know(words.journal_next, "journal: next position");
    know(words.journal_wake, "journal: wake word");
    for (std::uint32_t i = 0; i < core::kMaxGroups; ++i) {
      auto& group = view_.group(i);
      if (group.id.bits == 0) continue;
      know(group.rules, "group: rules");
      know(group.members, "group: members");
    }
    for (std::uint32_t i = 0; i < geometry_.index_slots; ++i)
      know(view_.index_slot(i), "bucket " + std::to_string(i));
    for (std::uint32_t i = 0; i < geometry_.breakers; ++i)
      know_breaker(*view_.breaker(i), "breaker " + std::to_string(i) + ": ", i);
    for (std::uint32_t i = 1; i < geometry_.records; ++i)
      know_record(*view_.record(i), "record " + std::to_string(i) + ": ");
    for (std::uint32_t i = 0; i < geometry_.journal_entries; ++i) {
      know(view_.journal(i).header, "entry " + std::to_string(i) + ": header");
      for (std::size_t w = 0; w < core::kJournalWords; ++w)
        know(view_.journal(i).words[w], "entry " + std::to_string(i) + ": word " + std::to_string(w));
    }
    memory_.freeze();
  }

 private:
  using Word = typename Env::Word;

  void know(const Word& word, const std::string& name) { memory_.know(&word, name); }
  void know_breaker(core::BreakerCells<Env>& cells, const std::string& name, std::uint32_t index) {
    know(cells.control, name + "control word");
    know(cells.incarnation, name + "incarnation");
    know(cells.owner, name + "owner");
    know(cells.ring, name + "ring");
    know(cells.name_bytes, name + "length of the name");
    know(cells.name_hash, name + "hash of the name");
    know(cells.next, name + "link");
    know(cells.group, name + "group");
    know(cells.name[0], name + "name");
    know(cells.hint, name + "hint");
    know(cells.lean_mark, name + "lean mark");
    know(cells.first, name + "first position");
    know(cells.lanes[0].rejected, name + "rejections");
    const auto ring = core::RingWord::request(core::kMinRing).assigned_at(index);
    for (std::uint32_t i = 0; i < core::kMinRing; ++i)
      know(view_.ring(ring)[i], "ring " + std::to_string(index) + ": slot " + std::to_string(i));
  }
  void know_record(core::RecordCell<Env>& record, const std::string& name) {
    using namespace core::word;
    know(record.owner, name + "owner");
    know(record.breaker, name + "breaker");
    for (const std::size_t i : {opened_at, counts, open_until, lease_at, window_begin, window_end, window_generation,
                                since, revision, journaled, probe_base, probe_ids})
      know(record.words[i], name + "word " + std::to_string(i));
  }

  core::Geometry geometry_;
  Memory memory_;
  core::SegmentView<Env> view_;
  Participant builder_;
};

/// One case. `Derived` has `static void build(Stage<Env>&)`, `void begin()`, `void thread(unsigned)` and `void end()`.
template <class Derived, int kThreadsOf, class EnvOf = RelacyEnv<>>
class Case : public rl::test_suite<Derived, kThreadsOf> {
 public:
  using Env = EnvOf;
  using Cell = core::BreakerCell<Env>;
  using Control = core::ControlWord<typename Env::Widths>;
  using Entry = core::Slot<typename Env::Widths>;
  static constexpr std::size_t kThreads = kThreadsOf;

  static inline Stage<Env>* stage = nullptr;
  static inline std::uint64_t executions = 0;

  Case() { stage->memory().construct(); }
  Case(const Case&) = delete;
  Case& operator=(const Case&) = delete;
  ~Case() { stage->memory().destroy(); }

  void before() {
    execution_ = {.memory = &stage->memory()};
    for (auto& stride : execution_.stride) {
      constexpr unsigned kStrides[] = {1, 1, 2, 6, 20, 60, 200, 1'000};
      stride = kStrides[rl::rand(static_cast<unsigned>(std::size(kStrides)))];
    }
    running = &execution_;
    stage->memory().restore();
    for (std::size_t i = 0; i < kThreads; ++i)
      people[i].presence().become(static_cast<std::uint16_t>(i), 1);
    static_cast<Derived*>(this)->begin();
  }
  void after() {
    static_cast<Derived*>(this)->end();
    ++executions;
  }

  void begin() {}

 protected:
  [[nodiscard]] core::Presence& presence(std::size_t who) noexcept { return people[who].presence(); }
  [[nodiscard]] Cell cell(std::size_t who, std::uint32_t breaker = 0) noexcept {
    return stage->cell(presence(who), breaker);
  }
  [[nodiscard]] core::Registry<Env> registry(std::size_t who) noexcept { return {stage->view(), presence(who)}; }
  [[nodiscard]] static const core::SegmentView<Env>& view() noexcept { return stage->view(); }
  [[nodiscard]] static Control control(std::uint32_t breaker = 0) noexcept {
    return {Env::load(view().breaker(breaker)->control, Env::acquire)};
  }

  struct Seen {
    Control word{};
    core::Record record{};
  };
  /// A look that must not be torn.
  [[nodiscard]] Seen look(const Cell& cell) {
    Seen seen;
    require(cell.load(seen.word, seen.record), "a copy of a record can be decoded");
    return seen;
  }

  /// At the end: positions without gaps, generations that never decrease, nothing counts that is not of its period.
  /// Returns the entries of the ring.
  std::vector<Entry>& check_ring(std::uint32_t breaker = 0) {
    const Cell at = cell(0, breaker);
    const core::Ring<Env>& ring = at.core().ring();
    typename core::Ring<Env>::Tail tail;
    require(ring.locate_tail(tail), "the tail is where the hint says");
    entries_.clear();
    for (std::uint64_t p = ring.capacity(); p < tail.position; ++p) {
      const Entry entry = ring.at(p);
      require(ring.holds(p, entry), "positions have no gaps");
      if (!entries_.empty()) {
        require(entry.generation() >= entries_.back().generation(), "generations never decrease along the ring");
      }
      entries_.push_back(entry);
    }
    return entries_;
  }

  /// At the end: no two breakers name one record, and each that is not in use can be had.
  void check_records(bool handed_over_may_lie = false) {
    const std::uint32_t records = view().geometry().records;
    std::array<std::uint32_t, 32> names{};
    for (std::uint32_t b = 0; b < view().geometry().breakers; ++b) {
      if (const Control word = control(b); word.record() != 0) ++names[word.record()];
    }
    std::array<bool, 32> spare{};
    for (std::size_t i = 0; i < kThreads; ++i) {
      while (const std::uint32_t index = presence(i).take_spare()) {
        require(!spare[index], "a spare is kept once");
        const core::OwnerWord owner{Env::load(view().record(index)->owner, Env::relaxed)};
        require(presence(i).owns(owner), "a spare is its keeper's");
        spare[index] = true;
      }
    }
    for (std::uint32_t i = 1; i < records; ++i) {
      const core::OwnerWord owner{Env::load(view().record(i)->owner, Env::relaxed)};
      require(names[i] <= 1, "no two breakers name one record");
      if (names[i] == 1) {
        require(owner.published(), "a record in use is its breaker's");
      } else {
        require(
            owner.free() || spare[i] || owner.participant() >= kBuilder || (handed_over_may_lie && owner.published()),
            "a record that is not in use can be had");
      }
    }
  }

  std::array<Participant, kThreads> people;

 private:
  Execution execution_;
  static inline std::vector<Entry> entries_ = [] {
    std::vector<Entry> entries;
    entries.reserve(64);  // never grows: what Relacy's allocator gives out must not outlive an execution
    return entries;
  }();
};

}  // namespace shmcb::proof
