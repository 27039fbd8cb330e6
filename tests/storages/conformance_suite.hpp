// SPDX-License-Identifier: BSD-3-Clause
// THE conformance suite: what every storage must answer, as recorded traces and as one test per rule. A storage joins
// with
//
//   struct MyFactory {  // made anew for every breaker
//     // A fresh breaker that reads `clock` and draws from `random`.
//     Result<MyStorage> open(const BreakerConfig& config, FakeClock clock, FakeRandom random);
//   };
//   INSTANTIATE_TYPED_TEST_SUITE_P(My, StorageConformance, MyFactory);
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/trace.hpp"
#include "common/trace_runner.hpp"
#include "shmcb/config.hpp"
#include "shmcb/storage.hpp"
#include "shmcb/time.hpp"
#include "shmcb/types.hpp"
#include "support/threads.hpp"

namespace shmcb::test {

/// The numbers of the hand-written tests: each different from the others, so that a mix-up shows.
inline BreakerConfig conformance_config() {
  return {.name = "conformance",
          .failure_threshold = {.failures = 2, .window = 4, .within = Millis{100}},
          .cooldown = {Millis{50}},
          .success_threshold = 2,
          .probe_limit = 2,
          .probe_timeout = Millis{30}};
}

/// A fresh breaker with its clock. Times are milliseconds from the start.
template <class Factory>
class Subject {
 public:
  explicit Subject(const BreakerConfig& config = conformance_config())
      : opened_(factory_.open(config, clock_, random_)) {
    if (!opened_) throw std::runtime_error("cannot open a breaker: " + opened_.error().message);
  }

  [[nodiscard]] auto& storage() { return *opened_; }
  [[nodiscard]] static Instant instant(std::int64_t ms) { return Instant{std::chrono::hours{1}} + Millis{ms}; }
  void set(std::int64_t ms, Micros more = Micros{0}) { clock_.set(instant(ms) + more); }
  /// What chance says from now on, in [0, rules::kDraws).
  void draw(std::uint32_t draw) { random_.set(draw); }

  AdmitResult admit(std::int64_t ms) {
    set(ms);
    const AdmitResult result = storage().admit();
    EXPECT_EQ(result.error, Errc::ok);
    return result;
  }
  RecordResult record(std::int64_t ms, Token token, Outcome outcome) {
    set(ms);
    const RecordResult result = storage().record_outcome(token, outcome);
    EXPECT_EQ(result.error, Errc::ok);
    return result;
  }
  ForceResult force(std::int64_t ms, CircuitState state) {
    set(ms);
    const ForceResult result = storage().force_state(state);
    EXPECT_EQ(result.error, Errc::ok);
    return result;
  }
  /// One call: admit and record at the same instant.
  RecordResult call(std::int64_t ms, Outcome outcome) { return record(ms, admit(ms).token, outcome); }
  void open_by_failures(std::int64_t ms) {
    call(ms, Outcome::failure);
    EXPECT_TRUE(call(ms, Outcome::failure).transition.has_value());
  }

  void mode(std::int64_t ms, Mode mode, std::optional<Millis> expires_after = {}) {
    set(ms);
    EXPECT_EQ(storage().set_mode({.mode = mode, .expires_after = expires_after}).error, Errc::ok);
  }
  [[nodiscard]] Counters counters(std::int64_t ms) {
    set(ms);
    const CountersResult result = storage().counters();
    EXPECT_EQ(result.error, Errc::ok);
    return result.counters;
  }
  /// "completed = successes + failures + ignored + stale + verdicts of probes", as numbers.
  [[nodiscard]] std::string outcomes() {
    const Counters c = storage().counters().counters;
    return std::to_string(c.completed) + " = " + std::to_string(c.successes) + " + " + std::to_string(c.failures) +
           " + " + std::to_string(c.ignored) + " + " + std::to_string(c.stale) + " + " +
           std::to_string(c.probe_verdicts);
  }

  [[nodiscard]] StateRecord snapshot() {
    const SnapshotResult result = storage().snapshot();
    EXPECT_EQ(result.error, Errc::ok);
    return result.record;
  }
  /// "state opened_at/successes/failures/rejected", with opened_at in ms from the start or "-".
  [[nodiscard]] std::string shown() { return shown(snapshot()); }
  [[nodiscard]] static std::string shown(const StateRecord& record) {
    const std::string opened_at =
        record.opened_at ? std::to_string(std::chrono::floor<Millis>(*record.opened_at - instant(0)).count()) : "-";
    return std::string{to_string(record.state)} + " " + opened_at + "/" + std::to_string(record.successes) + "/" +
           std::to_string(record.failures) + "/" + std::to_string(record.rejected);
  }
  /// "from>to reason at", or "none".
  [[nodiscard]] static std::string shown(const std::optional<CircuitTransition>& transition) {
    if (!transition) return "none";
    return std::string{to_string(transition->from)} + ">" + std::string{to_string(transition->to)} + " " +
           std::string{to_string(transition->reason)} + " " +
           std::to_string(std::chrono::floor<Millis>(transition->occurred_at - instant(0)).count());
  }

 private:
  FakeClock clock_{instant(0)};
  FakeRandom random_;
  Factory factory_;
  decltype(std::declval<Factory&>().open(std::declval<const BreakerConfig&>(), std::declval<FakeClock>(),
                                         std::declval<FakeRandom>())) opened_;
};

/// Runs every trace of a file on a fresh storage each.
template <class Factory>
void expect_traces_hold(const std::string& file, const replay::Timing& timing = {}) {
  constexpr std::size_t kMostShown = 20;  // arbitrary: the first deviations tell the most
  std::size_t deviations = 0;
  for (const replay::Trace& trace : replay::read_trace_file(SHMCB_TEST_DATA_DIR "/" + file)) {
    Factory factory;
    const auto open = [&factory](const BreakerConfig& config, FakeClock clock, FakeRandom random) {
      return factory.open(config, clock, random);
    };
    const auto result = replay::run_fresh(trace, open, timing);
    ASSERT_TRUE(result.has_value()) << trace.place << ": " << result.error().message;
    for (const replay::Deviation& deviation : *result) {
      if (++deviations <= kMostShown) ADD_FAILURE() << trace.place << ": " << replay::to_string(deviation);
    }
  }
  EXPECT_EQ(deviations, 0U);
}

/// The traces of the policies, all that are there.
inline std::vector<std::string> policy_files() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator{SHMCB_TEST_DATA_DIR "/policies"}) {
    if (entry.path().extension() == ".jsonl") files.push_back("policies/" + entry.path().filename().string());
  }
  return files;
}

template <class Factory>
class StorageConformance : public ::testing::Test {};

TYPED_TEST_SUITE_P(StorageConformance);

// The recorded traces.

TYPED_TEST_P(StorageConformance, AnswersTheAgreedTraces) {
  expect_traces_hold<TypeParam>("conformance/agreed.jsonl");
}

TYPED_TEST_P(StorageConformance, AnswersTheStrictTraces) {
  expect_traces_hold<TypeParam>("conformance/strict.jsonl");
}

TYPED_TEST_P(StorageConformance, AnswersTheTracesWithInstantsOutOfOrder) {
  expect_traces_hold<TypeParam>("conformance/clock.jsonl");
}

