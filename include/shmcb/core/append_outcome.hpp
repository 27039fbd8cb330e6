// SPDX-License-Identifier: BSD-3-Clause
// One outcome of a Closed period enters the ring, and if it fills the window it opens the breaker: whether it does is
// decided by, and part of, the swap of its slot. docs/design.md numbers the steps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "shmcb/core/cell_core.hpp"

namespace shmcb::core {

/// A call that was Allowed in the Closed period `period`, and how it went.
struct CompletedCall {
  Bits period = 0;
  std::uint32_t started = 0;  ///< as in its token
  bool failure = false;
  Bits now_us = 0;
};

/// What an outcome that may open the breaker is judged by: the settings, the word that named them, and the count by
/// them. A success that cannot needs none of it.
template <class Env>
struct Judgement {
  ControlWord<typename Env::Widths> word{};
  Judging by{};
  WindowCount<Env> count{};
  TransitionReason trips = TransitionReason::none;
};
struct NoJudgement {};

/// Whether a failure at the tail merely counts, judged by the number of failures alone: steps 4, 6 and 7 of
/// AppendOutcome. False: it opens the breaker, or it takes all of that to tell.
template <class Env>
[[nodiscard, gnu::always_inline]] inline bool opens_nothing(const CellCore<Env>& core, Bits period,
                                                            typename Ring<Env>::Position position,
                                                            Bits time_us) noexcept {
  using Entry = typename Ring<Env>::Entry;
  const Ring<Env>& ring = core.ring();
  RatioRule rule;
  if (!core.look_plainly(period, rule)) return false;  // the control word again, as in AppendOutcome::check_period
  if (position <= rule.window_begin) return false;     // the first of its period: not before the opening
  const std::int64_t oldest_us = (static_cast<std::int64_t>(time_us / 1'000) - rule.within_ms) * 1'000;
  const auto begin = std::max(rule.window_begin, position - std::min<Bits>(ring.capacity() - 1, rule.window - 1));
  // Where the oldest that the window has room for counts, all behind it do.
  const Entry oldest = ring.at(begin);
  if (begin < position && (!ring.holds(begin, oldest) || oldest.generation() != Entry::generation_tag(period) ||
                           static_cast<std::int64_t>(oldest.time_us()) < oldest_us)) {
    return false;
  }
  // relaxed: an entry written over meanwhile moves the tail, and our swap fails
  const std::uint64_t failures = ring.template count_flags<Env::relaxed, false>(begin, position).failures;
  if (!ring.near_hint(position) || failures + 1 >= rule.failures) return false;
  if (!rule.lean) return true;
  Work few(kMaxVain);
  return core.record_all_until(position + ring.capacity(), few);
}

/// An outcome of the Closed period `period` where nothing stands in its way and, of a failure, the number of failures
/// alone may open and this one does not: the steps of AppendOutcome, once, straight through. False: nothing was done,
/// and it takes all of that.
template <class Env, bool kFailure>
[[nodiscard, gnu::always_inline]] inline bool append_plainly(const CellCore<Env>& core, Bits period, Bits now_us,
                                                             LocalNotes& notes) noexcept {
  using Entry = typename Ring<Env>::Entry;
  const Ring<Env>& ring = core.ring();
  typename Ring<Env>::Tail tail;
  if (notes.start() == 0 || !ring.find_tail(notes.start(), tail)) return false;  // steps 1 and 2
  const auto position = tail.position;
  if (position % kHintEvery == 0 && (ring.lap_tag_wraps(position) || !ring.raise_hint(position))) return false;  // 3
  const Entry previous = tail.previous;
  const Bits time_us = std::max(std::min(now_us, Entry::kMaxTime), previous.time_us());
  if constexpr (!kFailure) {
    // relaxed: as in AppendOutcome::check_period
    if (!core.control_relaxed().plainly_in_period(period)) return false;  // 4
  } else {
    if (!opens_nothing(core, period, position, time_us)) return false;  // 4, 6 and 7
  }
  if (previous.generation() != Entry::generation_tag(period) || previous.trip()) return false;  // 5
  const Entry entry = Entry::make(ring.lap_of(position), period, {.failure = kFailure}, time_us);
  if (!ring.append(tail, entry)) return false;  // 8
  notes.start_from(position + 1);
  if constexpr (kFailure) core.count(&Lane<Env>::failures);
  return true;
}

/// One operation on the ring of `core`. `kJudged`: a failure, or a success where the settings let one open the breaker.
/// `Draw` gives the draw for the cooldown, where this outcome opens.
template <class Env, bool kJudged, class Draw>
class AppendOutcome {
 public:
  using Control = ControlWord<typename Env::Widths>;
  using Entry = Slot<typename Env::Widths>;
  using Position = typename Ring<Env>::Position;

  /// The answer goes into `result`, which is fresh. All four outlive this.
  AppendOutcome(const CellCore<Env>& core, const CompletedCall& call, const Draw& draw, CellRecord& result) noexcept
      : core_(core),
        call_(call),
        draw_(draw),
        result_(result),
        now_us_(std::min(call.now_us, Entry::kMaxTime)),
        work_(core.budget()) {}

  /// False: the settings ask for a judgement, which a plain success has not; to be done again with it.
  [[nodiscard]] bool run(LocalNotes& notes) noexcept {
    if constexpr (kJudged) {
      if (begin_count() == Next::done) return true;
    }
    from_ = notes.start() != 0 ? notes.start() : ring().hint();
    for (; work_.charge();) {
      Next next = reach_tail();
      if (next == Next::go_on) next = check_period();
      if (next == Next::go_on) next = follow_predecessor();
      if constexpr (kJudged) {
        if (next == Next::go_on) next = judge();
      }
      if (next == Next::done) return true;
      if (next == Next::needs_judgement) return false;
      if (next == Next::look_again) continue;
      if (!swap_in()) continue;  // step 8
      notes.start_from(tail_.position + 1);
      result_.status = RecordStatus::counted;
      result_.in_ring = true;
      if (call_.failure) core_.count(&Lane<Env>::failures);
      if constexpr (kJudged) {
        if (judgement_.trips != TransitionReason::none) trip_own();
      }
      return true;
    }
    result_.error = Errc::corrupt;
    return true;
  }

 private:
  enum class Next : std::uint8_t { go_on, look_again, needs_judgement, done };

  [[nodiscard]] const Ring<Env>& ring() const noexcept { return core_.ring(); }
  [[nodiscard]] rules::Tick now() const noexcept { return CellCore<Env>::tick(call_.now_us); }

  [[nodiscard]] Next end(RecordStatus status) noexcept {
    result_.status = status;
    return Next::done;
  }
  [[nodiscard]] Next fail(Errc error) noexcept {
    result_.error = error;
    return Next::done;
  }

  /// Steps 1 to 3.
  [[nodiscard]] Next reach_tail() noexcept {
    if (!ring().find_tail(from_, tail_) || !ring().raise_hint(tail_.position)) return from_hint();
    from_ = tail_.position;
    return Next::go_on;
  }

  [[nodiscard]] Next from_hint() noexcept {
    const Position hint = ring().hint();
    if (hint == from_ && ++vain_ == kMaxVain) return fail(Errc::corrupt);
    from_ = hint;
    return Next::look_again;
  }

  /// Step 4: after the predecessor was read and before the swap, in every round. A judged outcome compares the whole
  /// word: other settings perhaps, a mode, a sibling's verdict, and it is judged again under what holds now.
  [[nodiscard]] Next check_period() noexcept {
    // relaxed: the acquire load of the predecessor comes before it (sync: ring), so with an entry of a later period in
    // sight this is not the word of the earlier one
    const Control word = core_.control_relaxed();
    if constexpr (kJudged) {
      if (word == judgement_.word) return Next::go_on;
      return begin_count() == Next::done ? Next::done : Next::look_again;
    } else {
      if (word.counts_successes_of(call_.period)) return Next::go_on;
      if (word.retiring()) {  // not from under an outcome
        core_.take_back(word);
        return Next::look_again;
      }
      return word.in_closed_period(call_.period) ? Next::needs_judgement : end(RecordStatus::stale);
    }
  }

  /// Step 5: completes the trip of a flagged predecessor; the time is not before the predecessor's, nor before the
  /// opening that preceded the period.
  [[nodiscard]] Next follow_predecessor() noexcept {
    const Entry previous = tail_.previous;
    time_us_ = now_us_;
    if (previous.generation() != Entry::generation_tag(call_.period)) return not_before_opening();
    if (previous.trip()) {
      const Next next = finish_pending_trip();
      if (next != Next::go_on) return next;
    }
    const Bits least = previous.time_us() + (ring().lap_tag_wraps(tail_.position) ? 1 : 0);
    time_us_ = std::max(time_us_, std::min(least, Entry::kMaxTime));
    // Also behind an entry of an older period whose tag has come round.
    if constexpr (kJudged) return not_before_opening();
    return Next::go_on;
  }

  [[nodiscard]] Next not_before_opening() noexcept {
    rules::Tick opened_at = rules::kNever;
    if constexpr (kJudged) {
      opened_at = judgement_.by.opened_at;
    } else {
      Control word;
      Record record;
      if (!core_.load(word, record, word::state_end, work_)) return fail(Errc::corrupt);
      if (!word.in_closed_period(call_.period)) return end(RecordStatus::stale);
      opened_at = record.breaker.opened_at;
    }
    if (opened_at != rules::kNever) {
      time_us_ = std::max(time_us_, std::min(CellCore<Env>::micros(opened_at), Entry::kMaxTime));
    }
    return Next::go_on;
  }

  /// Steps 6 and 7: counts what is before the position. Then the hint once more: a position of some laps ago would have
  /// counted by a window that began after it. Where others have just passed the position, the count goes on from there.
  [[nodiscard]] Next judge() noexcept {
    const Position position = tail_.position;
    const bool counted = judgement_.count.count_before(position, time_us_, work_);
    rules::WindowCounts window = judgement_.count.counts(judgement_.by.settings.consecutive_failures);
    if (!counted || !ring().near_hint(position)) {
      if (!counted || !ring().passed(position)) judgement_.count.restart();
      return from_hint();
    }
    window.add_newest(call_.failure, slow());
    const bool moves = mode_now() != Mode::forced_closed;
    judgement_.trips = moves ? rules::opens(judgement_.by.settings, window, call_.failure) : TransitionReason::none;
    // Before the swap: once the failure is there, nobody leaves a success out.
    if (call_.failure && judgement_.by.settings.lean && !core_.record_all_until(position + ring().capacity(), work_)) {
      return fail(Errc::corrupt);
    }
    return Next::go_on;
  }

  /// A judgement under the record of now. Done: the period is over, or nothing is to be counted.
  [[nodiscard]] Next begin_count() noexcept {
    const Judging& by = judgement_.by;
    if (!core_.load(judgement_.word, judgement_.by, work_)) return fail(Errc::corrupt);
    if (!judgement_.word.in_closed_period(call_.period)) return end(RecordStatus::stale);
    if (mode_now() == Mode::disabled) return end(RecordStatus::ignored);
    judgement_.count = {ring(), call_.period, by.settings.window - 1, by.settings.within_ms, by.window_begin, false};
    return Next::go_on;
  }

  [[nodiscard]] Mode mode_now() const noexcept {
    const Judging& by = judgement_.by;
    return rules::mode_at(by.mode, by.mode_until, std::max(now(), by.opened_at));  // as rules::not_before in Closed
  }

  [[nodiscard]] bool slow() const noexcept {
    if constexpr (kJudged) {
      return rules::is_slow(judgement_.by.settings, call_.started, now());
    } else {
      return false;  // where calls are timed, every outcome is judged
    }
  }

  [[nodiscard]] bool swap_in() const noexcept {
    bool trip = false;
    if constexpr (kJudged) trip = judgement_.trips != TransitionReason::none;
    return ring().append(tail_, Entry::make(ring().lap_of(tail_.position), call_.period,
                                            {.failure = call_.failure, .slow = slow(), .trip = trip}, time_us_));
  }

  /// The entry before ours says that it filled the window, and the breaker is still Closed: whoever wrote it has not
  /// got further, or is dead. Its opening comes first, and our outcome is stale. go_on: the flag is of an old period
  /// whose tag has come round.
  [[nodiscard]] Next finish_pending_trip() noexcept {
    const Position flagged = tail_.position - 1;
    Control word;
    Record record;
    if (!core_.load(word, record, word::settings_end, work_)) return fail(Errc::corrupt);
    if (!word.in_closed_period(call_.period)) return end(RecordStatus::stale);
    if (!ring().near_hint(flagged + 1)) return from_hint();
    if (flagged < record.window_begin) return Next::go_on;
    (void)finish_trip(flagged, tail_.previous.time_us(), reason_of(record, flagged));
    return Next::done;
  }

  /// Why the flagged entry opens, found out by whoever completes it: a slot has no room for it. Where the settings have
  /// been replaced since, the answer may be that no rule asks for it; it opens all the same.
  [[nodiscard]] TransitionReason reason_of(const Record& record, Position flagged) noexcept {
    const Entry entry = tail_.previous;
    const Settings& settings = record.settings;
    WindowCount<Env> count{ring(), call_.period, settings.window - 1, settings.within_ms, record.window_begin, true};
    if (count.count_before(flagged, entry.time_us(), work_)) {
      rules::WindowCounts window = count.counts(settings.consecutive_failures);
      window.add_newest(entry.failure(), entry.slow());
      const TransitionReason reason = rules::opens(settings, window, entry.failure());
      if (reason != TransitionReason::none) return reason;
    }
    return TransitionReason::failure_threshold_reached;
  }

  /// Our entry filled the window. Stale if something else ended the period before the opening was committed.
  void trip_own() noexcept {
    const bool opened = finish_trip(tail_.position, time_us_, judgement_.trips);
    if (!opened && !ended_by(tail_.position)) result_.status = RecordStatus::stale;
  }

  /// Opens the breaker because the entry at `position` filled the window of the period; false: the period is over
  /// already, or an error is set.
  bool finish_trip(Position position, Bits time_us, TransitionReason reason) noexcept {
    const CellRecord trip = core_.change([&](Control word, Record& record, RecordStatus& status) {
      if (!word.in_closed_period(call_.period)) return rules::Effects{};
      status = RecordStatus::counted;
      record.window_end = position;
      return rules::trip(record.breaker, record.settings, CellCore<Env>::tick(time_us), reason, draw_());
    });
    result_.error = trip.error;
    result_.transition = trip.transition;
    return trip.error == Errc::ok && trip.status == RecordStatus::counted;
  }

  /// Whether the flagged entry at `position` was what ended the period, as far as can still be told. A window that
  /// began right after it was begun by a forced state, which came first. Where the breaker has moved on further, its
  /// record does not say, and the likely answer is given.
  [[nodiscard]] bool ended_by(Position position) noexcept {
    Control word;
    Record record;
    Work work = core_.budget();
    if (!core_.look(word, record, word::state_end, work)) return true;
    if (record.window_generation == call_.period) return record.window_end == position;
    return record.window_generation != ((call_.period + 1) & low_bits(Env::Widths::generation));
  }

  const CellCore<Env>& core_;
  const CompletedCall& call_;
  const Draw& draw_;
  CellRecord& result_;
  Bits now_us_;
  Position from_ = 0;
  std::uint32_t vain_ = 0;  // looks from a hint that has not moved since
  typename Ring<Env>::Tail tail_{};
  Bits time_us_ = 0;
  Work work_;
  [[no_unique_address]] std::conditional_t<kJudged, Judgement<Env>, NoJudgement> judgement_{};
};

}  // namespace shmcb::core
