// SPDX-License-Identifier: BSD-3-Clause
// The permit API: a breaker for code that cannot wrap a callback (async, coroutines, C). One storage operation to get a
// permit or a rejection, one to settle it. Nothing throws or allocates; works without exceptions and without RTTI. What
// every healthy call goes through is always inlined: a storage's answers then stay in registers, where g++ 12 would
// move their 100 bytes through memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

#include "shmcb/core/process_identity.hpp"
#include "shmcb/storage.hpp"
#include "shmcb/types.hpp"

namespace shmcb {

template <Storage S>
class BasicBreaker;

/// What became of a verdict. Where `error` is set the storage could not take the outcome; the permit is settled all the
/// same.
struct Recorded {
  Errc error = Errc::ok;
  RecordStatus status = RecordStatus::stale;
};

/// The right to run one call, and the duty to say how it went: exactly one of `success`, `failure`, `ignore`. A permit
/// that is dropped without a verdict records Ignored, which frees a probe's slot. Promises:
///  1. One outcome at most: a further verdict answers `stale` and does not touch the storage. So does an empty permit
///     (made by the default constructor, moved from, or released).
///  2. In a forked child the copy of a permit is inert: its verdicts answer `stale`, its destructor does nothing. The
///     attempt belongs to the process that was admitted.
///  3. It may move to another thread and be settled there; it is not for two threads at once.
/// The breaker must outlive its permits.
template <Storage S>
class [[nodiscard]] Permit {
 public:
  Permit() noexcept = default;
  Permit(Permit&& other) noexcept
      : breaker_(std::exchange(other.breaker_, nullptr)),
        process_(other.process_),
        period_(other.period_),
        started_(other.started_),
        admission_(other.admission_),
        origin_(other.origin_) {}
  /// Records Ignored for what it held before. Assigning a permit to itself changes nothing.
  Permit& operator=(Permit&& other) noexcept {
    if (this == &other) return *this;
    drop();
    breaker_ = std::exchange(other.breaker_, nullptr);
    process_ = other.process_;
    period_ = other.period_;
    started_ = other.started_;
    admission_ = other.admission_;
    origin_ = other.origin_;
    return *this;
  }
  Permit(const Permit&) = delete;
  Permit& operator=(const Permit&) = delete;
  ~Permit() { drop(); }

  /// The call went well. A storage that cannot take the outcome is counted, told to the failure sink and answered.
  Recorded success() noexcept { return settle(Outcome::success); }
  /// The downstream failed.
  Recorded failure() noexcept { return settle(Outcome::failure); }
  /// The call says nothing about the downstream.
  Recorded ignore() noexcept { return settle(Outcome::ignored); }

  /// One of the three, chosen at run time.
  [[gnu::always_inline]] Recorded settle(Outcome outcome, CompletedAt completed_at = {}) noexcept {
    return pending() ? std::exchange(breaker_, nullptr)->record(token(), outcome, completed_at) : Recorded{};
  }
  /// As `settle`, for a caller that reports a storage error by itself: the failure sink does not hear of it.
  [[nodiscard, gnu::always_inline]] Recorded settle_unreported(Outcome outcome,
                                                               CompletedAt completed_at = {}) noexcept {
    return pending() ? std::exchange(breaker_, nullptr)->record_unreported(token(), outcome, completed_at) : Recorded{};
  }

  /// Whether a verdict is still due, from this process.
  [[nodiscard, gnu::always_inline]] bool pending() const noexcept {
    return breaker_ != nullptr && process_ == core::current_process();
  }
  /// Whether the call is one of the few of HalfOpen. Keeps its answer after the verdict.
  [[nodiscard]] bool is_probe() const noexcept { return admission_ == Admission::probe; }
  /// What names the attempt at the storage. Keeps its answer after the verdict.
  [[nodiscard]] Token token() const noexcept { return {period_, started_, admission_, origin_}; }

  /// Gives up the permit without a verdict: the caller takes the token to `BasicBreaker::record`, once. A permit
  /// without a verdict to give answers the token of a rejected attempt.
  [[nodiscard]] Token release() noexcept {
    if (!pending()) return {};
    breaker_ = nullptr;
    return token();
  }

 private:
  friend class BasicBreaker<S>;
  Permit(BasicBreaker<S>& breaker, const Token& token) noexcept
      : breaker_(&breaker),
        process_(core::current_process()),
        period_(token.period),
        started_(token.started),
        admission_(token.admission),
        origin_(token.origin) {}

  [[gnu::always_inline]] void drop() noexcept {
    if (pending()) std::exchange(breaker_, nullptr)->abandon(token());
  }

