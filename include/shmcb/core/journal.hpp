// SPDX-License-Identifier: BSD-3-Clause
// The journal: a ring of the newest transitions, forced states and mode changes of all breakers. Whoever commits one
// writes its entry; a writer killed half-way costs that entry and no other. Readers change nothing, except to say that
// they are about to sleep. docs/design.md argues each step, docs/memory-model.md each order.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "shmcb/core/layout.hpp"
#include "shmcb/core/presence.hpp"
#include "shmcb/core/record.hpp"
#include "shmcb/core/rules.hpp"

namespace shmcb::core {

/// What an entry says, as a plain value; times in ticks since the segment's epoch.
struct JournalEntry {
  EventKind kind = EventKind::transition;
  CircuitState from = CircuitState::closed;
  CircuitState to = CircuitState::closed;
  TransitionReason reason = TransitionReason::none;  ///< of a transition, and of a forced state that was not in effect
  Mode mode_from = Mode::automatic;
  Mode mode_to = Mode::automatic;
  std::uint32_t breaker = 0;      ///< its place
  std::uint32_t incarnation = 0;  ///< of the place
  std::uint64_t number = 0;       ///< of this breaker's entries, from 1 on, without gaps: see Record::journaled
  std::uint64_t change = 0;       ///< the change id of the control word that it tells of
  rules::Tick at = 0;
  std::optional<rules::Tick> until{};
  std::uint32_t pid = 0;
  NoteText note{};

  friend bool operator==(const JournalEntry&, const JournalEntry&) = default;
};

using JournalWords = std::array<std::uint64_t, kJournalWords>;

/// The words of an entry behind its header.
namespace journal_word {
enum Index : std::size_t {
  what = 0,  // {reason 63..56, mode to 55..53, mode from 52..50, to 49..48, from 47..46, kind 45..42, change id 35..0}
  number = 1,
  place = 2,  // {incarnation 63..32, breaker 31..0}
  at = 3,
  until = 4,   // +1; 0: none
  writer = 5,  // {low bits of the position of its text, + 1 63..32, pid 31..0}; no text: 0
  checksum = 6,
  end = 7,
};
static_assert(end == kJournalWords);
}  // namespace journal_word

/// Over words and their position: a writer that stood still while the ring came round writes into somebody else's cell,
/// which then does not add up.
template <std::size_t kCount>
[[nodiscard]] constexpr std::uint64_t journal_checksum(Bits position, const std::uint64_t* words) noexcept {
  std::uint64_t hash = JournalHeader::complete(position, 0).bits;
  for (std::size_t i = 0; i < kCount; ++i) {
    hash = (hash ^ words[i]) * 0x9e37'79b9'7f4a'7c15;  // 2^64 / the golden ratio
    hash ^= hash >> 29U;
  }
  return hash;
}

/// Without the text, whose place `note` names: its position + 1; 0: none.
[[nodiscard]] constexpr JournalWords encode(const JournalEntry& e, Bits note = 0) noexcept {
  JournalWords words{};
  words[journal_word::what] = (static_cast<Bits>(e.reason) << 56U) | (static_cast<Bits>(e.mode_to) << 53U) |
                              (static_cast<Bits>(e.mode_from) << 50U) | (static_cast<Bits>(e.to) << 48U) |
                              (static_cast<Bits>(e.from) << 46U) | (static_cast<Bits>(e.kind) << 42U) |
                              (e.change & low_bits(36));
  words[journal_word::number] = e.number;
  words[journal_word::place] = (Bits{e.incarnation} << 32U) | e.breaker;
  words[journal_word::at] = static_cast<Bits>(e.at);
  words[journal_word::until] = e.until ? static_cast<Bits>(*e.until) + 1 : 0;
  words[journal_word::writer] = (note << 32U) | e.pid;
  return words;
}

/// Without the text. False: no correct process wrote this.
[[nodiscard]] constexpr bool decode(const JournalWords& words, JournalEntry& e) noexcept {
  const Bits what = words[journal_word::what];
  const auto kind = (what >> 42U) & low_bits(4);
  const auto from = (what >> 46U) & low_bits(2);
  const auto to = (what >> 48U) & low_bits(2);
  const Bits until = words[journal_word::until];
  const Bits reason = what >> 56U;
  const Bits mode_from = (what >> 50U) & low_bits(3);
  const Bits mode_to = (what >> 53U) & low_bits(3);
  if (kind < 1 || kind > static_cast<Bits>(EventKind::ramp_ended) || from > 2 || to > 2 ||
      reason >= kTransitionReasons || mode_from >= kModes || mode_to >= kModes || until > kMaxTick + kMaxDurationMs ||
      words[journal_word::at] > kMaxTick) {
    return false;
  }
  e = {.kind = static_cast<EventKind>(kind),
       .from = static_cast<CircuitState>(from),
       .to = static_cast<CircuitState>(to),
       .reason = static_cast<TransitionReason>(reason),
       .mode_from = static_cast<Mode>(mode_from),
       .mode_to = static_cast<Mode>(mode_to),
       .breaker = static_cast<std::uint32_t>(words[journal_word::place]),
       .incarnation = static_cast<std::uint32_t>(words[journal_word::place] >> 32U),
       .number = words[journal_word::number],
       .change = what & low_bits(36),
       .at = static_cast<rules::Tick>(words[journal_word::at]),
       .pid = static_cast<std::uint32_t>(words[journal_word::writer])};
  if (until != 0) e.until = static_cast<rules::Tick>(until - 1);
  return true;
}

/// What stands at a position of the journal.
enum class JournalRead : std::uint8_t {
  entry,        ///< its entry
  pending,      ///< nothing yet: its writer is at it, stands still, or is dead
  overwritten,  ///< the entry of a later position
  damaged,      ///< written into by a writer that the ring had overtaken: nobody will ever read it
};

/// The journal of a mapped segment. A handle without state of its own; safe from any thread.
template <class Env>
class Journal {
 public:
  Journal(const SegmentView<Env>& view, Presence& presence) noexcept : view_(&view), presence_(&presence) {}

