// SPDX-License-Identifier: BSD-3-Clause
// The lock-free breaker: the contract's operations on one breaker of a segment. The control word names an immutable
// record; whatever changes rarely is changed by copying it, applying the pure rules and publishing the copy. Outcomes
// of Closed go into the ring.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "shmcb/core/append_outcome.hpp"
#include "shmcb/core/cell_core.hpp"
#include "shmcb/core/rules.hpp"

namespace shmcb::core {

struct CellAdmit {
  Errc error = Errc::ok;
  Admission admission = Admission::rejected;
  CircuitState state = CircuitState::closed;
  bool counts = true;        ///< false: allowed by a mode, and its outcome is void
  std::uint64_t period = 0;  ///< Allowed: the generation; Probe: its identity
  rules::Tick retry_at = 0;
  rules::Tick retry_after = 0;
  std::optional<CellTransition> transition{};
};

struct TurnedAway {
  rules::Tick retry_at = 0;
  rules::Tick retry_after = 0;
};

struct CellMode {
  Errc error = Errc::ok;
  Mode previous = Mode::automatic;
};

struct CellPeek {
  CircuitState state = CircuitState::closed;
  Mode mode = Mode::automatic;
  rules::Tick cooldown_left = 0;  ///< of Open
};

/// One breaker of a mapped segment. A handle without state of its own: copies and other processes act on the same
/// breaker. Where an operation may need chance, `draw()` gives it: even over [0, rules::kDraws).
template <class Env>
class BreakerCell {
 public:
  using Control = ControlWord<typename Env::Widths>;
  using Position = typename Ring<Env>::Position;

  BreakerCell() = default;
  explicit BreakerCell(const CellCore<Env>& core) noexcept : core_(core) {}

  [[nodiscard]] std::uint32_t index() const noexcept { return core_.index(); }
  [[nodiscard]] CellCore<Env>& core() noexcept { return core_; }
  [[nodiscard]] const CellCore<Env>& core() const noexcept { return core_; }

  /// The whole of a plain Closed admit: one load, one compare. False: ask `admit_timed`, then `admit`.
  [[nodiscard]] bool allowed(std::uint64_t& period) const noexcept {
    const Control word = core_.control();
    period = word.generation();
    return word.plainly_closed();
  }
  /// The same where a call's start matters: the caller notes the time.
  [[nodiscard]] bool allowed_timed(std::uint64_t& period) const noexcept {
    const Control word = core_.control();
    period = word.generation();
    return word.closed_and_timed();
  }
  /// Whether the breaker is disabled without an end: every call is admitted, without the clock and without writing.
  [[nodiscard, gnu::always_inline]] bool stands_aside(CircuitState& state) const noexcept {
    return core_.control().mode() == Mode::disabled && stands_aside_without_end(state);
  }

  /// Open, and the cooldown is not over: the first words of the record decide, as rules::admit decides it in this
  /// state. False: ask `admit`.
  [[nodiscard, gnu::always_inline]] bool turned_away(Bits now_us, TurnedAway& away) const noexcept {
    const Control word = core_.control();
    Opening opening;
    if (!word.plainly_open() || core_.elsewhere() || !core_.look(word, opening)) return false;
    const rules::Tick now = std::max(tick(now_us), opening.opened_at);
    if (now >= opening.open_until) return false;
    core_.count_rejection(opening.rejected_generation);
    away = {.retry_at = opening.open_until, .retry_after = opening.open_until - now};
    return true;
  }

  template <class Draw>
  [[nodiscard]] CellAdmit admit(Bits now_us, Draw draw) const noexcept {
    for (Work work = core_.budget(); work.charge();) {
      CellAdmit result;
      Control word;
      Record record;
      if (!core_.load(word, record, word::end, work)) break;
      rules::Effects effects = rules::settle(record.breaker, record.settings, tick(now_us));
      const bool settles = effects.change != rules::Change::nothing;
      if (effects.event == EventKind::mode_expired) record.note = {};
      if (!settles) {
        effects = decide(word, record, now_us, draw, result);
        if (effects.change == rules::Change::nothing) return result;
      }
      const bool done = core_.commit(word, record, effects, work, result.error, result.transition);
      if (result.error != Errc::ok || (done && !settles)) return result;
    }
    return {.error = Errc::corrupt};
  }

  /// Whether a success of that Closed period is counted by being left out (see CellCore); then nothing is to be done.
  [[nodiscard, gnu::always_inline]] bool leaves_out_success(Bits period) const noexcept {
    return core_.leaves_out_success(period);
  }
  /// So many successes were left out: for display.
  void count_left_out(std::uint64_t successes) const noexcept { core_.count(&Lane<Env>::left_out, successes); }

