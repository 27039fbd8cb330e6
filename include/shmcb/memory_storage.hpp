// SPDX-License-Identifier: BSD-3-Clause
// A breaker in the memory of one process: the rules as they are, under a mutex. Copies of a handle share the state.
// Allocates in `open` only; works without exceptions and without RTTI.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shmcb/config.hpp"
#include "shmcb/core/rules.hpp"
#include "shmcb/error.hpp"
#include "shmcb/random.hpp"
#include "shmcb/storage.hpp"
#include "shmcb/time.hpp"
#include "shmcb/types.hpp"

namespace shmcb {

namespace detail {

/// The newest outcomes of one Closed period in the order they were recorded. Invariant: times never decrease, so the
/// oldest by position is the oldest by time.
class OutcomeWindow {
 public:
  explicit OutcomeWindow(std::uint32_t capacity) : entries_(capacity) {}

  /// When the newest outcome was recorded; `otherwise` where there is none.
  [[nodiscard]] rules::Tick newest_or(rules::Tick otherwise) const noexcept {
    return counts_.entries == 0 ? otherwise : entries_[index(counts_.entries - 1)].at;
  }
  [[nodiscard]] const rules::WindowCounts& counts() const noexcept { return counts_; }

  void clear() noexcept {
    oldest_ = 0;
    counts_ = {};
  }
  void drop_older_than(rules::Tick at) noexcept {
    while (counts_.entries > 0 && entries_[oldest_].at < at)
      drop_oldest();
  }
  /// Requires at >= newest_or(at).
  void push(rules::Tick at, bool failure, bool slow) noexcept {
    if (counts_.entries == entries_.size()) drop_oldest();
    entries_[index(counts_.entries)] = {.at = at, .failure = failure, .slow = slow};
    counts_.add_newest(failure, slow);
  }

 private:
  struct Entry {
    rules::Tick at = 0;
    bool failure = false;
    bool slow = false;
  };

  [[nodiscard]] std::size_t index(std::size_t position) const noexcept {
    return (oldest_ + position) % entries_.size();
  }
  void drop_oldest() noexcept {
    const Entry& entry = entries_[oldest_];
    counts_.drop_oldest(entry.failure, entry.slow);
    oldest_ = index(1);
  }

  std::vector<Entry> entries_;
  std::size_t oldest_ = 0;
  rules::WindowCounts counts_{};
};

}  // namespace detail

/// The state of one breaker, shared by all copies of this handle and by nobody else. Safe from any thread: what
/// happened before an operation of one thread is seen by every later operation of another. A child forked while another
/// thread is inside an operation inherits a locked mutex: there, open a new one.
template <Clock C = SystemClock, Random R = SystemRandom>
class MemoryStorage {
 public:
  static constexpr std::uint32_t kMaxWindow = std::uint32_t{1} << 20U;  ///< arbitrary; 16 MiB of outcomes

  /// A fresh Closed breaker, or the error that names the field, the value and the rule.
  [[nodiscard]] static Result<MemoryStorage> open(BreakerConfig config, C clock = C(), R random = R()) {
    if (Error error = check(config)) return error;
    if (config.failure_threshold.window > kMaxWindow) {
      return detail::bad_field("failure_threshold.window", std::to_string(config.failure_threshold.window),
                               "at most " + std::to_string(kMaxWindow) + " in a memory storage");
    }
    return MemoryStorage{std::make_shared<Shared>(std::move(config), std::move(clock), std::move(random))};
  }

  [[nodiscard]] AdmitResult admit() noexcept {
    const std::lock_guard lock{shared_->mutex};
    return shared_->admit();
  }
  [[nodiscard]] RecordResult record_outcome(Token token, Outcome outcome, CompletedAt completed_at = {}) noexcept {
    const std::lock_guard lock{shared_->mutex};
    return shared_->record_outcome(token, outcome, completed_at);
  }
  [[nodiscard]] RecordResult abandon(Token token) noexcept {
    const std::lock_guard lock{shared_->mutex};
    if (token.admission != Admission::rejected && shared_->counting()) ++shared_->totals.abandoned;
    return shared_->record_outcome(token, Outcome::ignored, {});
  }
  [[nodiscard]] ForceResult force_state(CircuitState state, const Note& note = {}) noexcept {
    if (check(note)) return {.error = Errc::invalid_config};
    const std::lock_guard lock{shared_->mutex};
    return {.transition = shared_->force(state)};
  }
  [[nodiscard]] ModeResult set_mode(const ModeRequest& request) noexcept {
    if (check(request)) return {.error = Errc::invalid_config};
    const std::lock_guard lock{shared_->mutex};
    return {.previous = shared_->set_mode(request)};
  }
  [[nodiscard]] SnapshotResult snapshot() const noexcept {
    const std::lock_guard lock{shared_->mutex};
    return {.record = shared_->record()};
  }
  [[nodiscard]] CountersResult counters() const noexcept {
    const std::lock_guard lock{shared_->mutex};
    return {.counters = shared_->counters()};
  }
  [[nodiscard]] PeekResult peek() const noexcept {
    const std::lock_guard lock{shared_->mutex};
    return shared_->peek();
  }
  [[nodiscard]] Instant now() const noexcept { return shared_->clock.now(); }
  [[nodiscard]] std::string_view name() const noexcept { return shared_->name; }
  [[nodiscard]] Settings settings() const noexcept { return shared_->settings; }
  [[nodiscard]] bool degraded() const noexcept { return false; }

