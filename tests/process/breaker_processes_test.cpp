// SPDX-License-Identifier: BSD-3-Clause
// One breaker, many processes: what they do together is what one process would have done alone.
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "process/census.hpp"
#include "process/shared_clock.hpp"
#include "shmcb/permit.hpp"
#include "shmcb/shm_storage.hpp"
#include "support/processes.hpp"
#include "support/test_segment.hpp"

namespace shmcb::test {
namespace {

using Breaker = ShmStorage<SharedClock>;
constexpr std::uint32_t kProcesses = 8;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint32_t kScale = 1;
#else
constexpr std::uint32_t kScale = 4;
#endif

/// A segment whose time 0 is the shared clock's, and room for windows of thousands.
TestSegment make_segment(std::uint32_t breakers = 4) {
  return TestSegment({.breakers = breakers, .ring_slots = 1U << 16U, .participants = 32, .epoch = SharedClock::kStart});
}

Breaker open(const Segment& segment, const BreakerConfig& config, const SharedClock& clock) {
  auto opened = Breaker::open(segment, config, OnMismatch::refuse, clock);
  if (!opened) throw std::runtime_error(opened.error().message);
  return *std::move(opened);
}

/// Forks the processes, lets them start together, and finds that each did what it should.
template <class Work>
void run_processes(std::uint32_t count, Work work) {
  const SharedBarrier start(count);
  std::vector<Child> children;
  for (std::uint32_t i = 0; i < count; ++i) {
    children.push_back(fork_child([&, i] {
      ASSERT_TRUE(start.arrive_and_wait());
      work(i);
    }));
  }
  for (Child& child : children)
    EXPECT_EQ(child.wait(), exited(0));
}

/// How often each transition was reported, by all processes together.
struct Reported {
  std::array<std::atomic<std::uint64_t>, kTransitionReasons> by_reason{};
  void add(const std::optional<CircuitTransition>& transition) {
    if (transition) by_reason[static_cast<std::size_t>(transition->reason)].fetch_add(1);
  }
  [[nodiscard]] std::uint64_t count(TransitionReason reason) const {
    return by_reason[static_cast<std::size_t>(reason)].load();
  }
  [[nodiscard]] std::uint64_t total() const {
    std::uint64_t sum = 0;
    for (const auto& count : by_reason)
      sum += count.load();
    return sum;
  }
};

void trip(Breaker& breaker) {
  const Token token = breaker.admit().token;
  while (breaker.peek().state == CircuitState::closed)
    ASSERT_EQ(breaker.record_outcome(token, Outcome::failure).error, Errc::ok);
}

TEST(ManyProcesses, NeverHaveMoreProbesOutThanTheLimit) {
  constexpr std::uint32_t kLimit = 3;
  const TestSegment test = make_segment();
  const SharedClock clock;
  const BreakerConfig config{.name = "b",
                             .failure_threshold = {.failures = 1, .window = 1},
                             .cooldown = {Millis{10}},
                             .success_threshold = 1'000'000,
                             .probe_limit = kLimit,
                             .probe_timeout = Millis{1'000}};
  Breaker breaker = open(test.segment(), config, clock);
  trip(breaker);
  clock.advance(Millis{10});
  struct Shared {
    std::atomic<std::uint32_t> out{0}, most{0};
    std::atomic<std::uint64_t> probes{0}, rejected{0};
    Reported reported;
  };
  const SharedArea<Shared> shared;
  run_processes(kProcesses, [&](std::uint32_t i) {
    for (std::uint32_t n = 0; n < 250 * kScale; ++n) {
      const AdmitResult entry = breaker.admit();
      ASSERT_EQ(entry.error, Errc::ok);
      shared->reported.add(entry.transition);
      if (entry.admission == Admission::rejected) {
        shared->rejected.fetch_add(1);
        continue;
      }
      ASSERT_EQ(entry.admission, Admission::probe);
      shared->probes.fetch_add(1);
      const std::uint32_t now_out = shared->out.fetch_add(1) + 1;
      for (std::uint32_t seen = shared->most.load();
           seen < now_out && !shared->most.compare_exchange_weak(seen, now_out);) {
      }
      shared->out.fetch_sub(1);  // before the slot is free for another
      const RecordResult recorded =
          breaker.record_outcome(entry.token, i % 2 == 0 ? Outcome::success : Outcome::ignored);
      ASSERT_EQ(recorded.error, Errc::ok);
      ASSERT_NE(recorded.status, RecordStatus::stale);
    }
  });
  EXPECT_LE(shared->most.load(), kLimit);
  EXPECT_EQ(shared->reported.count(TransitionReason::cooldown_elapsed), 1U);
  EXPECT_EQ(shared->reported.total(), 1U);
  EXPECT_EQ(shared->probes.load() + shared->rejected.load(), std::uint64_t{kProcesses} * 250 * kScale);
  EXPECT_EQ(breaker.snapshot().record.rejected, shared->rejected.load());
  EXPECT_EQ(breaker.snapshot().record.state, CircuitState::half_open);
  expect_records_accounted(test.segment(), kProcesses);
}

TEST(ManyProcesses, LoseNoOutcome) {
  const TestSegment test = make_segment();
  const BreakerConfig config{.name = "b", .failure_threshold = {.failures = 16'000, .window = 16'000}};
  const SharedClock clock;
  Breaker breaker = open(test.segment(), config, clock);
  struct Shared {
    std::atomic<std::uint64_t> successes{0}, failures{0};
  };
  const SharedArea<Shared> shared;
  run_processes(kProcesses, [&](std::uint32_t i) {
    Breaker own = i % 2 == 0 ? breaker : open(test.attach(), config, clock);
    for (std::uint32_t n = 0; n < 200 * kScale; ++n) {
      const AdmitResult entry = own.admit();
      ASSERT_EQ(entry.admission, Admission::allowed);
      const bool failure = (n + i) % 3 == 0;
      const RecordResult recorded = own.record_outcome(entry.token, failure ? Outcome::failure : Outcome::success);
      ASSERT_EQ(recorded.error, Errc::ok);
      ASSERT_EQ(recorded.status, RecordStatus::counted);
      (failure ? shared->failures : shared->successes).fetch_add(1);
    }
  });
  const StateRecord seen = breaker.snapshot().record;
  EXPECT_EQ(seen.failures, shared->failures.load());
  EXPECT_EQ(seen.successes, shared->successes.load());
  EXPECT_EQ(seen.failures + seen.successes, std::uint64_t{kProcesses} * 200 * kScale);
  expect_ring_unbroken(test.segment(), 0);
}

TEST(ManyProcesses, OpenAndCloseOneBreakerTogetherAndReportEachTransitionOnce) {
  constexpr std::uint32_t kFailures = 40;
  const std::uint32_t rounds = 10 * kScale;
  const TestSegment test = make_segment();
  const SharedClock clock;
  const BreakerConfig config{.name = "b",
                             .failure_threshold = {.failures = kFailures, .window = 50},
                             .cooldown = {Millis{10}},
                             .success_threshold = 3,
                             .probe_limit = 2};
  Breaker breaker = open(test.segment(), config, clock);
  struct Shared {
    std::atomic<std::uint64_t> counted{0}, rejected{0}, late{0};
    Reported reported;
  };
  const SharedArea<Shared> shared;
  const SharedBarrier barrier(kProcesses);
  run_processes(kProcesses, [&](std::uint32_t i) {
    for (std::uint32_t round = 0; round < rounds; ++round) {
      const AdmitResult entry = breaker.admit();
      ASSERT_EQ(entry.admission, Admission::allowed);
      ASSERT_TRUE(barrier.arrive_and_wait());
      for (RecordStatus status = RecordStatus::counted; status == RecordStatus::counted;) {
        const RecordResult recorded = breaker.record_outcome(entry.token, Outcome::failure);
        ASSERT_EQ(recorded.error, Errc::ok);
        shared->reported.add(recorded.transition);
        status = recorded.status;
        if (status == RecordStatus::counted) shared->counted.fetch_add(1);
      }
      const AdmitResult after = breaker.admit();
      ASSERT_EQ(after.admission, Admission::rejected);
      shared->rejected.fetch_add(1);
      ASSERT_TRUE(barrier.arrive_and_wait());
      if (i == 0) {
        ASSERT_EQ(shared->counted.exchange(0), kFailures) << "round " << round;
        const StateRecord seen = breaker.snapshot().record;
        ASSERT_EQ(seen.failures, kFailures);
        ASSERT_EQ(seen.rejected, shared->rejected.exchange(0)) << "round " << round;
        clock.advance(Millis{10});
      }
      ASSERT_TRUE(barrier.arrive_and_wait());
      while (breaker.peek().state != CircuitState::closed) {
        const AdmitResult probe = breaker.admit();
        shared->reported.add(probe.transition);
        if (probe.admission != Admission::probe) continue;
        shared->reported.add(breaker.record_outcome(probe.token, Outcome::success).transition);
      }
      ASSERT_EQ(breaker.record_outcome(entry.token, Outcome::failure).status, RecordStatus::stale)
          << "of the period before";
      ASSERT_TRUE(barrier.arrive_and_wait());
    }
  });
  EXPECT_EQ(shared->reported.count(TransitionReason::failure_threshold_reached), rounds);
  EXPECT_EQ(shared->reported.count(TransitionReason::cooldown_elapsed), rounds);
  EXPECT_EQ(shared->reported.count(TransitionReason::probe_succeeded), rounds);
  EXPECT_EQ(shared->reported.total(), 3 * rounds);
  expect_ring_unbroken(test.segment(), 0);
  expect_records_accounted(test.segment(), 2 * kProcesses);
}

TEST(ManyProcesses, CountEveryRejectionOfAnOutage) {
  const TestSegment test = make_segment();
  const SharedClock clock;
  const BreakerConfig config{.name = "b", .failure_threshold = {.failures = 1, .window = 1}};
  Breaker breaker = open(test.segment(), config, clock);
  trip(breaker);
  run_processes(kProcesses, [&](std::uint32_t) {
    for (std::uint32_t n = 0; n < 500 * kScale; ++n)
      ASSERT_EQ(breaker.admit().admission, Admission::rejected);
  });
  EXPECT_EQ(breaker.snapshot().record.rejected, std::uint64_t{kProcesses} * 500 * kScale);
}

TEST(ManyProcesses, AttachAndRegisterWhileOthersRecord) {
  constexpr std::uint32_t kNames = 12;
  const std::uint32_t rounds = 10 * kScale;
  const TestSegment test = make_segment(kNames + 1);
  const SharedClock clock;
  const auto config = [](std::uint32_t number) {
    return BreakerConfig{.name = "b" + std::to_string(number),
                         .failure_threshold = {.failures = 3'000, .window = 3'000}};
  };
  Breaker busy = open(test.segment(), config(kNames), clock);
  struct Shared {
    std::array<std::atomic<std::uint64_t>, kNames + 1> counted{};
  };
  const SharedArea<Shared> shared;
  run_processes(kProcesses, [&](std::uint32_t i) {
    const auto record = [&](Breaker& breaker, std::uint32_t number) {
      const RecordResult recorded = breaker.record_outcome(breaker.admit().token, Outcome::failure);
      ASSERT_EQ(recorded.error, Errc::ok);
      ASSERT_EQ(recorded.status, RecordStatus::counted);
      shared->counted.at(number).fetch_add(1);
    };
    for (std::uint32_t round = 0; round < rounds; ++round) {
      record(busy, kNames);
      if (i % 2 == 0) continue;
      const Segment attached = test.attach();
      for (std::uint32_t name = 0; name < kNames; ++name) {
        Breaker breaker = open(attached, config(name), clock);
        record(breaker, name);
      }
    }
  });
  for (std::uint32_t name = 0; name <= kNames; ++name) {
    EXPECT_EQ(open(test.segment(), config(name), clock).snapshot().record.failures, shared->counted.at(name).load())
        << config(name).name;
    expect_ring_unbroken(test.segment(), name);
  }
  // Nobody died, but who lost a race for a name may have left the place it had prepared.
  expect_records_accounted(test.segment(), 0);
}

TEST(ForkedChild, GoesOnWithTheStorageOfItsParent) {
  const TestSegment test = make_segment();
  const SharedClock clock;
  Breaker breaker = open(test.segment(), {.name = "b", .failure_threshold = {.failures = 3, .window = 10}}, clock);
  const Token admitted_in_parent = breaker.admit().token;
  ASSERT_EQ(breaker.record_outcome(admitted_in_parent, Outcome::failure).status, RecordStatus::counted);
  ASSERT_EQ(run_in_child([&] {
              ASSERT_EQ(breaker.snapshot().record.failures, 1U);
              ASSERT_EQ(breaker.record_outcome(breaker.admit().token, Outcome::failure).status, RecordStatus::counted);
              ASSERT_EQ(breaker.record_outcome(breaker.admit().token, Outcome::failure).transition.value().to,
                        CircuitState::open);
              ASSERT_EQ(breaker.force_state(CircuitState::closed).error, Errc::ok);
              ASSERT_EQ(breaker.force_state(CircuitState::open).error, Errc::ok);
            }),
            exited(0));
  EXPECT_EQ(breaker.peek().state, CircuitState::open);
  EXPECT_EQ(breaker.force_state(CircuitState::closed).error, Errc::ok);
  expect_records_accounted(test.segment(), 2);
}

TEST(ForkedChild, HasNoSayInItsParentsPermits) {
  const TestSegment test = make_segment();
  const SharedClock clock;
  BasicBreaker<Breaker> breaker(
      open(test.segment(), {.name = "b", .failure_threshold = {.failures = 1, .window = 1}, .cooldown = {Millis{10}}},
           clock));
  trip(breaker.storage());
  clock.advance(Millis{10});
  auto acquired = breaker.try_acquire();
  ASSERT_TRUE(acquired);
  ASSERT_TRUE(acquired.permit().is_probe());
  ASSERT_EQ(run_in_child([&] {
              ASSERT_FALSE(acquired.permit().pending());
              ASSERT_EQ(acquired.permit().failure().status, RecordStatus::stale);
              ASSERT_TRUE(breaker.try_acquire().rejected()) << "the parent's probe is still out";
            }),
            exited(0));
  EXPECT_EQ(acquired.permit().success().status, RecordStatus::counted);
  EXPECT_EQ(breaker.state().state, CircuitState::closed);
}

class LostProbe : public ::testing::Test {
 protected:
  LostProbe() {
    trip(breaker);
    clock.advance(Millis{10});
  }
  const TestSegment test = make_segment();
  const SharedClock clock;
  Breaker breaker = open(test.segment(),
                         {.name = "b",
                          .failure_threshold = {.failures = 1, .window = 1},
                          .cooldown = {Millis{10}},
                          .probe_timeout = Millis{50}},
                         clock);
};

TEST_F(LostProbe, OfAKilledProcessComesBackWithTheLeaseAndNotBefore) {
  ASSERT_EQ(run_in_child([&] {
              if (breaker.admit().admission == Admission::probe) ::kill(::getpid(), SIGKILL);
            }),
            killed_by(SIGKILL));
  EXPECT_EQ(breaker.admit().admission, Admission::rejected);
  clock.advance(Millis{50} - Micros{1});
  EXPECT_EQ(breaker.admit().admission, Admission::rejected);
  clock.advance(Micros{1});
  const AdmitResult probe = breaker.admit();
  EXPECT_EQ(probe.admission, Admission::probe);
  EXPECT_FALSE(probe.transition) << "the same HalfOpen period goes on";
  EXPECT_EQ(breaker.record_outcome(probe.token, Outcome::success).transition.value().to, CircuitState::closed);
  expect_records_accounted(test.segment(), 1);
}

TEST_F(LostProbe, ThatReportsAfterItWasReclaimedIsStale) {
  Child sleeper = fork_child([&] {
    const AdmitResult probe = breaker.admit();
    ASSERT_EQ(probe.admission, Admission::probe);
    ::kill(::getpid(), SIGSTOP);
    ASSERT_EQ(breaker.record_outcome(probe.token, Outcome::failure).status, RecordStatus::stale);
  });
  ASSERT_TRUE(wait_until([&] { return breaker.peek().state == CircuitState::half_open; }));
  clock.advance(Millis{50});
  const AdmitResult probe = breaker.admit();
  ASSERT_EQ(probe.admission, Admission::probe);
  ASSERT_TRUE(wait_until([&] {
    siginfo_t info{};
    return ::waitid(P_PID, static_cast<id_t>(sleeper.pid()), &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == sleeper.pid();
  }));
  sleeper.kill(SIGCONT);
  EXPECT_EQ(sleeper.wait(), exited(0));
  EXPECT_EQ(breaker.peek().state, CircuitState::half_open) << "its failure opened nothing";
  EXPECT_EQ(breaker.record_outcome(probe.token, Outcome::success).transition.value().to, CircuitState::closed);
}

TEST(AllWorkers, KilledAtOnceAndStartedAgainFindTheStateTheyLeft) {
  TestSegment test = make_segment();
  const SharedClock clock;
  const BreakerConfig config{
      .name = "b", .failure_threshold = {.failures = 100, .window = 8'000}, .cooldown = {Millis{10}}};
  const SharedArea<std::atomic<std::uint64_t>> successes;
  const SharedBarrier all_recorded(kProcesses + 1);
  test.detach();
  {
    std::vector<Child> workers;
    for (std::uint32_t i = 0; i < kProcesses; ++i) {
      workers.push_back(fork_child([&, i] {
        Breaker breaker = open(test.attach(), config, clock);
        for (int n = 0; n < 100; ++n) {
          if (breaker.record_outcome(breaker.admit().token, Outcome::success).status == RecordStatus::counted)
            (*successes).fetch_add(1);
        }
        if (i == 0) (void)breaker.record_outcome(breaker.admit().token, Outcome::failure);
        ASSERT_TRUE(all_recorded.arrive_and_wait());
        for (;;)
          (void)breaker.snapshot();
      }));
    }
    ASSERT_TRUE(all_recorded.arrive_and_wait());
    for (const Child& worker : workers)
      worker.kill(SIGKILL);
    for (Child& worker : workers)
      EXPECT_EQ(worker.wait(), killed_by(SIGKILL));
  }
  run_processes(kProcesses, [&](std::uint32_t) {
    const StateRecord seen = open(test.attach(), config, clock).snapshot().record;
    ASSERT_EQ(seen.successes, kProcesses * 100U);
    ASSERT_EQ(seen.failures, 1U);
  });
  EXPECT_EQ((*successes).load(), kProcesses * 100U);
}

TEST(DeadOwner, ThatNobodyReapedIsDeadAllTheSame) {
  const TestSegment test = make_segment();
  const SharedClock clock;
  Breaker breaker = open(test.segment(), {.name = "b"}, clock);
  const Child zombie = fork_child([&] {
    core::RecordPool<core::StdEnv> pool(test->view(), test->presence());
    for (Errc error = Errc::ok; pool.claim(error) != 0;) {
    }
    ::kill(::getpid(), SIGKILL);
  });
  ASSERT_TRUE(zombie.ends_within());
  EXPECT_EQ(breaker.force_state(CircuitState::open).error, Errc::ok);
  expect_records_accounted(test.segment(), test->geometry().records);
}

// ---- signal handlers ------------------------------------------------------------------------------------------------

// In microseconds: many of the handler's own times apart.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr suseconds_t kInterruptEvery = 1'000;
#else
constexpr suseconds_t kInterruptEvery = 50;
#endif

struct Interrupted {
  Breaker* breaker;
  std::uint64_t counted;
  std::atomic<std::uint64_t> runs;  // also read beside the handler
};
Interrupted* g_interrupted = nullptr;

void record_in_handler(int) {
  const RecordResult recorded = g_interrupted->breaker->record_outcome(
      g_interrupted->breaker->admit().token, g_interrupted->runs++ % 2 == 0 ? Outcome::failure : Outcome::success);
  if (recorded.status == RecordStatus::counted) ++g_interrupted->counted;
}

TEST(SignalHandler, MayRecordWhileItInterruptsARecord) {
  const TestSegment test = make_segment();
  const SharedClock clock;
  ASSERT_EQ(run_in_child([&] {
              Breaker breaker = open(test.segment(),
                                     {.name = "b", .failure_threshold = {.failures = 60'000, .window = 60'000}}, clock);
              Interrupted interrupted{.breaker = &breaker, .counted = 0, .runs = 0};
              g_interrupted = &interrupted;
              struct sigaction action {};
              action.sa_handler = record_in_handler;
              ASSERT_EQ(::sigaction(SIGALRM, &action, nullptr), 0);
              const itimerval often{.it_interval = {.tv_sec = 0, .tv_usec = kInterruptEvery},
                                    .it_value = {.tv_sec = 0, .tv_usec = kInterruptEvery}};
              ASSERT_EQ(::setitimer(ITIMER_REAL, &often, nullptr), 0);
              constexpr std::uint64_t kInterruptions = 10;
              constexpr std::uint64_t kMostRecords = 50'000;
              std::uint64_t records = 0;
              for (; records < 20'000 || (interrupted.runs < kInterruptions && records < kMostRecords); ++records) {
                const RecordResult recorded = breaker.record_outcome(breaker.admit().token, Outcome::success);
                ASSERT_EQ(recorded.error, Errc::ok);
                ASSERT_EQ(recorded.status, RecordStatus::counted);
              }
              const itimerval never{};
              ASSERT_EQ(::setitimer(ITIMER_REAL, &never, nullptr), 0);
              ASSERT_EQ(::signal(SIGALRM, SIG_IGN), &record_in_handler);
              const StateRecord seen = breaker.snapshot().record;
              ASSERT_GE(interrupted.runs.load(), kInterruptions);
              ASSERT_EQ(interrupted.counted, interrupted.runs.load());
              ASSERT_EQ(seen.successes + seen.failures, records + interrupted.counted);
            }),
            exited(0));
}

}  // namespace
}  // namespace shmcb::test