  /// The whole of a plain outcome. False: ask `record_allowed`. `notes` are the caller's handle's own.
  template <bool kFailure>
  [[nodiscard, gnu::always_inline]] bool count_plainly(Bits period, Bits now_us, LocalNotes& notes) const noexcept {
    return append_plainly<Env, kFailure>(core_, period, now_us, notes);
  }

  /// Records the outcome of a call that was Allowed.
  template <class Draw>
  [[nodiscard]] CellRecord record_allowed(const CompletedCall& call, LocalNotes& notes, Draw draw) const noexcept {
    CellRecord result;
    if (call.failure || !AppendOutcome<Env, false, Draw>(core_, call, draw, result).run(notes)) {
      (void)AppendOutcome<Env, true, Draw>(core_, call, draw, result).run(notes);
    }
    return result;
  }

  /// Records the outcome of a probe.
  [[nodiscard]] CellRecord record_probe(const rules::Verdict& verdict, Bits now_us) const noexcept {
    return core_.change([&](Control /*word*/, Record& record, RecordStatus& status) {
      const rules::RecordDecision decision =
          rules::record_probe(record.breaker, record.settings, tick(now_us), verdict);
      status = decision.status;
      return decision.effects;
    });
  }

  template <class Draw>
  [[nodiscard]] CellRecord force(CircuitState to, Bits now_us, Draw draw, const NoteText& note = {}) const noexcept {
    return core_.change(
        [&](Control /*word*/, Record& record, RecordStatus& status) {
          status = RecordStatus::counted;
          return rules::force(record.breaker, record.settings, tick(now_us), to, draw());
        },
        note);
  }

  /// Sets the mode; `until` rules::kNever: it stays.
  [[nodiscard]] CellMode set_mode(Mode mode, rules::Tick until, const NoteText& note, Bits now_us) const noexcept {
    CellMode result;
    const CellRecord changed = core_.change(
        [&](Control /*word*/, Record& record, RecordStatus& status) {
          status = RecordStatus::counted;
          result.previous = rules::mode_at(record.breaker, tick(now_us));
          record.note = note;
          return rules::set_mode(record.breaker, tick(now_us), mode, until);
        },
        note);
    result.error = changed.error;
    return result;
  }

  /// Writes other numbers, unless a higher revision is there; state and window are kept, cut at what the old window
  /// held.
  template <class Draw>
  [[nodiscard]] Errc replace_settings(const Settings& settings, Bits now_us, Draw draw) const noexcept {
    if (!core_.ring().fits(settings.window)) return Errc::ring_full;
    for (Work work = core_.budget(); work.charge();) {
      Control word;
      Record record;
      if (!core_.load(word, record, word::end, work)) break;
      if (!core_.versions_left(word)) return Errc::version_exhausted;     // rather than begin a new period
      if (record.settings.revision > settings.revision) return Errc::ok;  // a newer one has come in between: it stays
      if (record.left_out) {
        // While successes are left out, those in the ring are of an earlier time: other numbers begin without them. And
        // a rate among the outcomes that are there would be one without those that are not.
        typename Ring<Env>::Tail tail;
        if (!core_.ring().locate_tail(tail)) continue;
        const bool rates = settings.judges_successes() && !record.settings.judges_successes();
        const bool begins = rates || (record.leaves_out && !core_.records_all());
        if (begins) record.window_begin = std::max(record.window_begin, tail.position);
      }
      const bool grows = record.settings.window < settings.window || record.settings.within_ms < settings.within_ms;
      if (grows) {
        // What has left the window, by number or by age, does not come back when they grow.
        WindowCount<Env> count;
        if (!core_.count_window(record, count, work)) continue;
        record.window_begin = std::max(record.window_begin, count.first());
      }
      const rules::Effects effects =
          rules::replace_settings(record.breaker, record.settings, settings, tick(now_us), draw());
      record.settings = settings;
      record.leaves_out = record.leaves_out && settings.lean;
      Errc error = Errc::ok;
      std::optional<CellTransition> none;
      if (core_.commit(word, record, effects, work, error, none)) return begin_leaving_out();
      if (error != Errc::ok) return error;
    }
    return Errc::corrupt;
  }

