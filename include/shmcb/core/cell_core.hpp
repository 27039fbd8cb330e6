// SPDX-License-Identifier: BSD-3-Clause
// What every operation on a breaker of a segment is made of: a consistent copy of the record that the control word
// names, the publication of a changed one, the count of a window, and the counters beside it. docs/design.md argues
// each step, docs/memory-model.md each order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "shmcb/core/journal.hpp"
#include "shmcb/core/record_pool.hpp"
#include "shmcb/core/ring.hpp"
#include "shmcb/core/rules.hpp"

namespace shmcb::core {

/// A breaker's state in ticks since the segment's epoch.
struct CellState {
  CircuitState state = CircuitState::closed;
  Mode mode = Mode::automatic;
  bool ramping = false;
  rules::Tick opened_at = rules::kNever;
  std::uint64_t successes = 0;
  std::uint64_t failures = 0;
  std::uint64_t slow = 0;
  std::uint64_t rejected = 0;
  bool successes_at_least = false;
};

/// A transition that an operation committed.
struct CellTransition {
  TransitionReason reason = TransitionReason::none;
  CircuitState from = CircuitState::closed;
  rules::Tick at = 0;
  CellState after{};
};

struct CellRecord {
  Errc error = Errc::ok;
  RecordStatus status = RecordStatus::stale;
  bool in_ring = false;  ///< it has a slot, and so is among the counted whatever `status` says
  std::optional<CellTransition> transition{};
};

/// A handle without state of its own: copies and other processes act on the same breaker.
template <class Env>
class CellCore {
 public:
  using Control = ControlWord<typename Env::Widths>;
  using Entry = Slot<typename Env::Widths>;
  using Rejected = RejectedWord<typename Env::Widths>;
  using Position = typename Ring<Env>::Position;
  using Word = typename Env::Word;

  CellCore() = default;
  /// `cells` and `slots` belong to breaker `index` of the view and were checked.
  CellCore(const SegmentView<Env>& view, Presence& presence, std::uint32_t index, BreakerCells<Env>& cells, Word* slots,
           std::uint32_t capacity) noexcept
      : cells_(&cells), index_(index), ring_(slots, capacity, &cells.hint), view_(&view), presence_(&presence) {}

  [[nodiscard]] std::uint32_t index() const noexcept { return index_; }
  [[nodiscard]] const Ring<Env>& ring() const noexcept { return ring_; }
  [[nodiscard]] Presence& presence() const noexcept { return *presence_; }
  [[nodiscard]] Work budget() const noexcept { return Work::on_ring(ring_.capacity()); }

