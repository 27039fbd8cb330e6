// SPDX-License-Identifier: BSD-3-Clause
// A storage that goes on when its primary is missing or fails: what happens then is the user's choice.
// Invariant: an outcome goes to the part that admitted the attempt, never to another one.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "shmcb/config.hpp"
#include "shmcb/error.hpp"
#include "shmcb/storage.hpp"
#include "shmcb/time.hpp"
#include "shmcb/types.hpp"

namespace shmcb {

/// Who decides while the primary storage is missing or answers an error.
enum class OnUnusable : std::uint8_t {
  error,        ///< nobody: the error is the answer (default)
  local,        ///< the local storage, which knows this process's own calls only
  let_through,  ///< every call is allowed; its outcome is not counted
  turn_away,    ///< every call is rejected; retry after the cooldown
};

/// `Primary` (which may be missing), and what stands in for it. The primary is tried on every operation, except that
/// while the local storage stands in, `peek` and `snapshot` show the local one. Promises:
///  1. While the primary works nothing else decides, and the local storage hears nothing of what it decides.
///  2. An outcome of an attempt that the primary admitted answers the primary's error when the primary cannot take it,
///     whatever was chosen: no one else can count it.
///  3. Without a stand-in that has a record (`let_through`, `turn_away`), `snapshot` and `force_state` answer the
///  error.
/// Copies share flag and counter. Fallbacks nest up to four deep (two bits of `Token::origin` each).
template <Storage Primary, Storage Local, Clock C = SystemClock>
class FallbackStorage {
 public:
  /// An Error in place of a primary says why there is none. `clock` gives the deadline of calls that are turned away.
  FallbackStorage(Result<Primary> primary, Local local, OnUnusable choice = OnUnusable::error, C clock = C())
      : primary_(std::move(primary)),
        local_(std::move(local)),
        choice_(choice),
        clock_(std::move(clock)),
        health_(std::make_shared<Health>(!primary_.has_value())) {}

  [[nodiscard]] AdmitResult admit() noexcept {
    AdmitResult result = tried(primary_ ? primary_->admit() : AdmitResult{.error = Errc::unusable});
    if (result.error == Errc::ok) return issued_by(kPrimary, result);
    switch (choice_) {
      case OnUnusable::error: break;
      case OnUnusable::local: return issued_by(kLocal, local_.admit());
      case OnUnusable::let_through:
        return {.admission = Admission::allowed,
                .state = CircuitState::closed,
                .token = {.admission = Admission::allowed, .origin = kNobody}};
      case OnUnusable::turn_away:
        return {.admission = Admission::rejected,
                .state = CircuitState::open,
                .token = {.admission = Admission::rejected, .origin = kNobody},
                .retry_after = cooldown(),
                .retry_at = std::chrono::floor<Millis>(clock_.now()) + cooldown()};
    }
    return result;
  }

  [[nodiscard]] RecordResult record_outcome(Token token, Outcome outcome, CompletedAt completed_at = {}) noexcept {
    const unsigned issuer = token.origin & kIssuerMask;
    token.origin = static_cast<std::uint8_t>(token.origin >> kIssuerBits);
    if (issuer == kPrimary) {
      return tried(primary_ ? primary_->record_outcome(token, outcome, completed_at)
                            : RecordResult{.error = Errc::unusable});
    }
    if (issuer == kLocal) return local_.record_outcome(token, outcome, completed_at);
    return {.status = token.admission == Admission::rejected ? RecordStatus::rejected : RecordStatus::ignored};
  }

  [[nodiscard]] RecordResult abandon(Token token) noexcept {
    const unsigned issuer = token.origin & kIssuerMask;
    token.origin = static_cast<std::uint8_t>(token.origin >> kIssuerBits);
    if (issuer == kPrimary) return tried(primary_ ? primary_->abandon(token) : RecordResult{.error = Errc::unusable});
    if (issuer == kLocal) return local_.abandon(token);
    return {.status = token.admission == Admission::rejected ? RecordStatus::rejected : RecordStatus::ignored};
  }

  /// Forces the primary; only where that is unusable and `local` was chosen, the local storage.
  [[nodiscard]] ForceResult force_state(CircuitState state, const Note& note = {}) noexcept {
    const ForceResult result =
        tried(primary_ ? primary_->force_state(state, note) : ForceResult{.error = Errc::unusable});
    return unusable(result.error) && choice_ == OnUnusable::local ? local_.force_state(state, note) : result;
  }
  /// Likewise. A request that is refused for its own sake is not the storage's failure.
  [[nodiscard]] ModeResult set_mode(const ModeRequest& request) noexcept {
    const ModeResult result = tried(primary_ ? primary_->set_mode(request) : ModeResult{.error = Errc::unusable});
    return unusable(result.error) && choice_ == OnUnusable::local ? local_.set_mode(request) : result;
  }

