// SPDX-License-Identifier: BSD-3-Clause
// The bits of the shared words: what goes in comes out, fields do not touch each other, and what wraps wraps as
// documented.
#include "shmcb/core/words.hpp"

#include <array>
#include <cstdint>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "shmcb/core/env.hpp"
#include "shmcb/core/layout.hpp"
#include "shmcb/core/registry.hpp"

namespace shmcb::core {
namespace {

using Control = ControlWord<StdWidths>;
using Entry = Slot<StdWidths>;
using Rejected = RejectedWord<StdWidths>;
using enum CircuitState;

struct TinyWidths {
  static constexpr unsigned generation = 3;
  static constexpr unsigned version = 2;
};
using TinyControl = ControlWord<TinyWidths>;

constexpr Bits kMaxGeneration = low_bits(StdWidths::generation);
constexpr Bits kMaxVersion = Control::kMaxVersion;
constexpr auto kMaxRecord = static_cast<std::uint32_t>(Control::kMaxRecords - 1);

TEST(ControlWord, GivesBackEachFieldAtItsLimits) {
  for (const CircuitState state : {closed, open, half_open}) {
    for (const std::uint32_t record : {0U, 1U, kMaxRecord}) {
      for (const Bits generation : {Bits{0}, Bits{1}, kMaxGeneration}) {
        for (const Bits version : {Bits{0}, Bits{1}, kMaxVersion}) {
          const Control word = Control::make({state}, record, generation, version);
          EXPECT_TRUE(word.valid());
          EXPECT_EQ(word.state(), state);
          EXPECT_EQ(word.record(), record);
          EXPECT_EQ(word.generation(), generation);
          EXPECT_EQ(word.version(), version);
          EXPECT_EQ(word.plainly_closed(), state == closed);
          EXPECT_EQ(word.closed(), state == closed);
          EXPECT_EQ(word.bits & (Bits{0xFF} << 56U), static_cast<Bits>(state) << 62U)
              << "mode, ramp and the spare bits";
        }
      }
    }
  }
}

TEST(ControlWord, IsPlainlyClosedExactlyWhenAllAboveTheSuccessesIsZeroAndCallsAreNotTimed) {
  const Bits rest = Control::make({closed}, kMaxRecord, kMaxGeneration, kMaxVersion).bits;
  EXPECT_EQ(rest >> 56U, 0U);
  for (Bits top = 0; top < 256; ++top) {
    EXPECT_EQ((Control{(top << 56U) | rest}.plainly_closed()), top < 3) << top;
    EXPECT_EQ((Control{(top << 56U) | rest}.closed_and_timed()), top == 3) << top;
    EXPECT_EQ((Control{(top << 56U) | rest}.plainly_in_period(kMaxGeneration)), top < 2) << top;
    EXPECT_EQ((Control{(top << 56U) | rest}.leaves_out_in_period(kMaxGeneration)), top == 1) << top;
    EXPECT_FALSE((Control{(top << 56U) | rest}.plainly_in_period(kMaxGeneration - 1))) << top;
    EXPECT_EQ((Control{(top << 56U) | rest}.plainly_open()), top >> 2U == 1U << 4U) << top;
  }
}

TEST(ControlWord, GivesBackEveryMark) {
  for (const CircuitState state : {closed, open, half_open}) {
    for (std::uint8_t mode = 0; mode < kModes; ++mode) {
      for (unsigned flags = 0; flags < 8; ++flags) {
        const Marks marks{state, static_cast<Mode>(mode), (flags & 1U) != 0, static_cast<Successes>(flags >> 1U)};
        const Control word = Control::make(marks, kMaxRecord, kMaxGeneration, kMaxVersion);
        EXPECT_TRUE(word.valid());
        EXPECT_EQ(word.state(), state);
        EXPECT_EQ(word.mode(), marks.mode);
        EXPECT_EQ(word.ramping(), marks.ramping);
        EXPECT_EQ(word.successes(), marks.successes);
        EXPECT_EQ(word.plainly_closed(), state == closed && marks.mode == Mode::automatic && !marks.ramping &&
                                             marks.successes != Successes::timed);
        EXPECT_EQ(word.counts_successes_of(kMaxGeneration), state == closed && marks.mode != Mode::disabled &&
                                                                marks.successes != Successes::judged &&
                                                                marks.successes != Successes::timed);
        EXPECT_EQ(word.record(), kMaxRecord);
        EXPECT_EQ(word.generation(), kMaxGeneration);
        EXPECT_EQ(word.version(), kMaxVersion);
      }
    }
  }
}

TEST(ControlWord, OfTheFourthStateOrAModeThatDoesNotExistIsInvalid) {
  EXPECT_FALSE((Control{~Bits{0}}.valid()));
  EXPECT_FALSE((Control{Bits{3} << 62U}.valid()));
  EXPECT_TRUE((Control{Bits{2} << 62U}.valid()));
  for (Bits mode = 0; mode < 8; ++mode)
    EXPECT_EQ((Control{mode << 59U}.valid()), mode < kModes) << mode;
}

TEST(ControlWord, OfZeroedMemoryIsClosedAndNamesNoRecord) {
  const Control word{};
  EXPECT_TRUE(word.plainly_closed());
  EXPECT_EQ(word.record(), kNoRecord);
}

TEST(ControlWord, HasRoomForEveryRecordOfTheLargestSegment) {
  EXPECT_LT(geometry_of(kMaxBreakers, kMaxParticipants, kMinRing).records, Control::kMaxRecords);
}

TEST(ControlWord, RaisesTheGenerationInATransitionAndTheVersionOtherwise) {
  const Control word = Control::make({half_open}, 7, 41, 5);
  EXPECT_EQ(word.next({closed}, true, 8), Control::make({closed}, 8, 42, 0));
  EXPECT_EQ(word.next({half_open}, false, 8), Control::make({half_open}, 8, 41, 6));
}

TEST(ControlWord, CarriesAVersionThatOverflowsIntoTheGeneration) {
  EXPECT_EQ(Control::make({half_open}, 7, 41, kMaxVersion).next({half_open}, false, 8),
            Control::make({half_open}, 8, 42, 0));
  EXPECT_EQ(Control::make({open}, 7, kMaxGeneration, kMaxVersion).next({open}, false, 8),
            Control::make({open}, 8, 0, 0));
}

TEST(ControlWord, IsExhaustedInClosedOnlyBeforeItsVersionWouldCarry) {
  EXPECT_FALSE(Control::make({closed}, 1, 1, kMaxVersion - 1).version_exhausted());
  EXPECT_TRUE(Control::make({closed}, 1, 1, kMaxVersion).version_exhausted());
  EXPECT_FALSE(Control::make({open}, 1, 1, kMaxVersion).version_exhausted());
  EXPECT_FALSE(Control::make({half_open}, 1, 1, kMaxVersion).version_exhausted());
  EXPECT_FALSE(Control::make({closed}, 1, 1, kMaxVersion - 33).version_exhausted(32));
  EXPECT_TRUE(Control::make({closed}, 1, 1, kMaxVersion - 32).version_exhausted(32));
}

TEST(ControlWord, NeverRepeatsAChangeIdUntilTheWholeCounterHasComeRound) {
  const Bits all = (TinyControl::kMaxVersion + 1) * (low_bits(TinyWidths::generation) + 1);
  std::set<Bits> seen;
  TinyControl word = TinyControl::make({half_open}, 1, 0, 0);
  for (Bits i = 0; i < all; ++i) {
    EXPECT_TRUE(seen.insert(word.change_id()).second) << i;
    word = word.next({half_open}, false, 1);
  }
  EXPECT_EQ(word.change_id(), 0U) << "and then it begins again";
}

TEST(ControlWord, HasAChangeIdThatTransitionsAndOtherChangesMakeLargerUntilItWraps) {
  Control word = Control::make({closed}, 1, 0, 0);
  for (int i = 0; i < 20'000; ++i) {
    const Control next = word.next({half_open}, i % 7 == 0, 1);
    ASSERT_GT(next.change_id(), word.change_id());
    word = next;
  }
}

TEST(ControlWord, LeavesStateAndRecordOutOfTheChangeId) {
  EXPECT_EQ(Control::make({open}, 1, 5, 6).change_id(), Control::make({half_open}, kMaxRecord, 5, 6).change_id());
  EXPECT_NE(Control::make({open}, 1, 5, 6).change_id(), Control::make({open}, 1, 6, 5).change_id());
}

TEST(ControlWord, IsInTheClosedPeriodOfItsGenerationOnlyWhileClosed) {
  EXPECT_TRUE(Control::make({closed}, 1, 9, 3).in_closed_period(9));
  EXPECT_FALSE(Control::make({closed}, 1, 9, 3).in_closed_period(8));
  EXPECT_FALSE(Control::make({open}, 1, 9, 3).in_closed_period(9));
  EXPECT_FALSE(Control::make({half_open}, 1, 9, 3).in_closed_period(9));
}

TEST(Slot, GivesBackEachFieldAtItsLimits) {
  for (const Bits lap : {Bits{0}, Bits{1}, low_bits(StdWidths::lap)}) {
    for (const Bits generation : {Bits{0}, Bits{1}, low_bits(StdWidths::slot_generation)}) {
      for (const bool failure : {false, true}) {
        for (const bool trip : {false, true}) {
          for (const Bits time : {Bits{0}, Bits{1}, Entry::kMaxTime}) {
            const Entry entry = Entry::make(lap, generation, {.failure = failure, .trip = trip}, time);
            EXPECT_EQ(entry.lap(), lap);
            EXPECT_EQ(entry.generation(), generation);
            EXPECT_EQ(entry.failure(), failure);
            EXPECT_EQ(entry.trip(), trip);
            EXPECT_EQ(entry.time_us(), time);
            EXPECT_EQ(entry.bits & (Bits{1} << 62U), 0U) << "the slow bit is not in use";
          }
        }
      }
    }
  }
}

TEST(Slot, KeepsTheLowBitsOfAGeneration) {
  EXPECT_EQ(Entry::make(1, 0x123456, {.failure = true, .trip = false}, 9).generation(), 0x6U);
  EXPECT_EQ(Entry::generation_tag(0x123456), 0x6U);
}

TEST(Slot, OfZeroedMemoryIsASuccessOfLapZero) {
  const Entry entry{};
  EXPECT_EQ(entry.lap(), 0U);
  EXPECT_FALSE(entry.failure());
  EXPECT_FALSE(entry.trip());
}

TEST(Slot, TouchedDiffersInItsTimeOnlyEvenWhereTheTimeWraps) {
  for (const Bits time : {Bits{0}, Bits{77}, Entry::kMaxTime}) {
    const Entry entry = Entry::make(3, 2, {.failure = true, .trip = true}, time);
    const Entry touched = entry.touched();
    EXPECT_NE(touched.bits, entry.bits);
    EXPECT_EQ(touched.lap(), entry.lap());
    EXPECT_EQ(touched.generation(), entry.generation());
    EXPECT_EQ(touched.failure(), entry.failure());
    EXPECT_EQ(touched.trip(), entry.trip());
    EXPECT_EQ(touched.time_us(), (time + 1) & Entry::kMaxTime);
  }
}

TEST(OwnerWord, GivesBackParticipantAndIncarnation) {
  for (const std::uint16_t participant : {std::uint16_t{0}, std::uint16_t{1}, std::uint16_t{0xFFFE}}) {
    for (const std::uint32_t incarnation : {1U, 0xFFFFFFU}) {
      const OwnerWord word = OwnerWord::make(participant, incarnation, 0x7FFFFF);
      EXPECT_EQ(word.participant(), participant);
      EXPECT_EQ(word.incarnation(), incarnation);
      EXPECT_FALSE(word.published());
      EXPECT_FALSE(word.free());
    }
  }
}

TEST(OwnerWord, NeverLooksFreeOrPublishedWhateverItsSequence) {
  for (const std::uint32_t sequence : {0U, 1U, 0x7FFFFFU, 0x800000U, 0xFFFFFFFFU}) {
    const OwnerWord word = OwnerWord::make(0, 1, sequence);
    EXPECT_FALSE(word.free()) << sequence;
    EXPECT_FALSE(word.published()) << sequence;
    EXPECT_EQ(word.incarnation(), 1U) << sequence;
  }
}

TEST(OwnerWord, HandedOverStillNamesWhoHadIt) {
  const OwnerWord word = OwnerWord::make(300, 4000, 5).handed_over();
  EXPECT_TRUE(word.published());
  EXPECT_FALSE(word.free());
  EXPECT_EQ(word.participant(), 300);
  EXPECT_EQ(word.incarnation(), 4000U);
}

TEST(RejectedWord, GivesBackGenerationAndCount) {
  const Rejected word = Rejected::make(kMaxGeneration, Rejected::kMaxCount);
  EXPECT_EQ(word.reset_generation(), kMaxGeneration);
  EXPECT_EQ(word.count(), Rejected::kMaxCount);
  EXPECT_EQ(Rejected{}.count(), 0U);
}

TEST(RejectedWord, IsLaterByHalfTheCircleAtMost) {
  constexpr Bits kHalf = Bits{1} << (StdWidths::generation - 1);
  for (const Bits generation : {Bits{0}, Bits{5}, kHalf, kMaxGeneration}) {
    const auto ahead = [&](Bits by) { return Rejected::make((generation + by) & kMaxGeneration, 3); };
    EXPECT_FALSE(ahead(0).later_than(generation)) << generation;
    EXPECT_TRUE(ahead(1).later_than(generation)) << generation;
    EXPECT_TRUE(ahead(kHalf - 1).later_than(generation)) << generation;
    EXPECT_FALSE(ahead(kHalf).later_than(generation)) << generation;
    EXPECT_FALSE(ahead(kMaxGeneration).later_than(generation)) << generation << ": one behind";
  }
}

TEST(RejectedWord, ThatNeverCountedIsOfNoOutage) {
  for (const Bits generation : {Bits{0}, Bits{1}, kMaxGeneration})
    EXPECT_FALSE(Rejected{}.later_than(generation));
}

TEST(RejectedWord, ComparesInTheWidthOfTheGenerationsThatTheControlWordHas) {
  using Tiny = RejectedWord<TinyWidths>;
  EXPECT_TRUE(Tiny::make(0, 1).later_than(7));
  EXPECT_FALSE(Tiny::make(7, 1).later_than(0));
}

TEST(LinkWord, LeadsToEveryPlaceAndNeverHasAValueTwice) {
  LinkWord link;
  EXPECT_TRUE(link.end());
  EXPECT_FALSE(link.unlinked());
  std::set<Bits> seen{link.bits};
  const auto next = [&](LinkWord value) {
    EXPECT_TRUE(seen.insert(value.bits).second);
    link = value;
  };
  for (const std::uint32_t place : {0U, 1U, kMaxBreakers - 1}) {
    next(link.to_place(place));
    EXPECT_FALSE(link.end());
    EXPECT_EQ(link.place(), place);
    EXPECT_FALSE(link.unlinked());
    next(link.unlink());
    EXPECT_TRUE(link.unlinked());
    EXPECT_EQ(link.place(), place) << "who stands there finds its way on";
    next(link.to_where(LinkWord{}));
    EXPECT_TRUE(link.end());
    EXPECT_FALSE(link.unlinked()) << "linked anew";
  }
}

TEST(GroupRules, GiveBackWhatWasPutIn) {
  for (const std::uint32_t limit : {1U, 100U, kMaxBreakers}) {
    for (const std::int64_t idle : {std::int64_t{1}, std::int64_t{60'000}, kMaxDurationMs}) {
      const GroupRules rules = GroupRules::make(limit, idle);
      EXPECT_EQ(rules.limit(), limit);
      EXPECT_EQ(rules.idle_after_ms(), idle);
      EXPECT_NE(rules.bits, 0U) << "zero: not written yet";
    }
  }
}

TEST(ControlWord, OfABreakerThatLeavesItsPlaceIsNoCircuitsAndGoesOn) {
  const Control closed = Control::make({.state = CircuitState::closed}, 7, 41, 3);
  const Control retiring = closed.retired();
  EXPECT_TRUE(retiring.retiring());
  EXPECT_FALSE(retiring.gone());
  EXPECT_FALSE(retiring.plainly_closed());
  EXPECT_FALSE(retiring.in_closed_period(41));
  EXPECT_EQ(retiring.record(), 7U) << "nobody may take the record";
  EXPECT_TRUE(retiring.undecided().plainly_closed()) << "as who only looks sees it";
  EXPECT_TRUE(retiring.undecided().valid());
  EXPECT_EQ(closed.undecided(), closed);
  const Control back = retiring.taken_back();
  EXPECT_TRUE(back.plainly_closed());
  EXPECT_EQ(back.generation(), 41U) << "attempts in flight count";
  EXPECT_EQ(back.version(), 5U) << "never the same word twice";
  const Control gone = retiring.left();
  EXPECT_TRUE(gone.gone());
  EXPECT_FALSE(gone.retiring());
  EXPECT_FALSE(gone.plainly_closed());
  EXPECT_FALSE(gone.undecided().valid()) << "nothing can be seen of it";
  EXPECT_EQ(gone.record(), 0U);
  EXPECT_EQ(gone.generation(), 42U);
  EXPECT_FALSE(Control{}.gone()) << "a place that was never used";
}

}  // namespace
}  // namespace shmcb::core
