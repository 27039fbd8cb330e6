// SPDX-License-Identifier: BSD-3-Clause
// What the process tests do, done by threads on one mapping: ThreadSanitizer follows threads, not forked processes.
#include <array>
#include <atomic>
#include <cstdint>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "process/census.hpp"
#include "process/shared_clock.hpp"
#include "process/torture.hpp"
#include "shmcb/shm_storage.hpp"
#include "support/test_segment.hpp"
#include "support/threads.hpp"

namespace shmcb::test {
namespace {

constexpr std::size_t kThreads = 4;

TEST(TorturedThreads, LeaveEveryBreakerSound) {
  std::mt19937_64 seeds(test_seed());
  constexpr std::uint32_t kBreakers = 4;
  const TestSegment test(tortured_options(kBreakers));
  const TortureStage stage{.options = test.options(), .breakers = kBreakers};
  const std::array<std::uint64_t, kThreads> seed{seeds(), seeds(), seeds(), seeds()};
  // Registered in this order, so that the place of a breaker is its number.
  TortureWorker watching(stage, test.segment(), kThreads, seeds(), Company::watchers);
  run_threads(kThreads, [&](std::size_t i) {
    // Half of them share one attachment, as threads of a process do; the others have one each, as processes do.
    TortureWorker worker(stage, i % 2 == 0 ? test.segment() : test.attach(), i, seed.at(i), Company::threads);
    for (int n = 0; n < 5'000; ++n)
      worker.step();
    EXPECT_EQ(worker.complaint(), "");
  });
  const auto require = [](bool holds, const std::string& what) { EXPECT_TRUE(holds) << what; };
  for (std::uint32_t i = 0; i < kBreakers; ++i) {
    expect_ring_unbroken(test.segment(), i);
    lead_through_states(watching, stage.clock, i, require);
    expect_ring_unbroken(test.segment(), i);
    check_conservation(stage, i, watching.breaker(i), require);
  }
  EXPECT_EQ(watching.complaint(), "");
  // Whoever loses the race for a swapped-out record's ownership leaves it to be taken back.
  expect_records_accounted(test.segment(), test->geometry().records);
}

TEST(ManyThreads, OpenOneBreakerTogetherAndLoseNoOutcome) {
  constexpr std::uint32_t kFailures = 30;
  const SharedClock clock;
  const TestSegment test({.breakers = 1, .ring_slots = 1'024, .participants = 4, .epoch = SharedClock::kStart});
  auto breaker = ShmStorage<SharedClock>::open(
      test.segment(),
      {.name = "b", .failure_threshold = {.failures = kFailures, .window = 500}, .cooldown = {Millis{10}}},
      OnMismatch::refuse, clock);
  ASSERT_TRUE(breaker);
  for (int round = 0; round < 20; ++round) {
    std::atomic<std::uint32_t> failures{0};
    std::atomic<std::uint32_t> successes{0};
    std::atomic<std::uint32_t> openings{0};
    const Token token = breaker->admit().token;
    run_threads(kThreads, [&](std::size_t) {
      for (std::uint32_t n = 0;; ++n) {
        const Outcome outcome = n % 3 == 0 ? Outcome::success : Outcome::failure;
        const RecordResult recorded = breaker->record_outcome(token, outcome);
        if (recorded.transition) openings.fetch_add(1);
        if (recorded.status != RecordStatus::counted) break;
        (outcome == Outcome::success ? successes : failures).fetch_add(1);
      }
    });
    const StateRecord seen = breaker->snapshot().record;
    EXPECT_EQ(seen.state, CircuitState::open);
    EXPECT_EQ(seen.failures, kFailures);
    EXPECT_EQ(failures.load(), kFailures);
    EXPECT_EQ(seen.successes, successes.load());
    EXPECT_EQ(openings.load(), 1U);
    clock.advance(Millis{10});
    std::atomic<std::uint32_t> closings{0};
    run_threads(kThreads, [&](std::size_t) {
      const AdmitResult probe = breaker->admit();
      if (probe.admission != Admission::probe) return;
      if (breaker->record_outcome(probe.token, Outcome::success).transition) closings.fetch_add(1);
    });
    EXPECT_EQ(closings.load(), 1U);
  }
  expect_ring_unbroken(test.segment(), 0);
}

}  // namespace
}  // namespace shmcb::test
