// SPDX-License-Identifier: BSD-3-Clause
// The transition rules as pure functions on a small plain value: no clock, no heap, no atomics. The memory storage uses
// them as they are, the shared-memory storage for everything but the window, every test as the reference.
// A tick is one millisecond on the storage's timeline.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "shmcb/config.hpp"
#include "shmcb/types.hpp"

namespace shmcb::rules {

using Tick = std::int64_t;

/// "Never opened and never forced"; of an end: there is none.
inline constexpr Tick kNever = -1;

/// Draws (see random.hpp) are even over [0, kDraws). Small enough that its product with any duration is exact in every
/// storage.
inline constexpr std::uint32_t kDraws = 1'000;

/// The probes that are out. Told apart by identity, never by time. Order means nothing.
struct Probes {
  std::array<std::uint64_t, kMaxProbes> id{};
  std::array<std::uint16_t, kMaxProbes> owner{};  ///< the attached process that holds it (shared memory only)
  std::uint32_t count = 0;

  [[nodiscard]] constexpr bool contains(std::uint64_t probe) const noexcept {
    for (std::uint32_t i = 0; i < count; ++i) {
      if (id[i] == probe) return true;
    }
    return false;
  }
  constexpr void add(std::uint64_t probe, std::uint16_t holder) noexcept {
    id[count] = probe;
    owner[count] = holder;
    ++count;
  }
  constexpr void remove(std::uint64_t probe) noexcept {
    for (std::uint32_t i = 0; i < count; ++i) {
      if (id[i] != probe) continue;
      --count;
      id[i] = id[count];
      owner[i] = owner[count];
      return;
    }
  }
  constexpr void clear() noexcept { count = 0; }
};

/// What a breaker has gone through since it came into being, kept by the transitions themselves.
struct Tally {
  std::uint64_t probes = 0;                                     ///< admitted
  std::uint64_t probe_verdicts = 0;                             ///< successes and failures of live probes
  std::array<std::uint32_t, kTransitionReasons> transitions{};  ///< by TransitionReason
  std::array<Tick, 3> spent{};                                  ///< in each CircuitState, up to the newest transition
};

/// Everything about a breaker that changes rarely: all but the window, the rejections and the numbers of the
/// configuration.
struct Breaker {
  CircuitState state = CircuitState::closed;
  Mode mode = Mode::automatic;
  bool ramping = false;    ///< Closed: a growing share of the calls is admitted
  bool recovered = false;  ///< Closed: by its probes, not by force
  Tick opened_at = kNever;
  Tick open_until = 0;       ///< Open: the end of the cooldown, the same for all processes
  Tick since = kNever;       ///< when the present state began; kNever: not known
  Tick mode_until = kNever;  ///< when `automatic` returns; kNever: not by itself
  Tick lease_at = 0;         ///< HalfOpen: when the one lease for all probes of the period started
  std::uint32_t growth = 0;  ///< steps by which the cooldown has grown
  std::uint32_t probe_successes = 0;
  Probes probes{};
  Tally tally{};
};

/// How far a decision changes the breaker. A transition ends the generation, a change within it does not.
enum class Change : std::uint8_t { nothing, within_generation, transition };

/// What a decision asks its storage to carry out beside storing the changed Breaker.
struct Effects {
  Change change = Change::nothing;
  EventKind event = EventKind::none;                 ///< for the journal
  TransitionReason reason = TransitionReason::none;  ///< none: no transition to report
  CircuitState from = CircuitState::closed;
  Tick at = 0;                   ///< when it occurred
  bool empties_window = false;   ///< a new Closed period begins with an empty window
  bool resets_rejected = false;  ///< `rejected` starts again from zero
};

/// An instant as this breaker counts it: clocks of processes differ a little, so one earlier than what has already been
/// acted on counts as that one.
[[nodiscard]] constexpr Tick not_before(const Breaker& breaker, Tick now) noexcept {
  now = std::max(now, breaker.opened_at);
  return breaker.state == CircuitState::half_open ? std::max(now, breaker.lease_at) : now;
}

/// How long the present state has lasted.
[[nodiscard]] constexpr Tick lasted(const Breaker& breaker, Tick now) noexcept {
  return breaker.since == kNever ? 0 : std::max<Tick>(0, now - breaker.since);
}

// ---- modes
// -------------------------------------------------------------------------------------------------------------

/// The mode as of `now`: an expiry takes effect by itself, and is written down by the next admit. `now` is as the
/// breaker counts it.
[[nodiscard]] constexpr Mode mode_at(Mode mode, Tick until, Tick now) noexcept {
  return until != kNever && now >= until ? Mode::automatic : mode;
}
[[nodiscard]] constexpr Mode mode_at(const Breaker& breaker, Tick now) noexcept {
  return mode_at(breaker.mode, breaker.mode_until, not_before(breaker, now));
}

/// Whether an admit is answered without the clock and without writing: allowed, and nothing will be counted.
[[nodiscard]] constexpr bool stands_aside(const Breaker& breaker) noexcept {
  return breaker.mode == Mode::disabled && breaker.mode_until == kNever;
}

/// Sets a mode; `until` kNever: it stays until another is set.
[[nodiscard]] constexpr Effects set_mode(Breaker& breaker, Tick now, Mode mode, Tick until) noexcept {
  const Tick counted = not_before(breaker, now);
  breaker.mode = mode;
  breaker.mode_until = mode == Mode::automatic || until == kNever ? kNever : until + (counted - now);
  return {.change = Change::within_generation, .event = EventKind::mode_change, .from = breaker.state, .at = counted};
}

/// What is due by time alone: an expired mode, the end of a ramp. One thing at a time; asked before an admit, until
/// nothing is due.
[[nodiscard]] constexpr Effects settle(Breaker& breaker, const Settings& settings, Tick now) noexcept {
  now = not_before(breaker, now);
  Effects effects{.change = Change::within_generation, .from = breaker.state, .at = now};
  if (mode_at(breaker, now) != breaker.mode) {
    breaker.mode = Mode::automatic;
    breaker.mode_until = kNever;
    effects.event = EventKind::mode_expired;
    return effects;
  }
  if (breaker.ramping && lasted(breaker, now) >= settings.ramp_ms) {
    breaker.ramping = false;
    effects.event = EventKind::ramp_ended;
    return effects;
  }
  return {};
}

// ---- transitions
// -------------------------------------------------------------------------------------------------------

/// Moves the breaker and keeps the books on it.
constexpr void move_to(Breaker& breaker, CircuitState to, TransitionReason reason, Tick at) noexcept {
  breaker.tally.spent[static_cast<std::size_t>(breaker.state)] += lasted(breaker, at);
  if (reason != TransitionReason::none) ++breaker.tally.transitions[static_cast<std::size_t>(reason)];
  breaker.state = to;
  breaker.since = at;
  breaker.ramping = false;
  breaker.probe_successes = 0;
}

/// The cooldown after `growth` steps, before its jitter.
[[nodiscard]] constexpr Tick grown_cooldown(const Settings& settings, std::uint32_t growth) noexcept {
  Tick cooldown = settings.cooldown_ms;
  if (settings.cooldown_multiplier == 1) return cooldown;
  for (std::uint32_t step = 0; step < growth && cooldown < settings.cooldown_maximum_ms; ++step) {
    cooldown = std::min<Tick>(cooldown * settings.cooldown_multiplier, settings.cooldown_maximum_ms);
  }
  return cooldown;
}

/// The same with its jitter; `draw` is even over [0, kDraws).
[[nodiscard]] constexpr Tick drawn_cooldown(const Settings& settings, std::uint32_t growth,
                                            std::uint32_t draw) noexcept {
  const Tick cooldown = grown_cooldown(settings, growth);
  const Tick spread = cooldown * settings.cooldown_jitter / 100;
  return std::max<Tick>(1, cooldown - spread * draw / kDraws);
}

/// One step more, unless the cooldown is at its maximum already.
[[nodiscard]] constexpr std::uint32_t grown(const Settings& settings, std::uint32_t growth) noexcept {
  return grown_cooldown(settings, growth + 1) > grown_cooldown(settings, growth) ? growth + 1 : growth;
}

/// Whether the next opening of a Closed breaker would be another one than a new breaker's.
[[nodiscard]] constexpr bool remembers_outages(const Breaker& breaker, const Settings& settings, Tick now) noexcept {
  const Tick healthy = lasted(breaker, now);
  return settings.cooldown_multiplier != 1 && ((breaker.recovered && healthy < settings.forget_after_ms) ||
                                               breaker.growth > healthy / settings.forget_after_ms);
}

/// Whether a probe is out whose time is not over. (In Closed nothing reclaims one whose time is over.)
[[nodiscard]] constexpr bool awaits_probes(const Breaker& breaker, const Settings& settings, Tick now) noexcept {
  return breaker.probes.count != 0 && now < breaker.lease_at + settings.probe_timeout_ms;
}

/// Opens. A probe that failed, or a window that filled soon after the recovery, is a failed recovery; a healthy time
/// takes steps back.
constexpr void open(Breaker& breaker, const Settings& settings, Tick at, TransitionReason reason, bool probe_failed,
                    std::uint32_t draw) noexcept {
  const Tick healthy = lasted(breaker, at);
  if (settings.cooldown_multiplier == 1) {
    breaker.growth = 0;
  } else if (probe_failed || (breaker.recovered && healthy < settings.forget_after_ms)) {
    breaker.growth = grown(settings, breaker.growth);
  } else {
    breaker.growth -= static_cast<std::uint32_t>(std::min<Tick>(breaker.growth, healthy / settings.forget_after_ms));
  }
  move_to(breaker, CircuitState::open, reason, at);
  breaker.recovered = false;
  breaker.opened_at = at;
  breaker.open_until = at + drawn_cooldown(settings, breaker.growth, draw);
}

/// Other settings: the end of an Open period moves with the cooldown.
[[nodiscard]] constexpr Effects replace_settings(Breaker& breaker, const Settings& before, const Settings& after,
                                                 Tick now, std::uint32_t draw) noexcept {
  const bool same = before.cooldown_ms == after.cooldown_ms && before.cooldown_jitter == after.cooldown_jitter &&
                    before.cooldown_multiplier == after.cooldown_multiplier &&
                    before.cooldown_maximum_ms == after.cooldown_maximum_ms;
  if (breaker.state == CircuitState::open && !same) {
    breaker.open_until = breaker.opened_at + drawn_cooldown(after, breaker.growth, draw);
  }
  return {.change = Change::within_generation, .event = EventKind::settings_replaced, .from = breaker.state, .at = now};
}

// ---- admit
// -------------------------------------------------------------------------------------------------------------

/// The identities a probe gets, by whether its admission is a transition: storages name probes by the change that
/// admits them.
struct ProbeIds {
  std::uint64_t on_transition = 0;
  std::uint64_t within_generation = 0;
};

/// What a rejection is counted as.
enum class Turned : std::uint8_t { none, by_outage, by_ramp };

struct AdmitDecision {
  Admission admission = Admission::rejected;
  bool counts = true;            ///< false: allowed by a mode, and its outcome is void
  Turned turned = Turned::none;  ///< the rejection to count; in `observe` of a call that is allowed all the same
  std::uint64_t probe = 0;       ///< identity, where admitted as a probe
  Tick retry_at = 0;             ///< where rejected
  Tick retry_after = 0;          ///< where rejected: a duration, never negative
  Effects effects{};
};

/// Where an admit decides about probes: what the storage knows beside the Breaker.
struct Caller {
  ProbeIds ids{};
  std::uint16_t holder = 0;
  std::uint32_t dead_probes = 0;  ///< bit i: the holder of the i-th probe out is dead; 0 unless reclaim_dead_probes
  std::uint32_t draw = 0;         ///< even over [0, kDraws); used only while the breaker ramps up
};

namespace detail {

[[nodiscard]] constexpr AdmitDecision turned_away(Turned turned, Tick now, Tick wait) noexcept {
  return {.turned = turned, .retry_at = now + wait, .retry_after = wait};
}

/// The share of calls that a ramp admits, in thousandths.
[[nodiscard]] constexpr Tick ramp_share(const Settings& settings, Tick elapsed) noexcept {
  const Tick start = Tick{settings.ramp_start_percent} * 10;
  return elapsed >= settings.ramp_ms ? 1'000 : start + (1'000 - start) * elapsed / settings.ramp_ms;
}

/// Closed, ramping: a call beyond the share waits until the share reaches the next tenth.
[[nodiscard]] constexpr AdmitDecision admit_ramping(const Breaker& breaker, const Settings& settings, Tick now,
                                                    std::uint32_t draw) noexcept {
  const Tick elapsed = lasted(breaker, now);
  const Tick share = ramp_share(settings, elapsed);
  if (draw < share) return {.admission = Admission::allowed};
  const Tick start = Tick{settings.ramp_start_percent} * 10;
  const Tick rise = (share / 100 + 1) * 100 - start;
  const Tick reached = (rise * settings.ramp_ms + (1'000 - start) - 1) / (1'000 - start);
  return turned_away(Turned::by_ramp, now, std::max<Tick>(1, reached - elapsed));
}

[[nodiscard]] constexpr AdmitDecision admit_probe(Breaker& breaker, std::uint64_t probe,
                                                  std::uint16_t holder) noexcept {
  breaker.probes.add(probe, holder);
  ++breaker.tally.probes;
  return {.admission = Admission::probe, .probe = probe, .effects = {.change = Change::within_generation}};
}

[[nodiscard]] constexpr AdmitDecision admit_open(Breaker& breaker, Tick now, const Caller& caller) noexcept {
  if (now < breaker.open_until) return turned_away(Turned::by_outage, now, breaker.open_until - now);
  const Effects effects{.change = Change::transition,
                        .event = EventKind::transition,
                        .reason = TransitionReason::cooldown_elapsed,
                        .from = CircuitState::open,
                        .at = now};
  move_to(breaker, CircuitState::half_open, effects.reason, now);
  breaker.probes.clear();
  breaker.lease_at = now;
  AdmitDecision decision = admit_probe(breaker, caller.ids.on_transition, caller.holder);
  decision.effects = effects;
  return decision;
}

/// Gives up the probes of the dead, and all of them when the lease is over.
constexpr void reclaim_probes(Breaker& breaker, const Settings& settings, Tick now,
                              std::uint32_t dead_probes) noexcept {
  Probes& probes = breaker.probes;
  if (now >= breaker.lease_at + settings.probe_timeout_ms) probes.clear();
  for (std::uint32_t i = probes.count; i-- > 0;) {
    if ((dead_probes >> i & 1U) != 0) probes.remove(probes.id[i]);
  }
  if (probes.count == 0) breaker.lease_at = now;
}

[[nodiscard]] constexpr AdmitDecision admit_half_open(Breaker& breaker, const Settings& settings, Tick now,
                                                      const Caller& caller) noexcept {
  reclaim_probes(breaker, settings, now, caller.dead_probes);
  if (breaker.probes.count >= settings.probe_limit) {
    return turned_away(Turned::by_outage, now, settings.probe_timeout_ms);
  }
  return admit_probe(breaker, caller.ids.within_generation, caller.holder);
}

[[nodiscard]] constexpr AdmitDecision admit_by_state(Breaker& breaker, const Settings& settings, Tick now,
                                                     const Caller& caller) noexcept {
  switch (breaker.state) {
    case CircuitState::closed: break;
    case CircuitState::open: return admit_open(breaker, now, caller);
    case CircuitState::half_open: return admit_half_open(breaker, settings, now, caller);
  }
  if (breaker.ramping) return admit_ramping(breaker, settings, now, caller.draw);
  return {.admission = Admission::allowed};
}

}  // namespace detail

/// Decides an admit; `settle` has been asked before. A rejection changes nothing here: the storage counts it.
[[nodiscard]] constexpr AdmitDecision admit(Breaker& breaker, const Settings& settings, Tick now,
                                            const Caller& caller) noexcept {
  now = not_before(breaker, now);
  switch (breaker.mode) {
    case Mode::automatic: return detail::admit_by_state(breaker, settings, now, caller);
    case Mode::forced_open:
      return detail::turned_away(Turned::by_outage, now,
                                 breaker.mode_until == kNever ? kNoEnd.count() : breaker.mode_until - now);
    case Mode::forced_closed: return {.admission = Admission::allowed};
    case Mode::disabled: return {.admission = Admission::allowed, .counts = false};
    case Mode::observe: break;
  }
  AdmitDecision decision = detail::admit_by_state(breaker, settings, now, caller);
  if (decision.admission == Admission::rejected) {
    decision = {.admission = Admission::allowed, .counts = false, .turned = decision.turned};
  }
  return decision;
}

// ---- outcomes
// ----------------------------------------------------------------------------------------------------------

/// When a call was admitted, as its token keeps it: one tick on, so that the first tick of a timeline is told apart
/// from no reading of the clock. (Once in 2^32 ms it has to say a tick too much.)
[[nodiscard]] constexpr std::uint32_t started_at(Tick now) noexcept {
  return std::max<std::uint32_t>(1, static_cast<std::uint32_t>(now + 1));
}

/// Whether a call that was admitted at `started` and completed at `now` was slow. (Of calls that take longer than 2^31
/// ms, 24 days, the duration is not known.)
[[nodiscard]] constexpr bool is_slow(const Settings& settings, std::uint32_t started, Tick now) noexcept {
  if (!settings.times_calls() || started == 0) return false;
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(now + 1) - started) > settings.slower_than_ms;
}

