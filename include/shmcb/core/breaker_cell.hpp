// SPDX-License-Identifier: BSD-3-Clause
// The lock-free breaker: the contract's operations on one breaker of a segment. The control word names an immutable
// record; whatever changes rarely is changed by copying it, applying the pure rules and publishing the copy. Outcomes
// of Closed go into the ring. docs/design.md argues each step, docs/memory-model.md each order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "shmcb/core/journal.hpp"
#include "shmcb/core/record_pool.hpp"
#include "shmcb/core/ring.hpp"
#include "shmcb/core/rules.hpp"

namespace shmcb::core {

/// A breaker's state in ticks since the segment's epoch.
struct CellState {
  CircuitState state = CircuitState::closed;
  rules::Tick opened_at = rules::kNever;
  std::uint64_t successes = 0;
  std::uint64_t failures = 0;
  std::uint64_t rejected = 0;
};

/// A transition that an operation committed.
struct CellTransition {
  TransitionReason reason = TransitionReason::none;
  CircuitState from = CircuitState::closed;
  rules::Tick at = 0;
  CellState after{};
};

struct CellAdmit {
  Errc error = Errc::ok;
  Admission admission = Admission::rejected;
  CircuitState state = CircuitState::closed;
  std::uint64_t period = 0;  ///< Allowed: the generation; Probe: its identity
  rules::Tick retry_at = 0;
  rules::Tick retry_after = 0;
  std::optional<CellTransition> transition{};
};

struct CellRecord {
  Errc error = Errc::ok;
  RecordStatus status = RecordStatus::stale;
  std::optional<CellTransition> transition{};
};

/// One breaker of a mapped segment. A handle without state of its own: copies and other processes act on the same
/// breaker.
template <class Env>
class BreakerCell {
 public:
  using Control = ControlWord<typename Env::Widths>;
  using Entry = Slot<typename Env::Widths>;
  using Rejected = RejectedWord<typename Env::Widths>;
  using Position = typename Ring<Env>::Position;

  BreakerCell() = default;
  /// `cells` and `slots` belong to breaker `index` of the view and were checked.
  BreakerCell(const SegmentView<Env>& view, Presence& presence, std::uint32_t index, BreakerCells<Env>& cells,
              typename Env::Word* slots, std::uint32_t capacity) noexcept
      : cells_(&cells), index_(index), ring_(slots, capacity, &cells.hint), view_(&view), presence_(&presence) {}

  [[nodiscard]] std::uint32_t index() const noexcept { return index_; }

  /// The whole of a Closed admit: one load, one compare. False: ask `admit`.
  [[nodiscard]] bool allowed(std::uint64_t& period) const noexcept {
    const Control word = control();
    period = word.generation();
    return word.plainly_closed();
  }

  [[nodiscard]] CellAdmit admit(Bits now_us) const noexcept {
    for (Work work = budget(); work.charge();) {
      CellAdmit early;
      if (turned_away_early(now_us, early, work)) return early;
      Control word;
      Record record;
      if (!load(word, record, word::end, work)) break;
      record.breaker.state = word.state();
      // For the number a probe is held by. Where there is none now, publishing the probe will say so.
      (void)presence_->ensure_current();
      const rules::AdmitDecision decision =
          rules::admit(record.breaker, record.settings, tick(now_us), ids_after(word), presence_->number());
      CellAdmit result{.admission = decision.admission,
                       .state = record.breaker.state,
                       .period = decision.probe,
                       .retry_at = decision.retry_at,
                       .retry_after = decision.retry_after};
      switch (decision.admission) {
        case Admission::allowed: result.period = word.generation(); return result;
        case Admission::rejected: count_rejection(record.rejected_generation); return result;
        case Admission::probe: break;
      }
      const bool done = commit(word, record, decision.effects, work, result.error, result.transition);
      if (done || result.error != Errc::ok) return result;
    }
    return {.error = Errc::corrupt};
  }

