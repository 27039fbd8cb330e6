// SPDX-License-Identifier: BSD-3-Clause
// The bit layout of the shared 64-bit words, as plain values. docs/segment-format.md draws them; the assertions hold
// them.
#pragma once

#include <bit>
#include <cstdint>

#include "shmcb/types.hpp"

namespace shmcb::core {

using Bits = std::uint64_t;

[[nodiscard]] constexpr Bits low_bits(unsigned width) noexcept {
  return (Bits{1} << width) - 1;
}

[[nodiscard]] constexpr Bits flag(bool set) noexcept {
  return set ? 1U : 0U;
}

/// What becomes of a success in Closed. The values are part of the segment format.
enum class Successes : std::uint8_t {
  written = 0,   ///< into the ring, no more
  left_out = 1,  ///< lean accounting: not even that, while no failure is near
  judged = 2,    ///< it may open the breaker, and so looks at the window
  timed = 3,     ///< the same, and an admit reads the clock
};

/// What a control word says about its breaker beside the numbers.
struct Marks {
  CircuitState state = CircuitState::closed;
  Mode mode = Mode::automatic;
  bool ramping = false;
  Successes successes = Successes::written;

  friend constexpr bool operator==(const Marks&, const Marks&) noexcept = default;
};

/// {state 63..62, mode 61..59, ramping 58, successes 57..56, record 55..36, generation 35..12, version 11..0}: all a
/// Closed admit reads. The generation is raised by transitions and forced states, the version by
/// every other swap; together they are one counter that never repeats a value while anyone remembers it.
template <class Widths>
struct ControlWord {
  Bits bits = 0;

  static constexpr unsigned kSuccessesShift = 56;
  static constexpr unsigned kRecordShift = 36;
  static constexpr unsigned kGenerationShift = 12;
  static constexpr Bits kMaxRecords = Bits{1} << 20;
  static constexpr Bits kMaxVersion = low_bits(Widths::version);
  static constexpr Bits kLeaving = Bits{3} << 62U;
  static_assert(Widths::version <= kGenerationShift && Widths::generation <= kRecordShift - kGenerationShift);

  [[nodiscard]] static constexpr ControlWord make(const Marks& marks, std::uint32_t record, Bits generation,
                                                  Bits version) noexcept {
    return {(static_cast<Bits>(marks.state) << 62U) | (static_cast<Bits>(marks.mode) << 59U) |
            (flag(marks.ramping) << 58U) | (static_cast<Bits>(marks.successes) << kSuccessesShift) |
            (Bits{record} << kRecordShift) | ((generation & low_bits(Widths::generation)) << kGenerationShift) |
            version};
  }

  /// Closed, automatic, no ramp, calls are not timed. ONE compare.
  [[nodiscard]] constexpr bool plainly_closed() const noexcept { return bits < in_plain_closed(Successes::timed); }
  /// The same but that calls are timed.
  [[nodiscard]] constexpr bool closed_and_timed() const noexcept {
    return bits >> kSuccessesShift == static_cast<Bits>(Successes::timed);
  }
  /// Open, automatic.
  [[nodiscard]] constexpr bool plainly_open() const noexcept {
    return bits >> 58U == static_cast<Bits>(CircuitState::open) << 4U;
  }
  [[nodiscard]] constexpr bool closed() const noexcept { return (bits >> 62U) == 0; }
  [[nodiscard]] constexpr bool valid() const noexcept { return !leaving() && ((bits >> 59U) & low_bits(3)) < kModes; }

  // State 3 is no circuit's: the breaker of a group leaves its place. With a record it is *retiring*, and whoever uses
  // it takes it back; without one it is *gone*, for good. (docs/design.md, "Recycling")
  [[nodiscard]] constexpr bool leaving() const noexcept { return (bits >> 62U) == 3; }
  [[nodiscard]] constexpr bool retiring() const noexcept { return leaving() && record() != 0; }
  [[nodiscard]] constexpr bool gone() const noexcept { return leaving() && record() == 0; }
  [[nodiscard]] constexpr ControlWord retired() const noexcept { return {(bits | kLeaving) + 1}; }
  [[nodiscard]] constexpr ControlWord taken_back() const noexcept { return {(bits & ~kLeaving) + 1}; }
  /// As the breaker is until that is decided: a retiring one is Closed.
  [[nodiscard]] constexpr ControlWord undecided() const noexcept {
    return retiring() ? ControlWord{bits & ~kLeaving} : *this;
  }
  [[nodiscard]] constexpr ControlWord left() const noexcept {
    return {kLeaving | (((generation() + 1) & low_bits(Widths::generation)) << kGenerationShift)};
  }
  [[nodiscard]] constexpr CircuitState state() const noexcept { return static_cast<CircuitState>(bits >> 62U); }
  [[nodiscard]] constexpr Mode mode() const noexcept { return static_cast<Mode>((bits >> 59U) & low_bits(3)); }
  [[nodiscard]] constexpr bool ramping() const noexcept { return ((bits >> 58U) & 1U) != 0; }
  [[nodiscard]] constexpr Successes successes() const noexcept {
    return static_cast<Successes>((bits >> kSuccessesShift) & low_bits(2));
  }
  [[nodiscard]] constexpr std::uint32_t record() const noexcept {
    return static_cast<std::uint32_t>((bits >> kRecordShift) & (kMaxRecords - 1));
  }
  [[nodiscard]] constexpr Bits generation() const noexcept {
    return (bits >> kGenerationShift) & low_bits(Widths::generation);
  }
  [[nodiscard]] constexpr Bits version() const noexcept { return bits & low_bits(kGenerationShift); }

