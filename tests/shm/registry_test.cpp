// SPDX-License-Identifier: BSD-3-Clause
// Names and places: who registers at once, who is killed on the way, and what is full when.
#include "shmcb/core/registry.hpp"

#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shmcb/shm_storage.hpp"
#include "support/kill_points.hpp"
#include "support/kill_step.hpp"
#include "support/processes.hpp"
#include "support/test_segment.hpp"
#include "support/threads.hpp"

namespace shmcb::test {
namespace {

using core::ArenaWord;
using core::BreakerCell;
using core::LinkWord;
using core::OwnerWord;
using core::Registry;
using core::RingWord;
using core::StdEnv;
using ::testing::HasSubstr;

struct OneSlotForAll {
  [[nodiscard]] std::uint64_t operator()(std::string_view) const noexcept { return 0; }
};
struct LastSlotForAll {
  [[nodiscard]] std::uint64_t operator()(std::string_view) const noexcept { return ~std::uint64_t{0}; }
};

template <class Env = StdEnv, class Hash = core::HashName>
class Names {
 public:
  explicit Names(const Segment& segment)
      : segment_(segment), view_(segment.view().in_environment<Env>()), registry_(view_, segment.presence()) {}

  struct Added {
    Errc error = Errc::ok;
    bool created = false;
    std::uint32_t index = 0;
    friend bool operator==(const Added&, const Added&) = default;
    friend std::ostream& operator<<(std::ostream& out, const Added& a) {
      return out << to_string(a.error) << (a.created ? " created " : " found ") << a.index;
    }
  };
  [[nodiscard]] Added add(std::string_view name, std::uint32_t window = 10) {
    Settings settings;
    settings.window = window;
    settings.failures = window < 5 ? window : 5;
    BreakerCell<Env> cell;
    Added added;
    added.error = registry_.find_or_add(name, settings, 0, cell, added.created);
    if (added.error == Errc::ok) added.index = cell.index();
    return added;
  }
  [[nodiscard]] Errc find(std::string_view name) const {
    BreakerCell<Env> cell;
    return registry_.find(name, cell);
  }
  /// Whether the breaker works: passes through every state and counts.
  [[nodiscard]] Errc use(std::string_view name) const {
    if (const Errc error = find(name); error != Errc::ok) return error;
    auto storage = ShmStorage<>::open(segment_, {.name = std::string{name}}, OnMismatch::adopt);
    if (!storage) return storage.error().code;
    for (const CircuitState state : {CircuitState::open, CircuitState::half_open, CircuitState::closed}) {
      if (const Errc error = storage->force_state(state).error; error != Errc::ok) return error;
    }
    for (int i = 0; i < 20; ++i) {
      const RecordResult recorded = storage->record_outcome(storage->admit().token, Outcome::success);
      if (recorded.error != Errc::ok) return recorded.error;
      if (recorded.status != RecordStatus::counted) return Errc::corrupt;
    }
    return Errc::ok;
  }