TYPED_TEST_P(StorageConformance, FloorsEveryInstantToTheMillisecond) {
  for (const std::string file : {"agreed.jsonl", "strict.jsonl", "clock.jsonl"}) {
    expect_traces_hold<TypeParam>("conformance/" + file, {.into_the_tick = Micros{999}});
  }
  for (const std::string& file : policy_files())
    expect_traces_hold<TypeParam>(file, {.into_the_tick = Micros{999}});
}

TYPED_TEST_P(StorageConformance, AnswersTheTracesOfThePolicies) {
  EXPECT_GE(policy_files().size(), 8U);
  for (const std::string& file : policy_files()) {
    SCOPED_TRACE(file);
    expect_traces_hold<TypeParam>(file);
  }
}

// What a breaker is.

TYPED_TEST_P(StorageConformance, IsClosedAndEmptyWhenFresh) {
  Subject<TypeParam> s;
  EXPECT_EQ(s.shown(), "closed -/0/0/0");
}

TYPED_TEST_P(StorageConformance, KnowsItsNameAndNumbers) {
  Subject<TypeParam> s;
  EXPECT_EQ(s.storage().name(), "conformance");
  EXPECT_EQ(s.storage().settings(), settings_of(conformance_config()));
}

TYPED_TEST_P(StorageConformance, RefusesEveryBadNumberByName) {
  const auto refusal = [](auto change) {
    BreakerConfig config = conformance_config();
    change(config);
    TypeParam factory;
    const auto result = factory.open(config, FakeClock{}, FakeRandom{});
    return result ? std::string{"accepted"}
                  : std::string{to_string(result.error().code)} + ": " + result.error().message;
  };
  EXPECT_EQ(refusal([](auto& c) { c.name = "a b"; }),
            "invalid_config: name is 'a b'; it must be of [A-Za-z0-9_.:-] only");
  EXPECT_EQ(refusal([](auto& c) { c.failure_threshold.failures = 0; }),
            "invalid_config: failure_threshold.failures is 0; it must be at least 1 unless failure_rate, "
            "consecutive_failures or slow_calls is set");
  EXPECT_EQ(refusal([](auto& c) { c.failure_threshold.window = 1; }),
            "invalid_config: failure_threshold.window is 1; it must be at least failure_threshold.failures (2)");
  EXPECT_EQ(refusal([](auto& c) { c.failure_threshold.within = Millis{0}; }),
            "invalid_config: failure_threshold.within is 0 ms; it must be from 1 ms to 2^40 ms");
  EXPECT_EQ(refusal([](auto& c) { c.cooldown.base = Millis{-1}; }),
            "invalid_config: cooldown.base is -1 ms; it must be from 1 ms to 2^40 ms");
  EXPECT_EQ(refusal([](auto& c) { c.success_threshold = 0; }),
            "invalid_config: success_threshold is 0; it must be at least 1");
  EXPECT_EQ(refusal([](auto& c) { c.probe_limit = 33; }), "invalid_config: probe_limit is 33; it must be from 1 to 32");
  EXPECT_EQ(refusal([](auto& c) { c.probe_timeout = Millis{0}; }),
            "invalid_config: probe_timeout is 0 ms; it must be from 1 ms to 2^40 ms");
  EXPECT_EQ(refusal([](auto& c) { c.failure_rate = {.percent = 101, .minimum_calls = 1}; }),
            "invalid_config: failure_rate.percent is 101; it must be a percentage from 1 to 100");
  EXPECT_EQ(refusal([](auto& c) { c.ramp_up = {.duration = Millis{0}}; }),
            "invalid_config: ramp_up.duration is 0 ms; it must be from 1 ms to 2^40 ms");
  EXPECT_EQ(refusal([](auto&) {}), "accepted");
}

TYPED_TEST_P(StorageConformance, TakesTheCooldownAsProbeTimeoutWhereNoneIsGiven) {
  BreakerConfig config = conformance_config();
  config.probe_timeout.reset();
  Subject<TypeParam> s{config};
  s.force(0, CircuitState::half_open);
  s.admit(0);
  s.admit(0);
  EXPECT_EQ(s.admit(49).admission, Admission::rejected);
  EXPECT_EQ(s.admit(50).admission, Admission::probe);
}

// admit

TYPED_TEST_P(StorageConformance, AllowsInClosedAndWritesNothing) {
  Subject<TypeParam> s;
  for (int i = 0; i < 10; ++i) {
    const AdmitResult result = s.admit(i);
    EXPECT_EQ(result.admission, Admission::allowed);
    EXPECT_EQ(result.token.admission, Admission::allowed);
    EXPECT_EQ(result.state, CircuitState::closed);
    EXPECT_FALSE(result.transition.has_value());
  }
  EXPECT_EQ(s.shown(), "closed -/0/0/0");
}

TYPED_TEST_P(StorageConformance, RejectsInOpenUntilTheCooldownIsOver) {
  Subject<TypeParam> s;
  s.open_by_failures(10);
  const AdmitResult first = s.admit(10);
  EXPECT_EQ(first.admission, Admission::rejected);
  EXPECT_EQ(first.token.admission, Admission::rejected);
  EXPECT_EQ(first.state, CircuitState::open);
  EXPECT_EQ(first.retry_after, Millis{50});
  EXPECT_EQ(first.retry_at, s.instant(60));
  const AdmitResult last = s.admit(59);
  EXPECT_EQ(last.admission, Admission::rejected);
  EXPECT_EQ(last.retry_after, Millis{1});
  EXPECT_EQ(last.retry_at, s.instant(60));
  EXPECT_EQ(s.shown(), "open 10/0/2/2");
}

TYPED_TEST_P(StorageConformance, BecomesHalfOpenExactlyAtTheEndOfTheCooldown) {
  Subject<TypeParam> s;
  s.open_by_failures(10);
  s.admit(20);
  const AdmitResult result = s.admit(60);
  EXPECT_EQ(result.admission, Admission::probe);
  EXPECT_EQ(result.token.admission, Admission::probe);
  EXPECT_EQ(result.state, CircuitState::half_open);
  EXPECT_EQ(s.shown(result.transition), "open>half-open cooldown-elapsed 60");
  EXPECT_EQ(result.transition->breaker_name, "conformance");
  EXPECT_EQ(s.shown(result.transition->state), "half-open 10/0/0/1");
  EXPECT_EQ(s.shown(), "half-open 10/0/0/1");
}

TYPED_TEST_P(StorageConformance, RejectsInAFullHalfOpenForOneProbeTimeout) {
  Subject<TypeParam> s;
  s.force(0, CircuitState::open);
  s.admit(50);
  const AdmitResult second = s.admit(55);
  EXPECT_EQ(second.admission, Admission::probe);
  EXPECT_FALSE(second.transition.has_value());
  const AdmitResult third = s.admit(60);
  EXPECT_EQ(third.admission, Admission::rejected);
  EXPECT_EQ(third.state, CircuitState::half_open);
  EXPECT_EQ(third.retry_after, Millis{30});
  EXPECT_EQ(third.retry_at, s.instant(90));
  EXPECT_EQ(s.shown(), "half-open 0/0/0/1");
}

TYPED_TEST_P(StorageConformance, ReclaimsAllProbesWhenTheirOneLeaseIsOver) {
  Subject<TypeParam> s;
  s.force(0, CircuitState::half_open);
  const Token first = s.admit(10).token;  // none was out: the lease starts at 10
  const Token second = s.admit(39).token;
  EXPECT_EQ(s.admit(39).admission, Admission::rejected);
  EXPECT_EQ(s.admit(40).admission, Admission::probe);  // reclaims both, the one of 39 too; the lease starts at 40
  EXPECT_EQ(s.admit(40).admission, Admission::probe);
  EXPECT_EQ(s.admit(69).admission, Admission::rejected);
  for (const Token reclaimed : {first, second}) {
    EXPECT_EQ(s.record(69, reclaimed, Outcome::failure).status, RecordStatus::stale);
  }
  EXPECT_EQ(s.shown(), "half-open 0/0/0/2");
  EXPECT_EQ(s.admit(70).admission, Admission::probe);
}

