// SPDX-License-Identifier: BSD-3-Clause
// The contract as a small value that can be copied: the pure rules over a list of outcomes, one operation after the
// other. And the check: is there an order of a history's operations, consistent with real time, in which it gives the
// same answers and the same transitions?
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "shmcb/core/rules.hpp"

namespace shmcb::proof {

using rules::Tick;

struct Op {
  enum class Kind : std::uint8_t { admit, record, force, mode, replace, snapshot };
  Kind kind = Kind::snapshot;
  std::uint8_t token = 0;  ///< where an admit leaves its token, or whose outcome is recorded
  Outcome outcome = Outcome::success;
  CircuitState to = CircuitState::closed;
  Mode mode = Mode::automatic;
  Tick lasts = rules::kNever;  ///< of a mode
  std::uint8_t settings = 0;   ///< which of the scenario's
  Tick at = 0;
  std::optional<std::uint8_t> by{};  ///< in a preparation: the participant that does it; none: nobody who may die
};

inline constexpr std::size_t kTokens = 48;

/// All that an operation answers but its transition. What does not apply stays as it is here.
struct Answer {
  Errc error = Errc::ok;
  Admission admission = Admission::rejected;
  CircuitState state = CircuitState::closed;
  RecordStatus status = RecordStatus::stale;
  Mode mode = Mode::automatic;
  bool ramping = false;
  Tick retry_at = 0;
  Tick retry_after = 0;
  Tick opened_at = 0;
  std::uint64_t successes = 0;
  std::uint64_t failures = 0;
  std::uint64_t slow = 0;
  std::uint64_t rejected = 0;
  bool successes_at_least = false;

  friend bool operator==(const Answer&, const Answer&) = default;
};

/// Whether `seen` may be answered where exact accounting answers `exact`: fewer successes, if it says so and lean
/// accounting may have left some out (it does not say so where that had not begun); no other difference.
[[nodiscard]] inline bool agrees(const Answer& seen, Answer exact) {
  if (seen.successes_at_least && exact.successes_at_least) {
    exact.successes = std::min(exact.successes, seen.successes);
  } else if (exact.successes_at_least) {
    exact.successes_at_least = false;
  }
  return seen == exact;
}

struct Transition {
  TransitionReason reason = TransitionReason::none;
  CircuitState from = CircuitState::closed;
  CircuitState to = CircuitState::closed;
  Tick at = 0;

  friend auto operator<=>(const Transition&, const Transition&) = default;
};

/// What an operation depends on beside the breaker.
struct Circumstances {
  std::uint8_t participant = kNobodyDies;
  std::uint32_t dead = 0;                    ///< bits: the participants that an admit finds dead
  std::uint32_t draw = 0;                    ///< of its participant
  std::uint32_t trips_draw = 0;              ///< of whoever carries out the opening that an outcome decides
  std::optional<std::uint64_t> kept_from{};  ///< of settings with a larger window: see Reference::kept_from

  static constexpr std::uint8_t kNobodyDies = 200;
};

/// One operation of a history. `begun` and `ended` are positions in real time.
struct Event {
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};
  Op op{};
  std::uint8_t participant = 0;
  std::uint64_t begun = 0;
  std::uint64_t ended = kNever;  ///< never: its participant died in it, or it could not be carried through
  Answer answer{};
  std::optional<Transition> transition{};
  std::optional<Answer> after{};  ///< the record that the transition was reported with, as a snapshot shows it
};

class Reference {
 public:
  explicit Reference(const std::vector<Settings>& settings)
      : all_settings_(&settings), settings_(settings[0]), lean_(settings[0].lean) {
    breaker_.since = 0;
  }

  /// Performs an operation. `transition`: what it changed.
  Answer perform(const Op& op, std::optional<Transition>& transition, const Circumstances& with = {}) {
    Answer answer;
    switch (op.kind) {
      case Op::Kind::admit: admit(op, answer, transition, with); break;
      case Op::Kind::record: answer.status = record(op, transition, with); break;
      case Op::Kind::force: carry_out(rules::force(breaker_, settings_, op.at, op.to, with.draw), transition); break;
      case Op::Kind::mode:
        answer.mode = rules::mode_at(breaker_, op.at);
        carry_out(rules::set_mode(breaker_, op.at, op.mode, op.lasts == rules::kNever ? op.lasts : op.at + op.lasts),
                  transition);
        break;
      case Op::Kind::replace: replace(op.settings, op.at, with); break;
      case Op::Kind::snapshot: answer = look(); break;
    }
    return answer;
  }

