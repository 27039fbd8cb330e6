// SPDX-License-Identifier: BSD-3-Clause
// Processes do everything to a few breakers at random while they are killed, stopped, continued and started again at
// random. Bounded by what happens to them, not by time; shmcb-prove-torture does the same for as long as it is told to.
#include <cstdint>
#include <cstdio>

#include <gtest/gtest.h>

#include "process/torture_run.hpp"

namespace shmcb::test {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kActs = 100;
#else
constexpr std::uint64_t kActs = 250;
#endif

TEST(TorturedProcesses, LeaveEveryBreakerSound) {
  TortureRun run({.workers = 6, .breakers = 6, .seed = test_seed()});
  while (run.acts() < kActs && run.failures().empty())
    run.act();
  if (run.failures().empty()) run.finish();
  for (const std::string& failure : run.failures())
    ADD_FAILURE() << failure;
  if (HasFailure()) run.dump(stdout);
  const TortureTotals& totals = run.totals();
  std::printf("[ torture  ] %lu checks; %lu kills, %lu stops, %lu breakers recycled\n",
              static_cast<unsigned long>(totals.checks), static_cast<unsigned long>(totals.kills),
              static_cast<unsigned long>(totals.stops), static_cast<unsigned long>(totals.recycled));
}

}  // namespace
}  // namespace shmcb::test