TYPED_TEST_P(StorageConformance, StartsTheLeaseAnewWhenNoProbeIsOut) {
  Subject<TypeParam> s;
  s.force(0, CircuitState::half_open);
  s.record(5, s.admit(0).token, Outcome::ignored);
  const Token probe = s.admit(29).token;
  s.admit(30);  // the lease of 0 would be over, that of 29 is not
  EXPECT_EQ(s.admit(58).admission, Admission::rejected);
  EXPECT_EQ(s.record(58, probe, Outcome::success).status, RecordStatus::counted);
}

TYPED_TEST_P(StorageConformance, KeepsTheLeaseWhileAProbeIsOut) {
  Subject<TypeParam> s;
  s.force(0, CircuitState::half_open);
  const Token stays = s.admit(0).token;
  s.record(20, s.admit(20).token, Outcome::ignored);
  s.admit(29);
  EXPECT_EQ(s.admit(30).admission, Admission::probe);
  EXPECT_EQ(s.record(30, stays, Outcome::success).status, RecordStatus::stale);
}

TYPED_TEST_P(StorageConformance, CountsAnInstantBeforeOpenedAtAsOpenedAt) {
  Subject<TypeParam> s;
  s.open_by_failures(100);
  const AdmitResult result = s.admit(20);
  EXPECT_EQ(result.admission, Admission::rejected);
  EXPECT_EQ(result.retry_after, Millis{50});  // not 130
  EXPECT_EQ(result.retry_at, s.instant(150));
}

TYPED_TEST_P(StorageConformance, CountsAnInstantBeforeTheLeaseAsItsStart) {
  Subject<TypeParam> s;
  s.force(0, CircuitState::open);
  const Token probe = s.admit(200).token;
  s.admit(200);
  const AdmitResult full = s.admit(60);
  EXPECT_EQ(full.admission, Admission::rejected);
  EXPECT_EQ(full.retry_at, s.instant(230));
  EXPECT_EQ(s.shown(s.record(60, probe, Outcome::failure).transition), "half-open>open probe-failed 200");
}

// record_outcome, rules 1 and 2: what does not count

TYPED_TEST_P(StorageConformance, RecordsNothingOfARejectedAttempt) {
  Subject<TypeParam> s;
  s.force(0, CircuitState::open);
  const Token rejected = s.admit(0).token;
  for (const CircuitState state : {CircuitState::open, CircuitState::half_open, CircuitState::closed}) {
    s.force(1, state);
    for (const Outcome outcome : {Outcome::success, Outcome::failure, Outcome::ignored}) {
      const RecordResult result = s.record(1, rejected, outcome);
      EXPECT_EQ(result.status, RecordStatus::rejected);
      EXPECT_FALSE(result.transition.has_value());
    }
    EXPECT_EQ(s.shown(), std::string{to_string(state)} + " 1/0/0/0");
  }
}

TYPED_TEST_P(StorageConformance, CountsAnAllowedAttemptAsOftenAsItIsRecorded) {
  Subject<TypeParam> s;
  const Token token = s.admit(0).token;
  EXPECT_EQ(s.record(0, token, Outcome::success).status, RecordStatus::counted);
  EXPECT_EQ(s.record(0, token, Outcome::failure).status, RecordStatus::counted);
  EXPECT_EQ(s.shown(), "closed -/1/1/0");
}

TYPED_TEST_P(StorageConformance, CountsAProbeOnce) {
  Subject<TypeParam> s;
  s.force(0, CircuitState::half_open);
  const Token probe = s.admit(0).token;
  EXPECT_EQ(s.record(1, probe, Outcome::success).status, RecordStatus::counted);
  EXPECT_EQ(s.record(1, probe, Outcome::success).status, RecordStatus::stale);
  EXPECT_EQ(s.record(1, probe, Outcome::failure).status, RecordStatus::stale);
  EXPECT_EQ(s.shown(), "half-open 0/1/0/0");
}

TYPED_TEST_P(StorageConformance, TellsProbesOfOneInstantApart) {
  Subject<TypeParam> s;
  s.force(0, CircuitState::half_open);
  const Token first = s.admit(0).token;
  const Token second = s.admit(0).token;
  EXPECT_EQ(s.record(0, first, Outcome::ignored).status, RecordStatus::ignored);
  EXPECT_EQ(s.record(0, first, Outcome::failure).status, RecordStatus::stale);
  EXPECT_EQ(s.record(0, second, Outcome::success).status, RecordStatus::counted);
  EXPECT_EQ(s.shown(), "half-open 0/1/0/0");
}

TYPED_TEST_P(StorageConformance, VoidsAProbeOfAnEarlierHalfOpen) {
  Subject<TypeParam> s;
  s.force(0, CircuitState::half_open);
  const Token old = s.admit(0).token;
  s.record(0, s.admit(0).token, Outcome::failure);
  s.admit(50);
  for (const Outcome outcome : {Outcome::success, Outcome::ignored, Outcome::failure}) {
    EXPECT_EQ(s.record(50, old, outcome).status, RecordStatus::stale);
  }
  EXPECT_EQ(s.shown(), "half-open 0/0/0/0");
}

TYPED_TEST_P(StorageConformance, VoidsAProbeThatAForcedStateOvertook) {
  for (const CircuitState state : {CircuitState::open, CircuitState::half_open, CircuitState::closed}) {
    Subject<TypeParam> s;
    s.force(0, CircuitState::half_open);
    const Token probe = s.admit(0).token;
    s.force(0, state);
    EXPECT_EQ(s.record(0, probe, Outcome::failure).status, RecordStatus::stale);
    EXPECT_EQ(s.shown(), std::string{to_string(state)} + " 0/0/0/0");
  }
}

// record_outcome, rules 3 and 4: the window

TYPED_TEST_P(StorageConformance, KeepsIgnoredOutcomesOutOfTheWindow) {
  Subject<TypeParam> s;
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(s.call(i, Outcome::ignored).status, RecordStatus::ignored);
  EXPECT_EQ(s.shown(), "closed -/0/0/0");
}

TYPED_TEST_P(StorageConformance, OpensWithTheFailureThatCompletesTheThreshold) {
  Subject<TypeParam> s;
  s.call(1, Outcome::success);
  const RecordResult first = s.call(2, Outcome::failure);
  EXPECT_EQ(first.status, RecordStatus::counted);
  EXPECT_FALSE(first.transition.has_value());
  const RecordResult second = s.call(3, Outcome::failure);
  EXPECT_EQ(second.status, RecordStatus::counted);
  EXPECT_EQ(s.shown(second.transition), "closed>open failure-threshold-reached 3");
  EXPECT_EQ(s.shown(second.transition->state), "open 3/1/2/0");
  EXPECT_EQ(second.transition->breaker_name, "conformance");
  EXPECT_EQ(s.shown(), "open 3/1/2/0");
}