  /// Ends a mode or a ramp that is over, as an admit does before it decides. False: nothing is due.
  bool settle(Tick now) {
    if (rules::stands_aside(breaker_)) return false;
    return rules::settle(breaker_, settings_, now).change != rules::Change::nothing;
  }

  // An outcome has two points where modes or settings change between them (docs/design.md, "A mode and a trip"): it is
  // judged, then it enters the window and has its effect.

  /// Judges an outcome that would be counted. From now on no other one of the period is counted before it has entered.
  [[nodiscard]] bool judge(const Op& op) {
    if (op.kind != Op::Kind::record || judged_) return false;
    const Token& token = tokens_[op.token];
    if (token.admission != Admission::allowed || op.outcome == Outcome::ignored) return false;
    if (breaker_.state != CircuitState::closed || token.period != generation_) return false;
    const Mode mode = rules::mode_at(breaker_, op.at);
    if (mode == Mode::disabled) return false;
    Reference after = *this;
    const TransitionReason reason = after.count(op, token);
    judged_ = mode == Mode::forced_closed ? TransitionReason::none : reason;
    return true;
  }
  [[nodiscard]] bool awaits_effect() const { return judged_.has_value(); }
  /// Enters, and opens if that was the judgement, in whatever mode; stale where something else ended the period.
  RecordStatus take_effect(const Op& op, std::optional<Transition>& transition, const Circumstances& with) {
    const TransitionReason reason = judged_.value();
    judged_.reset();
    const Token& token = tokens_[op.token];
    if (breaker_.state != CircuitState::closed || token.period != generation_) return RecordStatus::stale;
    const Tick at = push(op, token);
    if (reason != TransitionReason::none) {
      carry_out(rules::trip(breaker_, settings_, at, reason, with.trips_draw), transition);
    }
    return RecordStatus::counted;
  }
  /// Whether an operation has to wait for somebody's entry: nothing of the period is counted before it.
  [[nodiscard]] bool waits(const Op& op) const {
    if (!judged_ || op.kind != Op::Kind::record || op.outcome == Outcome::ignored) return false;
    const Token& token = tokens_[op.token];
    return token.admission == Admission::allowed && token.period == generation_ &&
           breaker_.state == CircuitState::closed && rules::mode_at(breaker_, op.at) != Mode::disabled &&
           !may_be_left_out(op);
  }

  /// A snapshot at rest.
  [[nodiscard]] Answer look() const { return look(chosen_); }
  /// One by other settings: those of a record that has been replaced since.
  [[nodiscard]] Answer look(std::size_t which) const {
    Answer answer{.state = breaker_.state,
                  .mode = breaker_.mode,
                  .ramping = breaker_.ramping,
                  .opened_at = breaker_.opened_at,
                  .rejected = rejected_};
    if (breaker_.state == CircuitState::half_open) {
      answer.successes = breaker_.probe_successes;
      return answer;
    }
    const rules::WindowCounts counts = counted((*all_settings_)[which]);
    answer.failures = counts.failures;
    answer.successes = counts.entries - counts.failures;
    answer.slow = counts.slow;
    answer.successes_at_least = lean_;
    return answer;
  }
  [[nodiscard]] std::uint64_t generation() const { return generation_; }
  [[nodiscard]] const rules::Breaker& breaker() const { return breaker_; }
  /// Whether these settings have a larger window than those in force.
  [[nodiscard]] bool grows_by(std::size_t which) const {
    const Settings& settings = (*all_settings_)[which];
    return settings_.window < settings.window || settings_.within_ms < settings.within_ms;
  }
  /// The first outcome that is in the window, counted from the first that ever entered.
  [[nodiscard]] std::uint64_t kept_from() const { return entered_ - count_ + first_counted(settings_); }
  [[nodiscard]] const Settings& settings() const { return settings_; }
  [[nodiscard]] std::size_t chosen() const { return chosen_; }
  /// The participants that hold probes, as bits.
  [[nodiscard]] std::uint32_t holders() const {
    std::uint32_t bits = 0;
    for (std::uint32_t i = 0; i < breaker_.probes.count; ++i)
      bits |= breaker_.probes.owner[i] < 32 ? 1U << breaker_.probes.owner[i] : 0U;
    return bits;
  }
  [[nodiscard]] const Token& token(std::size_t index) const { return tokens_[index]; }

