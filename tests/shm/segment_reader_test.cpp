// SPDX-License-Identifier: BSD-3-Clause
// SegmentReader: what it shows of segments that are fresh, used, changing, cut short, or hold any bytes at all.
#include "shmcb/segment_reader.hpp"

#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "segment_file.hpp"
#include "shmcb/core/journal.hpp"
#include "shmcb/core/record.hpp"
#include "shmcb/core/registry.hpp"
#include "shmcb/shm_storage.hpp"
#include "support/processes.hpp"
#include "support/random_input.hpp"
#include "support/test_segment.hpp"

namespace shmcb::test {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Storage = ShmStorage<FakeClock>;

constexpr milliseconds kCooldown{5'000};

BreakerConfig config(std::string name, Ratio threshold = {.failures = 3, .window = 5, .within = Millis{60'000}}) {
  return {.name = std::move(name),
          .failure_threshold = threshold,
          .cooldown = {kCooldown},
          .success_threshold = 2,
          .probe_limit = 2,
          .probe_timeout = Millis{1'000},
          .config_revision = 7};
}

[[nodiscard]] std::vector<char> content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A segment that a fake clock runs in, and a reader of it.
class SegmentReading : public ::testing::Test {
 protected:
  [[nodiscard]] Storage open(const BreakerConfig& config) const {
    auto storage = Storage::open(segment_.segment(), config, OnMismatch::refuse, clock_);
    if (!storage) throw std::runtime_error(storage.error().message);
    return *std::move(storage);
  }
  void record(Storage& storage, const std::string& outcomes) {
    for (const char c : outcomes) {
      (void)storage.record_outcome(storage.admit().token, c == 'x' ? Outcome::failure : Outcome::success);
      clock_.advance(milliseconds{10});
    }
  }
  [[nodiscard]] SegmentReader reader() const {
    auto reader = SegmentReader::open(segment_.options());
    if (!reader) throw std::runtime_error(reader.error().message);
    return *std::move(reader);
  }
  [[nodiscard]] SegmentInfo info() const {
    auto info = reader().info();
    if (!info) throw std::runtime_error(info.error().message);
    return *std::move(info);
  }
  [[nodiscard]] std::map<std::string, BreakerInfo> list() const {
    auto breakers = reader().breakers(clock_.now());
    if (!breakers) throw std::runtime_error(breakers.error().message);
    std::map<std::string, BreakerInfo> by_name;
    for (const BreakerInfo& breaker : *breakers)
      by_name[breaker.name] = breaker;
    EXPECT_EQ(by_name.size(), breakers->size());
    return by_name;
  }
  [[nodiscard]] BreakerInfo show(const std::string& name) const {
    auto breaker = reader().breaker(name, clock_.now());
    if (!breaker) throw std::runtime_error(breaker.error().message);
    return *std::move(breaker);
  }
  [[nodiscard]] core::BreakerCells<core::StdEnv>& cells(std::uint32_t place) const {
    return *segment_->view().breaker(place);
  }
  static void set(std::atomic<std::uint64_t>& word, std::uint64_t value) {
    word.store(value, std::memory_order_relaxed);
  }
  static std::uint64_t get(const std::atomic<std::uint64_t>& word) { return word.load(std::memory_order_relaxed); }

  FakeClock clock_;
  TestSegment segment_{
      SegmentOptions{.breakers = 8, .ring_slots = 1024, .participants = 4, .mode = 0640, .epoch = clock_.now()}};
};

TEST_F(SegmentReading, ShowsWhatAFreshSegmentIs) {
  const SegmentInfo seen = info();
  EXPECT_EQ(seen.name, *segment_.options().name);
  EXPECT_EQ(seen.path, segment_.path());
  EXPECT_EQ(seen.layout_major, core::kLayoutMajor);
  EXPECT_EQ(seen.layout_minor, core::kLayoutMinor);
  EXPECT_THAT(seen.creation_id, SizeIs(32));
  EXPECT_EQ(seen.creation_id, reader().creation_id());
  EXPECT_GT(seen.created_wall_ns, 1'600'000'000'000'000'000);
  EXPECT_EQ(seen.creator_pid, static_cast<std::uint32_t>(::getpid()));
  EXPECT_EQ(seen.epoch, segment_->epoch());
  EXPECT_EQ(seen.geometry, segment_->geometry());
  EXPECT_EQ(seen.mode, 0640U);
  EXPECT_EQ(seen.owner, ::geteuid());
  EXPECT_EQ(seen.breakers, 0U);
  EXPECT_EQ(seen.places_used, 0U);
  EXPECT_EQ(seen.ring_slots_used, 0U);
  EXPECT_EQ(seen.bad_index_entries, 0U);
  EXPECT_EQ(seen.records, (RecordCounts{.free = segment_->geometry().records - 1}));
  EXPECT_THAT(list(), IsEmpty());
}

TEST_F(SegmentReading, SaysThatABreakerDoesNotExist) {
  const Storage other = open(config("other"));
  const auto missing = reader().breaker("missing");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Errc::breaker_not_found);
  EXPECT_EQ(missing.error().message, "segment '" + *segment_.options().name + "': breaker 'missing' does not exist");
  EXPECT_EQ(reader().breaker("").error().code, Errc::breaker_not_found);
  EXPECT_EQ(reader().breaker(std::string(1'000, 'a')).error().code, Errc::breaker_not_found);
}

TEST_F(SegmentReading, ShowsAClosedBreakerWithItsWindow) {
  Storage storage = open(config("payments"));
  record(storage, ".x.");
  clock_.advance(milliseconds{500});
  const BreakerInfo seen = show("payments");
  EXPECT_FALSE(seen.error);
  EXPECT_EQ(seen.name, "payments");
  EXPECT_EQ(seen.state, CircuitState::closed);
  EXPECT_EQ(seen.failures, 1U);
  EXPECT_EQ(seen.successes, 2U);
  EXPECT_EQ(seen.rejected, 0U);
  EXPECT_EQ(seen.opened_age, std::nullopt);
  EXPECT_EQ(seen.state_age, milliseconds{530});
  EXPECT_EQ(seen.lease_age, std::nullopt);
  EXPECT_EQ(seen.cooldown_left, Millis{0});
  EXPECT_THAT(seen.probes, IsEmpty());
  EXPECT_EQ(seen.settings, settings_of(config("payments")));
  EXPECT_EQ(seen.ring_capacity, 16U);
  EXPECT_EQ(seen.memory_bytes, 512U + 640U + 128U);
  ASSERT_THAT(seen.window, SizeIs(3));
  EXPECT_FALSE(seen.window[0].failure);
  EXPECT_TRUE(seen.window[1].failure);
  EXPECT_FALSE(seen.window[2].failure);
  EXPECT_EQ(seen.window[0].age, milliseconds{530});
  EXPECT_EQ(seen.window[2].age, milliseconds{510});
}

TEST_F(SegmentReading, ShowsOnlyTheNewestOutcomesThatTheWindowHolds) {
  Storage storage = open(config("payments"));
  record(storage, "xx" + std::string(100, '.') + "x..");
  const BreakerInfo seen = show("payments");
  EXPECT_EQ(seen.failures, 1U);
  EXPECT_EQ(seen.successes, 4U);
  std::string marks;
  for (const WindowMark& mark : seen.window)
    marks += mark.failure ? 'x' : '.';
  EXPECT_EQ(marks, "..x..");
}

TEST_F(SegmentReading, ShowsSinceWhenABreakerIsOpenAndWhatIsLeftOfTheCooldown) {
  Storage storage = open(config("payments"));
  record(storage, ".xxx");
  clock_.advance(milliseconds{1'990});
  (void)storage.admit();
  const BreakerInfo seen = show("payments");
  EXPECT_EQ(seen.state, CircuitState::open);
  EXPECT_EQ(seen.state_age, milliseconds{2'000});
  EXPECT_EQ(seen.opened_age, milliseconds{2'000});
  EXPECT_EQ(seen.cooldown_left, milliseconds{3'000});
  EXPECT_EQ(seen.failures, 3U);
  EXPECT_EQ(seen.successes, 1U);
  EXPECT_EQ(seen.rejected, 1U);
  EXPECT_THAT(seen.window, SizeIs(4));
  clock_.advance(std::chrono::hours{1});
  EXPECT_EQ(show("payments").cooldown_left, Millis{0});
}

TEST_F(SegmentReading, ShowsTheProbesThatAreOutAndWhoHasThem) {
  Storage storage = open(config("payments"));
  record(storage, "xxx");
  clock_.advance(kCooldown);
  const AdmitResult first = storage.admit();
  ASSERT_EQ(first.admission, Admission::probe);
  clock_.advance(milliseconds{10});
  (void)storage.record_outcome(first.token, Outcome::success);
  const AdmitResult second = storage.admit();
  clock_.advance(milliseconds{40});
  const BreakerInfo seen = show("payments");
  EXPECT_EQ(seen.state, CircuitState::half_open);
  EXPECT_EQ(seen.state_age, milliseconds{50});
  EXPECT_EQ(seen.lease_age, milliseconds{40});
  EXPECT_EQ(seen.successes, 1U);
  EXPECT_EQ(seen.failures, 0U);
  EXPECT_THAT(seen.window, IsEmpty());
  ASSERT_THAT(seen.probes, SizeIs(1));
  EXPECT_EQ(seen.probes[0].id, second.token.period);
  EXPECT_EQ(seen.probes[0].owner, segment_->presence().number());
  EXPECT_EQ(seen.probes[0].pid, static_cast<std::uint32_t>(::getpid()));
  EXPECT_FALSE(seen.probes[0].foreign_pids);
}

TEST_F(SegmentReading, ListsAllBreakersAsTheStoragesSeeThem) {
  std::vector<Storage> storages;
  for (const char* outcomes : {"", "x.x", "xxx", ".......", ".x.x.x.x.xxx"}) {
    storages.push_back(
        open(config("b" + std::to_string(storages.size()), {.failures = 4, .window = 40, .within = Millis{1'000}})));
    record(storages.back(), outcomes);
  }
  (void)storages[1].force_state(CircuitState::half_open);
  (void)storages[3].force_state(CircuitState::open);
  const auto seen = list();
  ASSERT_THAT(seen, SizeIs(storages.size()));
  for (const Storage& storage : storages) {
    const BreakerInfo& info = seen.at(std::string{storage.name()});
    const StateRecord expected = storage.snapshot().record;
    EXPECT_FALSE(info.error) << info.error.message;
    EXPECT_EQ(info.state, expected.state);
    EXPECT_EQ(info.successes, expected.successes);
    EXPECT_EQ(info.failures, expected.failures);
    EXPECT_EQ(info.rejected, expected.rejected);
    EXPECT_THAT(info.window, IsEmpty());
  }
}

TEST_F(SegmentReading, ShowsNoNegativeAgeWhenItsClockIsBehind) {
  Storage storage = open(config("payments"));
  record(storage, ".xxx");
  const auto seen = reader().breaker("payments", clock_.now() - std::chrono::hours{2});
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->state_age, Micros{0});
  EXPECT_EQ(seen->window.front().age, Micros{0});
  EXPECT_EQ(seen->cooldown_left, kCooldown);
}

TEST_F(SegmentReading, CountsPlacesRingSlotsAndRecords) {
  Storage storage = open(config("a"));
  const Storage other = open(config("b", {.failures = 1, .window = 100, .within = Millis{1}}));
  record(storage, "xxx");  // opens: the record before is this process's spare now
  const SegmentInfo seen = info();
  EXPECT_EQ(seen.breakers, 2U);
  EXPECT_EQ(seen.places_used, 2U);
  EXPECT_EQ(seen.ring_slots_used, 16U + 128U);
  EXPECT_EQ(seen.records, (RecordCounts{.free = segment_->geometry().records - 4, .current = 2, .held = 1}));
}

TEST_F(SegmentReading, CountsWhatTheDeadHaveLeftBehind) {
  const SharedBarrier opened{2};
  Child child = fork_child([&] {
    auto storage = Storage::open(segment_.attach(), config("a"), OnMismatch::refuse, clock_);
    record(*storage, "xxx");
    (void)opened.arrive_and_wait();
    ::pause();
  });
  ASSERT_TRUE(opened.arrive_and_wait());
  SegmentInfo seen = info();
  EXPECT_EQ(seen.records.current, 1U);
  EXPECT_EQ(seen.records.held, 1U);
  EXPECT_EQ(seen.records.left_behind, 0U);
  ASSERT_THAT(seen.processes, SizeIs(2));
  EXPECT_EQ(seen.processes[0].pid, static_cast<std::uint32_t>(::getpid()));
  EXPECT_EQ(seen.processes[1].pid, static_cast<std::uint32_t>(child.pid()));
  for (const ProcessInfo& process : seen.processes) {
    EXPECT_TRUE(process.alive);
    EXPECT_FALSE(process.foreign_pids);
  }

  child.kill();
  ASSERT_TRUE(child.ends_within());  // a zombie is dead enough
  seen = info();
  EXPECT_EQ(seen.records.current, 1U);
  EXPECT_EQ(seen.records.held, 0U);
  EXPECT_EQ(seen.records.left_behind, 1U);
  ASSERT_THAT(seen.processes, SizeIs(2));
  EXPECT_TRUE(seen.processes[0].alive);
  EXPECT_FALSE(seen.processes[1].alive);
  (void)child.wait();
}

TEST_F(SegmentReading, LeavesNoTrace) {
  Storage storage = open(config("a"));
  record(storage, "xx.");
  const std::vector<char> before = content_of(segment_.path());
  const struct stat status = status_of(segment_.path());
  (void)list();
  (void)show("a");
  EXPECT_THAT(info().processes, SizeIs(1));
  EXPECT_TRUE(content_of(segment_.path()) == before);
  EXPECT_EQ(status_of(segment_.path()).st_mtim.tv_nsec, status.st_mtim.tv_nsec);
}

TEST_F(SegmentReading, ReadsOnAfterTheNameIsGone) {
  const Storage storage = open(config("a"));
  const SegmentReader reader = this->reader();
  ASSERT_FALSE(Segment::remove(segment_.options()));
  EXPECT_TRUE(reader.breaker("a"));
  EXPECT_EQ(SegmentReader::open(segment_.options()).error().code, Errc::segment_not_found);
}

TEST_F(SegmentReading, ShowsASegmentThatTooManyMayWriteTo) {
  ASSERT_EQ(::chmod(segment_.path().c_str(), 0666), 0);
  EXPECT_EQ(info().mode, 0666U);
}

TEST_F(SegmentReading, RefusesAnImpossibleName) {
  EXPECT_EQ(SegmentReader::open({.name = ""}).error().code, Errc::invalid_segment_name);
  EXPECT_EQ(SegmentReader::open({.name = "a/b"}).error().code, Errc::invalid_segment_name);
}

TEST_F(SegmentReading, WorksForAUserWhoMayOnlyRead) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become somebody else";
  Storage storage = open(config("a"));
  record(storage, "x");
  constexpr gid_t kGroup = 54'321;  // arbitrary
  constexpr uid_t kUser = 54'322;   // arbitrary
  ASSERT_EQ(::chown(segment_.path().c_str(), 0, kGroup), 0);
  expect_success_in_child([&] {
    ASSERT_EQ(::setgroups(0, nullptr), 0);
    ASSERT_EQ(::setresgid(kGroup, kGroup, kGroup), 0);
    ASSERT_EQ(::setresuid(kUser, kUser, kUser), 0);
    EXPECT_EQ(Segment::attach(segment_.options()).error().code, Errc::permission_denied);
    EXPECT_EQ(show("a").failures, 1U);
    EXPECT_EQ(info().records.current, 1U);
    EXPECT_TRUE(info().processes.at(0).alive);
  });
  expect_success_in_child([&] {
    ASSERT_EQ(::setgroups(0, nullptr), 0);
    ASSERT_EQ(::setresgid(kUser, kUser, kUser), 0);
    ASSERT_EQ(::setresuid(kUser, kUser, kUser), 0);
    EXPECT_EQ(SegmentReader::open(segment_.options()).error().code, Errc::permission_denied);
  });
}

// ---- files that are not what they should be -----------------------------------------------------

TEST_F(SegmentReading, SaysThatAFileIsCutShortWhileItIsOpen) {
  {
    Storage storage = open(config("a"));
    record(storage, "x.");
  }
  const SegmentReader reader = this->reader();
  const core::Geometry g = segment_->geometry();
  segment_.detach();  // nobody has it mapped
  for (const std::uint64_t bytes : {g.rings_offset, g.records_offset + 100, g.breakers_offset, g.index_offset + 1,
                                    g.participants_offset, std::uint64_t{100}, std::uint64_t{0}}) {
    ASSERT_EQ(::truncate(segment_.path().c_str(), static_cast<off_t>(bytes)), 0);
    EXPECT_EQ(reader.breakers().error().code, Errc::truncated) << bytes;
    EXPECT_EQ(reader.breaker("a").error().code, Errc::truncated) << bytes;
    EXPECT_THAT(reader.breakers().error().message, HasSubstr("cut short while it was open: nothing at byte"));
    if (bytes < g.rings_offset) {
      EXPECT_EQ(reader.info().error().code, Errc::truncated) << bytes;
    }
    EXPECT_EQ(SegmentReader::open(segment_.options()).error().code, Errc::truncated) << bytes;
  }
}

TEST_F(SegmentReading, RefusesWhatIsNotASegmentOfThisVersion) {
  segment_.detach();
  const core::Header good = read_header(segment_.path());
  const auto error_with = [&](auto change) {
    core::Header header = good;
    change(header);
    sign(header);
    write_header(segment_.path(), header);
    return SegmentReader::open(segment_.options()).error().code;
  };
  EXPECT_EQ(error_with([](core::Header& h) { h = {}; }), Errc::not_a_segment);
  EXPECT_EQ(error_with([](core::Header& h) { ++h.layout_major; }), Errc::incompatible);
  EXPECT_EQ(error_with([](core::Header& h) { ++h.fingerprint; }), Errc::incompatible);
  EXPECT_EQ(error_with([](core::Header& h) { h.features_incompatible = 1; }), Errc::incompatible);
  EXPECT_EQ(error_with([](core::Header& h) { ++h.boot_id[3]; }), Errc::foreign_clock);
  EXPECT_EQ(error_with([](core::Header& h) { ++h.rings_offset; }), Errc::corrupt);
  EXPECT_EQ(error_with([](core::Header& h) { h.breakers = 0; }), Errc::corrupt);
}

TEST_F(SegmentReading, ReadsWhatOnlyLaterVersionsMayWriteTo) {
  Storage storage = open(config("a"));
  core::Header header = read_header(segment_.path());
  header.features_read_only = 1;
  sign(header);
  write_header(segment_.path(), header);
  EXPECT_EQ(Segment::attach(segment_.options()).error().code, Errc::read_only);
  EXPECT_FALSE(show("a").error);
}

TEST_F(SegmentReading, ShowsAgesWithinBoundsWhateverTheEpoch) {
  Storage storage = open(config("a"));
  record(storage, "xxx");
  core::Header header = read_header(segment_.path());
  for (const std::int64_t epoch : {std::int64_t{0}, std::int64_t{1} << 60U}) {
    header.epoch_us = epoch;
    sign(header);
    write_header(segment_.path(), header);
    const auto seen = reader().breaker("a");
    ASSERT_TRUE(seen);
    EXPECT_GE(*seen->state_age, Micros{0});
  }
}

TEST_F(SegmentReading, ShowsACorruptBreakerAmongGoodOnes) {
  struct Case {
    const char* why;
    std::function<void(core::BreakerCells<core::StdEnv>&)> corrupt;
  };
  const std::vector<Case> cases{
      {"its name is not one", [](auto& cells) { set(cells.name_bytes, 0); }},
      {"its name is not one", [](auto& cells) { set(cells.name_bytes, 129); }},
      {"its name is not one", [](auto& cells) { set(cells.name[0], get(cells.name[0]) ^ 0x80); }},
      {"its ring lies outside the arena", [](auto& cells) { set(cells.ring, get(cells.ring) | 0xFFFF); }},
      {"its ring lies outside the arena", [](auto& cells) { set(cells.ring, 0); }},
      {"its control word or its record holds what no process writes", [](auto& cells) { set(cells.control, 0); }},
      {"its control word or its record holds what no process writes",
       [](auto& cells) { set(cells.control, ~std::uint64_t{0}); }},
      {"its ring holds what no process writes", [](auto& cells) { set(cells.hint, 12'345); }},
  };
  const Storage before = open(config("a"));
  Storage storage = open(config("bad"));
  const Storage after = open(config("c"));
  record(storage, "x.x");
  for (const Case& one : cases) {
    const std::vector<char> good = content_of(segment_.path());
    one.corrupt(cells(1));
    const auto seen = reader().breakers();
    ASSERT_TRUE(seen);
    ASSERT_THAT(*seen, SizeIs(3));
    EXPECT_FALSE((*seen)[0].error);
    EXPECT_FALSE((*seen)[2].error);
    EXPECT_EQ((*seen)[1].error.code, Errc::corrupt);
    EXPECT_THAT((*seen)[1].error.message, HasSubstr(one.why));
    write_bytes(segment_.path(), 0, good.data(), good.size());
  }
}

TEST_F(SegmentReading, ShowsABreakerAsCorruptWhoseOutcomesCannotBeCountedAlsoWhereItsWindowCan) {
  Storage storage = open(config("open"));
  record(storage, "xxx");
  EXPECT_FALSE(show("open").error);
  EXPECT_EQ(show("open").counters.failures, 3U);
  set(cells(0).hint, 12'345);
  for (const BreakerInfo& seen : {list().at("open"), show("open")}) {
    EXPECT_EQ(seen.error.code, Errc::corrupt);
    EXPECT_THAT(seen.error.message, HasSubstr("its ring holds what no process writes"));
  }
}

TEST_F(SegmentReading, ShowsBreakersWithOneRingAsCorrupt) {
  const std::vector<Storage> storages{open(config("a")), open(config("b")), open(config("c"))};
  set(cells(2).ring, get(cells(0).ring));
  const auto seen = list();
  EXPECT_THAT(seen.at("a").error.message, HasSubstr("its ring overlaps another's"));
  EXPECT_FALSE(seen.at("b").error);
  EXPECT_THAT(seen.at("c").error.message, HasSubstr("its ring overlaps another's"));
}

TEST_F(SegmentReading, CountsIndexEntriesThatNameNoPossibleBreaker) {
  const Storage storage = open(config("a"));
  set(segment_->view().index_slot(core::HashName{}("a") + 1), 0xFFFF'FFFF);
  EXPECT_EQ(info().bad_index_entries, 1U);
  EXPECT_THAT(list(), SizeIs(1));
}

TEST_F(SegmentReading, EndsWhereTheLinksGoRoundInACircle) {
  const Storage a = open(config("a"));
  const Storage b = open(config("b"));
  const core::LinkWord good{get(cells(0).next)};
  const core::LinkWord itself = good.to_place(0);
  // Of a registered place, of one that is leaving, and of one whose breaker is gone.
  const std::uint64_t control = get(cells(0).control);
  const std::uint64_t gone = core::ControlWord<core::StdEnv::Widths>{control}.left().bits;
  struct Case {
    std::uint64_t next;
    std::uint64_t control;
    std::size_t named;
  };
  for (const Case& one : {Case{itself.bits, control, 2}, Case{itself.bits | core::LinkWord::kUnlinked, control, 1},
                          Case{itself.bits, gone, 1}}) {
    set(cells(0).next, one.next);
    set(cells(0).control, one.control);
    expect_success_in_child(
        [&] {
          const SegmentInfo seen = info();
          EXPECT_EQ(seen.breakers, one.named);
          EXPECT_EQ(seen.bad_index_entries, 1U) << "the link that closes the circle";
          EXPECT_THAT(list(), SizeIs(one.named));
          (void)reader().breaker("a");
        },
        std::chrono::seconds{20});
  }
}

/// Everything a reader can be asked, on whatever bytes; that it comes back is what is tested.
void ask_everything(const SegmentOptions& options) {
  const auto reader = SegmentReader::open(options);
  if (!reader) return;
  (void)reader->info();
  const auto breakers = reader->breakers();
  if (!breakers) return;
  for (const BreakerInfo& breaker : *breakers) {
    const auto shown = reader->breaker(breaker.name);
    if (shown && !shown->error) {
      EXPECT_LE(shown->window.size(), shown->settings.window);
    }
  }
}

/// The segment's file with a few breakers in every state, and what a test does to copies of it.
class SegmentReadingAnyBytes : public SegmentReading {
 protected:
  SegmentReadingAnyBytes() {
    for (const char* outcomes : {"", "x.x.x.......", "xxx", "xxx"}) {
      Storage storage = open(config("b" + std::to_string(++made_)));
      record(storage, outcomes);
      if (made_ == 4) {
        clock_.advance(kCooldown);
        (void)storage.admit();
      }
    }
    good_ = content_of(segment_.path());
  }
  void write(const std::vector<char>& bytes) const { write_bytes(segment_.path(), 0, bytes.data(), bytes.size()); }

  int made_ = 0;
  std::vector<char> good_;
};

TEST_F(SegmentReadingAnyBytes, AnswersWhereSomeBytesAreOthers) {
  const std::uint64_t seed = test_seed();
  std::mt19937_64 random(seed);
  const core::Geometry& g = segment_->geometry();
  // Most of the file is the free part of the tables: aim at what is used.
  const std::vector<std::pair<std::uint64_t, std::uint64_t>> used{
      {core::kSegmentWordsOffset, 64}, {g.participants_offset, 64},  {g.index_offset, g.index_slots * 8ULL},
      {g.breakers_offset, 4 * 512},    {g.records_offset, 12 * 384}, {g.rings_offset, 4 * 128}};
  for (int round = 0; round < 1'000; ++round) {
    std::vector<char> bytes = good_;
    for (std::uint64_t n = random() % 12 + 1; n > 0; --n) {
      const auto [offset, size] = used[random() % used.size()];
      char& byte = bytes[offset + random() % size];
      byte = static_cast<char>(random() % 2 == 0 ? random() : static_cast<std::uint64_t>(byte) ^ (1U << random() % 8));
    }
    write(bytes);
    ask_everything(segment_.options());
  }
}

TEST_F(SegmentReadingAnyBytes, AnswersWhereAllBytesAreOthers) {
  const std::uint64_t seed = test_seed();
  std::mt19937_64 random(seed);
  std::vector<char> bytes = good_;
  for (int round = 0; round < 100; ++round) {
    const std::uint64_t often = random() % 64 + 1;  // how much of it is zero
    for (std::size_t i = core::kSegmentWordsOffset; i < bytes.size(); ++i) {
      bytes[i] = static_cast<char>(random() % often == 0 ? random() : 0);
    }
    write(bytes);
    ask_everything(segment_.options());
  }
  for (const int fill : {0, 0x01, 0x80, 0xFF}) {
    std::fill(bytes.begin() + core::kSegmentWordsOffset, bytes.end(), static_cast<char>(fill));
    write(bytes);
    ask_everything(segment_.options());
  }
}

TEST_F(SegmentReadingAnyBytes, AnswersWhileAnotherScribbles) {
  segment_.detach();
  const std::uint64_t seed = test_seed();
  const SharedArea<std::atomic<std::uint64_t>> written;
  const Child scribbler = fork_child([&] {
    std::mt19937_64 random(seed);
    for (;; ++*written) {
      const std::uint64_t bits = random();
      const std::uint64_t offset =
          core::kSegmentWordsOffset + random() % (good_.size() - core::kSegmentWordsOffset - 8);
      write_bytes(segment_.path(), offset, &bits, 8);
      if (bits % 64 == 0) write(good_);
    }
  });
  ASSERT_TRUE(wait_until([&] { return written->load() > 0; }));
  const std::uint64_t before = written->load();
  for (int round = 0; round < 500; ++round)
    ask_everything(segment_.options());
  EXPECT_GT(written->load(), before) << "nobody scribbled meanwhile";
}

// ---- segments that change -----------------------------------------------------------------------

TEST_F(SegmentReading, ShowsEachBreakerConsistentlyWhileOthersUseThem) {
  Storage quiet = open(config("quiet"));
  record(quiet, "x..");
  const std::vector<Storage> storages{open(config("hot", {.failures = 10, .window = 10, .within = Millis{60'000}})),
                                      open(config("flapping"))};
  std::vector<Child> children;
  for (int i = 0; i < 2; ++i) {
    children.push_back(fork_child([&] {
      Storage hot = storages[0];
      Storage flapping = storages[1];
      for (;;) {
        for (int n = 0; n < 9; ++n)
          (void)hot.record_outcome(hot.admit().token, n % 3 == 0 ? Outcome::failure : Outcome::success);
        (void)flapping.force_state(CircuitState::half_open);
        (void)flapping.admit();
        (void)flapping.force_state(CircuitState::open);
      }
    }));
  }
  const SegmentReader reader = this->reader();
  int read = 0;
  const auto check = [&read](const BreakerInfo& info) {
    if (info.error) {
      EXPECT_EQ(info.error.code, Errc::busy) << info.error.message;
      return;
    }
    ++read;
    EXPECT_LE(info.successes + info.failures, 10U);
    if (info.name == "hot") {
      EXPECT_EQ(info.state, CircuitState::closed);
    }
    if (info.name == "quiet") {
      EXPECT_EQ(info.failures, 1U);
      EXPECT_EQ(info.successes, 2U);
    }
    if (info.name == "flapping" && info.state == CircuitState::open) {
      EXPECT_THAT(info.probes, IsEmpty());
    }
  };
  for (int round = 0; round < 1'000; ++round) {
    const auto listed = reader.breakers(clock_.now());
    ASSERT_TRUE(listed);
    ASSERT_THAT(*listed, SizeIs(3));
    for (const BreakerInfo& breaker : *listed)
      check(breaker);
    const auto shown = reader.breaker("hot", clock_.now());
    ASSERT_TRUE(shown);
    check(*shown);
    EXPECT_EQ(shown->window.size(), shown->successes + shown->failures);
    const auto info = reader.info();
    ASSERT_TRUE(info);
    EXPECT_EQ(info->breakers, 3U);
  }
  EXPECT_GE(read, 2'000);  // of 4,000: the quiet breaker each time, and the others mostly
}

TEST(SegmentReadingOfTheJournal, NeverGivesAnEventTheNameThatItsPlaceHadLater) {
  constexpr std::uint32_t kNames = 64;
  constexpr std::uint64_t kNobody = kNames;
  const TestSegment made({.breakers = 1, .ring_slots = 16, .participants = 4, .journal_entries = kNames});
  auto& cells = *made->view().breaker(0);
  // As long as a name can be; its end differs, which lies far behind the incarnation.
  const auto name_of = [](std::uint64_t n) {
    return std::string(core::kMaxNameBytes - 3, 'n') + std::to_string(100 + n);
  };
  core::Journal<core::StdEnv> journal(made->view(), made->presence());
  for (std::uint32_t n = 0; n < kNames; ++n)
    journal.write({.breaker = 0, .incarnation = n, .number = n + 1});
  // One life after the other, as fast as it goes; most runs have a copy made in between.
  // An event knows the low half of its place's incarnation.
  cells.name_bytes.store(core::kMaxNameBytes, std::memory_order_relaxed);
  for (std::size_t i = 0; i < core::kMaxNameBytes / 8; ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, name_of(0).data() + i * 8, 8);
    cells.name[i].store(word, std::memory_order_relaxed);
  }
  const Child recycler = fork_child([&] {
    for (std::uint64_t life = 1;; ++life) {
      std::uint64_t name = 0;
      std::memcpy(&name, name_of(life % kNames).data() + core::kMaxNameBytes - 8, 8);
      cells.incarnation.store((2 * life) << 32U | kNobody, std::memory_order_release);
      cells.name[core::kMaxNameBytes / 8 - 1].store(name, std::memory_order_release);
      cells.incarnation.store((2 * life + 1) << 32U | life % kNames, std::memory_order_release);
      for (int i = 0; i < 100; ++i)  // the reader is to meet some that stay
        (void)cells.incarnation.load(std::memory_order_relaxed);
    }
  });
  const auto reader = SegmentReader::open(made.options());
  ASSERT_TRUE(reader);
  int named = 0;
  for (int round = 0; round < 10'000 || (named == 0 && round < 1'000'000); ++round) {
    const auto events = reader->journal();
    ASSERT_TRUE(events);
    for (const SegmentEvent& event : *events) {
      if (event.breaker.empty()) continue;
      ++named;
      ASSERT_EQ(event.breaker, name_of(event.number - 1)) << "in round " << round;
    }
  }
  EXPECT_GT(named, 0);
}

}  // namespace
}  // namespace shmcb::test
