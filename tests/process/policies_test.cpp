// SPDX-License-Identifier: BSD-3-Clause
// Policies over many processes: what one decides is what all go by.
#include <signal.h>

#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "process/census.hpp"
#include "process/shared_clock.hpp"
#include "shmcb/segment_observer.hpp"
#include "shmcb/shm_storage.hpp"
#include "support/processes.hpp"
#include "support/test_segment.hpp"

namespace shmcb::test {
namespace {

using Breaker = ShmStorage<SharedClock>;
using std::chrono::hours;

TestSegment make_segment() {
  return TestSegment({.breakers = 4, .ring_slots = 4096, .participants = 64, .epoch = SharedClock::kStart});
}

Breaker open(const Segment& segment, const BreakerConfig& config, const SharedClock& clock) {
  auto opened = Breaker::open(segment, config, OnMismatch::refuse, clock);
  if (!opened) throw std::runtime_error(opened.error().message);
  return *std::move(opened);
}

void open_it(Breaker& breaker) {
  ASSERT_EQ(breaker.record_outcome(breaker.admit().token, Outcome::failure).error, Errc::ok);
  ASSERT_EQ(breaker.peek().state, CircuitState::open);
}

/// A probe of a child that stays alive until it is killed; with the breaker in HalfOpen.
class HeldProbe {
 public:
  explicit HeldProbe(Breaker& breaker) {
    child_ = fork_child([&] {
      const AdmitResult probe = breaker.admit();
      shared_->admission.store(probe.admission);
      shared_->done.store(true);
      for (;;)
        ::pause();
    });
    EXPECT_TRUE(wait_until([&] { return shared_->done.load(); }));
    EXPECT_EQ(shared_->admission.load(), Admission::probe);
  }
  void kill() {
    child_.kill();
    EXPECT_EQ(child_.wait(), killed_by(SIGKILL));
  }