TYPED_TEST_P(StorageConformance, KeepsTheNewestOutcomesOnly) {
  Subject<TypeParam> s;
  s.call(0, Outcome::failure);
  for (int i = 0; i < 3; ++i)
    s.call(0, Outcome::success);
  EXPECT_EQ(s.shown(), "closed -/3/1/0");
  s.call(0, Outcome::success);  // in one instant the order of recording decides
  EXPECT_EQ(s.shown(), "closed -/4/0/0");
  s.call(0, Outcome::failure);
  EXPECT_EQ(s.shown(), "closed -/3/1/0");
}

TYPED_TEST_P(StorageConformance, KeepsAnOutcomeThatIsExactlyWithinOld) {
  Subject<TypeParam> s;
  s.call(0, Outcome::failure);
  s.call(100, Outcome::success);
  EXPECT_EQ(s.shown(), "closed -/1/1/0");
  s.call(101, Outcome::success);
  EXPECT_EQ(s.shown(), "closed -/2/0/0");
}

TYPED_TEST_P(StorageConformance, DoesNotOpenForFailuresThatAreTooOld) {
  Subject<TypeParam> s;
  s.call(0, Outcome::failure);
  EXPECT_FALSE(s.call(101, Outcome::failure).transition.has_value());
  EXPECT_EQ(s.shown(s.call(201, Outcome::failure).transition), "closed>open failure-threshold-reached 201");
}

TYPED_TEST_P(StorageConformance, CountsAnOutcomeBeforeTheNewestAsSimultaneous) {
  Subject<TypeParam> s;
  s.call(500, Outcome::success);
  s.call(100, Outcome::failure);  // counts as 500
  EXPECT_EQ(s.shown(), "closed -/1/1/0");
  EXPECT_EQ(s.shown(s.call(450, Outcome::failure).transition), "closed>open failure-threshold-reached 500");
}

TYPED_TEST_P(StorageConformance, CountsAnOutcomeBeforeOpenedAtAsOpenedAt) {
  Subject<TypeParam> s;
  s.force(500, CircuitState::closed);
  s.call(100, Outcome::failure);
  EXPECT_EQ(s.shown(s.call(600, Outcome::failure).transition), "closed>open failure-threshold-reached 600");
}

TYPED_TEST_P(StorageConformance, DoesNotDateANewPeriodByTheOutcomesOfTheOldOne) {
  Subject<TypeParam> s;
  s.call(500, Outcome::success);
  s.force(100, CircuitState::closed);  // no record has opened yet, so this is 100
  s.call(110, Outcome::failure);
  EXPECT_EQ(s.shown(s.call(120, Outcome::failure).transition), "closed>open failure-threshold-reached 120");
}

TYPED_TEST_P(StorageConformance, DropsAnOutcomeOfAnEarlierClosedPeriod) {
  Subject<TypeParam> s;
  const Token late = s.admit(0).token;
  s.open_by_failures(0);
  s.record(50, s.admit(50).token, Outcome::success);
  s.record(50, s.admit(50).token, Outcome::success);
  ASSERT_EQ(s.shown(), "closed 0/0/0/0");
  EXPECT_EQ(s.record(51, late, Outcome::failure).status, RecordStatus::stale);
  EXPECT_EQ(s.record(51, late, Outcome::success).status, RecordStatus::stale);
  EXPECT_EQ(s.record(51, late, Outcome::ignored).status, RecordStatus::ignored);
  EXPECT_EQ(s.shown(), "closed 0/0/0/0");
}

TYPED_TEST_P(StorageConformance, DropsAnOutcomeThatAForcedClosedOvertook) {
  Subject<TypeParam> s;
  const Token late = s.admit(0).token;
  s.force(0, CircuitState::closed);
  EXPECT_EQ(s.record(0, late, Outcome::failure).status, RecordStatus::stale);
  EXPECT_EQ(s.shown(), "closed 0/0/0/0");
}

TYPED_TEST_P(StorageConformance, DropsAnAllowedOutcomeInOpenAndHalfOpen) {
  Subject<TypeParam> s;
  const Token late = s.admit(0).token;
  s.open_by_failures(0);
  EXPECT_EQ(s.record(1, late, Outcome::failure).status, RecordStatus::stale);
  EXPECT_EQ(s.shown(), "open 0/0/2/0");
  s.admit(50);
  EXPECT_EQ(s.record(51, late, Outcome::success).status, RecordStatus::stale);
  EXPECT_EQ(s.shown(), "half-open 0/0/0/0");
}

// record_outcome, rules 5 and 6: probes

TYPED_TEST_P(StorageConformance, ClosesAtTheSuccessThresholdWithAnEmptyWindow) {
  Subject<TypeParam> s;
  s.open_by_failures(0);
  s.admit(10);
  const RecordResult first = s.record(51, s.admit(50).token, Outcome::success);
  EXPECT_EQ(first.status, RecordStatus::counted);
  EXPECT_FALSE(first.transition.has_value());
  EXPECT_EQ(s.shown(), "half-open 0/1/0/1");
  const RecordResult second = s.record(53, s.admit(52).token, Outcome::success);
  EXPECT_EQ(second.status, RecordStatus::counted);
  EXPECT_EQ(s.shown(second.transition), "half-open>closed probe-succeeded 53");
  EXPECT_EQ(s.shown(second.transition->state), "closed 0/0/0/0");
  EXPECT_EQ(s.shown(), "closed 0/0/0/0");
}

TYPED_TEST_P(StorageConformance, ReopensWithAFailedProbeAndKeepsCountingRejections) {
  Subject<TypeParam> s;
  s.open_by_failures(0);
  s.admit(10);
  const RecordResult result = s.record(55, s.admit(50).token, Outcome::failure);
  EXPECT_EQ(result.status, RecordStatus::counted);
  EXPECT_EQ(s.shown(result.transition), "half-open>open probe-failed 55");
  EXPECT_EQ(s.shown(result.transition->state), "open 55/0/2/1");
  s.admit(60);
  EXPECT_EQ(s.shown(), "open 55/0/2/2");  // the window as the last outcome left it, the rejections of the whole outage
}

TYPED_TEST_P(StorageConformance, ForgetsProbeSuccessesWhenItReopens) {
  Subject<TypeParam> s;
  s.force(0, CircuitState::half_open);
  s.record(0, s.admit(0).token, Outcome::success);
  s.record(0, s.admit(0).token, Outcome::failure);
  s.record(50, s.admit(50).token, Outcome::success);
  EXPECT_EQ(s.shown(), "half-open 0/1/0/0");
}

TYPED_TEST_P(StorageConformance, VoidsTheSiblingsOfAFailedProbe) {
  Subject<TypeParam> s;
  s.force(0, CircuitState::half_open);
  const Token sibling = s.admit(0).token;
  s.record(0, s.admit(0).token, Outcome::failure);
  for (const Outcome outcome : {Outcome::success, Outcome::ignored, Outcome::failure}) {
    const RecordResult result = s.record(1, sibling, outcome);
    EXPECT_EQ(result.status, RecordStatus::stale);
    EXPECT_FALSE(result.transition.has_value());
  }
  EXPECT_EQ(s.shown(), "open 0/0/0/0");
}

TYPED_TEST_P(StorageConformance, FreesTheSlotOfAnIgnoredProbeAndNothingElse) {
  Subject<TypeParam> s;
  s.force(0, CircuitState::half_open);
  const Token probe = s.admit(0).token;
  s.admit(0);
  EXPECT_EQ(s.admit(0).admission, Admission::rejected);
  const RecordResult result = s.record(1, probe, Outcome::ignored);
  EXPECT_EQ(result.status, RecordStatus::ignored);
  EXPECT_FALSE(result.transition.has_value());
  EXPECT_EQ(s.shown(), "half-open 0/0/0/1");
  EXPECT_EQ(s.admit(1).admission, Admission::probe);
}

