// SPDX-License-Identifier: BSD-3-Clause
// Scripts of breaker operations that run on any storage and answer in text, so that a shared-memory breaker can be
// compared, answer by answer, with the reference rules (MemoryStorage).
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "shmcb/storage.hpp"
#include "shmcb/time.hpp"

namespace shmcb::test {

/// One operation. `attempt` names a place in the runner's list of tokens.
struct Op {
  enum class Kind : std::uint8_t { admit, record, abandon, force, mode, replace, advance, snapshot, peek, counters };
  Kind kind = Kind::snapshot;
  std::size_t attempt = 0;
  Outcome outcome = Outcome::success;
  CircuitState to = CircuitState::closed;
  Mode mode = Mode::automatic;
  Millis by{0};  ///< of a mode: when it ends by itself; 0: not
};

inline constexpr std::size_t kAttempts = 16;
inline constexpr Op kSnapshot{};
[[nodiscard]] constexpr Op admit_as(std::size_t attempt) {
  return {.kind = Op::Kind::admit, .attempt = attempt};
}
[[nodiscard]] constexpr Op success_of(std::size_t attempt) {
  return {.kind = Op::Kind::record, .attempt = attempt, .outcome = Outcome::success};
}
[[nodiscard]] constexpr Op failure_of(std::size_t attempt) {
  return {.kind = Op::Kind::record, .attempt = attempt, .outcome = Outcome::failure};
}
[[nodiscard]] constexpr Op ignored_of(std::size_t attempt) {
  return {.kind = Op::Kind::record, .attempt = attempt, .outcome = Outcome::ignored};
}
[[nodiscard]] constexpr Op force_to(CircuitState to) {
  return {.kind = Op::Kind::force, .to = to};
}
[[nodiscard]] constexpr Op abandon(std::size_t attempt) {
  return {.kind = Op::Kind::abandon, .attempt = attempt};
}
[[nodiscard]] constexpr Op set_mode(Mode mode, Millis expires_after = Millis{0}) {
  return {.kind = Op::Kind::mode, .mode = mode, .by = expires_after};
}
[[nodiscard]] constexpr Op advance_by(Millis by) {
  return {.kind = Op::Kind::advance, .by = by};
}
inline constexpr Op kPeek{.kind = Op::Kind::peek};
inline constexpr Op kCounters{.kind = Op::Kind::counters};
/// Writes the settings that the scenario knows: only the one under test does that.
inline constexpr Op kReplaceSettings{.kind = Op::Kind::replace};

using Script = std::vector<Op>;
using Answers = std::vector<std::string>;
using Tokens = std::array<Token, kAttempts>;

[[nodiscard]] inline Script operator+(Script first, const Script& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}
[[nodiscard]] inline Script times(std::size_t count, const Script& script) {
  Script out;
  for (std::size_t i = 0; i < count; ++i)
    out.insert(out.end(), script.begin(), script.end());
  return out;
}

/// When every script begins, on the storage's clock.
inline constexpr Instant kScriptStart{std::chrono::hours{1}};

[[nodiscard]] inline std::string text_of(const StateRecord& record) {
  std::string text{to_string(record.state)};
  text += record.opened_at ? " opened " + std::to_string((*record.opened_at - kScriptStart).count()) + "us"
                           : " never opened";
  text += ", " + std::to_string(record.successes) + " s, " + std::to_string(record.failures) + " f, " +
          std::to_string(record.rejected) + " rejected";
  return text;
}

[[nodiscard]] inline std::string text_of(const std::optional<CircuitTransition>& transition) {
  if (!transition) return {};
  std::string text{" ["};
  text.append(to_string(transition->from)).append("->").append(to_string(transition->to)).append(" ");
  text.append(to_string(transition->reason)).append(" at ");
  text += std::to_string((transition->occurred_at - kScriptStart).count()) + "us: " + text_of(transition->state) + "]";
  return text;
}

[[nodiscard]] inline std::string text_of(Errc error) {
  return error == Errc::ok ? std::string{} : " error " + std::string{to_string(error)};
}

template <Storage S>
class ScriptRunner {
 public:
  ScriptRunner(S storage, FakeClock clock) : storage_(std::move(storage)), clock_(std::move(clock)) {}

  std::string run(const Op& op) {
    switch (op.kind) {
      case Op::Kind::admit: {
        const AdmitResult r = storage_.admit();
        tokens_[op.attempt] = r.token;
        std::string text{to_string(r.admission)};
        text.append(" in ").append(to_string(r.state));
        if (r.admission == Admission::rejected) text += ", retry after " + std::to_string(r.retry_after.count()) + "ms";
        return text + text_of(r.error) + text_of(r.transition);
      }
      case Op::Kind::record: {
        const RecordResult r = storage_.record_outcome(tokens_[op.attempt], op.outcome);
        return std::string{to_string(r.status)} + text_of(r.error) + text_of(r.transition);
      }
      case Op::Kind::force: {
        const ForceResult r = storage_.force_state(op.to);
        return "forced" + text_of(r.error) + text_of(r.transition);
      }
      case Op::Kind::abandon: {
        const RecordResult r = storage_.abandon(tokens_[op.attempt]);
        return std::string{to_string(r.status)} + text_of(r.error) + text_of(r.transition);
      }
      case Op::Kind::mode: {
        ModeRequest request{.mode = op.mode};
        if (op.by.count() != 0) request.expires_after = op.by;
        const ModeResult r = storage_.set_mode(request);
        return "set after " + std::string{to_string(r.previous)} + text_of(r.error);
      }
      case Op::Kind::advance: clock_.advance(op.by); return "time goes on";
      case Op::Kind::snapshot: {
        const SnapshotResult r = storage_.snapshot();
        // As of now: when that it has ended is written down is nobody's business.
        const Mode mode = storage_.peek().mode;
        const std::string in_mode = mode == Mode::automatic ? "" : ", " + std::string{to_string(mode)};
        return text_of(r.record) + in_mode + text_of(r.error);
      }
      case Op::Kind::peek: return std::string{to_string(storage_.peek().state)};
      case Op::Kind::counters: return "counters" + text_of(storage_.counters().error);
      case Op::Kind::replace: break;
    }
    return "settings replaced";
  }

  Answers run(const Script& script) {
    Answers answers;
    answers.reserve(script.size());
    for (const Op& op : script)
      answers.push_back(run(op));
    return answers;
  }

  [[nodiscard]] S& storage() { return storage_; }
  [[nodiscard]] FakeClock& clock() { return clock_; }
  [[nodiscard]] const Tokens& tokens() const { return tokens_; }

 private:
  S storage_;
  FakeClock clock_;
  Tokens tokens_{};
};

}  // namespace shmcb::test
