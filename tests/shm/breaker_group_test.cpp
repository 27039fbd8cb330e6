// SPDX-License-Identifier: BSD-3-Clause
// Groups of breakers: made on first use, limited, recycled when idle, and never mistaken for one another.
#include "shmcb/breaker_group.hpp"

#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shmcb/segment_observer.hpp"
#include "shmcb/segment_reader.hpp"
#include "support/kill_points.hpp"
#include "support/kill_step.hpp"
#include "support/processes.hpp"
#include "support/test_segment.hpp"
#include "support/threads.hpp"

namespace shmcb::test {
namespace {

using core::Bits;
using core::StdEnv;
using Group = BreakerGroup<FakeClock>;
using Member = Group::Member;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr Instant kStart{std::chrono::hours{1}};
constexpr Millis kIdle{10'000};
constexpr Millis kWithin{1'000};

GroupConfig config_of(std::uint32_t limit) {
  GroupConfig config{.name = "g", .limit = limit, .idle_after = kIdle};
  config.breaker.failure_threshold = {.failures = 2, .window = 10, .within = kWithin};
  return config;
}

class BreakerGroups : public ::testing::Test {
 protected:
  const TestSegment made_{{.breakers = 8, .participants = 8, .epoch = kStart}};
  FakeClock clock_{kStart};

  [[nodiscard]] Group open(const GroupConfig& config) const {
    auto group = Group::open(made_.segment(), config, clock_);
    EXPECT_TRUE(group) << group.error().message;
    return *std::move(group);
  }
  [[nodiscard]] static Member member(const Group& group, std::string_view name) {
    auto storage = group.breaker(name);
    EXPECT_TRUE(storage) << storage.error().message;
    return *std::move(storage);
  }
  [[nodiscard]] static RecordStatus complete(Member& breaker, Outcome outcome = Outcome::success) {
    const AdmitResult admitted = breaker.admit();
    EXPECT_EQ(to_string(admitted.error), "ok");
    EXPECT_EQ(admitted.admission, Admission::allowed);
    const RecordResult recorded = breaker.record_outcome(admitted.token, outcome);
    EXPECT_EQ(to_string(recorded.error), "ok");
    return recorded.status;
  }
  [[nodiscard]] std::set<std::string> listed() const {
    const auto reader = SegmentReader::open(made_.options());
    const auto breakers = reader->breakers(clock_.now());
    std::set<std::string> names;
    for (const BreakerInfo& info : *breakers) {
      EXPECT_FALSE(info.error) << info.error.message;
      EXPECT_TRUE(names.insert(info.name).second) << info.name << " twice";
    }
    EXPECT_EQ(reader->info()->bad_index_entries, 0U);
    return names;
  }
};

// ---- what a group is
// --------------------------------------------------------------------------------------------------------

TEST_F(BreakerGroups, RefuseWhatBreaksARuleAndNameFieldValueAndRule) {
  const auto refused = [&](auto change, std::string_view field, std::string_view value, std::string_view rule) {
    GroupConfig config = config_of(3);
    change(config);
    const auto group = Group::open(made_.segment(), config, clock_);
    ASSERT_FALSE(group);
    EXPECT_EQ(group.error().code, Errc::invalid_config);
    EXPECT_THAT(group.error().message, AllOf(HasSubstr(std::string{field} + " is "), HasSubstr(std::string{value}),
                                             HasSubstr(std::string{rule})));
  };
  refused([](GroupConfig& c) { c.name = ""; }, "name", "empty", "at least one of");
  refused([](GroupConfig& c) { c.name = "a b"; }, "name", "'a b'", "[A-Za-z0-9_.:-]");
  refused([](GroupConfig& c) { c.name = "a:b"; }, "name", "'a:b'", "the colon ends a group's name");
  refused([](GroupConfig& c) { c.name = std::string(127, 'n'); }, "name", "127 bytes", "at most 126 bytes");
  refused([](GroupConfig& c) { c.limit = 0; }, "limit", "0", "from 1 to 900000");
  refused([](GroupConfig& c) { c.limit = 900'001; }, "limit", "900001", "from 1 to 900000");
  refused([](GroupConfig& c) { c.idle_after = Millis{0}; }, "idle_after", "0 ms", "from 1 ms to 2^40 ms");
  refused([](GroupConfig& c) { c.breaker.probe_limit = 0; }, "probe_limit", "0", "from 1 to 32");
  refused([](GroupConfig& c) { c.breaker.failure_threshold.window = core::kMaxWindow + 1; }, "failure_threshold.window",
          std::to_string(core::kMaxWindow + 1), "in shared memory");
  const Group group = open(config_of(3));
  for (const std::string& name : {std::string{}, std::string{"a b"}, std::string(127, 'n')}) {
    const auto storage = group.breaker(name);
    ASSERT_FALSE(storage) << name;
    EXPECT_EQ(storage.error().code, Errc::invalid_config);
  }
  EXPECT_TRUE(group.breaker(std::string(126, 'n')));
  EXPECT_EQ(group.places(), 1U) << "a refused name takes no place";
}

TEST_F(BreakerGroups, HaveBreakersOfTheirOwnThatAllProcessesShare) {
  const Group group = open(config_of(3));
  Member a = member(group, "a");
  Member b = member(group, "b");
  EXPECT_EQ(a.name(), "g:a");
  EXPECT_EQ(a.settings().failures, 2U);
  EXPECT_EQ(complete(a, Outcome::failure), RecordStatus::counted);
  EXPECT_EQ(a.snapshot().record.failures, 1U);
  EXPECT_EQ(b.snapshot().record.failures, 0U);
  expect_success_in_child([&] {
    const Segment mine = made_.attach();
    const auto theirs = Group::open(mine, config_of(3), clock_);
    ASSERT_TRUE(theirs);
    Member same = member(*theirs, "a");
    EXPECT_EQ(complete(same, Outcome::failure), RecordStatus::counted);
  });
  EXPECT_EQ(a.snapshot().record.state, CircuitState::open);
  EXPECT_EQ(a.admit().admission, Admission::rejected);
  EXPECT_EQ(b.admit().admission, Admission::allowed);
  EXPECT_EQ(group.places(), 2U);
  EXPECT_EQ(listed(), (std::set<std::string>{"g:a", "g:b"}));
}

TEST_F(BreakerGroups, AgreeOnLimitAndIdleTime) {
  const Group group = open(config_of(3));
  GroupConfig other = config_of(4);
  other.idle_after = Millis{5};
  const auto refused = Group::open(made_.segment(), other, clock_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::config_mismatch);
  EXPECT_THAT(refused.error().message,
              AllOf(HasSubstr("limit (3 there, 4 here)"), HasSubstr("idle_after (10000 ms there, 5 ms here)")));
  other.on_mismatch = OnMismatch::adopt;
  EXPECT_EQ(open(other).limit(), 3U);
  other.on_mismatch = OnMismatch::replace;
  EXPECT_EQ(open(other).limit(), 4U);
  EXPECT_EQ(group.limit(), 4U) << "for all";
  EXPECT_EQ(group.idle_after(), Millis{5});
}

TEST_F(BreakerGroups, AgreeOnTheNumbersOfEachMember) {
  (void)member(open(config_of(3)), "a");
  GroupConfig other = config_of(3);
  other.breaker.failure_threshold.failures = 4;
  const auto refused = open(other).breaker("a");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::config_mismatch);
  EXPECT_THAT(refused.error().message, HasSubstr("failure_threshold.failures (2 there, 4 here)"));
  other.on_mismatch = OnMismatch::adopt;
  EXPECT_EQ(member(open(other), "a").settings().failures, 2U);
  other.on_mismatch = OnMismatch::replace;
  EXPECT_EQ(member(open(other), "a").settings().failures, 4U);
}

TEST_F(BreakerGroups, AndSingleBreakersRefuseEachOthersNames) {
  const Group group = open(config_of(3));
  (void)member(group, "a");
  const auto single = ShmStorage<FakeClock>::open(made_.segment(), {.name = "g:a"}, OnMismatch::adopt, clock_);
  ASSERT_FALSE(single);
  EXPECT_EQ(single.error().code, Errc::wrong_group);
  EXPECT_THAT(single.error().message, HasSubstr("'g:a'"));
  ASSERT_TRUE(ShmStorage<FakeClock>::open(made_.segment(), {.name = "g:b"}, OnMismatch::adopt, clock_));
  const auto taken = group.breaker("b");
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, Errc::wrong_group);
  EXPECT_EQ(group.places(), 1U);
}

TEST_F(BreakerGroups, AreAtMostSixtyFour) {
  for (std::uint32_t i = 0; i < core::kMaxGroups; ++i) {
    GroupConfig config = config_of(1);
    config.name += std::to_string(i);
    ASSERT_TRUE(Group::open(made_.segment(), config, clock_)) << i;
    ASSERT_TRUE(Group::open(made_.segment(), config, clock_)) << "there already " << i;
  }
  const auto one_more = Group::open(made_.segment(), config_of(1), clock_);
  ASSERT_FALSE(one_more);
  EXPECT_EQ(one_more.error().code, Errc::registry_full);
}

// ---- the limit
// --------------------------------------------------------------------------------------------------------------

TEST_F(BreakerGroups, AnswerAnErrorAtTheirLimitAndGrowNoFurther) {
  const Group group = open(config_of(3));
  for (const char* name : {"a", "b", "c"})
    (void)member(group, name);
  for (int i = 0; i < 3; ++i) {
    const auto refused = group.breaker("d");
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Errc::group_full);
    EXPECT_THAT(refused.error().message, AllOf(HasSubstr("group 'g'"), HasSubstr("3 breakers"), HasSubstr("'d'")));
  }
  EXPECT_EQ(group.places(), 3U);
  EXPECT_TRUE(group.breaker("b")) << "those that are there are found";
  for (int i = 0; i < 5; ++i)
    EXPECT_TRUE(ShmStorage<>::open(made_.segment(), {.name = "single-" + std::to_string(i)})) << "8 places in all";
}

TEST_F(BreakerGroups, AnswerAnErrorWhereTheSegmentIsFull) {
  const Group group = open(config_of(100));
  for (int i = 0; i < 8; ++i)
    (void)member(group, std::to_string(i));
  const auto refused = group.breaker("d");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::registry_full);
  clock_.advance(kIdle);
  EXPECT_TRUE(group.breaker("d")) << "an idle one's place, also below the limit";
}

/// Registers as another environment does.
template <class Env>
[[nodiscard]] Errc add(const Segment& segment, const Group& group, const std::string& name, rules::Tick now) {
  const auto view = segment.view().in_environment<Env>();
  core::Registry<Env> registry(view, segment.presence());
  core::Member member;
  member.group = core::HashName{}(group.name());
  if (core::Groups<Env>(view).open(member.group, member.entry) != Errc::ok) return Errc::corrupt;
  core::BreakerCell<Env> cell;
  bool created = false;
  BreakerConfig config = config_of(1).breaker;
  config.name = group.name() + ":" + name;
  return registry.find_or_add(config.name, settings_of(config), now, cell, created, member);
}

/// Lets others run now and then. (Before each access, one operation took seconds on a machine that is busy with other
/// things: each time everything else has its turn first.)
struct YieldStep {
  static void step() noexcept {
    static std::uint64_t random = static_cast<std::uint64_t>(::getpid()) | 1U;
    random = random * 6'364'136'223'846'793'005U + 1'442'695'040'888'963'407U;
    if (random >> 59U == 0) ::sched_yield();  // one in 32
  }
};
using YieldEnv = core::AtomicEnv<YieldStep>;

TEST_F(BreakerGroups, KeepTheirLimitExactlyWhenProcessesRaceForTheLastPlaces) {
  constexpr std::uint32_t kProcesses = 4;
  constexpr int kRounds = 20;
  std::vector<TestSegment> segments;
  for (int i = 0; i < kRounds; ++i)
    segments.emplace_back(SegmentOptions{.breakers = 16, .participants = 8});
  SharedArea<std::array<std::atomic<std::uint32_t>, kRounds>> added;
  const SharedBarrier barrier(kProcesses);
  std::vector<Child> children;
  for (std::uint32_t p = 0; p < kProcesses; ++p) {
    children.push_back(fork_child([&, p]() -> int {
      for (std::size_t round = 0; round < kRounds; ++round) {
        const Segment& segment = segments[round].segment();
        const auto group = Group::open(segment, config_of(5), clock_);
        if (!group || !barrier.arrive_and_wait()) return 1;
        for (int i = 0; i < 3; ++i) {
          const Errc error = add<YieldEnv>(segment, *group, std::to_string(p) + "-" + std::to_string(i), 0);
          EXPECT_TRUE(error == Errc::ok || error == Errc::group_full) << to_string(error);
          if (error == Errc::ok) ++(*added)[round];
        }
      }
      return ::testing::Test::HasFailure() ? Child::kFailedExpectation : 0;
    }));
  }
  for (Child& child : children)
    EXPECT_EQ(child.wait(), exited(0));
  for (std::size_t round = 0; round < kRounds; ++round) {
    EXPECT_EQ((*added)[round], 5U) << round;
    EXPECT_EQ(Group::open(segments[round].segment(), config_of(5), clock_)->places(), 5U);
  }
}

// ---- what is recycled
// -------------------------------------------------------------------------------------------------------

TEST_F(BreakerGroups, GiveThePlaceOfAnIdleBreakerToTheNextName) {
  const Group group = open(config_of(2));
  Member a = member(group, "a");
  (void)member(group, "b");
  EXPECT_EQ(complete(a), RecordStatus::counted);
  clock_.advance(kIdle - Millis{1});
  EXPECT_EQ(group.breaker("c").error().code, Errc::group_full) << "not idle for long enough";
  clock_.advance(Millis{1});
  Member c = member(group, "c");
  EXPECT_EQ(group.places(), 2U);
  EXPECT_EQ(listed().size(), 2U);
  EXPECT_TRUE(listed().contains("g:c"));
  EXPECT_EQ(complete(c), RecordStatus::counted);
  EXPECT_EQ(c.counters().counters.successes, 1U) << "its own only";
  EXPECT_EQ(c.counters().counters.completed, 1U);
}

TEST_F(BreakerGroups, RecycleOverAndOverWithoutLosingPlacesOrRecords) {
  const Group group = open(config_of(4));
  for (int i = 0; i < 500; ++i) {
    Member breaker = member(group, "name-" + std::to_string(i));
    ASSERT_EQ(complete(breaker), RecordStatus::counted);
    if (i % 3 == 0) {
      ASSERT_EQ(to_string(breaker.force_state(CircuitState::open).error), "ok");
      ASSERT_EQ(to_string(breaker.force_state(CircuitState::closed).error), "ok");
    }
    clock_.advance(kIdle);
  }
  EXPECT_EQ(group.places(), 4U);
  EXPECT_EQ(listed().size(), 4U);
}

TEST_F(BreakerGroups, NeverRecycleWhatIsNotClosedEmptyAndIdle) {
  struct Case {
    const char* what;
    std::function<void(Member&)> prepare;
    Millis until_tried;
  };
  const std::vector<Case> cases{
      {"a recent outcome", [](Member& b) { (void)complete(b); }, kIdle - Millis{1}},
      {"Open", [](Member& b) { (void)b.force_state(CircuitState::open); }, kIdle},
      {"HalfOpen", [](Member& b) { (void)b.force_state(CircuitState::half_open); }, kIdle},
      {"a probe out",
       [](Member& b) {
         (void)b.force_state(CircuitState::half_open);
         EXPECT_EQ(b.admit().admission, Admission::probe);
       },
       kIdle},
      {"a mode", [](Member& b) { (void)b.set_mode({.mode = Mode::forced_closed}); }, kIdle},
      {"recently closed",
       [this](Member& b) {
         (void)b.force_state(CircuitState::open);
         clock_.advance(kIdle);
         (void)b.force_state(CircuitState::closed);
       },
       kIdle - Millis{1}},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.what);
    const TestSegment made({.breakers = 2, .participants = 2, .epoch = kStart});
    auto group = Group::open(made.segment(), config_of(1), clock_);
    Member a = member(*group, "a");
    one.prepare(a);
    clock_.advance(one.until_tried);
    const auto refused = group->breaker("b");
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Errc::group_full);
  }
}