  /// In the Closed period that `generation` names?
  [[nodiscard]] constexpr bool in_closed_period(Bits generation_of_period) const noexcept {
    return closed() && generation() == generation_of_period;
  }
  /// Whether a success of that period needs to know no more: nobody stands in the way of counting it, and it cannot
  /// open the breaker.
  [[nodiscard]] constexpr bool counts_successes_of(Bits generation_of_period) const noexcept {
    return in_closed_period(generation_of_period) && mode() != Mode::disabled && successes() < Successes::judged;
  }
  /// The same, where no mode and no ramp is set either. ONE compare.
  [[nodiscard]] constexpr bool plainly_in_period(Bits generation_of_period) const noexcept {
    return (bits & ~kMoves & ~in_plain_closed(Successes::left_out)) == rotated(generation_of_period);
  }
  /// The same, where successes may be left out.
  [[nodiscard]] constexpr bool leaves_out_in_period(Bits generation_of_period) const noexcept {
    return (bits & ~kMoves) == in_plain_closed(Successes::left_out) + rotated(generation_of_period);
  }

  /// {generation, version} as one number: the identity of the change that this word is, and so of a probe admitted by
  /// it.
  [[nodiscard]] constexpr Bits change_id() const noexcept {
    return bits & low_bits(kGenerationShift + Widths::generation);
  }

  /// The word after the next change. A version that overflows carries into the generation; in Closed that would void
  /// the attempts in flight, so `version_exhausted` is asked beforehand.
  [[nodiscard]] constexpr ControlWord next(const Marks& marks, bool transition, std::uint32_t record) const noexcept {
    const bool carry = transition || version() >= kMaxVersion;
    return make(marks, record, generation() + (carry ? 1 : 0), carry ? 0 : version() + 1);
  }
  [[nodiscard]] constexpr bool version_exhausted(Bits reserve = 0) const noexcept {
    return closed() && version() + reserve >= kMaxVersion;
  }

  friend constexpr bool operator==(ControlWord, ControlWord) noexcept = default;

 private:
  static constexpr Bits kMoves = ((kMaxRecords - 1) << kRecordShift) | low_bits(kGenerationShift);

  /// A generation at its place in the word; of a number that is none, no bit gets lost.
  [[nodiscard]] static constexpr Bits rotated(Bits generation) noexcept {
    return std::rotl(generation, int{kGenerationShift});
  }

  /// The bits above the record of a word that is Closed, automatic, without a ramp.
  [[nodiscard]] static constexpr Bits in_plain_closed(Successes successes) noexcept {
    return static_cast<Bits>(successes) << kSuccessesShift;
  }
};

/// {trip 63, slow 62, failure 61, lap 60..52, generation tag 51..48, time 47..0}: one outcome in the ring. The time is
/// in microseconds since the segment's epoch. Zeroed memory is lap 0, so positions start at the capacity.
template <class Widths>
struct Slot {
  Bits bits = 0;

  static constexpr unsigned kSlowShift = 62;
  static constexpr unsigned kFailureShift = 61;
  static constexpr Bits kTrip = Bits{1} << 63U;
  static constexpr Bits kSlow = Bits{1} << kSlowShift;
  static constexpr Bits kFailure = Bits{1} << kFailureShift;
  static constexpr unsigned kLapShift = 52;
  static constexpr unsigned kGenerationShift = 48;
  static constexpr Bits kMaxTime = low_bits(48);
  static_assert(Widths::lap <= 9 && Widths::slot_generation <= 4);

  struct What {
    bool failure = false;
    bool slow = false;
    bool trip = false;
  };

  [[nodiscard]] static constexpr Slot make(Bits lap, Bits generation, What what, Bits time_us) noexcept {
    return {(what.trip ? kTrip : 0) | (what.slow ? kSlow : 0) | (what.failure ? kFailure : 0) | (lap << kLapShift) |
            (generation_tag(generation) << kGenerationShift) | time_us};
  }
  [[nodiscard]] static constexpr Bits generation_tag(Bits generation) noexcept {
    return generation & low_bits(Widths::slot_generation);
  }

  [[nodiscard]] constexpr bool trip() const noexcept { return (bits & kTrip) != 0; }
  [[nodiscard]] constexpr bool slow() const noexcept { return (bits & kSlow) != 0; }
  [[nodiscard]] constexpr bool failure() const noexcept { return (bits & kFailure) != 0; }
  [[nodiscard]] constexpr Bits lap() const noexcept { return (bits >> kLapShift) & low_bits(9); }
  [[nodiscard]] constexpr Bits generation() const noexcept { return (bits >> kGenerationShift) & low_bits(4); }
  [[nodiscard]] constexpr Bits time_us() const noexcept { return bits & kMaxTime; }

