// SPDX-License-Identifier: BSD-3-Clause
// Every operation is killed at every one of its atomic accesses, each time in a fresh segment and a process of its own.
// What the survivor then sees must be, answer by answer, what the reference rules say with the dead one's operation or
// without it.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "process/victim.hpp"
#include "support/kernel_faults.hpp"

namespace shmcb::test {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kStride = 17;  // a fork costs many times as much: a sample, always from the first access on
#else
constexpr std::uint64_t kStride = 1;
#endif

BreakerConfig small_config() {
  return {.name = "b",
          .failure_threshold = {.failures = 3, .window = 10, .within = Millis{1'000'000}},
          .cooldown = {Millis{100}},
          .success_threshold = 2,
          .probe_limit = 2,
          .probe_timeout = Millis{50}};
}

/// Attempts 0 and 1 are the victims', 2 and 3 the survivor's, admitted in one Closed period.
const Script kAdmitted{admit_as(0), admit_as(1), admit_as(2), admit_as(3)};
const Script kOpened = kAdmitted + Script{failure_of(2), failure_of(2), failure_of(2)};
const Script kCooledDown = kOpened + Script{advance_by(Millis{100})};
/// Probes 0 and 1 are out. The lease began now.
const Script kProbesOut = kCooledDown + Script{admit_as(0), admit_as(1)};
const Script kOneProbeOut = kCooledDown + Script{admit_as(0)};
/// Probe 1 is out still; 2 and 3 are admitted in the new period.
const Script kSiblingOut = kProbesOut + Script{success_of(0), admit_as(4), success_of(4), admit_as(2), admit_as(3)};

/// What the survivor does, in whatever state it finds the breaker: snapshot and record come first (see
/// `Expected::pending`).
const Script kEpilogue =
    Script{kSnapshot,
           success_of(2),
           kSnapshot,
           failure_of(3),
           kSnapshot,
           admit_as(5),
           kSnapshot,
           admit_as(6),
           kSnapshot,
           success_of(5),
           kSnapshot,
           failure_of(6),
           kSnapshot,
           advance_by(Millis{50}),
           admit_as(7),
           admit_as(8),
           admit_as(9),
           kSnapshot,
           success_of(7),
           kSnapshot,
           success_of(8),
           kSnapshot,
           advance_by(Millis{100}),
           admit_as(10),
           kSnapshot,
           success_of(10),
           admit_as(11),
           success_of(11),
           kSnapshot} +
    times(3, {admit_as(12), failure_of(12), kSnapshot}) +
    Script{advance_by(Millis{100}), admit_as(13),  ignored_of(13), admit_as(14), failure_of(14), kSnapshot,
           success_of(0),           failure_of(1), kSnapshot};

struct Scenario {
  std::string name;
  Script prepare;
  std::vector<Op> operations;  ///< what a first victim does, and a second
  bool trips = false;          ///< the operation may die between deciding a trip and carrying it out
  Op decide_trip_before{};     ///< kind record: a process died behind this operation's decision to trip, before it all
  BreakerConfig config = small_config();
  Settings replaced = settings_of(small_config());
  std::function<void(const Segment&)> exhaust{};
  std::uint32_t leaves = 1;  ///< records that one victim may leave behind
};

/// The answers to the epilogue that are right, by what became of the operations.
struct Expected {
  std::string what;
  Answers answers;
};

using Reference = ScriptRunner<ScriptedReference>;

Reference reference(const BreakerConfig& config) {
  FakeClock clock{kScriptStart};
  auto opened = ScriptedReference::open(config, clock, FakeRandom{});
  return {*std::move(opened), clock};
}

/// As if `config` had been what `replaced` says. (Only in settings that the preparation does not depend on.)
BreakerConfig with_settings(BreakerConfig config, const Settings& replaced) {
  config.failure_threshold = {
      .failures = replaced.failures, .window = replaced.window, .within = Millis{replaced.within_ms}};
  config.cooldown.base = Millis{replaced.cooldown_ms};
  config.probe_timeout = Millis{replaced.probe_timeout_ms};
  return config;
}

/// The answers where the first `count` operations were performed; and where the last of them decided a trip but did not
/// get to carry it out: then nothing shows until the next record of the period, which completes the trip, reports it,
/// and is stale.
void add_expected(const Scenario& s, std::size_t count, std::vector<Expected>& all) {
  const bool replaced = count > 0 && s.operations[0].kind == Op::Kind::replace;
  const auto prepared = [&] {
    Reference r = reference(replaced ? with_settings(s.config, s.replaced) : s.config);
    r.run(s.prepare);
    return r;
  };
  Reference with = prepared();
  std::string last;
  if (s.decide_trip_before.kind == Op::Kind::record) last = with.run(s.decide_trip_before);
  for (std::size_t i = 0; i < count; ++i) {
    const std::string answer = with.run(s.operations[i]);
    if (answer.find('[') != std::string::npos) last = answer;
  }
  const bool may_be_pending = s.decide_trip_before.kind == Op::Kind::record || (s.trips && count > 0);
  Expected done{std::to_string(count) + " performed", with.run(kEpilogue)};
  if (may_be_pending) {
    Expected pending{std::to_string(count) + " performed, the trip pending", done.answers};
    Reference without = prepared();
    pending.answers[0] = without.run(kSnapshot);
    pending.answers[1] = "stale" + last.substr(last.find(" ["));
    all.push_back(std::move(pending));
  }
  all.push_back(std::move(done));
}

std::vector<Expected> expectations(const Scenario& s, std::size_t victims) {
  std::vector<Expected> all;
  for (std::size_t count = 0; count <= victims; ++count)
    add_expected(s, count, all);
  return all;
}

/// Leaves a decided trip that nobody carried out: the swap of the slot is the last access of its author. `k`: an access
/// up to which that has not happened yet, for the same scenario again.
void leave_pending_trip(Stage& stage, const Scenario& s, std::uint64_t& k) {
  const auto& cells = *stage.segment().view().breaker(0);
  using Env = core::StdEnv;
  const auto flagged = [&] {
    const core::RingWord word{Env::load(cells.ring, Env::acquire)};
    const auto* slots = stage.segment().view().ring(word);
    return std::any_of(slots, slots + word.capacity(), [](const auto& slot) {
      return core::Slot<core::StdWidths>{Env::load(slot, Env::relaxed)}.trip();
    });
  };
  // Each death before the swap leaves nothing, so the next one tries one access further.
  for (std::uint64_t at = k; !flagged(); ++at) {
    k = at;
    ASSERT_EQ(stage.perform_in_child(s.decide_trip_before, s.replaced, at, SIGKILL).wait(), killed_by(SIGKILL));
  }
}

std::string describe(const std::vector<Expected>& expected, const Answers& seen) {
  std::string text;
  for (const Expected& e : expected) {
    text += "if " + e.what + ":\n";
    for (std::size_t i = 0; i < seen.size(); ++i) {
      if (seen[i] == e.answers[i]) continue;
      text += "  step " + std::to_string(i) + " answered '" + seen[i] + "', expected '" + e.answers[i] + "'\n";
      break;
    }
  }
  return text;
}

class Explorer {
 public:
  explicit Explorer(Scenario s) : s_(std::move(s)) {}

