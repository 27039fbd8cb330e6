// SPDX-License-Identifier: BSD-3-Clause
// A record is killed at its machine instructions, one after the other, by a tracer: the production code as the compiler
// made it, not only at its atomic accesses.
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <cstdint>
#include <cstdio>
#include <string>

#include <gtest/gtest.h>

#include "process/torture.hpp"
#include "process/victim.hpp"

namespace shmcb::test {
namespace {

BreakerConfig small_config() {
  return {.name = "b",
          .failure_threshold = {.failures = 3, .window = 10, .within = Millis{1'000'000}},
          .cooldown = {Millis{100}},
          .probe_timeout = Millis{50}};
}

constexpr int kNoTracing = 77;

enum class Killed : std::uint8_t { there, not_there, nowhere };

/// Performs `op` in a child, lets it execute `instructions` of it, and kills it. `not_there`: it had ended by then.
Killed kill_after(Stage& stage, const Op& op, std::uint64_t instructions) {
  Child child = fork_child([&]() -> int {
    if (!stage.segment().presence().ensure_current()) return 1;
    ScriptedBreaker storage = stage.runner().storage();
    const Token token = stage.runner().tokens()[op.attempt];
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) return kNoTracing;
    ::raise(SIGSTOP);
    const bool recorded = storage.record_outcome(token, op.outcome).error == Errc::ok;
    return recorded ? 0 : 1;
  });
  int status = 0;
  if (::waitpid(child.pid(), &status, 0) != child.pid()) return Killed::nowhere;
  for (std::uint64_t step = 0; WIFSTOPPED(status) && step < instructions; ++step) {
    if (::ptrace(PTRACE_SINGLESTEP, child.pid(), nullptr, nullptr) != 0) break;
    if (::waitpid(child.pid(), &status, 0) != child.pid()) return Killed::nowhere;
  }
  if (!WIFSTOPPED(status)) {
    child.reaped();
    if (WIFEXITED(status) && WEXITSTATUS(status) == kNoTracing) return Killed::nowhere;
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "it ended by itself, but not well";
    return Killed::not_there;
  }
  child.kill();
  EXPECT_EQ(child.wait(), killed_by(SIGKILL));
  return Killed::there;
}

/// `stride` instructions apart (a step costs a tracer 50 us) from a random one of the first on, until the operation is
/// over. Of `n` outcomes there must be n or n + 1.
void explore(const std::string& name, const Script& prepare, const Op& op, std::uint64_t stride, bool trips = false) {
  std::uint64_t kills = 0;
  for (std::uint64_t instructions = test_seed() % stride;; instructions += stride, ++kills) {
    SCOPED_TRACE(name + ", killed after " + std::to_string(instructions) + " instructions");
    Stage stage(small_config());
    stage.runner().run(prepare);
    const StateRecord before = stage.runner().storage().snapshot().record;
    const Killed killed = kill_after(stage, op, instructions);
    if (killed == Killed::nowhere) GTEST_SKIP() << "processes may not be traced here";
    const SnapshotResult after = stage.runner().storage().snapshot();
    ASSERT_EQ(after.error, Errc::ok);
    const std::uint64_t more = after.record.successes + after.record.failures - before.successes - before.failures;
    ASSERT_LE(more, 1U) << "the killed call counts once at most";
    ASSERT_TRUE(more == 1 || killed == Killed::there);
    if (trips) {
      // Killed between deciding and opening: the next record opens the breaker.
      const RecordResult next = stage.runner().storage().record_outcome(stage.runner().tokens()[2], Outcome::failure);
      ASSERT_EQ(next.error, Errc::ok);
      ASSERT_EQ(stage.runner().storage().peek().state, CircuitState::open);
    }
    expect_ring_unbroken(stage.segment(), 0);
    expect_every_state_can_be_left(stage.runner());
    expect_ring_unbroken(stage.segment(), 0);
    expect_records_accounted(stage.segment(), 2);
    if (::testing::Test::HasFailure() || killed == Killed::not_there) break;
  }
  std::printf("[ kills    ] %s: %lu\n", name.c_str(), static_cast<unsigned long>(kills));
}

class KilledInstruction : public ::testing::Test {
 protected:
  KilledInstruction() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skipped = true;
#endif
  }
  void SetUp() override {
    if (skipped) GTEST_SKIP() << "sanitizers make of every instruction ten of their own";
  }
  bool skipped = false;
  const Script admitted{admit_as(0), admit_as(2)};
};

TEST_F(KilledInstruction, OfASuccessLeavesItCountedOrNot) {
  explore("success", admitted, success_of(0), 13);
}

TEST_F(KilledInstruction, OfAFailureLeavesItCountedOrNot) {
  explore("failure", admitted, failure_of(0), 53);
}

TEST_F(KilledInstruction, OfATripLeavesABreakerThatOpensAtTheNextRecordAtTheLatest) {
  explore("trip", admitted + Script{failure_of(2), failure_of(2)}, failure_of(0), 379, true);
}

}  // namespace
}  // namespace shmcb::test
