// SPDX-License-Identifier: BSD-3-Clause
// The vocabulary every layer shares: states, outcomes, admissions, reasons and what the storages' operations answer.
// Plain values without I/O; safe to copy between threads.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "shmcb/error.hpp"
#include "shmcb/time.hpp"

namespace shmcb {

/// The three states of a breaker. The values are part of the segment format.
enum class CircuitState : std::uint8_t { closed = 0, open = 1, half_open = 2 };

/// When a call was completed; none: the storage reads its clock. A class of its own because it travels in a register,
/// which an optional does not.
class CompletedAt {
 public:
  constexpr CompletedAt() noexcept = default;
  constexpr CompletedAt(Instant at) noexcept : at_(at) {}  // NOLINT(google-explicit-constructor): the instant itself
  [[nodiscard]] constexpr explicit operator bool() const noexcept { return at_ != kNone; }
  [[nodiscard]] constexpr Instant operator*() const noexcept { return at_; }

 private:
  static constexpr Instant kNone = Instant::min();
  Instant at_ = kNone;
};

/// What an operator told the breaker to do, whatever its state: sticky, never ended by a cooldown. The values are part
/// of the segment format.
enum class Mode : std::uint8_t {
  automatic = 0,      ///< the rules decide (default)
  forced_open = 1,    ///< rejects every call
  forced_closed = 2,  ///< admits every call and keeps counting; the state does not move
  disabled = 3,       ///< admits every call and counts nothing
  observe = 4,        ///< counts and makes transitions, but rejects nothing: a dry run before a roll-out
};
inline constexpr std::uint8_t kModes = 5;

/// What became of one protected call.
enum class Outcome : std::uint8_t { success = 0, failure = 1, ignored = 2 };

/// What `admit` decided: run the call, run it as one of the few probes of HalfOpen, or do not run it.
enum class Admission : std::uint8_t { allowed = 0, probe = 1, rejected = 2 };

/// Why a transition happened. `none` stands where there was no transition.
enum class TransitionReason : std::uint8_t {
  none = 0,
  failure_threshold_reached,
  cooldown_elapsed,
  probe_succeeded,
  probe_failed,
  forced_open,
  forced_closed,
  forced_half_open,
  failure_rate_reached,
  consecutive_failures_reached,
  slow_rate_reached,
  probe_slow,
};
inline constexpr std::size_t kTransitionReasons = 12;

/// What an entry of a segment's journal tells. The values are part of the segment format. `none` stands where nothing
/// is told.
enum class EventKind : std::uint8_t {
  none = 0,
  transition = 1,
  forced = 2,             ///< a state was forced, also one that was in effect already
  mode_change = 3,        ///< somebody set a mode
  mode_expired = 4,       ///< a mode ended by itself
  settings_replaced = 5,  ///< other numbers
  ramp_ended = 6,         ///< the breaker admits everything again
};

/// What `record_outcome` did with an outcome.
enum class RecordStatus : std::uint8_t {
  counted,   ///< it entered the window, or was a probe's verdict
  ignored,   ///< it had nothing to count: an Ignored outcome, a sibling's success after the breaker had closed, a call
             ///< that a mode let run
  stale,     ///< it belongs to an earlier period, a reclaimed probe, or was recorded before
  rejected,  ///< the attempt had been rejected, so there was nothing to record
};

/// What tells one attempt apart from all others; handed out by `admit`, handed back to `record_outcome` of the same
/// storage. Opaque to users. `period` is the generation of the Closed period or the identity of the probe. A call that
/// a mode lets run although nothing is to be counted has the admission `rejected` here and the period kVoidPeriod.
struct Token {
  std::uint64_t period = 0;
  std::uint32_t started = 0;  ///< the tick after that of the admission, modulo 2^32; 0: the clock was not read
  Admission admission = Admission::rejected;
  std::uint8_t origin = 0;  ///< which part of a composed storage (FallbackStorage) issued it
};
inline constexpr std::uint64_t kVoidPeriod = ~std::uint64_t{0};

/// Who did something by hand, and why: for the journal and for those who look at the breaker later.
struct Note {
  std::string_view who{};  ///< at most kMaxWhoBytes
  std::string_view why{};  ///< at most kMaxWhyBytes
};
inline constexpr std::size_t kMaxWhoBytes = 32;
inline constexpr std::size_t kMaxWhyBytes = 96;

/// A mode to be set.
struct ModeRequest {
  Mode mode = Mode::automatic;
  std::optional<Millis> expires_after{};  ///< then `automatic` returns by itself; 1 ms to 2^40 ms. None: never
  Note note{};
};

/// The `retry_after` of a rejection that ends only when somebody ends it. 34.8 years: can be added to an instant.
inline constexpr Millis kNoEnd{std::int64_t{1} << 40};

/// The state of a breaker as `snapshot` shows it.
struct StateRecord {
  CircuitState state = CircuitState::closed;
  std::optional<Instant>
      opened_at{};              ///< on the storage's clock, to the millisecond; none: never opened and never forced
  std::uint64_t successes = 0;  ///< Closed, Open: in the window; HalfOpen: successful probes
  std::uint64_t failures = 0;   ///< Closed, Open: in the window; HalfOpen: 0
  std::uint64_t rejected = 0;   ///< in this outage; in `observe`: what would have been
  std::uint64_t slow = 0;       ///< of the successes and failures in the window, those that took too long
  Mode mode = Mode::automatic;
  bool ramping = false;             ///< Closed, and admitting only a growing share of the calls
  bool successes_at_least = false;  ///< lean accounting: `successes` is a lower bound
};

/// One committed transition, reported by the call that committed it.
struct CircuitTransition {
  std::string_view breaker_name{};  ///< valid as long as the storage that reported it
  CircuitState from = CircuitState::closed;
  CircuitState to = CircuitState::closed;
  TransitionReason reason = TransitionReason::none;
  Instant occurred_at{};
  StateRecord state{};  ///< the record after it
};

/// The answer of `admit`. Where `error` is set nothing else is meaningful.
struct AdmitResult {
  Errc error = Errc::ok;
  Admission admission = Admission::rejected;
  CircuitState state = CircuitState::closed;  ///< after the operation
  Token token{};
  Millis retry_after{0};  ///< of a rejection: how long to wait, never negative
  Instant retry_at{};     ///< of a rejection: the same as a deadline on the storage's clock
  std::optional<CircuitTransition> transition{};
};

/// The answer of `record_outcome`. Where `error` is set the storage could not carry the outcome through; in shared
/// memory a failure that was counted may still open the breaker at the next record of anyone.
struct RecordResult {
  Errc error = Errc::ok;
  RecordStatus status = RecordStatus::stale;
  std::optional<CircuitTransition> transition{};
};

/// The answer of `force_state`.
struct ForceResult {
  Errc error = Errc::ok;
  std::optional<CircuitTransition> transition{};  ///< none where the state was in effect already
};

/// The answer of `set_mode`.
struct ModeResult {
  Errc error = Errc::ok;
  Mode previous = Mode::automatic;
};

/// The answer of `snapshot`.
struct SnapshotResult {
  Errc error = Errc::ok;
  StateRecord record{};
};

/// The answer of `peek`: enough for `can_call` and `state`, without looking at the window.
struct PeekResult {
  Errc error = Errc::ok;
  CircuitState state = CircuitState::closed;
  Mode mode = Mode::automatic;
  Millis cooldown_left{0};  ///< of Open: until a probe may be admitted; 0 elsewhere
};

/// What a breaker has counted since it came into being; never reset. Exact where nothing runs beside the reading; else
/// an outcome that is just being recorded may be in one number and not yet in the other. A process killed in the middle
/// takes at most one count along (its failure then shows among the successes), or its lane's rejections of one outage.
/// With lean accounting the successes (and so the completed) lag by up to 1,024 a handle, which a killed process takes
/// along, and threads that share a handle lose some of each other's.
struct Counters {
  std::uint64_t completed = 0;       ///< reported: successes + failures + probe_verdicts + ignored + stale
  std::uint64_t successes = 0;       ///< that entered a window
  std::uint64_t failures = 0;        ///< that entered a window
  std::uint64_t ignored = 0;         ///< had nothing to count
  std::uint64_t stale = 0;           ///< belonged to an earlier period, or were recorded before
  std::uint64_t rejected = 0;        ///< by Open, a full HalfOpen or forced_open; in `observe`: would have been
  std::uint64_t ramp_rejected = 0;   ///< calls turned away while the breaker came back gently
  std::uint64_t abandoned = 0;       ///< permits dropped without a verdict; they are among the ignored or stale too
  std::uint64_t probes = 0;          ///< admitted
  std::uint64_t probe_verdicts = 0;  ///< probes that succeeded or failed in time; among the completed
  std::array<std::uint64_t, kTransitionReasons> transitions{};  ///< by TransitionReason; [0] stays 0
  Millis in_closed{0};                                          ///< time spent in each state, the present one included
  Millis in_open{0};
  Millis in_half_open{0};
};

/// The answer of `counters`.
struct CountersResult {
  Errc error = Errc::ok;
  Counters counters{};
};

/// The names used in traces, tools and Redis, e.g. "half-open".
[[nodiscard]] constexpr std::string_view to_string(CircuitState state) noexcept {
  switch (state) {
    case CircuitState::closed: return "closed";
    case CircuitState::open: return "open";
    case CircuitState::half_open: return "half-open";
  }
  return "invalid";
}

[[nodiscard]] constexpr std::string_view to_string(Mode mode) noexcept {
  switch (mode) {
    case Mode::automatic: return "automatic";
    case Mode::forced_open: return "forced-open";
    case Mode::forced_closed: return "forced-closed";
    case Mode::disabled: return "disabled";
    case Mode::observe: return "observe";
  }
  return "invalid";
}

[[nodiscard]] constexpr std::string_view to_string(Outcome outcome) noexcept {
  switch (outcome) {
    case Outcome::success: return "success";
    case Outcome::failure: return "failure";
    case Outcome::ignored: return "ignored";
  }
  return "invalid";
}

[[nodiscard]] constexpr std::string_view to_string(Admission admission) noexcept {
  switch (admission) {
    case Admission::allowed: return "allowed";
    case Admission::probe: return "probe";
    case Admission::rejected: return "rejected";
  }
  return "invalid";
}

[[nodiscard]] constexpr std::string_view to_string(TransitionReason reason) noexcept {
  switch (reason) {
    case TransitionReason::none: return "none";
    case TransitionReason::failure_threshold_reached: return "failure-threshold-reached";
    case TransitionReason::cooldown_elapsed: return "cooldown-elapsed";
    case TransitionReason::probe_succeeded: return "probe-succeeded";
    case TransitionReason::probe_failed: return "probe-failed";
    case TransitionReason::forced_open: return "forced-open";
    case TransitionReason::forced_closed: return "forced-closed";
    case TransitionReason::forced_half_open: return "forced-half-open";
    case TransitionReason::failure_rate_reached: return "failure-rate-reached";
    case TransitionReason::consecutive_failures_reached: return "consecutive-failures-reached";
    case TransitionReason::slow_rate_reached: return "slow-rate-reached";
    case TransitionReason::probe_slow: return "probe-slow";
  }
  return "invalid";
}

[[nodiscard]] constexpr std::string_view to_string(EventKind kind) noexcept {
  switch (kind) {
    case EventKind::none: return "none";
    case EventKind::transition: return "transition";
    case EventKind::forced: return "forced";
    case EventKind::mode_change: return "mode-change";
    case EventKind::mode_expired: return "mode-expired";
    case EventKind::settings_replaced: return "settings-replaced";
    case EventKind::ramp_ended: return "ramp-ended";
  }
  return "invalid";
}

[[nodiscard]] constexpr std::string_view to_string(RecordStatus status) noexcept {
  switch (status) {
    case RecordStatus::counted: return "counted";
    case RecordStatus::ignored: return "ignored";
    case RecordStatus::stale: return "stale";
    case RecordStatus::rejected: return "rejected";
  }
  return "invalid";
}

}  // namespace shmcb
