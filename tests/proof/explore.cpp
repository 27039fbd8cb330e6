// SPDX-License-Identifier: BSD-3-Clause
// shmcb-prove-explore: runs sets of scenarios on the production source under a deterministic scheduler and checks every
// history that can be told from the others. Exit: 0 all held, 1 something did not, 2 wrong usage.
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include "proof/breaker_case.hpp"
#include "proof/scenarios.hpp"
#include "proof/scheduler_check.hpp"
#include "proof/segment_cases.hpp"

namespace shmcb::proof {
namespace {

struct Options {
  std::vector<std::string> sets{};
  std::string scenario{};
  std::string schedule{};
  std::uint64_t limit = 20'000;
  std::uint32_t preemptions = 2;
  std::uint64_t bounded_limit = 200'000;
  double fraction = 1.0;
  std::uint64_t seed = 1;
  std::uint64_t executions = 1'000'000;
  bool lists = false;
  bool until_found = false;
};

struct SetTotals {
  std::uint64_t scenarios = 0;
  std::uint64_t executions = 0;
  std::uint64_t histories = 0;
  std::uint64_t steps = 0;
  std::uint64_t deaths = 0;  // points at which somebody died
  // Cases: a scenario, or where somebody dies each of its deaths.
  std::uint64_t bounded = 0;  // of which all schedules with so many preemptions were seen, and not all
  std::uint64_t cut = 0;      // not even these
  std::uint64_t failed = 0;
  bool schedule_fits = false;  // some case could follow the schedule that was given
};

class Explorer {
 public:
  /// `program`: how it was called, for whoever wants to see a finding again.
  Explorer(const Options& options, std::string program) : options_(options), program_(std::move(program)) {}

  void begin(const std::string& set) {
    set_ = set;
    totals_ = {};
    number_ = 0;
  }
  [[nodiscard]] const SetTotals& totals() const { return totals_; }

  /// Whether the next scenario of the set is among those to be run; they are told apart by number.
  [[nodiscard]] bool next() {
    ++number_;
    if (options_.until_found && totals_.failed > 0) return false;
    if (!options_.scenario.empty()) return options_.scenario == id();
    // A fraction that does not follow the order in which they are made.
    const std::uint64_t mixed = (number_ + options_.seed * 7919) * 0x9e37'79b9'7f4a'7c15U;
    return static_cast<double>(mixed >> 11U) < options_.fraction * static_cast<double>(std::uint64_t{1} << 53U);
  }
  [[nodiscard]] std::string id() const { return set_ + ":" + std::to_string(number_); }

  /// Runs one; with `each_death` also with each participant dying before each of its writes.
  void run(BreakerScenario scenario, bool each_death = false) {
    ++totals_.scenarios;
    scenario.stage.fresh = static_cast<std::uint32_t>(number_ % (1U << scenario.participants.size()));
    if (!each_death || !options_.schedule.empty()) {
      (void)run_once(scenario);
      return;
    }
    for (std::size_t i = 0; i < scenario.participants.size(); ++i) {
      for (std::uint32_t k = 1;; ++k) {
        scenario.deaths = {};
        scenario.deaths[i] = k;
        if (!run_once(scenario)) break;
        ++totals_.deaths;
      }
      if (options_.until_found && totals_.failed > 0) return;
    }
  }

  /// With one participant dying before each of its writes, the deaths of the others as they are; a tenth of the limit,
  /// for there are many.
  void run_deaths(BreakerScenario scenario, std::size_t participant) {
    ++totals_.scenarios;
    for (std::uint32_t k = 1;; ++k) {
      scenario.deaths[participant] = k;
      const CaseResult r = perform(scenario, {.limit = std::max<std::uint64_t>(1, options_.limit / 10),
                                              .preemptions = std::min(options_.preemptions, 1U),
                                              .schedule = options_.schedule});
      count(r, scenario.deaths);
      if (!r.died[participant] || !r.failure.empty() || !options_.schedule.empty()) break;
      ++totals_.deaths;
    }
  }

  /// The same for one about a segment; `make` makes it anew.
  void run(const std::function<std::unique_ptr<SegmentCase>()>& make, bool each_death) {
    ++totals_.scenarios;
    if (!options_.schedule.empty()) each_death = false;
    const std::size_t participants = make()->participants();
    for (std::size_t i = 0; i < (each_death ? participants : 1); ++i) {
      for (std::uint32_t k = each_death ? 1 : 0;; ++k) {
        std::array<std::uint32_t, kMaxParticipants> deaths{};
        deaths[i] = k;
        // Where that is cut, all with one preemption: one stands still anywhere while the others get to their ends.
        const std::uint32_t preemptions = each_death ? 0 : std::min(options_.preemptions, 1U);
        const CaseResult r =
            make()->run({.limit = options_.limit, .preemptions = preemptions, .schedule = options_.schedule}, deaths);
        count(r, deaths);
        if (!each_death || !r.death_happened || !r.failure.empty()) break;
        ++totals_.deaths;
      }
    }
  }

