// SPDX-License-Identifier: BSD-3-Clause
// How much an operation may do: while others append beside it, and on words that no correct process wrote. Counted in
// accesses, never in time.
#include <functional>

#include <gtest/gtest.h>

#include "shmcb/core/registry.hpp"
#include "shmcb/shm_storage.hpp"
#include "support/test_segment.hpp"

namespace shmcb::test {
namespace {

constexpr auto kNoChance = []() noexcept { return 0U; };

/// Counts accesses, and lets others act in between.
struct Watched {
  static inline std::uint64_t steps = 0;
  static inline std::function<void()> meanwhile;
  static void step() {
    ++steps;
    if (meanwhile) meanwhile();
  }
};
using WatchedEnv = core::AtomicEnv<Watched>;

class BoundedWork : public ::testing::Test {
 protected:
  void open(std::uint32_t failures, std::uint32_t window) {
    made.emplace(SegmentOptions{.breakers = 1, .ring_slots = core::ring_capacity(window), .participants = 2});
    settings = {.failures = failures, .window = window};
    core::Registry<core::StdEnv> registry(made->segment().view(), made->segment().presence());
    bool created = false;
    ASSERT_EQ(registry.find_or_add("breaker", settings, 0, others, created), Errc::ok);
    view = made->segment().view().in_environment<WatchedEnv>();
    ASSERT_EQ(core::Registry<WatchedEnv>(view, made->segment().presence()).find("breaker", cell), Errc::ok);
    Watched::steps = 0;
  }
  void TearDown() override { Watched::meanwhile = nullptr; }

