// SPDX-License-Identifier: BSD-3-Clause
#include "shmcb/permit.hpp"

#include <memory>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "breaker/scripted_storage.hpp"
#include "shmcb/failure.hpp"
#include "shmcb/memory_storage.hpp"

namespace shmcb {
namespace {

using test::Script;
using test::ScriptedStorage;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using TestPermit = Permit<ScriptedStorage>;

static_assert(!std::is_copy_constructible_v<TestPermit> && !std::is_copy_assignable_v<TestPermit>);
static_assert(std::is_nothrow_move_constructible_v<TestPermit> && std::is_nothrow_move_assignable_v<TestPermit>);
static_assert(std::is_nothrow_destructible_v<TestPermit> && std::is_nothrow_default_constructible_v<TestPermit>);

class PermitTest : public ::testing::Test {
 protected:
  std::shared_ptr<Script> script = std::make_shared<Script>();
  BasicBreaker<ScriptedStorage> breaker{ScriptedStorage{script}};

  TestPermit acquire(std::uint64_t id = 1) {
    script->admits.push_back(test::probe(id));
    TestPermit permit = breaker.try_acquire().permit();
    script->operations.clear();
    return permit;
  }
};

TEST_F(PermitTest, RecordsItsVerdictUnderItsToken) {
  acquire(5).success();
  EXPECT_THAT(script->operations, ElementsAre("record success"));
  EXPECT_EQ(script->tokens.back().period, 5U);
  acquire().failure();
  EXPECT_THAT(script->operations, ElementsAre("record failure"));
  acquire().ignore();
  EXPECT_THAT(script->operations, ElementsAre("record ignored"));
  acquire().settle(Outcome::failure);
  EXPECT_THAT(script->operations, ElementsAre("record failure"));
}

TEST_F(PermitTest, AnswersWhatTheStorageDid) {
  script->records.push_back({.status = RecordStatus::ignored});
  const Recorded recorded = acquire().success();
  EXPECT_EQ(recorded.error, Errc::ok);
  EXPECT_EQ(recorded.status, RecordStatus::ignored);
  script->records.push_back({.error = Errc::corrupt});
  EXPECT_EQ(acquire().success().error, Errc::corrupt);
}

TEST_F(PermitTest, TakesOneVerdictOnly) {
  TestPermit permit = acquire();
  EXPECT_TRUE(permit.pending());
  EXPECT_EQ(permit.success().status, RecordStatus::counted);
  EXPECT_FALSE(permit.pending());
  EXPECT_EQ(permit.failure().status, RecordStatus::stale);
  EXPECT_EQ(permit.success().status, RecordStatus::stale);
  EXPECT_THAT(script->operations, ElementsAre("record success"));
}

TEST_F(PermitTest, IsSettledEvenWhereTheStorageFails) {
  script->records.push_back({.error = Errc::corrupt});
  {
    TestPermit permit = acquire();
    EXPECT_EQ(permit.success().error, Errc::corrupt);
  }
  EXPECT_THAT(script->operations, ElementsAre("record success"));
}

TEST_F(PermitTest, ThatIsDroppedRecordsIgnored) {
  { const TestPermit permit = acquire(); }
  EXPECT_THAT(script->operations, ElementsAre("abandon"));
}

TEST_F(PermitTest, ThatIsDroppedFreesItsProbeSlot) {
  auto storage = MemoryStorage<>::open({.name = "probes"}).value();
  BasicBreaker<MemoryStorage<>> real{storage};
  real.force(CircuitState::half_open);
  for (int i = 0; i < 3; ++i) {
    auto acquired = real.try_acquire();
    EXPECT_TRUE(acquired);
    EXPECT_TRUE(acquired.permit().is_probe());
    EXPECT_TRUE(real.try_acquire().rejected());
  }
}

TEST_F(PermitTest, ThatIsMovedLeavesAnEmptyOneBehind) {
  TestPermit first = acquire(3);
  TestPermit second{std::move(first)};
  EXPECT_FALSE(first.pending());  // NOLINT(bugprone-use-after-move): what is promised
  EXPECT_EQ(first.failure().status, RecordStatus::stale);
  EXPECT_TRUE(second.pending());
  EXPECT_EQ(second.token().period, 3U);
  second.success();
  EXPECT_THAT(script->operations, ElementsAre("record success"));
}

TEST_F(PermitTest, ThatIsAssignedSettlesWhatItHeldBefore) {
  TestPermit permit = acquire(1);
  permit = acquire(2);
  EXPECT_THAT(script->operations, ElementsAre("abandon"));
  EXPECT_EQ(script->tokens.back().period, 1U);
  permit.success();
  EXPECT_EQ(script->tokens.back().period, 2U);
  permit = TestPermit{};
  EXPECT_THAT(script->operations, ElementsAre("abandon", "record success"));
}

TEST_F(PermitTest, ThatIsAssignedToItselfStaysPending) {
  TestPermit permit = acquire();
  TestPermit& same = permit;
  permit = std::move(same);
  EXPECT_TRUE(permit.pending());
  EXPECT_THAT(script->operations, IsEmpty());
  permit.success();
  EXPECT_THAT(script->operations, ElementsAre("record success"));
}

TEST_F(PermitTest, ThatIsEmptyTouchesNothing) {
  TestPermit permit;
  EXPECT_FALSE(permit.pending());
  EXPECT_FALSE(permit.is_probe());
  EXPECT_EQ(permit.success().status, RecordStatus::stale);
  EXPECT_EQ(permit.release().admission, Admission::rejected);
  EXPECT_THAT(script->operations, IsEmpty());
}

TEST_F(PermitTest, ThatIsReleasedLeavesTheVerdictToTheHolderOfTheToken) {
  Token token;
  {
    TestPermit permit = acquire(9);
    token = permit.release();
    EXPECT_FALSE(permit.pending());
  }
  EXPECT_THAT(script->operations, IsEmpty());
  EXPECT_EQ(token.period, 9U);
  EXPECT_EQ(breaker.record(token, Outcome::success).status, RecordStatus::counted);
  EXPECT_THAT(script->operations, ElementsAre("record success"));
}

TEST_F(PermitTest, SaysWhetherItIsAProbe) {
  EXPECT_TRUE(acquire().is_probe());
  EXPECT_FALSE(breaker.try_acquire().permit().is_probe());
}

TEST_F(PermitTest, LivesInContainers) {
  std::vector<TestPermit> permits;
  for (std::uint64_t id = 1; id <= 8; ++id)
    permits.push_back(acquire(id));
  EXPECT_THAT(script->operations, IsEmpty());  // growing moves, and settles nothing
  permits.clear();
  EXPECT_EQ(script->tokens.size(), 8U);
}

TEST_F(PermitTest, MayBeSettledOnAnotherThread) {
  std::thread{[permit = acquire()]() mutable { permit.success(); }}.join();
  EXPECT_THAT(script->operations, ElementsAre("record success"));
}

TEST(PermitThreads, SettleEachExactlyOnce) {
  constexpr std::uint32_t kThreads = 4;
  constexpr std::uint32_t kPermits = 500;  // arbitrary
  BasicBreaker<MemoryStorage<>> breaker{MemoryStorage<>::open({.name = "threads",
                                                               .failure_threshold = {.failures = kThreads * kPermits,
                                                                                     .window = kThreads * kPermits + 1,
                                                                                     .within = std::chrono::hours{1}}})
                                            .value()};
  std::vector<std::thread> threads;
  for (std::uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&breaker] {
      for (std::uint32_t i = 0; i < kPermits; ++i) {
        auto acquired = breaker.try_acquire();
        ASSERT_TRUE(acquired);
        if (i % 3 == 0) acquired.permit().success();
        acquired.permit().failure();
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  const Metrics metrics = breaker.metrics().metrics;
  EXPECT_EQ(metrics.successes + metrics.failures, kThreads * kPermits);
  EXPECT_EQ(metrics.successes, kThreads * ((kPermits + 2) / 3));
}

}  // namespace
}  // namespace shmcb