/// Two probes close the breaker while a third is out: answers that one.
template <class Factory>
Token close_with_a_probe_out(Subject<Factory>& s) {
  s.force(0, CircuitState::half_open);
  const Token stays = s.admit(0).token;
  s.record(0, s.admit(0).token, Outcome::success);
  s.record(0, s.admit(0).token, Outcome::success);
  EXPECT_EQ(s.shown(), "closed 0/0/0/0");
  return stays;
}

TYPED_TEST_P(StorageConformance, ReopensWithAFailedSiblingAfterItClosed) {
  Subject<TypeParam> s;
  const Token sibling = close_with_a_probe_out(s);
  s.call(5, Outcome::failure);
  s.call(6, Outcome::success);
  const RecordResult result = s.record(7, sibling, Outcome::failure);
  EXPECT_EQ(result.status, RecordStatus::counted);
  EXPECT_EQ(s.shown(result.transition), "closed>open probe-failed 7");
  EXPECT_EQ(s.shown(result.transition->state), "open 7/1/1/0");  // the probe itself is not in the window
}

TYPED_TEST_P(StorageConformance, DoesNothingForASuccessfulSiblingAfterItClosed) {
  for (const Outcome outcome : {Outcome::success, Outcome::ignored}) {
    Subject<TypeParam> s;
    const Token sibling = close_with_a_probe_out(s);
    const RecordResult result = s.record(7, sibling, outcome);
    EXPECT_EQ(result.status, RecordStatus::ignored);
    EXPECT_FALSE(result.transition.has_value());
    EXPECT_EQ(s.record(7, sibling, Outcome::failure).status, RecordStatus::stale);
    EXPECT_EQ(s.shown(), "closed 0/0/0/0");
  }
}

TYPED_TEST_P(StorageConformance, KeepsTheClosedPeriodWhenASiblingReports) {
  Subject<TypeParam> s;
  const Token sibling = close_with_a_probe_out(s);
  const Token before = s.admit(1).token;
  s.record(2, sibling, Outcome::success);
  EXPECT_EQ(s.record(3, before, Outcome::failure).status, RecordStatus::counted);
  EXPECT_EQ(s.shown(), "closed 0/0/1/0");
}

TYPED_TEST_P(StorageConformance, VoidsASiblingThatAnotherOutageOvertook) {
  Subject<TypeParam> s;
  const Token sibling = close_with_a_probe_out(s);
  s.open_by_failures(5);
  EXPECT_EQ(s.record(6, sibling, Outcome::failure).status, RecordStatus::stale);
  s.admit(55);
  EXPECT_EQ(s.record(56, sibling, Outcome::failure).status, RecordStatus::stale);
  EXPECT_EQ(s.shown(), "half-open 5/0/0/0");
}

TYPED_TEST_P(StorageConformance, StartsRejectionsFromZeroWithEveryOutage) {
  Subject<TypeParam> s;
  s.open_by_failures(0);
  s.admit(1);
  s.record(50, s.admit(50).token, Outcome::success);
  s.record(50, s.admit(50).token, Outcome::success);
  s.open_by_failures(60);
  EXPECT_EQ(s.shown(), "open 60/0/2/0");
}

// snapshot, peek and force_state