  /// A number for this state: two that answer differently to anything have different ones.
  [[nodiscard]] std::uint64_t digest() const {
    std::uint64_t hash = 1469598103934665603U;
    const auto mix = [&hash](auto number) {
      hash = (hash ^ static_cast<std::uint64_t>(number)) * 0x9e37'79b9'7f4a'7c15U;
      hash ^= hash >> 29U;
    };
    for (const Tick tick :
         {breaker_.opened_at, breaker_.open_until, breaker_.since, breaker_.mode_until, breaker_.lease_at})
      mix(tick);
    mix(breaker_.state);
    mix(breaker_.mode);
    mix(breaker_.ramping);
    mix(breaker_.recovered);
    mix(breaker_.growth);
    mix(breaker_.probe_successes);
    for (std::uint32_t i = 0; i < breaker_.probes.count; ++i)
      mix(breaker_.probes.id[i] * 256 + breaker_.probes.owner[i]);
    mix(chosen_ * 2 + (lean_ ? 1 : 0));
    for (std::size_t i = 0; i < count_; ++i) {
      mix(window_[i].at);
      mix((window_[i].failure ? 2 : 0) + (window_[i].slow ? 1 : 0));
    }
    mix(count_);
    mix(entered_);
    mix(rejected_);
    mix(generation_);
    mix(next_probe_);
    mix(judged_ ? 1 + static_cast<int>(*judged_) : 0);
    for (const Token& token : tokens_)
      mix(token.period * 4 + static_cast<std::uint64_t>(token.admission));
    return hash;
  }

  /// What tells one state from another for whoever looks for all of them, as text.
  [[nodiscard]] std::string key(Tick now) const {
    std::string key;
    const auto add = [&key](std::int64_t number) { key += std::to_string(number) + ","; };
    add(static_cast<std::int64_t>(breaker_.state));
    add(static_cast<std::int64_t>(breaker_.mode));
    add(breaker_.ramping ? 1 : 0);
    add(breaker_.probes.count);
    add(breaker_.probe_successes);
    add(breaker_.state == CircuitState::open ? std::max<Tick>(0, breaker_.open_until - now) : 0);
    add(holders());
    add(breaker_.probes.count == 0 ? 0 : std::max<Tick>(0, breaker_.lease_at + settings_.probe_timeout_ms - now));
    if (breaker_.state != CircuitState::half_open) {
      for (std::size_t i = 0; i < count_; ++i)
        add((window_[i].failure ? 1 : 0) + (window_[i].at < now - settings_.within_ms ? 2 : 0));
    }
    add(-1);
    for (const Token& token : tokens_) {
      if (token.admission == Admission::rejected) continue;
      if (token.admission == Admission::probe) {
        add(breaker_.probes.contains(token.period) ? 1 : 2);
      } else {
        add(token.period == generation_ ? 3 : 4);
      }
    }
    return key;
  }

 private:
  struct Entry {
    Tick at = 0;
    bool failure = false;
    bool slow = false;
  };
  static constexpr std::size_t kMostEntries = 12;

  void admit(const Op& op, Answer& answer, std::optional<Transition>& transition, const Circumstances& with) {
    tokens_[op.token] = {.period = kVoidPeriod, .admission = Admission::rejected};
    answer.admission = Admission::allowed;
    answer.state = breaker_.state;
    if (rules::stands_aside(breaker_)) return;
    while (settle(op.at)) {
    }
    const rules::AdmitDecision decision =
        rules::admit(breaker_, settings_, op.at,
                     {.ids = {.on_transition = next_probe_, .within_generation = next_probe_},
                      .holder = with.participant,
                      .dead_probes = settings_.reclaim_dead_probes ? probes_of(with.dead) : 0,
                      .draw = with.draw});
    if (decision.turned == rules::Turned::by_outage) ++rejected_;
    carry_out(decision.effects, transition);
    answer.admission = decision.admission;
    answer.state = breaker_.state;
    if (decision.admission == Admission::rejected) {
      answer.retry_at = decision.retry_at;
      answer.retry_after = decision.retry_after;
    }
    if (!decision.counts) return;
    tokens_[op.token] = {.period = generation_, .started = rules::started_at(op.at), .admission = decision.admission};
    if (decision.admission == Admission::probe) tokens_[op.token].period = next_probe_++;
  }

  RecordStatus record(const Op& op, std::optional<Transition>& transition, const Circumstances& with) {
    const Token& token = tokens_[op.token];
    switch (token.admission) {
      case Admission::rejected: break;
      case Admission::allowed: return record_allowed(op, token, transition, with);
      case Admission::probe: {
        const rules::RecordDecision decision = rules::record_probe(
            breaker_, settings_, op.at,
            {.probe = token.period, .outcome = op.outcome, .started = token.started, .draw = with.draw});
        carry_out(decision.effects, transition);
        return decision.status;
      }
    }
    return token.period == kVoidPeriod ? RecordStatus::ignored : RecordStatus::rejected;
  }