/// What is in a window.
struct WindowCounts {
  std::uint64_t entries = 0;
  std::uint64_t failures = 0;
  std::uint64_t slow = 0;
  std::uint64_t failing_run = 0;  ///< failures at its newer end without a success between them

  constexpr void add_newest(bool failure, bool is_slow) noexcept {
    ++entries;
    failures += failure ? 1U : 0U;
    slow += is_slow ? 1U : 0U;
    failing_run = failure ? failing_run + 1 : 0;
  }
  constexpr void drop_oldest(bool failure, bool is_slow) noexcept {
    --entries;
    failures -= failure ? 1U : 0U;
    slow -= is_slow ? 1U : 0U;
    failing_run = std::min(failing_run, entries);
  }
};

/// Why a window whose newest outcome has just entered opens the breaker; none: it does not. Of several rules the first
/// of this order is named. The numbers of failures and of failures in a row are reached by failures only, the rates by
/// any outcome.
[[nodiscard]] constexpr TransitionReason opens(const Settings& settings, const WindowCounts& window,
                                               bool failure) noexcept {
  if (failure && settings.failures != 0 && window.failures >= settings.failures) {
    return TransitionReason::failure_threshold_reached;
  }
  if (settings.rate_percent != 0 && window.entries >= settings.rate_minimum_calls &&
      window.failures * 100 >= window.entries * settings.rate_percent) {
    return TransitionReason::failure_rate_reached;
  }
  if (failure && settings.consecutive_failures != 0 && window.failing_run >= settings.consecutive_failures) {
    return TransitionReason::consecutive_failures_reached;
  }
  if (settings.slow_percent != 0 && window.entries >= settings.slow_minimum_calls &&
      window.slow * 100 >= window.entries * settings.slow_percent) {
    return TransitionReason::slow_rate_reached;
  }
  return TransitionReason::none;
}