  /// Adds an entry and wakes whoever follows; `pid` is filled in. An entry that others overtake by a whole ring before
  /// it is begun is dropped.
  void write(JournalEntry entry) noexcept {
    entry.pid = presence_->pid();
    // relaxed: what is at the position is published by its header, and the number itself by the wake word
    const Bits position = Env::fetch_add(view_->words().journal_next, 1, Env::relaxed);
    JournalCell<Env>& cell = view_->journal(position);
    const std::uint16_t self = presence_->number();
    const JournalHeader claimed = JournalHeader::claimed(position, self);
    if (claim(cell.header, position, claimed)) {
      JournalWords words = encode(entry, entry.note == NoteText{} ? 0 : write_note(entry.note));
      words[journal_word::checksum] = journal_checksum<journal_word::checksum>(position, words.data());
      fill(cell.words, words);
      // sync: journal-entry (release): the words. Lost: others have come round meanwhile, and the entry is theirs.
      Env::cas(cell.header, claimed.bits, JournalHeader::complete(position, self).bits, Env::release);
    }
    wake();
  }

  /// The position that the next entry takes.
  [[nodiscard]] Bits next() const noexcept {
    // relaxed: behind the follower's own change of the wake word, or its newness does not matter
    return Env::load(view_->words().journal_next, Env::relaxed);
  }
  /// How many entries there is room for.
  [[nodiscard]] Bits size() const noexcept { return view_->geometry().journal_entries; }

  [[nodiscard]] JournalRead read(Bits position, JournalEntry& entry) const noexcept {
    const JournalCell<Env>& cell = view_->journal(position);
    const JournalHeader header{Env::load(cell.header, Env::acquire)};  // sync: journal-entry
    if (header.later_than(position)) return JournalRead::overwritten;
    if (!header.at(position) || !header.is_complete()) return JournalRead::pending;
    JournalWords words{};
    copy(cell.words, words);
    // relaxed: the acquire loads of the words (sync: journal-words) keep it behind them
    if (Env::load(cell.header, Env::relaxed) != header.bits) return JournalRead::overwritten;
    const bool whole =
        journal_checksum<journal_word::checksum>(position, words.data()) == words[journal_word::checksum];
    if (!whole || !decode(words, entry)) return JournalRead::damaged;
    read_note(words[journal_word::writer] >> 32U, entry.note);
    return JournalRead::entry;
  }

  /// Whether the writer at a pending position will never complete it, as far as it can be told. Makes system calls.
  [[nodiscard]] bool writer_is_dead(Bits position) const noexcept {
    const JournalHeader header{Env::load(view_->journal(position).header, Env::relaxed)};  // relaxed: read again after
    if (!header.at(position) || !header.is_claimed()) return false;
    const auto* holder = view_->participant(header.writer());
    // relaxed: whoever holds the number by now, if that one is alive, the writer is not missed before the patience ends
    const std::uint64_t incarnation = holder != nullptr ? Env::load(holder->incarnation, Env::relaxed) : 0;
    return presence_->is_dead(OwnerWord::make(header.writer(), static_cast<std::uint32_t>(incarnation), 0));
  }

  /// Says that somebody is about to sleep, and answers what the futex word must still be then. What was written before
  /// and woke nobody is to be read from now on, so the journal has to be looked at once more before sleeping. None: it
  /// changed all the time.
  [[nodiscard]] std::optional<std::uint32_t> announce_sleep() const noexcept {
    auto& word = view_->words().journal_wake;
    for (int i = 0; i < kTries; ++i) {
      const Bits seen = Env::load(word, Env::relaxed);  // relaxed: the swap decides
      const Bits sleeping = seen | WakeWord::kSleepers;
      // sync: journal-wake: also where the bit is there already, or what its writers wrote before would not be seen
      if (Env::cas(word, seen, sleeping, Env::acq_rel)) return static_cast<std::uint32_t>(sleeping);
    }
    return std::nullopt;
  }