  /// All schedules with at most so many preemptions.
  void run_bounded(BreakerScenario scenario, std::uint32_t preemptions) {
    ++totals_.scenarios;
    scenario.stage.fresh = static_cast<std::uint32_t>(number_ % (1U << scenario.participants.size()));
    const CaseResult r = perform(
        scenario,
        {.limit = 0, .preemptions = preemptions, .bounded_limit = options_.limit, .schedule = options_.schedule});
    count(r, scenario.deaths);
  }

  void run_check(std::uint64_t seed) {
    ++totals_.scenarios;
    CaseResult r;
    r.failure = SchedulerCheck(seed).difference(r.totals);
    r.histories = r.totals.executions - r.totals.redundant;
    count(r, {});
  }

  void run_randomly(BreakerScenario scenario, std::uint64_t executions, std::uint64_t seed) {
    ++totals_.scenarios;
    scenario.stage.fresh = static_cast<std::uint32_t>(number_ % (1U << scenario.participants.size()));
    const CaseResult r = perform(scenario, {.random = executions, .seed = seed, .schedule = options_.schedule});
    count(r, scenario.deaths);
  }

 private:
  /// False: the death that was planned never came.
  bool run_once(const BreakerScenario& scenario) {
    const CaseResult r = perform(scenario, {.limit = options_.limit,
                                            .preemptions = options_.preemptions,
                                            .bounded_limit = options_.bounded_limit,
                                            .schedule = options_.schedule});
    count(r, scenario.deaths);
    return r.death_happened && r.failure.empty();
  }

  static CaseResult perform(const BreakerScenario& scenario, const Extent& extent) {
    if (scenario.tiny) return BreakerCase<TinyWidths>(scenario).run(extent);
    return BreakerCase<core::StdWidths>(scenario).run(extent);
  }

  void count(const CaseResult& r, const std::array<std::uint32_t, kMaxParticipants>& planned) {
    totals_.executions += r.totals.executions;
    totals_.histories += r.histories;
    totals_.steps += r.totals.steps;
    totals_.schedule_fits = totals_.schedule_fits || r.schedule_fits;
    if (!r.totals.complete) ++(r.bounded ? totals_.bounded : totals_.cut);
    if (!r.shown.empty()) fmt::print("{}", r.shown);
    if (r.failure.empty()) return;
    ++totals_.failed;
    std::string deaths;
    for (const std::uint32_t d : planned)
      deaths += (deaths.empty() ? "" : ",") + std::to_string(d);
    fmt::print("FOUND in {} (deaths before writes {}): {}  again: {} --scenario {} --seed {}", id(), deaths, r.failure,
               program_, id(), options_.seed);
    if (!r.schedule.empty()) fmt::print(" --schedule \"{}\"", r.schedule);
    fmt::print("\n\n");
    std::fflush(stdout);
  }

