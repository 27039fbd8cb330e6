// SPDX-License-Identifier: BSD-3-Clause
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "breaker/scripted_storage.hpp"
#include "shmcb/failure.hpp"
#include "shmcb/memory_storage.hpp"
#include "shmcb/permit.hpp"

namespace shmcb {
namespace {

using test::Script;
using test::ScriptedStorage;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

static_assert(!std::is_copy_constructible_v<BasicBreaker<ScriptedStorage>>);
static_assert(!std::is_move_constructible_v<BasicBreaker<ScriptedStorage>>, "permits point to it");
static_assert(noexcept(std::declval<BasicBreaker<ScriptedStorage>&>().try_acquire()));

struct Heard {
  std::vector<TransitionReason> transitions{};
  std::vector<Errc> failures{};

  TransitionSink transition_sink() {
    return {this, [](void* self, const CircuitTransition& transition) noexcept {
              static_cast<Heard*>(self)->transitions.push_back(transition.reason);
            }};
  }
  FailureSink failure_sink() {
    return {this, [](void* self, Errc cause) noexcept { static_cast<Heard*>(self)->failures.push_back(cause); }};
  }
};

class BasicBreakerTest : public ::testing::Test {
 protected:
  std::shared_ptr<Script> script = std::make_shared<Script>();
  Heard heard;
  BasicBreaker<ScriptedStorage> breaker{ScriptedStorage{script}, heard.transition_sink(), heard.failure_sink()};
};

TEST_F(BasicBreakerTest, GrantsAPermit) {
  auto acquired = breaker.try_acquire();
  EXPECT_TRUE(acquired);
  EXPECT_FALSE(acquired.rejected());
  EXPECT_EQ(acquired.error(), Errc::ok);
  EXPECT_TRUE(acquired.permit().pending());
  const auto permit = std::move(acquired).permit();
  EXPECT_TRUE(acquired);  // NOLINT(bugprone-use-after-move): the answer stays
  EXPECT_TRUE(permit.pending());
}

TEST_F(BasicBreakerTest, RejectsWithAllThereIsToKnowInOneOperation) {
  script->admits.push_back(test::rejected(Millis{250}, CircuitState::half_open));
  {
    auto acquired = breaker.try_acquire();
    EXPECT_FALSE(acquired);
    ASSERT_TRUE(acquired.rejected());
    EXPECT_EQ(acquired.rejection().breaker_name, "scripted");
    EXPECT_EQ(acquired.rejection().state, CircuitState::half_open);
    EXPECT_EQ(acquired.rejection().retry_after, Millis{250});
    EXPECT_EQ(acquired.rejection().retry_at, Instant{Millis{250}});
    EXPECT_FALSE(acquired.permit().pending());
  }
  EXPECT_THAT(script->operations, ElementsAre("admit"));
}

TEST_F(BasicBreakerTest, AnswersTheStoragesErrorAndCountsIt) {
  script->admits.push_back({.error = Errc::corrupt, .transition = test::opening()});
  auto acquired = breaker.try_acquire();
  EXPECT_FALSE(acquired);
  EXPECT_FALSE(acquired.rejected());
  EXPECT_EQ(acquired.error(), Errc::corrupt);
  EXPECT_FALSE(acquired.permit().pending());
  EXPECT_EQ(breaker.storage_failures(), 1U);
  EXPECT_THAT(heard.transitions, IsEmpty());  // beside an error nothing is meaningful
  EXPECT_THAT(heard.failures, IsEmpty());     // the caller has it
}

TEST_F(BasicBreakerTest, TellsTheSinksWhatHappened) {
  script->admits.push_back(test::rejected(Millis{1}));
  script->admits.back().transition = test::opening();
  EXPECT_TRUE(breaker.try_acquire().rejected());
  script->records.push_back({.status = RecordStatus::counted, .transition = test::opening()});
  script->records.push_back({.error = Errc::read_only});
  breaker.try_acquire().permit().failure();
  breaker.try_acquire().permit().failure();
  script->force.transition = test::opening();
  EXPECT_EQ(breaker.force_open(), Errc::ok);
  EXPECT_EQ(heard.transitions.size(), 3U);
  EXPECT_THAT(heard.failures, ElementsAre(Errc::read_only));
  EXPECT_EQ(breaker.storage_failures(), 1U);
}

TEST_F(BasicBreakerTest, DoesNotTellTheFailureSinkWhatItsCallerReports) {
  script->records.push_back({.error = Errc::read_only});
  EXPECT_EQ(breaker.try_acquire().permit().settle_unreported(Outcome::success).error, Errc::read_only);
  EXPECT_THAT(heard.failures, IsEmpty());
  EXPECT_EQ(breaker.storage_failures(), 1U);
}

TEST_F(BasicBreakerTest, NeedsNoSinks) {
  BasicBreaker<ScriptedStorage> silent{ScriptedStorage{script}};
  script->records.push_back({.transition = test::opening()});
  script->records.push_back({.error = Errc::read_only});
  silent.try_acquire().permit().failure();
  silent.try_acquire().permit().failure();
  EXPECT_EQ(silent.storage_failures(), 1U);
}

TEST_F(BasicBreakerTest, SaysWhetherACallHasAChance) {
  const auto can_call = [this](PeekResult peek) {
    script->peek = peek;
    return breaker.can_call();
  };
  EXPECT_TRUE(can_call({.state = CircuitState::closed}));
  EXPECT_TRUE(can_call({.state = CircuitState::half_open}));
  EXPECT_FALSE(can_call({.state = CircuitState::open, .cooldown_left = Millis{1}}));
  EXPECT_TRUE(can_call({.state = CircuitState::open, .cooldown_left = Millis{0}}));
  EXPECT_TRUE(can_call({.error = Errc::corrupt, .state = CircuitState::open, .cooldown_left = Millis{1}}));
  EXPECT_EQ(breaker.storage_failures(), 0U);
}

TEST_F(BasicBreakerTest, CanCallChangesNothing) {
  FakeClock clock;
  BasicBreaker<MemoryStorage<FakeClock>> real{
      MemoryStorage<FakeClock>::open({.name = "peek", .cooldown = {Millis{100}}}, clock).value()};
  real.force_open();
  EXPECT_FALSE(real.can_call());
  clock.advance(Millis{100});
  EXPECT_TRUE(real.can_call());
  EXPECT_EQ(real.state().state, CircuitState::open);
  EXPECT_EQ(real.metrics().metrics.rejected, 0U);
}

TEST_F(BasicBreakerTest, ShowsStateCountsAndHealth) {
  script->snapshot.record = {.state = CircuitState::open, .successes = 3, .failures = 2, .rejected = 1};
  script->degraded = true;
  script->force.error = Errc::read_only;
  EXPECT_EQ(breaker.force_closed(), Errc::read_only);
  const MetricsResult result = breaker.metrics();
  EXPECT_EQ(result.error, Errc::ok);
  EXPECT_EQ(result.metrics.state, CircuitState::open);
  EXPECT_EQ(result.metrics.successes, 3U);
  EXPECT_EQ(result.metrics.failures, 2U);
  EXPECT_EQ(result.metrics.rejected, 1U);
  EXPECT_TRUE(result.metrics.degraded);
  EXPECT_EQ(result.metrics.storage_failures, 1U);
}

TEST_F(BasicBreakerTest, ForcesEveryState) {
  EXPECT_EQ(breaker.force_open(), Errc::ok);
  EXPECT_EQ(breaker.force_closed(), Errc::ok);
  EXPECT_EQ(breaker.force(CircuitState::half_open), Errc::ok);
  EXPECT_THAT(script->operations, ElementsAre("force open", "force closed", "force half-open"));
  EXPECT_EQ(breaker.name(), "scripted");
}

BasicBreaker<AnyStorage> chosen_at_run_time(bool real) {
  if (!real) return BasicBreaker<AnyStorage>{AnyStorage{}};
  return BasicBreaker<AnyStorage>{MemoryStorage<>::open({.name = "any"}).value()};
}

TEST(BasicBreakerOfAnyStorage, TakesWhatAFactoryChose) {
  auto breaker = chosen_at_run_time(true);
  EXPECT_EQ(breaker.try_acquire().permit().success().status, RecordStatus::counted);
  auto nothing = chosen_at_run_time(false);
  EXPECT_EQ(nothing.try_acquire().error(), Errc::unusable);
}

}  // namespace
}  // namespace shmcb
