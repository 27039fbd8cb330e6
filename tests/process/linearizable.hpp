// SPDX-License-Identifier: BSD-3-Clause
// Whether what processes were answered, and when, can be explained by operations that took effect one after the other:
// each between its invocation and its response, each as the reference rules decide it. Found by trying all orders.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "shmcb/core/rules.hpp"
#include "shmcb/memory_storage.hpp"

namespace shmcb::test {

inline constexpr std::size_t kHistoryAttempts = 24;

/// One operation and what came of it.
struct Event {
  enum class Kind : std::uint8_t { admit, record, force };
  struct Change {
    CircuitState from = CircuitState::closed;
    CircuitState to = CircuitState::closed;
    TransitionReason reason = TransitionReason::none;
    rules::Tick at = 0;
    friend auto operator<=>(const Change&, const Change&) = default;
  };
  struct Answer {
    Errc error = Errc::ok;
    Admission admission = Admission::rejected;  ///< of an admit, with the next two
    CircuitState state = CircuitState::closed;
    rules::Tick retry_after = 0;
    RecordStatus status = RecordStatus::stale;  ///< of a record
    std::optional<Change> change{};
  };

  Kind kind = Kind::admit;
  std::size_t attempt = 0;  ///< that it begins or ends
  Outcome outcome = Outcome::success;
  CircuitState to = CircuitState::closed;
  rules::Tick now = 0;
  std::uint64_t invoked = 0;
  std::uint64_t responded = 0;
  Answer answer{};
};

/// The rules as MemoryStorage applies them, as a value. No modes, no ramp, no jitter.
class SequentialBreaker {
 public:
  explicit SequentialBreaker(const BreakerConfig& config) : settings_(settings_of(config)), window_(settings_.window) {}

  [[nodiscard]] Event::Answer apply(const Event& event) {
    switch (event.kind) {
      case Event::Kind::admit: return admit(attempts_.at(event.attempt), event.now);
      case Event::Kind::record: return record(attempts_.at(event.attempt), event.outcome, event.now);
      case Event::Kind::force: break;
    }
    Event::Answer answer;
    carry_out(rules::force(breaker_, settings_, event.now, event.to, 0), answer);
    return answer;
  }

  /// As `snapshot` shows it.
  [[nodiscard]] StateRecord seen() const {
    StateRecord out{.state = breaker_.state, .rejected = rejected_};
    if (breaker_.state == CircuitState::half_open) {
      out.successes = breaker_.probe_successes;
    } else {
      out.failures = window_.counts().failures;
      out.successes = window_.counts().entries - out.failures;
    }
    return out;
  }

  /// Two breakers of the same words go on in the same way.
  [[nodiscard]] std::string words() const {
    std::string text;
    const auto add = [&text](auto value) {
      const auto wide = static_cast<std::uint64_t>(value);
      text.append(reinterpret_cast<const char*>(&wide), sizeof wide);
    };
    add(breaker_.state);
    add(breaker_.opened_at);
    add(breaker_.open_until);
    add(breaker_.lease_at);
    add(breaker_.probe_successes);
    add(rejected_);
    add(generation_);
    for (std::uint32_t i = 0; i < breaker_.probes.count; ++i)
      add(breaker_.probes.id[i]);
    for (const Token& token : attempts_) {
      add(token.admission);
      add(token.period);
    }
    for (const Entry& entry : log_) {
      add(entry.at);
      add(entry.failure);
    }
    return text;
  }

 private:
  struct Entry {
    rules::Tick at = 0;
    bool failure = false;
  };

  [[nodiscard]] Event::Answer admit(Token& token, rules::Tick now) {
    Event::Answer answer{.admission = Admission::allowed};
    token = {.period = generation_, .admission = Admission::allowed};
    if (breaker_.state == CircuitState::closed) return answer;
    const rules::AdmitDecision decision = rules::admit(
        breaker_, settings_, now, {.ids = {.on_transition = next_probe_, .within_generation = next_probe_}});
    rejected_ += decision.turned == rules::Turned::by_outage ? 1U : 0U;
    carry_out(decision.effects, answer);
    answer.admission = decision.admission;
    answer.state = breaker_.state;
    answer.retry_after = decision.retry_after;
    token = {.period = generation_, .admission = decision.admission};
    if (decision.admission == Admission::probe) token.period = next_probe_++;
    return answer;
  }