 private:
  struct Shared {
    std::atomic<bool> done{false};
    std::atomic<Admission> admission{Admission::rejected};
  };
  SharedArea<Shared> shared_;
  Child child_;
};

BreakerConfig one_failure(bool reclaim) {
  return {.name = "b",
          .failure_threshold = {.failures = 1, .window = 1},
          .cooldown = {Millis{10}},
          .probe_limit = 2,
          .probe_timeout = Millis{1'000},
          .reclaim_dead_probes = reclaim};
}

TEST(EarlyReclaim, FreesTheSlotOfAKilledHolderAtTheNextAdmitAndNoOther) {
  const TestSegment test = make_segment();
  const SharedClock clock;
  Breaker breaker = open(test.segment(), one_failure(true), clock);
  open_it(breaker);
  clock.advance(Millis{10});
  HeldProbe dies(breaker);
  HeldProbe lives(breaker);
  EXPECT_EQ(breaker.admit().admission, Admission::rejected) << "both are out and alive";
  dies.kill();
  const AdmitResult next = breaker.admit();
  EXPECT_EQ(next.admission, Admission::probe);
  EXPECT_EQ(breaker.admit().admission, Admission::rejected) << "the other's slot stays its own";
  clock.advance(Millis{1'000});
  EXPECT_EQ(breaker.admit().admission, Admission::probe) << "the lease began with the first probe, not at the reclaim";
  EXPECT_EQ(breaker.record_outcome(next.token, Outcome::success).status, RecordStatus::stale);
}

TEST(EarlyReclaim, BeginsTheLeaseAnewWhereNoProbeIsLeft) {
  const TestSegment test = make_segment();
  const SharedClock clock;
  Breaker breaker = open(test.segment(), one_failure(true), clock);
  open_it(breaker);
  clock.advance(Millis{10});
  HeldProbe dies(breaker);
  dies.kill();
  clock.advance(Millis{900});
  const AdmitResult next = breaker.admit();
  ASSERT_EQ(next.admission, Admission::probe);
  clock.advance(Millis{900});
  EXPECT_EQ(breaker.record_outcome(next.token, Outcome::success).status, RecordStatus::counted) << "still in its lease";
  EXPECT_EQ(breaker.peek().state, CircuitState::closed);
}

TEST(EarlyReclaim, IsLeftToTheLeaseWhereItIsOff) {
  const TestSegment test = make_segment();
  const SharedClock clock;
  BreakerConfig config = one_failure(false);
  config.probe_limit = 1;
  Breaker breaker = open(test.segment(), config, clock);
  open_it(breaker);
  clock.advance(Millis{10});
  HeldProbe dies(breaker);
  dies.kill();
  clock.advance(Millis{999});
  EXPECT_EQ(breaker.admit().admission, Admission::rejected);
  clock.advance(Millis{1});
  EXPECT_EQ(breaker.admit().admission, Admission::probe);
}

TEST(Backoff, CountsProbesThatFailAtOneInstantInManyProcessesAsOneStep) {
  const TestSegment test = make_segment();
  const SharedClock clock;
  Breaker breaker = open(test.segment(),
                         {.name = "b",
                          .failure_threshold = {.failures = 1, .window = 1},
                          .cooldown = {.base = Millis{10}, .multiplier = 2, .maximum = hours{1}},
                          .probe_limit = kMaxProbes,
                          .probe_timeout = hours{1}},
                         clock);
  open_it(breaker);
  Millis expected{10};
  for (int recovery = 0; recovery < 5; ++recovery) {
    EXPECT_EQ(breaker.peek().cooldown_left, expected);
    clock.advance(expected);
    struct Shared {
      std::atomic<std::uint32_t> transitions{0}, counted{0};
    };
    const SharedArea<Shared> shared;
    const SharedBarrier admitted(kMaxProbes);
    std::vector<Child> children;
    for (std::uint32_t i = 0; i < kMaxProbes; ++i) {
      children.push_back(fork_child([&] {
        const AdmitResult probe = breaker.admit();
        ASSERT_EQ(probe.admission, Admission::probe);
        ASSERT_TRUE(admitted.arrive_and_wait());
        const RecordResult failed = breaker.record_outcome(probe.token, Outcome::failure);
        ASSERT_EQ(failed.error, Errc::ok);
        if (failed.transition) shared->transitions.fetch_add(1);
        if (failed.status == RecordStatus::counted) shared->counted.fetch_add(1);
      }));
    }
    for (Child& child : children)
      EXPECT_EQ(child.wait(), exited(0));
    EXPECT_EQ(shared->transitions.load(), 1U);
    EXPECT_EQ(shared->counted.load(), 1U);
    expected *= 2;
  }
  EXPECT_EQ(breaker.peek().cooldown_left, expected);
}

TEST(Modes, AreObeyedByTheNextAdmitOfEveryOtherProcess) {
  constexpr std::uint32_t kProcesses = 8;
  const TestSegment test = make_segment();
  const SharedClock clock;
  Breaker breaker = open(test.segment(), {.name = "b"}, clock);
  const auto expected = [](Mode mode) { return mode == Mode::forced_open ? Admission::rejected : Admission::allowed; };
  const std::vector<Mode> modes{Mode::forced_open, Mode::disabled,      Mode::forced_open, Mode::observe,
                                Mode::forced_open, Mode::forced_closed, Mode::forced_open, Mode::automatic};
  // Each process in turn sets the next mode; then every other one asks.
  const SharedBarrier set(kProcesses);
  const SharedBarrier asked(kProcesses);
  std::vector<Child> children;
  for (std::uint32_t i = 0; i < kProcesses; ++i) {
    children.push_back(fork_child([&, i] {
      Breaker own = i % 2 == 0 ? breaker : open(test.attach(), {.name = "b"}, clock);
      Mode before = Mode::automatic;
      for (std::size_t turn = 0; turn < modes.size(); ++turn) {
        if (turn % kProcesses == i) {
          const ModeResult result = own.set_mode({.mode = modes[turn], .note = {.who = "test", .why = "a turn"}});
          ASSERT_EQ(result.error, Errc::ok);
          ASSERT_EQ(result.previous, before);
        }
        ASSERT_TRUE(set.arrive_and_wait());
        ASSERT_EQ(own.admit().admission, expected(modes[turn])) << to_string(modes[turn]);
        ASSERT_EQ(own.peek().mode, modes[turn]);
        ASSERT_TRUE(asked.arrive_and_wait());
        before = modes[turn];
      }
    }));
  }
  for (Child& child : children)
    EXPECT_EQ(child.wait(), exited(0));
  expect_records_accounted(test.segment(), kProcesses);
}

TEST(Modes, SurviveTheProcessThatSetThemAndEveryTransition) {
  const TestSegment test = make_segment();
  const SharedClock clock;
  Breaker breaker = open(test.segment(), one_failure(false), clock);
  Child child = fork_child([&] {
    ASSERT_EQ(breaker.set_mode({.mode = Mode::observe, .expires_after = hours{1}}).error, Errc::ok);
    ::raise(SIGKILL);
  });
  EXPECT_EQ(child.wait(), killed_by(SIGKILL));
  open_it(breaker);
  EXPECT_EQ(breaker.admit().admission, Admission::allowed) << "it would be rejected";
  EXPECT_EQ(breaker.snapshot().record.rejected, 1U);
  clock.advance(Millis{10});
  EXPECT_EQ(breaker.admit().admission, Admission::probe) << "or it would never recover";
  EXPECT_EQ(breaker.force_state(CircuitState::open).error, Errc::ok);
  EXPECT_EQ(breaker.peek().mode, Mode::observe);
  clock.advance(hours{1});
  EXPECT_EQ(breaker.peek().mode, Mode::automatic);
}

TEST(Modes, AreInTheJournalWithWhoAndWhyBesideAllThatHappensByItself) {
  const TestSegment test = make_segment();
  const SharedClock clock;
  BreakerConfig config = one_failure(false);
  config.ramp_up = RampUp{.duration = Millis{100}, .start_percent = 50};
  Breaker breaker = open(test.segment(), config, clock);
  auto observer = SegmentObserver::open(test.segment());
  ASSERT_TRUE(observer);
  Child child = fork_child([&] {
    const Note note{.who = "ann", .why = "INC-4711"};
    ASSERT_EQ(breaker.set_mode({.mode = Mode::observe, .expires_after = Millis{50}, .note = note}).error, Errc::ok);
    ASSERT_EQ(breaker.force_state(CircuitState::open, {.who = "bob", .why = "a try"}).error, Errc::ok);
    clock.advance(Millis{50});
    const AdmitResult probe = breaker.admit();
    ASSERT_EQ(probe.admission, Admission::probe);
    ASSERT_EQ(breaker.record_outcome(probe.token, Outcome::success).error, Errc::ok);
    clock.advance(Millis{100});
    ASSERT_EQ(breaker.admit().admission, Admission::allowed);
    config.cooldown.base = Millis{11};
    ASSERT_TRUE(Breaker::open(test.segment(), config, OnMismatch::replace, clock));
  });
  EXPECT_EQ(child.wait(), exited(0));
  std::vector<std::string> seen;
  observer->poll([&](const SegmentEvent& e) {
    std::string text{to_string(e.kind)};
    if (e.kind == EventKind::transition) text += " " + std::string{to_string(e.reason)};
    if (e.mode_from != e.mode_to)
      text += " " + std::string{to_string(e.mode_from)} + ">" + std::string{to_string(e.mode_to)};
    if (!e.who.empty()) text += " by " + e.who + ": " + e.why;
    if (e.until) text += " for " + std::to_string((*e.until - e.occurred_at).count()) + " us";
    EXPECT_EQ(e.number, seen.size() + 1);
    EXPECT_EQ(e.breaker, "b");
    seen.push_back(text);
  });
  EXPECT_THAT(seen, ::testing::ElementsAre("mode-change automatic>observe by ann: INC-4711 for 50000 us",
                                           "forced by bob: a try", "mode-expired observe>automatic",
                                           "transition cooldown-elapsed", "transition probe-succeeded", "ramp-ended",
                                           "settings-replaced"));
  EXPECT_EQ(observer->lost(), 0U);
}

TEST(Modes, CanAlwaysBeSetHoweverOftenTheyWere) {
  const TestSegment test = make_segment();
  const SharedClock clock;
  Breaker breaker = open(test.segment(), {.name = "b"}, clock);
  for (int i = 0; i < 10'000; ++i) {
    const Mode mode = i % 2 == 0 ? Mode::forced_open : Mode::automatic;
    ASSERT_EQ(breaker.set_mode({.mode = mode}).error, Errc::ok) << i;
    ASSERT_EQ(breaker.admit().admission, i % 2 == 0 ? Admission::rejected : Admission::allowed) << i;
  }
  EXPECT_EQ(breaker.record_outcome(breaker.admit().token, Outcome::failure).status, RecordStatus::counted);
  EXPECT_EQ(breaker.snapshot().record.failures, 1U);
}

}  // namespace
}  // namespace shmcb::test