/// The opening that a window asks for. A decided one stands, whatever mode has been set since.
[[nodiscard]] constexpr Effects trip(Breaker& breaker, const Settings& settings, Tick at, TransitionReason reason,
                                     std::uint32_t draw) noexcept {
  open(breaker, settings, at, reason, false, draw);
  return {.change = Change::transition,
          .event = EventKind::transition,
          .reason = reason,
          .from = CircuitState::closed,
          .at = at,
          .resets_rejected = true};
}

struct RecordDecision {
  RecordStatus status = RecordStatus::stale;
  Effects effects{};
};

/// The verdict of a probe.
struct Verdict {
  std::uint64_t probe = 0;
  Outcome outcome = Outcome::ignored;
  std::uint32_t started = 0;  ///< as in the token
  std::uint32_t draw = 0;     ///< even over [0, kDraws)
};

/// Decides what the outcome of a probe does. (Outcomes of Allowed attempts go into the window: see `opens` and `trip`.)
[[nodiscard]] constexpr RecordDecision record_probe(Breaker& breaker, const Settings& settings, Tick now,
                                                    const Verdict& verdict) noexcept {
  const Mode mode = mode_at(breaker, now);
  if (mode == Mode::disabled) return {.status = RecordStatus::ignored};
  if (breaker.state == CircuitState::open || !breaker.probes.contains(verdict.probe)) return {};
  RecordDecision decision{.status = RecordStatus::ignored, .effects = {.change = Change::within_generation}};
  breaker.probes.remove(verdict.probe);
  if (verdict.outcome == Outcome::ignored || mode == Mode::forced_closed)
    return decision;  // the slot is freed, no more

  const bool slow =
      verdict.outcome == Outcome::success && settings.reopen_on_slow_probe && is_slow(settings, verdict.started, now);
  now = not_before(breaker, now);
  Effects& effects = decision.effects;
  if (verdict.outcome == Outcome::failure || slow) {
    effects = {.change = Change::transition,
               .event = EventKind::transition,
               .reason = slow ? TransitionReason::probe_slow : TransitionReason::probe_failed,
               .from = breaker.state,
               .at = now,
               .resets_rejected = breaker.state == CircuitState::closed};  // from HalfOpen it is the same outage
    open(breaker, settings, now, effects.reason, true, verdict.draw);
    breaker.probes.clear();
    ++breaker.tally.probe_verdicts;
    decision.status = RecordStatus::counted;
    return decision;
  }
  if (breaker.state == CircuitState::closed) return decision;  // a sibling closed it already: only a failure matters
  decision.status = RecordStatus::counted;
  ++breaker.tally.probe_verdicts;
  if (++breaker.probe_successes >= settings.success_threshold) {
    effects = {.change = Change::transition,
               .event = EventKind::transition,
               .reason = TransitionReason::probe_succeeded,
               .from = CircuitState::half_open,
               .at = now,
               .empties_window = true,
               .resets_rejected = true};
    move_to(breaker, CircuitState::closed, effects.reason, now);  // siblings still out stay live: a failure reopens
    breaker.recovered = true;
    breaker.ramping = settings.ramp_ms != 0;
  }
  return decision;
}

// ---- force
// -------------------------------------------------------------------------------------------------------------

/// Everything but the mode starts afresh in `to`, and all attempts in flight become void. Reports nothing where `to`
/// was in effect already.
[[nodiscard]] constexpr Effects force(Breaker& breaker, const Settings& settings, Tick now, CircuitState to,
                                      std::uint32_t draw) noexcept {
  now = not_before(breaker, now);
  const CircuitState from = breaker.state;
  TransitionReason reason = TransitionReason::none;
  if (from != to) {
    switch (to) {
      case CircuitState::closed: reason = TransitionReason::forced_closed; break;
      case CircuitState::open: reason = TransitionReason::forced_open; break;
      case CircuitState::half_open: reason = TransitionReason::forced_half_open; break;
    }
  }
  move_to(breaker, to, reason, now);
  breaker.recovered = false;
  breaker.growth = 0;
  breaker.opened_at = now;
  breaker.open_until = now + drawn_cooldown(settings, 0, draw);
  breaker.lease_at = now;
  breaker.probes.clear();
  return {.change = Change::transition,
          .event = EventKind::forced,
          .reason = reason,
          .from = from,
          .at = now,
          .empties_window = true,
          .resets_rejected = true};
}

}  // namespace shmcb::rules