  [[nodiscard]] Event::Answer record(const Token& token, Outcome outcome, rules::Tick now) {
    Event::Answer answer;
    if (token.admission == Admission::rejected) {
      answer.status = RecordStatus::rejected;
    } else if (token.admission == Admission::probe) {
      const rules::RecordDecision decision =
          rules::record_probe(breaker_, settings_, now, {.probe = token.period, .outcome = outcome});
      answer.status = decision.status;
      carry_out(decision.effects, answer);
    } else if (outcome == Outcome::ignored) {
      answer.status = RecordStatus::ignored;
    } else if (breaker_.state == CircuitState::closed && token.period == generation_) {
      answer.status = RecordStatus::counted;
      enter(outcome == Outcome::failure, now, answer);
    }
    return answer;
  }

  void enter(bool failure, rules::Tick now, Event::Answer& answer) {
    rules::Tick at = rules::not_before(breaker_, now);
    at = std::max(at, window_.newest_or(at));
    window_.drop_older_than(at - settings_.within_ms);
    window_.push(at, failure, false);
    log_.push_back({.at = at, .failure = failure});
    const TransitionReason reason = rules::opens(settings_, window_.counts(), failure);
    if (reason != TransitionReason::none) carry_out(rules::trip(breaker_, settings_, at, reason, 0), answer);
  }

  void carry_out(const rules::Effects& effects, Event::Answer& answer) {
    if (effects.change == rules::Change::transition) ++generation_;
    if (effects.empties_window) {
      window_.clear();
      log_.clear();
    }
    if (effects.resets_rejected) rejected_ = 0;
    if (effects.reason == TransitionReason::none) return;
    answer.change = {.from = effects.from, .to = breaker_.state, .reason = effects.reason, .at = effects.at};
  }

  Settings settings_;
  rules::Breaker breaker_{};
  detail::OutcomeWindow window_;
  std::vector<Entry> log_;  ///< what has entered the window since it was last emptied
  std::uint64_t rejected_ = 0;
  std::uint64_t generation_ = 1;
  std::uint64_t next_probe_ = 1;
  std::array<Token, kHistoryAttempts> attempts_{};
};

/// What a few processes did at the same time, each one thing after the other, and what was seen afterwards.
struct History {
  std::vector<std::vector<Event>> processes;
  StateRecord after{};
};

/// Searches for an order. (docs/design.md, "What linearizes where": who reports a transition is whoever makes it, so
/// transitions are compared over the whole history.)
class LinearizabilityCheck {
 public:
  LinearizabilityCheck(const SequentialBreaker& before, const History& history) : history_(history) {
    next_.resize(history.processes.size());
    for (const auto& process : history.processes) {
      for (const Event& event : process) {
        if (event.answer.change) reported_.push_back(*event.answer.change);
      }
    }
    std::sort(reported_.begin(), reported_.end());
    explained_ = search(before);
  }

  [[nodiscard]] bool explained() const { return explained_; }
  [[nodiscard]] std::uint64_t tried() const { return tried_; }

 private:
  [[nodiscard]] bool search(const SequentialBreaker& breaker) {
    bool all_done = true;
    if (!seen_.insert(words_of(breaker)).second) return false;
    for (std::size_t p = 0; p < next_.size(); ++p) {
      const auto& process = history_.processes[p];
      if (next_[p] == process.size()) continue;
      all_done = false;
      if (!may_be_next(p)) continue;
      const Event& event = process[next_[p]];
      SequentialBreaker after = breaker;
      const Event::Answer answer = after.apply(event);
      ++tried_;
      if (!agrees(event, answer)) continue;
      if (answer.change) made_.push_back(*answer.change);
      ++next_[p];
      if (search(after)) return true;
      --next_[p];
      if (answer.change) made_.pop_back();
    }
    return all_done && ends_as_seen(breaker);
  }

  /// What the rest of the search depends on.
  [[nodiscard]] std::string words_of(const SequentialBreaker& breaker) const {
    std::string words = breaker.words();
    for (const std::size_t next : next_)
      words.push_back(static_cast<char>(next));
    std::vector<Event::Change> made = made_;
    std::sort(made.begin(), made.end());
    for (const Event::Change& change : made) {
      words.append(to_string(change.from)).append(to_string(change.to)).append(to_string(change.reason));
      words.append(std::to_string(change.at));
    }
    return words;
  }