  /// Where lean accounting was set in the midst of a Closed period: from now on successes may be left out. Again by
  /// whoever brings these settings, where the one who set them died before. (docs/design.md, "Lean accounting")
  [[nodiscard]] Errc begin_leaving_out() const noexcept {
    for (Work work = core_.budget(); work.charge();) {
      Control word;
      Record record;
      if (!core_.load(word, record, word::end, work)) break;
      if (!record.settings.lean || record.leaves_out || !word.closed() || !core_.versions_left(word)) return Errc::ok;
      // The touch: a failure that was judged by the settings before has its entry in front of it, or loses its slot.
      Position tail = 0;
      if (!core_.ring().touch_tail(work, tail)) break;
      if (!core_.record_all_until(tail + core_.ring().capacity(), work)) break;
      record.leaves_out = record.left_out = true;
      const rules::Effects effects{.change = rules::Change::within_generation};
      Errc error = Errc::ok;
      std::optional<CellTransition> none;
      if (core_.commit(word, record, effects, work, error, none)) return Errc::ok;
      if (error != Errc::ok) return error;
    }
    return Errc::corrupt;
  }

  [[nodiscard]] Errc settings(Settings& settings) const noexcept {
    Control word;
    Record record;
    Work work = core_.budget();
    if (!core_.look(word, record, word::settings_end, work)) return Errc::corrupt;
    settings = record.settings;
    return Errc::ok;
  }

  /// State and mode and, of Open, what is left of the cooldown. Changes nothing; `now_us` is called only where the time
  /// matters.
  template <class NowUs>
  [[nodiscard]] Errc peek(NowUs now_us, CellPeek& peek) const noexcept {
    peek = {};
    if (core_.control().plainly_closed()) return Errc::ok;
    Control word;
    Record record;
    Work work = core_.budget();
    if (!core_.look(word, record, word::state_end, work)) return Errc::corrupt;
    const rules::Breaker& breaker = record.breaker;
    peek.state = breaker.state;
    peek.mode = breaker.mode;
    if (breaker.mode_until == rules::kNever && peek.state != CircuitState::open) return Errc::ok;
    const rules::Tick now = tick(now_us());
    peek.mode = rules::mode_at(breaker, now);
    if (peek.state == CircuitState::open) {
      peek.cooldown_left = std::max<rules::Tick>(0, breaker.open_until - rules::not_before(breaker, now));
    }
    return Errc::ok;
  }

  /// Exact where nothing runs beside it; else a mixture of moments during the call, never a torn record. Only reads.
  /// `max_rounds`: a copy of a segment that stands still does not get better by looking again.
  [[nodiscard]] Errc snapshot(CellState& state, std::uint32_t max_rounds = ~0U) const noexcept {
    Work work = core_.budget();
    std::uint32_t vain = 0;
    Position seen_hint = 0;
    Control seen_word{};
    for (std::uint32_t round = 0; round < max_rounds && work.charge(); ++round) {
      Control word;
      Record record;
      if (!core_.look(word, record, word::settings_end, work)) return Errc::corrupt;
      // One look for each record: the window that an older one names may have been written over for good.
      if (core_.state_of(record, state, work)) return Errc::ok;
      const Position hint = core_.ring().hint();
      vain = hint == seen_hint && word == seen_word ? vain + 1 : 0;
      if (vain == kMaxVain) break;
      seen_hint = hint;
      seen_word = word;
    }
    return Errc::corrupt;
  }

  /// What has been counted since the breaker came into being; a mixture of moments. Only reads. `max_rounds` as above.
  [[nodiscard]] Errc counters(Bits now_us, Counters& counters, std::uint32_t max_rounds = ~0U) const noexcept {
    Control word;
    Record record;
    Work work = core_.budget();
    if (!core_.look(word, record, word::end, work)) return Errc::corrupt;
    typename Ring<Env>::Tail tail;
    std::uint32_t vain = 0;
    Position seen_hint = core_.ring().hint();
    for (std::uint32_t round = 1; !core_.ring().locate_tail(tail); ++round) {
      const Position hint = core_.ring().hint();
      vain = hint == seen_hint ? vain + 1 : 0;
      seen_hint = hint;
      if (round >= max_rounds || vain == kMaxVain || !work.charge(kHintEvery * kHintEvery)) return Errc::corrupt;
    }
    const rules::Tally& tally = record.breaker.tally;
    const std::uint64_t outcomes = core_.outcomes_before(tail.position);
    counters.failures = std::min(core_.sum(&Lane<Env>::failures), outcomes);
    const std::uint64_t left_out = core_.sum(&Lane<Env>::left_out);
    counters.successes = outcomes - counters.failures + left_out;
    counters.ignored = core_.sum(&Lane<Env>::ignored);
    counters.stale = core_.sum(&Lane<Env>::stale);
    counters.rejected = core_.all_rejections();
    counters.ramp_rejected = core_.sum(&Lane<Env>::ramp_rejected);
    counters.abandoned = core_.sum(&Lane<Env>::abandoned);
    counters.probes = tally.probes;
    counters.probe_verdicts = tally.probe_verdicts;
    counters.completed = outcomes + left_out + tally.probe_verdicts + counters.ignored + counters.stale;
    for (std::size_t i = 0; i < kTransitionReasons; ++i)
      counters.transitions[i] = tally.transitions[i];
    auto spent = tally.spent;
    spent[static_cast<std::size_t>(record.breaker.state)] += rules::lasted(record.breaker, tick(now_us));
    counters.in_closed = Millis{spent[0]};
    counters.in_open = Millis{spent[1]};
    counters.in_half_open = Millis{spent[2]};
    return Errc::ok;
  }

