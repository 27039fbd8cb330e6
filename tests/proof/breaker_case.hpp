// SPDX-License-Identifier: BSD-3-Clause
// One scenario about one breaker: a prepared state, what each participant does in it, an epilogue. Runs it under all or
// many schedules and checks each history that can be told from the others.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include "proof/reference.hpp"
#include "proof/scheduler.hpp"
#include "proof/stage.hpp"

namespace shmcb::proof {

struct BreakerScenario {
  std::vector<Settings> settings{};  ///< the first is the breaker's, the others are for `replace`
  std::vector<Op> prepare{};
  std::vector<std::vector<Op>> participants{};
  std::array<std::uint32_t, kMaxParticipants> deaths{};     ///< see Scheduler::Plan
  std::array<std::uint32_t, kMaxParticipants + 1> draws{};  ///< of each participant and of the epilogue
  StageOptions stage{};
  bool tiny = false;         ///< TinyWidths
  bool may_exhaust = false;  ///< the pool is so small that an operation may find no record
};

/// How much of a scenario is to be seen.
struct Extent {
  std::uint64_t limit = 100'000;  ///< executions of the systematic search
  std::uint32_t preemptions = 0;  ///< where that is not enough, all schedules with so many; 0: none of these
  std::uint64_t bounded_limit = 200'000;
  std::uint64_t random = 0;  ///< random executions instead
  std::uint64_t seed = 1;
  std::string schedule{};  ///< this one alone, shown step by step
};

struct CaseResult {
  Scheduler::Totals totals{};
  std::uint64_t histories = 0;  ///< that can be told apart, each checked
  bool bounded = false;         ///< cut, but all with so many preemptions were seen
  bool death_happened = false;
  bool schedule_fits = true;                  ///< that was to be replayed
  std::array<bool, kMaxParticipants> died{};  ///< in any execution
  std::string failure{};                      ///< empty: all held
  std::string schedule{};                     ///< of the failure
  std::string shown{};                        ///< of one schedule, its steps
};

/// One schedule, drawn ones, or all; and where these are too many, all within the bound.
inline void run_schedules(Scheduler& scheduler, const Scheduler::Plan& plan, const Scheduler::Hooks& hooks,
                          const Extent& extent, CaseResult& result) {
  scheduler.begin_plan();
  if (!extent.schedule.empty()) {
    result.totals = scheduler.replay(plan, hooks, Scheduler::schedule_of(extent.schedule));
    result.schedule_fits = scheduler.schedule_fits();
  } else if (extent.random > 0) {
    result.totals = scheduler.explore_randomly(plan, hooks, extent.random, extent.seed);
  } else {
    result.totals.complete = false;
    if (extent.limit > 0) result.totals = scheduler.explore(plan, hooks, extent.limit);
    if (!result.totals.complete && extent.preemptions != 0) {
      const Scheduler::Totals bounded = scheduler.explore(plan, hooks, extent.bounded_limit, extent.preemptions);
      result.totals.executions += bounded.executions;
      result.totals.steps += bounded.steps;
      result.totals.failed = bounded.failed;
      result.bounded = bounded.complete;
    }
  }
  result.death_happened = scheduler.death_happened();
}

template <class WidthsOf>
class BreakerCase {
 public:
  explicit BreakerCase(const BreakerScenario& scenario) : s_(scenario), stage_(scenario.stage), start_(s_.settings) {
    stage_.use_settings(s_.settings);
    stage_.use_draws(s_.draws);
    if (!prepare()) return;
    for (const auto& ops : s_.participants) {
      for (const Op& op : ops)
        latest_ = std::max(latest_, op.at);
    }
    epilogue_ = epilogue();
    stage_.set_scene();
  }

  CaseResult run(const Extent& extent) {
    if (!result_.failure.empty()) return result_;
    Scheduler::Plan plan{.bodies = {}, .dies_before_write = s_.deaths};
    for (std::size_t i = 0; i < s_.participants.size(); ++i)
      plan.bodies.emplace_back([this, i] { body(i); });
    const Scheduler::Hooks hooks{[this] { before(); }, [this] { return after(); }};
    run_schedules(stage_.scheduler(), plan, hooks, extent, result_);
    if (!extent.schedule.empty()) {
      result_.shown = stage_.shown_steps();
      if (result_.failure.empty()) result_.shown += answers();  // else the failure has them
    }
    if (result_.totals.failed && result_.failure.empty()) fail("somebody does not get to an end");
    return result_;
  }