  /// Nobody else's next operation had come back before this one was called.
  [[nodiscard]] bool may_be_next(std::size_t p) const {
    const std::uint64_t invoked = history_.processes[p][next_[p]].invoked;
    for (std::size_t q = 0; q < next_.size(); ++q) {
      const auto& other = history_.processes[q];
      if (q != p && next_[q] < other.size() && other[next_[q]].responded < invoked) return false;
    }
    return true;
  }

  [[nodiscard]] bool agrees(const Event& event, const Event::Answer& answer) const {
    const Event::Answer& seen = event.answer;
    if (seen.error != Errc::ok) return false;
    switch (event.kind) {
      case Event::Kind::admit:
        return seen.admission == answer.admission && seen.state == answer.state &&
               seen.retry_after == answer.retry_after;
      case Event::Kind::record:
        return seen.status == answer.status ||
               (seen.status == RecordStatus::counted && answer.status == RecordStatus::stale && cannot_tell(event));
      case Event::Kind::force: break;
    }
    return true;
  }
  /// A failure whose opening came too late, while the breaker went through more than one transition: what it is told is
  /// only likely (AppendOutcome::ended_by).
  [[nodiscard]] bool cannot_tell(const Event& event) const {
    if (event.outcome != Outcome::failure) return false;
    std::size_t transitions = 0;
    for (const auto& process : history_.processes) {
      transitions += static_cast<std::size_t>(std::count_if(process.begin(), process.end(), [&](const Event& other) {
        const bool beside = other.invoked < event.responded && event.invoked < other.responded;
        return beside && &other != &event && (other.kind == Event::Kind::force || other.answer.change);
      }));
    }
    return transitions > 1;
  }

  [[nodiscard]] bool ends_as_seen(const SequentialBreaker& breaker) const {
    std::vector<Event::Change> made = made_;
    std::sort(made.begin(), made.end());
    const StateRecord record = breaker.seen();
    return made == reported_ && record.state == history_.after.state && record.successes == history_.after.successes &&
           record.failures == history_.after.failures && record.rejected == history_.after.rejected;
  }

  const History& history_;
  std::vector<std::size_t> next_;  ///< of each process, the first operation that has no place yet
  std::vector<Event::Change> reported_;
  std::vector<Event::Change> made_;
  std::unordered_set<std::string> seen_;
  std::uint64_t tried_ = 0;
  bool explained_ = false;
};

[[nodiscard]] inline std::string text_of(const Event& event) {
  std::string text = std::to_string(event.invoked) + "-" + std::to_string(event.responded) + " at " +
                     std::to_string(event.now) + " ms: ";
  const Event::Answer& answer = event.answer;
  switch (event.kind) {
    case Event::Kind::admit:
      text.append("admit ").append(std::to_string(event.attempt)).append(": ").append(to_string(answer.admission));
      text.append(" in ").append(to_string(answer.state)).append(", retry after ");
      text += std::to_string(answer.retry_after);
      break;
    case Event::Kind::record:
      text.append(to_string(event.outcome)).append(" of ").append(std::to_string(event.attempt)).append(": ");
      text.append(to_string(answer.status));
      break;
    case Event::Kind::force: text.append("force ").append(to_string(event.to)); break;
  }
  if (answer.error != Errc::ok) text.append(", error ").append(to_string(answer.error));
  if (answer.change) {
    text.append(" [").append(to_string(answer.change->from)).append("->").append(to_string(answer.change->to));
    text.append(" ").append(to_string(answer.change->reason)).append(" at ").append(std::to_string(answer.change->at));
    text += "]";
  }
  return text;
}
[[nodiscard]] inline std::string text_of(const History& history) {
  std::string text;
  for (std::size_t p = 0; p < history.processes.size(); ++p) {
    text += "process " + std::to_string(p) + ":\n";
    for (const Event& event : history.processes[p])
      text += "  " + text_of(event) + "\n";
  }
  text.append("afterwards ").append(to_string(history.after.state));
  return text + ", " + std::to_string(history.after.successes) + " s, " + std::to_string(history.after.failures) +
         " f, " + std::to_string(history.after.rejected) + " rejected\n";
}

}  // namespace shmcb::test