  /// One victim, at every access until it completes. How many there are.
  std::uint64_t every_access() {
    const std::vector<Expected> expected = expectations(s_, 1);
    std::uint64_t k = 1;
    for (bool completed = false; !completed; k += kStride) {
      SCOPED_TRACE(s_.name + ", killed at access " + std::to_string(k));
      completed = one_run(expected, {k});
      if (::testing::Test::HasFailure()) return 0;
    }
    return steps_;
  }

  /// Two victims one after the other, at a sample of their accesses.
  std::uint64_t two_deaths(std::uint64_t accesses) {
    if (s_.operations.size() < 2) return 0;
    const std::vector<Expected> expected = expectations(s_, 2);
    std::uint64_t runs = 0;
    const std::uint64_t stride = std::max<std::uint64_t>(1, accesses / 5) * (kStride == 1 ? 1 : 3);
    for (std::uint64_t first = 1; first <= accesses + 1; first += stride) {
      for (std::uint64_t second = 1 + (first * 7) % stride; second <= accesses + 1; second += stride, ++runs) {
        SCOPED_TRACE(s_.name + ", killed at accesses " + std::to_string(first) + " and " + std::to_string(second));
        (void)one_run(expected, {first, second});
        if (::testing::Test::HasFailure()) return runs;
      }
    }
    return runs;
  }

