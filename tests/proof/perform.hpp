// SPDX-License-Identifier: BSD-3-Clause
// An operation of a history carried out on a breaker's cell, as the shared-memory storage does it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "proof/reference.hpp"
#include "shmcb/core/breaker_cell.hpp"

namespace shmcb::proof {

using Tokens = std::array<Token, kTokens>;

/// As the answer to a snapshot.
[[nodiscard]] inline Answer shown(const core::CellState& state) {
  return {.error = Errc::ok,
          .admission = Admission::rejected,
          .state = state.state,
          .status = RecordStatus::stale,
          .mode = state.mode,
          .ramping = state.ramping,
          .opened_at = state.opened_at,
          .successes = state.successes,
          .failures = state.failures,
          .slow = state.slow,
          .rejected = state.rejected,
          .successes_at_least = state.successes_at_least};
}

/// Who performs: what belongs to a process and not to the segment.
struct Performer {
  const std::vector<Settings>* settings = nullptr;  ///< that `replace` chooses from
  core::LocalNotes* notes = nullptr;
  std::uint32_t chance = 0;
};

template <class Env, class Keep>
void perform_admit(const core::BreakerCell<Env>& cell, const Op& op, std::uint32_t chance, Token& token, Answer& answer,
                   Keep keep) {
  token = {.period = kVoidPeriod, .admission = Admission::rejected};
  answer.admission = Admission::allowed;
  const std::uint32_t started = rules::started_at(op.at);
  std::uint64_t period = 0;
  if (cell.allowed(period)) {
    token = {.period = period, .admission = Admission::allowed};
    return;
  }
  if (cell.stands_aside(answer.state)) return;
  answer.state = CircuitState::closed;
  if (cell.allowed_timed(period)) {
    token = {.period = period, .started = started, .admission = Admission::allowed};
    return;
  }
  core::TurnedAway away;
  if (cell.turned_away(static_cast<core::Bits>(op.at) * 1'000, away)) {
    token = {};
    answer.admission = Admission::rejected;
    answer.state = CircuitState::open;
    answer.retry_at = away.retry_at;
    answer.retry_after = away.retry_after;
    return;
  }
  const core::CellAdmit a = cell.admit(static_cast<core::Bits>(op.at) * 1'000, [chance]() noexcept { return chance; });
  keep(a.error, a.transition);
  answer.admission = a.admission;
  answer.state = a.state;
  if (a.counts) token = {.period = a.period, .started = started, .admission = a.admission};
  if (a.admission == Admission::rejected) {
    answer.retry_at = a.retry_at;
    answer.retry_after = a.retry_after;
  }
}

template <class Env, class Keep>
void perform_record(const core::BreakerCell<Env>& cell, const Op& op, const Performer& by, const Token& token,
                    Answer& answer, Keep keep) {
  const auto now_us = static_cast<core::Bits>(op.at) * 1'000;
  if (token.admission == Admission::rejected) {
    answer.status = token.period == kVoidPeriod ? RecordStatus::ignored : RecordStatus::rejected;
    return;
  }
  if (token.admission == Admission::allowed && op.outcome == Outcome::ignored) {
    cell.count_ignored();
    answer.status = RecordStatus::ignored;
    return;
  }
  if (token.admission == Admission::allowed) {
    const bool success = op.outcome == Outcome::success;
    if ((success && cell.leaves_out_success(token.period)) ||
        (success ? cell.template count_plainly<false>(token.period, now_us, *by.notes)
                 : cell.template count_plainly<true>(token.period, now_us, *by.notes))) {
      answer.status = RecordStatus::counted;
      return;
    }
  }
  const core::CellRecord r =
      token.admission == Admission::probe
          ? cell.record_probe(
                {.probe = token.period, .outcome = op.outcome, .started = token.started, .draw = by.chance}, now_us)
          : cell.record_allowed({.period = token.period,
                                 .started = token.started,
                                 .failure = op.outcome == Outcome::failure,
                                 .now_us = now_us},
                                *by.notes, [chance = by.chance]() noexcept { return chance; });
  answer.status = r.status;
  keep(r.error, r.transition);
  if (r.error != Errc::ok || r.in_ring) return;
  if (r.status == RecordStatus::stale) cell.count_stale();
  if (r.status == RecordStatus::ignored) cell.count_ignored();
}

/// Puts the answer and what is reported into the event.
template <class Env>
void perform(const core::BreakerCell<Env>& cell, const Op& op, const Performer& by, Tokens& tokens, Event& event) {
  const auto now_us = static_cast<core::Bits>(op.at) * 1'000;
  const auto draw = [chance = by.chance]() noexcept { return chance; };
  Answer& answer = event.answer;
  const auto keep = [&event](Errc error, const std::optional<core::CellTransition>& transition) {
    event.answer.error = error;
    if (!transition) return;
    event.transition = {transition->reason, transition->from, transition->after.state, transition->at};
    event.after = shown(transition->after);
  };
  switch (op.kind) {
    case Op::Kind::admit: perform_admit(cell, op, by.chance, tokens[op.token], answer, keep); break;
    case Op::Kind::record: perform_record(cell, op, by, tokens[op.token], answer, keep); break;
    case Op::Kind::force: {
      const core::CellRecord r = cell.force(op.to, now_us, draw);
      keep(r.error, r.transition);
      break;
    }
    case Op::Kind::mode: {
      const core::CellMode m =
          cell.set_mode(op.mode, op.lasts == rules::kNever ? op.lasts : op.at + op.lasts, {}, now_us);
      answer.error = m.error;
      answer.mode = m.previous;
      break;
    }
    case Op::Kind::replace: answer.error = cell.replace_settings((*by.settings)[op.settings], now_us, draw); break;
    case Op::Kind::snapshot: {
      core::CellState state;
      const Errc error = cell.snapshot(state);
      answer = shown(state);
      answer.error = error;
      break;
    }
  }
}

}  // namespace shmcb::proof