TYPED_TEST_P(StorageConformance, ShowsWithoutPruningOrTransition) {
  Subject<TypeParam> s;
  s.call(0, Outcome::failure);
  s.set(10'000);
  EXPECT_EQ(s.shown(), "closed -/0/1/0");
  s.force(10'000, CircuitState::open);
  s.set(20'000);
  EXPECT_EQ(s.shown(), "open 10000/0/0/0");
  EXPECT_EQ(s.storage().peek().state, CircuitState::open);
}

TYPED_TEST_P(StorageConformance, PeeksAtTheStateAndTheCooldownThatIsLeft) {
  Subject<TypeParam> s;
  EXPECT_EQ(s.storage().peek().state, CircuitState::closed);
  EXPECT_EQ(s.storage().peek().cooldown_left, Millis{0});
  s.open_by_failures(10);
  const auto left_at = [&s](std::int64_t ms) {
    s.set(ms);
    EXPECT_EQ(s.storage().peek().state, CircuitState::open);
    return s.storage().peek().cooldown_left.count();
  };
  EXPECT_EQ(left_at(10), 50);
  EXPECT_EQ(left_at(0), 50);  // before opened_at
  EXPECT_EQ(left_at(59), 1);
  EXPECT_EQ(left_at(60), 0);
  EXPECT_EQ(left_at(1000), 0);
  s.admit(60);
  EXPECT_EQ(s.storage().peek().state, CircuitState::half_open);
  EXPECT_EQ(s.storage().peek().cooldown_left, Millis{0});
  EXPECT_EQ(s.shown(), "half-open 10/0/0/0");
}

TYPED_TEST_P(StorageConformance, ForcesEachStateWithItsReasonAndEverythingReset) {
  using enum CircuitState;
  const std::array expected{std::pair{closed, "open>closed forced-closed 9"},
                            std::pair{half_open, "open>half-open forced-half-open 9"}};
  for (const auto& [state, transition] : expected) {
    Subject<TypeParam> s;
    s.open_by_failures(0);
    s.admit(1);
    const ForceResult result = s.force(9, state);
    EXPECT_EQ(s.shown(result.transition), transition);
    EXPECT_EQ(s.shown(result.transition->state), std::string{to_string(state)} + " 9/0/0/0");
    EXPECT_EQ(s.shown(), std::string{to_string(state)} + " 9/0/0/0");
  }
  Subject<TypeParam> s;
  s.call(0, Outcome::failure);
  EXPECT_EQ(s.shown(s.force(9, open).transition), "closed>open forced-open 9");
  EXPECT_EQ(s.shown(), "open 9/0/0/0");
}

TYPED_TEST_P(StorageConformance, ResetsWithoutATransitionWhenTheStateIsInEffectAlready) {
  for (const CircuitState state : {CircuitState::closed, CircuitState::open, CircuitState::half_open}) {
    Subject<TypeParam> s;
    s.force(0, state);
    s.record(1, s.admit(1).token, Outcome::success);
    s.admit(1);
    s.admit(1);
    EXPECT_FALSE(s.force(5, state).transition.has_value());
    EXPECT_EQ(s.shown(), std::string{to_string(state)} + " 5/0/0/0");
  }
}

TYPED_TEST_P(StorageConformance, CountsAForcedOpenFromItsOwnInstant) {
  Subject<TypeParam> s;
  s.force(0, CircuitState::open);
  s.force(40, CircuitState::open);
  EXPECT_EQ(s.admit(89).admission, Admission::rejected);
  EXPECT_EQ(s.admit(90).admission, Admission::probe);
}

TYPED_TEST_P(StorageConformance, ForcesNoEarlierThanItOpened) {
  Subject<TypeParam> s;
  s.open_by_failures(100);
  EXPECT_EQ(s.shown(s.force(20, CircuitState::closed).transition), "open>closed forced-closed 100");
  EXPECT_EQ(s.shown(), "closed 100/0/0/0");
}

TYPED_TEST_P(StorageConformance, WorksWithTheLongestDurations) {
  const Millis longest{kMaxDurationMs};
  BreakerConfig config = conformance_config();
  config.failure_threshold.within = config.cooldown.base = longest;
  config.probe_timeout = longest;
  Subject<TypeParam> s{config};
  s.open_by_failures(7);
  EXPECT_EQ(s.admit(7).retry_after, longest);
  EXPECT_EQ(s.admit(7 + kMaxDurationMs - 1).admission, Admission::rejected);
  EXPECT_EQ(s.admit(7 + kMaxDurationMs).admission, Admission::probe);
}

// Many threads

inline constexpr std::size_t kThreads = 4;  // arbitrary; more than the cores of a small machine

TYPED_TEST_P(StorageConformance, NeverHasMoreProbesOutThanTheLimit) {
  Subject<TypeParam> s;
  s.force(0, CircuitState::half_open);
  std::atomic<int> out{0};
  std::atomic<int> most{0};
  std::atomic<std::uint64_t> rejected{0};
  run_threads(kThreads, [&](std::size_t) {
    for (int i = 0; i < 2'000; ++i) {
      const AdmitResult result = s.storage().admit();
      if (result.admission == Admission::rejected) ++rejected;
      if (result.admission != Admission::probe) continue;
      // Counted after the admission and uncounted before the record: never more than are really out.
      const int now_out = ++out;
      for (int seen = most.load(); seen < now_out && !most.compare_exchange_weak(seen, now_out);) {
      }
      --out;
      if (s.storage().record_outcome(result.token, Outcome::ignored).status != RecordStatus::ignored) most = 1'000;
    }
  });
  EXPECT_GE(most.load(), 1);
  EXPECT_LE(most.load(), 2);
  EXPECT_EQ(s.snapshot().rejected, rejected.load());
}

TYPED_TEST_P(StorageConformance, ReportsEachTransitionToOneThreadOnly) {
  constexpr int kRounds = 200;
  Subject<TypeParam> s;
  std::atomic<int> half_opened{0};
  std::atomic<int> reopened{0};
  std::atomic<int> probes{0};
  std::barrier round{static_cast<std::ptrdiff_t>(kThreads)};
  s.force(0, CircuitState::open);
  run_threads(kThreads, [&](std::size_t index) {
    for (int i = 0; i < kRounds; ++i) {
      if (index == 0) s.set(50 * (i + 1));  // exactly the end of the cooldown
      round.arrive_and_wait();
      const AdmitResult result = s.storage().admit();
      if (result.transition) ++half_opened;
      if (result.admission == Admission::probe) ++probes;
      round.arrive_and_wait();
      if (s.storage().record_outcome(result.token, Outcome::failure).transition) ++reopened;
      round.arrive_and_wait();
    }
  });
  EXPECT_EQ(half_opened.load(), kRounds);
  EXPECT_EQ(probes.load(), 2 * kRounds);
  EXPECT_EQ(reopened.load(), kRounds);
  EXPECT_EQ(s.snapshot().rejected, (kThreads - 2) * kRounds);
}

TYPED_TEST_P(StorageConformance, LosesNoOutcomeOfAnyThread) {
  constexpr std::uint32_t kEach = 500;
  constexpr std::uint32_t kFailures = kThreads * kEach;
  BreakerConfig config = conformance_config();
  config.failure_threshold = {.failures = kFailures, .window = 2 * kFailures, .within = Millis{100}};
  Subject<TypeParam> s{config};
  std::atomic<int> opened{0};
  run_threads(kThreads, [&](std::size_t) {
    for (std::uint32_t i = 0; i < kEach; ++i) {
      // The success first: the failure that opens must be the last outcome of all of them, wherever it falls.
      const Token token = s.storage().admit().token;
      (void)s.storage().record_outcome(token, Outcome::success);
      if (s.storage().record_outcome(token, Outcome::failure).transition) ++opened;
    }
  });
  EXPECT_EQ(opened.load(), 1);
  EXPECT_EQ(s.shown(), "open 0/" + std::to_string(kFailures) + "/" + std::to_string(kFailures) + "/0");
}

TYPED_TEST_P(StorageConformance, OpensOnceForFailuresOfManyThreads) {
  constexpr int kRounds = 200;
  Subject<TypeParam> s;
  std::atomic<int> opened{0};
  std::atomic<int> counted{0};
  std::barrier round{static_cast<std::ptrdiff_t>(kThreads)};
  run_threads(kThreads, [&](std::size_t index) {
    for (int i = 0; i < kRounds; ++i) {
      const Token token = s.storage().admit().token;
      round.arrive_and_wait();
      const RecordResult result = s.storage().record_outcome(token, Outcome::failure);
      if (result.transition) ++opened;
      if (result.status == RecordStatus::counted) ++counted;
      round.arrive_and_wait();
      if (index == 0) (void)s.storage().force_state(CircuitState::closed);
      round.arrive_and_wait();
    }
  });
  EXPECT_EQ(opened.load(), kRounds);
  EXPECT_EQ(counted.load(), 2 * kRounds);  // the others come after the opening
}

// counters: each counts what its comment in types.hpp says, and none is ever reset

TYPED_TEST_P(StorageConformance, HasCountedNothingWhenFresh) {
  Subject<TypeParam> s;
  const Counters c = s.counters(0);
  EXPECT_EQ(s.outcomes(), "0 = 0 + 0 + 0 + 0 + 0");
  EXPECT_EQ(c.rejected + c.ramp_rejected + c.abandoned + c.probes, 0U);
  for (const std::uint64_t transitions : c.transitions)
    EXPECT_EQ(transitions, 0U);
  EXPECT_EQ(c.in_closed + c.in_open + c.in_half_open, Millis{0});
}

TYPED_TEST_P(StorageConformance, CountsEveryOutcomeAsWhatBecameOfIt) {
  Subject<TypeParam> s;
  const Token late = s.admit(0).token;
  s.call(0, Outcome::success);
  EXPECT_EQ(s.outcomes(), "1 = 1 + 0 + 0 + 0 + 0");
  s.call(0, Outcome::failure);
  EXPECT_EQ(s.outcomes(), "2 = 1 + 1 + 0 + 0 + 0");
  s.call(0, Outcome::ignored);
  EXPECT_EQ(s.outcomes(), "3 = 1 + 1 + 1 + 0 + 0");
  s.call(0, Outcome::failure);  // opens, and is counted like any other
  EXPECT_EQ(s.outcomes(), "4 = 1 + 2 + 1 + 0 + 0");
  s.record(1, late, Outcome::success);
  EXPECT_EQ(s.outcomes(), "5 = 1 + 2 + 1 + 1 + 0");
  s.call(1, Outcome::failure);  // rejected: there was no call
  EXPECT_EQ(s.outcomes(), "5 = 1 + 2 + 1 + 1 + 0");
  const Token probe = s.admit(50).token;
  s.record(50, probe, Outcome::success);
  EXPECT_EQ(s.outcomes(), "6 = 1 + 2 + 1 + 1 + 1");
  s.record(50, probe, Outcome::success);
  EXPECT_EQ(s.outcomes(), "7 = 1 + 2 + 1 + 2 + 1");
}

TYPED_TEST_P(StorageConformance, CountsOutcomesBeyondTheWindowTheirAgeAndAForcedState) {
  Subject<TypeParam> s;
  for (int i = 0; i < 9; ++i)
    s.call(i * 200, i % 2 == 0 ? Outcome::success : Outcome::failure);  // window 4, within 100 ms
  (void)s.force(2000, CircuitState::open);
  (void)s.force(2000, CircuitState::closed);
  EXPECT_EQ(s.shown(), "closed 2000/0/0/0");
  EXPECT_EQ(s.outcomes(), "9 = 5 + 4 + 0 + 0 + 0");
}

TYPED_TEST_P(StorageConformance, CountsRejectionsOfAllOutagesTogether) {
  Subject<TypeParam> s;
  s.open_by_failures(0);
  s.admit(1);
  s.admit(2);
  s.admit(50);
  s.admit(50);
  s.admit(51);  // HalfOpen is full
  EXPECT_EQ(s.counters(51).rejected, 3U);
  s.force(60, CircuitState::open);
  EXPECT_EQ(s.snapshot().rejected, 0U);
  s.admit(61);
  EXPECT_EQ(s.counters(61).rejected, 4U);
  s.force(70, CircuitState::closed);
  s.mode(70, Mode::forced_open);
  s.admit(71);
  EXPECT_EQ(s.counters(71).rejected, 5U);
  s.mode(72, Mode::observe);
  s.open_by_failures(73);
  EXPECT_EQ(s.admit(74).admission, Admission::allowed);  // would have been
  EXPECT_EQ(s.counters(74).rejected, 6U);
  EXPECT_EQ(s.counters(74).ramp_rejected, 0U);
}

TYPED_TEST_P(StorageConformance, CountsCallsThatTheRampTurnsAwayApart) {
  BreakerConfig config = conformance_config();
  config.success_threshold = 1;
  config.ramp_up = {.duration = Millis{100}, .start_percent = 10};
  Subject<TypeParam> s{config};
  s.force(0, CircuitState::half_open);
  s.call(0, Outcome::success);
  s.draw(100);
  EXPECT_EQ(s.admit(0).admission, Admission::rejected);
  EXPECT_EQ(s.admit(0).state, CircuitState::closed);
  s.draw(99);
  EXPECT_EQ(s.admit(0).admission, Admission::allowed);
  EXPECT_EQ(s.counters(0).ramp_rejected, 2U);
  EXPECT_EQ(s.counters(0).rejected, 0U);
  EXPECT_EQ(s.snapshot().rejected, 0U);
}

TYPED_TEST_P(StorageConformance, CountsProbesThatAreAdmittedAndThoseThatSayHowItWent) {
  Subject<TypeParam> s;
  s.force(0, CircuitState::half_open);
  const Token first = s.admit(0).token;
  const Token second = s.admit(0).token;
  EXPECT_EQ(s.admit(0).admission, Admission::rejected);
  EXPECT_EQ(s.counters(0).probes, 2U);
  s.record(1, first, Outcome::success);
  s.record(1, second, Outcome::ignored);
  EXPECT_EQ(s.counters(1).probe_verdicts, 1U);
  const Token reclaimed = s.admit(2).token;
  const Token fails = s.admit(40).token;
  s.record(40, reclaimed, Outcome::failure);
  EXPECT_EQ(s.counters(40).probe_verdicts, 1U);
  s.record(40, fails, Outcome::failure);
  EXPECT_EQ(s.counters(40).probe_verdicts, 2U);
  EXPECT_EQ(s.counters(40).probes, 4U);
  EXPECT_EQ(s.outcomes(), "4 = 0 + 0 + 1 + 1 + 2");
}

TYPED_TEST_P(StorageConformance, CountsAbandonedPermitsAmongTheIgnoredOrStale) {
  Subject<TypeParam> s;
  const Token late = s.admit(0).token;
  const Token dropped = s.admit(0).token;
  EXPECT_EQ(s.storage().abandon(dropped).status, RecordStatus::ignored);
  EXPECT_EQ(s.counters(0).abandoned, 1U);
  s.open_by_failures(0);
  const Token rejected = s.admit(1).token;
  EXPECT_EQ(s.storage().abandon(rejected).status, RecordStatus::rejected);
  EXPECT_EQ(s.counters(1).abandoned, 1U);
  EXPECT_EQ(s.storage().abandon(late).status, RecordStatus::ignored);  // nothing to count, whatever the period
  const Token probe = s.admit(50).token;
  EXPECT_EQ(s.storage().abandon(probe).status, RecordStatus::ignored);
  EXPECT_EQ(s.storage().abandon(probe).status, RecordStatus::stale);
  EXPECT_EQ(s.counters(50).abandoned, 4U);
  EXPECT_EQ(s.outcomes(), "6 = 0 + 2 + 3 + 1 + 0");
}

TYPED_TEST_P(StorageConformance, CountsTransitionsByTheirReason) {
  BreakerConfig config = conformance_config();
  config.success_threshold = 1;
  config.slow_calls = {.slower_than = Millis{5}, .percent = 100, .minimum_calls = 1, .reopen_on_slow_probe = true};
  config.failure_rate = {.percent = 67, .minimum_calls = 3};
  config.consecutive_failures = {.failures = 1};
  config.failure_threshold.failures = 0;
  Subject<TypeParam> s{config};
  s.call(0, Outcome::failure);  // consecutive-failures-reached
  s.force(0, CircuitState::closed);
  s.record(10, s.admit(0).token, Outcome::success);   // slow-rate-reached
  s.record(70, s.admit(60).token, Outcome::success);  // cooldown-elapsed, probe-slow
  s.call(120, Outcome::failure);                      // cooldown-elapsed, probe-failed
  s.call(170, Outcome::success);                      // cooldown-elapsed, probe-succeeded
  s.force(171, CircuitState::open);
  s.force(172, CircuitState::half_open);
  const auto transitions = s.counters(172).transitions;
  const auto of = [&transitions](TransitionReason reason) { return transitions[static_cast<std::size_t>(reason)]; };
  using enum TransitionReason;
  EXPECT_EQ(of(consecutive_failures_reached), 1U);
  EXPECT_EQ(of(slow_rate_reached), 1U);
  EXPECT_EQ(of(cooldown_elapsed), 3U);
  EXPECT_EQ(of(probe_slow), 1U);
  EXPECT_EQ(of(probe_failed), 1U);
  EXPECT_EQ(of(probe_succeeded), 1U);
  EXPECT_EQ(of(forced_closed), 1U);
  EXPECT_EQ(of(forced_open), 1U);
  EXPECT_EQ(of(forced_half_open), 1U);
  EXPECT_EQ(of(failure_threshold_reached), 0U);
  EXPECT_EQ(of(failure_rate_reached), 0U);

  config = conformance_config();
  config.failure_rate = {.percent = 60, .minimum_calls = 2};
  config.failure_threshold.failures = 3;
  Subject<TypeParam> rate{config};
  rate.call(0, Outcome::failure);
  rate.call(0, Outcome::failure);
  rate.force(0, CircuitState::closed);
  for (const Outcome outcome : {Outcome::failure, Outcome::success, Outcome::success, Outcome::failure})
    rate.call(0, outcome);
  EXPECT_EQ(rate.counters(0).transitions[static_cast<std::size_t>(failure_rate_reached)], 1U);
  EXPECT_EQ(rate.counters(0).transitions[static_cast<std::size_t>(failure_threshold_reached)], 0U);
}

TYPED_TEST_P(StorageConformance, SumsTheTimeInEachStateThePresentOneIncluded) {
  Subject<TypeParam> s;
  const auto times = [&s](std::int64_t ms) {
    const Counters c = s.counters(ms);
    return std::to_string(c.in_closed.count()) + "/" + std::to_string(c.in_open.count()) + "/" +
           std::to_string(c.in_half_open.count());
  };
  EXPECT_EQ(times(7), "7/0/0");
  s.open_by_failures(10);
  EXPECT_EQ(times(10), "10/0/0");
  EXPECT_EQ(times(59), "10/49/0");
  const Token probe = s.admit(75).token;  // the cooldown was over at 60; it became HalfOpen now
  EXPECT_EQ(times(80), "10/65/5");
  s.record(80, probe, Outcome::failure);
  EXPECT_EQ(times(100), "10/85/5");
  s.force(110, CircuitState::open);  // to where it is: no transition, and time goes on
  s.force(115, CircuitState::closed);
  EXPECT_EQ(times(1000), "895/100/5");
}

TYPED_TEST_P(StorageConformance, CountsNothingWhileDisabled) {
  Subject<TypeParam> s;
  const Token before = s.admit(0).token;
  s.mode(0, Mode::disabled);
  for (const Outcome outcome : {Outcome::success, Outcome::failure, Outcome::ignored}) {
    EXPECT_EQ(s.call(1, outcome).status, RecordStatus::ignored);
    EXPECT_EQ(s.record(1, before, outcome).status, RecordStatus::ignored);
  }
  EXPECT_EQ(s.storage().abandon(before).status, RecordStatus::ignored);
  EXPECT_EQ(s.outcomes(), "0 = 0 + 0 + 0 + 0 + 0");
  EXPECT_EQ(s.counters(1).abandoned, 0U);
}

TYPED_TEST_P(StorageConformance, DoesNotCountOutcomesThatAModeMadeVoid) {
  Subject<TypeParam> s;
  s.mode(0, Mode::observe);
  s.open_by_failures(0);
  for (const Outcome outcome : {Outcome::success, Outcome::failure, Outcome::ignored})
    EXPECT_EQ(s.call(1, outcome).status, RecordStatus::ignored);
  EXPECT_EQ(s.outcomes(), "2 = 0 + 2 + 0 + 0 + 0");
  EXPECT_EQ(s.counters(1).rejected, 3U);  // that is what they are counted as
}

TYPED_TEST_P(StorageConformance, CountsWithoutChangingAnything) {
  BreakerConfig config = conformance_config();
  config.success_threshold = 1;
  config.ramp_up = {.duration = Millis{10}};
  Subject<TypeParam> s{config};
  s.force(0, CircuitState::half_open);
  s.call(0, Outcome::success);
  s.mode(0, Mode::observe, Millis{5});
  (void)s.counters(100);  // both are over, and an admit would say so
  EXPECT_TRUE(s.snapshot().ramping);
  EXPECT_EQ(s.snapshot().mode, Mode::observe);
}

TYPED_TEST_P(StorageConformance, LosesNoCountOfAnyThread) {
  constexpr std::uint64_t kEach = 500;
  BreakerConfig config = conformance_config();
  config.failure_threshold = {.failures = 1'000, .window = 2'000, .within = Millis{100}};
  Subject<TypeParam> s{config};
  run_threads(kThreads, [&](std::size_t) {
    for (std::uint64_t i = 0; i < kEach; ++i) {
      (void)s.storage().record_outcome(s.storage().admit().token, i % 5 == 0 ? Outcome::failure : Outcome::success);
      (void)s.storage().abandon(s.storage().admit().token);
    }
  });
  EXPECT_EQ(s.outcomes(), "4000 = 1600 + 400 + 2000 + 0 + 0");
  EXPECT_EQ(s.counters(0).abandoned, kThreads * kEach);
}

REGISTER_TYPED_TEST_SUITE_P(
    StorageConformance, AnswersTheAgreedTraces, AnswersTheStrictTraces, AnswersTheTracesWithInstantsOutOfOrder,
    FloorsEveryInstantToTheMillisecond, IsClosedAndEmptyWhenFresh, KnowsItsNameAndNumbers, RefusesEveryBadNumberByName,
    TakesTheCooldownAsProbeTimeoutWhereNoneIsGiven, AllowsInClosedAndWritesNothing, RejectsInOpenUntilTheCooldownIsOver,
    BecomesHalfOpenExactlyAtTheEndOfTheCooldown, RejectsInAFullHalfOpenForOneProbeTimeout,
    ReclaimsAllProbesWhenTheirOneLeaseIsOver, StartsTheLeaseAnewWhenNoProbeIsOut, KeepsTheLeaseWhileAProbeIsOut,
    CountsAnInstantBeforeOpenedAtAsOpenedAt, CountsAnInstantBeforeTheLeaseAsItsStart, RecordsNothingOfARejectedAttempt,
    CountsAnAllowedAttemptAsOftenAsItIsRecorded, CountsAProbeOnce, TellsProbesOfOneInstantApart,
    VoidsAProbeOfAnEarlierHalfOpen, VoidsAProbeThatAForcedStateOvertook, KeepsIgnoredOutcomesOutOfTheWindow,
    OpensWithTheFailureThatCompletesTheThreshold, KeepsTheNewestOutcomesOnly, KeepsAnOutcomeThatIsExactlyWithinOld,
    DoesNotOpenForFailuresThatAreTooOld, CountsAnOutcomeBeforeTheNewestAsSimultaneous,
    CountsAnOutcomeBeforeOpenedAtAsOpenedAt, DoesNotDateANewPeriodByTheOutcomesOfTheOldOne,
    DropsAnOutcomeOfAnEarlierClosedPeriod, DropsAnOutcomeThatAForcedClosedOvertook,
    DropsAnAllowedOutcomeInOpenAndHalfOpen, ClosesAtTheSuccessThresholdWithAnEmptyWindow,
    ReopensWithAFailedProbeAndKeepsCountingRejections, ForgetsProbeSuccessesWhenItReopens,
    VoidsTheSiblingsOfAFailedProbe, FreesTheSlotOfAnIgnoredProbeAndNothingElse, ReopensWithAFailedSiblingAfterItClosed,
    DoesNothingForASuccessfulSiblingAfterItClosed, KeepsTheClosedPeriodWhenASiblingReports,
    VoidsASiblingThatAnotherOutageOvertook, StartsRejectionsFromZeroWithEveryOutage, ShowsWithoutPruningOrTransition,
    PeeksAtTheStateAndTheCooldownThatIsLeft, ForcesEachStateWithItsReasonAndEverythingReset,
    ResetsWithoutATransitionWhenTheStateIsInEffectAlready, CountsAForcedOpenFromItsOwnInstant,
    ForcesNoEarlierThanItOpened, WorksWithTheLongestDurations, NeverHasMoreProbesOutThanTheLimit,
    ReportsEachTransitionToOneThreadOnly, LosesNoOutcomeOfAnyThread, OpensOnceForFailuresOfManyThreads,
    AnswersTheTracesOfThePolicies, HasCountedNothingWhenFresh, CountsEveryOutcomeAsWhatBecameOfIt,
    CountsOutcomesBeyondTheWindowTheirAgeAndAForcedState, CountsRejectionsOfAllOutagesTogether,
    CountsCallsThatTheRampTurnsAwayApart, CountsProbesThatAreAdmittedAndThoseThatSayHowItWent,
    CountsAbandonedPermitsAmongTheIgnoredOrStale, CountsTransitionsByTheirReason,
    SumsTheTimeInEachStateThePresentOneIncluded, CountsNothingWhileDisabled, DoesNotCountOutcomesThatAModeMadeVoid,
    CountsWithoutChangingAnything, LosesNoCountOfAnyThread);

}  // namespace shmcb::test