 private:
  /// Whether the last victim completed.
  bool one_run(const std::vector<Expected>& expected, const std::vector<std::uint64_t>& kills) {
    Stage stage(s_.config);
    stage.runner().run(s_.prepare);
    if (s_.exhaust) s_.exhaust(stage.segment());
    std::uint32_t leaves = 0;
    if (s_.decide_trip_before.kind == Op::Kind::record) {
      leave_pending_trip(stage, s_, flagged_at_);
      leaves = stage.segment().geometry().records;
    }
    if (s_.exhaust) leaves = stage.segment().geometry().records;
    bool completed = false;
    for (std::size_t i = 0; i < kills.size(); ++i) {
      const Ended end = stage.perform_in_child(s_.operations[i], s_.replaced, kills[i], SIGKILL).wait();
      completed = end == exited(0);
      EXPECT_TRUE(completed || end == killed_by(SIGKILL)) << end;
      KillPoints::count(completed ? 0 : 1);
      if (completed) {
        EXPECT_EQ(stage.answer().error, Errc::ok);
        steps_ = stage.answer().steps;
      }
      leaves += s_.leaves;
    }
    const Census census = take_census(stage.segment());
    EXPECT_LE(census.left_behind, leaves);
    expect_ring_unbroken(stage.segment(), 0);

    const Answers seen = stage.runner().run(kEpilogue);
    const bool right = std::any_of(expected.begin(), expected.end(), [&](const Expected& e) {
      return (!completed || kills.size() > 1 || e.what.starts_with("1")) && e.answers == seen;
    });
    EXPECT_TRUE(right) << describe(expected, seen);
    expect_every_state_can_be_left(stage.runner());
    expect_ring_unbroken(stage.segment(), 0);
    expect_records_accounted(stage.segment(), leaves);
    return completed;
  }