  BasicBreaker<S>* breaker_ = nullptr;
  std::uint64_t process_ = 0;
  // The token by its members: as a whole it would be copied in one wide load, which stalls on the narrow stores before
  // it.
  std::uint64_t period_ = 0;
  std::uint32_t started_ = 0;
  Admission admission_ = Admission::rejected;
  std::uint8_t origin_ = 0;
};

/// A call that may not run now. A normal answer, not an error.
struct Rejection {
  std::string_view breaker_name{};  ///< valid as long as the breaker
  CircuitState state = CircuitState::open;
  Millis retry_after{0};  ///< how long to wait, never negative
  Instant retry_at{};     ///< the same as a deadline on the storage's clock
};

/// What `try_acquire` answers: a permit, a rejection, or the storage's error. True if the call may run.
template <Storage S>
class [[nodiscard]] Acquired {
 public:
  explicit Acquired(Permit<S> permit) noexcept : permit_(std::move(permit)), answer_(Answer::granted) {}
  explicit Acquired(const Rejection& rejection) noexcept : rejection_(rejection), answer_(Answer::rejected) {}
  explicit Acquired(Errc error) noexcept : error_(error), answer_(Answer::failed) {}

  [[nodiscard]] explicit operator bool() const noexcept { return answer_ == Answer::granted; }
  [[nodiscard]] bool rejected() const noexcept { return answer_ == Answer::rejected; }
  /// Not ok: the storage failed; there is neither a permit nor a rejection.
  [[nodiscard]] Errc error() const noexcept { return error_; }

  /// Empty unless the call may run.
  [[nodiscard]] Permit<S>& permit() & noexcept { return permit_; }
  [[nodiscard]] Permit<S> permit() && noexcept { return std::move(permit_); }
  /// Meaningful if rejected().
  [[nodiscard]] const Rejection& rejection() const noexcept { return rejection_; }

 private:
  enum class Answer : std::uint8_t { granted, rejected, failed };

  Permit<S> permit_{};
  Rejection rejection_{};
  Errc error_ = Errc::ok;
  Answer answer_;
};

/// Who hears of committed transitions: after the commit, outside of any storage operation, on the thread that
/// committed.
struct TransitionSink {
  void* context = nullptr;
  void (*on_transition)(void* context, const CircuitTransition& transition) noexcept = nullptr;
};

/// Who hears that the storage could not take an outcome, also of permits that were dropped.
struct FailureSink {
  void* context = nullptr;
  void (*on_record_failure)(void* context, Errc cause) noexcept = nullptr;
};

/// A snapshot, and what this breaker object knows beside it.
struct Metrics : StateRecord {
  bool degraded = false;               ///< the storage decides without its primary
  std::uint64_t storage_failures = 0;  ///< as BasicBreaker::storage_failures
};

/// The answer of `metrics`. Where `error` is set only `degraded` and `storage_failures` are meaningful.
struct MetricsResult {
  Errc error = Errc::ok;
  Metrics metrics{};
};

/// A breaker without callbacks and exceptions, over a storage that it owns. Safe from any thread; in a forked child as
/// far as the storage is. Permits point to it: it neither copies nor moves (a factory returns it as a prvalue).
template <Storage S>
class BasicBreaker {
 public:
  explicit BasicBreaker(S storage, TransitionSink transitions = {},
                        FailureSink failures = {}) noexcept(std::is_nothrow_move_constructible_v<S>)
      : storage_(std::move(storage)), transitions_(transitions), failures_(failures) {}
  BasicBreaker(const BasicBreaker&) = delete;
  BasicBreaker& operator=(const BasicBreaker&) = delete;
  ~BasicBreaker() = default;

  /// Asks to run a call. One storage operation.
  [[nodiscard, gnu::always_inline]] Acquired<S> try_acquire() noexcept {
    if constexpr (requires(Token& token) { storage_.allows(token); }) {
      Token token;
      if (storage_.allows(token)) [[likely]] {
        return Acquired<S>{Permit<S>{*this, token}};
      }
    }
    return acquired(storage_.admit());
  }

  /// Records the outcome of an attempt whose token was released from its permit. Once per token: that is up to the
  /// caller.
  [[gnu::always_inline]] Recorded record(Token token, Outcome outcome, CompletedAt completed_at = {}) noexcept {
    const Recorded recorded = record_unreported(token, outcome, completed_at);
    if (recorded.error != Errc::ok && failures_.on_record_failure != nullptr) [[unlikely]] {
      failures_.on_record_failure(failures_.context, recorded.error);
    }
    return recorded;
  }
  /// As `record` of an Ignored outcome, of a permit that was dropped: counted as abandoned too.
  Recorded abandon(Token token) noexcept {
    const Recorded recorded = finish(storage_.abandon(token));
    if (recorded.error != Errc::ok && failures_.on_record_failure != nullptr) {
      failures_.on_record_failure(failures_.context, recorded.error);
    }
    return recorded;
  }
  /// As `record`, without telling the failure sink.
  [[nodiscard, gnu::always_inline]] Recorded record_unreported(Token token, Outcome outcome,
                                                               CompletedAt completed_at = {}) noexcept {
    return finish(storage_.record_outcome(token, outcome, completed_at));
  }