  /// Records the outcome of an attempt that was Allowed in the Closed period `generation`. `start` is the caller's
  /// handle's own.
  [[nodiscard]] CellRecord record_allowed(Bits generation, Outcome outcome, Bits now_us,
                                          SearchStart& start) const noexcept {
    switch (outcome) {
      case Outcome::success: return append<false>(generation, now_us, start);
      case Outcome::failure: return append<true>(generation, now_us, start);
      case Outcome::ignored: break;
    }
    return {.status = RecordStatus::ignored};
  }

  /// Records the outcome of the probe `id`.
  [[nodiscard]] CellRecord record_probe(std::uint64_t id, Outcome outcome, Bits now_us) const noexcept {
    return change([=](Control /*word*/, Record& record, RecordStatus& status) {
      const rules::RecordDecision decision =
          rules::record_probe(record.breaker, record.settings, tick(now_us), id, outcome);
      status = decision.status;
      return decision.effects;
    });
  }

  [[nodiscard]] CellRecord force(CircuitState to, Bits now_us) const noexcept {
    return change([=](Control /*word*/, Record& record, RecordStatus& status) {
      status = RecordStatus::counted;
      return rules::force(record.breaker, tick(now_us), to);
    });
  }

  /// Writes other numbers, unless a higher revision is there; state and window are kept, cut at what the old window
  /// held.
  [[nodiscard]] Errc replace_settings(const Settings& settings) const noexcept {
    if (!ring_.fits(settings.window)) return Errc::ring_full;
    for (Work work = budget(); work.charge();) {
      Control word;
      Record record;
      if (!load(word, record, word::end, work)) break;
      // The verdicts of siblings that are still out need versions of this Closed period too.
      if (word.version_exhausted(kVersionReserve)) return Errc::version_exhausted;
      if (record.settings.revision > settings.revision) return Errc::ok;  // a newer one has come in between: it stays
      const bool grows = record.settings.window < settings.window || record.settings.within_ms < settings.within_ms;
      if (grows) {
        // What has left the window, by number or by age, does not come back when they grow.
        FailureCount<Env> count;
        if (!count_window(record, count, work)) continue;
        record.window_begin = std::max(record.window_begin, count.first());
      }
      record.settings = settings;
      Errc error = Errc::ok;
      if (RecordPool<Env>(*view_, *presence_)
              .publish(cells_->control, word, index_, word.state(), false, record, error)) {
        return Errc::ok;
      }
      if (error != Errc::ok) return error;
    }
    return Errc::corrupt;
  }

  [[nodiscard]] Errc settings(Settings& settings) const noexcept {
    Control word;
    Record record;
    Work work = budget();
    if (!load(word, record, word::probe_ids, work)) return Errc::corrupt;
    settings = record.settings;
    return Errc::ok;
  }

  /// State and, of Open, what is left of the cooldown. Changes nothing; `now_us` is called only in Open.
  template <class NowUs>
  [[nodiscard]] Errc peek(NowUs now_us, CircuitState& state, rules::Tick& cooldown_left) const noexcept {
    state = CircuitState::closed;
    cooldown_left = 0;
    Control word = control();
    if (word.plainly_closed()) return Errc::ok;
    Record record;
    Work work = budget();
    if (!load(word, record, word::probe_ids, work)) return Errc::corrupt;
    state = record.breaker.state = word.state();
    if (state == CircuitState::open) {
      const rules::Tick now = rules::not_before(record.breaker, tick(now_us()));
      cooldown_left = std::max<rules::Tick>(0, rules::cooldown_end(record.breaker, record.settings) - now);
    }
    return Errc::ok;
  }

