// SPDX-License-Identifier: BSD-3-Clause
// Operations are stopped (SIGSTOP) at their atomic accesses while the others go on for laps and generations, and then
// continued. Each must come out as if it had been performed at once before all that, or at once after it.
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "process/victim.hpp"

namespace shmcb::test {
namespace {

BreakerConfig small_config() {
  return {.name = "b",
          .failure_threshold = {.failures = 3, .window = 10, .within = Millis{1'000'000}},
          .cooldown = {Millis{100}},
          .success_threshold = 2,
          .probe_limit = 2,
          .probe_timeout = Millis{50}};
}

/// Attempt 0 is the one that is stopped, 2 the others'.
const Script kAdmitted{admit_as(0), admit_as(2)};
const Script kCooledDown = kAdmitted + times(3, {failure_of(2)}) + Script{advance_by(Millis{100})};

// What the others do meanwhile. A window of 10 has a ring of 16 slots, whose lap tag has 9 bits; a generation's tag has
// 4.
const Script kSomeLaps = times(3 * 16 + 5, {success_of(2)});
const Script kLapTagRound = times(std::size_t{16} << 9U, {success_of(2)});
const Script kGenerations =
    times(8, {force_to(CircuitState::open), force_to(CircuitState::closed), admit_as(2), success_of(2), failure_of(2)});
/// Lap, generation tag and, the clock standing still, time of a slot are what they were.
const Script kBothRound = kGenerations + times((std::size_t{16} << 9U) - 16, {success_of(2)});
const Script kOutage =
    times(3, {failure_of(2)}) +
    Script{advance_by(Millis{100}), admit_as(4), success_of(4), admit_as(5), success_of(5), admit_as(2), success_of(2)};
const Script kLeaseOver{advance_by(Millis{50}), admit_as(4), kSnapshot, success_of(4), admit_as(5),
                        success_of(5),          kSnapshot};
const Script kAfterwards{kSnapshot,     admit_as(6), failure_of(6), kSnapshot,
                         success_of(6), kSnapshot,   admit_as(7),   kSnapshot};

struct Scenario {
  std::string name;
  Script prepare;
  Op operation;
  Script meanwhile;
  std::uint64_t stride = 1;
  /// A failure that fills the window, stopped between deciding that and opening the breaker, finds several forced
  /// states when it goes on. No record tells any more what ended its period, and it says "counted" though the first
  /// forced state came before it.
  bool answer_may_be_lost = false;
};

struct Expected {
  Answers answers;
  std::string own;  ///< of the stopped operation itself
};

std::string text_of(const VictimAnswer& answer, const Op& op) {
  std::string text{op.kind == Op::Kind::admit ? to_string(answer.admission) : to_string(answer.status)};
  if (answer.error != Errc::ok) text.append(" error ").append(to_string(answer.error));
  if (answer.reason != TransitionReason::none) text.append(" ").append(to_string(answer.reason));
  return text;
}

std::vector<Expected> expectations(const Scenario& s) {
  std::vector<Expected> all;
  const auto begin = [&] {
    const FakeClock clock{kScriptStart};
    ScriptRunner<ScriptedReference> reference(*ScriptedReference::open(small_config(), clock, FakeRandom{}), clock);
    reference.run(s.prepare);
    return reference;
  };
  const auto own = [](auto& reference, const Op& op) {
    if (op.kind == Op::Kind::admit) {
      const AdmitResult r = reference.storage().admit();
      return text_of({.admission = r.admission, .reason = r.transition ? r.transition->reason : TransitionReason::none},
                     op);
    }
    const RecordResult r = reference.storage().record_outcome(reference.tokens()[op.attempt], op.outcome);
    return text_of({.status = r.status, .reason = r.transition ? r.transition->reason : TransitionReason::none}, op);
  };
  {
    auto before = begin();
    Expected e;
    e.own = own(before, s.operation);
    e.answers = before.run(s.meanwhile + kAfterwards);
    all.push_back(std::move(e));
  }
  {
    auto after = begin();
    Expected e;
    e.answers = after.run(s.meanwhile);
    e.own = own(after, s.operation);
    const Answers rest = after.run(kAfterwards);
    e.answers.insert(e.answers.end(), rest.begin(), rest.end());
    all.push_back(std::move(e));
  }
  // Stopped with a trip decided and not carried out: the next record does so.
  auto tripped = begin();
  const std::string trip = tripped.run(s.operation);
  if (trip.find("failure-threshold-reached") != std::string::npos && s.meanwhile[0].kind == Op::Kind::record) {
    Expected e = all[0];
    e.own = "counted";
    e.answers[0] = "stale" + trip.substr(trip.find(" ["));
    all.push_back(std::move(e));
  }
  if (s.answer_may_be_lost) all.push_back({.answers = all[1].answers, .own = "counted"});
  return all;
}

/// Finds that the answers are those of one of the orders, and the breaker sound.
void check(const Scenario& s, const std::vector<Expected>& expected, Stage& stage, Answers seen,
           const VictimAnswer& answer) {
  ASSERT_TRUE(answer.done);
  // Whatever happened meanwhile happened once: looking again a few times is enough. (Arbitrary; the longest path has
  // 200.)
  EXPECT_LT(answer.steps, 2'000U);
  const Answers rest = stage.runner().run(kAfterwards);
  seen.insert(seen.end(), rest.begin(), rest.end());
  const std::string own = text_of(answer, s.operation);
  std::string why;
  for (const Expected& e : expected) {
    if (e.answers == seen && e.own == own) {
      why.clear();
      break;
    }
    why += "its own answer '" + own + "', expected '" + e.own + "'\n";
    for (std::size_t i = 0; i < std::min(seen.size(), e.answers.size()); ++i) {
      if (seen[i] == e.answers[i]) continue;
      why += "  step " + std::to_string(i) + " answered '" + seen[i] + "', expected '" + e.answers[i] + "'\n";
      break;
    }
  }
  ASSERT_EQ(why, "");
  expect_ring_unbroken(stage.segment(), 0);
  expect_every_state_can_be_left(stage.runner());
  expect_ring_unbroken(stage.segment(), 0);
  expect_records_accounted(stage.segment(), 2);
}

/// Stopped at each access (or some), others go on, continued.
void explore(const Scenario& s) {
  const std::vector<Expected> expected = expectations(s);
  std::uint64_t stops = 0;
  for (std::uint64_t k = 1;; k += s.stride, ++stops) {
    SCOPED_TRACE(s.name + ", stopped at access " + std::to_string(k));
    Stage stage(small_config());
    stage.runner().run(s.prepare);
    Child child = stage.perform_in_child(s.operation, {}, k, SIGSTOP);
    const bool stopped = comes_to_a_stop(child);
    Answers seen = stage.runner().run(s.meanwhile);
    if (stopped) child.kill(SIGCONT);
    ASSERT_EQ(child.wait(), exited(0));
    check(s, expected, stage, std::move(seen), stage.answer());
    if (::testing::Test::HasFailure() || !stopped) break;
  }
  std::printf("[ stops    ] %s: %lu\n", s.name.c_str(), static_cast<unsigned long>(stops));
}

/// What a signal handler does in the midst of an operation of its own process.
struct Interruption {
  Stage* stage = nullptr;
  const Script* script = nullptr;
  Answers answers{};
};
Interruption g_interruption;

/// Runs at one known access of KillStep, so it may do what a handler otherwise may not.
void interrupt(int) {
  g_interruption.answers = g_interruption.stage->runner().run(*g_interruption.script);
}

/// Interrupted at each access by a handler of the same process, which does what others would do meanwhile.
void explore_interrupted(const Scenario& s) {
  const std::vector<Expected> expected = expectations(s);
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = interrupt;
  ASSERT_EQ(::sigaction(SIGUSR1, &action, &before), 0);
  std::uint64_t interruptions = 0;
  for (std::uint64_t k = 1;; k += s.stride, ++interruptions) {
    SCOPED_TRACE(s.name + ", interrupted at access " + std::to_string(k));
    Stage stage(small_config());
    stage.runner().run(s.prepare);
    g_interruption = {.stage = &stage, .script = &s.meanwhile};
    const VictimAnswer answer = stage.perform_here(s.operation, {}, k, SIGUSR1);
    const bool interrupted = !g_interruption.answers.empty();
    if (!interrupted) g_interruption.answers = stage.runner().run(s.meanwhile);
    check(s, expected, stage, std::move(g_interruption.answers), answer);
    if (::testing::Test::HasFailure() || !interrupted) break;
  }
  ::sigaction(SIGUSR1, &before, nullptr);
  std::printf("[ signals  ] %s: %lu\n", s.name.c_str(), static_cast<unsigned long>(interruptions));
}

TEST(StoppedRecord, OfASuccessCountsInItsOwnRightOrIsStaleHoweverLongItStood) {
  for (const Op& op : {success_of(0), failure_of(0)}) {
    const std::string name = op.outcome == Outcome::success ? "success, " : "failure, ";
    const std::uint64_t stride =
        op.outcome == Outcome::success ? 1 : 3;  // the long scripts: a failure has many more accesses
    explore({.name = name + "some laps", .prepare = kAdmitted, .operation = op, .meanwhile = kSomeLaps});
    explore({.name = name + "lap tag round",
             .prepare = kAdmitted,
             .operation = op,
             .meanwhile = kLapTagRound,
             .stride = stride});
    explore({.name = name + "generation tag round", .prepare = kAdmitted, .operation = op, .meanwhile = kGenerations});
    explore({.name = name + "both tags round", .prepare = kAdmitted, .operation = op, .meanwhile = kBothRound});
    explore({.name = name + "an outage", .prepare = kAdmitted, .operation = op, .meanwhile = kOutage});
  }
}

TEST(StoppedRecord, ThatTripsIsCarriedOutByTheOthersOrComesTooLate) {
  const Script prepare = kAdmitted + Script{failure_of(2), failure_of(2)};
  explore(
      {.name = "trip, some laps", .prepare = prepare, .operation = failure_of(0), .meanwhile = kSomeLaps, .stride = 2});
  explore({.name = "trip, an outage", .prepare = prepare, .operation = failure_of(0), .meanwhile = kOutage});
  explore({.name = "trip, an outage and laps",
           .prepare = prepare,
           .operation = failure_of(0),
           .meanwhile = kOutage + kSomeLaps});
  explore({.name = "trip, generation tag round",
           .prepare = prepare,
           .operation = failure_of(0),
           .meanwhile = kGenerations,
           .answer_may_be_lost = true});
  explore({.name = "trip, both tags round",
           .prepare = prepare,
           .operation = failure_of(0),
           .meanwhile = kBothRound,
           .stride = 5,
           .answer_may_be_lost = true});
}

TEST(StoppedRecord, ThatTripsIsStaleWhereAForcedStateCameFirst) {
  const Script prepare = kAdmitted + Script{failure_of(2), failure_of(2)};
  for (const CircuitState to : {CircuitState::closed, CircuitState::open, CircuitState::half_open}) {
    explore({.name = "trip, forced to " + std::string{to_string(to)},
             .prepare = prepare,
             .operation = failure_of(0),
             .meanwhile = {force_to(to), kSnapshot}});
  }
}

TEST(StoppedRecord, ThatIsTheFirstOfItsPeriodStaysInIt) {
  const Script prepare = Script{force_to(CircuitState::closed)} + kAdmitted;
  explore({.name = "first of a period, generation tag round",
           .prepare = prepare,
           .operation = success_of(0),
           .meanwhile = kGenerations});
  explore({.name = "first of a period, both tags round",
           .prepare = prepare,
           .operation = failure_of(0),
           .meanwhile = kBothRound,
           .stride = 4});
}

TEST(StoppedSnapshot, LooksAgainWhereTheBreakerHasMovedOn) {
  const Script recovery{advance_by(Millis{100}), admit_as(4), success_of(4), admit_as(5), success_of(5), admit_as(2)};
  for (std::uint64_t k = 1;; ++k) {
    SCOPED_TRACE("stopped at access " + std::to_string(k));
    Stage stage(small_config());
    stage.runner().run(kAdmitted + times(3, {failure_of(2)}));
    Child child = stage.perform_in_child(kSnapshot, {}, k, SIGSTOP);
    const bool stopped = comes_to_a_stop(child);
    stage.runner().run(recovery + kSomeLaps);
    if (stopped) child.kill(SIGCONT);
    ASSERT_EQ(child.wait(), exited(0));
    ASSERT_EQ(stage.answer().error, Errc::ok);
    ASSERT_LT(stage.answer().steps, 2'000U);
    if (!stopped) break;
  }
}

TEST(StoppedProbe, CountsOnceOrIsStaleAfterItsLease) {
  const Script prepare = kCooledDown + Script{admit_as(0), admit_as(3)};
  for (const Op& op : {success_of(0), failure_of(0), ignored_of(0)}) {
    const std::string name = "probe " + std::string{to_string(op.outcome)};
    explore({.name = name + ", lease over", .prepare = prepare, .operation = op, .meanwhile = kLeaseOver});
    explore(
        {.name = name + ", generations", .prepare = prepare, .operation = op, .meanwhile = kGenerations, .stride = 2});
  }
  explore({.name = "admit of a probe, lease over",
           .prepare = kCooledDown + Script{admit_as(3)},
           .operation = admit_as(15),
           .meanwhile = kLeaseOver,
           .stride = 2});
}

TEST(InterruptedOperation, ComesOutAsIfTheSignalHandlersWereBeforeOrAfterIt) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer holds signals back";
#endif
  const Script full = kAdmitted + Script{failure_of(2), failure_of(2)};
  const Script probes = kCooledDown + Script{admit_as(0), admit_as(3)};
  const Script one_record{success_of(2)};
  const Script one_failure{failure_of(2)};
  for (const Op& op : {success_of(0), failure_of(0)}) {
    const std::string name = "a record of " + std::string{to_string(op.outcome)} + " by ";
    explore_interrupted({.name = name + "a success", .prepare = kAdmitted, .operation = op, .meanwhile = one_record});
    explore_interrupted({.name = name + "a failure", .prepare = kAdmitted, .operation = op, .meanwhile = one_failure});
    explore_interrupted({.name = name + "an outage", .prepare = kAdmitted, .operation = op, .meanwhile = kOutage});
    explore_interrupted({.name = name + "laps", .prepare = kAdmitted, .operation = op, .meanwhile = kSomeLaps});
  }
  explore_interrupted(
      {.name = "a trip by a success", .prepare = full, .operation = failure_of(0), .meanwhile = one_record});
  explore_interrupted(
      {.name = "a trip by a trip", .prepare = full, .operation = failure_of(0), .meanwhile = one_failure});
  explore_interrupted(
      {.name = "a trip by an outage", .prepare = full, .operation = failure_of(0), .meanwhile = kOutage});
  explore_interrupted({.name = "a probe's success by its sibling's",
                       .prepare = probes,
                       .operation = success_of(0),
                       .meanwhile = {success_of(3)}});
  explore_interrupted({.name = "a probe's failure by its sibling's",
                       .prepare = probes,
                       .operation = failure_of(0),
                       .meanwhile = {failure_of(3)}});
  explore_interrupted({.name = "a probe's success by a forced state",
                       .prepare = probes,
                       .operation = success_of(0),
                       .meanwhile = {force_to(CircuitState::closed)}});
}

}  // namespace
}  // namespace shmcb::test
