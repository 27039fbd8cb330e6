// SPDX-License-Identifier: BSD-3-Clause
// The bytes of a segment: header, attached processes, index of names, breakers, records, ring arena, journal.
// docs/segment-format.md draws them. No pointers, only indices and offsets; every one read from the segment is checked
// where it is used.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "shmcb/config.hpp"
#include "shmcb/core/env.hpp"
#include "shmcb/core/words.hpp"

namespace shmcb::core {

inline constexpr std::size_t kLine = 64;  ///< a cache line of x86-64 and of the usual ARM64
inline constexpr std::size_t kMaxNameBytes = 128;
inline constexpr std::uint32_t kLanes = 4;            ///< lines over which rejections are spread
inline constexpr std::uint32_t kMinRing = 16;         ///< slots; also the unit in which the arena is given out
inline constexpr std::uint32_t kMaxRing = 1U << 20U;  ///< slots
inline constexpr std::uint32_t kMaxWindow = kMaxRing / 2;

/// The hint is raised once in so many positions, before the slot there is swapped in; so the tail is never further
/// beyond it, whoever dies where. Divides every capacity. (docs/decisions/0001)
inline constexpr std::uint64_t kHintEvery = 8;
inline constexpr std::uint32_t kNoRecord = 0;  ///< record 0 is never used: a zeroed control word names no record

/// True while the meaning of the bytes is being changed between two releases: such segments are no released build's
/// business.
inline constexpr bool kDevelopmentBuild = false;

inline constexpr std::uint32_t kMaxBreakers = 900'000;
inline constexpr std::uint32_t kMaxParticipants = 32'768;
inline constexpr std::uint32_t kMinJournal = 16;         ///< entries; a power of two, as all between
inline constexpr std::uint32_t kDefaultJournal = 4'096;  ///< entries: 256 KiB, and 48 KiB of texts
inline constexpr std::uint32_t kMaxJournal = 1U << 20U;  ///< entries: 192 MiB

/// The slots a window needs: a power of two. One more than the window, because a flagged entry that came too late may
/// stand in front of the window without counting; and a sixteenth more, so that a long count is not overtaken by those
/// who append meanwhile.
[[nodiscard]] constexpr std::uint32_t ring_capacity(std::uint32_t window) noexcept {
  return window < kMinRing ? kMinRing : std::bit_ceil(window + 1 + window / 16);
}
static_assert(ring_capacity(kMaxWindow) <= kMaxRing && kMinRing % kHintEvery == 0);

// ---- header
// ------------------------------------------------------------------------------------------------------------

/// Written before the segment is published and never again, so it is read as plain bytes, once, and checked in that
/// copy.
struct Header {
  std::uint64_t magic;
  std::uint16_t layout_major;  ///< another one is refused
  std::uint16_t layout_minor;  ///< a newer one is accepted where its feature masks allow it
  std::uint32_t byte_order;
  std::uint32_t header_bytes;
  std::uint32_t word_bits;
  std::uint64_t fingerprint;            ///< of the sizes and offsets of the types and the widths of the words
  std::uint64_t features_compatible;    ///< unknown bits: ignore
  std::uint64_t features_read_only;     ///< unknown bits: attach read-only
  std::uint64_t features_incompatible;  ///< unknown bits: refuse
  std::uint64_t total_bytes;
  std::array<std::uint8_t, 16> creation_id;  ///< random, of this segment
  std::array<std::uint8_t, 16> boot_id;
  std::uint64_t time_namespace;  ///< inode of the creator's time namespace; 0: the kernel has none
  std::uint32_t clock_id;        ///< CLOCK_MONOTONIC
  std::uint32_t development_build;
  std::int64_t epoch_us;         ///< the instant that is time 0 in the segment
  std::int64_t created_wall_ns;  ///< wall clock at creation, for display
  std::uint32_t breakers;
  std::uint32_t records;
  std::uint32_t participants;
  std::uint32_t index_slots;  ///< a power of two
  std::uint64_t ring_slots;
  std::uint64_t participants_offset;
  std::uint64_t index_offset;
  std::uint64_t breakers_offset;
  std::uint64_t records_offset;
  std::uint64_t rings_offset;
  std::uint64_t journal_offset;
  std::uint64_t journal_bytes;
  std::uint32_t creator_pid;  ///< for display
  std::uint32_t reserved;
  std::uint64_t checksum;  ///< of all bytes before it
};
static_assert(std::is_trivially_copyable_v<Header> && sizeof(Header) == 224 && alignof(Header) == 8,
              "the header is read as bytes: no padding, the same on every 64-bit target");

inline constexpr std::uint64_t kMagic = 0x4745'5342'434D'4853;  // "SHMCBSEG" in little-endian order
inline constexpr std::uint32_t kByteOrder = 0x0102'0304;
inline constexpr std::uint16_t kLayoutMajor = 1;
inline constexpr std::uint16_t kLayoutMinor = 0;
inline constexpr std::size_t kHeaderBytes =
    4096;  ///< the first page: Header, then from kSegmentWordsOffset the words that change
inline constexpr std::size_t kSegmentWordsOffset = 1024;

/// The words of the first page that change.
template <class Env>
struct SegmentWords {
  alignas(kLine) typename Env::Word breaker_cursor;  ///< every breaker below it was taken once; only saves scanning
  typename Env::Word arena;                          ///< see ArenaWord
  typename Env::Word retired;                        ///< not 0: removed on purpose, attached processes should let go
  typename Env::Word journal_next;                   ///< the position that the next entry of the journal takes
  typename Env::Word journal_wake;                   ///< WakeWord
  typename Env::Word note_next;                      ///< the position of the next text in the journal
};

/// {taker 63..40, units given out 39..0}: the arena of ring slots. `taker` is the breaker that took the newest piece;
/// whoever takes the next one first writes that piece into the taker's own word, so a taker killed in between loses
/// nothing.
struct ArenaWord {
  Bits bits = 0;
  [[nodiscard]] static constexpr ArenaWord make(std::uint32_t taker, Bits units) noexcept {
    return {((Bits{taker} + 1) << 40U) | units};
  }
  [[nodiscard]] constexpr bool has_taker() const noexcept { return (bits >> 40U) != 0; }
  [[nodiscard]] constexpr std::uint32_t taker() const noexcept { return static_cast<std::uint32_t>((bits >> 40U) - 1); }
  [[nodiscard]] constexpr Bits units() const noexcept { return bits & low_bits(40); }
};

/// {assigned 63, log2 of the capacity 62..56, first unit 39..0}: the piece of the arena that a breaker asked for or
/// has.
struct RingWord {
  Bits bits = 0;
  [[nodiscard]] static constexpr RingWord request(std::uint32_t capacity) noexcept {
    return {Bits{static_cast<unsigned>(std::countr_zero(capacity))} << 56U};
  }
  [[nodiscard]] constexpr RingWord assigned_at(Bits unit) const noexcept { return {bits | (Bits{1} << 63U) | unit}; }
  [[nodiscard]] constexpr bool assigned() const noexcept { return (bits >> 63U) != 0; }
  [[nodiscard]] constexpr unsigned log2() const noexcept { return static_cast<unsigned>((bits >> 56U) & 0x7FU); }
  [[nodiscard]] constexpr bool valid() const noexcept { return log2() >= 4 && log2() <= 20; }
  [[nodiscard]] constexpr std::uint32_t capacity() const noexcept { return std::uint32_t{1} << log2(); }
  [[nodiscard]] constexpr Bits units() const noexcept { return capacity() / kMinRing; }
  [[nodiscard]] constexpr Bits first_unit() const noexcept { return bits & low_bits(40); }
};

// ---- groups of breakers
// ---------------------------------------------------------------------------------------------------------------

inline constexpr std::uint32_t kMaxGroups = 64;     ///< in one segment; entries are never given to another group
inline constexpr std::size_t kGroupsOffset = 2048;  ///< in the first page

/// What all processes share about one BreakerGroup.
template <class Env>
struct GroupCells {
  typename Env::Word id;       ///< hash of its name; 0: free
  typename Env::Word rules;    ///< GroupRules; 0: not written yet
  typename Env::Word members;  ///< ArenaWord: the place that it got last, and how many it has
  typename Env::Word reserved;
};

/// {idle_after in ms, less one 63..24, limit 23..0}: the numbers of a group, which change together.
struct GroupRules {
  Bits bits = 0;
  [[nodiscard]] static constexpr GroupRules make(std::uint32_t limit, std::int64_t idle_after_ms) noexcept {
    return {(static_cast<Bits>(idle_after_ms - 1) << 24U) | limit};
  }
  [[nodiscard]] constexpr std::uint32_t limit() const noexcept {
    return static_cast<std::uint32_t>(bits & low_bits(24));
  }
  [[nodiscard]] constexpr std::int64_t idle_after_ms() const noexcept {
    return static_cast<std::int64_t>(bits >> 24U) + 1;
  }
};

// ---- the index of names
// ---------------------------------------------------------------------------------------------------------------

/// {version 63..25, unlinked 24, place + 1 23..0}: a link of a bucket, at its head or in a place. The version is raised
/// by every change, so no value comes back. A place whose own link says `unlinked` is no member of its bucket any more.
struct LinkWord {
  Bits bits = 0;