  /// One more outcome that had nothing to count, belonged to another time, or was dropped. Not while disabled: then
  /// nothing is written.
  void count_ignored() const noexcept { count(&Lane<Env>::ignored); }
  void count_stale() const noexcept { count(&Lane<Env>::stale); }
  void count_abandoned() const noexcept { count(&Lane<Env>::abandoned); }

  /// A consistent copy of the control word and the record it names, for display and tests; false: corrupt. Only reads:
  /// the word may be a retiring one.
  [[nodiscard]] bool load(Control& word, Record& record) const noexcept {
    Work work = core_.budget();
    return core_.look(word, record, word::end, work);
  }

 private:
  [[nodiscard]] static rules::Tick tick(Bits time_us) noexcept { return CellCore<Env>::tick(time_us); }

  [[nodiscard, gnu::noinline]] bool stands_aside_without_end(CircuitState& state) const noexcept {
    Control word;
    Record record;
    Work work = core_.budget();
    if (!core_.look(word, record, word::state_end, work)) return false;
    state = record.breaker.state;
    return rules::stands_aside(record.breaker);
  }

  void count(typename Env::Word Lane<Env>::*counter) const noexcept {
    if (core_.control().mode() != Mode::disabled) core_.count(counter);
  }

  /// Applies the rule to the copy of the record, counts a rejection, and answers what is to be published.
  template <class Draw>
  [[nodiscard]] rules::Effects decide(Control word, Record& record, Bits now_us, Draw draw,
                                      CellAdmit& result) const noexcept {
    rules::Caller caller;
    if (word.state() != CircuitState::closed) {
      // For the number a probe is held by. Where there is none now, publishing the probe will say so.
      (void)core_.presence().ensure_current();
      caller.ids = ids_after(word, record);
      caller.holder = core_.presence().number();
      if (record.settings.reclaim_dead_probes) caller.dead_probes = dead(record.breaker.probes);
    } else if (word.ramping()) {
      caller.draw = draw();
    }
    const rules::AdmitDecision decision = rules::admit(record.breaker, record.settings, tick(now_us), caller);
    result.admission = decision.admission;
    result.state = record.breaker.state;
    result.counts = decision.counts;
    result.period = decision.admission == Admission::probe ? decision.probe : word.generation();
    result.retry_at = decision.retry_at;
    result.retry_after = decision.retry_after;
    switch (decision.turned) {
      case rules::Turned::none: break;
      case rules::Turned::by_outage: core_.count_rejection(record.rejected_generation); break;
      case rules::Turned::by_ramp: core_.count(&Lane<Env>::ramp_rejected); break;
    }
    return decision.effects;
  }

  /// The identities a probe gets: the change by which it is admitted.
  [[nodiscard]] static rules::ProbeIds ids_after(Control word, const Record& record) noexcept {
    const Marks marks = marks_of(record);  // any will do: the identity is the number of the change
    return {.on_transition = word.next(marks, true, 0).change_id(),
            .within_generation = word.next(marks, false, 0).change_id()};
  }

  /// The probes whose holders are dead, as bits. One answer for each holder, asked once: one that dies meanwhile is
  /// dead for all of its probes or for none. Two or three system calls each.
  [[nodiscard]] std::uint32_t dead(const rules::Probes& probes) const noexcept {
    std::uint32_t bits = 0;
    for (std::uint32_t i = 0; i < probes.count; ++i) {
      const auto* const first = std::find(probes.owner.begin(), probes.owner.begin() + i, probes.owner[i]);
      const auto asked = static_cast<std::uint32_t>(first - probes.owner.begin());
      const bool is_dead = asked < i ? (bits >> asked & 1U) != 0 : core_.presence().is_unheld(probes.owner[i]);
      bits |= is_dead ? 1U << i : 0U;
    }
    return bits;
  }

  CellCore<Env> core_;
};

}  // namespace shmcb::core