  RecordStatus record_allowed(const Op& op, const Token& token, std::optional<Transition>& transition,
                              const Circumstances& with) {
    if (op.outcome == Outcome::ignored) return RecordStatus::ignored;
    if (breaker_.state != CircuitState::closed || token.period != generation_) return RecordStatus::stale;
    const Mode mode = rules::mode_at(breaker_, op.at);
    if (mode == Mode::disabled) return RecordStatus::ignored;
    const TransitionReason reason = count(op, token);
    if (mode == Mode::forced_closed || reason == TransitionReason::none) return RecordStatus::counted;
    carry_out(rules::trip(breaker_, settings_, window_[count_ - 1].at, reason, with.trips_draw), transition);
    return RecordStatus::counted;
  }

  /// Which probes are out that these participants hold, as bits.
  [[nodiscard]] std::uint32_t probes_of(std::uint32_t participants) const {
    std::uint32_t bits = 0;
    for (std::uint32_t i = 0; i < breaker_.probes.count; ++i) {
      const std::uint16_t owner = breaker_.probes.owner[i];
      if (owner < 32 && (participants >> owner & 1U) != 0) bits |= 1U << i;
    }
    return bits;
  }

  TransitionReason count(const Op& op, const Token& token) {
    push(op, token);
    return rules::opens(settings_, counted(settings_), op.outcome == Outcome::failure);
  }

  Tick push(const Op& op, const Token& token) {
    Tick at = rules::not_before(breaker_, op.at);
    if (count_ > 0) at = std::max(at, window_[count_ - 1].at);
    if (count_ == kMostEntries) {
      std::move(window_.begin() + 1, window_.end(), window_.begin());
      --count_;
    }
    ++entered_;
    window_[count_++] = {at, op.outcome == Outcome::failure, rules::is_slow(settings_, token.started, op.at)};
    return at;
  }

  /// By lean accounting: an outcome that nobody sees, and so none that has been judged.
  [[nodiscard]] bool may_be_left_out(const Op& op) const {
    return op.outcome == Outcome::success && settings_.lean && breaker_.mode == Mode::automatic && !breaker_.ramping &&
           counted(settings_).failures == 0;
  }

  /// The entries of the window as of the newest.
  [[nodiscard]] rules::WindowCounts counted(const Settings& settings) const {
    rules::WindowCounts counts;
    for (std::size_t i = first_counted(settings); i < count_; ++i)
      counts.add_newest(window_[i].failure, window_[i].slow);
    return counts;
  }
  [[nodiscard]] std::size_t first_counted(const Settings& settings) const {
    std::size_t first = count_;
    while (first > 0 && count_ - first < settings.window &&
           window_[first - 1].at >= window_[count_ - 1].at - settings.within_ms)
      --first;
    return first;
  }

  void replace(std::size_t which, Tick now, const Circumstances& with) {
    const Settings& settings = (*all_settings_)[which];
    if (settings_.revision > settings.revision) return;
    if (grows_by(which)) {
      const std::uint64_t shifted = entered_ - count_;
      const std::uint64_t kept = with.kept_from.value_or(kept_from());  // what has left it does not come back
      const std::size_t first = kept > shifted ? kept - shifted : 0;
      std::move(window_.begin() + static_cast<std::ptrdiff_t>(first),
                window_.begin() + static_cast<std::ptrdiff_t>(count_), window_.begin());
      count_ -= first;
    }
    std::optional<Transition> none;
    carry_out(rules::replace_settings(breaker_, settings_, settings, now, with.draw), none);
    settings_ = settings;
    chosen_ = which;
    // Only an outcome of Closed is left out; what the window of an earlier period holds was counted by its settings.
    if (breaker_.state == CircuitState::closed) lean_ = lean_ || settings_.lean;
  }

  void carry_out(const rules::Effects& effects, std::optional<Transition>& transition) {
    if (effects.change == rules::Change::transition) ++generation_;
    if (effects.empties_window) {
      count_ = 0;
      lean_ = settings_.lean;
    }
    if (effects.resets_rejected) rejected_ = 0;
    if (effects.reason == TransitionReason::none) return;
    transition = Transition{effects.reason, effects.from, breaker_.state, effects.at};
  }

  const std::vector<Settings>* all_settings_;
  Settings settings_;
  std::size_t chosen_ = 0;  // of all
  bool lean_ = false;       // successes of the window's period may have been left out
  rules::Breaker breaker_{};
  std::array<Entry, kMostEntries> window_{};
  std::size_t count_ = 0;
  std::uint64_t entered_ = 0;  // ever
  std::uint64_t rejected_ = 0;
  std::uint64_t generation_ = 1;
  std::uint64_t next_probe_ = 1;
  std::optional<TransitionReason> judged_{};
  std::array<Token, kTokens> tokens_{};
};

