// SPDX-License-Identifier: BSD-3-Clause
// A storage that answers what a test has written down and keeps what it was asked. Copies share the script.
// Not for several threads.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shmcb/storage.hpp"

namespace shmcb::test {

struct Script {
  // Answers in order; where none are left: allowed, counted.
  std::deque<AdmitResult> admits{};
  std::deque<RecordResult> records{};
  ForceResult force{};
  ModeResult mode{};
  SnapshotResult snapshot{};
  CountersResult counters{};
  PeekResult peek{};
  bool degraded = false;

  std::vector<std::string> operations{};  ///< as "admit", "record success", "abandon", "force open"
  std::vector<Token> tokens{};            ///< of the records
};

inline AdmitResult allowed(std::uint64_t period = 1) {
  return {.admission = Admission::allowed, .token = {.period = period, .admission = Admission::allowed}};
}
inline AdmitResult probe(std::uint64_t id) {
  return {.admission = Admission::probe,
          .state = CircuitState::half_open,
          .token = {.period = id, .admission = Admission::probe}};
}
inline AdmitResult rejected(Millis retry_after, CircuitState state = CircuitState::open) {
  return {.admission = Admission::rejected,
          .state = state,
          .token = {.admission = Admission::rejected},
          .retry_after = retry_after,
          .retry_at = Instant{retry_after}};
}
inline CircuitTransition opening() {
  return {.breaker_name = "scripted",
          .from = CircuitState::closed,
          .to = CircuitState::open,
          .reason = TransitionReason::failure_threshold_reached};
}

class ScriptedStorage {
 public:
  explicit ScriptedStorage(std::shared_ptr<Script> script) : script_(std::move(script)) {}

  AdmitResult admit() noexcept {
    script_->operations.emplace_back("admit");
    return next(script_->admits, allowed());
  }
  RecordResult record_outcome(Token token, Outcome outcome, CompletedAt /*completed_at*/ = {}) noexcept {
    script_->operations.push_back("record " + std::string{to_string(outcome)});
    script_->tokens.push_back(token);
    return next(script_->records, RecordResult{.status = RecordStatus::counted});
  }
  RecordResult abandon(Token token) noexcept {
    script_->operations.emplace_back("abandon");
    script_->tokens.push_back(token);
    return next(script_->records, RecordResult{.status = RecordStatus::ignored});
  }
  ForceResult force_state(CircuitState state, const Note& note = {}) noexcept {
    script_->operations.push_back("force " + std::string{to_string(state)});
    if (!note.why.empty()) script_->operations.back() += " because " + std::string{note.why};
    return script_->force;
  }
  ModeResult set_mode(const ModeRequest& request) noexcept {
    script_->operations.push_back("mode " + std::string{to_string(request.mode)});
    return script_->mode;
  }
  CountersResult counters() const noexcept {
    script_->operations.emplace_back("counters");
    return script_->counters;
  }
  SnapshotResult snapshot() const noexcept {
    script_->operations.emplace_back("snapshot");
    return script_->snapshot;
  }
  PeekResult peek() const noexcept {
    script_->operations.emplace_back("peek");
    return script_->peek;
  }
  Instant now() const noexcept { return Instant{}; }
  std::string_view name() const noexcept { return "scripted"; }
  Settings settings() const noexcept { return {}; }
  bool degraded() const noexcept { return script_->degraded; }

 private:
  template <class Answer>
  static Answer next(std::deque<Answer>& answers, Answer otherwise) {
    if (answers.empty()) return otherwise;
    Answer answer = std::move(answers.front());
    answers.pop_front();
    return answer;
  }

  std::shared_ptr<Script> script_;
};

static_assert(Storage<ScriptedStorage>);

}  // namespace shmcb::test
