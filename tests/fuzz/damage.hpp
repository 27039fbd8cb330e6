// SPDX-License-Identifier: BSD-3-Clause
// Damage to the words of a segment, as an input describes it: any value anywhere, and above all values that look right
// but are not: links, control words, owners, rings and slots of other places, words copied from elsewhere.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "fuzz/targets.hpp"
#include "shmcb/core/journal.hpp"
#include "shmcb/core/layout.hpp"

namespace shmcb::fuzz {

/// The words of a segment in memory, mapped or copied.
class Words {
 public:
  using Word = std::atomic<std::uint64_t>;

  Words(void* base, const core::Geometry& geometry) noexcept : base_(static_cast<std::byte*>(base)), g_(geometry) {
    constexpr std::size_t kGroupBytes = core::kMaxGroups * sizeof(core::GroupCells<core::StdEnv>);
    constexpr std::size_t kNoteBytes = sizeof(core::NoteCell<core::StdEnv>);
    parts_ = {Part{core::kSegmentWordsOffset, sizeof(core::SegmentWords<core::StdEnv>)},
              Part{core::kGroupsOffset, kGroupBytes},
              Part{g_.participants_offset, std::uint64_t{g_.participants} * 32},
              Part{g_.index_offset, std::uint64_t{g_.index_slots} * 8},
              Part{g_.breakers_offset, std::uint64_t{g_.breakers} * sizeof(core::BreakerCells<core::StdEnv>)},
              Part{g_.records_offset, std::uint64_t{g_.records} * sizeof(core::RecordCell<core::StdEnv>)},
              Part{g_.rings_offset, g_.ring_slots * 8},
              Part{g_.journal_offset, std::uint64_t{g_.journal_entries} * core::kLine},
              Part{g_.notes_offset, std::uint64_t{core::journal_notes(g_.journal_entries)} * kNoteBytes}};
  }

  /// relaxed here and below: a hostile writer orders nothing
  [[nodiscard]] std::uint64_t get(std::size_t offset) const noexcept {
    return word(offset).load(std::memory_order_relaxed);
  }
  void set(std::size_t offset, std::uint64_t value) const noexcept {
    word(offset).store(value, std::memory_order_relaxed);
  }

  /// Changes one word, or makes an entry of the journal add up again.
  void damage(Bytes& in) const noexcept {
    const std::uint8_t what = in.byte();
    if (what >= 0xF0) return seal(in);
    const std::size_t at = offset(in, what);
    set(at, value(in, get(at)));
  }
  /// Changes that word.
  void damage_at(const std::byte* word, Bytes& in) const noexcept {
    const auto at = static_cast<std::size_t>(word - base_);
    set(at, value(in, get(at)));
  }

 private:
  struct Part {
    std::uint64_t offset;
    std::uint64_t bytes;
  };

  [[nodiscard]] Word& word(std::size_t offset) const noexcept { return *reinterpret_cast<Word*>(base_ + offset); }

  /// In one of three cases a word of the first line of a breaker, on which everything else hangs.
  [[nodiscard]] std::size_t offset(Bytes& in, std::uint8_t what) const noexcept {
    const auto number = in.number<std::uint16_t>();
    if (what % 3 == 0) {
      const std::size_t place = number / 8 % g_.breakers;
      return g_.breakers_offset + place * sizeof(core::BreakerCells<core::StdEnv>) + number % 8 * 8U;
    }
    const Part& part = parts_[what / 3 % parts_.size()];
    return part.offset + number % (part.bytes / 8) * 8;
  }

  [[nodiscard]] std::uint64_t value(Bytes& in, std::uint64_t old) const noexcept {
    using Control = core::ControlWord<core::StdWidths>;
    using Slot = core::Slot<core::StdWidths>;
    const std::uint8_t kind = in.byte();
    switch (kind % 16) {
      case 0: return in.number<std::uint64_t>();
      case 1: return in.byte();
      case 2: return ~std::uint64_t{in.byte()};
      case 3: {
        const std::uint8_t what = in.byte();
        return get(offset(in, what));
      }
      case 4: return old ^ (std::uint64_t{1} << in.byte() % 64U);
      case 5: return old + static_cast<std::uint64_t>(std::int64_t{in.number<std::int8_t>()});
      case 6: return std::uint64_t{1} << in.byte() % 64U;
      case 7: {
        const core::LinkWord link = core::LinkWord{old}.to_place(in.byte() % (g_.breakers + 1));
        return kind >= 0x80 ? link.unlink().bits : link.bits;
      }
      case 8: {
        const std::uint8_t choice = in.byte();
        const std::uint64_t record = choice >= 0x80 ? g_.records : choice % g_.records;  // the first that is none
        return (old & ~(core::low_bits(20) << Control::kRecordShift)) | (record << Control::kRecordShift);
      }
      case 9: return (old & ~(std::uint64_t{0xFF} << 56U)) | (std::uint64_t{in.byte()} << 56U);  // marks
      case 10: {
        const auto number = static_cast<std::uint16_t>(kind >= 0x80 ? 0xFFFF : in.byte() % 8U);
        const std::uint32_t incarnation = in.byte() % 4U;
        const core::OwnerWord owner = core::OwnerWord::make(number, incarnation, in.byte());
        return kind >= 0x40 ? owner.handed_over().bits : owner.bits;
      }
      case 11: {
        const std::uint64_t log2 = in.byte() % 24U;
        return core::RingWord{log2 << 56U}.assigned_at(in.byte() % 32U).bits;
      }
      case 12: {
        const std::uint8_t lap = in.byte();
        const std::uint8_t generation = in.byte();
        const Slot::What outcome{.failure = kind >= 0x80, .slow = (kind & 0x40U) != 0, .trip = (kind & 0x20U) != 0};
        return Slot::make(lap, generation, outcome, in.number<std::uint16_t>() * std::uint64_t{1'000}).bits;
      }
      case 13: {
        const auto position = in.byte();
        return kind >= 0x80 ? core::JournalHeader::complete(position, in.byte()).bits
                            : core::JournalHeader::claimed(position, in.byte()).bits;
      }
      case 14: return (old & ~core::low_bits(32)) | in.number<std::uint32_t>();
      default: return (old & core::low_bits(32)) | (std::uint64_t{in.number<std::uint32_t>()} << 32U);
    }
  }

  /// So that the reader looks at what an entry or a text says.
  void seal(Bytes& in) const noexcept {
    const std::uint64_t position = in.byte();
    const std::size_t notes = core::journal_notes(g_.journal_entries);
    if (in.byte() % 2 == 0) {
      seal_cell<core::journal_word::checksum>(g_.journal_offset + position % g_.journal_entries * core::kLine,
                                              position);
    } else {
      seal_cell<core::kNoteWords>(g_.notes_offset + position % notes * sizeof(core::NoteCell<core::StdEnv>), position);
    }
  }

  template <std::size_t kCount>
  void seal_cell(std::size_t offset, std::uint64_t position) const noexcept {
    std::array<std::uint64_t, kCount> words{};
    for (std::size_t i = 0; i < kCount; ++i)
      words[i] = get(offset + 8 + i * 8);
    set(offset + 8 + kCount * 8, core::journal_checksum<kCount>(position, words.data()));
    set(offset, core::JournalHeader::complete(position, 1).bits);
  }

  std::byte* base_;
  core::Geometry g_;
  std::array<Part, 9> parts_{};
};

}  // namespace shmcb::fuzz