/// What is known of those who act in a history; the epilogue is one of them.
struct Participants {
  std::array<std::uint64_t, 4> died{Event::kNever, Event::kNever, Event::kNever, Event::kNever};  ///< when
  std::array<std::uint32_t, 4> draw{};
};

/// Looks for an order of a history's operations that explains it.
class Linearizer {
 public:
  /// What is claimed:
  /// - each operation that ended has its answer, at one point between its begin and its end;
  /// - one that did not end happened at one point after its begin, or not at all;
  /// - the reported transitions are those of that order, as a multiset, each reported by an operation that ran beside
  /// the
  ///   one it is due to; of those that did not end one each may be missing;
  /// - beside other operations a snapshot has two points: one for the record, and, not before it, one for the counts of
  ///   that period's window; rejections may lag;
  /// - an admit that reclaims probes of the dead has one answer for each holder: dead, where that one died before the
  ///   admit began; alive, where after its end; else either;
  /// - with modes or other settings among the operations, or a ramp: an outcome has two points, its judgement and its
  ///   entry, between which no other one is counted; and an admit that finds something over by time writes that down
  ///   at a point of its own.
  Linearizer(const std::vector<Event>& history, const Participants& participants)
      : history_(history), participants_(participants) {
    for (const Event& event : history_) {
      if (event.transition) ++reported_;
      replaces_ = replaces_ || event.op.kind == Op::Kind::replace;
      modes_ = modes_ || replaces_ || event.op.kind == Op::Kind::mode;
    }
  }

  [[nodiscard]] bool explains(const Reference& start) {
    modes_ = modes_ || start.breaker().mode != Mode::automatic || start.settings().ramp_ms != 0;
    std::vector<Made> made;
    return search(start, (std::uint64_t{1} << history_.size()) - 1, made);
  }

  static constexpr std::size_t kMaxEvents = 60;

 private:
  static constexpr std::size_t kNobody = kMaxEvents;

  struct Made {
    static constexpr std::uint8_t kAnyone = 255;
    std::optional<Transition> transition{};
    std::size_t by = 0;             ///< the operation that it is due to
    std::uint8_t opener = kAnyone;  ///< the participant that carried it out
  };

  bool search(const Reference& now, std::uint64_t left, std::vector<Made>& made) {
    // Where it has been before, by whatever order, it ended in nothing.
    std::uint64_t place = now.digest() ^ (left * 0x9e37'79b9'7f4a'7c15U) ^ (pending_ * 0xff51'afd7'ed55'8ccdU);
    const auto mix = [&place](std::uint64_t number) {
      place = (place ^ number) * 0xbf58'476d'1ce4'e5b9U;
      place ^= place >> 31U;
    };
    for (const Made& m : made) {
      mix(static_cast<std::uint64_t>(m.transition->reason) * 64 + static_cast<std::uint64_t>(m.transition->from) * 8 +
          static_cast<std::uint64_t>(m.transition->to));
      mix(static_cast<std::uint64_t>(m.transition->at));
      mix(m.by * 256 + m.opener);
    }
    for (std::size_t i = 0; i < history_.size(); ++i) {
      mix(looked_at_[i] * 8 + looked_with_[i]);
      mix(kept_from_[i] ? 1 + *kept_from_[i] : 0);
    }
    if (!been_.insert(place).second) return false;
    bool all_may_be_left_out = true;
    // The earliest end of those that are left: nothing that began after it can come before it.
    std::uint64_t earliest_end = Event::kNever;
    for (std::uint64_t rest = left; rest != 0; rest &= rest - 1) {
      const Event& event = history_[static_cast<std::size_t>(std::countr_zero(rest))];
      earliest_end = std::min(earliest_end, event.ended);
      if (event.ended != Event::kNever) all_may_be_left_out = false;
    }
    if (all_may_be_left_out && !now.awaits_effect() && same_transitions(made)) return true;
    for (std::uint64_t rest = left; rest != 0; rest &= rest - 1) {
      const auto i = static_cast<std::size_t>(std::countr_zero(rest));
      if (history_[i].begun > earliest_end) continue;
      if (take(now, left, i, made)) return true;
    }
    return false;
  }