  Scenario s_;
  std::uint64_t steps_ = 0;
  std::uint64_t flagged_at_ = 1;
};

void explore(const Scenario& s) {
  Explorer explorer(s);
  const std::uint64_t accesses = explorer.every_access();
  if (::testing::Test::HasFailure()) return;
  const std::uint64_t pairs = explorer.two_deaths(accesses);
  std::printf("[ kills    ] %s: %lu kill points%s, %lu pairs\n", s.name.c_str(), static_cast<unsigned long>(accesses),
              kStride == 1 ? "" : " (a sample of them)", static_cast<unsigned long>(pairs));
}

TEST(KilledAdmit, InClosedHasNothingToLeave) {
  explore({.name = "admit in Closed", .prepare = kAdmitted, .operations = {admit_as(15), admit_as(15)}});
}

TEST(KilledAdmit, BeforeTheCooldownCountsItsRejectionOrNot) {
  explore(
      {.name = "admit in Open before the cooldown", .prepare = kOpened, .operations = {admit_as(15), admit_as(15)}});
}

TEST(KilledAdmit, AfterTheCooldownBeginsHalfOpenOrNot) {
  explore(
      {.name = "admit in Open after the cooldown", .prepare = kCooledDown, .operations = {admit_as(15), admit_as(15)}});
}

TEST(KilledAdmit, OfAProbeTakesItsSlotOrNot) {
  explore(
      {.name = "admit in HalfOpen, a slot free", .prepare = kOneProbeOut, .operations = {admit_as(15), admit_as(15)}});
}

TEST(KilledAdmit, OfAFullHalfOpenCountsItsRejectionOrNot) {
  explore({.name = "admit in HalfOpen, full", .prepare = kProbesOut, .operations = {admit_as(15), admit_as(15)}});
}

TEST(KilledAdmit, AfterTheLeaseReclaimsTheProbesOrNot) {
  explore({.name = "admit in HalfOpen, lease over",
           .prepare = kProbesOut + Script{advance_by(Millis{50})},
           .operations = {admit_as(15), admit_as(15)}});
}

TEST(KilledRecord, OfASuccessIsCountedOrNot) {
  explore({.name = "record success",
           .prepare = kAdmitted + Script{failure_of(2)},
           .operations = {success_of(0), success_of(1)}});
}

TEST(KilledRecord, OfAFailureIsCountedOrNot) {
  explore({.name = "record failure",
           .prepare = kAdmitted + Script{success_of(2)},
           .operations = {failure_of(0), failure_of(1)}});
}

TEST(KilledRecord, ThatTripsOpensTheBreakerAtTheNextRecordAtTheLatest) {
  explore({.name = "record failure that trips",
           .prepare = kAdmitted + Script{failure_of(2), failure_of(2)},
           .operations = {failure_of(0), failure_of(1)},
           .trips = true});
}

TEST(KilledRecord, OfASuccessBehindAPendingTripCompletesItOrLeavesItToTheNext) {
  explore({.name = "record success behind a pending trip",
           .prepare = kAdmitted + Script{failure_of(2), failure_of(2)},
           .operations = {success_of(0), success_of(1)},
           .decide_trip_before = failure_of(2)});
}

TEST(KilledRecord, OfAFailureBehindAPendingTripCompletesItOrLeavesItToTheNext) {
  explore({.name = "record failure behind a pending trip",
           .prepare = kAdmitted + Script{failure_of(2), failure_of(2)},
           .operations = {failure_of(0), failure_of(1)},
           .decide_trip_before = failure_of(2)});
}

TEST(KilledRecord, ThatRaisesTheHintIsCountedOrNot) {
  explore({.name = "record success where the hint is raised",
           .prepare = kAdmitted + times(8, {success_of(2)}),
           .operations = {success_of(0), success_of(1)}});
  explore({.name = "record failure where the hint is raised",
           .prepare = kAdmitted + times(8, {success_of(2)}),
           .operations = {failure_of(0), failure_of(1)}});
}

TEST(KilledRecord, WhereTheLapEndsIsCountedOrNot) {
  explore({.name = "record success at a lap's end",
           .prepare = kAdmitted + times(15, {success_of(2)}),
           .operations = {success_of(0), success_of(1)}});
  explore({.name = "record failure at a lap's end",
           .prepare = kAdmitted + times(15, {success_of(2)}),
           .operations = {failure_of(0), failure_of(1)}});
}

TEST(KilledRecord, WhereTheLapTagComesRoundIsCountedOrNot) {
  const std::size_t before_the_wrap =
      (std::size_t{16} << 9U) - 16;  // a window of 10 has 16 slots, positions begin there
  explore({.name = "record success where the lap tag comes round",
           .prepare = kAdmitted + times(before_the_wrap, {success_of(2)}),
           .operations = {success_of(0), success_of(1)}});
}

TEST(KilledRecord, ThatIsTheFirstOfItsPeriodIsCountedOrNot) {
  const Script forced = Script{force_to(CircuitState::closed)} + kAdmitted;
  explore({.name = "first success of a period", .prepare = forced, .operations = {success_of(0), success_of(1)}});
  explore({.name = "first failure of a period", .prepare = forced, .operations = {failure_of(0), failure_of(1)}});
  Scenario alone{.name = "first failure of a period, that trips",
                 .prepare = forced,
                 .operations = {failure_of(0), failure_of(1)},
                 .trips = true};
  alone.config.failure_threshold.failures = 1;
  explore(alone);
}

TEST(KilledRecord, OfAnOlderPeriodChangesNothing) {
  explore({.name = "record of an older period",
           .prepare = kAdmitted + Script{force_to(CircuitState::closed), admit_as(2), admit_as(3)},
           .operations = {failure_of(0), failure_of(1)}});
}

TEST(KilledProbe, WithASuccessThatDoesNotCloseFreesItsSlotOrNot) {
  explore({.name = "probe success, not closing", .prepare = kOneProbeOut, .operations = {success_of(0)}});
}

TEST(KilledProbe, WithASuccessThatClosesDoesSoOrNot) {
  explore(
      {.name = "probe success, closing", .prepare = kProbesOut + Script{success_of(1)}, .operations = {success_of(0)}});
  explore({.name = "two probes' successes that close",
           .prepare = kProbesOut,
           .operations = {success_of(0), success_of(1)}});
}

TEST(KilledProbe, WithAFailureOpensTheBreakerOrNot) {
  explore({.name = "probe failure", .prepare = kProbesOut, .operations = {failure_of(0), failure_of(1)}});
}

TEST(KilledProbe, WithAnIgnoredOutcomeFreesItsSlotOrNot) {
  explore({.name = "probe ignored", .prepare = kProbesOut, .operations = {ignored_of(0), ignored_of(1)}});
}

TEST(KilledProbe, WhoseSiblingClosedTheBreakerReopensItOrNot) {
  explore({.name = "sibling's failure in Closed", .prepare = kSiblingOut, .operations = {failure_of(1)}});
  explore({.name = "sibling's success in Closed", .prepare = kSiblingOut, .operations = {success_of(1)}});
}

TEST(KilledForce, ResetsTheBreakerOrNot) {
  for (const CircuitState to : {CircuitState::closed, CircuitState::open, CircuitState::half_open}) {
    const std::string name = "force to " + std::string{to_string(to)} + " from ";
    explore({.name = name + "closed", .prepare = kAdmitted + Script{failure_of(2)}, .operations = {force_to(to)}});
    explore({.name = name + "open", .prepare = kOpened, .operations = {force_to(to)}});
    explore({.name = name + "half-open", .prepare = kProbesOut, .operations = {force_to(to), force_to(to)}});
  }
}

TEST(KilledReplacement, OfSettingsIsMadeOrNot) {
  Scenario s{.name = "replace the cooldown in Closed",
             .prepare = kAdmitted + Script{failure_of(2)},
             .operations = {kReplaceSettings, kReplaceSettings}};
  s.replaced.cooldown_ms = 40;
  explore(s);
  s.name = "replace the cooldown in Open";
  s.prepare = kOpened;
  explore(s);
  s.name = "replace the window by a larger one";
  s.prepare = kAdmitted + Script{failure_of(2)} + times(9, {success_of(2)});
  s.replaced.window = 15;
  explore(s);
}

// ---- policies
// ----------------------------------------------------------------------------------------------------------

constexpr std::array kAllModes{Mode::automatic, Mode::forced_open, Mode::forced_closed, Mode::disabled, Mode::observe};
constexpr Op kForAWhile = set_mode(Mode::observe, Millis{30});

TEST(KilledMode, IsSetOrNotInEveryState) {
  for (const Mode mode : kAllModes) {
    const std::string name = "set mode " + std::string{to_string(mode)} + " in ";
    const std::vector<Op> operations{set_mode(mode), set_mode(mode)};
    explore(
        {.name = name + "closed", .prepare = kAdmitted + Script{failure_of(2), kForAWhile}, .operations = operations});
    explore({.name = name + "open", .prepare = kOpened, .operations = operations});
    explore({.name = name + "half-open", .prepare = kProbesOut, .operations = operations});
    if (HasFailure()) return;
  }
  explore({.name = "set a mode with an end",
           .prepare = kProbesOut,
           .operations = {set_mode(Mode::forced_open, Millis{60})}});
}

TEST(KilledMode, ThatHasEndedIsWrittenDownOrNot) {
  for (const Mode mode : {Mode::forced_open, Mode::forced_closed, Mode::disabled, Mode::observe}) {
    const std::string name = "admit after mode " + std::string{to_string(mode)} + " has ended in ";
    const Script ends{set_mode(mode, Millis{10}), advance_by(Millis{10})};
    const std::vector<Op> operations{admit_as(15), admit_as(15)};
    explore({.name = name + "closed", .prepare = kAdmitted + ends, .operations = operations});
    explore({.name = name + "open, after the cooldown", .prepare = kCooledDown + ends, .operations = operations});
    explore({.name = name + "half-open", .prepare = kOneProbeOut + ends, .operations = operations});
    if (HasFailure()) return;
  }
}

TEST(KilledAdmit, UnderAModeCountsItsRejectionOrNot) {
  const std::vector<Op> operations{admit_as(15), admit_as(15)};
  for (const Mode mode : {Mode::forced_open, Mode::forced_closed, Mode::disabled, Mode::observe}) {
    const std::string name = "admit under mode " + std::string{to_string(mode)} + " in ";
    explore({.name = name + "closed", .prepare = kAdmitted + Script{set_mode(mode)}, .operations = operations});
    explore({.name = name + "open", .prepare = kOpened + Script{set_mode(mode)}, .operations = operations});
    explore(
        {.name = name + "half-open, full", .prepare = kProbesOut + Script{set_mode(mode)}, .operations = operations});
    if (HasFailure()) return;
  }
}

TEST(KilledRecord, UnderAModeIsCountedOrNot) {
  for (const Mode mode : {Mode::forced_open, Mode::forced_closed, Mode::disabled, Mode::observe}) {
    const std::string name = " under mode " + std::string{to_string(mode)};
    const Script prepare = kAdmitted + Script{failure_of(2), set_mode(mode)};
    explore({.name = "record success" + name, .prepare = prepare, .operations = {success_of(0), success_of(1)}});
    explore({.name = "record failure" + name, .prepare = prepare, .operations = {failure_of(0)}});
    explore({.name = "probe failure" + name,
             .prepare = kProbesOut + Script{set_mode(mode)},
             .operations = {failure_of(0), failure_of(1)}});
    if (HasFailure()) return;
  }
}

TEST(KilledRecord, UnderTheRatesIsCountedOrOpensLikeAnyOther) {
  Scenario s{.name = "record success, judged", .prepare = kAdmitted, .operations = {success_of(0), success_of(1)}};
  s.config.failure_rate = {.percent = 50, .minimum_calls = 4};
  explore(s);
  s.name = "record success that fills a failure rate";
  s.prepare = kAdmitted + Script{failure_of(2), failure_of(2), success_of(2)};
  s.trips = true;
  explore(s);
  s.name = "record success behind a pending trip of a failure rate";
  s.trips = false;
  s.decide_trip_before = success_of(2);
  explore(s);
}

TEST(KilledRecord, OfASlowCallIsCountedOrOpens) {
  Scenario s{.name = "record slow success",
             .prepare = kAdmitted + Script{success_of(2), success_of(2), advance_by(Millis{10})},
             .operations = {success_of(0), success_of(1)}};
  s.config.slow_calls = {.slower_than = Millis{5}, .percent = 50, .minimum_calls = 4};
  explore(s);
  s.name = "record slow success that fills a slow rate";
  s.prepare = s.prepare + Script{success_of(2)};
  s.trips = true;
  explore(s);
  s.name = "probe that succeeds slowly";
  s.trips = false;
  s.config.slow_calls->reopen_on_slow_probe = true;
  s.config.slow_calls->minimum_calls = 10;
  s.prepare = kProbesOut + Script{advance_by(Millis{10})};
  explore(s);
}

TEST(KilledRecord, ThatIsTheLastOfARunOpensTheBreakerAtTheNextRecordAtTheLatest) {
  Scenario s{.name = "record the last of consecutive failures",
             .prepare = kAdmitted + Script{failure_of(2), success_of(2), failure_of(2)},
             .operations = {failure_of(0), failure_of(1)},
             .trips = true};
  s.config.consecutive_failures = {.failures = 2};
  explore(s);
}

TEST(KilledProbe, ThatFailsLetsTheCooldownGrowOnceOrNot) {
  Scenario s{
      .name = "probe failure, growing cooldown", .prepare = kProbesOut, .operations = {failure_of(0), failure_of(1)}};
  s.config.cooldown = {.base = Millis{100}, .multiplier = 3, .maximum = Millis{500}, .jitter = 50};
  explore(s);
}

TEST(KilledAdmit, InARampAndAtItsEndIsCountedOrNot) {
  Scenario s{.name = "admit in a ramp",
             .prepare = kProbesOut + Script{success_of(0), success_of(1)},
             .operations = {admit_as(15), admit_as(15)}};
  s.config.ramp_up = {.duration = Millis{40}, .start_percent = 0};
  explore(s);
  s.name = "probe success that begins a ramp";
  s.prepare = kProbesOut + Script{success_of(1)};
  s.operations = {success_of(0)};
  explore(s);
  s.name = "admit when a ramp is over";
  s.prepare = kProbesOut + Script{success_of(0), success_of(1), advance_by(Millis{40})};
  s.operations = {admit_as(15), admit_as(15)};
  explore(s);
}

TEST(KilledAdmit, ThatLooksForDeadHoldersAndFindsNoneCountsItsRejectionOrNot) {
  Scenario s{.name = "admit in a full HalfOpen, the holders alive",
             .prepare = kProbesOut,
             .operations = {admit_as(15), admit_as(15)}};
  s.config.reclaim_dead_probes = true;
  explore(s);
}

/// Both probes are a dead process's. Whoever is killed while it takes their slots back leaves them to the next.
TEST(KilledAdmit, ThatTakesTheSlotsOfDeadHoldersLeavesThemToTheNext) {
  BreakerConfig config = small_config();
  config.reclaim_dead_probes = true;
  bool completed = false;
  std::uint64_t k = 1;
  for (; !completed; k += kStride) {
    SCOPED_TRACE("killed at access " + std::to_string(k));
    Stage stage(config);
    stage.runner().run(kCooledDown);
    for (int probe = 0; probe < 2; ++probe) {
      ASSERT_EQ(stage.perform_in_child(admit_as(15), {}, KillStep::kNever, SIGKILL).wait(), exited(0));
      ASSERT_EQ(stage.answer().admission, Admission::probe);
    }
    const Ended end = stage.perform_in_child(admit_as(15), {}, k, SIGKILL).wait();
    completed = end == exited(0);
    ASSERT_TRUE(completed || end == killed_by(SIGKILL)) << end;
    EXPECT_TRUE(!completed || stage.answer().admission == Admission::probe);
    KillPoints::count(completed ? 0 : 1);
    EXPECT_EQ(stage.runner().run(admit_as(5)), "probe in half-open");
    EXPECT_EQ(stage.runner().run(admit_as(6)), "probe in half-open") << "the victim is dead too";
    EXPECT_EQ(stage.runner().run(admit_as(7)).substr(0, 8), "rejected");
    EXPECT_EQ(stage.runner().run(success_of(5)), "counted");
    EXPECT_EQ(stage.runner().run(success_of(6)).substr(0, 7), "counted");
    EXPECT_EQ(stage.runner().storage().peek().state, CircuitState::closed);
    expect_every_state_can_be_left(stage.runner());
    expect_records_accounted(stage.segment(), stage.segment().geometry().records);
    if (HasFailure()) return;
  }
  std::printf("[ kills    ] admit in HalfOpen, the holders dead: %lu kill points\n",
              static_cast<unsigned long>((k - 1) / kStride));
}

// ---- what is dropped, and what only looks
// ----------------------------------------------------------------------------------------------------------

TEST(KilledAbandon, CountsNothingAndFreesASlotOrNot) {
  explore({.name = "abandon an allowed attempt",
           .prepare = kAdmitted + Script{failure_of(2)},
           .operations = {abandon(0), abandon(1)}});
  explore({.name = "abandon a probe", .prepare = kProbesOut, .operations = {abandon(0), abandon(1)}});
}

TEST(KilledLook, ChangesNothing) {
  const std::vector<std::pair<std::string, Script>> states{
      {"closed", kAdmitted + Script{failure_of(2)}}, {"open", kOpened}, {"half-open", kProbesOut}};
  for (const auto& [name, prepare] : states) {
    explore({.name = "snapshot in " + name, .prepare = prepare, .operations = {kSnapshot}, .leaves = 0});
    explore({.name = "peek in " + name, .prepare = prepare, .operations = {kPeek}, .leaves = 0});
    explore({.name = "counters in " + name, .prepare = prepare, .operations = {kCounters}, .leaves = 0});
  }
}

// ---- attaching
// ----------------------------------------------------------------------------------------------------------

/// A process that attaches, changes a breaker (so that it has spare records) and leaves in order, killed before and
/// after each of its system calls: its number and its records are there for the next.
TEST(KilledAttachment, GivesNumberAndRecordsToTheNext) {
  constexpr int kMore = 2'000;
  Stage stage(small_config());
  int killed = 0;
  for (int stop = 0; stop < kMore; ++stop) {
    SCOPED_TRACE("at stop " + std::to_string(stop));
    const Ended ended = run_killed_at_system_call(
        [&]() -> int {
          const auto segment = Segment::attach(stage.segment_options());
          auto breaker =
              ScriptedBreaker::open(segment, small_config(), OnMismatch::refuse, stage.runner().clock(), FakeRandom{});
          if (!breaker) return 1;
          for (const CircuitState to : {CircuitState::open, CircuitState::half_open, CircuitState::closed})
            (void)breaker->force_state(to);
          return 0;
        },
        stop);
    SHMCB_SKIP_IF_REFUSED(ended, "no ptrace or no seccomp filters");
    const bool finished = ended == exited(0);
    ASSERT_TRUE(finished || ended == killed_by(SIGKILL)) << ended;
    KillPoints::count(finished ? 0 : 1);
    killed += finished ? 0 : 1;
    const Segment next = *Segment::attach(stage.segment_options());
    EXPECT_TRUE(next.has_entry()) << "the numbers of the dead come back";
    expect_every_state_can_be_left(stage.runner());
    expect_records_accounted(stage.segment(), stage.segment().geometry().records);
    if (finished || HasFailure()) break;
  }
  EXPECT_GT(killed, 16) << "more than there are entries in the table";
  std::printf("[ kills    ] attach, act and leave: %d kill points\n", killed);
}

/// Every record that is free becomes a dead process's.
void let_a_dead_process_own_all_records(const Segment& segment) {
  const Ended hoarder = run_in_child([&] {
    core::RecordPool<core::StdEnv> pool(segment.view(), segment.presence());
    Errc error = Errc::ok;
    while (pool.claim(error) != 0) {
    }
    ::kill(::getpid(), SIGKILL);
  });
  ASSERT_EQ(hoarder, killed_by(SIGKILL));
}

TEST(KilledTakeBack, LeavesTheRecordsOfTheDeadToTheNext) {
  explore({.name = "trip without a free record",
           .prepare = kAdmitted + Script{failure_of(2), failure_of(2)},
           .operations = {failure_of(0), failure_of(1)},
           .trips = true,
           .exhaust = let_a_dead_process_own_all_records});
  explore({.name = "admit after the cooldown without a free record",
           .prepare = kCooledDown,
           .operations = {admit_as(15), admit_as(15)},
           .exhaust = let_a_dead_process_own_all_records});
  explore({.name = "force without a free record",
           .prepare = kProbesOut,
           .operations = {force_to(CircuitState::closed)},
           .exhaust = let_a_dead_process_own_all_records});
}

}  // namespace
}  // namespace shmcb::test