 private:
  bool prepare() {
    if (!stage_.add("b", s_.settings[0])) {
      result_.failure = "the breaker cannot be registered";
      return false;
    }
    for (std::uint32_t other = 1; other < s_.stage.breakers; ++other)
      (void)stage_.add("other-" + std::to_string(other), s_.settings[0]);
    for (const Op& op : s_.prepare) {
      Event event{.op = op};
      const std::size_t by = op.by ? *op.by : Stage<WidthsOf>::kSetup;
      stage_.perform(stage_.cell(by), op, by, tokens_, event);
      std::optional<Transition> transition;
      const Answer answer = start_.perform(op, transition, circumstances(op));
      latest_ = std::max(latest_, op.at);
      if (agrees(event.answer, answer) && event.transition == transition) continue;
      event.ended = 0;
      result_.failure = "already the preparation answers otherwise than the rules: " + text_of(event);
      return false;
    }
    return true;
  }

  [[nodiscard]] Circumstances circumstances(const Op& op) const {
    if (!op.by) return {};
    return {.participant = *op.by, .draw = s_.draws[*op.by], .trips_draw = s_.draws[*op.by]};
  }

  /// Reaches every state from wherever the breaker is, so that probes and leases show.
  [[nodiscard]] std::vector<Op> epilogue() const {
    std::vector<Op> ops;
    Tick now = latest_;
    std::uint8_t token = kTokens / 2;
    const Settings& s = start_.settings();
    const auto look = [&] { ops.push_back({.kind = Op::Kind::snapshot, .at = now}); };
    const auto admit = [&] {
      ops.push_back({.kind = Op::Kind::admit, .token = token, .at = now});
      return token++;
    };
    const auto record = [&](std::uint8_t of, Outcome outcome) {
      ops.push_back({.kind = Op::Kind::record, .token = of, .outcome = outcome, .at = now});
    };
    look();
    if (s.reclaim_dead_probes) {  // before anything else frees the slots of the dead
      admit();
      admit();
    }
    // Of attempts admitted before, whatever became of their period.
    for (std::uint8_t t = 0; t < 3; ++t) {
      if (tokens_[t].admission != Admission::rejected) record(t, t == 1 ? Outcome::failure : Outcome::success);
    }
    look();
    if (s.reclaim_dead_probes) {  // whether the lease began anew when the last probe out was given up
      now += s.probe_timeout_ms - 1;
      admit();
    }
    if (start_.breaker().mode != Mode::automatic && !s_.may_exhaust) {  // each that may fail doubles the orders
      admit();
      ops.push_back({.kind = Op::Kind::mode, .mode = Mode::automatic, .at = now});
    }
    const auto a = admit();
    const auto b = admit();
    record(a, Outcome::success);
    record(b, Outcome::failure);
    look();
    now += std::max(s.probe_timeout_ms, s.cooldown_ms);
    const auto c = admit();
    const auto d = admit();
    record(c, Outcome::success);
    record(d, Outcome::success);
    look();
    now += s.cooldown_ms;
    const auto e = admit();
    for (std::uint32_t i = 0; i < std::max(s.failures, 2U); ++i)
      record(e, Outcome::failure);
    look();
    admit();
    return ops;
  }

  void before() {
    stage_.begin_execution();
    tokens_now_ = tokens_;
    no_token_ = 0;
    history_.clear();
    for (std::size_t i = 0; i < s_.participants.size(); ++i)
      events_[i].clear();
  }

  // An admit that could not be carried through has brought no token, so there is nothing to record.
  void keep_no_token(const Op& op) {
    if (op.kind == Op::Kind::admit) no_token_ |= std::uint64_t{1} << op.token;
  }
  [[nodiscard]] bool without_token(const Op& op) const {
    return op.kind == Op::Kind::record && (no_token_ >> op.token & 1U) != 0;
  }

  void body(std::size_t i) {
    const auto cell = stage_.cell(i);
    for (const Op& op : s_.participants[i]) {
      if (without_token(op)) continue;
      events_[i].push_back({.op = op, .participant = static_cast<std::uint8_t>(i)});
      Event& event = events_[i].back();
      event.begun = stage_.scheduler().mark(Access::invoke);
      stage_.perform(cell, op, i, tokens_now_, event);
      if (s_.may_exhaust && event.answer.error == Errc::records_exhausted) {
        keep_no_token(op);
        continue;  // it may have got half-way
      }
      event.ended = stage_.scheduler().mark(Access::respond);
    }
  }