  /// The operation `i` comes next, or a part of it.
  bool take(const Reference& now, std::uint64_t left, std::size_t i, std::vector<Made>& made) {
    const Event& event = history_[i];
    const std::uint64_t without = left & ~(std::uint64_t{1} << i);
    if (pending_ == i) {
      return in_some_circumstances(now, i, [&](const Circumstances& with, std::uint8_t opener) {
        Reference next = now;
        std::optional<Transition> transition;
        const RecordStatus status = next.take_effect(event.op, transition, with);
        if (event.ended != Event::kNever && event.answer.status != status && !is_only_likely(i, status)) return false;
        pending_ = kNobody;
        const bool found = go_on(next, without, {transition, i, opener}, made);
        pending_ = i;
        return found;
      });
    }
    if (pending_ != kNobody && now.waits(event.op)) return false;
    if (event.op.kind == Op::Kind::snapshot && overlaps(i)) {
      return meets_only_the_dead(i) ? take_late_look(now, without, i, made) : take_look(now, left, i, made);
    }
    if (event.op.kind == Op::Kind::replace && !kept_from_[i] && overlaps(i) && now.grows_by(event.op.settings)) {
      kept_from_[i] = now.kept_from();
      const bool found = search(now, left, made);
      kept_from_[i].reset();
      return found;
    }
    const bool found = in_some_circumstances(now, i, [&](const Circumstances& with, std::uint8_t opener) {
      Reference next = now;
      std::optional<Transition> transition;
      const Answer answer = next.perform(event.op, transition, with);
      // The counts in a report are of a moment after the transition: exact where nothing ran beside it.
      if (event.after && transition && !overlaps(i) && !agrees(*event.after, next.look())) return false;
      return (event.ended == Event::kNever || agrees(event.answer, answer) || is_only_likely(i, answer.status)) &&
             go_on(next, without, {transition, i, opener}, made);
    });
    if (found || !modes_) return found;
    if (event.op.kind == Op::Kind::admit && overlaps(i)) {
      Reference next = now;
      if (next.settle(event.op.at) && search(next, left, made)) return true;
    }
    if (pending_ == kNobody && meets_mode(i, now)) {
      Reference next = now;
      if (next.judge(event.op)) {
        pending_ = i;
        const bool entered = search(next, left, made);
        pending_ = kNobody;
        return entered;
      }
    }
    return false;
  }

  /// Tries each of the circumstances in which the operation may have happened. A death before an admit began is seen,
  /// one during it is seen or not, one after it is not. An opening that an outcome decides has the draw of whoever
  /// carried it out; that one reports it.
  template <class Attempt>
  bool in_some_circumstances(const Reference& now, std::size_t i, Attempt attempt) {
    const Event& event = history_[i];
    const std::uint32_t own = participants_.draw[event.participant];
    Circumstances with{.participant = event.participant, .draw = own, .trips_draw = own, .kept_from = kept_from_[i]};
    std::uint32_t may = 0;
    if (event.op.kind == Op::Kind::admit && now.settings().reclaim_dead_probes) {
      for (std::uint32_t p = 0; p < participants_.died.size(); ++p) {
        if (participants_.died[p] < event.begun) {
          with.dead |= 1U << p;
        } else if (participants_.died[p] < event.ended) {
          may |= now.holders() & 1U << p;
        }
      }
    }
    const std::uint32_t surely = with.dead;
    const bool draws = now.settings().cooldown_jitter != 0;
    const std::uint8_t opener = draws ? event.participant : Made::kAnyone;
    for (std::uint32_t some = may;; some = (some - 1) & may) {
      with.dead = surely | some;
      if (attempt(with, opener)) return true;
      if (some == 0) break;
    }
    if (!draws || event.op.kind != Op::Kind::record || !opens(now, i)) return false;
    std::uint32_t tried = 1U << event.participant;
    for (std::size_t k = 0; k < history_.size(); ++k) {
      const std::uint8_t other = history_[k].participant;
      if ((tried >> other & 1U) != 0 || !overlap(i, k)) continue;
      tried |= 1U << other;
      with.trips_draw = participants_.draw[other];
      if (attempt(with, other)) return true;
    }
    return false;
  }

  [[nodiscard]] bool opens(Reference now, std::size_t i) const {
    std::optional<Transition> transition;
    if (pending_ == i) {
      (void)now.take_effect(history_[i].op, transition, {});
    } else {
      (void)now.perform(history_[i].op, transition);
    }
    return transition.has_value();
  }

  /// A snapshot where nobody acts any more: exact, but that each of the dead may have taken a rejection along.
  bool take_late_look(const Reference& now, std::uint64_t without, std::size_t i, std::vector<Made>& made) {
    Answer shown = now.look();
    const Answer& seen = history_[i].answer;
    std::uint64_t dead_admits = 0;
    for (const Event& event : history_)
      dead_admits += event.ended == Event::kNever && event.op.kind == Op::Kind::admit ? 1U : 0U;
    if (seen.rejected > shown.rejected || seen.rejected + dead_admits < shown.rejected) return false;
    shown.rejected = seen.rejected;
    return agrees(seen, shown) && search(now, without, made);
  }

