// SPDX-License-Identifier: BSD-3-Clause
// Runs a trace on a fresh storage with a clock of its own and reports every answer that deviates. Used by shmcb-replay
// and by the conformance suite of the storages.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/trace.hpp"
#include "shmcb/error.hpp"
#include "shmcb/random.hpp"
#include "shmcb/storage.hpp"
#include "shmcb/time.hpp"
#include "shmcb/types.hpp"

namespace shmcb::replay {

/// One answer that is not the expected one. Steps count from 1.
struct Deviation {
  std::string trace{};
  std::size_t step = 0;
  std::string field{};
  std::string expected{};
  std::string got{};
};

[[nodiscard]] inline std::string to_string(const Deviation& deviation) {
  return "trace " + deviation.trace + ", step " + std::to_string(deviation.step) + ", " + deviation.field +
         ": expected " + deviation.expected + ", got " + deviation.got;
}

/// When a trace begins on the fake clock, and how far into each millisecond its instants fall (the rules must not
/// notice).
struct Timing {
  Instant start{std::chrono::hours{1}};
  Micros into_the_tick{0};
};

namespace checks {

[[nodiscard]] inline std::string text(std::uint64_t value) {
  return std::to_string(value);
}
[[nodiscard]] inline std::string text(CircuitState state) {
  return std::string{shmcb::to_string(state)};
}
[[nodiscard]] inline std::string text(Admission admission) {
  return std::string{shmcb::to_string(admission)};
}
[[nodiscard]] inline std::string text(std::optional<std::int64_t> ms) {
  return ms ? std::to_string(*ms) : "none";
}
[[nodiscard]] inline std::string text(const std::optional<TraceTransition>& t) {
  if (!t) return "none";
  return text(t->from) + " to " + text(t->to) + " (" + std::string{shmcb::to_string(t->reason)} + ") at " +
         std::to_string(t->at_ms) + " ms";
}

/// Compares the answers of one step with the expected ones.
class StepCheck {
 public:
  StepCheck(const Trace& trace, std::size_t step, Instant start, std::vector<Deviation>& out)
      : trace_(trace), step_(step), start_(start), out_(out) {}

  void equal(const char* field, const std::string& expected, const std::string& got) {
    if (expected != got) out_.push_back({trace_.id, step_ + 1, field, expected, got});
  }
  /// Whether the operation worked; nothing else of a failed one means anything.
  [[nodiscard]] bool works(const char* field, Errc error) {
    equal(field, "ok", std::string{shmcb::to_string(error)});
    return error == Errc::ok;
  }
  void transition(const std::optional<TraceTransition>& expected, const std::optional<CircuitTransition>& got) {
    equal("transition", text(expected), text(relative(got)));
  }
  void record(const TraceRecord& expected, const StateRecord& got) {
    equal("state", text(expected.state), text(got.state));
    equal("opened_at_ms", text(expected.opened_at_ms), text(relative(got.opened_at)));
    equal("successes", text(expected.successes), text(got.successes));
    equal("failures", text(expected.failures), text(got.failures));
    equal("rejected", text(expected.rejected), text(got.rejected));
  }
  /// Nothing else happens in a replay, so the record that came with a transition is the one that a snapshot shows.
  void same_record(const StateRecord& with_transition, const StateRecord& snapshot) {
    record({.state = snapshot.state,
            .opened_at_ms = relative(snapshot.opened_at),
            .successes = snapshot.successes,
            .failures = snapshot.failures,
            .rejected = snapshot.rejected},
           with_transition);
  }

 private:
  [[nodiscard]] std::optional<std::int64_t> relative(std::optional<Instant> instant) const {
    if (!instant) return std::nullopt;
    return std::chrono::floor<Millis>(*instant - start_).count();
  }
  [[nodiscard]] std::optional<TraceTransition> relative(const std::optional<CircuitTransition>& t) const {
    if (!t) return std::nullopt;
    return TraceTransition{.from = t->from, .to = t->to, .reason = t->reason, .at_ms = *relative(t->occurred_at)};
  }

  const Trace& trace_;
  std::size_t step_;
  Instant start_;
  std::vector<Deviation>& out_;
};

/// Runs one step; answers the transition that it reported, if any.
template <Storage S>
std::optional<CircuitTransition> run_step(const Step& step, S& storage, std::vector<Token>& tokens, StepCheck& check) {
  switch (step.operation) {
    case Operation::admit: {
      const AdmitResult result = storage.admit();
      if (!check.works("admit", result.error)) return std::nullopt;
      tokens[step.attempt] = result.token;
      check.equal("admission", text(step.admission), text(result.admission));
      check.transition(step.transition, result.transition);
      return result.transition;
    }
    case Operation::record: {
      const RecordResult result = storage.record_outcome(tokens[step.attempt], step.outcome);
      if (!check.works("record_outcome", result.error)) return std::nullopt;
      check.transition(step.transition, result.transition);
      return result.transition;
    }
    case Operation::force: {
      const ForceResult result = storage.force_state(step.to);
      if (!check.works("force_state", result.error)) return std::nullopt;
      check.transition(step.transition, result.transition);
      return result.transition;
    }
    case Operation::snapshot: break;
  }
  return std::nullopt;
}

}  // namespace checks

/// Requires a fresh storage of `trace.config` that reads `clock` and draws from `random`.
template <Storage S>
[[nodiscard]] std::vector<Deviation> run(const Trace& trace, S& storage, FakeClock clock, FakeRandom random,
                                         const Timing& timing = {}) {
  std::vector<Deviation> deviations;
  std::vector<Token> tokens(trace.attempts);
  for (std::size_t i = 0; i < trace.steps.size(); ++i) {
    const Step& step = trace.steps[i];
    clock.set(timing.start + Millis{step.at_ms} + timing.into_the_tick);
    random.set(step.draw);
    checks::StepCheck check{trace, i, timing.start, deviations};
    const std::optional<CircuitTransition> transition = checks::run_step(step, storage, tokens, check);
    const SnapshotResult snapshot = storage.snapshot();
    if (!check.works("snapshot", snapshot.error)) continue;
    if (step.record) check.record(*step.record, snapshot.record);
    if (transition) check.same_record(transition->state, snapshot.record);
  }
  return deviations;
}

/// Opens a storage with `open(config, clock, random)`, which answers a Result, and runs the trace on it.
template <class Open>
[[nodiscard]] Result<std::vector<Deviation>> run_fresh(const Trace& trace, Open&& open, const Timing& timing = {}) {
  FakeClock clock{timing.start};
  FakeRandom random;
  auto storage = open(trace.config, clock, random);
  if (!storage) return storage.error();
  return run(trace, *storage, clock, random, timing);
}

}  // namespace shmcb::replay