 private:
  /// Everything behind the mutex (name and settings never change). Its functions require the lock.
  struct Shared {
    Shared(BreakerConfig config, C source, R chance)
        : name(std::move(config.name)),
          settings(settings_of(config)),
          clock(std::move(source)),
          random(std::move(chance)),
          window(settings.window) {
      breaker.since = now();
    }

    /// A clock that starts below zero counts as zero: a negative tick could be taken for `rules::kNever`.
    [[nodiscard]] rules::Tick now(CompletedAt completed_at = {}) const noexcept {
      const Instant instant = completed_at ? *completed_at : clock.now();
      return std::max<rules::Tick>(0, std::chrono::floor<Millis>(instant.time_since_epoch()).count());
    }
    [[nodiscard]] static Instant instant(rules::Tick tick) noexcept { return Instant{Millis{tick}}; }
    [[nodiscard]] bool counting() const noexcept { return breaker.mode != Mode::disabled; }

    [[nodiscard]] AdmitResult admit() noexcept {
      const Token void_token{.period = kVoidPeriod, .admission = Admission::rejected};
      if (rules::stands_aside(breaker)) {  // without reading the clock, and so is the next
        return {.admission = Admission::allowed, .state = breaker.state, .token = void_token};
      }
      const bool plain = breaker.state == CircuitState::closed && breaker.mode == Mode::automatic && !breaker.ramping;
      if (plain && !settings.times_calls()) return allowed(0);
      const rules::Tick at = now();
      if (plain) return allowed(rules::started_at(at));
      while (rules::settle(breaker, settings, at).change != rules::Change::nothing) {
      }
      const rules::AdmitDecision decision =
          rules::admit(breaker, settings, at,
                       {.ids = {.on_transition = next_probe, .within_generation = next_probe}, .draw = random.draw()});
      if (decision.turned == rules::Turned::by_outage) {
        ++rejected;
        ++totals.rejected;
      }
      if (decision.turned == rules::Turned::by_ramp) ++totals.ramp_rejected;
      AdmitResult result{.admission = decision.admission, .token = void_token};
      result.transition = carry_out(decision.effects);
      result.state = breaker.state;
      result.retry_after = Millis{decision.retry_after};
      if (decision.admission == Admission::rejected) result.retry_at = instant(decision.retry_at);
      if (decision.counts) {
        result.token = {.period = generation, .started = rules::started_at(at), .admission = decision.admission};
        if (decision.admission == Admission::probe) result.token.period = next_probe++;
      }
      return result;
    }

    [[nodiscard]] AdmitResult allowed(std::uint32_t started) const noexcept {
      return {.admission = Admission::allowed,
              .state = CircuitState::closed,
              .token = {.period = generation, .started = started, .admission = Admission::allowed}};
    }

    [[nodiscard]] RecordResult record_outcome(const Token& token, Outcome outcome, CompletedAt completed_at) noexcept {
      RecordResult result;
      switch (token.admission) {
        case Admission::allowed: result = record_allowed(token, outcome, completed_at); break;
        case Admission::probe: {
          const rules::RecordDecision decision = rules::record_probe(
              breaker, settings, now(completed_at),
              {.probe = token.period, .outcome = outcome, .started = token.started, .draw = random.draw()});
          result = {.status = decision.status, .transition = carry_out(decision.effects)};
          break;
        }
        case Admission::rejected:
          return {.status = token.period == kVoidPeriod ? RecordStatus::ignored : RecordStatus::rejected};
      }
      if (counting()) {
        if (result.status == RecordStatus::ignored) ++totals.ignored;
        if (result.status == RecordStatus::stale) ++totals.stale;
      }
      return result;
    }