  /// A snapshot beside other operations: first the record, then the window of that period.
  bool take_look(const Reference& now, std::uint64_t left, std::size_t i, std::vector<Made>& made) {
    const Event& event = history_[i];
    const Answer& seen = event.answer;
    const std::uint64_t without = left & ~(std::uint64_t{1} << i);
    if (event.ended == Event::kNever) return search(now, without, made);
    auto& period = looked_at_[i];
    auto& settings = looked_with_[i];
    const Answer shown = now.look(period == 0 ? now.chosen() : settings);
    if (period == 0) {
      if (seen.error != Errc::ok || seen.state != shown.state || seen.mode != shown.mode ||
          seen.ramping != shown.ramping || seen.opened_at != shown.opened_at) {
        return false;
      }
      const bool by_record = seen.state == CircuitState::half_open;
      if (by_record && (seen.successes != shown.successes || seen.failures != 0 || seen.slow != 0)) return false;
      period = now.generation();
      settings = now.chosen();
      const bool found = search(now, by_record ? without : left, made);
      period = settings = 0;
      return found;
    }
    const bool same = period == now.generation();
    const bool fewer = shown.successes_at_least && seen.successes < shown.successes;
    if (same && (seen.failures != shown.failures || (seen.successes != shown.successes && !fewer) ||
                 seen.slow != shown.slow || seen.rejected > shown.rejected)) {
      return false;
    }
    const std::uint64_t keeps = std::exchange(period, 0);
    const std::size_t keeps_settings = std::exchange(settings, 0);
    const bool found = search(now, without, made);
    period = keeps;
    settings = keeps_settings;
    return found;
  }

  /// `now_made`: what the operation made, if anything.
  bool go_on(const Reference& next, std::uint64_t left, const Made& now_made, std::vector<Made>& made) {
    if (now_made.transition) made.push_back(now_made);
    const bool found = search(next, left, made);
    if (now_made.transition) made.pop_back();
    return found;
  }

  /// An outcome that would have opened the breaker and came too late, while the breaker went through more than one
  /// forced state or transition: what it is told is only likely (AppendOutcome::ended_by).
  [[nodiscard]] bool is_only_likely(std::size_t i, RecordStatus status) const {
    const Event& event = history_[i];
    if (event.op.kind != Op::Kind::record || event.answer.error != Errc::ok) return false;
    if (event.answer.status != RecordStatus::counted || status != RecordStatus::stale) return false;
    std::size_t moves = 0;
    for (std::size_t k = 0; k < history_.size(); ++k)
      moves += overlap(i, k) && (history_[k].op.kind == Op::Kind::force || history_[k].transition) ? 1U : 0U;
    return moves > 1;
  }

  [[nodiscard]] bool overlap(std::size_t i, std::size_t k) const {
    return k != i && history_[k].begun < history_[i].ended && history_[i].begun < history_[k].ended;
  }
  [[nodiscard]] bool overlaps(std::size_t i) const {
    for (std::size_t k = 0; k < history_.size(); ++k) {
      if (overlap(i, k)) return true;
    }
    return false;
  }
  [[nodiscard]] bool meets_only_the_dead(std::size_t i) const {
    if (history_[i].ended == Event::kNever) return false;
    for (std::size_t k = 0; k < history_.size(); ++k) {
      if (overlap(i, k) && history_[k].ended != Event::kNever) return false;
    }
    return true;
  }
  /// Whether somebody sets a mode or other settings at the same time, or writes down that one is over.
  [[nodiscard]] bool meets_mode(std::size_t i, const Reference& now) const {
    const bool something_ends = now.breaker().ramping || now.breaker().mode_until != rules::kNever;
    for (std::size_t k = 0; k < history_.size(); ++k) {
      const Op::Kind kind = history_[k].op.kind;
      if (overlap(i, k) &&
          (kind == Op::Kind::mode || kind == Op::Kind::replace || (kind == Op::Kind::admit && something_ends)))
        return true;
    }
    return false;
  }

