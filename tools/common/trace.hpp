// SPDX-License-Identifier: BSD-3-Clause
// Recorded traces: sequences of operations on one fresh breaker with the right answer after every step, a JSON object a
// line. Reading is strict: whatever a trace does not define exactly is an error that names file, line and field.
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

enum class Operation : std::uint8_t { admit, record, snapshot, force };

[[nodiscard]] constexpr std::string_view to_string(Operation operation) noexcept {
  switch (operation) {
    case Operation::admit: return "admit";
    case Operation::record: return "record";
    case Operation::snapshot: return "snapshot";
    case Operation::force: return "force";
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

/// The expected state record. `opened_at_ms` is none while the breaker never opened.
struct TraceRecord {
  CircuitState state = CircuitState::closed;
  std::optional<std::int64_t> opened_at_ms{};
  std::uint64_t successes = 0;
  std::uint64_t failures = 0;
  std::uint64_t rejected = 0;
};

/// One operation and its answer. What the operation does not have keeps its default.
struct Step {
  std::int64_t at_ms = 0;
  Operation operation = Operation::snapshot;
  std::size_t attempt = 0;                      ///< admit, record: which one, counted in order of admission
  std::uint32_t draw = 0;                       ///< what chance says, in [0, rules::kDraws)
  Outcome outcome = Outcome::success;           ///< record
  CircuitState to = CircuitState::closed;       ///< force
  Admission admission = Admission::allowed;     ///< admit: expected
  std::optional<TraceRecord> record{};          ///< record, snapshot: expected
  std::optional<TraceTransition> transition{};  ///< admit, record, force: expected
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