  const Options& options_;
  std::string program_;
  std::string set_;
  SetTotals totals_{};
  std::uint64_t number_ = 0;
};

// ---- the sets

constexpr std::size_t kDepth = 5;
constexpr std::size_t kDepthBehind = 3;  // a mode or other settings; and where chance matters

/// `f` gets the settings and the draws, and a state.
void for_each_state(const std::function<void(const BreakerScenario&, const SmallState&)>& f) {
  for (const std::string_view name : kFamilies) {
    const std::vector<Settings> settings = family(name);
    for (const SmallState& state : small_states(settings, kDepth))
      f({.settings = settings}, state);
  }
  const std::vector<Settings> jitter = family("jitter");
  for (const SmallState& state : small_states(jitter, kDepthBehind))
    f({.settings = jitter, .draws = kDraws}, state);
  for (const std::string_view name : {"plain", "slow", "ramp"}) {
    const std::vector<Settings> settings = family(name);
    for (const Op& first : first_operations()) {
      for (const SmallState& state : small_states(settings, kDepthBehind, first))
        f({.settings = settings}, state);
    }
  }
  for (const std::string_view name : kLeanFamilies) {
    const std::vector<Settings> settings = family(name);
    for (const SmallState& state : small_states(settings, kDepthBehind))
      f({.settings = settings}, state);
    for (const Op& first : first_operations()) {
      if (first.kind != Op::Kind::replace) continue;
      for (const SmallState& state : small_states(settings, kDepthBehind, first))
        f({.settings = settings}, state);
    }
  }
}

/// Every operation against every other in one state; the rest of `scenario` is as it is.
void pairs_in(Explorer& explorer, const SmallState& state, BreakerScenario scenario, bool deaths) {
  const auto& ops = state.operations;
  scenario.prepare = state.prepare;
  const bool same = scenario.draws == decltype(scenario.draws){};  // so that it does not matter who does which
  for (std::size_t a = 0; a < ops.size(); ++a) {
    for (std::size_t b = same ? a : 0; b < ops.size(); ++b) {
      if (!explorer.next()) continue;
      scenario.participants = {with_tokens({ops[a]}, 0), with_tokens({ops[b]}, 1)};
      explorer.run(scenario, deaths);
    }
  }
}

/// The same in every state.
void pairs(Explorer& explorer, bool deaths, bool tiny) {
  for_each_state([&](BreakerScenario scenario, const SmallState& state) {
    scenario.tiny = tiny;
    pairs_in(explorer, state, scenario, deaths);
  });
}

/// Each operation alone, its participant dying before each of its writes.
void alone(Explorer& explorer) {
  for_each_state([&](BreakerScenario scenario, const SmallState& state) {
    scenario.prepare = state.prepare;
    for (const Op& op : state.operations) {
      if (!explorer.next()) continue;
      scenario.participants = {with_tokens({op}, 0)};
      explorer.run(scenario, true);
    }
  });
}

/// Three outcomes of one period at once, before every place of the ring where something is due.
void recorders(Explorer& explorer, bool deaths) {
  std::vector<BreakerScenario> begins;
  for (const std::string_view name : kFamilies)
    begins.push_back({.settings = family(name)});
  begins.push_back({.settings = family("jitter"), .draws = kDraws});
  for (BreakerScenario scenario : begins) {
    const Settings& settings = scenario.settings[0];
    scenario.stage.quiet_journal = deaths;
    for (const std::uint32_t before : {0U, 4U, 5U, 6U, 7U, 13U, 14U, 15U}) {
      for (std::uint32_t held = 0; held < 3; ++held) {
        for (std::uint32_t failures = 0; failures <= 3; ++failures) {
          if (!explorer.next()) continue;
          std::vector<Op>& prepare = scenario.prepare;
          prepare = moved_on_by(before);
          prepare.push_back({.kind = Op::Kind::admit, .token = 0});
          for (std::uint32_t i = 0; i < held; ++i) {
            prepare.push_back({.kind = Op::Kind::record,
                               .token = 0,
                               .outcome = i == 0 && settings.failures != 1 ? Outcome::failure : Outcome::success});
          }
          scenario.participants.clear();
          for (std::uint32_t i = 0; i < 3; ++i) {
            scenario.participants.push_back({{.kind = Op::Kind::record,
                                              .token = 0,
                                              .outcome = i < failures ? Outcome::failure : Outcome::success,
                                              .at = i}});
          }
          explorer.run(scenario, deaths);
        }
      }
    }
  }
}

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : random_(seed) {}
  std::size_t below(std::size_t end) { return static_cast<std::size_t>(random_() % end); }
  template <class T>
  const T& one_of(const std::vector<T>& all) {
    return all[below(all.size())];
  }

