// SPDX-License-Identifier: BSD-3-Clause
// Which scenarios about one breaker there are: every small state that operations lead to, and in it every operation
// against every other.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "proof/breaker_case.hpp"

namespace shmcb::proof {

/// A prepared state and what may be done in it.
struct SmallState {
  std::vector<Op> prepare{};
  std::vector<Op> operations{};  ///< each without a place for its token
};

inline constexpr Tick kSlice = 10;  // cooldown and probe timeout

[[nodiscard]] inline std::vector<Settings> family(std::string_view name) {
  Settings s{.failures = 2,
             .window = 3,
             .within_ms = 25,
             .cooldown_ms = kSlice,
             .probe_timeout_ms = kSlice,
             .success_threshold = 2,
             .probe_limit = 2};
  if (name == "small") {
    s.window = 2;
    s.success_threshold = s.probe_limit = 1;
  } else if (name == "one") {
    s.failures = s.window = 1;
    s.success_threshold = s.probe_limit = 1;
  } else if (name == "rate") {
    s.failures = 0;
    s.rate_percent = 50;
    s.rate_minimum_calls = 2;
    s.success_threshold = s.probe_limit = 1;
  } else if (name == "run") {
    s.failures = 0;
    s.consecutive_failures = 2;
    s.success_threshold = 1;
  } else if (name == "slow") {
    s.failures = 0;
    s.slow_percent = 50;
    s.slow_minimum_calls = 2;
    s.slower_than_ms = 5;
    s.reopen_on_slow_probe = true;
    s.success_threshold = 1;
  } else if (name == "ramp") {
    s.window = 2;
    s.success_threshold = s.probe_limit = 1;
    s.ramp_ms = 10;
    s.ramp_start_percent = 10;
    s.cooldown_multiplier = 2;
    s.cooldown_maximum_ms = 40;
    s.forget_after_ms = 20;
  } else if (name == "jitter") {
    s.window = 2;
    s.success_threshold = 1;
    s.cooldown_jitter = 50;
    s.ramp_ms = 10;
    s.ramp_start_percent = 30;
  } else if (name == "lean" || name == "lean-run") {
    s.lean = true;
    s.success_threshold = s.probe_limit = 1;
    if (name == "lean-run") s.consecutive_failures = 2;
    if (name == "lean-run") s.failures = 0;
  } else if (name == "lean-later") {
    s.window = 2;
    s.success_threshold = s.probe_limit = 1;
  }
  Settings larger = s;  // what `replace` brings
  larger.window += 1;
  larger.cooldown_ms = 2 * kSlice;
  larger.revision = 1;
  Settings smaller = s;
  smaller.window = 1;
  smaller.failures = s.failures != 0 ? 1 : 0;
  smaller.revision = 2;
  if (name == "lean") smaller.lean = false;
  if (name == "lean-later") larger.lean = smaller.lean = true;
  return {s, larger, smaller};
}
inline constexpr std::string_view kFamilies[] = {"plain", "small", "one", "rate", "run", "slow", "ramp"};
/// With lean accounting: replaced by exact, never replaced by it, and set in the midst of a period.
inline constexpr std::string_view kLeanFamilies[] = {"lean", "lean-run", "lean-later"};

/// What chance gives where it matters: no two have the same cooldown, and only the first gets through a fresh ramp.
inline constexpr std::array<std::uint32_t, kMaxParticipants + 1> kDraws = {250, 600, 999, 400};

/// Settings that give the probes of dead holders back early, long before their lease.
[[nodiscard]] inline Settings reclaiming(std::uint32_t probes) {
  Settings s = family("small")[0];
  s.success_threshold = s.probe_limit = probes;
  s.probe_timeout_ms = 3 * kSlice;
  s.reclaim_dead_probes = true;
  return s;
}

/// What there is to do in a state; tokens of three kinds at most: one of the present period, one of an earlier one, and
/// each probe that is out or was.
[[nodiscard]] inline std::vector<Op> operations_in(const Reference& state, Tick now, std::size_t tokens) {
  std::vector<Op> ops;
  const auto record = [&](std::size_t token, Outcome outcome) {
    ops.push_back({.kind = Op::Kind::record, .token = static_cast<std::uint8_t>(token), .outcome = outcome, .at = now});
  };
  ops.push_back({.kind = Op::Kind::admit, .at = now});
  bool live = false;
  bool stale = false;
  bool reclaimed = false;
  for (std::size_t t = 0; t < tokens; ++t) {
    const Token& token = state.token(t);
    if (token.admission == Admission::rejected) continue;
    if (token.admission == Admission::probe) {
      if (state.breaker().probes.contains(token.period)) {
        for (const Outcome outcome : {Outcome::success, Outcome::failure, Outcome::ignored})
          record(t, outcome);
      } else if (!std::exchange(reclaimed, true)) {
        record(t, Outcome::success);
      }
    } else if (token.period == state.generation()) {
      if (std::exchange(live, true)) continue;
      record(t, Outcome::success);
      record(t, Outcome::failure);
    } else if (!std::exchange(stale, true)) {
      record(t, Outcome::failure);
    }
  }
  for (const CircuitState to : {CircuitState::closed, CircuitState::open, CircuitState::half_open})
    ops.push_back({.kind = Op::Kind::force, .to = to, .at = now});
  for (const Mode mode : {Mode::disabled, Mode::forced_closed, Mode::forced_open, Mode::observe, Mode::automatic})
    ops.push_back({.kind = Op::Kind::mode, .mode = mode, .at = now});
  ops.push_back({.kind = Op::Kind::mode, .mode = Mode::forced_closed, .lasts = kSlice, .at = now});
  ops.push_back({.kind = Op::Kind::replace, .settings = 1, .at = now});
  ops.push_back({.kind = Op::Kind::replace, .settings = 2, .at = now});
  ops.push_back({.kind = Op::Kind::snapshot, .at = now});
  ops.push_back({.kind = Op::Kind::admit, .at = now + kSlice});  // of one whose clock is further
  return ops;
}

/// Every state that differs from the others, up to so many operations from the beginning; or from `first`, a mode or
/// other settings, none of which follow then.
[[nodiscard]] inline std::vector<SmallState> small_states(const std::vector<Settings>& settings, std::size_t depth,
                                                          const std::optional<Op>& first = {}) {
  struct Reached {
    Reference reference;
    std::vector<Op> prepare;
    Tick now = 0;
    std::uint8_t tokens = 0;
  };
  constexpr std::uint8_t kMostTokens = 6;
  std::vector<SmallState> states;
  std::set<std::string> seen;
  std::vector<Reached> reached{{Reference(settings), {}, 0, 0}};
  const auto keep = [&](const Reached& r) {
    if (!seen.insert(r.reference.key(r.now)).second) return false;
    states.push_back({r.prepare, operations_in(r.reference, r.now, r.tokens)});
    return true;
  };
  if (first) {
    std::optional<Transition> transition;
    (void)reached[0].reference.perform(*first, transition);
    reached[0].prepare.push_back(*first);
  }
  keep(reached[0]);
  std::vector<Reached> level = reached;
  for (std::size_t n = 0; n < depth; ++n) {
    std::vector<Reached> next_level;
    for (const Reached& r : level) {
      const auto step = [&](Op op) {
        Reached next = r;
        std::optional<Transition> transition;
        if (op.kind == Op::Kind::admit) op.token = next.tokens++;
        (void)next.reference.perform(op, transition);
        next.prepare.push_back(op);
        if (keep(next)) next_level.push_back(std::move(next));
      };
      for (const Op& op : operations_in(r.reference, r.now, r.tokens)) {
        if (op.at != r.now || op.kind == Op::Kind::snapshot || op.kind == Op::Kind::replace) continue;
        if (op.kind == Op::Kind::mode && first) continue;
        if (op.kind == Op::Kind::mode && op.mode != Mode::disabled && op.mode != Mode::observe &&
            op.lasts == rules::kNever) {
          continue;
        }
        if (op.kind == Op::Kind::admit && r.tokens == kMostTokens) continue;
        step(op);
      }
      // Time goes on: an admit a slice later.
      if (r.tokens < kMostTokens) {
        Reached later = r;
        later.now += kSlice;
        std::optional<Transition> transition;
        const Op op{.kind = Op::Kind::admit, .token = later.tokens++, .at = later.now};
        (void)later.reference.perform(op, transition);
        later.prepare.push_back(op);
        if (keep(later)) next_level.push_back(std::move(later));
      }
    }
    level = std::move(next_level);
  }
  return states;
}

/// The first operations behind which `small_states` does not look by itself.
[[nodiscard]] inline std::vector<Op> first_operations() {
  return {{.kind = Op::Kind::mode, .mode = Mode::forced_closed},
          {.kind = Op::Kind::mode, .mode = Mode::forced_open},
          {.kind = Op::Kind::replace, .settings = 1},
          {.kind = Op::Kind::replace, .settings = 2}};
}

/// Operations of one participant: each admit gets a place of its own for its token.
[[nodiscard]] inline std::vector<Op> with_tokens(std::vector<Op> ops, std::size_t participant) {
  std::uint8_t token = static_cast<std::uint8_t>(8 + 5 * participant);
  for (Op& op : ops) {
    if (op.kind == Op::Kind::admit) op.token = token++;
  }
  return ops;
}

/// Outcomes recorded beforehand, so that the tail stands before a place where something is due: the hint is raised
/// every 8, a lap ends every 16. Then a new period, so that they do not count.
[[nodiscard]] inline std::vector<Op> moved_on_by(std::uint32_t outcomes) {
  if (outcomes == 0) return {};
  std::vector<Op> ops{{.kind = Op::Kind::admit, .token = 7}};
  for (std::uint32_t i = 0; i < outcomes; ++i)
    ops.push_back({.kind = Op::Kind::record, .token = 7, .outcome = Outcome::success});
  ops.push_back({.kind = Op::Kind::force, .to = CircuitState::closed});
  return ops;
}

}  // namespace shmcb::proof