TEST_F(BreakerGroups, NeverRecycleAWindowThatStillCounts) {
  GroupConfig config = config_of(1);
  config.breaker.failure_threshold.within = kIdle * 10;
  const Group group = open(config);
  Member a = member(group, "a");
  (void)complete(a, Outcome::failure);
  clock_.advance(kIdle * 10);
  EXPECT_FALSE(group.breaker("b")) << "the failure counts until then";
  clock_.advance(Millis{1});
  EXPECT_TRUE(group.breaker("b"));
}

TEST_F(BreakerGroups, NeverRecycleAGrownCooldownBeforeItIsForgotten) {
  GroupConfig config = config_of(1);
  config.breaker.cooldown = {
      .base = Millis{100}, .multiplier = 2, .maximum = Millis{10'000}, .forget_after = kIdle * 3};
  const Group group = open(config);
  Member a = member(group, "a");
  (void)a.force_state(CircuitState::open);
  clock_.advance(Millis{200});
  const AdmitResult probe = a.admit();
  ASSERT_EQ(probe.admission, Admission::probe);
  (void)a.record_outcome(probe.token, Outcome::success);
  ASSERT_EQ(a.snapshot().record.state, CircuitState::closed);
  clock_.advance(kIdle * 2);
  EXPECT_FALSE(group.breaker("b"));
  clock_.advance(kIdle);
  EXPECT_TRUE(group.breaker("b"));
}

TEST_F(BreakerGroups, NeverRecycleAProbeThatIsStillOutButWithoutItWhenItsTimeIsOver) {
  GroupConfig config = config_of(1);
  config.breaker.probe_limit = 2;
  config.breaker.success_threshold = 1;
  config.breaker.probe_timeout = kIdle * 2;
  const Group group = open(config);
  Member a = member(group, "a");
  (void)a.force_state(CircuitState::half_open);
  const AdmitResult closes = a.admit();
  const AdmitResult stays_out = a.admit();
  ASSERT_EQ(stays_out.admission, Admission::probe);
  (void)a.record_outcome(closes.token, Outcome::success);
  ASSERT_EQ(a.snapshot().record.state, CircuitState::closed);
  clock_.advance(kIdle * 2 - Millis{1});
  EXPECT_FALSE(group.breaker("b")) << "its failure would open the breaker";
  clock_.advance(Millis{1});
  Member b = member(group, "b");
  EXPECT_EQ(b.record_outcome(stays_out.token, Outcome::failure).status, RecordStatus::stale);
  EXPECT_EQ(b.snapshot().record.state, CircuitState::closed);
}

TEST_F(BreakerGroups, RecycleBreakersWhoseModeOrRampHasEndedAlthoughNobodyCameToWriteItDown) {
  GroupConfig config = config_of(1);
  config.breaker.cooldown.base = Millis{10};
  config.breaker.ramp_up = RampUp{.duration = Millis{100}, .start_percent = 10};
  const Group group = open(config);
  Member mode = member(group, "mode");
  ASSERT_EQ(mode.set_mode({.mode = Mode::forced_open, .expires_after = kIdle + Millis{1}}).error, Errc::ok);
  clock_.advance(kIdle);
  EXPECT_EQ(group.breaker("ramp").error().code, Errc::group_full) << "the mode holds still";
  clock_.advance(Millis{1});
  Member ramp = member(group, "ramp");
  ASSERT_EQ(ramp.force_state(CircuitState::open).error, Errc::ok);
  clock_.advance(Millis{10});
  ASSERT_EQ(ramp.record_outcome(ramp.admit().token, Outcome::success).status, RecordStatus::counted);
  ASSERT_TRUE(ramp.snapshot().record.ramping);
  clock_.advance(kIdle);
  EXPECT_TRUE(group.breaker("next"));
  EXPECT_EQ(listed(), std::set<std::string>{"g:next"});
}

TEST_F(BreakerGroups, RecycleBreakersThatTimeTheirCallsToo) {
  GroupConfig config = config_of(1);
  config.breaker.slow_calls = SlowCalls{.slower_than = Millis{50}, .percent = 50, .minimum_calls = 2};
  const Group group = open(config);
  Member a = member(group, "a");
  EXPECT_EQ(complete(a), RecordStatus::counted);
  clock_.advance(kIdle);
  Member b = member(group, "b");
  EXPECT_EQ(complete(b), RecordStatus::counted);
  clock_.advance(kIdle);
  EXPECT_EQ(complete(a), RecordStatus::counted) << "back again";
  EXPECT_EQ(listed(), (std::set<std::string>{"g:a"}));
}

// ---- handles elsewhere
// ------------------------------------------------------------------------------------------------------

TEST_F(BreakerGroups, AHandleElsewhereFindsItsNameAgainAndLeavesTheNewcomerAlone) {
  const Group group = open(config_of(2));
  Member a = member(group, "a");
  Member b = member(group, "b");
  clock_.advance(kIdle);
  EXPECT_EQ(complete(b), RecordStatus::counted);
  Member newcomer = member(group, "c");  // in a's place
  EXPECT_EQ(complete(newcomer), RecordStatus::counted);
  clock_.advance(kIdle - Millis{1});
  ASSERT_EQ(complete(newcomer), RecordStatus::counted);
  clock_.advance(Millis{1});
  const ForceResult forced = a.force_state(CircuitState::open);  // in b's
  EXPECT_EQ(to_string(forced.error), "ok");
  ASSERT_TRUE(forced.transition);
  EXPECT_EQ(forced.transition->breaker_name, "g:a");
  EXPECT_EQ(a.snapshot().record.state, CircuitState::open);
  EXPECT_EQ(newcomer.snapshot().record.state, CircuitState::closed);
  EXPECT_EQ(listed(), (std::set<std::string>{"g:a", "g:c"}));
}

TEST_F(BreakerGroups, AHandleElsewhereAnswersAnErrorWhereItsNameHasNoRoomAnyMore) {
  const Group group = open(config_of(1));
  Member a = member(group, "a");
  clock_.advance(kIdle);
  Member newcomer = member(group, "b");
  EXPECT_EQ(a.admit().error, Errc::group_full);
  EXPECT_EQ(a.force_state(CircuitState::open).error, Errc::group_full);
  EXPECT_EQ(a.set_mode({.mode = Mode::forced_open}).error, Errc::group_full);
  EXPECT_EQ(newcomer.snapshot().record.state, CircuitState::closed);
  EXPECT_EQ(newcomer.snapshot().record.mode, Mode::automatic);
  clock_.advance(kIdle);
  EXPECT_EQ(complete(a), RecordStatus::counted) << "the other is idle by now";
}

TEST_F(BreakerGroups, ALookAtANameThatIsGoneShowsANewBreakerAndMakesNone) {
  const Group group = open(config_of(1));
  Member a = member(group, "a");
  clock_.advance(kIdle);
  Member newcomer = member(group, "b");
  ASSERT_EQ(complete(newcomer, Outcome::failure), RecordStatus::counted);
  (void)newcomer.force_state(CircuitState::open);
  EXPECT_EQ(a.snapshot().error, Errc::ok);
  EXPECT_EQ(a.snapshot().record.state, CircuitState::closed);
  EXPECT_EQ(a.snapshot().record.failures, 0U);
  EXPECT_EQ(a.peek().state, CircuitState::closed);
  EXPECT_EQ(a.counters().counters.failures, 0U);
  EXPECT_EQ(a.settings().failures, 2U);
  EXPECT_EQ(listed(), (std::set<std::string>{"g:b"}));
}

TEST_F(BreakerGroups, TokensOfAnEarlierLifeAreStaleWhereverTheNameIsNow) {
  const Group group = open(config_of(1));
  Member a = member(group, "a");
  const Token of_a = a.admit().token;
  clock_.advance(kIdle);
  Member b = member(group, "b");
  const Token of_b = b.admit().token;
  EXPECT_EQ(a.record_outcome(of_a, Outcome::failure).status, RecordStatus::stale);
  EXPECT_EQ(b.snapshot().record.failures, 0U);
  clock_.advance(kIdle);
  EXPECT_EQ(complete(a), RecordStatus::counted) << "in the same place";
  EXPECT_EQ(a.record_outcome(of_a, Outcome::failure).status, RecordStatus::stale);
  EXPECT_EQ(a.record_outcome(of_b, Outcome::failure).status, RecordStatus::stale) << "and not another name's";
  EXPECT_EQ(a.snapshot().record.failures, 0U);
}

TEST_F(BreakerGroups, TokensOfAnotherPlaceAreStale) {
  const Group group = open(config_of(2));
  Member a = member(group, "a");
  Member b = member(group, "b");
  const Token old = a.admit().token;
  clock_.advance(kIdle);
  EXPECT_EQ(complete(b), RecordStatus::counted);
  Member c = member(group, "c");  // in a's place
  clock_.advance(kIdle - Millis{1});
  EXPECT_EQ(complete(c), RecordStatus::counted);
  clock_.advance(Millis{1});
  EXPECT_EQ(complete(a), RecordStatus::counted) << "in b's, whose generations are others";
  EXPECT_EQ(a.record_outcome(old, Outcome::failure).status, RecordStatus::stale);
  EXPECT_EQ(a.snapshot().record.failures, 0U);
}

TEST_F(BreakerGroups, AProbeOfAnEarlierLifeIsStale) {
  const Group group = open(config_of(1));
  Member a = member(group, "a");
  (void)a.force_state(CircuitState::half_open);
  const Token probe = a.admit().token;
  ASSERT_EQ(probe.admission, Admission::probe);
  (void)a.force_state(CircuitState::closed);
  clock_.advance(kIdle);
  Member b = member(group, "b");
  (void)b.force_state(CircuitState::half_open);
  ASSERT_EQ(b.admit().admission, Admission::probe);
  EXPECT_EQ(a.record_outcome(probe, Outcome::failure).status, RecordStatus::stale);
  EXPECT_EQ(b.snapshot().record.state, CircuitState::half_open);
}

// ---- in the middle of it
// ----------------------------------------------------------------------------------------------------

struct OvertakingStep {
  static inline int left = 0;
  static inline std::function<void()> overtaker{};
  static void step() {
    if (left > 0 && --left == 0) overtaker();
  }
};
using OvertakingEnv = core::AtomicEnv<OvertakingStep>;

[[nodiscard]] rules::Tick tick_of(const FakeClock& clock) {
  return std::chrono::duration_cast<Millis>(clock.now() - kStart).count();
}

TEST_F(BreakerGroups, AnOutcomeThatWasCountedIsNeverRecycledAtWhateverStepItComes) {
  int survived = 0;
  int recycled = 0;
  bool overtaken = true;
  for (int step = 1; overtaken; ++step) {
    ASSERT_LT(step, 3'000);
    const TestSegment made({.breakers = 2, .participants = 2, .epoch = kStart});
    FakeClock clock{kStart};
    const auto group = Group::open(made.segment(), config_of(1), clock);
    Member a = member(*group, "a");
    const Token token = a.admit().token;
    clock.advance(kIdle);
    overtaken = false;
    RecordResult recorded;
    OvertakingStep::overtaker = [&] {
      overtaken = true;
      recorded = a.record_outcome(token, Outcome::failure);
    };
    OvertakingStep::left = step;
    const Errc error = add<OvertakingEnv>(made.segment(), *group, "b", tick_of(clock));
    OvertakingStep::left = 0;
    if (!overtaken) break;
    ASSERT_EQ(to_string(recorded.error), "ok") << "step " << step;
    const auto failures = a.snapshot().record.failures;
    if (recorded.status == RecordStatus::counted) {
      ASSERT_EQ(to_string(error), "group_full") << "step " << step;
      ASSERT_EQ(failures, 1U) << "step " << step;
      ++survived;
    } else {
      ASSERT_EQ(recorded.status, RecordStatus::stale);
      ASSERT_EQ(to_string(error), "ok") << "step " << step;
      ASSERT_EQ(member(*group, "b").snapshot().record.failures, 0U);
      ++recycled;
    }
  }
  EXPECT_GT(survived, 20);
  EXPECT_GT(recycled, 20);
}

TEST_F(BreakerGroups, AnOperationOvertakenByRecyclingActsOnItsOwnBreakerOrOnNone) {
  using Cell = core::GroupCell<OvertakingEnv>;
  struct Case {
    const char* what;
    std::function<Errc(Cell&, Bits)> act;
  };
  core::LocalNotes start;
  const auto draw = []() noexcept { return 0U; };
  std::uint64_t period = 0;
  const std::vector<Case> cases{
      {"force", [&](Cell& cell, Bits now) { return cell.force(CircuitState::open, now, draw).error; }},
      {"mode", [&](Cell& cell, Bits now) { return cell.set_mode(Mode::forced_open, rules::kNever, {}, now).error; }},
      {"success",
       [&](Cell& cell, Bits now) { return cell.record_allowed({.period = period, .now_us = now}, start, draw).error; }},
      {"failure", [&](Cell& cell, Bits now) {
         return cell.record_allowed({.period = period, .failure = true, .now_us = now}, start, draw).error;
       }}};
  for (const Case& one : cases) {
    int recycled = 0;
    bool overtaken = true;
    for (int step = 1; overtaken; ++step) {
      SCOPED_TRACE(std::string{one.what} + ", step " + std::to_string(step));
      ASSERT_LT(step, 3'000);
      const TestSegment made({.breakers = 2, .participants = 2, .epoch = kStart});
      FakeClock clock{kStart};
      const auto group = Group::open(made.segment(), config_of(1), clock);
      (void)member(*group, "a");
      const auto view = made->view().in_environment<OvertakingEnv>();
      core::Member as;
      as.group = core::HashName{}("g");
      as.may_wait = false;
      ASSERT_EQ(core::Groups<OvertakingEnv>(view).open(as.group, as.entry), Errc::ok);
      BreakerConfig config = config_of(1).breaker;
      Cell cell(view, made->presence(), "g:a", settings_of(config), as);
      bool created = false;
      ASSERT_EQ(cell.resolve(0, created), Errc::ok);
      ASSERT_FALSE(created);
      ASSERT_TRUE(cell.allowed(period));
      start = {};
      clock.advance(kIdle);
      overtaken = false;
      Errc added = Errc::ok;
      OvertakingStep::overtaker = [&] {
        overtaken = true;
        added = add<StdEnv>(made.segment(), *group, "b", tick_of(clock));
      };
      OvertakingStep::left = step;
      const Errc error = one.act(cell, static_cast<Bits>(tick_of(clock)) * 1'000);
      OvertakingStep::left = 0;
      if (!overtaken) break;
      if (added == Errc::ok) {
        ++recycled;
        ASSERT_TRUE(error == Errc::ok || error == Errc::group_full) << to_string(error);
        Member newcomer = member(*group, "b");
        ASSERT_EQ(newcomer.snapshot().record.state, CircuitState::closed);
        ASSERT_EQ(newcomer.snapshot().record.mode, Mode::automatic);
        ASSERT_EQ(newcomer.snapshot().record.failures + newcomer.snapshot().record.successes, 0U);
        ASSERT_EQ(complete(newcomer), RecordStatus::counted);
        ASSERT_EQ(newcomer.snapshot().record.successes, 1U);
      } else {
        ASSERT_EQ(to_string(added), "group_full");
        ASSERT_EQ(to_string(error), "ok");
      }
    }
    EXPECT_GT(recycled, 3) << one.what;
  }
}

TEST_F(BreakerGroups, ALookAtWhateverStepOfRecyclingChangesNothing) {
  const std::vector<std::function<void(Member&, const Segment&)>> looks{
      [](Member& a, const Segment&) { EXPECT_EQ(a.snapshot().record.state, CircuitState::closed); },
      [](Member& a, const Segment&) { EXPECT_EQ(a.peek().state, CircuitState::closed); },
      [](Member& a, const Segment&) { EXPECT_EQ(a.counters().error, Errc::ok); },
      [](Member& a, const Segment&) { EXPECT_EQ(a.settings().failures, 2U); },
      [](Member&, const Segment& segment) { EXPECT_TRUE(SegmentObserver::open(segment)); },
  };
  for (std::size_t i = 0; i < looks.size(); ++i) {
    bool overtaken = true;
    bool retiring = false;
    for (int step = 1; overtaken; ++step) {
      SCOPED_TRACE("look " + std::to_string(i) + ", step " + std::to_string(step));
      ASSERT_LT(step, 3'000);
      const TestSegment made({.breakers = 2, .participants = 2, .epoch = kStart});
      FakeClock clock{kStart};
      const auto group = Group::open(made.segment(), config_of(1), clock);
      Member a = member(*group, "a");
      clock.advance(kIdle);
      overtaken = false;
      const auto& control = made->view().breaker(0)->control;
      OvertakingStep::overtaker = [&] {
        overtaken = true;
        const core::ControlWord<StdEnv::Widths> before{StdEnv::load(control, StdEnv::relaxed)};
        retiring = retiring || before.retiring();
        looks[i](a, made.segment());
        EXPECT_EQ(StdEnv::load(control, StdEnv::relaxed), before.bits);
      };
      OvertakingStep::left = step;
      const Errc error = add<OvertakingEnv>(made.segment(), *group, "b", tick_of(clock));
      OvertakingStep::left = 0;
      ASSERT_EQ(to_string(error), "ok");
      ASSERT_FALSE(HasFailure());
    }
    EXPECT_TRUE(retiring);
  }
}

TEST_F(BreakerGroups, TryAgainBeforeTheyAreFullWhereAnIdleBreakerWasLostToARace) {
  int taken_back = 0;
  bool overtaken = true;
  for (int step = 1; overtaken; ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    ASSERT_LT(step, 3'000);
    const TestSegment made({.breakers = 2, .participants = 2, .epoch = kStart});
    FakeClock clock{kStart};
    const auto group = Group::open(made.segment(), config_of(1), clock);
    Member a = member(*group, "a");
    clock.advance(kIdle);
    overtaken = false;
    const auto& control = made->view().breaker(0)->control;
    OvertakingStep::overtaker = [&] {
      overtaken = true;
      const core::ControlWord<StdEnv::Widths> before{StdEnv::load(control, StdEnv::relaxed)};
      (void)a.admit();  // leaves the breaker as idle as it was
      if (before.retiring() && StdEnv::load(control, StdEnv::relaxed) != before.bits) ++taken_back;
    };
    OvertakingStep::left = step;
    const Errc error = add<OvertakingEnv>(made.segment(), *group, "b", tick_of(clock));
    OvertakingStep::left = 0;
    ASSERT_EQ(to_string(error), "ok");
  }
  EXPECT_GT(taken_back, 0);
}

TEST_F(BreakerGroups, RecyclingSurvivesWhateverIsWrittenOverThePlacesRingMeanwhile) {
  const std::array<Bits, 3> nonsense{
      core::RingWord::request(1U << 10U).assigned_at(0xFF'FFFF).bits,  // beyond the arena
      (Bits{1} << 63U) | (Bits{127} << 56U),                           // no size
      0};
  for (const Bits written : nonsense) {
    SCOPED_TRACE(written);
    expect_success_in_child([&] {
      int refused = 0;
      bool overtaken = true;
      for (int step = 1; overtaken; ++step) {
        ASSERT_LT(step, 3'000);
        const TestSegment made({.breakers = 2, .participants = 2, .epoch = kStart});
        FakeClock clock{kStart};
        const auto group = Group::open(made.segment(), config_of(1), clock);
        (void)member(*group, "a");
        clock.advance(kIdle);
        overtaken = false;
        OvertakingStep::overtaker = [&] {
          overtaken = true;
          StdEnv::store(made->view().breaker(0)->ring, written, StdEnv::relaxed);
        };
        OvertakingStep::left = step;
        const Errc error = add<OvertakingEnv>(made.segment(), *group, "b", tick_of(clock));
        OvertakingStep::left = 0;
        if (error != Errc::ok) ++refused;
      }
      EXPECT_GT(refused, 20);
    });
  }
}

TEST_F(BreakerGroups, GiveUpWhereTheirNumbersAreWrittenAllTheTime) {
  (void)open(config_of(3));
  const auto view = made_->view().in_environment<OvertakingEnv>();
  const core::Groups<OvertakingEnv> groups(view);
  std::uint32_t entry = 0;
  ASSERT_EQ(groups.open(core::HashName{}("g"), entry), Errc::ok);
  std::uint32_t limit = 0;
  OvertakingStep::overtaker = [&] {
    const auto other = core::GroupRules::make(10 + limit++ % 2, kIdle.count());
    StdEnv::store(made_->view().group(entry).rules, other.bits, StdEnv::relaxed);
    OvertakingStep::left = 1;  // before each access
  };
  OvertakingStep::left = 1;
  core::GroupRules there;
  const Errc error = groups.agree(entry, core::GroupRules::make(5, kIdle.count()), true, there);
  OvertakingStep::left = 0;
  EXPECT_EQ(to_string(error), "busy");
  GroupConfig later = config_of(6);
  later.on_mismatch = OnMismatch::replace;
  EXPECT_EQ(open(later).limit(), 6U) << "as soon as they leave off";
}

TEST_F(BreakerGroups, AMemberOfClosedIsAdmittedByTwoLoads) {
  struct CountingStep {
    static std::uint64_t& steps() {
      static std::uint64_t count = 0;
      return count;
    }
    static void step() noexcept { ++steps(); }
  };
  using CountingEnv = core::AtomicEnv<CountingStep>;
  const Group group = open(config_of(1));
  const auto view = made_->view().in_environment<CountingEnv>();
  core::Member as;
  as.group = core::HashName{}("g");
  ASSERT_EQ(core::Groups<CountingEnv>(view).open(as.group, as.entry), Errc::ok);
  const core::GroupCell<CountingEnv> cell(view, made_->presence(), "g:a", settings_of(config_of(1).breaker), as);
  bool created = false;
  ASSERT_EQ(cell.resolve(0, created), Errc::ok);
  CountingStep::steps() = 0;
  std::uint64_t period = 0;
  EXPECT_TRUE(cell.allowed(period));
  EXPECT_EQ(CountingStep::steps(), 2U);
}

// ---- who dies on the way
// ----------------------------------------------------------------------------------------------------

/// All that a group may have can be had, every name works, and no record is lost.
void expect_nothing_lost(const TestSegment& made, const Group& group, FakeClock& clock, std::uint32_t limit) {
  clock.advance(kIdle);
  std::vector<Member> members;
  for (std::uint32_t i = 0; i < limit; ++i) {
    auto one = group.breaker("fresh-" + std::to_string(i));
    ASSERT_TRUE(one) << i << ": " << one.error().message;
    ASSERT_EQ(one->record_outcome(one->admit().token, Outcome::success).status, RecordStatus::counted);
    members.push_back(*std::move(one));
  }
  ASSERT_EQ(group.breaker("one-more").error().code, Errc::group_full);
  ASSERT_EQ(group.places(), limit);
  for (Member& one : members)
    ASSERT_EQ(one.snapshot().record.successes, 1U) << one.name();
  std::uint32_t singles = 0;
  while (ShmStorage<>::open(made.segment(), {.name = "single-" + std::to_string(singles)}))
    ++singles;
  ASSERT_EQ(singles, made->geometry().breakers - limit);
  core::RecordPool<StdEnv> pool(made->view(), made->presence());
  std::uint32_t usable = 0;
  Errc error = Errc::ok;
  while (pool.claim(error) != 0)
    ++usable;
  ASSERT_EQ(usable, made->geometry().records - 1 - made->geometry().breakers);
}

class KilledInAGroup : public BreakerGroups {
 protected:
  /// A child adds the name and is killed at each of its accesses, each time in a fresh segment. How often.
  std::uint64_t kill_everywhere(bool full) {
    constexpr std::uint32_t kLimit = 2;
    std::uint64_t killed = 0;
    for (std::uint64_t k = 1;; ++k) {
      SCOPED_TRACE("killed at access " + std::to_string(k));
      const TestSegment made({.breakers = 4, .participants = 6, .epoch = kStart});
      FakeClock clock{kStart};
      const auto group = Group::open(made.segment(), config_of(kLimit), clock);
      Member a = member(*group, "a");
      if (full) (void)member(*group, "b");
      clock.advance(kIdle);
      const rules::Tick now = tick_of(clock);
      const Ended ended = run_in_child([&] {
        const Segment mine = made.attach();
        KillStep::arm(k, SIGKILL);
        const Errc error = add<KillEnv>(mine, *group, "victim", now);
        KillStep::disarm();
        EXPECT_EQ(to_string(error), "ok");
        ::kill(::getpid(), SIGTERM);  // also without leaving in order
      });
      EXPECT_TRUE(ended == killed_by(SIGTERM) || ended == killed_by(SIGKILL)) << ended;
      const auto reader = SegmentReader::open(made.options());
      const auto seen = reader->breakers(clock.now());
      std::set<std::string> names;
      for (const BreakerInfo& info : *seen) {
        EXPECT_FALSE(info.error) << info.error.message;
        EXPECT_TRUE(names.insert(info.name).second) << info.name;
      }
      EXPECT_LE(names.size(), kLimit);
      EXPECT_EQ(complete(a), RecordStatus::counted) << "the handle finds its name, or makes it again";
      EXPECT_EQ(a.snapshot().record.successes, 1U);
      expect_nothing_lost(made, *group, clock, kLimit);
      if (HasFailure() || ended == killed_by(SIGTERM)) return killed;
      ++killed;
      KillPoints::count();
    }
  }
};

TEST_F(KilledInAGroup, AtEachStepOfRecyclingLosesNoPlaceAndNoName) {
  const std::uint64_t killed = kill_everywhere(true);
  EXPECT_GT(killed, 100U);
  std::printf("[ kills    ] recycling: %lu kill points\n", static_cast<unsigned long>(killed));
}

TEST_F(KilledInAGroup, AtEachStepOfABreakersMakingLosesNoPlaceOfTheGroups) {
  const std::uint64_t killed = kill_everywhere(false);
  EXPECT_GT(killed, 50U);
  std::printf("[ kills    ] a member more: %lu kill points\n", static_cast<unsigned long>(killed));
}

// ---- many at once
// -----------------------------------------------------------------------------------------------------------

/// Each has names of its own and shared ones; outcomes are counted once, where they belong.
void churn(const Segment& segment, const FakeClock& clock, std::size_t who, int rounds) {
  const auto group = Group::open(segment, config_of(6), clock);
  ASSERT_TRUE(group);
  FakeClock time = clock;
  std::vector<Member> kept;
  for (int i = 0; i < rounds; ++i) {
    const std::string name =
        i % 2 == 0 ? "shared-" + std::to_string(i % 9) : std::to_string(who) + "-" + std::to_string(i % 5);
    auto opened = group->breaker(name);
    if (!opened) {
      ASSERT_EQ(to_string(opened.error().code), "group_full");
    } else {
      kept.push_back(*std::move(opened));
    }
    if (kept.size() > 8) kept.erase(kept.begin());
    for (Member& breaker : kept) {
      const AdmitResult admitted = breaker.admit();
      if (admitted.error != Errc::ok) {
        ASSERT_TRUE(admitted.error == Errc::group_full || admitted.error == Errc::busy) << to_string(admitted.error);
        continue;
      }
      ASSERT_EQ(admitted.admission, Admission::allowed);
      const RecordResult recorded = breaker.record_outcome(admitted.token, Outcome::success);
      ASSERT_EQ(to_string(recorded.error), "ok");
    }
    time.advance(kIdle / 4);
  }
}

TEST_F(BreakerGroups, ThreadsChurnThroughMoreNamesThanThereAreBreakers) {
  run_threads(4, [&](std::size_t who) { churn(made_.segment(), clock_, who, 400); });
  const Group group = open(config_of(6));
  EXPECT_LE(group.places(), 6U);
  EXPECT_LE(listed().size(), 6U);
  FakeClock clock = clock_;
  expect_nothing_lost(made_, group, clock, 6);
}

TEST_F(BreakerGroups, ProcessesChurnThroughMoreNamesThanThereAreBreakersWhileTheyAreKilled) {
  const SharedBarrier barrier(1);
  std::vector<Child> children;
  for (std::size_t who = 0; who < 4; ++who) {
    children.push_back(fork_child([this, who] {
      const Segment mine = made_.attach();
      FakeClock clock{kStart + kIdle};
      churn(mine, clock, who, who < 2 ? 300 : 1'000'000);
    }));
  }
  EXPECT_EQ(children[0].wait(), exited(0));
  EXPECT_EQ(children[1].wait(), exited(0));
  for (std::size_t who = 2; who < 4; ++who) {
    ::kill(children[who].pid(), SIGKILL);
    EXPECT_EQ(children[who].wait(), killed_by(SIGKILL));
  }
  const Group group = open(config_of(6));
  FakeClock clock = clock_;
  clock.advance(std::chrono::hours{10'000});
  (void)listed();
  expect_nothing_lost(made_, group, clock, 6);
}

}  // namespace
}  // namespace shmcb::test
