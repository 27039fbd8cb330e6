// SPDX-License-Identifier: BSD-3-Clause
// Recorded traces: sequences of operations on one fresh breaker with the right answer after every step, a JSON object a
// line; docs/trace-format.md describes it. Reading is strict: whatever a trace does not define exactly is an error that
// names file, line and field.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "shmcb/config.hpp"
#include "shmcb/types.hpp"

namespace shmcb::replay {

/// A file of traces that cannot be used. `what()` is a sentence that begins with "file:line: ".
class UnusableInput : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class Operation : std::uint8_t { admit, record, abandon, snapshot, force, mode, counters };

[[nodiscard]] constexpr std::string_view to_string(Operation operation) noexcept {
  switch (operation) {
    case Operation::admit: return "admit";
    case Operation::record: return "record";
    case Operation::abandon: return "abandon";
    case Operation::snapshot: return "snapshot";
    case Operation::force: return "force";
    case Operation::mode: return "mode";
    case Operation::counters: return "counters";
  }
  return "invalid";
}

/// The expected transition. Times are milliseconds from the start of the trace.
struct TraceTransition {
  CircuitState from = CircuitState::closed;
  CircuitState to = CircuitState::closed;
  TransitionReason reason = TransitionReason::none;
  std::int64_t at_ms = 0;
};

/// The expected state record. `opened_at_ms` is none while the breaker never opened. What the trace does not say of the
/// last three is not compared.
struct TraceRecord {
  CircuitState state = CircuitState::closed;
  std::optional<std::int64_t> opened_at_ms{};
  std::uint64_t successes = 0;
  std::uint64_t failures = 0;
  std::uint64_t rejected = 0;
  std::optional<std::uint64_t> slow{};
  std::optional<Mode> mode{};
  std::optional<bool> ramping{};
};

/// One expected counter, named as `counter_named` knows it.
struct TraceCounter {
  std::string name{};
  std::uint64_t value = 0;
};

/// The counter of that name: a field of Counters, "transitions.<reason>" or "in_<state>_ms"; none: there is no such.
[[nodiscard]] std::optional<std::uint64_t> counter_named(const Counters& counters, std::string_view name) noexcept;

/// One operation and its answer. What the operation does not have keeps its default.
struct Step {
  std::int64_t at_ms = 0;
  Operation operation = Operation::snapshot;
  std::uint32_t draw = 0;                        ///< what chance says, in [0, rules::kDraws)
  std::size_t attempt = 0;                       ///< admit, record, abandon: which one, counted in order of admission
  Outcome outcome = Outcome::success;            ///< record
  CircuitState to = CircuitState::closed;        ///< force
  ModeRequest mode{};                            ///< mode
  Admission admission = Admission::allowed;      ///< admit: expected
  std::optional<std::int64_t> retry_after_ms{};  ///< admit: expected, where the trace says so
  std::optional<CircuitState> state{};           ///< admit: likewise
  std::optional<RecordStatus> status{};          ///< record, abandon: likewise
  Mode previous = Mode::automatic;               ///< mode: expected
  std::optional<TraceRecord> record{};           ///< record, abandon, snapshot: expected
  std::optional<TraceTransition> transition{};   ///< admit, record, abandon, force: expected
  std::vector<TraceCounter> counters{};          ///< counters: expected
};

struct Trace {
  std::string id{};
  std::string place{};  ///< "file:line"
  BreakerConfig config{};
  std::vector<std::string> rules{};  ///< the rules it is about, where it says so
  std::vector<Step> steps{};
  std::size_t attempts = 0;
};

/// All traces of `input`, at least one; blank lines do not count. `file` is what messages call it. Throws
/// UnusableInput.
[[nodiscard]] std::vector<Trace> read_traces(std::istream& input, const std::string& file);

/// The same for a file. Throws UnusableInput.
[[nodiscard]] std::vector<Trace> read_trace_file(const std::string& path);

}  // namespace shmcb::replay
