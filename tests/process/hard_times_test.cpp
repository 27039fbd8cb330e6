// SPDX-License-Identifier: BSD-3-Clause
// What else a pool of workers meets: all of them killed while a probe is out, a member that takes all it can get, a
// /dev/shm without room. The others go on.
#include <signal.h>
#include <sys/mount.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "process/census.hpp"
#include "process/shared_clock.hpp"
#include "shmcb/breaker_group.hpp"
#include "shmcb/failure.hpp"
#include "shmcb/fallback_storage.hpp"
#include "shmcb/memory_storage.hpp"
#include "shmcb/shm_storage.hpp"
#include "support/kernel_faults.hpp"
#include "support/processes.hpp"
#include "support/test_segment.hpp"

namespace shmcb::test {
namespace {

using Breaker = ShmStorage<SharedClock>;

const BreakerConfig kConfig{.name = "b",
                            .failure_threshold = {.failures = 3, .window = 10},
                            .cooldown = {Millis{100}},
                            .probe_timeout = Millis{50}};

void trip(Breaker& breaker) {
  const Token token = breaker.admit().token;
  for (int i = 0; i < 3; ++i)
    ASSERT_EQ(breaker.record_outcome(token, Outcome::failure).error, Errc::ok);
  ASSERT_EQ(breaker.peek().state, CircuitState::open);
}

TEST(AllWorkers, KilledAsOneGroupWhileAProbeIsOutWaitForOneLeaseAndNoLonger) {
  TestSegment test{{.breakers = 2, .participants = 16, .epoch = SharedClock::kStart}};
  const SharedClock clock;
  test.detach();
  constexpr std::uint32_t kWorkers = 6;
  const SharedArea<std::atomic<std::uint32_t>> ready;
  const SharedArea<std::atomic<bool>> probing;
  // The first one leads the group that is killed.
  Child leader = fork_child([&] {
    ::setpgid(0, 0);
    Breaker breaker = Breaker::open(test.attach(), kConfig, OnMismatch::refuse, clock).value();
    trip(breaker);
    clock.advance(Millis{100});
    std::vector<Child> others;
    for (std::uint32_t i = 1; i < kWorkers; ++i) {
      others.push_back(fork_child([&] {
        Breaker own = Breaker::open(test.attach(), kConfig, OnMismatch::refuse, clock).value();
        if (own.admit().admission == Admission::probe) *probing = true;
        ready->fetch_add(1);
        for (;;)
          (void)own.admit();
      }));
    }
    for (;;)
      ::pause();
  });
  ASSERT_TRUE(wait_until([&] { return ready->load() == kWorkers - 1; }));
  ASSERT_TRUE(probing->load());
  ASSERT_EQ(::kill(-leader.pid(), SIGKILL), 0);
  EXPECT_EQ(leader.wait(), killed_by(SIGKILL));

  Breaker breaker = Breaker::open(test.attach(), kConfig, OnMismatch::refuse, clock).value();
  EXPECT_EQ(breaker.peek().state, CircuitState::half_open) << "the state was kept";
  EXPECT_EQ(breaker.admit().admission, Admission::rejected);
  clock.advance(Millis{50});
  const AdmitResult probe = breaker.admit();
  ASSERT_EQ(probe.admission, Admission::probe);
  EXPECT_EQ(breaker.record_outcome(probe.token, Outcome::success).transition.value().to, CircuitState::closed);
}

TEST(GreedyProcess, ThatTakesEveryPlaceProbeAndNumberHarmsNoBreakerOfOthers) {
  const TestSegment test{{.breakers = 16, .participants = 4, .epoch = SharedClock::kStart}};
  const SharedClock clock;
  Breaker breaker = Breaker::open(test.segment(), kConfig, OnMismatch::refuse, clock).value();
  const SharedArea<std::atomic<int>> got;  // -1: it was told another reason
  const Child child = fork_child([&] {
    std::vector<Segment> attached;
    for (int i = 0; i < 200; ++i)
      attached.push_back(test.attach());
    std::vector<Breaker> taken;
    for (int i = 0;; ++i) {
      auto next = Breaker::open(attached[static_cast<std::size_t>(i) % attached.size()],
                                {.name = "mine-" + std::to_string(i), .probe_limit = 32}, OnMismatch::refuse, clock);
      if (!next) {
        if (next.error().code != Errc::registry_full) *got = -1;
        break;
      }
      taken.push_back(*std::move(next));
    }
    for (Breaker& one : taken) {
      (void)one.force_state(CircuitState::half_open);
      for (int i = 0; i < 100; ++i)
        (void)one.admit();  // 32 probes that never report
    }
    if (got->load() == 0) *got = static_cast<int>(taken.size());
    for (;;)
      for (Breaker& one : taken)
        (void)one.force_state(CircuitState::closed);
  });
  ASSERT_TRUE(wait_until([&] { return got->load() != 0; }));
  ASSERT_EQ(got->load(), 15);
  for (int round = 0; round < 20; ++round) {
    trip(breaker);
    EXPECT_EQ(breaker.admit().admission, Admission::rejected);
    clock.advance(Millis{100});
    const AdmitResult probe = breaker.admit();
    ASSERT_EQ(probe.admission, Admission::probe);
    ASSERT_EQ(breaker.record_outcome(probe.token, Outcome::success).transition.value().to, CircuitState::closed);
  }
  // Who comes now works on the breakers that there are, and is told why it gets no other.
  auto late = Breaker::open(test.attach(), kConfig, OnMismatch::refuse, clock);
  ASSERT_TRUE(late) << late.error().message;
  EXPECT_EQ(late->admit().admission, Admission::allowed);
  EXPECT_EQ(Breaker::open(test.attach(), {.name = "late"}, OnMismatch::refuse, clock).error().code,
            Errc::registry_full);
}

TEST(GreedyProcess, InAGroupGetsNoMoreThanTheGroup) {
  const TestSegment test{{.breakers = 16, .participants = 4}};
  const auto group = [&] { return BreakerGroup<>::open(test.attach(), {.name = "g", .limit = 5}).value(); };
  expect_success_in_child([&] {
    auto mine = group();
    int got = 0;
    for (int i = 0; i < 100; ++i)
      got += mine.breaker("host-" + std::to_string(i)) ? 1 : 0;
    EXPECT_EQ(got, 5);
  });
  for (int i = 0; i < 11; ++i)
    EXPECT_TRUE(ShmStorage<>::open(test.segment(), {.name = "single-" + std::to_string(i)})) << i;
}

TEST(WithoutRoom, InShmTheLocalStorageDecides) {
  TemporaryDirectory directory;
  SegmentOptions options{.name = unique_segment_name(), .directory = directory.path()};
  const Ended ended = run_in_child([&]() -> int {
    if (!mount_privately(directory.path(), "tmpfs", "size=64k")) return kRefusedByKernel;
    FallbackStorage storage{ShmStorage<>::open(Segment::open(options), kConfig), MemoryStorage<>::open(kConfig).value(),
                            OnUnusable::local};
    EXPECT_EQ(storage.primary_error().code, Errc::no_space);
    EXPECT_TRUE(storage.degraded());
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(storage.record_outcome(storage.admit().token, Outcome::failure).status, RecordStatus::counted);
    EXPECT_EQ(storage.admit().admission, Admission::rejected);
    EXPECT_TRUE(listing(directory.path()).empty());
    return 0;
  });
  SHMCB_SKIP_IF_REFUSED(ended, "this user cannot mount a tmpfs");
  EXPECT_EQ(ended, exited(0));
}

TEST(WithoutRoom, InTheSegmentTheLocalStorageDecides) {
  const TestSegment test{{.breakers = 1, .participants = 4}};
  ASSERT_TRUE(ShmStorage<>::open(test.segment(), {.name = "first"}));
  FallbackStorage storage{ShmStorage<>::open(test.segment(), kConfig), MemoryStorage<>::open(kConfig).value(),
                          OnUnusable::local};
  EXPECT_EQ(storage.primary_error().code, Errc::registry_full);
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(storage.record_outcome(storage.admit().token, Outcome::failure).status, RecordStatus::counted);
  EXPECT_EQ(storage.admit().admission, Admission::rejected);
}

}  // namespace
}  // namespace shmcb::test