    [[nodiscard]] RecordResult record_allowed(const Token& token, Outcome outcome, CompletedAt completed_at) noexcept {
      if (outcome == Outcome::ignored) return {.status = RecordStatus::ignored};
      if (breaker.state != CircuitState::closed || token.period != generation) return {.status = RecordStatus::stale};
      const rules::Tick completed = now(completed_at);
      const Mode mode = rules::mode_at(breaker, completed);
      if (mode == Mode::disabled) return {.status = RecordStatus::ignored};
      rules::Tick at = rules::not_before(breaker, completed);
      at = std::max(at, window.newest_or(at));
      const bool failure = outcome == Outcome::failure;
      window.drop_older_than(at - settings.within_ms);
      window.push(at, failure, rules::is_slow(settings, token.started, completed));
      ++(failure ? totals.failures : totals.successes);
      RecordResult result{.status = RecordStatus::counted};
      if (mode == Mode::forced_closed) return result;
      const TransitionReason reason = rules::opens(settings, window.counts(), failure);
      if (reason != TransitionReason::none) {
        result.transition = carry_out(rules::trip(breaker, settings, at, reason, random.draw()));
      }
      return result;
    }

    [[nodiscard]] std::optional<CircuitTransition> force(CircuitState state) noexcept {
      return carry_out(rules::force(breaker, settings, now(), state, random.draw()));
    }

    [[nodiscard]] Mode set_mode(const ModeRequest& request) noexcept {
      const rules::Tick at = now();
      const Mode previous = rules::mode_at(breaker, at);
      const rules::Tick until = request.expires_after ? at + request.expires_after->count() : rules::kNever;
      (void)carry_out(rules::set_mode(breaker, at, request.mode, until));
      return previous;
    }

    [[nodiscard]] std::optional<CircuitTransition> carry_out(const rules::Effects& effects) noexcept {
      if (effects.change == rules::Change::transition) ++generation;
      if (effects.empties_window) window.clear();
      if (effects.resets_rejected) rejected = 0;
      if (effects.reason == TransitionReason::none) return std::nullopt;
      return CircuitTransition{.breaker_name = name,
                               .from = effects.from,
                               .to = breaker.state,
                               .reason = effects.reason,
                               .occurred_at = instant(effects.at),
                               .state = record()};
    }

    [[nodiscard]] StateRecord record() const noexcept {
      StateRecord out{.state = breaker.state, .rejected = rejected, .mode = breaker.mode, .ramping = breaker.ramping};
      if (breaker.opened_at != rules::kNever) out.opened_at = instant(breaker.opened_at);
      if (breaker.state == CircuitState::half_open) {
        out.successes = breaker.probe_successes;
      } else {
        out.failures = window.counts().failures;
        out.successes = window.counts().entries - out.failures;
        out.slow = window.counts().slow;
      }
      return out;
    }

    [[nodiscard]] Counters counters() const noexcept {
      Counters out = totals;
      const rules::Tally& tally = breaker.tally;
      out.probes = tally.probes;
      out.probe_verdicts = tally.probe_verdicts;
      out.completed = out.successes + out.failures + out.probe_verdicts + out.ignored + out.stale;
      std::copy(tally.transitions.begin(), tally.transitions.end(), out.transitions.begin());
      auto spent = tally.spent;
      spent[static_cast<std::size_t>(breaker.state)] += rules::lasted(breaker, now());
      out.in_closed = Millis{spent[0]};
      out.in_open = Millis{spent[1]};
      out.in_half_open = Millis{spent[2]};
      return out;
    }

    [[nodiscard]] PeekResult peek() const noexcept {
      PeekResult out{.state = breaker.state, .mode = breaker.mode};
      if (breaker.state != CircuitState::open && breaker.mode_until == rules::kNever) return out;
      const rules::Tick at = now();
      out.mode = rules::mode_at(breaker, at);
      if (breaker.state == CircuitState::open) {
        out.cooldown_left = Millis{std::max<rules::Tick>(0, breaker.open_until - rules::not_before(breaker, at))};
      }
      return out;
    }

    const std::string name;
    const Settings settings;
    const C clock;
    const R random;
    std::mutex mutex;
    rules::Breaker breaker;
    detail::OutcomeWindow window;
    std::uint64_t rejected = 0;
    Counters totals{};
    // One step per transition or probe: 64 bits do not come round.
    std::uint64_t generation = 1;
    std::uint64_t next_probe = 1;
  };

  explicit MemoryStorage(std::shared_ptr<Shared> shared) noexcept : shared_(std::move(shared)) {}

  std::shared_ptr<Shared> shared_;
};

static_assert(Storage<MemoryStorage<>>);

}  // namespace shmcb