 private:
  // Arbitrary: each one lost is a step of another process. Giving up costs an entry of a ring that goes round in no
  // time, one more wake-up, or a look more.
  static constexpr int kTries = 64;

  /// From whoever had it a lap ago, also from one who never completed it. False: somebody is there from a lap later.
  [[nodiscard]] static bool claim(typename Env::Word& header, Bits position, JournalHeader claimed) noexcept {
    for (int i = 0; i < kTries; ++i) {
      const JournalHeader seen{Env::load(header, Env::relaxed)};  // relaxed: the swap decides
      if (seen.later_than(position) || (seen.at(position) && !seen.empty())) return false;
      // sync: journal-words: acquire and release, so that whoever copies one of our words sees this claim
      if (Env::cas(header, seen.bits, claimed.bits, Env::acq_rel)) return true;
    }
    return false;
  }

  template <std::size_t kCount>
  static void fill(typename Env::Word (&cell)[kCount], const std::array<std::uint64_t, kCount>& words) noexcept {
    for (std::size_t i = 0; i < kCount; ++i)
      Env::store(cell[i], words[i], Env::release);  // sync: journal-words
  }
  template <std::size_t kCount>
  static void copy(const typename Env::Word (&cell)[kCount], std::array<std::uint64_t, kCount>& words) noexcept {
    for (std::size_t i = 0; i < kCount; ++i)
      words[i] = Env::load(cell[i], Env::acquire);  // sync: journal-words
  }

  // A text has a cell of its own, written as an entry is, before the entry that names it.
  using NoteWords = std::array<std::uint64_t, kNoteWords>;
  static constexpr Bits kNoteMask = low_bits(31);

  /// What the entry calls it; 0: it could not be written.
  [[nodiscard]] Bits write_note(const NoteText& note) noexcept {
    // relaxed: what is at the position is published by its header
    const Bits position = Env::fetch_add(view_->words().note_next, 1, Env::relaxed);
    NoteCell<Env>& cell = view_->note(position);
    const std::uint16_t self = presence_->number();
    const JournalHeader claimed = JournalHeader::claimed(position, self);
    if (!claim(cell.header, position, claimed)) return 0;
    NoteWords words{};
    coding::encode_text(note.who, words.data());
    coding::encode_text(note.why, &words[kMaxWhoBytes / 8]);
    fill(cell.words, words);
    // sync: journal-words (release), as all before it
    Env::store(cell.checksum, journal_checksum<kNoteWords>(position, words.data()), Env::release);
    // sync: journal-entry (release)
    const bool done = Env::cas(cell.header, claimed.bits, JournalHeader::complete(position, self).bits, Env::release);
    return done ? (position + 1) & kNoteMask : 0;
  }

  /// The text that an entry calls by `name`, if it is still there: newer ones may have taken its cell.
  void read_note(Bits name, NoteText& note) const noexcept {
    if (name == 0) return;
    const NoteCell<Env>& cell = view_->note(name - 1);
    const JournalHeader header{Env::load(cell.header, Env::acquire)};  // sync: journal-entry
    if (!header.is_complete() || (header.position() & kNoteMask) != ((name - 1) & kNoteMask)) return;
    NoteWords words{};
    copy(cell.words, words);
    const Bits checksum = Env::load(cell.checksum, Env::acquire);  // sync: journal-words
    if (checksum != journal_checksum<kNoteWords>(header.position(), words.data())) return;
    coding::decode_text(words.data(), note.who);
    coding::decode_text(&words[kMaxWhoBytes / 8], note.why);
  }

  /// A system call only where somebody has said that it is about to sleep.
  void wake() noexcept {
    auto& word = view_->words().journal_wake;
    // sync: journal-wake (release): the entry; acquire: a follower that came before is seen. A change and not a load:
    // of it and the follower's change one comes first, and the other sees it.
    WakeWord seen{Env::fetch_add(word, WakeWord::kOneMore, Env::acq_rel) + WakeWord::kOneMore};
    if (!seen.has_sleepers()) return;
    for (int i = 0; i < kTries && seen.has_sleepers(); ++i) {
      // sync: journal-wake: cleared, so that a follower that was killed costs one wake-up and not one for each entry
      if (Env::cas(word, seen.bits, seen.bits & ~WakeWord::kSleepers, Env::acq_rel)) break;
      seen = {Env::load(word, Env::relaxed)};  // relaxed: the swap decides
    }
    presence_->wake(&word);
  }

  const SegmentView<Env>* view_;
  Presence* presence_;
};

}  // namespace shmcb::core