 private:
  Segment segment_;
  core::SegmentView<Env> view_;
  Registry<Env, Hash> registry_;
};

/// How many of the places are published.
[[nodiscard]] std::uint32_t published(const Segment& segment) {
  const Registry<StdEnv> registry(segment.view(), segment.presence());
  std::uint32_t count = 0;
  for (std::uint32_t i = 0; i < segment.geometry().breakers; ++i)
    count += registry.published(i) ? 1U : 0U;
  return count;
}

/// Registers names until it is full: every place must be had, and every breaker must work.
void expect_every_place_is_usable(const Segment& segment, std::uint32_t window = 10) {
  Names<> names(segment);
  const std::uint32_t places = segment.geometry().breakers;
  std::vector<std::string> added;
  while (published(segment) < places) {
    added.push_back("filler-" + std::to_string(added.size()));
    ASSERT_LE(added.size(), places);
    const auto result = names.add(added.back(), window);
    ASSERT_EQ(to_string(result.error), "ok") << added.size() << " of " << places;
    ASSERT_TRUE(result.created);
  }
  EXPECT_EQ(names.add("one-too-many").error, Errc::registry_full);
  for (const std::string& name : added)
    ASSERT_EQ(to_string(names.use(name)), "ok") << name;
}

// ---- finding and adding
// ----------------------------------------------------------------------------------------------------

TEST(RegistryOfNames, FindsWhatWasAddedAndNothingElse) {
  const TestSegment made({.breakers = 8, .participants = 2});
  Names<> names(made.segment());
  EXPECT_EQ(names.find("a"), Errc::breaker_not_found);
  const auto a = names.add("a");
  EXPECT_EQ(a, (Names<>::Added{.created = true, .index = 0}));
  EXPECT_EQ(names.add("b"), (Names<>::Added{.created = true, .index = 1}));
  EXPECT_EQ(names.add("a"), (Names<>::Added{.index = 0})) << "found, not created";
  EXPECT_EQ(names.find("a"), Errc::ok);
  EXPECT_EQ(names.find("A"), Errc::breaker_not_found);
  EXPECT_EQ(names.find("aa"), Errc::breaker_not_found);
  EXPECT_EQ(names.find(""), Errc::breaker_not_found);
  EXPECT_EQ(published(made.segment()), 2U);
}

TEST(RegistryOfNames, IsTheSameForEveryAttachment) {
  const TestSegment made({.breakers = 8, .participants = 4});
  Names<> names(made.segment());
  ASSERT_TRUE(names.add("a").created);
  expect_success_in_child([&] {
    const Segment other = made.attach();
    Names<> theirs(other);
    EXPECT_EQ(theirs.add("a"), (Names<>::Added{.index = 0}));
    EXPECT_EQ(theirs.add("b"), (Names<>::Added{.created = true, .index = 1}));
  });
  EXPECT_EQ(names.add("b"), (Names<>::Added{.index = 1}));
}

TEST(RegistryOfNames, TellsNamesApartWhoseHashesCollide) {
  const auto expect_apart = [](auto names) {
    for (std::uint32_t i = 0; i < 6; ++i) {
      const auto added = names.add("name-" + std::to_string(i));
      EXPECT_TRUE(added.created);
      EXPECT_EQ(added.index, i);
    }
    for (std::uint32_t i = 0; i < 6; ++i)
      EXPECT_EQ(names.add("name-" + std::to_string(i)).index, i);
    EXPECT_EQ(names.find("name-6"), Errc::breaker_not_found);
    EXPECT_EQ(names.find("name-"), Errc::breaker_not_found);
    EXPECT_EQ(names.find("name-00"), Errc::breaker_not_found);
  };
  const TestSegment first({.breakers = 6, .participants = 2});
  expect_apart(Names<StdEnv, OneSlotForAll>(first.segment()));
  const TestSegment wrapping({.breakers = 6, .participants = 2});
  expect_apart(Names<StdEnv, LastSlotForAll>(wrapping.segment()));
}

TEST(RegistryOfNames, KeepsNamesOfEveryLengthUpTo128Bytes) {
  const TestSegment made({.breakers = 128, .participants = 2});
  Names<> names(made.segment());
  for (std::size_t length = 1; length <= core::kMaxNameBytes; ++length)
    ASSERT_TRUE(names.add(std::string(length, 'n')).created) << length;
  for (std::size_t length = 1; length <= core::kMaxNameBytes; ++length) {
    const auto found = names.add(std::string(length, 'n'));
    EXPECT_EQ(found, (Names<>::Added{.index = static_cast<std::uint32_t>(length - 1)}));
    std::array<char, core::kMaxNameBytes> buffer{};
    EXPECT_EQ(core::name_of<StdEnv>(*made->view().breaker(found.index), buffer.data()), std::string(length, 'n'));
  }
}

TEST(RegistryOfNames, RefusesNamesLongerThan128BytesBeforeAnythingIsWritten) {
  const TestSegment made({.breakers = 2, .participants = 2});
  const auto storage = ShmStorage<>::open(made.segment(), {.name = std::string(129, 'n')});
  ASSERT_FALSE(storage);
  EXPECT_EQ(storage.error().code, Errc::invalid_config);
  EXPECT_THAT(storage.error().message, HasSubstr("name is 'nnn"));
  EXPECT_THAT(storage.error().message, HasSubstr("(129 bytes); it must be at most 128 bytes"));
  EXPECT_EQ(StdEnv::load(made->view().words().breaker_cursor, StdEnv::relaxed), 0U);
  EXPECT_TRUE(ShmStorage<>::open(made.segment(), {.name = std::string(128, 'n')}));
}

TEST(RegistryOfNames, RefusesWindowsThatNoRingHolds) {
  const TestSegment made({.breakers = 2, .participants = 2});
  const auto storage =
      ShmStorage<>::open(made.segment(), {.name = "b", .failure_threshold = {.window = core::kMaxWindow + 1}});
  ASSERT_FALSE(storage);
  EXPECT_EQ(storage.error().code, Errc::invalid_config);
  EXPECT_THAT(storage.error().message,
              HasSubstr("failure_threshold.window is " + std::to_string(core::kMaxWindow + 1)));
}

// ---- full
// ------------------------------------------------------------------------------------------------------------------

/// Every word of the registry, to see that nothing was written.
[[nodiscard]] std::vector<std::uint64_t> words_of(const Segment& segment) {
  std::vector<std::uint64_t> words;
  const auto& view = segment.view();
  const auto add = [&words](const StdEnv::Word& word) { words.push_back(StdEnv::load(word, StdEnv::relaxed)); };
  add(view.words().breaker_cursor);
  add(view.words().arena);
  for (std::uint32_t i = 0; i < segment.geometry().index_slots; ++i)
    add(view.index_slot(i));
  for (std::uint32_t i = 0; i < segment.geometry().breakers; ++i) {
    const auto& cells = *view.breaker(i);
    for (const auto* word :
         {&cells.control, &cells.owner, &cells.ring, &cells.name_bytes, &cells.name_hash, &cells.next, &cells.hint})
      add(*word);
    for (const auto& word : cells.name)
      add(word);
  }
  for (std::uint32_t i = 1; i < segment.geometry().records; ++i)
    add(view.record(i)->owner);
  return words;
}

TEST(FullRegistry, SaysSoBeforeAnythingIsWrittenAndStillFindsWhatIsThere) {
  const TestSegment made({.breakers = 3, .participants = 2});
  for (const char* name : {"a", "b", "c"})
    ASSERT_TRUE(ShmStorage<>::open(made.segment(), {.name = name}));
  const std::vector<std::uint64_t> before = words_of(made.segment());
  for (int i = 0; i < 3; ++i) {
    const auto refused = ShmStorage<>::open(made.segment(), {.name = "d"});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Errc::registry_full);
    EXPECT_THAT(refused.error().message,
                HasSubstr("breaker 'd' cannot be registered in segment '" + *made.options().name + "'"));
    EXPECT_THAT(refused.error().message, HasSubstr("all 3 places are taken"));
  }
  EXPECT_EQ(words_of(made.segment()), before);
  for (const char* name : {"a", "b", "c"})
    EXPECT_TRUE(ShmStorage<>::open(made.segment(), {.name = name}));
}

TEST(FullArena, SaysSoAndLeavesThePlaceForASmallerWindow) {
  const TestSegment made({.breakers = 4, .ring_slots = 64, .participants = 2});
  Names<> names(made.segment());
  EXPECT_EQ(names.add("too-large", 64).error, Errc::ring_full) << "needs 128 of 64";
  EXPECT_EQ(names.add("fits", 30).error, Errc::ok) << "32 of 64";
  EXPECT_EQ(names.add("too-large", 31).error, Errc::ring_full) << "64 of the 32 that are left";
  EXPECT_EQ(names.find("too-large"), Errc::breaker_not_found);
  EXPECT_EQ(names.add("small", 15).error, Errc::ok);
  EXPECT_EQ(names.add("small-2", 15).error, Errc::ok);
  EXPECT_EQ(names.add("small-3", 1).error, Errc::ring_full) << "a place is free, the arena is not";
  for (const char* name : {"fits", "small", "small-2"})
    EXPECT_EQ(to_string(names.use(name)), "ok") << name;
  const auto refused = ShmStorage<>::open(made.segment(), {.name = "another"});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::ring_full);
  EXPECT_THAT(refused.error().message, HasSubstr("failure_threshold.window is 10 and needs 16 ring slots"));
  EXPECT_THAT(refused.error().message, HasSubstr("segment's 64"));
}