  void append_successes(std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) {
      ASSERT_EQ(others.record_allowed({.failure = false, .now_us = 1'000}, others_start, kNoChance).status,
                RecordStatus::counted);
    }
  }

  std::optional<TestSegment> made;
  Settings settings;
  core::SegmentView<WatchedEnv> view;
  core::BreakerCell<core::StdEnv> others;  // acts as another process
  core::LocalNotes others_start;
  core::BreakerCell<WatchedEnv> cell;
  core::LocalNotes start;
};

TEST_F(BoundedWork, AFailureThatOthersPassWhileItCountsGoesOnFromThere) {
  constexpr std::uint32_t kWindow = 2'000;
  open(2, kWindow);
  append_successes(kWindow);
  bool inside = false;
  Watched::meanwhile = [&] {
    if (inside || Watched::steps % 50 != 0) return;
    inside = true;
    append_successes(1);
    inside = false;
  };
  const core::CellRecord recorded = cell.record_allowed({.failure = true, .now_us = 1'000}, start, kNoChance);
  Watched::meanwhile = nullptr;
  EXPECT_EQ(recorded.error, Errc::ok);
  EXPECT_EQ(recorded.status, RecordStatus::counted);
  EXPECT_LT(Watched::steps, 2 * kWindow) << "counted more than once";
}

TEST_F(BoundedWork, ALongCountInAWindowJustBelowAPowerOfTwoIsNotOvertaken) {
  constexpr std::uint32_t kWindow = 1'023;
  open(2, kWindow);
  append_successes(2 * kWindow);
  bool inside = false;
  Watched::meanwhile = [&] {
    if (inside || Watched::steps % 50 != 0) return;
    inside = true;
    append_successes(1);
    inside = false;
  };
  core::CellState state;
  EXPECT_EQ(cell.snapshot(state), Errc::ok);
  EXPECT_LT(Watched::steps, 2 * kWindow) << "began again";
  EXPECT_EQ(state.successes, kWindow);
}

TEST_F(BoundedWork, OnARingThatNoProcessWroteIsSpentAndThenAnError) {
  open(2, core::kMaxWindow);
  // As if every slot had been written, but the oldest of the window, a snapshot's and a failure's, in another lap.
  auto& cells = *made->segment().view().breaker(0);
  const core::RingWord ring{core::StdEnv::load(cells.ring, core::StdEnv::relaxed)};
  auto* slots = made->segment().view().ring(ring);
  const std::uint32_t oldest = 8 + ring.capacity() - core::kMaxWindow;
  for (std::uint32_t i = 0; i < ring.capacity(); ++i) {
    const std::uint64_t lap = i < 8 ? 2 : i == oldest || i == oldest + 1 ? 3 : 1;
    core::StdEnv::store(slots[i],
                        core::Slot<core::StdWidths>::make(lap, 0, {.failure = false, .trip = false}, 1'000).bits,
                        core::StdEnv::relaxed);
  }
  core::StdEnv::store(cells.hint, 2 * std::uint64_t{ring.capacity()}, core::StdEnv::relaxed);
  core::CellState state;
  constexpr std::uint64_t kMost = std::uint64_t{1} << 27U;
  EXPECT_EQ(cell.snapshot(state), Errc::corrupt);
  EXPECT_LT(Watched::steps, kMost);
  Watched::steps = 0;
  EXPECT_EQ(cell.record_allowed({.failure = true, .now_us = 1'000}, start, kNoChance).error, Errc::corrupt);
  EXPECT_LT(Watched::steps, kMost);
}

TEST_F(BoundedWork, WherePositionsEndIsLittle) {
  open(2, 2);
  auto& cells = *made->segment().view().breaker(0);
  const core::RingWord ring{core::StdEnv::load(cells.ring, core::StdEnv::relaxed)};
  auto* slots = made->segment().view().ring(ring);
  ASSERT_EQ(ring.capacity(), 16U);
  // A ring whose tail is 13 in front of the last position there is.
  for (std::uint32_t i = 0; i < 16; ++i) {
    const std::uint64_t lap = i < 3 ? 0x1FF : 0x1FE;
    core::StdEnv::store(slots[i], core::Slot<core::StdWidths>::make(lap, 0, {}, 1'000).bits, core::StdEnv::relaxed);
  }
  core::StdEnv::store(cells.hint, ~std::uint64_t{0} - 19, core::StdEnv::relaxed);
  constexpr std::uint64_t kLittle = 1'000'000;
  core::CellState state;
  (void)cell.snapshot(state);
  EXPECT_LT(Watched::steps, kLittle);
  Watched::steps = 0;
  (void)cell.record_allowed({.failure = true, .now_us = 1'000}, start, kNoChance);
  EXPECT_LT(Watched::steps, kLittle);
  for (const std::uint64_t from : {~std::uint64_t{0}, ~std::uint64_t{0} - 8, std::uint64_t{1}}) {
    start.start_from(from);
    Watched::steps = 0;
    (void)cell.count_plainly<true>(0, 1'000, start);
    (void)cell.count_plainly<false>(0, 1'000, start);
    EXPECT_LT(Watched::steps, kLittle);
  }
}

// A snapshot that copied the record of one Closed period and counts when another has begun shows one of the two.
TEST_F(BoundedWork, ASnapshotMixesNoTwoPeriods) {
  for (std::uint64_t after = 1; after < 200; ++after) {
    open(5, 10);
    for (int i = 0; i < 4; ++i)
      (void)others.record_allowed({.failure = true, .now_us = 1'000}, others_start, kNoChance);
    Watched::steps = 0;
    Watched::meanwhile = [&] {
      if (Watched::steps != after) return;
      Watched::meanwhile = nullptr;
      ASSERT_EQ(others.force(CircuitState::closed, 2'000, kNoChance).error, Errc::ok);
      for (int i = 0; i < 4; ++i)
        (void)others.record_allowed({.period = 1, .failure = true, .now_us = 2'000}, others_start, kNoChance);
    };
    core::CellState state;
    ASSERT_EQ(cell.snapshot(state), Errc::ok);
    Watched::meanwhile = nullptr;
    ASSERT_LE(state.failures, 4U) << "forced at step " << after;
    if (Watched::steps < after) break;
  }
}

TEST(Place, WithALargerPieceThanIsWantedServesASmallerWindow) {
  const TestSegment made(SegmentOptions{.breakers = 2, .ring_slots = 64, .participants = 2});
  const auto& view = made.segment().view();
  // What a taker leaves that gave up its place after it had got a piece of 32 slots.
  using core::StdEnv;
  StdEnv::store(view.words().arena, core::ArenaWord::make(0, 2).bits, StdEnv::relaxed);
  StdEnv::store(view.breaker(0)->ring, core::RingWord::request(32).assigned_at(0).bits, StdEnv::relaxed);
  auto storage =
      ShmStorage<>::open(made.segment(), {.name = "small", .failure_threshold = {.failures = 2, .window = 10}});
  ASSERT_TRUE(storage) << storage.error().message;
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(storage->record_outcome(storage->admit().token, Outcome::success).status, RecordStatus::counted);
  }
  EXPECT_EQ(storage->snapshot().record.successes, 10U);
  EXPECT_EQ(storage->force_state(CircuitState::open).error, Errc::ok);
}

}  // namespace
}  // namespace shmcb::test

namespace shmcb::test {
namespace {

TEST_F(BoundedWork, OfOneLookAtACopyWithABrokenRingIsLittle) {
  open(2, 100);
  core::StdEnv::store(made->segment().view().breaker(0)->hint, 12'345, core::StdEnv::relaxed);
  Counters counters;
  core::CellState state;
  EXPECT_EQ(cell.counters(0, counters, 1), Errc::corrupt);
  EXPECT_EQ(cell.snapshot(state, 1), Errc::corrupt);
  EXPECT_LT(Watched::steps, 1'000U);
  Watched::steps = 0;
  EXPECT_EQ(cell.counters(0, counters), Errc::corrupt) << "and of any number of looks ends";
  EXPECT_LT(Watched::steps, 50'000U) << "soon, where nothing moves";
}

TEST_F(BoundedWork, OnAZeroedBreakerIsLittle) {
  open(2, 10);
  auto& cells = *made->segment().view().breaker(0);
  core::StdEnv::store(cells.hint, 0, core::StdEnv::relaxed);
  constexpr std::uint64_t kMost = 50'000;
  EXPECT_EQ(cell.record_allowed({.failure = false, .now_us = 1'000}, start, kNoChance).error, Errc::corrupt);
  EXPECT_LT(Watched::steps, kMost);
  Watched::steps = 0;
  core::CellState state;
  EXPECT_EQ(cell.snapshot(state), Errc::corrupt);
  EXPECT_LT(Watched::steps, 4 * kMost);
  Watched::steps = 0;
  EXPECT_EQ(cell.force(CircuitState::open, 1'000, kNoChance).error, Errc::corrupt);
  EXPECT_LT(Watched::steps, kMost);
}

}  // namespace
}  // namespace shmcb::test

namespace shmcb::test {
namespace {

TEST_F(BoundedWork, OnACircleInTheIndexIsLittle) {
  open(2, 10);
  const auto& segment_view = made->segment().view();
  const std::uint64_t bucket = core::HashName{}("another");
  core::StdEnv::store(segment_view.index_slot(bucket), core::LinkWord{}.to_place(0).bits, core::StdEnv::relaxed);
  core::StdEnv::store(segment_view.breaker(0)->next, core::LinkWord{}.to_place(0).bits, core::StdEnv::relaxed);
  core::Registry<WatchedEnv> registry(view, made->segment().presence());
  EXPECT_EQ(registry.find("another", cell), Errc::corrupt);
  bool created = false;
  EXPECT_EQ(registry.find_or_add("another", settings, 0, cell, created), Errc::corrupt);
  // Of places that are being taken out, too.
  core::StdEnv::store(segment_view.breaker(0)->next, core::LinkWord{}.to_place(0).unlink().bits, core::StdEnv::relaxed);
  EXPECT_EQ(registry.find("another", cell), Errc::corrupt);
  EXPECT_LT(Watched::steps, 100U);
}

}  // namespace
}  // namespace shmcb::test