  [[nodiscard]] SnapshotResult snapshot() const noexcept {
    if (local_stands_in()) return local_.snapshot();
    const SnapshotResult result = tried(primary_ ? primary_->snapshot() : SnapshotResult{.error = Errc::unusable});
    return result.error != Errc::ok && choice_ == OnUnusable::local ? local_.snapshot() : result;
  }

  [[nodiscard]] CountersResult counters() const noexcept {
    if (local_stands_in()) return local_.counters();
    const CountersResult result = tried(primary_ ? primary_->counters() : CountersResult{.error = Errc::unusable});
    return unusable(result.error) && choice_ == OnUnusable::local ? local_.counters() : result;
  }

  /// What `admit` would go by.
  [[nodiscard]] PeekResult peek() const noexcept {
    if (local_stands_in()) return local_.peek();
    const PeekResult result = tried(primary_ ? primary_->peek() : PeekResult{.error = Errc::unusable});
    if (result.error == Errc::ok) return result;
    switch (choice_) {
      case OnUnusable::error: break;
      case OnUnusable::local: return local_.peek();
      case OnUnusable::let_through: return {.state = CircuitState::closed};
      case OnUnusable::turn_away: return {.state = CircuitState::open, .cooldown_left = cooldown()};
    }
    return result;
  }

  /// Of the primary, where there is one: give the two storages the same timeline.
  [[nodiscard]] Instant now() const noexcept { return primary_ ? primary_->now() : local_.now(); }
  [[nodiscard]] std::string_view name() const noexcept { return local_.name(); }
  [[nodiscard]] Settings settings() const noexcept {
    return primary_ && !local_stands_in() ? primary_->settings() : local_.settings();
  }

  /// True from an operation that the primary could not do until one that it could; true from the start without a
  /// primary.
  [[nodiscard]] bool degraded() const noexcept { return failing() || (primary_ && primary_->degraded()); }
  /// How many operations the primary was missing for or answered with an error.
  [[nodiscard]] std::uint64_t unusable_operations() const noexcept {
    return health_->unusable_operations.load(std::memory_order_relaxed);  // a number for display
  }
  /// Why there is no primary; ok where there is one.
  [[nodiscard]] Error primary_error() const { return primary_ ? Error{} : primary_.error(); }

 private:
  // Relaxed throughout: each of the two is complete in itself and publishes nothing. A reader that misses a change asks
  // the other part once more, which is right at that instant too.
  struct Health {
    explicit Health(bool missing) noexcept : failing(missing) {}
    std::atomic<bool> failing;
    std::atomic<std::uint64_t> unusable_operations{0};
  };

  static constexpr unsigned kIssuerBits = 2;
  static constexpr unsigned kIssuerMask = 3;
  static constexpr std::uint8_t kPrimary = 0;
  static constexpr std::uint8_t kLocal = 1;
  static constexpr std::uint8_t kNobody = 2;

  [[nodiscard]] static AdmitResult issued_by(unsigned issuer, AdmitResult result) noexcept {
    result.token.origin = static_cast<std::uint8_t>((unsigned{result.token.origin} << kIssuerBits) | issuer);
    return result;
  }

  /// Keeps the books on what the primary answered.
  template <class R>
  [[nodiscard]] R tried(R result) const noexcept {
    const bool failed = unusable(result.error);
    if (failed) health_->unusable_operations.fetch_add(1, std::memory_order_relaxed);
    if (failing() != failed)
      health_->failing.store(failed, std::memory_order_relaxed);  // seldom: the line stays shared
    return result;
  }
  [[nodiscard]] static bool unusable(Errc error) noexcept { return error != Errc::ok && error != Errc::invalid_config; }
  [[nodiscard]] bool failing() const noexcept { return health_->failing.load(std::memory_order_relaxed); }
  [[nodiscard]] bool local_stands_in() const noexcept { return choice_ == OnUnusable::local && failing(); }
  [[nodiscard]] Millis cooldown() const noexcept { return Millis{local_.settings().cooldown_ms}; }

  Result<Primary> primary_;
  Local local_;
  OnUnusable choice_;
  C clock_;
  std::shared_ptr<Health> health_;
};

}  // namespace shmcb
