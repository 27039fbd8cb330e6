// SPDX-License-Identifier: BSD-3-Clause
// Every row of the contract on the pure functions. The window is the storages' own; see the conformance suite.
#include "shmcb/core/rules.hpp"

#include <array>
#include <cstdint>
#include <set>

#include <gtest/gtest.h>

namespace shmcb::rules {
namespace {

using enum CircuitState;

constexpr Settings kSettings{.failures = 3,
                             .window = 4,
                             .within_ms = 100,
                             .cooldown_ms = 50,
                             .probe_timeout_ms = 30,
                             .success_threshold = 2,
                             .probe_limit = 2};

Breaker closed_breaker() {
  return {.opened_at = 1000};
}
Breaker open_at(Tick at) {
  return {.state = open, .opened_at = at, .open_until = at + kSettings.cooldown_ms};
}
Breaker half_open_at(Tick lease, std::initializer_list<std::uint64_t> probes = {}) {
  Breaker breaker{.state = half_open, .opened_at = 1000, .lease_at = lease};
  for (const std::uint64_t probe : probes)
    breaker.probes.add(probe, 0);
  return breaker;
}
std::set<std::uint64_t> out(const Breaker& breaker) {
  return {breaker.probes.id.begin(), breaker.probes.id.begin() + breaker.probes.count};
}

/// Admits with identities that tell which of the two was used.
AdmitDecision admit_at(Breaker& breaker, Tick now) {
  return admit(breaker, kSettings, now, {.ids = {.on_transition = 71, .within_generation = 72}});
}
RecordDecision record_at(Breaker& breaker, Tick now, std::uint64_t probe, Outcome outcome) {
  return record_probe(breaker, kSettings, now, {.probe = probe, .outcome = outcome});
}

void expect_no_change(const Effects& effects) {
  EXPECT_EQ(effects.change, Change::nothing);
  EXPECT_EQ(effects.reason, TransitionReason::none);
  EXPECT_FALSE(effects.empties_window);
  EXPECT_FALSE(effects.resets_rejected);
}
void expect_transition(const Effects& effects, CircuitState from, TransitionReason reason, Tick at) {
  EXPECT_EQ(effects.change, Change::transition);
  EXPECT_EQ(effects.from, from);
  EXPECT_EQ(effects.reason, reason);
  EXPECT_EQ(effects.at, at);
}

// admit

TEST(Rules, AdmitInClosedAllowsAndChangesNothing) {
  Breaker breaker = closed_breaker();
  const AdmitDecision decision = admit_at(breaker, 0);
  EXPECT_EQ(decision.admission, Admission::allowed);
  expect_no_change(decision.effects);
  EXPECT_EQ(breaker.state, closed);
}

TEST(Rules, AdmitInOpenRejectsUntilTheCooldownIsOver) {
  for (const Tick now : {1000, 1049}) {
    Breaker breaker = open_at(1000);
    const AdmitDecision decision = admit_at(breaker, now);
    EXPECT_EQ(decision.admission, Admission::rejected);
    EXPECT_EQ(decision.retry_at, 1050);
    EXPECT_EQ(decision.retry_after, 1050 - now);
    expect_no_change(decision.effects);
    EXPECT_EQ(breaker.state, open);
  }
}

TEST(Rules, AdmitInOpenNeverAsksToWaitLongerThanTheCooldown) {
  Breaker breaker = open_at(1000);
  EXPECT_EQ(admit_at(breaker, 3).retry_after, 50);
}

TEST(Rules, AdmitAtTheEndOfTheCooldownIsAProbeOfANewHalfOpen) {
  Breaker breaker = open_at(1000);
  breaker.probe_successes = 1;
  breaker.probes.add(5, 0);
  const AdmitDecision decision = admit_at(breaker, 1050);
  EXPECT_EQ(decision.admission, Admission::probe);
  EXPECT_EQ(decision.probe, 71U);
  expect_transition(decision.effects, open, TransitionReason::cooldown_elapsed, 1050);
  EXPECT_FALSE(decision.effects.empties_window);
  EXPECT_FALSE(decision.effects.resets_rejected);
  EXPECT_EQ(breaker.state, half_open);
  EXPECT_EQ(breaker.opened_at, 1000);
  EXPECT_EQ(breaker.lease_at, 1050);
  EXPECT_EQ(breaker.probe_successes, 0U);
  EXPECT_EQ(out(breaker), std::set<std::uint64_t>{71});
}

TEST(Rules, AdmitInHalfOpenFillsTheLimitAndThenRejects) {
  Breaker breaker = half_open_at(2000, {1});
  const AdmitDecision second = admit_at(breaker, 2010);
  EXPECT_EQ(second.admission, Admission::probe);
  EXPECT_EQ(second.probe, 72U);
  EXPECT_EQ(second.effects.change, Change::within_generation);
  EXPECT_EQ(second.effects.reason, TransitionReason::none);
  EXPECT_EQ(breaker.lease_at, 2000);
  const AdmitDecision third = admit_at(breaker, 2029);
  EXPECT_EQ(third.admission, Admission::rejected);
  EXPECT_EQ(third.retry_at, 2059);
  EXPECT_EQ(third.retry_after, 30);
  expect_no_change(third.effects);
  EXPECT_EQ(out(breaker), (std::set<std::uint64_t>{1, 72}));
}

TEST(Rules, AdmitInHalfOpenReclaimsAllProbesOnceTheLeaseIsOver) {
  Breaker breaker = half_open_at(2000, {1, 2});
  const AdmitDecision decision = admit_at(breaker, 2030);
  EXPECT_EQ(decision.admission, Admission::probe);
  EXPECT_EQ(breaker.lease_at, 2030);
  EXPECT_EQ(out(breaker), std::set<std::uint64_t>{72});
}

TEST(Rules, AdmitInHalfOpenReclaimsBelowTheLimitToo) {
  Breaker breaker = half_open_at(2000, {1});
  (void)admit_at(breaker, 2030);
  EXPECT_EQ(out(breaker), std::set<std::uint64_t>{72});
}

TEST(Rules, AdmitInHalfOpenStartsTheLeaseWhenNoProbeIsOut) {
  Breaker breaker = half_open_at(2000);
  EXPECT_EQ(admit_at(breaker, 2007).admission, Admission::probe);
  EXPECT_EQ(breaker.lease_at, 2007);
}

TEST(Rules, AdmitInHalfOpenKeepsProbeSuccessesWhenItReclaims) {
  Breaker breaker = half_open_at(2000, {1, 2});
  breaker.probe_successes = 1;
  (void)admit_at(breaker, 2030);
  EXPECT_EQ(breaker.probe_successes, 1U);
}

TEST(Rules, AnInstantBeforeOpenedAtOrTheLeaseCountsAsThatOne) {
  EXPECT_EQ(not_before(closed_breaker(), 999), 1000);
  EXPECT_EQ(not_before(open_at(1000), 999), 1000);
  EXPECT_EQ(not_before(open_at(1000), 1001), 1001);
  EXPECT_EQ(not_before(half_open_at(2000), 1500), 2000);
  EXPECT_EQ(not_before(half_open_at(2000), 2001), 2001);
  EXPECT_EQ(not_before(Breaker{}, 0), 0);
  Breaker reopened = open_at(1000);
  reopened.lease_at = 2000;  // of a HalfOpen that is over
  EXPECT_EQ(not_before(reopened, 1500), 1500);
}

TEST(Rules, AdmitWorksAtTheLargestProbeLimit) {
  Settings settings = kSettings;
  settings.probe_limit = kMaxProbes;
  Breaker breaker = half_open_at(2000);
  for (std::uint64_t probe = 1; probe <= kMaxProbes; ++probe) {
    EXPECT_EQ(admit(breaker, settings, 2000, {.ids = {.within_generation = probe}}).admission, Admission::probe);
  }
  EXPECT_EQ(admit(breaker, settings, 2000, {.ids = {.within_generation = 99}}).admission, Admission::rejected);
  EXPECT_EQ(out(breaker).size(), kMaxProbes);
}

// record_outcome of a probe

TEST(Rules, ProbeThatIsNotOutChangesNothing) {
  for (const Breaker& before : {closed_breaker(), open_at(1000), half_open_at(2000, {1})}) {
    for (const Outcome outcome : {Outcome::success, Outcome::failure, Outcome::ignored}) {
      Breaker breaker = before;
      const RecordDecision decision = record_at(breaker, 3000, 9, outcome);
      EXPECT_EQ(decision.status, RecordStatus::stale);
      expect_no_change(decision.effects);
      EXPECT_EQ(breaker.state, before.state);
      EXPECT_EQ(out(breaker), out(before));
    }
  }
}

TEST(Rules, ProbeInOpenIsStale) {
  Breaker breaker = open_at(1000);
  breaker.probes.add(1, 0);
  const RecordDecision decision = record_at(breaker, 1001, 1, Outcome::failure);
  EXPECT_EQ(decision.status, RecordStatus::stale);
  expect_no_change(decision.effects);
}

TEST(Rules, ProbeSuccessBelowTheThresholdIsCountedAndFreesTheSlot) {
  Breaker breaker = half_open_at(2000, {1, 2});
  const RecordDecision decision = record_at(breaker, 2001, 1, Outcome::success);
  EXPECT_EQ(decision.status, RecordStatus::counted);
  EXPECT_EQ(decision.effects.change, Change::within_generation);
  EXPECT_EQ(decision.effects.reason, TransitionReason::none);
  EXPECT_EQ(breaker.state, half_open);
  EXPECT_EQ(breaker.probe_successes, 1U);
  EXPECT_EQ(out(breaker), std::set<std::uint64_t>{2});
  EXPECT_EQ(breaker.lease_at, 2000);
}

TEST(Rules, ProbeSuccessAtTheThresholdClosesAndLeavesSiblingsLive) {
  Breaker breaker = half_open_at(2000, {1, 2});
  breaker.probe_successes = 1;
  const RecordDecision decision = record_at(breaker, 2005, 1, Outcome::success);
  EXPECT_EQ(decision.status, RecordStatus::counted);
  expect_transition(decision.effects, half_open, TransitionReason::probe_succeeded, 2005);
  EXPECT_TRUE(decision.effects.empties_window);
  EXPECT_TRUE(decision.effects.resets_rejected);
  EXPECT_EQ(breaker.state, closed);
  EXPECT_EQ(breaker.opened_at, 1000);
  EXPECT_EQ(breaker.probe_successes, 0U);
  EXPECT_EQ(out(breaker), std::set<std::uint64_t>{2});
}

TEST(Rules, ProbeFailureReopensVoidsSiblingsAndKeepsRejections) {
  Breaker breaker = half_open_at(2000, {1, 2});
  breaker.probe_successes = 1;
  const RecordDecision decision = record_at(breaker, 2005, 1, Outcome::failure);
  EXPECT_EQ(decision.status, RecordStatus::counted);
  expect_transition(decision.effects, half_open, TransitionReason::probe_failed, 2005);
  EXPECT_FALSE(decision.effects.empties_window);
  EXPECT_FALSE(decision.effects.resets_rejected);
  EXPECT_EQ(breaker.state, open);
  EXPECT_EQ(breaker.opened_at, 2005);
  EXPECT_EQ(breaker.probe_successes, 0U);
  EXPECT_TRUE(out(breaker).empty());
}

TEST(Rules, ProbeIgnoredFreesTheSlotOnly) {
  Breaker breaker = half_open_at(2000, {1, 2});
  breaker.probe_successes = 1;
  const RecordDecision decision = record_at(breaker, 2005, 2, Outcome::ignored);
  EXPECT_EQ(decision.status, RecordStatus::ignored);
  EXPECT_EQ(decision.effects.change, Change::within_generation);
  EXPECT_EQ(decision.effects.reason, TransitionReason::none);
  EXPECT_EQ(breaker.state, half_open);
  EXPECT_EQ(breaker.probe_successes, 1U);
  EXPECT_EQ(out(breaker), std::set<std::uint64_t>{1});
}

TEST(Rules, SiblingFailureInClosedReopensWithRejectionsFromZero) {
  Breaker breaker = closed_breaker();
  breaker.probes.add(2, 0);
  const RecordDecision decision = record_at(breaker, 1500, 2, Outcome::failure);
  EXPECT_EQ(decision.status, RecordStatus::counted);
  expect_transition(decision.effects, closed, TransitionReason::probe_failed, 1500);
  EXPECT_FALSE(decision.effects.empties_window);
  EXPECT_TRUE(decision.effects.resets_rejected);
  EXPECT_EQ(breaker.state, open);
  EXPECT_EQ(breaker.opened_at, 1500);
}

TEST(Rules, SiblingSuccessOrIgnoredInClosedOnlyFreesTheRegistration) {
  for (const Outcome outcome : {Outcome::success, Outcome::ignored}) {
    Breaker breaker = closed_breaker();
    breaker.probes.add(2, 0);
    const RecordDecision decision = record_at(breaker, 1500, 2, outcome);
    EXPECT_EQ(decision.status, RecordStatus::ignored);
    EXPECT_EQ(decision.effects.change, Change::within_generation);  // not a new Closed period
    EXPECT_EQ(breaker.state, closed);
    EXPECT_EQ(breaker.probe_successes, 0U);
    EXPECT_TRUE(out(breaker).empty());
  }
}

TEST(Rules, ProbeFailureBeforeItsLeaseIsDatedAtTheLease) {
  Breaker breaker = half_open_at(2000, {1});
  EXPECT_EQ(record_at(breaker, 1500, 1, Outcome::failure).effects.at, 2000);
  EXPECT_EQ(breaker.opened_at, 2000);
}

// The window's decision

TEST(Rules, FailureThatCompletesTheThresholdTrips) {
  const auto trips = [](const Settings& settings, std::uint64_t failures) {
    return opens(settings, {.entries = 4, .failures = failures}, true) == TransitionReason::failure_threshold_reached;
  };
  EXPECT_FALSE(trips(kSettings, 1));
  EXPECT_FALSE(trips(kSettings, 2));
  EXPECT_TRUE(trips(kSettings, 3));
  EXPECT_TRUE(trips(kSettings, 4));
  EXPECT_EQ(opens(kSettings, {.entries = 4, .failures = 4}, false), TransitionReason::none) << "only a failure trips";
  Settings first = kSettings;
  first.failures = 1;
  EXPECT_TRUE(trips(first, 1));
}

TEST(Rules, TripOpensWithTheWindowKeptAndRejectionsFromZero) {
  Breaker breaker = closed_breaker();
  const Effects effects = trip(breaker, kSettings, 1234, TransitionReason::failure_threshold_reached, 0);
  expect_transition(effects, closed, TransitionReason::failure_threshold_reached, 1234);
  EXPECT_FALSE(effects.empties_window);
  EXPECT_TRUE(effects.resets_rejected);
  EXPECT_EQ(breaker.state, open);
  EXPECT_EQ(breaker.opened_at, 1234);
}

// force_state

TEST(Rules, ForceResetsEverythingInEveryState) {
  for (const Breaker& before : {closed_breaker(), open_at(1000), half_open_at(1500, {1, 2})}) {
    for (const CircuitState to : {closed, open, half_open}) {
      Breaker breaker = before;
      breaker.probe_successes = 1;
      const Effects effects = force(breaker, kSettings, 1600, to, 0);
      EXPECT_EQ(effects.change, Change::transition);  // also to the same state: attempts in flight become void
      EXPECT_EQ(effects.from, before.state);
      EXPECT_EQ(effects.at, 1600);
      EXPECT_EQ(effects.reason == TransitionReason::none, before.state == to);
      EXPECT_TRUE(effects.empties_window);
      EXPECT_TRUE(effects.resets_rejected);
      EXPECT_EQ(breaker.state, to);
      EXPECT_EQ(breaker.opened_at, 1600);
      EXPECT_EQ(breaker.lease_at, 1600);
      EXPECT_EQ(breaker.probe_successes, 0U);
      EXPECT_TRUE(out(breaker).empty());
    }
  }
}

TEST(Rules, ForceNamesTheStateItForced) {
  const auto reason = [](Breaker breaker, CircuitState to) { return force(breaker, kSettings, 2000, to, 0).reason; };
  EXPECT_EQ(reason(closed_breaker(), open), TransitionReason::forced_open);
  EXPECT_EQ(reason(open_at(1000), closed), TransitionReason::forced_closed);
  EXPECT_EQ(reason(open_at(1000), half_open), TransitionReason::forced_half_open);
}

TEST(Rules, ForceIsNoEarlierThanWhatTheBreakerHasSeen) {
  Breaker opened = open_at(1000);
  EXPECT_EQ(force(opened, kSettings, 500, closed, 0).at, 1000);
  Breaker probing = half_open_at(2000);
  EXPECT_EQ(force(probing, kSettings, 1500, open, 0).at, 2000);
}

// Probes

TEST(Probes, AreTakenOutByIdentityWithTheirHolders) {
  Probes probes;
  for (std::uint16_t i = 1; i <= kMaxProbes; ++i)
    probes.add(i, static_cast<std::uint16_t>(100 + i));
  probes.remove(1);
  probes.remove(17);
  probes.remove(99);
  EXPECT_EQ(probes.count, kMaxProbes - 2);
  EXPECT_FALSE(probes.contains(1));
  EXPECT_FALSE(probes.contains(17));
  for (std::uint32_t i = 0; i < probes.count; ++i)
    EXPECT_EQ(probes.owner[i], 100 + probes.id[i]);
  probes.clear();
  EXPECT_FALSE(probes.contains(2));
}

TEST(Probes, DoNotContainWhatIsLeftBehindTheirCount) {
  Probes probes;
  probes.add(5, 0);
  probes.remove(5);
  EXPECT_FALSE(probes.contains(5));
  EXPECT_FALSE(Probes{}.contains(0));
}

// The rules run at compile time: nothing in them needs a clock, a heap or an atomic.
constexpr CircuitState outage_at_compile_time() {
  Breaker breaker;
  (void)trip(breaker, kSettings, 0, TransitionReason::failure_threshold_reached, 0);
  const AdmitDecision first = admit(breaker, kSettings, 50, {.ids = {.on_transition = 1}});
  const AdmitDecision second = admit(breaker, kSettings, 51, {.ids = {.within_generation = 2}});
  (void)record_probe(breaker, kSettings, 52, {.probe = first.probe, .outcome = Outcome::success});
  (void)record_probe(breaker, kSettings, 53, {.probe = second.probe, .outcome = Outcome::success});
  return breaker.state;
}
static_assert(outage_at_compile_time() == closed);

}  // namespace
}  // namespace shmcb::rules
