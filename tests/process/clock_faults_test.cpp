// SPDX-License-Identifier: BSD-3-Clause
// Clocks that jump and counters that come round, seen by many processes: what the reference rules say, and no more
// probes, transitions or outcomes than that.
#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "process/census.hpp"
#include "process/script.hpp"
#include "process/shared_clock.hpp"
#include "shmcb/failure.hpp"
#include "shmcb/memory_storage.hpp"
#include "shmcb/shm_storage.hpp"
#include "support/processes.hpp"
#include "support/test_segment.hpp"

namespace shmcb::test {
namespace {

using core::StdEnv;
using Control = core::ControlWord<StdEnv::Widths>;

// ---- a clock that jumps ---------------------------------------------------------------------------------------------

constexpr std::uint32_t kProcesses = 8;
constexpr Millis kEightHours = std::chrono::hours{8};

class ClockThatJumps : public ::testing::Test {
 protected:
  const SharedClock clock{};
  const TestSegment test{{.breakers = 2, .participants = 16, .epoch = SharedClock::kStart}};
  ShmStorage<SharedClock> breaker = *ShmStorage<SharedClock>::open(
      test.segment(),
      {.name = "b", .failure_threshold = {.failures = 3, .window = 10, .within = Millis{60'000}}, .probe_limit = 2},
      OnMismatch::refuse, clock);

  void fail(int times) {
    for (int i = 0; i < times; ++i)
      ASSERT_EQ(breaker.record_outcome(breaker.admit().token, Outcome::failure).status, RecordStatus::counted);
  }
};

TEST_F(ClockThatJumps, AheadByEightHoursLetsTheProbesOutAndNoMore) {
  fail(3);
  ASSERT_EQ(breaker.peek().state, CircuitState::open);
  clock.advance(kEightHours);
  struct Seen {
    std::atomic<std::uint32_t> probes{0}, rejected{0}, transitions{0};
  };
  const SharedArea<Seen> seen;
  const SharedBarrier start(kProcesses);
  std::vector<Child> children;
  for (std::uint32_t i = 0; i < kProcesses; ++i) {
    children.push_back(fork_child([&] {
      ASSERT_TRUE(start.arrive_and_wait());
      for (int n = 0; n < 20; ++n) {
        const AdmitResult entry = breaker.admit();
        ASSERT_EQ(entry.error, Errc::ok);
        ASSERT_NE(entry.admission, Admission::allowed);
        (entry.admission == Admission::probe ? seen->probes : seen->rejected).fetch_add(1);
        if (entry.transition) seen->transitions.fetch_add(1);
      }
    }));
  }
  for (Child& child : children)
    EXPECT_EQ(child.wait(), exited(0));
  EXPECT_EQ(seen->probes.load(), 2U);
  EXPECT_EQ(seen->rejected.load(), kProcesses * 20 - 2);
  EXPECT_EQ(seen->transitions.load(), 1U);
}

TEST_F(ClockThatJumps, AheadByEightHoursLeavesNoOldFailureThatCounts) {
  fail(2);
  clock.advance(kEightHours);
  fail(2);
  EXPECT_EQ(breaker.peek().state, CircuitState::closed);
  fail(1);
  EXPECT_EQ(breaker.peek().state, CircuitState::open);
}

TEST_F(ClockThatJumps, BackByAMicrosecondToASecondCountsAsTheNewestInstant) {
  clock.advance(Millis{10'000});
  for (const Micros by : {Micros{1}, Micros{999}, Micros{1'000}, Micros{1'000'000}}) {
    ASSERT_EQ(breaker.force_state(CircuitState::closed).error, Errc::ok);
    fail(2);
    clock.advance(-by);
    fail(1);
    EXPECT_EQ(breaker.peek().state, CircuitState::open) << by.count();
    EXPECT_EQ(breaker.peek().cooldown_left, Millis{30'000}) << "of age 0, not of a negative one";
    EXPECT_EQ(breaker.admit().retry_after, Millis{30'000});
    clock.advance(by);
  }
  expect_ring_unbroken(test.segment(), 0);
}

TEST_F(ClockThatJumps, BeyondAllThatAnEntryCanHoldStillCountsAndOpens) {
  // 48 bits of microseconds are 8.9 years; later entries are all of that instant.
  for (const auto years : {8, 9, 20}) {
    clock.advance(std::chrono::hours{24 * 366} * years);
    ASSERT_EQ(breaker.force_state(CircuitState::closed).error, Errc::ok);
    fail(3);
    EXPECT_EQ(breaker.peek().state, CircuitState::open) << years;
    clock.advance(Millis{1});
    EXPECT_EQ(breaker.admit().error, Errc::ok);
    expect_ring_unbroken(test.segment(), 0);
  }
}

// ---- counters that come round ---------------------------------------------------------------------------------------

BreakerConfig small_config() {
  return {.name = "b",
          .failure_threshold = {.failures = 3, .window = 10},
          .cooldown = {Millis{100}},
          .success_threshold = 2,
          .probe_limit = 2,
          .probe_timeout = Millis{50}};
}

/// A breaker that has lived so long that its numbers are about to come round: its words as they would then be.
class OldBreaker {
 public:
  OldBreaker(core::Bits generation, core::Bits version)
      : test_({.breakers = 2, .ring_slots = 64, .participants = 8, .epoch = kScriptStart}),
        runner_(ShmStorage<FakeClock>::open(test_.segment(), small_config(), OnMismatch::refuse, clock_).value(),
                clock_) {
    auto& control = test_->view().breaker(0)->control;
    const Control word{StdEnv::load(control, StdEnv::acquire)};
    auto& words = test_->view().record(word.record())->words;
    StdEnv::store(words[core::word::window_generation], generation, StdEnv::relaxed);
    const std::uint64_t probes = StdEnv::load(words[1], StdEnv::relaxed);  // generation of the last reset 23..0
    StdEnv::store(words[1], (probes & ~core::low_bits(24)) | generation, StdEnv::relaxed);
    StdEnv::store(control, Control::make({}, word.record(), generation, version).bits, StdEnv::release);
  }
  [[nodiscard]] ScriptRunner<ShmStorage<FakeClock>>& runner() { return runner_; }
  [[nodiscard]] const Segment& segment() const { return test_.segment(); }
  [[nodiscard]] Control control() const { return {StdEnv::load(test_->view().breaker(0)->control, StdEnv::acquire)}; }

 private:
  FakeClock clock_{kScriptStart};
  TestSegment test_;
  ScriptRunner<ShmStorage<FakeClock>> runner_;
};

constexpr core::Bits kLastGeneration = core::low_bits(24);

/// Admits, trips, is turned away, recovers, is forced, reports late: 5 generations.
const Script kOutage{admit_as(0),
                     admit_as(1),
                     success_of(0),
                     failure_of(0),
                     failure_of(0),
                     kSnapshot,
                     failure_of(0),
                     kSnapshot,
                     admit_as(2),
                     admit_as(2),
                     kSnapshot,
                     success_of(1),
                     advance_by(Millis{100}),
                     admit_as(3),
                     admit_as(4),
                     admit_as(5),
                     kSnapshot,
                     failure_of(3),
                     success_of(4),
                     kSnapshot,
                     advance_by(Millis{100}),
                     admit_as(3),
                     admit_as(4),
                     success_of(3),
                     kSnapshot,
                     success_of(4),
                     kSnapshot,
                     failure_of(0),
                     failure_of(3),
                     admit_as(6),
                     success_of(6),
                     kSnapshot};

TEST(NumbersThatComeRound, OfGenerationsChangeNoAnswer) {
  for (const core::Bits before : {0U, 1U, 2U, 3U, 4U, 5U, 9U}) {
    SCOPED_TRACE(std::to_string(before) + " generations before the last");
    OldBreaker old(kLastGeneration - before, 0);
    const FakeClock clock{kScriptStart};
    ScriptRunner<MemoryStorage<FakeClock>> reference(*MemoryStorage<FakeClock>::open(small_config(), clock), clock);
    const Script script = times(3, kOutage);
    const Answers seen = old.runner().run(script);
    const Answers expected = reference.run(script);
    for (std::size_t i = 0; i < seen.size(); ++i)
      ASSERT_EQ(seen[i], expected[i]) << "step " << i;
    EXPECT_LT(old.control().generation(), 100U) << "it has come round";
    expect_ring_unbroken(old.segment(), 0);
    expect_records_accounted(old.segment(), 1);
  }
}

TEST(NumbersThatComeRound, OfVersionsBeginANewPeriodAndChangeNoAnswerOutsideOfClosed) {
  // In HalfOpen every admission and every verdict is a version; those that overflow carry into the generation.
  OldBreaker old(kLastGeneration, 0);
  const FakeClock clock{kScriptStart};
  ScriptRunner<MemoryStorage<FakeClock>> reference(*MemoryStorage<FakeClock>::open(small_config(), clock), clock);
  const Script probes = Script{force_to(CircuitState::half_open)} + times(2'500, {admit_as(0), ignored_of(0)}) +
                        Script{admit_as(0), success_of(0), admit_as(1), kSnapshot, success_of(1), kSnapshot};
  const Answers seen = old.runner().run(probes);
  const Answers expected = reference.run(probes);
  for (std::size_t i = 0; i < seen.size(); ++i)
    ASSERT_EQ(seen[i], expected[i]) << "step " << i;
  EXPECT_LT(old.control().generation(), 100U);
}

TEST(NumbersThatComeRound, OfTheHoldersOfAPlaceInTheTableNeverMakeADeadOneAlive) {
  const TestSegment test({.breakers = 2, .participants = 2});
  auto& entry = *test->view().participant(1);
  StdEnv::store(entry.incarnation, core::low_bits(24) - 1, StdEnv::relaxed);
  std::uint32_t before = 0;
  for (int i = 0; i < 4; ++i) {
    const Segment next = test.attach();
    ASSERT_EQ(next.presence().number(), 1);
    const std::uint32_t now = next.presence().incarnation();
    EXPECT_NE(now, 0U);
    EXPECT_LE(now, core::low_bits(24));
    EXPECT_NE(now, before);
    EXPECT_TRUE(before == 0 || test->presence().is_dead(core::OwnerWord::make(1, before, 1))) << before;
    EXPECT_FALSE(test->presence().is_dead(core::OwnerWord::make(1, now, 1))) << now;
    ShmStorage<> breaker = *ShmStorage<>::open(next, {.name = "b"});
    EXPECT_EQ(breaker.force_state(CircuitState::open).error, Errc::ok);
    before = now;
  }
  EXPECT_LT(before, 10U) << "it has come round";
  expect_records_accounted(test.segment(), 8);
}

}  // namespace
}  // namespace shmcb::test