  /// Exact where nothing runs beside it; else a mixture of moments during the call, never a torn record. Only reads.
  /// `max_rounds`: a copy of a segment that stands still does not get better by looking again.
  [[nodiscard]] Errc snapshot(CellState& state, std::uint32_t max_rounds = ~0U) const noexcept {
    Work work = budget();
    std::uint32_t vain = 0;
    Position seen_hint = 0;
    Control seen_word{};
    for (std::uint32_t round = 0; round < max_rounds && work.charge(); ++round) {
      Control word;
      Record record;
      if (!load(word, record, word::probe_ids, work)) return Errc::corrupt;
      record.breaker.state = word.state();
      // One look for each record: the window that an older one names may have been written over for good.
      if (state_of(record, state, work)) return Errc::ok;
      const Position hint = ring_.hint();
      vain = hint == seen_hint && word == seen_word ? vain + 1 : 0;
      if (vain == kMaxVain) break;
      seen_hint = hint;
      seen_word = word;
    }
    return Errc::corrupt;
  }

  /// A consistent copy of the control word and the record it names, for display and tests; false: corrupt.
  [[nodiscard]] bool load(Control& word, Record& record) const noexcept {
    Work work = budget();
    return load(word, record, word::end, work);
  }

 private:
  static constexpr Bits kVersionReserve = kMaxProbes;
  static constexpr std::uint32_t kMaxLooks = 1'000;  // arbitrary: at a window that others are appending to

  [[nodiscard]] Work budget() const noexcept { return Work::on_ring(ring_.capacity()); }

