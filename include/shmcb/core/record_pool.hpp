// SPDX-License-Identifier: BSD-3-Clause
// The pool of records that all breakers of a segment share, and the one way to change a breaker: fill a free record
// completely, publish it by ONE compare-and-swap of the control word, take over the record that was swapped out as the
// next spare. A process that dies anywhere in here leaves at most one record behind, which the next one in need takes
// back.
#pragma once

#include <cstdint>

#include "shmcb/core/layout.hpp"
#include "shmcb/core/presence.hpp"
#include "shmcb/core/record.hpp"

namespace shmcb::core {

template <class Env>
class RecordPool {
 public:
  using Control = ControlWord<typename Env::Widths>;

  RecordPool(const SegmentView<Env>& view, Presence& presence) noexcept : view_(&view), presence_(&presence) {}

  [[nodiscard]] Presence& presence() const noexcept { return *presence_; }

  /// A record that only this process writes; 0: `error` says why there is none.
  [[nodiscard]] std::uint32_t claim(Errc& error) noexcept {
    if (!presence_->ensure_current()) {
      error = Errc::busy;
      return 0;
    }
    while (const std::uint32_t spare = presence_->take_spare()) {
      if (try_claim(spare, Claim::own)) return spare;  // lost: this process looked dead, and somebody took it back
    }
    const std::uint32_t records = view_->geometry().records;
    const std::uint32_t start = presence_->next_record();
    // What was handed over and swapped out can be told without asking the kernel about anybody.
    for (const Claim kind : {Claim::free, Claim::handed_over, Claim::of_the_dead}) {
      for (std::uint32_t n = 0; n < records; ++n) {
        const std::uint32_t index = (start + n) % records;
        if (index == kNoRecord || !try_claim(index, kind)) continue;
        presence_->set_next_record(index + 1);
        return index;
      }
    }
    error = Errc::records_exhausted;
    return 0;
  }

  /// Gives a record back that this process owns and has not published.
  void release(std::uint32_t index) noexcept {
    const bool in_table = presence_->number() < view_->geometry().participants;
    // One without an entry keeps no spare: those would be the last that others beyond the table can get.
    if (in_table && presence_->keep_spare(index)) return;
    auto& owner = view_->record(index)->owner;
    const OwnerWord mine{Env::load(owner, Env::relaxed)};                    // relaxed: our own word
    if (presence_->owns(mine)) Env::cas(owner, mine.bits, 0, Env::acq_rel);  // sync: record-owner
    presence_->set_next_record(index);
  }

  /// Writes `record` into the record that this process owns, for `breaker`.
  void fill(std::uint32_t index, std::uint32_t breaker, const Record& record) noexcept {
    RecordCell<Env>& cell = *view_->record(index);
    // sync: record-words: release, so that whoever copies one of these words also sees the control word moved on from
    // the last time this record was in use, and so drops its copy (relaxed stores were seen to let torn copies through)
    Env::store(cell.breaker, breaker, Env::release);
    const RecordWords words = encode(record);
    for (std::size_t i = 0; i < kRecordWords; ++i)
      Env::store(cell.words[i], words[i], Env::release);
  }

  /// Copies the words before `last` of a record. Consistent if the control word is unchanged afterwards.
  [[gnu::always_inline]] void copy(std::uint32_t index, RecordWords& words, std::size_t last) const noexcept {
    const RecordCell<Env>& cell = *view_->record(index);
    for (std::size_t i = 0; i < last; ++i)
      words[i] = Env::load(cell.words[i], Env::acquire);  // sync: record-words
  }

  /// Swaps the control word from `current` to one that names `record`; false: it had changed, or `error` is set.
  [[nodiscard]] bool publish(typename Env::Word& control, Control current, std::uint32_t breaker, bool transition,
                             const Record& record, Errc& error) noexcept {
    const std::uint32_t index = claim(error);
    if (index == 0) return false;
    fill(index, breaker, record);
    auto& new_owner = view_->record(index)->owner;
    const OwnerWord mine{Env::load(new_owner, Env::relaxed)};  // relaxed: our own word, until the swap
    if (!presence_->owns(mine)) return false;                  // this process looked dead, and somebody took it back
    auto& old_owner = view_->record(current.record())->owner;
    // relaxed: the control word was loaded with acquire. Read BEFORE the swap: afterwards somebody may have taken the
    // record.
    const OwnerWord old{Env::load(old_owner, Env::relaxed)};
    // sync: control: release makes the filled record visible with the word; acquire so that what this process does next
    // to the record that it took over comes after the swap
    if (!Env::cas(control, current.bits, current.next(marks_of(record), transition, index).bits, Env::acq_rel)) {
      release(index);
      return false;
    }
    hand_over(new_owner, mine);
    // sync: record-owner, both: its publisher may have handed it over only after we looked
    const Bits ours = presence_->own().bits;
    if (Env::cas(old_owner, old.bits, ours, Env::acq_rel) ||
        Env::cas(old_owner, old.handed_over().bits, ours, Env::acq_rel)) {
      release(current.record());
    }
    return true;
  }

  /// Marks what this process has just published as the breaker's: when it is swapped out and whoever did so dies,
  /// anyone may take it back, however long this process lives. `mine` was read before the publication: the word may be
  /// another's by now.
  static void hand_over(typename Env::Word& owner, OwnerWord mine) noexcept {
    Env::cas(owner, mine.bits, mine.handed_over().bits, Env::acq_rel);  // sync: record-owner
  }

 private:
  enum class Claim : std::uint8_t { own, free, handed_over, of_the_dead };

  [[nodiscard]] bool try_claim(std::uint32_t index, Claim kind) noexcept {
    RecordCell<Env>& cell = *view_->record(index);
    const OwnerWord owner{Env::load(cell.owner, Env::acquire)};  // sync: record-owner
    switch (kind) {
      case Claim::own:
        if (!presence_->owns(owner)) return false;
        break;
      case Claim::free:
        if (!owner.free()) return false;
        break;
      // In this order: nobody can publish it any more, THEN it is not the current one. (The other way round its owner
      // could have published it in between.)
      case Claim::handed_over:
        if (!owner.published() || current(cell, index)) return false;
        break;
      case Claim::of_the_dead:
        if (owner.free() || owner.published() || !presence_->is_dead(owner) || current(cell, index)) return false;
        break;
    }
    return Env::cas(cell.owner, owner.bits, presence_->own().bits, Env::acq_rel);  // sync: record-owner
  }

  /// Whether the breaker that the record names names it.
  [[nodiscard]] bool current(const RecordCell<Env>& cell, std::uint32_t index) const noexcept {
    const auto* breaker =
        view_->breaker(static_cast<std::uint32_t>(Env::load(cell.breaker, Env::acquire)));  // sync: record-words
    // A breaker that does not exist: filled by nobody yet, or corrupt; either way nothing names this record.
    return breaker != nullptr && Control{Env::load(breaker->control, Env::acquire)}.record() == index;  // sync: control
  }

  const SegmentView<Env>* view_;
  Presence* presence_;
};

}  // namespace shmcb::core