  static constexpr Bits kUnlinked = Bits{1} << 24U;
  static constexpr Bits kTarget = low_bits(24);

  [[nodiscard]] constexpr bool end() const noexcept { return (bits & kTarget) == 0; }
  [[nodiscard]] constexpr bool unlinked() const noexcept { return (bits & kUnlinked) != 0; }
  [[nodiscard]] constexpr std::uint32_t place() const noexcept {
    return static_cast<std::uint32_t>((bits & kTarget) - 1);
  }
  /// The next value of this link: to where `other` leads.
  [[nodiscard]] constexpr LinkWord to_where(LinkWord other) const noexcept {
    return {(((bits >> 25U) + 1) << 25U) | (other.bits & kTarget)};
  }
  [[nodiscard]] constexpr LinkWord to_place(std::uint32_t place) const noexcept { return to_where({Bits{place} + 1}); }
  [[nodiscard]] constexpr LinkWord unlink() const noexcept { return {to_where(*this).bits | kUnlinked}; }
};
static_assert(kMaxBreakers < LinkWord::kTarget);

// ---- attached processes
// --------------------------------------------------------------------------------------------------

/// One attached process. Its number is the place in the table; what proves it alive is an OFD lock on the byte
/// kLockBase + number of the segment's file. Numbers beyond the table exist too: they have the lock, but no entry.
template <class Env>
struct ParticipantEntry {
  typename Env::Word incarnation;  ///< raised by whoever takes the number, after it has the lock
  typename Env::Word process;      ///< random id of the process; 0: left in order
  typename Env::Word pid;          ///< {pid namespace inode 63..32, pid 31..0}: for display, and to recognise pid reuse
  typename Env::Word start_time;   ///< of the pid, in clock ticks since boot
};

inline constexpr std::int64_t kLockBase = std::int64_t{1}
                                          << 40;  ///< far beyond any content, so locks mean nothing else

// ---- records
// -------------------------------------------------------------------------------------------------------------

inline constexpr std::size_t kRecordWords = 78;

/// Everything about a breaker that changes rarely; immutable while a control word names it. Filled by its owner only.
template <class Env>
struct RecordCell {
  typename Env::Word owner;    ///< OwnerWord
  typename Env::Word breaker;  ///< the breaker that it is or was published for
  typename Env::Word words[kRecordWords];
};

// ---- the journal
// ---------------------------------------------------------------------------------------------------------

inline constexpr std::size_t kJournalWords = 7;

/// One entry of the journal: its header and what it says. core/journal.hpp knows the words.
template <class Env>
struct JournalCell {
  alignas(kLine) typename Env::Word header;  ///< JournalHeader
  typename Env::Word words[kJournalWords];
};

inline constexpr std::size_t kNoteWords = (kMaxWhoBytes + kMaxWhyBytes) / 8;

/// The text of an entry of the journal, where it has any.
template <class Env>
struct NoteCell {
  alignas(kLine) typename Env::Word header;  ///< JournalHeader
  typename Env::Word words[kNoteWords];      ///< who, then why
  typename Env::Word checksum;
};

/// How many texts there is room for beside so many entries: few entries have one.
[[nodiscard]] constexpr std::uint32_t journal_notes(std::uint32_t entries) noexcept {
  return std::max(kMinJournal, entries / 16);
}

// ---- breakers
// --------------------------------------------------------------------------------------------------------------

/// A line of counters for some of the processes. All but the first only ever grow.
template <class Env>
struct Lane {
  alignas(kLine) typename Env::Word rejected;  ///< RejectedWord: of one outage
  typename Env::Word rejected_before;          ///< in the outages before that one
  typename Env::Word ramp_rejected;
  typename Env::Word failures;  ///< that entered a window
  typename Env::Word ignored;
  typename Env::Word stale;
  typename Env::Word abandoned;  ///< permits dropped without a verdict
  typename Env::Word left_out;   ///< successes that lean accounting did not write into the ring
};

template <class Env>
struct BreakerCells {
  // Read by every operation, written by transitions and probes only.
  alignas(kLine) typename Env::Word control;  ///< ControlWord
  typename Env::Word incarnation;             ///< raised when the place is given to another name
  typename Env::Word owner;                   ///< OwnerWord: free, being prepared by a process, or published
  typename Env::Word ring;                    ///< RingWord
  typename Env::Word name_bytes;
  typename Env::Word name_hash;
  typename Env::Word next;   ///< LinkWord: the next place in the bucket of the name
  typename Env::Word group;  ///< id of the group that the place belongs to, for good; 0: none
  // Written before a breaker is published here, never while it is.
  alignas(kLine) typename Env::Word name[kMaxNameBytes / 8];
  // Written by recorders, once in kHintEvery records.
  alignas(kLine) typename Env::Word hint;  ///< a position at most kHintEvery before the tail
  typename Env::Word lean_mark;            ///< up to this position every outcome is recorded; only ever raised
  typename Env::Word first;  ///< the position at which the breaker came into being; written before publication
  Lane<Env> lanes[kLanes];
};

template <class Env>
inline constexpr bool kProductionLayout =
    sizeof(SegmentWords<Env>) == kLine && sizeof(ParticipantEntry<Env>) == 32 && sizeof(GroupCells<Env>) == 32 &&
    sizeof(RecordCell<Env>) == 10 * kLine && sizeof(JournalCell<Env>) == kLine && sizeof(NoteCell<Env>) == 3 * kLine &&
    sizeof(BreakerCells<Env>) == 8 * kLine && offsetof(BreakerCells<Env>, name) == kLine &&
    offsetof(BreakerCells<Env>, hint) == 3 * kLine && offsetof(BreakerCells<Env>, lanes) == 4 * kLine;
static_assert(kProductionLayout<StdEnv>,
              "these sizes are the segment format: docs/segment-format.md and the layout version");
static_assert(kSegmentWordsOffset % kLine == 0 && sizeof(Header) <= kSegmentWordsOffset &&
              kSegmentWordsOffset + sizeof(SegmentWords<StdEnv>) <= kGroupsOffset &&
              kGroupsOffset + kMaxGroups * sizeof(GroupCells<StdEnv>) <= kHeaderBytes);

/// FNV-1a (Fowler, Noll, Vo; 64 bits), for names and checksums: stable across builds and compilers.
[[nodiscard]] constexpr std::uint64_t fnv1a(std::string_view bytes,
                                            std::uint64_t hash = 0xcbf2'9ce4'8422'2325) noexcept {
  for (const char c : bytes) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x0000'0100'0000'01b3;
  }
  return hash;
}