  [[nodiscard]] static rules::Tick tick(Bits time_us) noexcept { return static_cast<rules::Tick>(time_us / 1'000); }
  [[nodiscard]] static Bits micros(rules::Tick tick) noexcept { return static_cast<Bits>(tick) * 1'000; }

  [[nodiscard]] Control control() const noexcept {
    return {Env::load(cells_->control, Env::acquire)};  // sync: control (acquire): the record that the word names
  }

  /// Copies the words up to `last` (opening_end, state_end, probe_ids or end), together with a control word that named
  /// them all the while.
  [[nodiscard]] bool load(Control& word, Record& record, std::size_t last, Work& work) const noexcept {
    RecordPool<Env> pool(*view_, *presence_);
    while (work.charge(last)) {
      word = control();
      if (!word.valid() || view_->record(word.record()) == nullptr) return false;
      RecordWords words{};
      pool.copy(word.record(), words, last);
      // relaxed: the acquire loads of the words before it (sync: record-words) keep it behind them
      if (Env::load(cells_->control, Env::relaxed) != word.bits) continue;
      if (!decode_opening(words, record)) return false;
      if (last > word::opening_end && !decode_state(words, record)) return false;
      if (last > word::state_end && (!decode_settings(words, record.settings) || !ring_.fits(record.settings.window)))
        return false;
      if (last == word::end) decode_probes(words, record);
      return true;
    }
    return false;
  }

  // ---- admit
  // -------------------------------------------------------------------------------------------------------------

  /// Open, and the cooldown is not over: the first words decide, the whole record is not needed.
  [[nodiscard]] bool turned_away_early(Bits now_us, CellAdmit& result, Work& work) const noexcept {
    Control word;
    Record record;
    if (!load(word, record, word::opening_end, work) || word.state() != CircuitState::open) return false;
    record.breaker.state = CircuitState::open;
    if (tick(now_us) >= rules::cooldown_end(record.breaker, record.settings)) return false;
    const rules::AdmitDecision decision = rules::admit(record.breaker, record.settings, tick(now_us), {});
    count_rejection(record.rejected_generation);
    result = {.admission = Admission::rejected,
              .state = CircuitState::open,
              .retry_at = decision.retry_at,
              .retry_after = decision.retry_after};
    return true;
  }

  /// The identities a probe gets: the change by which it is admitted.
  [[nodiscard]] static rules::ProbeIds ids_after(Control word) noexcept {
    return {.on_transition = word.next(CircuitState::half_open, true, 0).change_id(),
            .within_generation = word.next(CircuitState::half_open, false, 0).change_id()};
  }

  /// One more rejection in the outage that began at `generation`. If the breaker has recovered since, the outage's
  /// number is gone from the words already and the rejection goes with it, as if it had come first.
  void count_rejection(Bits generation) const noexcept {
    auto& lane = cells_->lanes[presence_->lane(kLanes)].rejected;
    for (Work few; few.charge();) {
      const Rejected seen{Env::load(lane, Env::relaxed)};  // relaxed here and below: the word stands for itself
      if (seen.later_than(generation) || seen.count() == Rejected::kMaxCount) return;
      const Bits count = seen.reset_generation() == generation ? seen.count() + 1 : 1;
      if (Env::cas(lane, seen.bits, Rejected::make(generation, count).bits, Env::relaxed)) return;
    }
  }

  [[nodiscard]] std::uint64_t rejections(Bits generation) const noexcept {
    std::uint64_t sum = 0;
    for (const auto& lane : cells_->lanes) {
      const Rejected seen{Env::load(lane.rejected, Env::relaxed)};  // relaxed: a sum of moments anyway
      if (seen.reset_generation() == generation) sum += seen.count();
    }
    return sum;
  }

  // ---- changing the record
  // -----------------------------------------------------------------------------------------------

  /// Applies `decide` to a consistent copy of the record and publishes what it changed; anew, if the breaker has moved
  /// on meanwhile.
  template <class Decide>
  [[nodiscard]] CellRecord change(Decide decide) const noexcept {
    for (Work work = budget(); work.charge();) {
      CellRecord result;
      Control word;
      Record record;
      if (!load(word, record, word::end, work)) break;
      record.breaker.state = word.state();
      const rules::Effects effects = decide(word, record, result.status);
      if (effects.change == rules::Change::nothing) return result;
      const bool done = commit(word, record, effects, work, result.error, result.transition);
      if (done || result.error != Errc::ok) return result;
    }
    return {.error = Errc::corrupt};
  }

  /// Publishes `record`, which a rule has changed, as the successor of `word`. False: the breaker had moved on (decide
  /// again), or `error` is set.
  [[nodiscard]] bool commit(Control word, Record& record, const rules::Effects& effects, Work& work, Errc& error,
                            std::optional<CellTransition>& transition) const noexcept {
    const bool moves = effects.change == rules::Change::transition;
    const CircuitState to = record.breaker.state;
    if (!moves && word.version_exhausted()) {
      error = Errc::version_exhausted;
      return false;
    }
    const Bits generation = word.next(to, moves, 0).generation();
    if (effects.resets_rejected) record.rejected_generation = generation;
    if (effects.empties_window) {
      record.window_generation = generation;
      record.window_end = 0;
      if (!ring_.touch_tail(work, record.window_begin)) {
        error = Errc::corrupt;
        return false;
      }
    }
    JournalEntry entry;
    if (moves) entry = journal_entry(word, record, effects);
    if (!RecordPool<Env>(*view_, *presence_).publish(cells_->control, word, index_, to, moves, record, error))
      return false;
    if (moves) Journal<Env>(*view_, *presence_).write(entry);
    if (effects.reason != TransitionReason::none) {
      transition.emplace(CellTransition{.reason = effects.reason, .from = effects.from, .at = effects.at});
      // Counts that cannot be had stay zero (the others may have moved on and written over the window that our record
      // names); the transition is reported all the same.
      for (Work looks(kMaxLooks); looks.charge() && work.charge();) {
        if (state_of(record, transition->after, work) || control().generation() != generation) break;
      }
    }
    return true;
  }

  /// What the journal will say of the change that is about to be published: a transition, or a forced state, also one
  /// that was in effect already. Counts it in the record.
  [[nodiscard]] JournalEntry journal_entry(Control word, Record& record, const rules::Effects& effects) const noexcept {
    const CircuitState to = record.breaker.state;
    const TransitionReason reason = effects.reason != TransitionReason::none ? effects.reason : forced_reason(to);
    return {.kind = reason == forced_reason(to) ? EventKind::forced : EventKind::transition,
            .from = effects.from,
            .to = to,
            .reason = static_cast<std::uint8_t>(reason),
            .breaker = index_,
            // relaxed: a place that is given to another name meanwhile has another control word too, and the swap fails
            .incarnation = static_cast<std::uint32_t>(Env::load(cells_->incarnation, Env::relaxed)),
            .number = ++record.journaled,
            .change = word.next(to, true, 0).change_id(),
            .at = effects.at};
  }

  [[nodiscard]] static constexpr TransitionReason forced_reason(CircuitState to) noexcept {
    switch (to) {
      case CircuitState::closed: return TransitionReason::forced_closed;
      case CircuitState::open: return TransitionReason::forced_open;
      case CircuitState::half_open: break;
    }
    return TransitionReason::forced_half_open;
  }

  // ---- the window
  // --------------------------------------------------------------------------------------------------------

  /// What a failure is decided under: the settings, the word that named them, and the count by them. A success needs
  /// none of it.
  struct Verdict {
    Control word{};
    Record record{};
    FailureCount<Env> count{};
  };
  struct NoVerdict {};

  /// What one record carries from round to round: where it looks and what it found.
  template <bool kFailure>
  struct Attempt {
    Bits generation = 0;
    Bits now_us = 0;
    Position from = 0;
    std::uint32_t vain = 0;  ///< looks from a hint that has not moved since
    typename Ring<Env>::Tail tail{};
    Bits time_us = 0;
    bool trip = false;
    Work work;
    [[no_unique_address]] std::conditional_t<kFailure, Verdict, NoVerdict> verdict{};
    CellRecord result{};
  };

  enum class Next : std::uint8_t { go_on, look_again, done };

  /// An outcome of the Closed period `generation` enters the ring, and a failure that fills the window opens the
  /// breaker: whether it does is decided by, and part of, the swap of its slot. (docs/design.md numbers the steps.)
  template <bool kFailure>
  [[nodiscard]] CellRecord append(Bits generation, Bits now_us, SearchStart& start) const noexcept {
    Attempt<kFailure> attempt{.generation = generation, .now_us = std::min(now_us, Entry::kMaxTime), .work = budget()};
    if constexpr (kFailure) {
      if (begin_count(attempt) == Next::done) return attempt.result;
    }
    attempt.from = start.get() != 0 ? start.get() : ring_.hint();
    for (; attempt.work.charge();) {
      Next next = reach_tail(attempt);
      if (next == Next::go_on) next = check_period(attempt);
      if (next == Next::go_on) next = follow_predecessor(attempt);
      if constexpr (kFailure) {
        if (next == Next::go_on) next = judge(attempt);
      }
      if (next == Next::done) return attempt.result;
      if (next == Next::look_again) continue;
      const Position position = attempt.tail.position;
      const Entry entry = Entry::make(ring_.lap_of(position), generation, kFailure, attempt.trip, attempt.time_us);
      if (!ring_.append(attempt.tail, entry)) continue;  // step 8
      start.set(position + 1);
      attempt.result.status = RecordStatus::counted;
      if constexpr (kFailure) {
        if (attempt.trip) trip_own(attempt);
      }
      return attempt.result;
    }
    return {.error = Errc::corrupt};
  }

  /// Steps 1 to 3.
  template <bool kFailure>
  [[nodiscard]] Next reach_tail(Attempt<kFailure>& attempt) const noexcept {
    if (!ring_.find_tail(attempt.from, attempt.tail) || !ring_.raise_hint(attempt.tail.position)) {
      return from_hint(attempt);
    }
    attempt.from = attempt.tail.position;
    return Next::go_on;
  }

  template <bool kFailure>
  [[nodiscard]] Next from_hint(Attempt<kFailure>& attempt) const noexcept {
    const Position hint = ring_.hint();
    if (hint == attempt.from && ++attempt.vain == kMaxVain) return fail(attempt, Errc::corrupt);
    attempt.from = hint;
    return Next::look_again;
  }

  template <bool kFailure>
  [[nodiscard]] static Next fail(Attempt<kFailure>& attempt, Errc error) noexcept {
    attempt.result.error = error;
    return Next::done;
  }

  /// Step 4: after the predecessor was read and before the swap, in every round. A failure compares the whole word:
  /// other settings perhaps, or a sibling's verdict, and it counts again under what holds now.
  template <bool kFailure>
  [[nodiscard]] Next check_period(Attempt<kFailure>& attempt) const noexcept {
    // relaxed: the acquire load of the predecessor comes before it (sync: ring), so with an entry of a later period in
    // sight this is not the word of the earlier one
    const Control word{Env::load(cells_->control, Env::relaxed)};
    if (!word.in_closed_period(attempt.generation)) return Next::done;  // stale
    if constexpr (kFailure) {
      if (word != attempt.verdict.word) return begin_count(attempt) == Next::done ? Next::done : Next::look_again;
    }
    return Next::go_on;
  }

  /// Step 5: completes the trip of a flagged predecessor; the time is not before the predecessor's, nor before the
  /// opening that preceded the period.
  template <bool kFailure>
  [[nodiscard]] Next follow_predecessor(Attempt<kFailure>& attempt) const noexcept {
    const Entry previous = attempt.tail.previous;
    attempt.time_us = attempt.now_us;
    if (previous.generation() != Entry::generation_tag(attempt.generation)) {
      return not_before_opening(attempt);
    }
    if (previous.trip()) {
      const Next next = finish_pending_trip(attempt);
      if (next != Next::go_on) return next;
    }
    const Bits least = previous.time_us() + (ring_.lap_tag_wraps(attempt.tail.position) ? 1 : 0);
    attempt.time_us = std::max(attempt.time_us, std::min(least, Entry::kMaxTime));
    return Next::go_on;
  }

  template <bool kFailure>
  [[nodiscard]] Next not_before_opening(Attempt<kFailure>& attempt) const noexcept {
    rules::Tick opened_at = rules::kNever;
    if constexpr (kFailure) {
      opened_at = attempt.verdict.record.breaker.opened_at;
    } else {
      Control word;
      Record record;
      if (!load(word, record, word::state_end, attempt.work)) return fail(attempt, Errc::corrupt);
      if (!word.in_closed_period(attempt.generation)) return Next::done;  // stale
      opened_at = record.breaker.opened_at;
    }
    if (opened_at != rules::kNever) {
      attempt.time_us = std::max(attempt.time_us, std::min(micros(opened_at), Entry::kMaxTime));
    }
    return Next::go_on;
  }

  /// Steps 6 and 7: counts what is before the position. Then the hint once more: a position of some laps ago would have
  /// counted by a window that began after it. Where others have just passed the position, the count goes on from there.
  [[nodiscard]] Next judge(Attempt<true>& attempt) const noexcept {
    Verdict& verdict = attempt.verdict;
    const Position position = attempt.tail.position;
    const bool counted = verdict.count.count_before(position, attempt.time_us, attempt.work);
    if (!counted || !ring_.near_hint(position)) {
      if (!counted || !ring_.passed(position)) verdict.count.restart();
      return from_hint(attempt);
    }
    attempt.trip = rules::trips(verdict.record.settings, verdict.count.failures());
    return Next::go_on;
  }

  [[nodiscard]] Next begin_count(Attempt<true>& attempt) const noexcept {
    Verdict& verdict = attempt.verdict;
    if (!load(verdict.word, verdict.record, word::probe_ids, attempt.work)) return fail(attempt, Errc::corrupt);
    const Settings& settings = verdict.record.settings;
    verdict.count = {ring_, attempt.generation, settings.window - 1, settings.within_ms, verdict.record.window_begin};
    return Next::go_on;
  }

  /// The entry before ours says that it filled the window, and the breaker is still Closed: whoever wrote it has not
  /// got further, or is dead. Its opening comes first, and our outcome is stale. go_on: the flag is of an old period
  /// whose tag has come round.
  template <bool kFailure>
  [[nodiscard]] Next finish_pending_trip(Attempt<kFailure>& attempt) const noexcept {
    const Position flagged = attempt.tail.position - 1;
    Control word;
    Record record;
    if (!load(word, record, word::state_end, attempt.work)) return fail(attempt, Errc::corrupt);
    if (!word.in_closed_period(attempt.generation)) return Next::done;
    if (!ring_.near_hint(flagged + 1)) return from_hint(attempt);
    if (flagged < record.window_begin) return Next::go_on;
    (void)finish_trip(attempt.generation, flagged, attempt.tail.previous.time_us(), attempt.result);
    return Next::done;
  }

  /// Our entry filled the window. Stale if something else ended the period before the opening was committed.
  template <bool kFailure>
  void trip_own(Attempt<kFailure>& attempt) const noexcept {
    const Position position = attempt.tail.position;
    const bool opened = finish_trip(attempt.generation, position, attempt.time_us, attempt.result);
    if (!opened && !ended_by(attempt.generation, position)) attempt.result.status = RecordStatus::stale;
  }

  /// Opens the breaker because the entry at `position` filled the window of the period; false: the period is over
  /// already, or an error is set.
  bool finish_trip(Bits generation, Position position, Bits time_us, CellRecord& result) const noexcept {
    const CellRecord trip = change([=](Control word, Record& record, RecordStatus& status) {
      if (!word.in_closed_period(generation)) return rules::Effects{};
      status = RecordStatus::counted;
      record.window_end = position;
      return rules::trip(record.breaker, tick(time_us));
    });
    result.error = trip.error;
    result.transition = trip.transition;
    return trip.error == Errc::ok && trip.status == RecordStatus::counted;
  }

  /// Whether the flagged entry at `position` was what ended the period, as far as can still be told. A window that
  /// began right after it was begun by a forced state, which came first. Where the breaker has moved on further, its
  /// record does not say, and the likely answer is given.
  [[nodiscard]] bool ended_by(Bits generation, Position position) const noexcept {
    Control word;
    Record record;
    Work work = budget();
    if (!load(word, record, word::state_end, work)) return true;
    if (record.window_generation == generation) return record.window_end == position;
    return record.window_generation != ((generation + 1) & low_bits(Env::Widths::generation));
  }

  /// One look. False: the window did not stand still, or is one that `record`, being old, names for nothing.
  [[nodiscard]] bool state_of(const Record& record, CellState& state, Work& work) const noexcept {
    state = {.state = record.breaker.state,
             .opened_at = record.breaker.opened_at,
             .rejected = rejections(record.rejected_generation)};
    if (state.state == CircuitState::half_open) {
      state.successes = record.breaker.probe_successes;
      return true;
    }
    FailureCount<Env> count;
    if (!count_window(record, count, work)) return false;
    state.failures = count.failures();
    state.successes = count.entries() - count.failures();
    return true;
  }

  /// Counts what the window of `record` holds; false as above.
  [[nodiscard]] bool count_window(const Record& record, FailureCount<Env>& count, Work& work) const noexcept {
    Position end = record.window_end + 1;
    if (record.window_end == 0) {
      typename Ring<Env>::Tail tail;
      if (!ring_.locate_tail(tail)) return false;
      end = tail.position;
      // A flagged entry that did not end its period has not taken effect (yet, or because something else ended it
      // first).
      if (end > record.window_begin && tail.previous.trip() && of_window(record, tail.previous)) --end;
    }
    const Entry newest = ring_.at(end - 1);
    if (end > record.window_begin && !ring_.holds(end - 1, newest)) return false;
    const Settings& settings = record.settings;
    count = {ring_, record.window_generation, settings.window, settings.within_ms, record.window_begin};
    return count.count_before(end, newest.time_us(), work);
  }

  [[nodiscard]] static bool of_window(const Record& record, Entry entry) noexcept {
    return entry.generation() == Entry::generation_tag(record.window_generation);
  }

  BreakerCells<Env>* cells_ = nullptr;
  std::uint32_t index_ = 0;
  Ring<Env> ring_{};
  const SegmentView<Env>* view_ = nullptr;
  Presence* presence_ = nullptr;
};

}  // namespace shmcb::core