  [[nodiscard]] static rules::Tick tick(Bits time_us) noexcept { return static_cast<rules::Tick>(time_us / 1'000); }
  [[nodiscard]] static Bits micros(rules::Tick tick) noexcept { return static_cast<Bits>(tick) * 1'000; }

  // ---- the record
  // --------------------------------------------------------------------------------------------------------

  [[nodiscard]] Control control() const noexcept {
    return {Env::load(cells_->control, Env::acquire)};  // sync: control (acquire): the record that the word names
  }
  /// Relaxed: for who has acquired what it goes by otherwise.
  [[nodiscard]] Control control_relaxed() const noexcept { return {Env::load(cells_->control, Env::relaxed)}; }

  // ---- lives
  // --------------------------------------------------------------------------------------------------------

  /// From now on for one life of the place only: whatever would act on another one answers `corrupt`, and `gone` says
  /// why. For breakers of groups, whose places are recycled.
  void bind(Bits incarnation) noexcept { incarnation_ = incarnation; }
  [[nodiscard]] Bits incarnation() const noexcept { return incarnation_; }

  /// Whether this is another life of the place. Asked AFTER an acquire load of the control word: a later life's word
  /// brings its incarnation with it (sync: control), so that one seen with our incarnation is our life's.
  [[nodiscard]] bool elsewhere() const noexcept {
    return incarnation_ != kAnyLife && Env::load(cells_->incarnation, Env::relaxed) != incarnation_;
  }
  /// Whether the life that this handle is bound to is over: the name has to be looked up again.
  [[nodiscard]] bool gone() const noexcept { return control().gone() || elsewhere(); }

  /// The breaker is in use: who was about to recycle it loses its next swap. A lost one means that another has done it.
  void take_back(Control retiring) const noexcept {
    Env::cas(cells_->control, retiring.bits, retiring.taken_back().bits, Env::acq_rel);  // sync: control
  }

  /// Whether the breaker is one that may be recycled: Closed, automatic, no probe out whose time is not over, nothing
  /// that counts and no memory of outages at `now`, its last outcome or change of its state at least `idle_after_ms`
  /// ago. `word` and `tail` say as of when. Changes nothing.
  [[nodiscard]] bool idle(rules::Tick now, std::int64_t idle_after_ms, Control& word, Position& tail) const noexcept {
    Record record;
    Work work = budget();
    if (!look(word, record, word::end, work) || !word.closed() || !versions_left(word)) return false;
    while (rules::settle(record.breaker, record.settings, now).change != rules::Change::nothing) {
      // What is over by time alone does not keep the place: nobody may come to write it down.
    }
    if (record.breaker.mode != Mode::automatic || record.breaker.ramping) return false;
    if (rules::remembers_outages(record.breaker, record.settings, now)) return false;
    typename Ring<Env>::Tail found;
    if (rules::awaits_probes(record.breaker, record.settings, now) || !ring_.locate_tail(found)) return false;
    tail = found.position;
    rules::Tick last = record.breaker.since;
    if (tail > record.window_begin && of_window(record, found.previous)) {
      last = std::max(last, tick(found.previous.time_us()));
      if (found.previous.trip() || last >= now - record.settings.within_ms) return false;
    }
    return now - last >= idle_after_ms;
  }

  /// Ends the life of a breaker that was found `idle` as of `word` and `tail`; for the owner of its place. False:
  /// somebody has used it since, and it lives on. (docs/design.md, "Recycling")
  [[nodiscard]] bool retire(Control word, Position tail) const noexcept {
    const Control retiring = word.retired();
    if (!Env::cas(cells_->control, word.bits, retiring.bits, Env::acq_rel)) return false;  // sync: control
    Work work = budget();
    Position touched = 0;
    // The touch BEFORE the second swap: whoever had read the free slot loses its append, and meets the retiring word.
    if (ring_.touch_tail(work, touched) && touched == tail &&
        Env::cas(cells_->control, retiring.bits, retiring.left().bits, Env::acq_rel)) {  // sync: control
      return true;
    }
    take_back(retiring);
    return false;
  }

  /// Copies the words up to `last` (state_end, settings_end or end), together with a control word that named them all
  /// the while. For who uses the breaker: a retiring one is taken back.
  [[nodiscard]] bool load(Control& word, Record& record, std::size_t last, Work& work) const noexcept {
    return read(word, record, last, work, Retiring::taken_back);
  }
  /// The same for who only looks: changes nothing. The word may be a retiring one; the record says what the breaker is.
  [[nodiscard]] bool look(Control& word, Record& record, std::size_t last, Work& work) const noexcept {
    return read(word, record, last, work, Retiring::left_alone);
  }
  /// What an outcome is judged by, for who uses the breaker.
  [[nodiscard]] bool load(Control& word, Judging& judging, Work& work) const noexcept {
    RecordWords words;  // NOLINT(cppcoreguidelines-pro-type-member-init): as in read()
    if (!copy(word, words, word::judging_end, work, Retiring::taken_back)) return false;
    judging.mode = word.mode();
    return decode_judging(words, judging) && ring_.fits(judging.settings.window);
  }
  /// What turns a call away, of the record that `named` names; false: the breaker has moved on, or corrupt.
  [[nodiscard, gnu::always_inline]] bool look(Control named, Opening& opening) const noexcept {
    const RecordCell<Env>* const cell = view_->record(named.record());
    if (cell == nullptr) return false;
    opening = Opening::of(Env::load(cell->words[word::opened_at], Env::acquire),  // sync: record-words, all three
                          Env::load(cell->words[word::counts], Env::acquire),
                          Env::load(cell->words[word::open_until], Env::acquire));
    return control_relaxed() == named && opening.valid();  // relaxed: as in copy()
  }
  /// The rule that a failure of that Closed period is judged by; false: it takes more to judge it, or corrupt.
  [[nodiscard, gnu::always_inline]] bool look_plainly(Bits period, RatioRule& rule) const noexcept {
    const Control named = control();
    if (!named.plainly_in_period(period)) return false;
    const RecordCell<Env>* const cell = view_->record(named.record());
    if (cell == nullptr) return false;
    rule = RatioRule::of(Env::load(cell->words[word::window_begin], Env::acquire),  // sync: record-words, all four
                         Env::load(cell->words[word::ratio], Env::acquire),
                         Env::load(cell->words[word::within], Env::acquire),
                         Env::load(cell->words[word::consecutive], Env::acquire));
    return control_relaxed() == named && rule.valid();  // relaxed: as in copy()
  }

  /// Applies `decide` to a consistent copy of the record and publishes what it changed; anew, if the breaker has moved
  /// on meanwhile.
  template <class Decide>
  [[nodiscard]] CellRecord change(Decide decide, const NoteText& note = {}) const noexcept {
    for (Work work = budget(); work.charge();) {
      CellRecord result;
      Control word;
      Record record;
      if (!load(word, record, word::end, work)) break;
      const rules::Effects effects = decide(word, record, result.status);
      if (effects.change == rules::Change::nothing) return result;
      const bool done = commit(word, record, effects, work, result.error, result.transition, note);
      if (done || result.error != Errc::ok) return result;
    }
    return {.error = Errc::corrupt};
  }

  /// Publishes `record`, which a rule has changed, as the successor of `word`, and tells the journal. False: the
  /// breaker had moved on (decide again), or `error` is set.
  [[nodiscard]] bool commit(Control word, Record& record, const rules::Effects& effects, Work& work, Errc& error,
                            std::optional<CellTransition>& transition, const NoteText& note = {}) const noexcept {
    // Where the versions of a Closed period run out, a change begins a new one. The last are kept for the verdicts of
    // siblings, which must not.
    const bool verdict = effects.event == EventKind::none;
    const bool ends = effects.change == rules::Change::transition;
    const bool renews = !ends && word.version_exhausted(verdict ? 0 : kVersionReserve);
    const bool moves = ends || renews;
    const Control next = word.next(marks_of(record), moves, 0);
    if (effects.resets_rejected) record.rejected_generation = next.generation();
    if (effects.empties_window || renews) {
      record.window_generation = next.generation();
      record.window_end = 0;
      record.leaves_out = record.left_out = record.settings.lean;
      if (!ring_.touch_tail(work, record.window_begin)) {
        error = Errc::corrupt;
        return false;
      }
    }
    JournalEntry entry;
    if (!verdict) {
      ++record.journaled;
      entry = entry_of(word, next, record, effects, note);  // before the swap: the place may be given away after it
    }
    if (!RecordPool<Env>(*view_, *presence_).publish(cells_->control, word, index_, moves, record, error)) return false;
    if (!verdict) Journal<Env>(*view_, *presence_).write(entry);
    if (effects.reason != TransitionReason::none) {
      transition.emplace(CellTransition{.reason = effects.reason, .from = effects.from, .at = effects.at});
      // Counts that cannot be had stay zero (the others may have moved on and written over the window that our record
      // names); the transition is reported all the same.
      for (Work looks(kMaxLooks); looks.charge() && work.charge();) {
        if (state_of(record, transition->after, work) || control().generation() != next.generation()) break;
      }
    }
    return true;
  }

  /// Whether so many changes of this Closed period are left to those who need them.
  [[nodiscard]] static bool versions_left(Control word) noexcept { return !word.version_exhausted(kVersionReserve); }

  // ---- the window
  // --------------------------------------------------------------------------------------------------------

  /// One look. False: the window did not stand still, or is one that `record`, being old, names for nothing.
  [[nodiscard]] bool state_of(const Record& record, CellState& state, Work& work) const noexcept {
    const rules::Breaker& breaker = record.breaker;
    state = {.state = breaker.state,
             .mode = breaker.mode,
             .ramping = breaker.ramping,
             .opened_at = breaker.opened_at,
             .rejected = rejections(record.rejected_generation),
             .successes_at_least = record.left_out && breaker.state != CircuitState::half_open};
    if (state.state == CircuitState::half_open) {
      state.successes = breaker.probe_successes;
      return true;
    }
    WindowCount<Env> count;
    if (!count_window(record, count, work)) return false;
    const rules::WindowCounts counts = count.counts();
    state.failures = counts.failures;
    // What the ring still has is of an earlier time than the newest outcome, which it may not have.
    state.successes = record.leaves_out && !records_all() ? 0 : counts.entries - counts.failures;
    state.slow = counts.slow;
    return true;
  }

  /// Counts what the window of `record` holds; false as above.
  [[nodiscard]] bool count_window(const Record& record, WindowCount<Env>& count, Work& work) const noexcept {
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
    count = {ring_, record.window_generation, settings.window, settings.within_ms, record.window_begin, true};
    return count.count_before(end, newest.time_us(), work);
  }

  /// Outcomes that entered the ring since the breaker came into being.
  [[nodiscard]] std::uint64_t outcomes_before(Position tail) const noexcept {
    return tail - Env::load(cells_->first, Env::relaxed);  // relaxed: written before the control word that was acquired
  }

  // ---- lean accounting
  // ------------------------------------------------------------------------------------------------------------------

  /// Whether a success of that period may be left out: the breaker is in it, and no failure stands in the newest
  /// entries of the ring, or is about to. (docs/design.md, "Lean accounting")
  [[nodiscard, gnu::always_inline]] bool leaves_out_success(Bits period) const noexcept {
    // sync: control (acquire): BEFORE hint and mark, so that with lean settings set meanwhile comes the mark that was
    // raised for what had been recorded under exact ones
    const Control word = control();
    if (!word.leaves_out_in_period(period)) return false;
    // sync: hint (acquire): with it comes every mark that a failure before it has raised. So it is read BEFORE the mark
    const Position hint = Env::load(cells_->hint, Env::acquire);
    // acquire: not later than the control word, which says what the breaker was when no failure was near
    if (Env::load(cells_->lean_mark, Env::acquire) > hint) return false;
    // relaxed: behind the acquire loads. The same word: under exact settings in between failures raise no mark
    return control_relaxed() == word;
  }

  /// Whether every outcome is recorded just now, because a failure is near. For who has located the tail: with it come
  /// the marks of the failures before it.
  [[nodiscard]] bool records_all() const noexcept {
    return Env::load(cells_->lean_mark, Env::relaxed) > ring_.hint();  // relaxed: behind the acquire loads of the tail
  }

  /// Has every outcome recorded up to `end`. False: no progress (corrupt).
  [[nodiscard]] bool record_all_until(Position end, Work& work) const noexcept {
    while (work.charge()) {
      const Position seen = Env::load(cells_->lean_mark, Env::relaxed);  // relaxed: as the swap
      if (seen >= end) return true;
      // relaxed: released by the swap of the failure's slot (sync: ring), and by the hint that is raised behind it
      if (Env::cas(cells_->lean_mark, seen, end, Env::relaxed)) return true;
    }
    return false;
  }

  // ---- counters
  // ----------------------------------------------------------------------------------------------------------

  /// One more in this process's lane. Relaxed: a number for display.
  void count(Word Lane<Env>::*counter, std::uint64_t by = 1) const noexcept {
    Env::fetch_add(cells_->lanes[presence_->lane(kLanes)].*counter, by, Env::relaxed);
  }
  [[nodiscard]] std::uint64_t sum(Word Lane<Env>::*counter) const noexcept {
    std::uint64_t total = 0;
    for (const auto& lane : cells_->lanes)
      total += Env::load(lane.*counter, Env::relaxed);  // relaxed: a sum of moments anyway
    return total;
  }

  /// One more rejection in the outage that began at `generation`. If the breaker has recovered since, the outage's
  /// number is gone from the words already and the rejection goes with it, as if it had come first. The lane's count of
  /// the outage before goes into its sum; who is killed in between takes it along.
  void count_rejection(Bits generation) const noexcept {
    auto& lane = cells_->lanes[presence_->lane(kLanes)];
    for (Work few; few.charge();) {
      const Rejected seen{
          Env::load(lane.rejected, Env::relaxed)};  // relaxed here and below: the word stands for itself
      if (seen.later_than(generation)) return;
      const bool goes_on = seen.reset_generation() == generation;
      if (goes_on && seen.count() == Rejected::kMaxCount) return;
      const Bits count = goes_on ? seen.count() + 1 : 1;
      if (!Env::cas(lane.rejected, seen.bits, Rejected::make(generation, count).bits, Env::relaxed)) continue;
      if (!goes_on && seen.count() != 0) Env::fetch_add(lane.rejected_before, seen.count(), Env::relaxed);
      return;
    }
  }

  /// In the outage that began at `generation`.
  [[nodiscard]] std::uint64_t rejections(Bits generation) const noexcept {
    std::uint64_t total = 0;
    for (const auto& lane : cells_->lanes) {
      const Rejected seen{Env::load(lane.rejected, Env::relaxed)};  // relaxed: a sum of moments anyway
      if (seen.reset_generation() == generation) total += seen.count();
    }
    return total;
  }
  /// Since the breaker came into being.
  [[nodiscard]] std::uint64_t all_rejections() const noexcept {
    std::uint64_t total = sum(&Lane<Env>::rejected_before);
    for (const auto& lane : cells_->lanes)
      total += Rejected{Env::load(lane.rejected, Env::relaxed)}.count();  // relaxed: as above
    return total;
  }

 private:
  enum class Retiring : std::uint8_t { taken_back, left_alone };

  static constexpr Bits kAnyLife = ~Bits{0};
  static constexpr Bits kVersionReserve = kMaxProbes;
  static constexpr std::uint32_t kMaxLooks = 1'000;  // arbitrary: at a window that others are appending to

  /// What the journal is told of the change from `before` to `after`.
  [[nodiscard]] JournalEntry entry_of(Control before, Control after, const Record& record,
                                      const rules::Effects& effects, const NoteText& note) const noexcept {
    JournalEntry entry{.kind = effects.event,
                       .from = effects.from,
                       .to = record.breaker.state,
                       .reason = effects.reason,
                       .mode_from = before.mode(),
                       .mode_to = record.breaker.mode,
                       .breaker = index_,
                       // relaxed: a place that is given to another name meanwhile has another control word too, and the
                       // swap fails
                       .incarnation = static_cast<std::uint32_t>(Env::load(cells_->incarnation, Env::relaxed)),
                       .number = record.journaled,
                       .change = after.change_id(),
                       .at = effects.at,
                       .note = note};
    if (effects.event == EventKind::mode_change && record.breaker.mode_until != rules::kNever) {
      entry.until = record.breaker.mode_until;
    }
    return entry;
  }

  [[nodiscard]] bool read(Control& word, Record& record, std::size_t last, Work& work,
                          Retiring retiring) const noexcept {
    RecordWords
        words;  // NOLINT(cppcoreguidelines-pro-type-member-init): those before `last` are copied, no other is read
    if (!copy(word, words, last, work, retiring)) return false;
    record.breaker.state = word.undecided().state();
    record.breaker.mode = word.mode();
    record.breaker.ramping = word.ramping();
    if (!decode_opening(words, record) || !decode_state(words, record)) return false;
    if (last > word::state_end && (!decode_settings(words, record.settings) || !ring_.fits(record.settings.window)))
      return false;
    if (last == word::end) decode_rest(words, record);
    return true;
  }

  [[nodiscard]] bool copy(Control& word, RecordWords& words, std::size_t last, Work& work,
                          Retiring retiring) const noexcept {
    RecordPool<Env> pool(*view_, *presence_);
    while (work.charge(last)) {
      word = control();
      if (elsewhere() || view_->record(word.record()) == nullptr) return false;
      if (word.retiring() && retiring == Retiring::taken_back) {
        take_back(word);
        continue;
      }
      if (!word.undecided().valid()) return false;
      pool.copy(word.record(), words, last);
      // relaxed: the acquire loads of the words before it (sync: record-words) keep it behind them
      if (control_relaxed() == word) return true;
    }
    return false;
  }

  [[nodiscard]] static bool of_window(const Record& record, Entry entry) noexcept {
    return entry.generation() == Entry::generation_tag(record.window_generation);
  }

  BreakerCells<Env>* cells_ = nullptr;
  std::uint32_t index_ = 0;
  Bits incarnation_ = kAnyLife;
  Ring<Env> ring_{};
  const SegmentView<Env>* view_ = nullptr;
  Presence* presence_ = nullptr;
};

}  // namespace shmcb::core