  /// Whether a call has a chance: true in Closed and HalfOpen, in Open once the cooldown is over, where a mode says so,
  /// and where the storage fails (the call will tell). Optimistic and free of side effects; decides nothing.
  [[nodiscard]] bool can_call() const noexcept { return can_call(storage_.peek()); }
  /// The same for an answer of `state`.
  [[nodiscard]] static bool can_call(const PeekResult& peeked) noexcept {
    if (peeked.error != Errc::ok) return true;
    if (peeked.mode != Mode::automatic) return peeked.mode != Mode::forced_open;
    return peeked.state != CircuitState::open || peeked.cooldown_left == Millis{0};
  }

  /// The state in effect, without looking at the window. Changes nothing: an Open breaker stays Open when its cooldown
  /// ends.
  [[nodiscard]] PeekResult state() const noexcept { return storage_.peek(); }
  /// State and counts. Changes nothing.
  [[nodiscard]] MetricsResult metrics() const noexcept {
    const SnapshotResult snapshot = storage_.snapshot();
    return {snapshot.error, {snapshot.record, storage_.degraded(), storage_failures()}};
  }
  /// How many times the storage could not admit, record or force, for this breaker object. Starts at 0 with it.
  [[nodiscard]] std::uint64_t storage_failures() const noexcept {
    return storage_failures_.load(std::memory_order_relaxed);  // relaxed: a number for display
  }

  /// Puts the breaker into `state` and resets it: counts, probes, attempts in flight. Also where it is in `state`
  /// already. The mode stays. A note that is too long: Errc::invalid_config, and nothing is done.
  Errc force(CircuitState state, const Note& note = {}) noexcept {
    const ForceResult result = storage_.force_state(state, note);
    if (result.error != Errc::ok) return counted(result.error);
    if (result.transition) report(*result.transition);
    return Errc::ok;
  }
  Errc force_open(const Note& note = {}) noexcept { return force(CircuitState::open, note); }
  Errc force_closed(const Note& note = {}) noexcept { return force(CircuitState::closed, note); }

  /// Sets the mode for every process; answers the one before. A request that `check` refuses: Errc::invalid_config.
  [[nodiscard]] ModeResult set_mode(const ModeRequest& request) noexcept {
    const ModeResult result = storage_.set_mode(request);
    if (result.error != Errc::ok) (void)counted(result.error);
    return result;
  }

  /// What the breaker has counted since it came into being, over all processes. Changes nothing.
  [[nodiscard]] CountersResult counters() const noexcept { return storage_.counters(); }

  /// Of the breaker; valid as long as it.
  [[nodiscard]] std::string_view name() const noexcept { return storage_.name(); }
  [[nodiscard]] S& storage() noexcept { return storage_; }
  [[nodiscard]] const S& storage() const noexcept { return storage_; }

 private:
  /// What an admit comes to.
  [[nodiscard]] Acquired<S> acquired(const AdmitResult& result) noexcept {
    if (result.error != Errc::ok) [[unlikely]] {
      return Acquired<S>{counted(result.error)};
    }
    if (result.transition) [[unlikely]] {
      report(*result.transition);
    }
    if (result.admission == Admission::rejected) {
      return Acquired<S>{Rejection{storage_.name(), result.state, result.retry_after, result.retry_at}};
    }
    return Acquired<S>{Permit<S>{*this, result.token}};
  }

  [[gnu::always_inline]] Recorded finish(const RecordResult& result) noexcept {
    if (result.error != Errc::ok) [[unlikely]] {
      return {.error = counted(result.error)};
    }
    if (result.transition) [[unlikely]] {
      report(*result.transition);
    }
    return {.status = result.status};
  }

  Errc counted(Errc error) noexcept {
    storage_failures_.fetch_add(1, std::memory_order_relaxed);  // relaxed: a number for display
    return error;
  }

  [[gnu::noinline]] void report(const CircuitTransition& transition) const noexcept {
    if (transitions_.on_transition != nullptr) transitions_.on_transition(transitions_.context, transition);
  }

  S storage_;
  TransitionSink transitions_;
  FailureSink failures_;
  std::atomic<std::uint64_t> storage_failures_{0};
};

}  // namespace shmcb
