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
    return size_ == 0 ? otherwise : entries_[index(size_ - 1)].at;
  }
  [[nodiscard]] std::uint64_t failures() const noexcept { return failures_; }
  [[nodiscard]] std::uint64_t successes() const noexcept { return size_ - failures_; }

  void clear() noexcept { oldest_ = size_ = failures_ = 0; }
  void drop_older_than(rules::Tick at) noexcept {
    while (size_ > 0 && entries_[oldest_].at < at)
      drop_oldest();
  }
  /// Requires at >= newest_or(at).
  void push(rules::Tick at, bool failure) noexcept {
    if (size_ == entries_.size()) drop_oldest();
    entries_[index(size_)] = {.at = at, .failure = failure};
    ++size_;
    if (failure) ++failures_;
  }

 private:
  struct Entry {
    rules::Tick at = 0;
    bool failure = false;
  };

  [[nodiscard]] std::size_t index(std::size_t position) const noexcept {
    return (oldest_ + position) % entries_.size();
  }
  void drop_oldest() noexcept {
    if (entries_[oldest_].failure) --failures_;
    oldest_ = index(1);
    --size_;
  }

  std::vector<Entry> entries_;
  std::size_t oldest_ = 0;
  std::size_t size_ = 0;
  std::size_t failures_ = 0;
};

}  // namespace detail

/// The state of one breaker, shared by all copies of this handle and by nobody else. Safe from any thread: what
/// happened before an operation of one thread is seen by every later operation of another. A child forked while another
/// thread is inside an operation inherits a locked mutex: there, open a new one.
template <Clock C = SystemClock>
class MemoryStorage {
 public:
  static constexpr std::uint32_t kMaxWindow = std::uint32_t{1} << 20U;  ///< arbitrary; 16 MiB of outcomes

  /// A fresh Closed breaker, or the error that names the field, the value and the rule.
  [[nodiscard]] static Result<MemoryStorage> open(BreakerConfig config, C clock = C()) {
    if (Error error = check(config)) return error;
    if (config.failure_threshold.window > kMaxWindow) {
      return detail::bad_field("failure_threshold.window", std::to_string(config.failure_threshold.window),
                               "at most " + std::to_string(kMaxWindow) + " in a memory storage");
    }
    return MemoryStorage{std::make_shared<Shared>(std::move(config), std::move(clock))};
  }

  [[nodiscard]] AdmitResult admit() noexcept {
    const std::lock_guard lock{shared_->mutex};
    return shared_->admit();
  }
  [[nodiscard]] RecordResult record_outcome(Token token, Outcome outcome, CompletedAt completed_at = {}) noexcept {
    const std::lock_guard lock{shared_->mutex};
    return shared_->record_outcome(token, outcome, completed_at);
  }
  [[nodiscard]] ForceResult force_state(CircuitState state) noexcept {
    const std::lock_guard lock{shared_->mutex};
    return {.transition = shared_->carry_out(rules::force(shared_->breaker, shared_->now(), state))};
  }
  [[nodiscard]] SnapshotResult snapshot() const noexcept {
    const std::lock_guard lock{shared_->mutex};
    return {.record = shared_->record()};
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
    Shared(BreakerConfig config, C source)
        : name(std::move(config.name)),
          settings(settings_of(config)),
          clock(std::move(source)),
          window(settings.window) {}

    /// A clock that starts below zero counts as zero: a negative tick could be taken for `rules::kNever`.
    [[nodiscard]] rules::Tick now(CompletedAt completed_at = {}) const noexcept {
      const Instant instant = completed_at ? *completed_at : clock.now();
      return std::max<rules::Tick>(0, std::chrono::floor<Millis>(instant.time_since_epoch()).count());
    }
    [[nodiscard]] static Instant instant(rules::Tick tick) noexcept { return Instant{Millis{tick}}; }

    [[nodiscard]] AdmitResult admit() noexcept {
      if (breaker.state == CircuitState::closed) {  // without reading the clock
        return {.admission = Admission::allowed,
                .state = CircuitState::closed,
                .token = {.period = generation, .admission = Admission::allowed}};
      }
      const auto ids = rules::ProbeIds{.on_transition = next_probe, .within_generation = next_probe};
      const rules::AdmitDecision decision = rules::admit(breaker, settings, now(), ids);
      AdmitResult result{.admission = decision.admission, .transition = carry_out(decision.effects)};
      result.state = breaker.state;
      result.token.admission = decision.admission;
      if (decision.admission == Admission::rejected) {
        ++rejected;
        result.retry_after = Millis{decision.retry_after};
        result.retry_at = instant(decision.retry_at);
      } else {
        result.token.period = decision.probe;
        ++next_probe;
      }
      return result;
    }

    [[nodiscard]] RecordResult record_outcome(Token token, Outcome outcome, CompletedAt completed_at) noexcept {
      switch (token.admission) {
        case Admission::allowed: return record_allowed(token.period, outcome, completed_at);
        case Admission::probe: {
          const rules::RecordDecision decision =
              rules::record_probe(breaker, settings, now(completed_at), token.period, outcome);
          return {.status = decision.status, .transition = carry_out(decision.effects)};
        }
        case Admission::rejected: break;
      }
      return {.status = RecordStatus::rejected};
    }

    [[nodiscard]] RecordResult record_allowed(std::uint64_t period, Outcome outcome,
                                              CompletedAt completed_at) noexcept {
      if (outcome == Outcome::ignored) return {.status = RecordStatus::ignored};
      if (breaker.state != CircuitState::closed || period != generation) return {.status = RecordStatus::stale};
      rules::Tick at = rules::not_before(breaker, now(completed_at));
      at = std::max(at, window.newest_or(at));
      const bool failure = outcome == Outcome::failure;
      window.drop_older_than(at - settings.within_ms);
      window.push(at, failure);
      RecordResult result{.status = RecordStatus::counted};
      if (failure && rules::trips(settings, window.failures() - 1)) {
        result.transition = carry_out(rules::trip(breaker, at));
      }
      return result;
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
      StateRecord out{.state = breaker.state, .rejected = rejected};
      if (breaker.opened_at != rules::kNever) out.opened_at = instant(breaker.opened_at);
      if (breaker.state == CircuitState::half_open) {
        out.successes = breaker.probe_successes;
      } else {
        out.successes = window.successes();
        out.failures = window.failures();
      }
      return out;
    }

    [[nodiscard]] PeekResult peek() const noexcept {
      if (breaker.state != CircuitState::open) return {.state = breaker.state};
      const rules::Tick left = rules::cooldown_end(breaker, settings) - rules::not_before(breaker, now());
      return {.state = CircuitState::open, .cooldown_left = Millis{std::max<rules::Tick>(0, left)}};
    }

    const std::string name;
    const Settings settings;
    const C clock;
    std::mutex mutex;
    rules::Breaker breaker;
    detail::OutcomeWindow window;
    std::uint64_t rejected = 0;
    // One step per transition or probe: 64 bits do not come round.
    std::uint64_t generation = 1;
    std::uint64_t next_probe = 1;
  };

  explicit MemoryStorage(std::shared_ptr<Shared> shared) noexcept : shared_(std::move(shared)) {}

  std::shared_ptr<Shared> shared_;
};

static_assert(Storage<MemoryStorage<>>);

}  // namespace shmcb