  /// Lap, generation tag and time, in the order of their weight.
  [[nodiscard]] constexpr Bits without_flags() const noexcept { return bits << 3U; }

  /// Another value of a free slot: nobody reads the time of a free slot, but whoever read it before loses its swap.
  [[nodiscard]] constexpr Slot touched() const noexcept { return {(bits & ~kMaxTime) | ((bits + 1) & kMaxTime)}; }
};

/// {participant 63..48, incarnation 47..24, published 23, sequence 22..0}: who may write a record or an unpublished
/// breaker. Zero is free. Changed by compare-and-swap only; the sequence makes every ownership another value.
struct OwnerWord {
  Bits bits = 0;

  static constexpr Bits kPublished = Bits{1} << 23U;

  [[nodiscard]] static constexpr OwnerWord make(std::uint16_t participant, std::uint32_t incarnation,
                                                std::uint32_t sequence) noexcept {
    return {(Bits{participant} << 48U) | ((Bits{incarnation} & low_bits(24)) << 24U) | (sequence & low_bits(23))};
  }
  [[nodiscard]] constexpr bool free() const noexcept { return bits == 0; }
  /// Handed over: no process's any more, the breaker's it was published for.
  [[nodiscard]] constexpr bool published() const noexcept { return (bits & kPublished) != 0; }
  [[nodiscard]] constexpr OwnerWord handed_over() const noexcept { return {bits | kPublished}; }
  [[nodiscard]] constexpr std::uint16_t participant() const noexcept { return static_cast<std::uint16_t>(bits >> 48U); }
  [[nodiscard]] constexpr std::uint32_t incarnation() const noexcept {
    return static_cast<std::uint32_t>((bits >> 24U) & low_bits(24));
  }
};

/// {generation of the last reset 63..40, count 39..0}: rejections, so that they reset with the outage without a step of
/// their own.
template <class Widths>
struct RejectedWord {
  Bits bits = 0;

  static constexpr Bits kMaxCount = low_bits(40);

  [[nodiscard]] static constexpr RejectedWord make(Bits reset_generation, Bits count) noexcept {
    return {(reset_generation << 40U) | count};
  }
  [[nodiscard]] constexpr Bits reset_generation() const noexcept { return bits >> 40U; }
  [[nodiscard]] constexpr Bits count() const noexcept { return bits & kMaxCount; }

  /// Whether this word counts for a later outage than the one that began at `generation`: serial-number arithmetic (RFC
  /// 1982). A word that never counted is of no outage.
  [[nodiscard]] constexpr bool later_than(Bits generation) const noexcept {
    const Bits ahead = (reset_generation() - generation) & low_bits(Widths::generation);
    return count() != 0 && ahead != 0 && ahead < (Bits{1} << (Widths::generation - 1));
  }
};

/// {position 63..18, number of the writer 17..2, complete 1, claimed 0}: whose an entry of the journal is, and whether
/// all of it is there. Zeroed memory is neither. Positions are compared by what follows what, so they may come round.
struct JournalHeader {
  Bits bits = 0;

  static constexpr unsigned kPositionShift = 18;

  [[nodiscard]] static constexpr JournalHeader claimed(Bits position, std::uint16_t writer) noexcept {
    return {(position << kPositionShift) | (Bits{writer} << 2U) | 1U};
  }
  [[nodiscard]] static constexpr JournalHeader complete(Bits position, std::uint16_t writer) noexcept {
    return {(position << kPositionShift) | (Bits{writer} << 2U) | 2U};
  }
  [[nodiscard]] constexpr bool empty() const noexcept { return (bits & 3U) == 0; }
  [[nodiscard]] constexpr bool is_claimed() const noexcept { return (bits & 3U) == 1; }
  [[nodiscard]] constexpr bool is_complete() const noexcept { return (bits & 3U) == 2; }
  [[nodiscard]] constexpr std::uint16_t writer() const noexcept { return static_cast<std::uint16_t>(bits >> 2U); }
  [[nodiscard]] constexpr bool at(Bits position) const noexcept {
    return bits >> kPositionShift == (position & low_bits(64 - kPositionShift));
  }
  [[nodiscard]] constexpr Bits position() const noexcept { return bits >> kPositionShift; }
  /// Of a later position than that one.
  [[nodiscard]] constexpr bool later_than(Bits position) const noexcept {
    const Bits ahead = ((bits >> kPositionShift) - position) & low_bits(64 - kPositionShift);
    return !empty() && ahead != 0 && ahead < (Bits{1} << (63 - kPositionShift));
  }
};

/// {count 31..1, a follower sleeps or is about to 0}: what followers of the journal sleep on. A futex is the word's low
/// half.
struct WakeWord {
  Bits bits = 0;
  static constexpr Bits kSleepers = 1;
  static constexpr Bits kOneMore = 2;  ///< of the count
  [[nodiscard]] constexpr bool has_sleepers() const noexcept { return (bits & kSleepers) != 0; }
};

}  // namespace shmcb::core