 private:
  std::mt19937_64 random_;
};

/// States and operations drawn; each scenario explored to the end, or up to the limit.
void drawn(Explorer& explorer, const Options& options, std::size_t participants, std::size_t operations,
           std::uint64_t scenarios, std::uint64_t random_executions) {
  struct Family {
    BreakerScenario begin;
    std::vector<SmallState> states;
  };
  std::vector<Family> families;
  for (const std::string_view name : kFamilies)
    families.push_back({{.settings = family(name)}, small_states(family(name), kDepth)});
  // What depends on chance and on deaths, and lean accounting: beyond those, so that their numbers stay; where the
  // number of scenarios is the caller's, every sixth.
  const std::vector<Settings> jitter = family("jitter");
  const std::vector<Settings> reclaims{reclaiming(2), reclaiming(2), reclaiming(2)};
  std::vector<Family> others{
      {{.settings = jitter, .draws = kDraws}, small_states(jitter, kDepth)},
      {{.settings = reclaims}, small_states(reclaims, kDepth)},
  };
  for (const std::string_view name : kLeanFamilies)
    others.push_back({{.settings = family(name)}, small_states(family(name), kDepth)});
  const bool randomly = random_executions > 0;
  for (std::uint64_t n = 0; n < (randomly ? scenarios : scenarios + scenarios / 5); ++n) {
    Dice dice(options.seed * 1'000'003 + n);
    const bool of_others = randomly ? n % 6 == 5 : n >= scenarios;
    const auto& [begin, states] = dice.one_of(of_others ? others : families);
    const SmallState& state = dice.one_of(states);
    BreakerScenario scenario = begin;
    scenario.stage = {.quiet_journal = true};
    scenario.tiny = dice.below(3) == 0;
    if (dice.below(2) == 0) {
      scenario.prepare = moved_on_by(static_cast<std::uint32_t>(dice.below(18)));
    }
    scenario.prepare.insert(scenario.prepare.end(), state.prepare.begin(), state.prepare.end());
    for (std::size_t i = 0; i < participants; ++i) {
      std::vector<Op> ops;
      for (std::size_t k = 0; k < operations; ++k)
        ops.push_back(dice.one_of(state.operations));
      // A later operation of one participant is often about what an earlier one brought.
      ops = with_tokens(ops, i);
      for (std::size_t k = 1; k < ops.size(); ++k) {
        if (ops[k - 1].kind == Op::Kind::admit && dice.below(2) == 0) {
          ops[k] = {.kind = Op::Kind::record,
                    .token = ops[k - 1].token,
                    .outcome = dice.below(2) == 0 ? Outcome::failure : Outcome::success,
                    .at = ops[k - 1].at};
        }
      }
      scenario.participants.push_back(ops);
      if (dice.below(4) == 0) scenario.deaths[i] = 1 + static_cast<std::uint32_t>(dice.below(24));
    }
    if (!of_others && dice.below(6) == 0) {
      scenario.stage = {.breakers = 1, .records = 4, .quiet_journal = true, .spares = false};
      scenario.may_exhaust = true;
    }
    if (!explorer.next()) continue;
    if (randomly) {
      explorer.run_randomly(scenario, random_executions, options.seed + n);
    } else {
      explorer.run(scenario);
    }
  }
}

/// Lean accounting: successes against failures and whatever else may happen, while the lean mark is anywhere between
/// far behind the tail and a ring before it.
void lean(Explorer& explorer, bool deaths) {
  using Ops = std::vector<Op>;
  const auto outcomes = [](std::string_view text) {
    Ops ops;
    for (const char c : text) {
      ops.push_back({.kind = Op::Kind::record, .token = 0, .outcome = c == 'F' ? Outcome::failure : Outcome::success});
    }
    return ops;
  };
  const Ops look{{.kind = Op::Kind::snapshot}};
  const Ops anew{{.kind = Op::Kind::force, .to = CircuitState::closed}};
  const Ops other{{.kind = Op::Kind::replace, .settings = 1}};
  const Ops another{{.kind = Op::Kind::replace, .settings = 2}};
  const Ops closed{{.kind = Op::Kind::mode, .mode = Mode::forced_closed}};
  const Ops disabled{{.kind = Op::Kind::mode, .mode = Mode::disabled}};
  const std::vector<Ops> first{outcomes("S"), outcomes("SS"), outcomes("F"), outcomes("FS"), outcomes("SF")};
  const std::vector<Ops> second{outcomes("F"), outcomes("FF"), outcomes("FS"), outcomes("S"), look,
                                anew,          other,          another,        closed,        disabled};
  const std::vector<std::array<Ops, 3>> three{{outcomes("S"), outcomes("F"), outcomes("F")},
                                              {outcomes("S"), outcomes("S"), outcomes("F")},
                                              {outcomes("S"), outcomes("F"), look},
                                              {outcomes("S"), outcomes("F"), other},
                                              {outcomes("S"), outcomes("F"), another},
                                              {outcomes("F"), other, another},
                                              {outcomes("S"), other, another},
                                              {outcomes("S"), outcomes("F"), anew}};
  for (const std::string_view name : kLeanFamilies) {
    for (const std::uint32_t replaced : {0U, 1U}) {
      // Recorded before: nothing, or a failure and so many successes behind it.
      for (const int before : {-1, 0, 5, 6, 7, 14, 15, 16, 17}) {
        for (const bool tiny : {false, true}) {
          BreakerScenario scenario{.settings = family(name), .tiny = tiny};
          scenario.stage.quiet_journal = true;
          if (replaced != 0) scenario.prepare = other;
          scenario.prepare.push_back({.kind = Op::Kind::admit, .token = 0});
          const Ops recorded = outcomes(before < 0 ? "" : "F" + std::string(static_cast<std::size_t>(before), 'S'));
          scenario.prepare.insert(scenario.prepare.end(), recorded.begin(), recorded.end());
          const auto run = [&](std::vector<Ops> participants) {
            if (!explorer.next()) return;
            scenario.participants = std::move(participants);
            explorer.run(scenario, deaths);
          };
          for (const Ops& a : first) {
            for (const Ops& b : second)
              run({a, b});
          }
          for (const auto& each : three)
            run({each[0], each[1], each[2]});
        }
      }
    }
  }
  if (deaths) return;
  // One stands still anywhere while the other fills the ring behind a failure, under settings that come and go.
  for (const std::uint32_t window : {3U, 9U}) {
    Settings settings = family("lean")[0];
    settings.window = window;
    settings.failures = 3;
    settings.within_ms = 1'000;
    Settings exact = settings;
    exact.lean = false;
    exact.revision = 1;
    Settings again = settings;
    again.revision = 2;
    for (const std::string_view stops : {"S", "F", "SS"}) {
      for (const int variant : {0, 1, 2, 3}) {
        for (const bool tiny : {false, true}) {
          if (!explorer.next()) continue;
          BreakerScenario scenario{.settings = {settings, exact, again}, .tiny = tiny};
          scenario.stage.quiet_journal = true;
          scenario.prepare.push_back({.kind = Op::Kind::admit, .token = 0});
          const Ops held = outcomes("F" + std::string(window - 2, 'S'));
          scenario.prepare.insert(scenario.prepare.end(), held.begin(), held.end());
          Ops goes_on;
          const auto then = [&](const Ops& ops) { goes_on.insert(goes_on.end(), ops.begin(), ops.end()); };
          if (variant == 1 || variant == 3) then(other);
          then(outcomes("F"));
          then(look);
          then(outcomes(std::string(variant >= 2 ? 19 : window == 9 ? 8 : 14, 'S')));
          then(look);
          scenario.participants = {outcomes(stops), goes_on};
          if (variant == 1 || variant == 3) {  // a third: two preemptions reach further
            scenario.participants.push_back({another[0], look[0]});
          } else {
            goes_on = outcomes("F");
            then(look);
            auto& busy = scenario.participants[1];
            busy.insert(busy.end(), goes_on.begin(), goes_on.end());
          }
          explorer.run_bounded(scenario, 2);
        }
      }
    }
  }
}

/// Two breakers and two records to spare: who is in need takes back, or is told that there is none.
void pool(Explorer& explorer, bool deaths) {
  const std::vector<Settings> settings = family("small");
  const StageOptions stage{.breakers = 2, .records = 5, .spares = false};
  for (const SmallState& state : small_states(settings, 3))
    pairs_in(explorer, state, {.settings = settings, .stage = stage, .may_exhaust = true}, deaths);
}

/// Names, places, pieces of the arena.
void registry(Explorer& explorer, bool deaths) {
  using Wishes = std::vector<Registering::Wish>;
  const StageOptions two{.breakers = 2};
  const StageOptions one{.breakers = 1};
  const StageOptions tight{.breakers = 3, .rings = 64};
  const std::vector<std::pair<StageOptions, Wishes>> all{
      {two, {{"x"}, {"x"}}},        {two, {{"x"}, {"y"}}},          {one, {{"x"}, {"y"}}},
      {one, {{"x"}, {"x"}}},        {tight, {{"x", 4}, {"y", 20}}}, {two, {{"x"}, {"x"}, {"x"}}},
      {two, {{"x"}, {"x"}, {"y"}}}, {one, {{"x"}, {"y"}, {"x"}}},   {{.breakers = 2, .spares = false}, {{"x"}, {"y"}}},
  };
  for (const auto& [options, wishes] : all) {
    if (!explorer.next()) continue;
    explorer.run([&, o = options, w = wishes] { return std::make_unique<Registering>(o, w); }, deaths);
  }
}

/// Breakers of a group: used, recycled under their users, registered while there is no room.
void groups(Explorer& explorer, bool deaths) {
  using Uses = std::vector<Recycling::Use>;
  struct One {
    std::uint32_t limit;
    std::vector<std::string> idle;
    Uses uses;
  };
  const Recycling::Use a{.name = "a", .successes = 1};
  const Recycling::Use a_fails{.name = "a", .failures = 1};
  const Recycling::Use a_twice{.name = "a", .failures = 1, .successes = 1};
  const Recycling::Use a_forced{.name = "a", .forces = true};
  const Recycling::Use b{.name = "b", .successes = 1};
  const Recycling::Use c{.name = "c", .failures = 1};
  const std::vector<One> all{
      {1, {"a"}, {a, b}},           {1, {"a"}, {a_fails, b}}, {1, {"a"}, {a_twice, b}}, {1, {"a"}, {a_forced, b}},
      {1, {"a"}, {b, c}},           {1, {"a"}, {b, b}},       {2, {"a"}, {a, b}},       {1, {}, {a, b}},
      {2, {"a", "b"}, {a, c}},      {2, {"a", "b"}, {a, b}},  {1, {"a"}, {a, a, b}},    {1, {"a"}, {a, b, c}},
      {1, {"a"}, {a_forced, a, b}},
  };
  for (const One& one : all) {
    if (!explorer.next()) continue;
    explorer.run([&one] { return std::make_unique<Recycling>(one.limit, one.idle, one.uses); }, deaths);
  }
}

/// Writers and a reader; the last ones with a ring that comes round.
void journal(Explorer& explorer, bool deaths) {
  struct One {
    std::vector<std::uint32_t> writes;
    std::uint32_t before;
    bool texts;
  };
  const std::vector<One> all{{{1}, 0, false}, {{1, 1}, 0, false},  {{2, 1}, 0, false},  {{1, 1}, 0, true},
                             {{1}, 16, true}, {{1, 1}, 31, false}, {{1, 17}, 3, false}, {{1, 17}, 20, true}};
  for (const One& one : all) {
    if (!explorer.next()) continue;
    explorer.run([&one] { return std::make_unique<Journaling>(one.writes, one.before, one.texts); }, deaths);
  }
}

/// One participant stands still anywhere while another fills laps of the ring and begins new periods.
void laps(Explorer& explorer) {
  for (const std::string_view name : kFamilies) {
    const std::vector<Settings> settings = family(name);
    for (const std::uint32_t variant : {0U, 1U, 2U, 3U}) {
      const bool ends = variant % 2 != 0;
      for (const std::uint32_t before : {0U, 6U, 7U, 15U}) {
        for (const std::uint32_t passing : {9U, 17U, 33U}) {
          for (const Outcome outcome : {Outcome::success, Outcome::failure}) {
            if (!explorer.next()) continue;
            BreakerScenario scenario{.settings = settings, .prepare = moved_on_by(before), .tiny = variant >= 2};
            scenario.prepare.push_back({.kind = Op::Kind::admit, .token = 0});
            scenario.stage.quiet_journal = true;
            std::vector<Op> many(passing, {.kind = Op::Kind::record, .token = 0, .outcome = Outcome::success});
            if (ends) {  // and goes on in a period of its own
              many[passing / 2] = {.kind = Op::Kind::force, .to = CircuitState::closed};
              many[passing / 2 + 1] = {.kind = Op::Kind::admit, .token = 20};
              for (std::size_t i = passing / 2 + 2; i < many.size(); ++i)
                many[i].token = 20;
            }
            scenario.participants = {{{.kind = Op::Kind::record, .token = 0, .outcome = outcome}}, many};
            explorer.run_bounded(scenario, 2);
          }
        }
      }
    }
  }
}

/// Holders of probes that die, and others that ask for their slots.
void reclaim(Explorer& explorer) {
  constexpr Tick kLater = 5;  // so that it shows whether the lease began anew
  using Ops = std::vector<Op>;
  using Holders = std::vector<std::optional<std::uint8_t>>;  // of each probe that is out; none: one who lives
  const auto record_of = [](std::uint8_t token, Outcome outcome) {
    return Op{.kind = Op::Kind::record, .token = token, .outcome = outcome, .at = kLater};
  };
  const Op asks{.kind = Op::Kind::admit, .at = kLater};
  const Op looks{.kind = Op::Kind::snapshot, .at = kLater};
  const auto prepared = [](const Holders& holders, std::uint32_t limit) {
    BreakerScenario scenario{.settings = {reclaiming(limit)}, .stage = {.quiet_journal = true}};
    scenario.prepare.push_back({.kind = Op::Kind::force, .to = CircuitState::half_open});
    for (std::uint8_t n = 0; n < holders.size(); ++n)
      scenario.prepare.push_back({.kind = Op::Kind::admit, .token = n, .by = holders[n]});
    return scenario;
  };
  const Op s0 = record_of(0, Outcome::success);
  const Op f0 = record_of(0, Outcome::failure);
  const Op i0 = record_of(0, Outcome::ignored);
  struct One {
    Holders holders;
    std::uint32_t limit;
    Ops of_the_dying;
    Ops of_the_other;
  };
  const std::vector<One> all{
      {{0}, 1, {s0}, {asks, asks}},
      {{0}, 1, {f0}, {asks, asks}},
      {{0}, 1, {i0}, {asks, asks}},
      {{0}, 1, {{.kind = Op::Kind::force, .to = CircuitState::half_open, .at = kLater}}, {asks, asks}},
      {{0}, 2, {asks}, {asks, asks}},
      {{0, 0}, 2, {s0}, {asks, asks}},
      {{0, 0}, 2, {i0}, {asks, looks}},
      {{0, std::nullopt}, 2, {s0}, {asks, asks}},
      {{0, 1}, 2, {s0}, {asks, asks}},
      {{0, 1}, 2, {s0}, {record_of(1, Outcome::success), asks}},
      {{0, 1}, 2, {s0}, {record_of(1, Outcome::failure)}},
      {{0, 0, 1}, 3, {s0}, {record_of(2, Outcome::success), asks}},
      {{}, 1, with_tokens({asks, record_of(8, Outcome::success)}, 0), {asks}},
      {{}, 2, with_tokens({asks, record_of(8, Outcome::failure)}, 0), {asks, asks}},
  };
  for (const One& one : all) {
    if (!explorer.next()) continue;
    BreakerScenario scenario = prepared(one.holders, one.limit);
    scenario.participants = {with_tokens(one.of_the_dying, 0), with_tokens(one.of_the_other, 1)};
    explorer.run_deaths(scenario, 0);
  }
  // Two that die, and a third that asks.
  for (const Holders& holders : {Holders{0, 1}, Holders{0, 1, 1}, Holders{0, 1, std::nullopt}}) {
    for (const Ops& other : {Ops{asks}, Ops{asks, asks}}) {
      if (!explorer.next()) continue;
      BreakerScenario scenario = prepared(holders, static_cast<std::uint32_t>(holders.size()));
      scenario.participants = {{s0}, {record_of(1, Outcome::ignored)}, with_tokens(other, 2)};
      scenario.deaths = {0, 1, 0};
      explorer.run_deaths(scenario, 0);
    }
  }
}

struct Set {
  std::string what;
  std::function<void(Explorer&, const Options&)> run;
};

const std::map<std::string, Set>& all_sets() {
  static const std::map<std::string, Set> sets{
      {"alone",
       {"1 operation, every state, a death before every write", [](Explorer& e, const Options&) { alone(e); }}},
      {"pairs", {"1 against 1 operation, every state", [](Explorer& e, const Options&) { pairs(e, false, false); }}},
      {"pairs-tiny", {"the same, tags of 1 bit", [](Explorer& e, const Options&) { pairs(e, false, true); }}},
      {"pair-deaths",
       {"1 against 1, every state, a death before every write",
        [](Explorer& e, const Options&) { pairs(e, true, false); }}},
      {"recorders", {"3 outcomes at once", [](Explorer& e, const Options&) { recorders(e, false); }}},
      {"recorder-deaths",
       {"the same, a death before every write", [](Explorer& e, const Options&) { recorders(e, true); }}},
      {"reclaim-deaths",
       {"slots of dead holders are asked for, a death before every write",
        [](Explorer& e, const Options&) { reclaim(e); }}},
      {"scheduler",
       {"random programs, with the reduction and without",
        [](Explorer& e, const Options& o) {
          for (std::uint64_t n = 0; n < 2'000; ++n) {
            if (e.next()) e.run_check(o.seed * 1'000'003 + n);
          }
        }}},
      {"lean", {"lean accounting: 2 or 3 around the mark", [](Explorer& e, const Options&) { lean(e, false); }}},
      {"lean-deaths", {"the same, a death before every write", [](Explorer& e, const Options&) { lean(e, true); }}},
      {"laps", {"1 outcome beside up to 33, laps and periods later", [](Explorer& e, const Options&) { laps(e); }}},
      {"registry", {"names, places and the arena", [](Explorer& e, const Options&) { registry(e, false); }}},
      {"registry-deaths",
       {"the same, a death before every write", [](Explorer& e, const Options&) { registry(e, true); }}},
      {"groups", {"groups and their recycling", [](Explorer& e, const Options&) { groups(e, false); }}},
      {"group-deaths", {"the same, a death before every write", [](Explorer& e, const Options&) { groups(e, true); }}},
      {"journal", {"writers and a reader of the journal", [](Explorer& e, const Options&) { journal(e, false); }}},
      {"journal-deaths",
       {"the same, a death before every write", [](Explorer& e, const Options&) { journal(e, true); }}},
      {"pool", {"1 against 1, 2 breakers, 2 records to spare", [](Explorer& e, const Options&) { pool(e, false); }}},
      {"pool-deaths", {"the same, a death before every write", [](Explorer& e, const Options&) { pool(e, true); }}},
      {"two-by-two", {"2 x 2 operations, drawn", [](Explorer& e, const Options& o) { drawn(e, o, 2, 2, 20'000, 0); }}},
      {"three", {"3 x 1 operations, drawn", [](Explorer& e, const Options& o) { drawn(e, o, 3, 1, 20'000, 0); }}},
      {"three-by-two", {"3 x 2 operations, drawn", [](Explorer& e, const Options& o) { drawn(e, o, 3, 2, 2'000, 0); }}},
      {"random",
       {"3 x 3 operations and their schedules, drawn",
        [](Explorer& e, const Options& o) { drawn(e, o, 3, 3, o.executions / 200, 200); }}},
  };
  return sets;
}

/// For options: digits only, or a share from 0 to 1.
std::string whole_number(const std::string& text) {
  const bool is = !text.empty() && text.size() < 19 && text.find_first_not_of("0123456789") == std::string::npos;
  return is ? std::string() : "'" + text + "' is not a number from 0 on";
}
std::string share(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const bool is = !text.empty() && *end == '\0' && value >= 0 && value <= 1;
  return is ? std::string() : "'" + text + "' is not a number from 0 to 1";
}

int run(const Options& options, const std::string& program) {
  if (options.lists) {
    for (const auto& [name, set] : all_sets())
      fmt::print("{:16} {}\n", name, set.what);
    return 0;
  }
  fmt::print("{:16} {:>9} {:>12} {:>11} {:>8} {:>7} {:>5} {:>8}  {}\n", "set", "scenarios", "executions", "histories",
             "deaths", "bounded", "cut", "seconds", "verdict");
  std::uint64_t passed = 0;
  std::uint64_t failed = 0;
  Explorer explorer(options, program);
  bool drawn = false;
  for (const std::string& name : options.sets) {
    const auto begun = std::chrono::steady_clock::now();
    explorer.begin(name);
    all_sets().at(name).run(explorer, options);
    const SetTotals& t = explorer.totals();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    if (t.scenarios == 0 && !options.scenario.empty()) {
      fmt::print(stderr, "shmcb-prove-explore: there is no scenario '{}'\n", options.scenario);
      return 2;
    }
    if (!options.schedule.empty() && !t.schedule_fits) {
      fmt::print(stderr,
                 "shmcb-prove-explore: --schedule is '{}', which {} cannot follow: it is of another scenario, or"
                 " of other code\n",
                 options.schedule, options.scenario);
      return 2;
    }
    drawn = drawn || t.scenarios > 0;
    const bool held = t.failed == 0;
    fmt::print("{:16} {:>9} {:>12} {:>11} {:>8} {:>7} {:>5} {:>8.1f}  {}\n", name, t.scenarios, t.executions,
               t.histories, t.deaths, t.bounded, t.cut, seconds,
               !held              ? "FAILS"
               : t.scenarios == 0 ? "nothing-drawn"
               : t.cut > 0        ? "holds-so-far"
                                  : "holds");
    std::fflush(stdout);
    ++(held ? passed : failed);
    if (options.until_found && failed > 0) break;
  }
  fmt::print("{} passed, {} failed\n", passed, failed);
  if (!drawn) {
    fmt::print(stderr, "shmcb-prove-explore: nothing was drawn; more --fraction or --executions (200 a scenario)\n");
    return 2;
  }
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace shmcb::proof

int main(int argc, char** argv) {
  shmcb::proof::Options options;
  CLI::App app{"Explores interleavings of the shared-memory breaker's own source.", "shmcb-prove-explore"};
  app.add_flag("--list", options.lists, "list the sets of scenarios");
  app.add_option("--set", options.sets, "sets to run; default: all");
  app.add_option("--scenario", options.scenario, "only this one, e.g. pairs:17");
  app.add_option("--schedule", options.schedule, "of that scenario only this schedule, shown step by step");
  app.add_flag("--until-found", options.until_found, "end with the first finding");
  app.add_option("--limit", options.limit, "executions of one scenario, then it is cut")
      ->check(shmcb::proof::whole_number)
      ->capture_default_str();
  app.add_option("--preemptions", options.preemptions,
                 "for a scenario that was cut: all schedules with at most so many; 0: leave it cut")
      ->check(shmcb::proof::whole_number)
      ->capture_default_str();
  app.add_option("--bounded-limit", options.bounded_limit,
                 "executions of one scenario with so few preemptions, then it is cut")
      ->check(shmcb::proof::whole_number)
      ->capture_default_str();
  app.add_option("--fraction", options.fraction, "of each set's scenarios")
      ->check(shmcb::proof::share)
      ->capture_default_str();
  app.add_option("--seed", options.seed, "of what is drawn, and of the fraction: a finding needs its seed")
      ->check(shmcb::proof::whole_number)
      ->capture_default_str();
  app.add_option("--executions", options.executions, "of the set 'random'")
      ->check(shmcb::proof::whole_number)
      ->capture_default_str();
  app.footer(
      "A schedule is accesses of each participant in turn: \"0*12 1*30 0! 1*4\"; `!` is a death.\n"
      "Verdicts: holds; holds-so-far (a scenario was cut); nothing-drawn; FAILS.\n"
      "Exit status: 0 all held, 1 something did not, 2 wrong usage.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (app.count("--set") > 0 && !options.scenario.empty()) {
    fmt::print(stderr, "shmcb-prove-explore: --scenario names its set: it does not go together with --set\n");
    return 2;
  }
  if (app.count("--schedule") > 0 && options.scenario.empty()) {
    fmt::print(stderr, "shmcb-prove-explore: --schedule is of one scenario: say which by --scenario\n");
    return 2;
  }
  if (app.count("--schedule") > 0 && shmcb::proof::Scheduler::schedule_of(options.schedule).empty()) {
    fmt::print(stderr, "shmcb-prove-explore: --schedule is '{}', must be like \"0*12 1*30 0! 1*4\"\n",
               options.schedule);
    return 2;
  }
  if (!options.scenario.empty()) options.sets = {options.scenario.substr(0, options.scenario.find(':'))};
  if (options.sets.empty()) {
    for (const auto& [name, set] : shmcb::proof::all_sets())
      options.sets.push_back(name);
  }
  for (const std::string& name : options.sets) {
    if (shmcb::proof::all_sets().count(name) == 0) {
      fmt::print(stderr, "shmcb-prove-explore: no set is called '{}'\n", name);
      return 2;
    }
  }
  return shmcb::proof::run(options, argv[0]);
}