  /// Whether the transitions that were made are those that were reported: each by an operation that ran beside the one
  /// that it is due to, or was that one; or by nobody, where one that could have committed it did not end.
  [[nodiscard]] bool same_transitions(const std::vector<Made>& made) const {
    return made.size() >= reported_ && assigned(made, 0, 0, 0);
  }
  /// Who completes the opening of another finds out the reason for it; where the settings have been replaced since, no
  /// rule may ask for it any more (AppendOutcome::reason_of).
  [[nodiscard]] bool is_report_of(const Made& made, std::size_t i) const {
    Transition told = *history_[i].transition;
    const bool guessed = replaces_ && i != made.by && told.reason == TransitionReason::failure_threshold_reached &&
                         history_[made.by].op.kind == Op::Kind::record;
    if (guessed) told.reason = made.transition->reason;
    return told == made.transition;
  }
  [[nodiscard]] bool assigned(const std::vector<Made>& made, std::size_t next, std::uint64_t used,
                              std::size_t reports) const {
    if (next == made.size()) return reports == reported_;
    for (std::size_t i = 0; i < history_.size(); ++i) {
      const Event& event = history_[i];
      if ((used >> i & 1U) != 0 || (i != made[next].by && !overlap(i, made[next].by))) continue;
      if (made[next].opener != Made::kAnyone && made[next].opener != event.participant) continue;
      const bool reported = event.transition && is_report_of(made[next], i);
      const bool excused = event.ended == Event::kNever && event.op.kind != Op::Kind::snapshot;
      if (!reported && !excused) continue;
      if (assigned(made, next + 1, used | (std::uint64_t{1} << i), reports + (reported ? 1 : 0))) return true;
    }
    return false;
  }

  const std::vector<Event>& history_;
  bool modes_ = false;
  Participants participants_;
  std::size_t reported_ = 0;
  bool replaces_ = false;
  std::size_t pending_ = kNobody;                      // whose outcome is judged and has not taken effect
  std::array<std::uint64_t, kMaxEvents> looked_at_{};  // of snapshots whose first point has passed: the period
  std::array<std::size_t, kMaxEvents> looked_with_{};  // and the settings
  std::array<std::optional<std::uint64_t>, kMaxEvents> kept_from_{};  // of replacements whose first point has passed
  std::unordered_set<std::uint64_t> been_;
};

[[nodiscard]] inline std::string text_of(const Op& op) {
  std::string text;
  const std::string token = " t" + std::to_string(op.token);
  switch (op.kind) {
    case Op::Kind::admit: text = "admit as" + token; break;
    case Op::Kind::record: text = std::string(to_string(op.outcome)) + " of" + token; break;
    case Op::Kind::force: text = "force " + std::string(to_string(op.to)); break;
    case Op::Kind::mode:
      text = "mode " + std::string(to_string(op.mode));
      if (op.lasts != rules::kNever) text += " for " + std::to_string(op.lasts) + " ms";
      break;
    case Op::Kind::replace: text = "replace settings by no. " + std::to_string(op.settings); break;
    case Op::Kind::snapshot: text = "snapshot"; break;
  }
  return text + " @" + std::to_string(op.at);
}

[[nodiscard]] inline std::string text_of(const Event& event) {
  std::string text = text_of(event.op) + " -> ";
  const Answer& a = event.answer;
  if (event.ended == Event::kNever) return text + "(did not end)";
  if (a.error != Errc::ok) return text + "error " + std::string(to_string(a.error));
  switch (event.op.kind) {
    case Op::Kind::admit:
      text += std::string(to_string(a.admission)) + " in " + std::string(to_string(a.state));
      if (a.admission == Admission::rejected) text += ", retry after " + std::to_string(a.retry_after);
      break;
    case Op::Kind::record: text += to_string(a.status); break;
    case Op::Kind::force:
    case Op::Kind::replace: text += "done"; break;
    case Op::Kind::mode: text += "was " + std::string(to_string(a.mode)); break;
    case Op::Kind::snapshot:
      text += std::string(to_string(a.state)) + " opened " + std::to_string(a.opened_at) + ", " +
              std::to_string(a.successes) + " s " + std::to_string(a.failures) + " f " + std::to_string(a.rejected) +
              " r";
      break;
  }
  if (event.transition) {
    text += " [" + std::string(to_string(event.transition->from)) + "->" +
            std::string(to_string(event.transition->to)) + " " + std::string(to_string(event.transition->reason)) +
            " @" + std::to_string(event.transition->at) + "]";
  }
  return text;
}

[[nodiscard]] inline std::string text_of(const std::vector<Event>& history) {
  std::string text;
  for (const Event& event : history) {
    text += "  " + std::string(event.participant, ' ') + std::to_string(event.participant) + ": " + text_of(event) +
            "  (" + std::to_string(event.begun) + ".." +
            (event.ended == Event::kNever ? "-" : std::to_string(event.ended)) + ")\n";
  }
  return text;
}

}  // namespace shmcb::proof