/// Differs between builds that would read each other's segments wrongly: sizes, offsets, widths, and where the bits of
/// the words are.
[[nodiscard]] constexpr std::uint64_t layout_fingerprint() noexcept {
  using Cells = BreakerCells<StdEnv>;
  std::uint64_t hash = 0xcbf2'9ce4'8422'2325;
  for (const std::uint64_t part :
       {std::uint64_t{sizeof(Header)},
        std::uint64_t{offsetof(Header, checksum)},
        std::uint64_t{sizeof(SegmentWords<StdEnv>)},
        std::uint64_t{sizeof(ParticipantEntry<StdEnv>)},
        std::uint64_t{sizeof(RecordCell<StdEnv>)},
        std::uint64_t{sizeof(JournalCell<StdEnv>)},
        std::uint64_t{sizeof(NoteCell<StdEnv>)},
        std::uint64_t{journal_notes(kDefaultJournal)},
        std::uint64_t{sizeof(Cells)},
        std::uint64_t{offsetof(Cells, hint)},
        std::uint64_t{offsetof(Cells, lanes)},
        std::uint64_t{sizeof(void*)},
        std::uint64_t{kMaxNameBytes},
        std::uint64_t{kLanes},
        std::uint64_t{kMaxProbes},
        std::uint64_t{kHintEvery},
        std::uint64_t{ring_capacity(1)},
        std::uint64_t{ring_capacity(1'000)},
        std::uint64_t{StdWidths::lap},
        std::uint64_t{StdWidths::slot_generation},
        std::uint64_t{StdWidths::generation},
        std::uint64_t{StdWidths::version},
        ControlWord<StdWidths>::make({CircuitState::half_open, Mode::observe, true, Successes::judged}, 5, 6, 7).bits,
        Slot<StdWidths>::make(5, 6, {.failure = true, .trip = true}, 7).bits,
        OwnerWord::make(5, 6, 7).handed_over().bits,
        RejectedWord<StdWidths>::make(5, 6).bits,
        ArenaWord::make(5, 6).bits,
        std::uint64_t{kGroupsOffset},
        std::uint64_t{kMaxGroups},
        GroupRules::make(5, 6).bits,
        LinkWord{}.to_place(5).unlink().bits,
        RingWord::request(kMinRing).assigned_at(5).bits,
        JournalHeader::complete(5, 6).bits}) {
    hash = (hash ^ part) * 0x0000'0100'0000'01b3;
  }
  return hash;
}

// ---- geometry and access
// ---------------------------------------------------------------------------------------------------

/// The sizes and offsets of one segment: computed at creation, at attach compared with what the header claims.
struct Geometry {
  std::uint32_t breakers = 0;
  std::uint32_t records = 0;
  std::uint32_t participants = 0;
  std::uint32_t index_slots = 0;
  std::uint64_t ring_slots = 0;
  std::uint32_t journal_entries = 0;  ///< a power of two
  std::uint64_t participants_offset = 0;
  std::uint64_t index_offset = 0;
  std::uint64_t breakers_offset = 0;
  std::uint64_t records_offset = 0;
  std::uint64_t rings_offset = 0;
  std::uint64_t journal_offset = 0;
  std::uint64_t notes_offset = 0;
  std::uint64_t total_bytes = 0;

  friend bool operator==(const Geometry&, const Geometry&) = default;
};

/// Requires breakers <= kMaxBreakers, participants <= kMaxParticipants, ring_slots <= 2^40, journal_entries <=
/// kMaxJournal: nothing overflows then.
[[nodiscard]] constexpr Geometry geometry_of(std::uint32_t breakers, std::uint32_t participants,
                                             std::uint64_t ring_slots,
                                             std::uint32_t journal_entries = kDefaultJournal) noexcept {
  constexpr auto pages = [](std::uint64_t offset) { return (offset + 4095) / 4096 * 4096; };
  Geometry g;
  g.breakers = breakers;
  g.participants = participants;
  g.records = 1 + breakers + 2 * participants + 2;  // record 0 is never used; two for processes without an entry
  g.index_slots = std::bit_ceil(2 * breakers);
  g.ring_slots = ring_slots;
  g.journal_entries = journal_entries;
  g.participants_offset = kHeaderBytes;
  g.index_offset = pages(g.participants_offset + std::uint64_t{participants} * sizeof(ParticipantEntry<StdEnv>));
  g.breakers_offset = pages(g.index_offset + std::uint64_t{g.index_slots} * sizeof(std::uint64_t));
  g.records_offset = pages(g.breakers_offset + std::uint64_t{breakers} * sizeof(BreakerCells<StdEnv>));
  g.rings_offset = pages(g.records_offset + std::uint64_t{g.records} * sizeof(RecordCell<StdEnv>));
  g.journal_offset = pages(g.rings_offset + ring_slots * sizeof(std::uint64_t));
  g.notes_offset = g.journal_offset + std::uint64_t{journal_entries} * sizeof(JournalCell<StdEnv>);
  g.total_bytes = pages(g.notes_offset + std::uint64_t{journal_notes(journal_entries)} * sizeof(NoteCell<StdEnv>));
  return g;
}

/// The parts of a mapped segment. Every accessor checks its index against the geometry that was validated at attach
/// (never against what stands in the segment now) and answers null beyond it.
template <class Env>
class SegmentView {
 public:
  using Word = typename Env::Word;

  SegmentView() = default;
  SegmentView(void* base, const Geometry& geometry) noexcept
      : base_(static_cast<std::byte*>(base)), geometry_(geometry) {}

  /// The same bytes in another environment, e.g. one whose steps a test counts.
  template <class Other>
  [[nodiscard]] SegmentView<Other> in_environment() const noexcept {
    static_assert(kProductionLayout<Other>);
    return {base_, geometry_};
  }

  [[nodiscard]] const Geometry& geometry() const noexcept { return geometry_; }
  [[nodiscard]] SegmentWords<Env>& words() const noexcept { return *at<SegmentWords<Env>>(kSegmentWordsOffset); }
  [[nodiscard]] ParticipantEntry<Env>* participant(std::uint32_t number) const noexcept {
    return number < geometry_.participants ? at<ParticipantEntry<Env>>(geometry_.participants_offset) + number
                                           : nullptr;
  }
  /// The table has a fixed length; an entry beyond it comes round.
  [[nodiscard]] GroupCells<Env>& group(std::uint32_t entry) const noexcept {
    return *(at<GroupCells<Env>>(kGroupsOffset) + entry % kMaxGroups);
  }
  [[nodiscard]] Word& index_slot(std::uint64_t hash) const noexcept {
    return *(at<Word>(geometry_.index_offset) + (hash & (geometry_.index_slots - 1)));
  }
  [[nodiscard]] BreakerCells<Env>* breaker(std::uint32_t index) const noexcept {
    return index < geometry_.breakers ? at<BreakerCells<Env>>(geometry_.breakers_offset) + index : nullptr;
  }
  [[nodiscard]] RecordCell<Env>* record(std::uint32_t index) const noexcept {
    return index != kNoRecord && index < geometry_.records ? at<RecordCell<Env>>(geometry_.records_offset) + index
                                                           : nullptr;
  }
  /// Null unless the whole piece lies within the arena.
  [[nodiscard]] Word* ring(RingWord ring) const noexcept {
    const std::uint64_t units = geometry_.ring_slots / kMinRing;
    if (!ring.assigned() || !ring.valid() || ring.first_unit() >= units || ring.units() > units - ring.first_unit()) {
      return nullptr;
    }
    return at<Word>(geometry_.rings_offset) + ring.first_unit() * kMinRing;
  }
  /// Where the journal's entry of that position lies.
  [[nodiscard]] JournalCell<Env>& journal(std::uint64_t position) const noexcept {
    return *(at<JournalCell<Env>>(geometry_.journal_offset) + (position & (geometry_.journal_entries - 1)));
  }
  [[nodiscard]] NoteCell<Env>& note(std::uint64_t position) const noexcept {
    return *(at<NoteCell<Env>>(geometry_.notes_offset) + (position & (journal_notes(geometry_.journal_entries) - 1)));
  }

 private:
  template <class T>
  [[nodiscard]] T* at(std::uint64_t offset) const noexcept {
    return reinterpret_cast<T*>(base_ + offset);  // mapped memory: words begin their life as zeroed bytes
  }

  std::byte* base_ = nullptr;
  Geometry geometry_;
};

}  // namespace shmcb::core
