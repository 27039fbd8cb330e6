// SPDX-License-Identifier: BSD-3-Clause
// The rules of the policies as tables: each pure function at its boundaries.
#include <array>
#include <cstdint>
#include <initializer_list>

#include <gtest/gtest.h>

#include "shmcb/core/rules.hpp"

namespace shmcb::rules {
namespace {

using enum CircuitState;
using enum TransitionReason;

constexpr Tick kLongest = kMaxDurationMs;

// ---- opens

struct OpensRow {
  Settings settings;
  WindowCounts window;
  bool failure;
  TransitionReason expected;
};

void expect_opens(std::initializer_list<OpensRow> rows) {
  int number = 0;
  for (const OpensRow& row : rows)
    EXPECT_EQ(to_string(opens(row.settings, row.window, row.failure)), to_string(row.expected)) << "row " << number++;
}

TEST(PolicyRules, RatioOpensByAFailureThatReachesIt) {
  constexpr Settings kRatio{.failures = 3, .window = 4};
  expect_opens({{kRatio, {.entries = 4, .failures = 2}, true, none},
                {kRatio, {.entries = 3, .failures = 3}, true, failure_threshold_reached},
                {kRatio, {.entries = 4, .failures = 4}, true, failure_threshold_reached},
                {kRatio, {.entries = 4, .failures = 3}, false, none},
                {{.failures = 0, .window = 4}, {.entries = 4, .failures = 4}, true, none}});
}

TEST(PolicyRules, FailureRateOpensByAnyOutcomeOnceThereAreEnough) {
  constexpr Settings kHalf{.failures = 0, .window = 10, .rate_percent = 50, .rate_minimum_calls = 4};
  constexpr Settings kThird{.failures = 0, .window = 10, .rate_percent = 34, .rate_minimum_calls = 1};
  constexpr Settings kAll{.failures = 0, .window = 10, .rate_percent = 100, .rate_minimum_calls = 1};
  constexpr Settings kOne{.failures = 0, .window = 200, .rate_percent = 1, .rate_minimum_calls = 1};
  expect_opens({{kHalf, {.entries = 3, .failures = 3}, true, none},
                {kHalf, {.entries = 4, .failures = 2}, true, failure_rate_reached},
                {kHalf, {.entries = 4, .failures = 2}, false, failure_rate_reached},
                {kHalf, {.entries = 5, .failures = 2}, false, none},
                {kHalf, {.entries = 4, .failures = 1}, true, none},
                {kThird, {.entries = 3, .failures = 1}, true, none},
                {kThird, {.entries = 50, .failures = 17}, true, failure_rate_reached},
                {kAll, {.entries = 10, .failures = 9}, true, none},
                {kAll, {.entries = 10, .failures = 10}, true, failure_rate_reached},
                {kOne, {.entries = 101, .failures = 1}, true, none},
                {kOne, {.entries = 100, .failures = 1}, true, failure_rate_reached},
                {kOne, {.entries = 100, .failures = 0}, false, none}});
}

TEST(PolicyRules, RatesAreExactInTheLargestWindow) {
  constexpr std::uint64_t kMany = 0xFFFF'FFFF;
  constexpr Settings kRates{.failures = 0, .window = 0xFFFF'FFFF, .rate_percent = 99, .rate_minimum_calls = 1};
  expect_opens({{kRates, {.entries = kMany, .failures = kMany}, true, failure_rate_reached},
                {kRates, {.entries = kMany, .failures = kMany * 99 / 100}, true, none},
                {kRates, {.entries = kMany, .failures = kMany * 99 / 100 + 1}, true, failure_rate_reached}});
}

TEST(PolicyRules, ConsecutiveFailuresOpenByAFailureThatReachesThem) {
  constexpr Settings kRun{.failures = 0, .window = 10, .consecutive_failures = 3};
  expect_opens({{kRun, {.entries = 9, .failures = 8, .failing_run = 2}, true, none},
                {kRun, {.entries = 3, .failures = 3, .failing_run = 3}, true, consecutive_failures_reached},
                {kRun, {.entries = 9, .failures = 4, .failing_run = 4}, true, consecutive_failures_reached},
                {kRun, {.entries = 9, .failures = 4, .failing_run = 3}, false, none}});
}

TEST(PolicyRules, SlowCallsOpenByAnyOutcomeOnceThereAreEnough) {
  constexpr Settings kSlow{.failures = 0, .window = 10, .slow_percent = 50, .slow_minimum_calls = 4};
  expect_opens({{kSlow, {.entries = 3, .slow = 3}, false, none},
                {kSlow, {.entries = 4, .slow = 2}, false, slow_rate_reached},
                {kSlow, {.entries = 4, .failures = 4, .slow = 2, .failing_run = 4}, true, slow_rate_reached},
                {kSlow, {.entries = 5, .slow = 2}, true, none}});
}

TEST(PolicyRules, TheFirstRuleThatHoldsIsTheReason) {
  Settings s{.failures = 2,
             .window = 10,
             .rate_percent = 50,
             .rate_minimum_calls = 2,
             .consecutive_failures = 2,
             .slow_percent = 50,
             .slow_minimum_calls = 2};
  constexpr WindowCounts kAll{.entries = 2, .failures = 2, .slow = 2, .failing_run = 2};
  EXPECT_EQ(opens(s, kAll, true), failure_threshold_reached);
  EXPECT_EQ(opens(s, kAll, false), failure_rate_reached);  // the numbers are reached by failures only
  s.failures = 0;
  EXPECT_EQ(opens(s, kAll, true), failure_rate_reached);
  s.rate_percent = 0;
  EXPECT_EQ(opens(s, kAll, true), consecutive_failures_reached);
  EXPECT_EQ(opens(s, kAll, false), slow_rate_reached);
  s.consecutive_failures = 0;
  EXPECT_EQ(opens(s, kAll, true), slow_rate_reached);
  s.slow_percent = 0;
  EXPECT_EQ(opens(s, kAll, true), none);
}

TEST(PolicyRules, WindowCountsWhatIsInIt) {
  // Every pattern of eight outcomes, each failed or not and slow or not by one of its bits.
  for (unsigned pattern = 0; pattern < 256; ++pattern) {
    const auto failed = [pattern](unsigned i) { return (pattern >> i & 1U) != 0; };
    const auto slow = [pattern](unsigned i) { return (pattern >> (7 - i) & 1U) != 0; };
    for (unsigned dropped = 0; dropped <= 8; ++dropped) {
      WindowCounts window;
      for (unsigned i = 0; i < 8; ++i)
        window.add_newest(failed(i), slow(i));
      for (unsigned i = 0; i < dropped; ++i)
        window.drop_oldest(failed(i), slow(i));
      std::uint64_t run = 0;
      while (run < 8 - dropped && failed(7 - static_cast<unsigned>(run)))
        ++run;
      ASSERT_EQ(window.entries, 8 - dropped);
      ASSERT_EQ(window.failing_run, run) << pattern << " without " << dropped;
      std::uint64_t failures = 0;
      std::uint64_t slow_ones = 0;
      for (unsigned i = dropped; i < 8; ++i) {
        failures += failed(i) ? 1U : 0U;
        slow_ones += slow(i) ? 1U : 0U;
      }
      ASSERT_EQ(window.failures, failures);
      ASSERT_EQ(window.slow, slow_ones);
    }
  }
}

// ---- slow calls

TEST(PolicyRules, ACallIsSlowWhenItTookLongerThanTheThreshold) {
  Settings s{.slow_percent = 1, .slow_minimum_calls = 1, .slower_than_ms = 20};
  constexpr Tick kWrap = Tick{1} << 32;
  // The first tick, some, around 2^31 and around 2^32 ticks, a far one. (One tick in 2^32 cannot be told exactly.)
  for (const Tick start : {Tick{0}, Tick{1}, Tick{3'600'000}, (Tick{1} << 31) - 10, kWrap - 2, kWrap, kWrap + 5,
                           7 * kWrap + 9, (Tick{1} << 47) + 3}) {
    EXPECT_FALSE(is_slow(s, started_at(start), start)) << start;
    EXPECT_FALSE(is_slow(s, started_at(start), start + 20)) << start;
    EXPECT_TRUE(is_slow(s, started_at(start), start + 21)) << start;
    EXPECT_TRUE(is_slow(s, started_at(start), start + (Tick{1} << 31) - 1)) << start;
  }
  EXPECT_FALSE(is_slow(s, started_at(kWrap - 1), kWrap + 20));  // that one
  EXPECT_TRUE(is_slow(s, started_at(kWrap - 1), kWrap + 21));
}

TEST(PolicyRules, ACallThatEndedBeforeItBeganIsNotSlow) {
  const Settings s{.slow_percent = 1, .slow_minimum_calls = 1, .slower_than_ms = 1};
  for (const Tick start : {Tick{5'000}, (Tick{1} << 32) + 5}) {
    for (const Tick back : {1, 5, 5'000})
      EXPECT_FALSE(is_slow(s, started_at(start), start - back)) << start << " " << back;
  }
}

TEST(PolicyRules, NoCallIsSlowWithoutTheRuleOrItsStart) {
  Settings s{.slow_percent = 1, .slow_minimum_calls = 1, .slower_than_ms = 1};
  EXPECT_TRUE(is_slow(s, started_at(10), 1'000));
  EXPECT_FALSE(is_slow(s, 0, 1'000));
  s.slow_percent = 0;
  EXPECT_FALSE(is_slow(s, started_at(10), 1'000));
}

TEST(PolicyRules, NoStartLooksLikeNone) {
  for (const Tick at : {Tick{0}, (Tick{1} << 32) - 1, Tick{1} << 32, (Tick{1} << 40) - 1})
    EXPECT_NE(started_at(at), 0U) << at;
}

// ---- cooldown

TEST(PolicyRules, CooldownGrowsByItsMultiplierToTheMaximum) {
  const Settings s{.cooldown_ms = 100, .cooldown_multiplier = 3, .cooldown_maximum_ms = 500, .forget_after_ms = 1};
  const std::array<Tick, 5> expected{100, 300, 500, 500, 500};
  for (std::uint32_t steps = 0; steps < expected.size(); ++steps)
    EXPECT_EQ(grown_cooldown(s, steps), expected[steps]) << steps;
  EXPECT_EQ(grown_cooldown(s, ~0U), 500);
}

TEST(PolicyRules, CooldownWithoutAMultiplierStaysWhatItIs) {
  const Settings s{.cooldown_ms = 100, .cooldown_multiplier = 1};
  EXPECT_EQ(grown_cooldown(s, 0), 100);
  EXPECT_EQ(grown_cooldown(s, 9), 100);
}

TEST(PolicyRules, CooldownStaysExactAtTheLargestNumbers) {
  const Settings s{.cooldown_ms = kLongest - 1,
                   .cooldown_multiplier = kMaxMultiplier,
                   .cooldown_jitter = 100,
                   .cooldown_maximum_ms = kLongest,
                   .forget_after_ms = 1};
  EXPECT_EQ(grown_cooldown(s, 0), kLongest - 1);
  EXPECT_EQ(grown_cooldown(s, 1), kLongest);
  EXPECT_EQ(grown_cooldown(s, ~0U), kLongest);
  EXPECT_EQ(drawn_cooldown(s, 1, 0), kLongest);
  EXPECT_EQ(drawn_cooldown(s, 1, 999), kLongest - kLongest * 999 / 1'000);
}

TEST(PolicyRules, CooldownAtItsMaximumTakesNoMoreSteps) {
  const Settings s{.cooldown_ms = 100, .cooldown_multiplier = 3, .cooldown_maximum_ms = 500, .forget_after_ms = 1};
  EXPECT_EQ(grown(s, 0), 1U);
  EXPECT_EQ(grown(s, 1), 2U);
  EXPECT_EQ(grown(s, 2), 2U);
  Settings flat = s;
  flat.cooldown_maximum_ms = 100;
  EXPECT_EQ(grown(flat, 0), 0U);
  flat.cooldown_multiplier = 1;
  EXPECT_EQ(grown(flat, 0), 0U);
}

TEST(PolicyRules, JitterIsTakenFromTheEndOfTheCooldown) {
  struct Row {
    std::int64_t cooldown;
    std::uint32_t jitter, draw;
    Tick expected;
  };
  for (const Row& row :
       {Row{1'000, 0, 0, 1'000}, Row{1'000, 0, 999, 1'000}, Row{1'000, 50, 0, 1'000}, Row{1'000, 50, 500, 750},
        Row{1'000, 50, 999, 501}, Row{1'000, 100, 0, 1'000}, Row{1'000, 100, 500, 500}, Row{1'000, 100, 999, 1},
        Row{7, 50, 999, 5}, Row{7, 100, 999, 1}, Row{1, 100, 999, 1}, Row{1, 50, 999, 1}, Row{99, 1, 999, 99},
        Row{100, 1, 999, 100}, Row{200, 1, 500, 199}}) {
    const Settings s{.cooldown_ms = row.cooldown, .cooldown_jitter = row.jitter};
    EXPECT_EQ(drawn_cooldown(s, 0, row.draw), row.expected) << row.cooldown << " " << row.jitter << " " << row.draw;
  }
}

constexpr Settings kGrows{.failures = 1,
                          .window = 1,
                          .cooldown_ms = 10,
                          .cooldown_multiplier = 2,
                          .cooldown_maximum_ms = 10'000,
                          .forget_after_ms = 100,
                          .probe_timeout_ms = 1'000,
                          .probe_limit = 32};

/// A Closed breaker since 1000 whose cooldown has grown by five steps.
[[nodiscard]] Breaker grown_by_five(bool recovered) {
  return {.recovered = recovered, .opened_at = 900, .since = 1'000, .growth = 5};
}

TEST(PolicyRules, AnOpeningSoonAfterARecoveryIsOneStepAndHealthyTimeTakesStepsBack) {
  struct Row {
    bool recovered;
    Tick healthy;
    std::uint32_t growth;
  };
  for (const Row& row :
       {Row{true, 0, 6}, Row{true, 99, 6}, Row{true, 100, 4}, Row{true, 199, 4}, Row{true, 200, 3}, Row{true, 499, 1},
        Row{true, 500, 0}, Row{true, kLongest, 0}, Row{false, 0, 5}, Row{false, 99, 5}, Row{false, 100, 4}}) {
    Breaker breaker = grown_by_five(row.recovered);
    (void)trip(breaker, kGrows, 1'000 + row.healthy, failure_threshold_reached, 0);
    EXPECT_EQ(breaker.growth, row.growth) << row.recovered << " " << row.healthy;
    EXPECT_EQ(breaker.opened_at, 1'000 + row.healthy);
    EXPECT_EQ(breaker.open_until, breaker.opened_at + (Tick{10} << row.growth));
    EXPECT_FALSE(breaker.recovered);
  }
}

TEST(PolicyRules, AnOpeningWithoutAMultiplierForgetsTheGrowth) {
  Settings s = kGrows;
  s.cooldown_multiplier = 1;
  s.forget_after_ms = 0;
  Breaker breaker = grown_by_five(true);
  (void)trip(breaker, s, 1'000, failure_threshold_reached, 0);
  EXPECT_EQ(breaker.growth, 0U);
  EXPECT_EQ(breaker.open_until, 1'010);
}

TEST(PolicyRules, ThirtyTwoProbesThatFailTogetherAreOneStep) {
  Breaker breaker{.state = half_open, .opened_at = 0, .since = 10, .lease_at = 10};
  for (std::uint64_t probe = 1; probe <= 32; ++probe)
    breaker.probes.add(probe, 0);
  for (std::uint64_t probe = 1; probe <= 32; ++probe) {
    const RecordDecision decision = record_probe(breaker, kGrows, 20, {.probe = probe, .outcome = Outcome::failure});
    EXPECT_EQ(decision.status, probe == 1 ? RecordStatus::counted : RecordStatus::stale);
  }
  EXPECT_EQ(breaker.growth, 1U);
  EXPECT_EQ(breaker.open_until, 40);
}

TEST(PolicyRules, ASiblingThatFailsAfterTheClosingIsOneStepHoweverLate) {
  Breaker breaker = grown_by_five(true);
  breaker.probes.add(7, 0);
  (void)record_probe(breaker, kGrows, 9'000, {.probe = 7, .outcome = Outcome::failure});
  EXPECT_EQ(breaker.growth, 6U);
}

TEST(PolicyRules, AForcedStateResetsTheGrowthAndDrawsAnew) {
  Settings s = kGrows;
  s.cooldown_jitter = 50;
  for (const CircuitState to : {closed, open, half_open}) {
    Breaker breaker = grown_by_five(true);
    (void)force(breaker, s, 2'000, to, 999);
    EXPECT_EQ(breaker.growth, 0U);
    EXPECT_FALSE(breaker.recovered);
    EXPECT_EQ(breaker.open_until, 2'000 + 10 - 5 * 999 / 1'000);
  }
}

TEST(PolicyRules, ReplacedSettingsMoveTheEndOfAnOpenPeriodWhereTheCooldownIsAnother) {
  struct Row {
    void (*change)(Settings&);
    Tick expected;
  };
  for (const Row& row :
       {Row{[](Settings&) {}, 77}, Row{[](Settings& s) { s.failures = 9; }, 77},
        Row{[](Settings& s) { s.forget_after_ms = 9; }, 77}, Row{[](Settings& s) { s.cooldown_ms = 30; }, 50 + 60},
        Row{[](Settings& s) { s.cooldown_multiplier = 3; }, 50 + 30},
        Row{[](Settings& s) { s.cooldown_maximum_ms = 15; }, 50 + 15},
        Row{[](Settings& s) { s.cooldown_jitter = 50; }, 50 + 20 - 10 * 500 / 1'000}}) {
    Settings after = kGrows;
    row.change(after);
    Breaker breaker{.state = open, .opened_at = 50, .open_until = 77, .growth = 1};
    const Effects effects = replace_settings(breaker, kGrows, after, 60, 500);
    EXPECT_EQ(breaker.open_until, row.expected);
    EXPECT_EQ(breaker.opened_at, 50);
    EXPECT_EQ(effects.change, Change::within_generation);
    EXPECT_EQ(effects.event, EventKind::settings_replaced);
    EXPECT_EQ(effects.reason, none);
    for (const CircuitState state : {closed, half_open}) {
      Breaker other{.state = state, .opened_at = 50, .open_until = 77, .growth = 1};
      (void)replace_settings(other, kGrows, after, 60, 500);
      EXPECT_EQ(other.open_until, 77);
    }
  }
}

// ---- slow probes

TEST(PolicyRules, ASlowProbeReopensOnlyWhereTold) {
  struct Row {
    bool told;
    CircuitState state;
    Outcome outcome;
    Tick at;
    RecordStatus status;
    TransitionReason reason;
  };
  using enum RecordStatus;
  for (const Row& row : {Row{false, half_open, Outcome::success, 106, counted, probe_succeeded},
                         Row{true, half_open, Outcome::success, 105, counted, probe_succeeded},
                         Row{true, half_open, Outcome::success, 106, counted, probe_slow},
                         Row{true, half_open, Outcome::failure, 106, counted, probe_failed},
                         Row{true, half_open, Outcome::ignored, 106, ignored, none},
                         Row{false, closed, Outcome::success, 106, ignored, none},
                         Row{true, closed, Outcome::success, 105, ignored, none},
                         Row{true, closed, Outcome::success, 106, counted, probe_slow}}) {
    Settings s = kGrows;
    s.slow_percent = s.slow_minimum_calls = 1;
    s.slower_than_ms = 5;
    s.reopen_on_slow_probe = row.told;
    Breaker breaker{.state = row.state, .opened_at = 0, .since = 100, .lease_at = 100};
    breaker.probes.add(7, 0);
    const RecordDecision decision =
        record_probe(breaker, s, row.at, {.probe = 7, .outcome = row.outcome, .started = started_at(100)});
    EXPECT_EQ(decision.status, row.status);
    EXPECT_EQ(to_string(decision.effects.reason), to_string(row.reason));
    EXPECT_EQ(decision.effects.resets_rejected,
              row.reason == probe_succeeded || (row.state == closed && row.reason != none))
        << to_string(row.reason);
    EXPECT_FALSE(breaker.probes.contains(7));
  }
}

// ---- ramp

constexpr Settings kRamp{.ramp_ms = 1'000, .ramp_start_percent = 10};

[[nodiscard]] Breaker ramping_since(Tick since) {
  return {.ramping = true, .recovered = true, .opened_at = 0, .since = since};
}
[[nodiscard]] AdmitDecision admit_ramping(const Settings& settings, Tick elapsed, std::uint32_t draw) {
  Breaker breaker = ramping_since(5'000);
  return admit(breaker, settings, 5'000 + elapsed, {.draw = draw});
}

TEST(PolicyRules, TheRampAdmitsAShareThatGrowsEvenly) {
  struct Row {
    std::uint32_t start;
    Tick elapsed;
    Tick share;
  };
  for (const Row& row : {Row{10, 0, 100}, Row{10, 1, 100}, Row{10, 2, 101}, Row{10, 500, 550}, Row{10, 999, 999},
                         Row{10, 1'000, 1'000}, Row{10, 2'000, 1'000}, Row{0, 0, 0}, Row{0, 1, 1}, Row{0, 999, 999},
                         Row{99, 0, 990}, Row{99, 99, 990}, Row{99, 100, 991}, Row{100, 0, 1'000}}) {
    const Settings s{.ramp_ms = 1'000, .ramp_start_percent = row.start};
    EXPECT_EQ(detail::ramp_share(s, row.elapsed), row.share) << row.start << " " << row.elapsed;
    if (row.share > 0) {
      const auto below = static_cast<std::uint32_t>(row.share - 1);
      EXPECT_EQ(admit_ramping(s, row.elapsed, below).admission, Admission::allowed);
    }
    if (row.share < 1'000) {
      const AdmitDecision decision = admit_ramping(s, row.elapsed, static_cast<std::uint32_t>(row.share));
      EXPECT_EQ(decision.admission, Admission::rejected);
      EXPECT_EQ(decision.turned, Turned::by_ramp);
      EXPECT_EQ(decision.effects.change, Change::nothing);
      EXPECT_EQ(decision.retry_at, 5'000 + row.elapsed + decision.retry_after);
    }
  }
}

TEST(PolicyRules, ACallThatTheRampTurnsAwayWaitsForTheNextTenth) {
  for (const std::uint32_t start : {0U, 1U, 10U, 55U, 89U, 90U, 99U}) {
    for (const std::int64_t duration : {1, 3, 7, 10, 99, 100, 1'000, 1'001}) {
      const Settings s{.ramp_ms = duration, .ramp_start_percent = start};
      for (Tick elapsed = 0; elapsed < duration; ++elapsed) {
        const Tick tenth = detail::ramp_share(s, elapsed) / 100;
        Tick next = elapsed + 1;
        while (detail::ramp_share(s, next) / 100 == tenth)
          ++next;
        ASSERT_EQ(admit_ramping(s, elapsed, 999).retry_after, next - elapsed)
            << start << " % of " << duration << " ms after " << elapsed;
      }
    }
  }
}

TEST(PolicyRules, TheLongestRampIsExact) {
  const Settings s{.ramp_ms = kLongest, .ramp_start_percent = 0};
  EXPECT_EQ(detail::ramp_share(s, kLongest - 1), 999);
  EXPECT_EQ(admit_ramping(s, kLongest - 1, 999).retry_after, 1);
  EXPECT_EQ(admit_ramping(s, 0, 0).retry_after, kLongest / 10 + 1);  // 2^40 is no multiple of ten
}

TEST(PolicyRules, TheRampBeginsWithAClosingByProbesOnly) {
  Settings s = kRamp;
  Breaker breaker{.state = half_open, .opened_at = 0, .since = 10, .lease_at = 10};
  breaker.probes.add(7, 0);
  (void)record_probe(breaker, s, 20, {.probe = 7, .outcome = Outcome::success});
  EXPECT_TRUE(breaker.ramping);
  EXPECT_TRUE(breaker.recovered);
  EXPECT_EQ(breaker.since, 20);
  for (const CircuitState to : {closed, open, half_open}) {
    Breaker forced = breaker;
    (void)force(forced, s, 30, to, 0);
    EXPECT_FALSE(forced.ramping);
    EXPECT_FALSE(forced.recovered);
  }
  (void)trip(breaker, s, 30, failure_threshold_reached, 0);
  EXPECT_FALSE(breaker.ramping);
  s.ramp_ms = 0;
  Breaker plain{.state = half_open, .opened_at = 0, .since = 10, .lease_at = 10};
  plain.probes.add(7, 0);
  (void)record_probe(plain, s, 20, {.probe = 7, .outcome = Outcome::success});
  EXPECT_FALSE(plain.ramping);
}

// ---- modes

TEST(PolicyRules, AModeLastsUntilItsEnd) {
  const Breaker ends{.mode = Mode::observe, .mode_until = 100};
  EXPECT_EQ(mode_at(ends, 99), Mode::observe);
  EXPECT_EQ(mode_at(ends, 100), Mode::automatic);
  const Breaker stays{.mode = Mode::observe};
  EXPECT_EQ(mode_at(stays, kLongest), Mode::observe);
}

TEST(PolicyRules, AModeIsJudgedByWhatTheBreakerHasSeen) {
  Breaker breaker{.state = open, .opened_at = 100, .open_until = 200};
  const Effects effects = set_mode(breaker, 20, Mode::forced_open, 30);  // ten from an instant that counts as 100
  EXPECT_EQ(effects.at, 100);
  EXPECT_EQ(breaker.mode_until, 110);
  EXPECT_EQ(admit(breaker, kGrows, 25, {}).retry_after, 10);
  EXPECT_EQ(mode_at(breaker, 25), Mode::forced_open);
  EXPECT_EQ(mode_at(breaker, 110), Mode::automatic);
  breaker.opened_at = 120;
  EXPECT_EQ(mode_at(breaker, 25), Mode::automatic);
}

TEST(PolicyRules, SettingAModeChangesNothingElse) {
  for (const CircuitState state : {closed, open, half_open}) {
    Breaker breaker{.state = state, .ramping = true, .opened_at = 5, .open_until = 9, .since = 7, .growth = 3};
    const Effects effects = set_mode(breaker, 50, Mode::forced_closed, 80);
    EXPECT_EQ(effects.change, Change::within_generation);
    EXPECT_EQ(effects.event, EventKind::mode_change);
    EXPECT_EQ(effects.reason, none);
    EXPECT_EQ(effects.from, state);
    EXPECT_FALSE(effects.empties_window || effects.resets_rejected);
    EXPECT_EQ(breaker.mode, Mode::forced_closed);
    EXPECT_EQ(breaker.mode_until, 80);
    EXPECT_EQ(breaker.state, state);
    EXPECT_TRUE(breaker.ramping);
    EXPECT_EQ(breaker.since, 7);
    (void)set_mode(breaker, 60, Mode::automatic, kNever);
    EXPECT_EQ(breaker.mode, Mode::automatic);
    EXPECT_EQ(breaker.mode_until, kNever);
  }
}

TEST(PolicyRules, AForcedStateKeepsTheModeAndItsEnd) {
  for (const CircuitState to : {closed, open, half_open}) {
    Breaker breaker{.mode = Mode::observe, .mode_until = 500};
    (void)force(breaker, kGrows, 50, to, 0);
    EXPECT_EQ(breaker.mode, Mode::observe);
    EXPECT_EQ(breaker.mode_until, 500);
  }
}

TEST(PolicyRules, OnlyDisabledWithoutAnEndStandsAside) {
  EXPECT_TRUE(stands_aside({.mode = Mode::disabled}));
  EXPECT_FALSE(stands_aside({.mode = Mode::disabled, .mode_until = 100}));
  for (const Mode mode : {Mode::automatic, Mode::forced_open, Mode::forced_closed, Mode::observe})
    EXPECT_FALSE(stands_aside({.mode = mode}));
}

TEST(PolicyRules, SettleWritesDownOneThingThatIsDueAtATime) {
  Breaker breaker = ramping_since(1'000);
  breaker.mode = Mode::observe;
  breaker.mode_until = 1'500;
  EXPECT_EQ(settle(breaker, kRamp, 1'499).change, Change::nothing);
  const Effects first = settle(breaker, kRamp, 2'000);
  EXPECT_EQ(first.event, EventKind::mode_expired);
  EXPECT_EQ(first.change, Change::within_generation);
  EXPECT_EQ(first.at, 2'000);
  EXPECT_EQ(breaker.mode, Mode::automatic);
  EXPECT_EQ(breaker.mode_until, kNever);
  EXPECT_TRUE(breaker.ramping);
  const Effects second = settle(breaker, kRamp, 2'000);
  EXPECT_EQ(second.event, EventKind::ramp_ended);
  EXPECT_EQ(second.change, Change::within_generation);
  EXPECT_FALSE(breaker.ramping);
  EXPECT_EQ(settle(breaker, kRamp, 2'000).change, Change::nothing);
}

TEST(PolicyRules, TheRampEndsExactlyAfterItsDuration) {
  Breaker breaker = ramping_since(1'000);
  EXPECT_EQ(settle(breaker, kRamp, 1'999).change, Change::nothing);
  EXPECT_EQ(settle(breaker, kRamp, 2'000).event, EventKind::ramp_ended);
}

/// A breaker at 1000 that by itself would turn a call away.
[[nodiscard]] Breaker turning_away(CircuitState state) {
  Breaker breaker{.state = state, .opened_at = 0, .open_until = 1'010, .since = 1'000, .lease_at = 990};
  breaker.ramping = state == closed;
  if (state == half_open) breaker.probes.add(1, 0);
  return breaker;
}

TEST(PolicyRules, EachModeAnswersAnAdmitInItsOwnWay) {
  struct Row {
    Mode mode;
    Admission admission;
    bool counts;
    Turned turned;  // where the state is closed it is by the ramp, if at all
  };
  Settings s = kRamp;
  s.probe_timeout_ms = 30;
  for (const Row& row : {Row{Mode::automatic, Admission::rejected, true, Turned::by_outage},
                         Row{Mode::forced_open, Admission::rejected, true, Turned::by_outage},
                         Row{Mode::forced_closed, Admission::allowed, true, Turned::none},
                         Row{Mode::disabled, Admission::allowed, false, Turned::none},
                         Row{Mode::observe, Admission::allowed, false, Turned::by_outage}}) {
    for (const CircuitState state : {closed, open, half_open}) {
      Breaker breaker = turning_away(state);
      breaker.mode = row.mode;
      const AdmitDecision decision = admit(breaker, s, 1'000, {.draw = 999});
      const bool ramp = state == closed && row.mode != Mode::forced_open && row.turned != Turned::none;
      EXPECT_EQ(decision.admission, row.admission) << to_string(row.mode) << " " << to_string(state);
      if (row.admission == Admission::allowed) {
        EXPECT_EQ(decision.counts, row.counts) << to_string(row.mode);
      }
      EXPECT_EQ(decision.turned, ramp ? Turned::by_ramp : row.turned) << to_string(row.mode) << " " << to_string(state);
      EXPECT_EQ(decision.effects.change, Change::nothing);
      EXPECT_EQ(breaker.state, state);
    }
  }
}

TEST(PolicyRules, ForcedOpenSaysWhenItEndsIfItDoes) {
  Breaker breaker{.mode = Mode::forced_open};
  EXPECT_EQ(admit(breaker, kGrows, 1'000, {}).retry_after, kNoEnd.count());
  EXPECT_EQ(admit(breaker, kGrows, 1'000, {}).retry_at, 1'000 + kNoEnd.count());
  breaker.mode_until = 1'001;
  EXPECT_EQ(admit(breaker, kGrows, 1'000, {}).retry_after, 1);
}

TEST(PolicyRules, ObserveAdmitsWouldBeProbesAsProbes) {
  Breaker breaker = turning_away(open);
  breaker.mode = Mode::observe;
  const AdmitDecision decision = admit(breaker, kGrows, 1'010, {.ids = {.on_transition = 7}});
  EXPECT_EQ(decision.admission, Admission::probe);
  EXPECT_TRUE(decision.counts);
  EXPECT_EQ(decision.effects.reason, cooldown_elapsed);
  EXPECT_EQ(breaker.state, half_open);
}

TEST(PolicyRules, EachModeTakesAVerdictInItsOwnWay) {
  struct Row {
    Mode mode;
    RecordStatus status;
    bool frees;
    bool moves;
  };
  for (const Row& row : {Row{Mode::automatic, RecordStatus::counted, true, true},
                         Row{Mode::forced_open, RecordStatus::counted, true, true},
                         Row{Mode::observe, RecordStatus::counted, true, true},
                         Row{Mode::forced_closed, RecordStatus::ignored, true, false},
                         Row{Mode::disabled, RecordStatus::ignored, false, false}}) {
    for (const Outcome outcome : {Outcome::success, Outcome::failure}) {
      Breaker breaker = turning_away(half_open);
      breaker.mode = row.mode;
      const RecordDecision decision = record_probe(breaker, kGrows, 1'000, {.probe = 1, .outcome = outcome});
      EXPECT_EQ(decision.status, row.status) << to_string(row.mode);
      EXPECT_EQ(breaker.probes.contains(1), !row.frees) << to_string(row.mode);
      EXPECT_EQ(breaker.state != half_open, row.moves) << to_string(row.mode);
      EXPECT_EQ(breaker.tally.probe_verdicts, row.moves ? 1U : 0U) << to_string(row.mode);
      EXPECT_EQ(decision.effects.change == Change::nothing, !row.frees) << to_string(row.mode);
    }
  }
}

// ---- probes of the dead

TEST(PolicyRules, AProbeIsAwaitedUntilTheLeaseIsOver) {
  constexpr Settings kSettings{.probe_timeout_ms = 100};
  Breaker breaker;
  breaker.lease_at = 50;
  EXPECT_FALSE(awaits_probes(breaker, kSettings, 50)) << "none is out";
  breaker.probes.count = 1;
  EXPECT_TRUE(awaits_probes(breaker, kSettings, 0)) << "an earlier instant counts as the lease's begin";
  EXPECT_TRUE(awaits_probes(breaker, kSettings, 149));
  EXPECT_FALSE(awaits_probes(breaker, kSettings, 150));
}

TEST(PolicyRules, ProbesOfTheDeadAreGivenUpAndTheLeaseStaysUnlessNoneIsLeft) {
  struct Row {
    std::uint32_t dead;
    Tick lease;
    std::uint32_t left;
  };
  Settings s = kGrows;
  s.probe_limit = 4;
  for (const Row& row :
       {Row{0b000, 990, 3}, Row{0b001, 990, 2}, Row{0b010, 990, 2}, Row{0b101, 990, 1}, Row{0b111, 1'000, 0}}) {
    Breaker breaker{.state = half_open, .opened_at = 0, .since = 990, .lease_at = 990};
    for (std::uint64_t probe = 1; probe <= 3; ++probe)
      breaker.probes.add(probe, static_cast<std::uint16_t>(probe));
    (void)admit(breaker, s, 1'000, {.ids = {.within_generation = 9}, .dead_probes = row.dead});
    EXPECT_EQ(breaker.lease_at, row.lease) << row.dead;
    EXPECT_EQ(breaker.probes.count, row.left + 1) << row.dead;
    EXPECT_TRUE(breaker.probes.contains(9));
    for (std::uint64_t probe = 1; probe <= 3; ++probe)
      EXPECT_EQ(breaker.probes.contains(probe), (row.dead >> (probe - 1) & 1U) == 0) << row.dead << " " << probe;
  }
}

// ---- the books

TEST(PolicyRules, TransitionsAreCountedAndTheTimeBeforeThemIsSummed) {
  Settings s = kGrows;
  s.cooldown_multiplier = 1;
  Breaker breaker{.since = 100};
  (void)trip(breaker, s, 130, slow_rate_reached, 0);
  (void)admit(breaker, s, 150, {.ids = {.on_transition = 1}});
  (void)record_probe(breaker, s, 153, {.probe = 1, .outcome = Outcome::failure});
  (void)admit(breaker, s, 163, {.ids = {.on_transition = 2}});
  (void)record_probe(breaker, s, 170, {.probe = 2, .outcome = Outcome::success});
  (void)force(breaker, s, 1'170, open, 0);
  EXPECT_EQ(breaker.tally.spent[static_cast<std::size_t>(closed)], 30 + 1'000);
  EXPECT_EQ(breaker.tally.spent[static_cast<std::size_t>(open)], 20 + 10);
  EXPECT_EQ(breaker.tally.spent[static_cast<std::size_t>(half_open)], 3 + 7);
  EXPECT_EQ(breaker.since, 1'170);
  EXPECT_EQ(breaker.tally.probes, 2U);
  EXPECT_EQ(breaker.tally.probe_verdicts, 2U);
  const auto of = [&breaker](TransitionReason reason) {
    return breaker.tally.transitions[static_cast<std::size_t>(reason)];
  };
  EXPECT_EQ(of(slow_rate_reached), 1U);
  EXPECT_EQ(of(cooldown_elapsed), 2U);
  EXPECT_EQ(of(probe_failed), 1U);
  EXPECT_EQ(of(probe_succeeded), 1U);
  EXPECT_EQ(of(forced_open), 1U);
  EXPECT_EQ(of(failure_threshold_reached), 0U);
}

TEST(PolicyRules, TimeThatGoesBackOrHasNoBeginningIsNotSummed) {
  EXPECT_EQ(lasted({.since = kNever}, 1'000), 0);
  EXPECT_EQ(lasted({.since = 1'000}, 999), 0);
  EXPECT_EQ(lasted({.since = 1'000}, 1'001), 1);
  Breaker breaker{.since = 1'000};
  (void)trip(breaker, kGrows, 900, failure_threshold_reached, 0);
  EXPECT_EQ(breaker.tally.spent[static_cast<std::size_t>(closed)], 0);
}

TEST(PolicyRules, SettingModesAndSettlingAreNoTransitions) {
  Breaker breaker = ramping_since(1'000);
  (void)set_mode(breaker, 1'000, Mode::observe, 1'010);
  (void)settle(breaker, kRamp, 9'000);
  (void)settle(breaker, kRamp, 9'000);
  for (const std::uint32_t count : breaker.tally.transitions)
    EXPECT_EQ(count, 0U);
  EXPECT_EQ(breaker.since, 1'000);
}

}  // namespace
}  // namespace shmcb::rules