TEST(FullArena, OfALargeWindowHasRoomForExactlyThat) {
  const TestSegment made({.breakers = 2, .ring_slots = core::kMaxRing, .participants = 2});
  Names<> names(made.segment());
  ASSERT_EQ(names.add("largest", core::kMaxWindow).error, Errc::ok);
  EXPECT_EQ(to_string(names.use("largest")), "ok");
  EXPECT_EQ(names.add("small", 10).error, Errc::ring_full);
}

TEST(FullArena, GivesEveryBreakerSlotsOfItsOwn) {
  const TestSegment made({.breakers = 5, .ring_slots = 16 + 32 + 64 + 16 + 128, .participants = 2});
  Names<> names(made.segment());
  std::vector<std::pair<std::uint64_t, std::uint64_t>> pieces;
  for (const std::uint32_t window : {10U, 20U, 40U, 15U, 100U}) {
    const auto added = names.add("w" + std::to_string(window), window);
    ASSERT_EQ(added.error, Errc::ok) << window;
    const RingWord ring{StdEnv::load(made->view().breaker(added.index)->ring, StdEnv::relaxed)};
    EXPECT_EQ(ring.capacity(), core::ring_capacity(window));
    pieces.emplace_back(ring.first_unit(), ring.first_unit() + ring.units());
  }
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      EXPECT_TRUE(pieces[i].first >= pieces[j].second || pieces[j].first >= pieces[i].second) << i << " " << j;
    }
  }
}

