// SPDX-License-Identifier: BSD-3-Clause
// The bytes of a segment: the offsets that are the format, sizes for every capacity, and bounds of every access.
#include "shmcb/core/layout.hpp"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace shmcb::core {
namespace {

TEST(Layout, OfTheHeaderIsTheDocumentedOne) {
  EXPECT_EQ(offsetof(Header, magic), 0U);
  EXPECT_EQ(offsetof(Header, layout_major), 8U);
  EXPECT_EQ(offsetof(Header, layout_minor), 10U);
  EXPECT_EQ(offsetof(Header, byte_order), 12U);
  EXPECT_EQ(offsetof(Header, header_bytes), 16U);
  EXPECT_EQ(offsetof(Header, word_bits), 20U);
  EXPECT_EQ(offsetof(Header, fingerprint), 24U);
  EXPECT_EQ(offsetof(Header, features_compatible), 32U);
  EXPECT_EQ(offsetof(Header, features_read_only), 40U);
  EXPECT_EQ(offsetof(Header, features_incompatible), 48U);
  EXPECT_EQ(offsetof(Header, total_bytes), 56U);
  EXPECT_EQ(offsetof(Header, creation_id), 64U);
  EXPECT_EQ(offsetof(Header, boot_id), 80U);
  EXPECT_EQ(offsetof(Header, time_namespace), 96U);
  EXPECT_EQ(offsetof(Header, clock_id), 104U);
  EXPECT_EQ(offsetof(Header, development_build), 108U);
  EXPECT_EQ(offsetof(Header, epoch_us), 112U);
  EXPECT_EQ(offsetof(Header, created_wall_ns), 120U);
  EXPECT_EQ(offsetof(Header, breakers), 128U);
  EXPECT_EQ(offsetof(Header, records), 132U);
  EXPECT_EQ(offsetof(Header, participants), 136U);
  EXPECT_EQ(offsetof(Header, index_slots), 140U);
  EXPECT_EQ(offsetof(Header, ring_slots), 144U);
  EXPECT_EQ(offsetof(Header, participants_offset), 152U);
  EXPECT_EQ(offsetof(Header, index_offset), 160U);
  EXPECT_EQ(offsetof(Header, breakers_offset), 168U);
  EXPECT_EQ(offsetof(Header, records_offset), 176U);
  EXPECT_EQ(offsetof(Header, rings_offset), 184U);
  EXPECT_EQ(offsetof(Header, journal_offset), 192U);
  EXPECT_EQ(offsetof(Header, journal_bytes), 200U);
  EXPECT_EQ(offsetof(Header, creator_pid), 208U);
  EXPECT_EQ(offsetof(Header, reserved), 212U);
  EXPECT_EQ(offsetof(Header, checksum), 216U);
}

TEST(Layout, OfABreakerIsTheDocumentedOne) {
  using Cells = BreakerCells<StdEnv>;
  EXPECT_EQ(offsetof(Cells, control), 0U);
  EXPECT_EQ(offsetof(Cells, incarnation), 8U);
  EXPECT_EQ(offsetof(Cells, owner), 16U);
  EXPECT_EQ(offsetof(Cells, ring), 24U);
  EXPECT_EQ(offsetof(Cells, name_bytes), 32U);
  EXPECT_EQ(offsetof(Cells, name_hash), 40U);
  EXPECT_EQ(offsetof(Cells, name), 64U);
  EXPECT_EQ(offsetof(Cells, hint), 192U);
  EXPECT_EQ(offsetof(Cells, lean_mark), 200U);
  EXPECT_EQ(offsetof(Cells, lanes), 256U);
  using Participant = ParticipantEntry<StdEnv>;
  EXPECT_EQ(offsetof(Participant, incarnation), 0U);
  EXPECT_EQ(offsetof(Participant, process), 8U);
  EXPECT_EQ(offsetof(Participant, pid), 16U);
  EXPECT_EQ(offsetof(Participant, start_time), 24U);
  using Words = SegmentWords<StdEnv>;
  EXPECT_EQ(offsetof(Words, journal_next), 24U);
  EXPECT_EQ(offsetof(Words, journal_wake), 32U);
  EXPECT_EQ(offsetof(Words, note_next), 40U);
  EXPECT_EQ(sizeof(JournalCell<StdEnv>), 64U);
  EXPECT_EQ(sizeof(NoteCell<StdEnv>), 192U);
}

TEST(Layout, BeginsWithAMagicThatAHexDumpShows) {
  constexpr std::uint64_t kMagicWord = kMagic;
  std::array<char, 8> bytes{};
  std::memcpy(bytes.data(), &kMagicWord, bytes.size());
  if constexpr (std::endian::native == std::endian::little) {
    EXPECT_EQ((std::string_view{bytes.data(), bytes.size()}), "SHMCBSEG");
  }
}

// A change of the types or widths changes it: then the layout version is due, and this number.
TEST(Layout, HasTheFingerprintOfItsVersion) {
  EXPECT_EQ(kLayoutMajor, 1);
  EXPECT_EQ(layout_fingerprint(), 0xe9a4'c3b3'4022'09c3U);
}

TEST(Layout, HashesNamesByFnv1a) {
  EXPECT_EQ(fnv1a(""), 0xcbf2'9ce4'8422'2325U);
  EXPECT_EQ(fnv1a("a"), 0xaf63'dc4c'8601'ec8cU);
  EXPECT_EQ(fnv1a("foobar"), 0x8594'4171'f739'67e8U);
  EXPECT_EQ(fnv1a("bar", fnv1a("foo")), fnv1a("foobar"));
}

TEST(RingCapacity, IsTheSmallestPowerOfTwoWithASixteenthMoreThanTheWindowAndAtLeastSixteen) {
  for (std::uint32_t window = 1; window <= kMaxWindow; window += window < 70'000 ? 1 : 997) {
    const std::uint32_t capacity = ring_capacity(window);
    ASSERT_TRUE(std::has_single_bit(capacity)) << window;
    ASSERT_GE(capacity, kMinRing) << window;
    ASSERT_LE(capacity, kMaxRing) << window;
    ASSERT_GT(capacity, window);
    ASSERT_TRUE(window < kMinRing || capacity > window + window / 16) << window;
    ASSERT_TRUE(capacity == kMinRing || capacity / 2 <= window + window / 16) << window;
  }
  EXPECT_EQ(ring_capacity(15), 16U);
  EXPECT_EQ(ring_capacity(16), 32U);
  EXPECT_EQ(ring_capacity(kMaxWindow), kMaxRing);
}

TEST(RingWord, GivesBackItsRequestAndWhereItWasAssigned) {
  for (std::uint32_t capacity = kMinRing; capacity <= kMaxRing; capacity *= 2) {
    const RingWord request = RingWord::request(capacity);
    EXPECT_TRUE(request.valid());
    EXPECT_FALSE(request.assigned());
    EXPECT_EQ(request.capacity(), capacity);
    EXPECT_EQ(request.units(), capacity / kMinRing);
    const RingWord assigned = request.assigned_at(low_bits(40) - 1);
    EXPECT_TRUE(assigned.assigned());
    EXPECT_EQ(assigned.capacity(), capacity);
    EXPECT_EQ(assigned.first_unit(), low_bits(40) - 1);
  }
  EXPECT_FALSE(RingWord{}.valid()) << "zeroed memory asks for nothing";
  EXPECT_FALSE((RingWord{Bits{3} << 56U}.valid()));
  EXPECT_FALSE((RingWord{Bits{21} << 56U}.valid()));
}

TEST(ArenaWord, GivesBackTakerAndUnits) {
  EXPECT_FALSE(ArenaWord{}.has_taker());
  for (const std::uint32_t taker : {0U, 1U, kMaxBreakers - 1}) {
    for (const Bits units : {Bits{0}, Bits{1}, low_bits(40)}) {
      const ArenaWord word = ArenaWord::make(taker, units);
      EXPECT_TRUE(word.has_taker());
      EXPECT_EQ(word.taker(), taker);
      EXPECT_EQ(word.units(), units);
    }
  }
}

TEST(Geometry, LaysThePartsOutOneAfterTheOtherOnPagesOfTheirOwn) {
  for (const std::uint32_t breakers : {1U, 2U, 7U, 1024U, 100'000U, kMaxBreakers}) {
    for (const std::uint32_t participants : {1U, 3U, 1024U, kMaxParticipants}) {
      for (const std::uint64_t slots :
           {std::uint64_t{16}, std::uint64_t{17}, std::uint64_t{breakers} * 16, std::uint64_t{1} << 40U}) {
        const Geometry g = geometry_of(breakers, participants, slots, 64);
        EXPECT_EQ(g.participants_offset, kHeaderBytes);
        EXPECT_GE(g.index_offset, g.participants_offset + std::uint64_t{participants} * 32);
        EXPECT_GE(g.breakers_offset, g.index_offset + std::uint64_t{g.index_slots} * 8);
        EXPECT_GE(g.records_offset, g.breakers_offset + std::uint64_t{breakers} * sizeof(BreakerCells<StdEnv>));
        EXPECT_GE(g.rings_offset, g.records_offset + std::uint64_t{g.records} * sizeof(RecordCell<StdEnv>));
        EXPECT_GE(g.journal_offset, g.rings_offset + slots * 8);
        EXPECT_GE(g.total_bytes, g.journal_offset + std::uint64_t{64} * 64 + std::uint64_t{16} * 192);
        for (const std::uint64_t offset : {g.participants_offset, g.index_offset, g.breakers_offset, g.records_offset,
                                           g.rings_offset, g.journal_offset, g.total_bytes}) {
          EXPECT_EQ(offset % 4096, 0U);
        }
        EXPECT_TRUE(std::has_single_bit(g.index_slots));
        EXPECT_GE(g.index_slots, 2 * breakers) << "an empty slot ends every search";
        EXPECT_GE(g.records, 1 + breakers + 2 * participants);
      }
    }
  }
}

TEST(Geometry, OfTheDefaultsNeedsAtMostTwoKibibytesABreakerInAll) {
  EXPECT_LE(geometry_of(1024, 256, 1024 * 16).total_bytes, 1024U * 2048U);
}

TEST(Geometry, OfAHundredThousandBreakersFitsInto256Mebibytes) {
  EXPECT_LE(geometry_of(100'000, 256, 100'000 * 16).total_bytes, 256U << 20U);
}

class View : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kBreakers = 3;
  static constexpr std::uint32_t kParticipants = 2;
  const Geometry geometry = geometry_of(kBreakers, kParticipants, 64, 16);
  // Aligned as a mapping is.
  struct alignas(4096) Page {
    std::array<std::byte, 4096> bytes;
  };
  std::unique_ptr<Page[]> memory = std::make_unique<Page[]>(geometry.total_bytes / sizeof(Page));
  SegmentView<StdEnv> view{memory.get(), geometry};

  [[nodiscard]] std::uint64_t offset(const void* part) const {
    return static_cast<std::uint64_t>(static_cast<const std::byte*>(part) - memory[0].bytes.data());
  }
};

TEST_F(View, FindsThePartsWhereTheGeometrySays) {
  EXPECT_EQ(offset(&view.words()), kSegmentWordsOffset);
  EXPECT_EQ(offset(view.participant(1)), geometry.participants_offset + 32);
  EXPECT_EQ(offset(&view.index_slot(0)), geometry.index_offset);
  EXPECT_EQ(offset(view.breaker(2)), geometry.breakers_offset + 2 * sizeof(BreakerCells<StdEnv>));
  EXPECT_EQ(offset(view.record(1)), geometry.records_offset + sizeof(RecordCell<StdEnv>));
  EXPECT_EQ(offset(view.ring(RingWord::request(16).assigned_at(3))), geometry.rings_offset + 3 * 16 * 8);
}

TEST_F(View, AnswersNullBeyondTheGeometry) {
  for (const std::uint32_t beyond : {kBreakers, kBreakers + 1, ~0U})
    EXPECT_EQ(view.breaker(beyond), nullptr) << beyond;
  for (const std::uint32_t beyond : {kParticipants, ~0U})
    EXPECT_EQ(view.participant(beyond), nullptr) << beyond;
  for (const std::uint32_t beyond : {kNoRecord, geometry.records, ~0U})
    EXPECT_EQ(view.record(beyond), nullptr) << beyond;
  EXPECT_NE(view.record(geometry.records - 1), nullptr);
}

TEST_F(View, TakesAnyHashToASlotOfTheIndex) {
  for (const std::uint64_t hash : {std::uint64_t{0}, std::uint64_t{geometry.index_slots}, ~std::uint64_t{0}}) {
    EXPECT_GE(offset(&view.index_slot(hash)), geometry.index_offset);
    EXPECT_LT(offset(&view.index_slot(hash)), geometry.index_offset + std::uint64_t{geometry.index_slots} * 8);
  }
}

TEST_F(View, TakesAnyPositionToAnEntryOfTheJournal) {
  EXPECT_EQ(offset(&view.journal(0)), geometry.journal_offset);
  EXPECT_EQ(offset(&view.journal(3)), geometry.journal_offset + std::uint64_t{3} * 64);
  EXPECT_EQ(&view.journal(16 + 3), &view.journal(3));
  EXPECT_EQ(offset(&view.journal(~std::uint64_t{0})), geometry.journal_offset + std::uint64_t{15} * 64);
}

TEST_F(View, GivesOutARingOnlyWhereAllOfItLiesInTheArena) {
  EXPECT_NE(view.ring(RingWord::request(64).assigned_at(0)), nullptr);
  EXPECT_NE(view.ring(RingWord::request(32).assigned_at(2)), nullptr);
  EXPECT_EQ(view.ring(RingWord::request(32).assigned_at(3)), nullptr) << "the last slots would lie outside";
  EXPECT_EQ(view.ring(RingWord::request(16).assigned_at(4)), nullptr);
  EXPECT_EQ(view.ring(RingWord::request(16).assigned_at(low_bits(40))), nullptr);
  EXPECT_EQ(view.ring(RingWord::request(128).assigned_at(0)), nullptr);
  EXPECT_EQ(view.ring(RingWord::request(kMaxRing).assigned_at(low_bits(40))), nullptr);
  EXPECT_EQ(view.ring(RingWord::request(16)), nullptr) << "not assigned";
  EXPECT_EQ(view.ring(RingWord{}), nullptr);
  EXPECT_EQ(view.ring(RingWord{~Bits{0}}), nullptr);
  for (Bits log2 = 0; log2 < 128; ++log2) {
    const RingWord ring{(Bits{1} << 63U) | (log2 << 56U)};
    EXPECT_EQ(view.ring(ring) != nullptr, log2 >= 4 && log2 <= 6) << log2;
  }
}

}  // namespace
}  // namespace shmcb::core
