// SPDX-License-Identifier: BSD-3-Clause
// The transition rules as pure functions on a small plain value: no clock, no heap, no atomics. The memory storage uses
// them as they are, the shared-memory storage for everything but the window, every test as the reference.
// A tick is one millisecond on the storage's timeline.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "shmcb/config.hpp"
#include "shmcb/types.hpp"

namespace shmcb::rules {

using Tick = std::int64_t;

/// "Never opened and never forced".
inline constexpr Tick kNever = -1;

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

/// Everything about a breaker that changes rarely: all but the window, the rejections and the numbers of the
/// configuration.
struct Breaker {
  CircuitState state = CircuitState::closed;
  Tick opened_at = kNever;
  Tick lease_at = 0;  ///< HalfOpen: when the one lease for all probes of the period started
  std::uint32_t probe_successes = 0;
  Probes probes{};
};

/// How far a decision changes the breaker. A transition ends the generation, a change within it does not.
enum class Change : std::uint8_t { nothing, within_generation, transition };

/// What a decision asks its storage to carry out beside storing the changed Breaker.
struct Effects {
  Change change = Change::nothing;
  TransitionReason reason = TransitionReason::none;  ///< none: nothing to report
  CircuitState from = CircuitState::closed;
  Tick at = 0;                   ///< when the transition occurred
  bool empties_window = false;   ///< a new Closed period begins with an empty window
  bool resets_rejected = false;  ///< `rejected` starts again from zero
};

/// An instant as this breaker counts it: clocks of processes differ a little, so one earlier than what has already been
/// acted on counts as that one.
[[nodiscard]] constexpr Tick not_before(const Breaker& breaker, Tick now) noexcept {
  now = std::max(now, breaker.opened_at);
  return breaker.state == CircuitState::half_open ? std::max(now, breaker.lease_at) : now;
}

/// The end of an Open period.
[[nodiscard]] constexpr Tick cooldown_end(const Breaker& breaker, const Settings& settings) noexcept {
  return breaker.opened_at + settings.cooldown_ms;
}

/// The identities a probe gets, by whether its admission is a transition: storages name probes by the change that
/// admits them.
struct ProbeIds {
  std::uint64_t on_transition = 0;
  std::uint64_t within_generation = 0;
};

struct AdmitDecision {
  Admission admission = Admission::rejected;
  std::uint64_t probe = 0;  ///< identity, where admitted as a probe
  Tick retry_at = 0;        ///< where rejected
  Tick retry_after = 0;     ///< where rejected: a duration, never negative
  Effects effects{};
};

/// Decides an admit. A rejection changes nothing here: the storage counts it.
[[nodiscard]] constexpr AdmitDecision admit(Breaker& breaker, const Settings& settings, Tick now, ProbeIds ids,
                                            std::uint16_t holder = 0) noexcept {
  AdmitDecision decision;
  if (breaker.state == CircuitState::closed) {
    decision.admission = Admission::allowed;
    return decision;
  }
  now = not_before(breaker, now);
  if (breaker.state == CircuitState::open) {
    const Tick end = cooldown_end(breaker, settings);
    if (now < end) {
      decision.retry_at = end;
      decision.retry_after = end - now;
      return decision;
    }
    decision.effects = {.change = Change::transition,
                        .reason = TransitionReason::cooldown_elapsed,
                        .from = CircuitState::open,
                        .at = now};
    breaker.state = CircuitState::half_open;
    breaker.probe_successes = 0;
    breaker.probes.clear();
    breaker.lease_at = now;
    decision.admission = Admission::probe;
    decision.probe = ids.on_transition;
    breaker.probes.add(decision.probe, holder);
    return decision;
  }
  const bool lease_over = now >= breaker.lease_at + settings.probe_timeout_ms;
  if (breaker.probes.count > 0 && !lease_over && breaker.probes.count >= settings.probe_limit) {
    decision.retry_at = now + settings.probe_timeout_ms;
    decision.retry_after = settings.probe_timeout_ms;
    return decision;
  }
  if (breaker.probes.count == 0 || lease_over) {
    breaker.probes.clear();
    breaker.lease_at = now;
  }
  decision.effects.change = Change::within_generation;
  decision.admission = Admission::probe;
  decision.probe = ids.within_generation;
  breaker.probes.add(decision.probe, holder);
  return decision;
}

struct RecordDecision {
  RecordStatus status = RecordStatus::stale;
  Effects effects{};
};

/// Decides what the outcome of a probe does. (Outcomes of Allowed attempts go into the window: see `trips` and `trip`.)
[[nodiscard]] constexpr RecordDecision record_probe(Breaker& breaker, const Settings& settings, Tick now,
                                                    std::uint64_t probe, Outcome outcome) noexcept {
  RecordDecision decision;
  if (breaker.state == CircuitState::open || !breaker.probes.contains(probe)) return decision;
  now = not_before(breaker, now);
  Effects& effects = decision.effects;
  effects.change = Change::within_generation;
  decision.status = outcome == Outcome::ignored ? RecordStatus::ignored : RecordStatus::counted;
  breaker.probes.remove(probe);

  if (outcome == Outcome::failure) {
    effects = {.change = Change::transition,
               .reason = TransitionReason::probe_failed,
               .from = breaker.state,
               .at = now,
               .resets_rejected = breaker.state == CircuitState::closed};  // from HalfOpen it is the same outage
    breaker.state = CircuitState::open;
    breaker.opened_at = now;
    breaker.probe_successes = 0;
    breaker.probes.clear();
    return decision;
  }
  if (breaker.state == CircuitState::closed) {  // a sibling closed the breaker already: only a failure matters
    decision.status = RecordStatus::ignored;
    return decision;
  }
  if (outcome == Outcome::success && ++breaker.probe_successes >= settings.success_threshold) {
    effects = {.change = Change::transition,
               .reason = TransitionReason::probe_succeeded,
               .from = CircuitState::half_open,
               .at = now,
               .empties_window = true,
               .resets_rejected = true};
    breaker.state = CircuitState::closed;
    breaker.probe_successes = 0;  // siblings that are still out stay live: their failure reopens
  }
  return decision;
}

/// Whether a failure that finds `failures_before` others in its window opens the breaker.
[[nodiscard]] constexpr bool trips(const Settings& settings, std::uint64_t failures_before) noexcept {
  return failures_before + 1 >= settings.failures;
}

/// The opening that a full window asks for.
[[nodiscard]] constexpr Effects trip(Breaker& breaker, Tick at) noexcept {
  breaker.state = CircuitState::open;
  breaker.opened_at = at;
  return {.change = Change::transition,
          .reason = TransitionReason::failure_threshold_reached,
          .from = CircuitState::closed,
          .at = at,
          .resets_rejected = true};
}

/// Everything starts afresh in `to`, and all attempts in flight become void. Reports nothing where `to` was in effect
/// already.
[[nodiscard]] constexpr Effects force(Breaker& breaker, Tick now, CircuitState to) noexcept {
  now = not_before(breaker, now);
  const CircuitState from = breaker.state;
  breaker = {.state = to, .opened_at = now, .lease_at = now, .probe_successes = 0, .probes = {}};
  TransitionReason reason = TransitionReason::none;
  if (from != to) {
    switch (to) {
      case CircuitState::closed: reason = TransitionReason::forced_closed; break;
      case CircuitState::open: reason = TransitionReason::forced_open; break;
      case CircuitState::half_open: reason = TransitionReason::forced_half_open; break;
    }
  }
  return {.change = Change::transition,
          .reason = reason,
          .from = from,
          .at = now,
          .empties_window = true,
          .resets_rejected = true};
}

}  // namespace shmcb::rules