// ---- at once
// ---------------------------------------------------------------------------------------------------------------

/// Lets others go first at every step, so that they meet in the middle of things also on a machine with few processors.
struct YieldStep {
  static void step() noexcept { ::sched_yield(); }
};
using YieldEnv = core::AtomicEnv<YieldStep>;

/// `processes` run `work(process, round)` together, round after round.
template <class Work>
void run_rounds(std::uint32_t processes, int rounds, const SharedBarrier& barrier, Work work) {
  std::vector<Child> children;
  for (std::uint32_t p = 0; p < processes; ++p) {
    children.push_back(fork_child([&, p]() -> int {
      for (int round = 0; round < rounds; ++round) {
        if (!barrier.arrive_and_wait(Watchdog{20'000})) return 1;
        work(p, round);
        if (::testing::Test::HasFailure()) return Child::kFailedExpectation;
      }
      return 0;
    }));
  }
  for (Child& child : children)
    EXPECT_EQ(child.wait(), exited(0));
}

TEST(AtOnce, ProcessesThatRegisterTheSameNameGetOneBreaker) {
  constexpr std::uint32_t kProcesses = 4;
  constexpr int kRounds = 300;
  const TestSegment made({.breakers = kRounds + kProcesses, .participants = 8});
  SharedArea<std::array<std::atomic<std::uint32_t>, kRounds>> creators;
  SharedArea<std::array<std::atomic<std::uint32_t>, kRounds>> indices;
  const SharedBarrier barrier(kProcesses);
  run_rounds(kProcesses, kRounds, barrier, [&](std::uint32_t, int round) {
    Names<YieldEnv> names(made.segment());
    const auto added = names.add("round-" + std::to_string(round));
    ASSERT_EQ(to_string(added.error), "ok");
    const auto r = static_cast<std::size_t>(round);
    if (added.created) ++(*creators)[r];
    std::uint32_t none = 0;
    if (!(*indices)[r].compare_exchange_strong(none, added.index + 1)) {
      EXPECT_EQ(none, added.index + 1);
    }
  });
  for (const auto& count : *creators)
    EXPECT_EQ(count, 1U);
  EXPECT_EQ(published(made.segment()), static_cast<std::uint32_t>(kRounds));
  expect_every_place_is_usable(made.segment());
}

TEST(AtOnce, ProcessesThatRegisterTheSameNameInTheLastPlaceAllGetIt) {
  constexpr std::uint32_t kProcesses = 4;
  constexpr int kRounds = 200;
  std::vector<TestSegment> segments;
  for (int i = 0; i < kRounds; ++i)
    segments.emplace_back(SegmentOptions{.breakers = 1, .participants = 8});
  const SharedBarrier barrier(kProcesses);
  run_rounds(kProcesses, kRounds, barrier, [&](std::uint32_t, int round) {
    Names<YieldEnv> names(segments[static_cast<std::size_t>(round)].segment());
    ASSERT_EQ(to_string(names.add("the-only-one").error), "ok") << "round " << round;
  });
}

TEST(AtOnce, ProcessesThatRegisterDifferentNamesFillEveryPlace) {
  constexpr std::uint32_t kProcesses = 4;
  constexpr int kRounds = 100;
  const TestSegment made({.breakers = kProcesses * kRounds, .participants = 8});
  SharedArea<std::array<std::atomic<bool>, std::size_t{kProcesses} * kRounds>> taken;
  const SharedBarrier barrier(kProcesses);
  run_rounds(kProcesses, kRounds, barrier, [&](std::uint32_t process, int round) {
    Names<YieldEnv> names(made.segment());
    const auto added = names.add("process-" + std::to_string(process) + "-round-" + std::to_string(round));
    ASSERT_EQ(to_string(added.error), "ok") << "round " << round;
    EXPECT_TRUE(added.created);
    EXPECT_FALSE((*taken)[added.index].exchange(true)) << "a place of two breakers";
  });
  EXPECT_EQ(published(made.segment()), kProcesses * kRounds);
}

TEST(AtOnce, ProcessesThatStartWithTheSameNamesFillASegmentThatJustHoldsThem) {
  constexpr std::uint32_t kProcesses = 4;
  constexpr std::uint32_t kNames = 8;
  constexpr int kRounds = 60;
  std::vector<TestSegment> segments;
  for (int i = 0; i < kRounds; ++i)
    segments.emplace_back(SegmentOptions{.breakers = kNames, .participants = 8});
  const SharedBarrier barrier(kProcesses);
  run_rounds(kProcesses, kRounds, barrier, [&](std::uint32_t process, int round) {
    Names<YieldEnv> names(segments[static_cast<std::size_t>(round)].segment());
    for (std::uint32_t i = 0; i < kNames; ++i) {
      // Every second process goes through them backwards, so that different names are on their way at one time.
      const std::uint32_t n = process % 2 == 0 ? i : kNames - 1 - i;
      ASSERT_EQ(to_string(names.add("name-" + std::to_string(n)).error), "ok") << "round " << round;
    }
  });
  for (const TestSegment& made : segments)
    ASSERT_EQ(published(made.segment()), kNames);
}

TEST(AtOnce, ThreadsThatRegisterTheSameNamesGetOneBreakerEach) {
  const TestSegment made({.breakers = 40, .participants = 2});
  std::atomic<int> created{0};
  run_threads(4, [&](std::size_t) {
    Names<> names(made.segment());
    for (int i = 0; i < 40; ++i) {
      const auto added = names.add("name-" + std::to_string(i));
      EXPECT_EQ(to_string(added.error), "ok") << i;
      created += added.created ? 1 : 0;
    }
  });
  EXPECT_EQ(created, 40);
}

// ---- takers that died
// ------------------------------------------------------------------------------------------------------

/// What a taker of place 0 leaves when it dies, written by hand: everything up to a point.
class DeadTaker : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kRecord = 5;
  const TestSegment made{{.breakers = 3, .participants = 4}};
  const OwnerWord dead = OwnerWord::make(3, 77, 1);  // entry 3 was never taken
  core::BreakerCells<StdEnv>& cells = *made->view().breaker(0);

  static void set(StdEnv::Word& word, std::uint64_t value) { StdEnv::store(word, value, StdEnv::relaxed); }

  void take_place() { set(cells.owner, dead.bits); }
  void request_ring(std::uint32_t capacity = 16) { set(cells.ring, RingWord::request(capacity).bits); }
  void take_arena(std::uint32_t units = 1) { set(made->view().words().arena, ArenaWord::make(0, units).bits); }
  void assign_ring(std::uint32_t capacity = 16) { set(cells.ring, RingWord::request(capacity).assigned_at(0).bits); }
  void take_record() { set(made->view().record(kRecord)->owner, dead.bits); }
  void fill(std::string_view name) {
    core::Record record;
    record.window_begin = 16;
    core::RecordPool<StdEnv>(made->view(), made->presence()).fill(kRecord, 0, record);
    set(cells.name_bytes, name.size());
    set(cells.name_hash, core::HashName{}(name));
    for (std::size_t i = 0; i * 8 < name.size(); ++i) {
      std::uint64_t word = 0;
      std::memcpy(&word, name.data() + i * 8, std::min<std::size_t>(8, name.size() - i * 8));
      set(cells.name[i], word);
    }
    set(cells.hint, 16);
    set(cells.control, core::ControlWord<StdEnv::Widths>::make({CircuitState::closed}, kRecord, 0, 0).bits);
  }
  void publish(std::string_view name) {
    const std::uint64_t hash = core::HashName{}(name);
    set(made->view().index_slot(hash), LinkWord{}.to_place(0).bits);
  }
  /// Every record is somebody's who can use it: free, kept by us, or a breaker's.
  void expect_no_lost_record() {
    std::uint32_t usable = 0;
    core::RecordPool<StdEnv> pool(made->view(), made->presence());
    Errc error = Errc::ok;
    while (pool.claim(error) != 0)
      ++usable;
    EXPECT_EQ(usable, made->geometry().records - 1 - published(made.segment()));
  }
};

TEST_F(DeadTaker, OfAPlaceLosesNothing) {
  ASSERT_TRUE(made->presence().is_dead(dead));
  take_place();
  expect_every_place_is_usable(made.segment());
  expect_no_lost_record();
}

TEST_F(DeadTaker, ThatHadAskedForARingLosesNothing) {
  take_place();
  request_ring();
  expect_every_place_is_usable(made.segment());
  expect_no_lost_record();
}

TEST_F(DeadTaker, ThatHadAskedForALargeRingDoesNotKeepAskingForIt) {
  take_place();
  request_ring(core::kMaxRing);
  expect_every_place_is_usable(made.segment());
}

TEST_F(DeadTaker, ThatHadTakenAPieceOfTheArenaGetsItWrittenByTheNextOne) {
  take_place();
  request_ring();
  take_arena();
  Names<> names(made.segment());
  ASSERT_TRUE(names.add("next").created);
  const RingWord ring{StdEnv::load(cells.ring, StdEnv::relaxed)};
  EXPECT_TRUE(ring.assigned());
  EXPECT_EQ(ring.first_unit(), 0U);
  expect_every_place_is_usable(made.segment());
  EXPECT_EQ((ArenaWord{StdEnv::load(made->view().words().arena, StdEnv::relaxed)}.units()), 3U) << "no piece is lost";
  expect_no_lost_record();
}

TEST_F(DeadTaker, ThatHadARingLosesNothing) {
  take_place();
  take_arena();
  assign_ring();
  expect_every_place_is_usable(made.segment());
  EXPECT_EQ((ArenaWord{StdEnv::load(made->view().words().arena, StdEnv::relaxed)}.units()), 3U) << "no piece is lost";
  expect_no_lost_record();
}

TEST_F(DeadTaker, ThatHadARecordLosesNothing) {
  take_place();
  take_arena();
  assign_ring();
  take_record();
  expect_every_place_is_usable(made.segment());
  expect_no_lost_record();
}

TEST_F(DeadTaker, ThatHadFilledEverythingLosesNothingAndItsNameIsFree) {
  take_place();
  take_arena();
  assign_ring();
  take_record();
  fill("victim");
  Names<> names(made.segment());
  EXPECT_EQ(names.find("victim"), Errc::breaker_not_found);
  EXPECT_TRUE(names.add("victim").created);
  expect_every_place_is_usable(made.segment());
  EXPECT_EQ(to_string(names.use("victim")), "ok");
  expect_no_lost_record();
}

TEST_F(DeadTaker, ThatHadPublishedItsNameKeepsItsPlace) {
  take_place();
  take_arena();
  assign_ring();
  take_record();
  fill("victim");
  publish("victim");
  Names<> names(made.segment());
  EXPECT_EQ(names.add("victim"), (Names<>::Added{.index = 0}));
  EXPECT_EQ(published(made.segment()), 1U);
  expect_every_place_is_usable(made.segment());
  EXPECT_EQ(names.add("victim"), (Names<>::Added{.index = 0}));
  EXPECT_EQ(to_string(names.use("victim")), "ok");
  expect_no_lost_record();
}

struct OvertakingStep {
  static inline int left = 0;
  static inline std::function<void()> overtaker{};
  static void step() {
    if (left > 0 && --left == 0) overtaker();
  }
};
using OvertakingEnv = core::AtomicEnv<OvertakingStep>;

TEST(AtOnce, OneThatIsOvertakenByTheSameNameFindsItAlsoInTheLastPlace) {
  // Once the place is the last one, once the piece of the arena is.
  for (const std::uint32_t places : {1U, 4U}) {
    bool overtaken = true;
    int step = 0;
    while (overtaken) {
      ASSERT_LT(++step, 2'000);
      const TestSegment made({.breakers = places, .ring_slots = 16, .participants = 4});
      const Segment other = made.attach();
      overtaken = false;
      // From some step on the other one finds the last place in preparation, and has no luck.
      OvertakingStep::overtaker = [&] { overtaken = Names<>(other).add("the-only-one").error == Errc::ok; };
      Names<OvertakingEnv> names(made.segment());
      OvertakingStep::left = step;
      const auto added = names.add("the-only-one");
      OvertakingStep::left = 0;
      ASSERT_EQ(to_string(added.error), "ok") << "overtaken at step " << step;
      ASSERT_EQ(published(made.segment()), 1U);
    }
    EXPECT_GT(step, 2);
  }
}

/// Waits at a step for the others.
struct WaitingStep {
  static inline int left = 0;
  static inline std::function<void()> wait{};
  static void step() {
    if (left > 0 && --left == 0) wait();
  }
};
using WaitingEnv = core::AtomicEnv<WaitingStep>;

TEST(AtOnce, OneThatFindsTheLastPlaceInPreparationGetsTheBreakerThatComesOfIt) {
  for (const int step : {10, 30, 60}) {  // anywhere between taking the place and publishing the name
    const TestSegment made({.breakers = 1, .participants = 4});
    SharedArea<std::atomic<bool>> begun;
    SharedArea<std::atomic<bool>> second_comes;
    Child first = fork_child([&] {
      Names<WaitingEnv> names(made.segment());
      WaitingStep::wait = [&] {
        *begun = true;
        EXPECT_TRUE(wait_until([&] { return second_comes->load(); }));
        for (int i = 0; i < 500; ++i)
          ::sched_yield();  // by now the second one has found the place taken, most likely
      };
      WaitingStep::left = step;
      EXPECT_EQ(to_string(names.add("b").error), "ok");
    });
    ASSERT_TRUE(wait_until([&] { return begun->load(); }));
    ASSERT_EQ(Names<>(made.segment()).find("b"), Errc::breaker_not_found);
    Child second = fork_child([&] {
      const Segment mine = made.attach();
      *second_comes = true;
      const auto storage = ShmStorage<>::open(mine, {.name = "b"});
      EXPECT_TRUE(storage) << storage.error().message;
    });
    EXPECT_EQ(second.wait(), exited(0)) << "step " << step;
    EXPECT_EQ(first.wait(), exited(0));
  }
}

TEST(KilledTaker, AtEachOfItsStepsLeavesANameOrNoneAndNoLostPlace) {
  std::uint64_t killed = 0;
  bool finished = false;
  for (std::uint64_t step = 1; !finished; ++step) {
    ASSERT_LT(step, 2'000U);
    const TestSegment made({.breakers = 3, .participants = 4});
    ASSERT_TRUE(Names<>(made.segment()).add("first").created);
    const Ended ended = run_in_child([&] {
      const Segment mine = made.attach();
      Names<KillEnv> names(mine);
      KillStep::arm(step, SIGKILL);
      const auto added = names.add("victim");
      KillStep::disarm();
      EXPECT_TRUE(added.created);
      ::kill(::getpid(), SIGTERM);  // also without leaving in order
    });
    finished = ended == killed_by(SIGTERM);
    ASSERT_TRUE(finished || ended == killed_by(SIGKILL)) << ended;
    killed += finished ? 0 : 1;
    SCOPED_TRACE("step " + std::to_string(step));
    Names<> names(made.segment());
    const Errc found = names.find("victim");
    if (found == Errc::ok) {
      ASSERT_EQ(to_string(names.use("victim")), "ok");
    } else {
      ASSERT_EQ(to_string(found), "breaker_not_found");
    }
    ASSERT_NO_FATAL_FAILURE(expect_every_place_is_usable(made.segment()));
    ASSERT_EQ(to_string(names.use("first")), "ok");
    if (found == Errc::ok) {
      ASSERT_EQ(to_string(names.use("victim")), "ok");
    }
    // No record is lost: they are free, with us, or a breaker's.
    core::RecordPool<StdEnv> pool(made->view(), made->presence());
    std::uint32_t usable = 0;
    Errc error = Errc::ok;
    while (pool.claim(error) != 0)
      ++usable;
    ASSERT_EQ(usable, made->geometry().records - 1 - made->geometry().breakers);
  }
  EXPECT_GT(killed, 50U);
  KillPoints::count(killed);
}

TEST(RegistryOfNames, LeavesAPlaceInPreparationToItsLivingOwner) {
  const TestSegment made({.breakers = 2, .participants = 4});
  StdEnv::store(made->view().breaker(0)->owner, made->presence().own().bits, StdEnv::relaxed);
  expect_success_in_child([&] {
    Names<> names(made.segment());
    EXPECT_EQ(names.add("one"), (Names<>::Added{.created = true, .index = 1}));
    EXPECT_EQ(names.add("two").error, Errc::registry_full);
    const auto refused = ShmStorage<>::open(made.segment(), {.name = "two"});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Errc::registry_full);
    EXPECT_EQ(to_string(names.use("one")), "ok");
  });
}

// ---- corrupt words
// ---------------------------------------------------------------------------------------------------------

TEST(CorruptRegistry, GivesErrorsAndNeverLoops) {
  const TestSegment made({.breakers = 2, .participants = 2});
  Names<> names(made.segment());
  ASSERT_TRUE(names.add("a").created);
  const std::uint64_t hash = core::HashName{}("a");
  auto& slot = made->view().index_slot(hash);
  auto& cells = *made->view().breaker(0);
  const auto with = [](StdEnv::Word& word, std::uint64_t value, auto check) {
    const std::uint64_t good = StdEnv::load(word, StdEnv::relaxed);
    StdEnv::store(word, value, StdEnv::relaxed);
    check();
    StdEnv::store(word, good, StdEnv::relaxed);
  };
  with(slot, LinkWord{}.to_place(77).bits,
       [&] { EXPECT_EQ(names.find("a"), Errc::corrupt) << "a place that does not exist"; });
  with(cells.ring, 0, [&] { EXPECT_EQ(names.find("a"), Errc::corrupt) << "no ring"; });
  with(cells.ring, ~std::uint64_t{0}, [&] { EXPECT_EQ(names.find("a"), Errc::corrupt) << "a ring outside"; });
  for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{129}, ~std::uint64_t{0}}) {
    with(cells.name_bytes, bytes,
         [&] { EXPECT_EQ(names.find("a"), Errc::breaker_not_found) << "a name of " << bytes << " bytes"; });
  }
  with(cells.name[0], 0x1b, [&] { EXPECT_EQ(names.find("a"), Errc::breaker_not_found); });
  with(made->view().words().arena, ArenaWord::make(core::kMaxBreakers, 1).bits,
       [&] { EXPECT_EQ(names.add("b").error, Errc::corrupt); });
  EXPECT_EQ(to_string(names.use("a")), "ok");
  // A bucket without an end.
  for (std::uint32_t i = 0; i < made->geometry().index_slots; ++i)
    StdEnv::store(made->view().index_slot(i), LinkWord{}.to_place(0).bits, StdEnv::relaxed);
  StdEnv::store(cells.next, LinkWord{}.to_place(0).bits, StdEnv::relaxed);
  EXPECT_EQ(names.find("b"), Errc::corrupt);
  EXPECT_EQ(names.add("b").error, Errc::corrupt);
}

// ---- size
// ------------------------------------------------------------------------------------------------------------------

TEST(RegistryOfNames, HoldsAHundredThousandBreakersIn256Mebibytes) {
  constexpr std::uint32_t kMany = 100'000;
  const TestSegment made({.breakers = kMany});
  EXPECT_LE(made->geometry().total_bytes, 256U << 20U);
  Names<> names(made.segment());
  const auto milliseconds = [](auto work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return static_cast<int>(
        std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start).count());
  };
  const int adding = milliseconds([&] {
    for (std::uint32_t i = 0; i < kMany; ++i)
      ASSERT_EQ(to_string(names.add("service-" + std::to_string(i), 15).error), "ok") << i;
  });
  const int finding = milliseconds([&] {
    for (std::uint32_t i = 0; i < kMany; ++i)
      ASSERT_EQ(names.add("service-" + std::to_string(i)).index, i);
  });
  EXPECT_EQ(names.add("one-too-many").error, Errc::registry_full);
  EXPECT_EQ(to_string(names.use("service-0")), "ok");
  EXPECT_EQ(to_string(names.use("service-99999")), "ok");
  RecordProperty("adding_ms", adding);
  RecordProperty("finding_ms", finding);
  std::printf("[ numbers  ] 100,000 breakers: added in %d ms, found in %d ms, %llu bytes\n", adding, finding,
              static_cast<unsigned long long>(made->geometry().total_bytes));
}

TEST(RegistryOfNames, NeedsAtMostTwoKibibytesABreakerWithTheDefaults) {
  const TestSegment made(SegmentOptions{});
  EXPECT_LE(made->geometry().total_bytes, 1024U * 2048U);
  Names<> names(made.segment());
  for (std::uint32_t i = 0; i < 1024; ++i)
    ASSERT_EQ(to_string(names.add("service-" + std::to_string(i)).error), "ok") << i;
}

}  // namespace
}  // namespace shmcb::test