  bool after() {
    for (std::size_t i = 0; i < s_.participants.size(); ++i)
      result_.died[i] = result_.died[i] || stage_.scheduler().died(i);
    std::uint64_t key = 1469598103934665603U;
    const auto mix = [&key](std::uint64_t number) { key = (key ^ number) * 1099511628211U ^ (key >> 29U); };
    for (std::size_t i = 0; i < s_.participants.size(); ++i) {
      mix(stage_.scheduler().died(i) ? 99 : 98);
      for (const std::uint32_t spare : stage_.spares_of(i))
        mix(spare);
      for (const Event& event : events_[i]) {
        history_.push_back(event);
        mix_event(event, mix);
      }
    }
    if (s_.settings[0].reclaim_dead_probes) mix_deaths(mix);
    // Real time: who had ended when whom began.
    for (const Event& a : history_) {
      for (const Event& b : history_)
        mix(a.ended < b.begun ? 1 : 2);
    }
    stage_.scheduler().hash_changes(mix);
    if (!seen_.insert(key).second) return true;
    ++result_.histories;
    const auto cell = stage_.cell(Stage<WidthsOf>::kEpilogue);
    for (const Op& op : epilogue_) {
      if (without_token(op)) continue;
      Event event{.op = op, .participant = static_cast<std::uint8_t>(Stage<WidthsOf>::kEpilogue)};
      event.begun = stage_.scheduler().mark(Access::invoke);
      stage_.perform(cell, op, Stage<WidthsOf>::kEpilogue, tokens_now_, event);
      event.ended = stage_.scheduler().mark(Access::respond);
      if (s_.may_exhaust && event.answer.error == Errc::records_exhausted) {
        if (stage_.has_record_to_take()) return fail("a record could be had, and was not found");
        event.ended = Event::kNever;
        keep_no_token(op);
      }
      history_.push_back(event);
    }
    return check();
  }

  /// Who was dead when whom began or ended.
  template <class Mix>
  void mix_deaths(Mix mix) const {
    const Participants participants = participants_now();
    for (const Event& event : history_) {
      for (const std::uint64_t died : participants.died)
        mix((died < event.begun ? 2U : 0U) + (died < event.ended ? 1U : 0U));
    }
  }

  [[nodiscard]] Participants participants_now() const {
    Participants participants{.draw = s_.draws};
    for (std::size_t i = 0; i < s_.participants.size(); ++i) {
      if (stage_.scheduler().died(i)) participants.died[i] = stage_.scheduler().died_at(i);
    }
    return participants;
  }

  template <class Mix>
  static void mix_event(const Event& event, Mix mix) {
    const Answer& a = event.answer;
    mix(event.ended == Event::kNever ? 7 : 8);
    mix(static_cast<std::uint64_t>(a.error));
    mix(static_cast<std::uint64_t>(a.admission) * 64 + static_cast<std::uint64_t>(a.state) * 16 +
        static_cast<std::uint64_t>(a.status));
    mix(static_cast<std::uint64_t>(a.mode) * 2 + (a.ramping ? 1 : 0));
    for (const Tick tick : {a.retry_at, a.retry_after, a.opened_at})
      mix(static_cast<std::uint64_t>(tick));
    for (const std::uint64_t count : {a.successes, a.failures, a.slow, a.rejected})
      mix(count);
    if (!event.transition) return mix(0);
    mix(1 + static_cast<std::uint64_t>(event.transition->reason));
    mix(static_cast<std::uint64_t>(event.transition->from) * 4 + static_cast<std::uint64_t>(event.transition->to));
    mix(static_cast<std::uint64_t>(event.transition->at));
  }

  bool check() {
    std::uint32_t dead = 0;
    for (std::size_t i = 0; i < s_.participants.size(); ++i)
      dead += stage_.scheduler().died(i) ? 1U : 0U;
    if (std::string wrong = stage_.wrong_with_ring(0); !wrong.empty()) return fail(wrong);
    if (std::string wrong = stage_.wrong_with_records(3 * dead); !wrong.empty()) return fail(wrong);
    if (std::string wrong = stage_.wrong_with_journal(0, dead); !wrong.empty()) return fail(wrong);
    if (history_.size() > Linearizer::kMaxEvents) return fail("a history too long to be checked");
    if (!Linearizer(history_, participants_now()).explains(start_))
      return fail("no order of the operations explains the answers");
    return true;
  }

  bool fail(const std::string& what) {
    std::string text = what + "\n  settings: " + std::to_string(s_.settings[0].failures) + " of " +
                       std::to_string(s_.settings[0].window) + ", probe limit " +
                       std::to_string(s_.settings[0].probe_limit) + ", success threshold " +
                       std::to_string(s_.settings[0].success_threshold) + "\n  prepared:";
    for (const Op& op : s_.prepare)
      text += " " + text_of(op) + ";";
    text += "\n  (participant 3 is the epilogue, tN a token, @N the time in ms)\n";
    result_.schedule = stage_.scheduler().schedule_text();
    result_.failure = text + answers();
    return false;
  }

  [[nodiscard]] std::string answers() const { return text_of(history_); }

  BreakerScenario s_;
  Stage<WidthsOf> stage_;
  Reference start_;
  Tokens tokens_{};
  Tokens tokens_now_{};
  std::uint64_t no_token_ = 0;  // bits: tokens of admits that found no record
  std::vector<Op> epilogue_;
  Tick latest_ = 0;
  std::array<std::vector<Event>, kMaxParticipants> events_;
  std::vector<Event> history_;
  std::unordered_set<std::uint64_t> seen_;
  CaseResult result_{};
};

}  // namespace shmcb::proof
