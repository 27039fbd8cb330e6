// SPDX-License-Identifier: BSD-3-Clause
// CircuitBreaker: wraps a callback. Needs exceptions and RTTI; code without them, and code whose calls outlive a
// callback (async, coroutines), takes permits.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "shmcb/breaker_options.hpp"
#include "shmcb/breaker_reports.hpp"
#include "shmcb/classify.hpp"
#include "shmcb/error.hpp"
#include "shmcb/failure.hpp"
#include "shmcb/permit.hpp"
#include "shmcb/storage.hpp"
#include "shmcb/throw_nested.hpp"
#include "shmcb/types.hpp"

namespace shmcb {

/// Stands for a missing `is_failure`: such a breaker calls noexcept callbacks only.
struct NoClassifier {};

namespace detail {

template <class F>
concept TakesException = std::is_invocable_v<F, std::exception_ptr>;

/// What a fallback returns, called with the exception where it takes one.
template <class F>
struct FallbackResult : std::invoke_result<F> {};
template <TakesException F>
struct FallbackResult<F> : std::invoke_result<F, std::exception_ptr> {};

/// Whether a fallback's result can be returned as a callback's: never as a reference to a temporary.
template <class From, class To>
concept ReturnableAs = std::is_void_v<To> || std::same_as<From, To> ||
                       (std::is_convertible_v<From, To> &&
                        (!std::is_reference_v<To> ||
                         (std::is_reference_v<From> &&
                          std::is_convertible_v<std::remove_reference_t<From>*, std::remove_reference_t<To>*>)));

/// Calls `act` when the scope is left, in whatever way.
template <class Act>
class OnExit {
 public:
  explicit OnExit(Act act) noexcept : act_(std::move(act)) {}
  ~OnExit() { act_(); }
  OnExit(const OnExit&) = delete;
  OnExit& operator=(const OnExit&) = delete;

 private:
  Act act_;
};

/// Refuses an empty std::function or null function pointer.
template <class F>
void require_callable(std::string_view field, const F& callable) {
  if constexpr (std::is_pointer_v<F> || std::is_constructible_v<F, std::nullptr_t>) {
    if (!static_cast<bool>(callable)) throw ConfigError(bad_field(field, "empty", "callable"));
  }
}

}  // namespace detail

/// Runs callbacks under a breaker. Safe from any thread; permits and observers point to it, so that it neither copies
/// nor moves (a factory returns it as a prvalue).
///
/// `IsFailure`: `(std::exception_ptr) -> bool`, whether what a callback threw speaks against the downstream. Required
/// for callbacks that may throw. `ClassifyResult`: `(const T&) -> Outcome`, and `() -> Outcome` if void results need
/// one; what a normal return says (see classify.hpp). Both are called as const, from several threads at once.
template <Storage S, class IsFailure = NoClassifier, class ClassifyResult = AlwaysSuccess>
class CircuitBreaker {
 public:
  /// For noexcept callbacks. Throws ConfigError for options that break a rule.
  explicit CircuitBreaker(S storage, BreakerOptions options = {})
    requires std::same_as<IsFailure, NoClassifier> && std::default_initializable<ClassifyResult>
      : CircuitBreaker(std::move(storage), NoClassifier{}, ClassifyResult{}, std::move(options)) {}

  /// Throws ConfigError for options that break a rule and for a classifier that is an empty std::function.
  CircuitBreaker(S storage, IsFailure is_failure, ClassifyResult classify_result = {}, BreakerOptions options = {})
      : is_failure_(std::move(is_failure)),
        classify_result_(std::move(classify_result)),
        reports_(std::move(options)),
        breaker_(std::move(storage), {this, &tell_transition}, {this, &tell_unrecorded}) {
    static_assert(std::same_as<IsFailure, NoClassifier> || std::predicate<const IsFailure&, std::exception_ptr>,
                  "is_failure must be callable as const with a std::exception_ptr and return a bool");
    static_assert(!std::same_as<ClassifyResult, BreakerOptions>,
                  "options come after classify_result: put {} in its place");
    if (Error error = check(reports_.options())) throw ConfigError(error);
    detail::require_callable("is_failure", is_failure_);
    detail::require_callable("classify_result", classify_result_);
  }

  CircuitBreaker(const CircuitBreaker&) = delete;
  CircuitBreaker& operator=(const CircuitBreaker&) = delete;
  ~CircuitBreaker() = default;

  /// Runs `callback` if the breaker admits it, and returns or throws what it does. Its outcome is recorded once:
  ///  - it returns: what `classify_result` says; the value is returned in every case
  ///  - it throws: Failure if `is_failure` says so, else Ignored; rethrown
  ///  - a classifier throws: Ignored, and its exception propagates, with the callback's nested inside where
  ///    std::throw_with_nested could do so (types of the standard library and those that `is_failure` nests itself)
  ///  - thread cancellation, exceptions of other languages: Ignored; the unwinding goes on
  /// Throws CircuitOpenError if the call was turned away, StorageFailure if the storage could not admit it (unless
  /// chosen otherwise). Once the callback has run, a storage failure changes nothing for the caller: see
  /// BreakerOptions.
  template <std::invocable Callback>
  std::invoke_result_t<Callback> call(Callback&& callback) {
    using R = std::invoke_result_t<Callback>;
    Acquired<S> entry = breaker_.try_acquire();
    if (!entry && !let_through(entry.error())) [[unlikely]] {
      throw open_error(entry.rejection());
    }
    return run<R>(entry.permit(), std::forward<Callback>(callback), NoFallback{});
  }

  /// The same with a fallback, which supplies the value when the call was turned away or what the callback threw is a
  /// failure; its own exceptions propagate. Called as `fallback(std::exception_ptr)`, with a fresh CircuitOpenError or
  /// with what the callback threw, or as `fallback()`. Never called for a storage failure, an ignored exception or a
  /// normal return.
  template <std::invocable Callback, class Fallback>
    requires detail::TakesException<Fallback> || std::invocable<Fallback>
  std::invoke_result_t<Callback> call(Callback&& callback, Fallback&& fallback) {
    using R = std::invoke_result_t<Callback>;
    static_assert(
        detail::ReturnableAs<typename detail::FallbackResult<Fallback>::type, R>,
        "what the fallback returns must convert to what the callback returns, and not as a reference to a temporary");
    Acquired<S> entry = breaker_.try_acquire();
    if (!entry && !let_through(entry.error())) [[unlikely]] {
      std::exception_ptr why;
      if constexpr (detail::TakesException<Fallback>) why = std::make_exception_ptr(open_error(entry.rejection()));
      return fall_back<R>(std::forward<Fallback>(fallback), std::move(why));
    }
    return run<R>(entry.permit(), std::forward<Callback>(callback), std::forward<Fallback>(fallback));
  }

  /// For code that cannot wrap a callback; one storage operation. No classifier and no OnAdmitFailure applies;
  /// transitions and storage failures are reported as those of `call`.
  [[nodiscard, gnu::always_inline]] Acquired<S> try_acquire() noexcept { return breaker_.try_acquire(); }

  /// Whether a call has a chance: true in Closed and HalfOpen, in Open once the cooldown is over. Optimistic and free
  /// of side effects. Where the storage fails: false if calls are then turned away, else true.
  [[nodiscard]] bool can_call() const noexcept {
    const PeekResult peeked = breaker_.state();
    if (peeked.error != Errc::ok) return reports_.options().on_admit_failure != OnAdmitFailure::turn_away;
    return BasicBreaker<S>::can_call(peeked);
  }

  /// The state in effect; an Open breaker stays Open when its cooldown ends. Throws StorageFailure.
  [[nodiscard]] CircuitState state() const {
    const PeekResult peeked = breaker_.state();
    require(StorageOperation::snapshot, peeked.error);
    return peeked.state;
  }
  /// State and counts. Changes nothing. Throws StorageFailure.
  [[nodiscard]] Metrics metrics() const {
    const MetricsResult result = breaker_.metrics();
    require(StorageOperation::snapshot, result.error);
    return result.metrics;
  }
  /// How many times the storage could not admit, record or force, for this breaker object.
  [[nodiscard]] std::uint64_t storage_failures() const noexcept { return breaker_.storage_failures(); }

  /// Puts the breaker into `state` and resets it: counts, probes, attempts in flight. The mode stays. Throws
  /// ConfigError where the note is too long, StorageFailure.
  void force(CircuitState state, const Note& note = {}) {
    if (const Error error = check(note)) throw ConfigError(error);
    require(StorageOperation::force_state, breaker_.force(state, note));
  }
  void force_open(const Note& note = {}) { force(CircuitState::open, note); }
  void force_closed(const Note& note = {}) { force(CircuitState::closed, note); }

  /// Sets the mode for every process; answers the one before. Throws ConfigError, StorageFailure.
  Mode set_mode(const ModeRequest& request) {
    if (const Error error = check(request)) throw ConfigError(error);
    const ModeResult result = breaker_.set_mode(request);
    require(StorageOperation::set_mode, result.error);
    return result.previous;
  }

  /// What the breaker has counted since it came into being, over all processes. Throws StorageFailure.
  [[nodiscard]] Counters counters() const {
    const CountersResult result = breaker_.counters();
    require(StorageOperation::snapshot, result.error);
    return result.counters;
  }

  /// Of the breaker; valid as long as it.
  [[nodiscard]] std::string_view name() const noexcept { return breaker_.name(); }
  [[nodiscard]] S& storage() noexcept { return breaker_.storage(); }
  [[nodiscard]] const S& storage() const noexcept { return breaker_.storage(); }

 private:
  struct NoFallback {};

  /// Whether a call without a permit runs all the same. `error` of the storage; ok: it was rejected.
  [[gnu::cold]] bool let_through(Errc error) {
    if (error == Errc::ok) return false;
    switch (reports_.options().on_admit_failure) {
      case OnAdmitFailure::raise: break;
      case OnAdmitFailure::let_through: report(StorageOperation::admit, error); return true;
      case OnAdmitFailure::turn_away: report(StorageOperation::admit, error); return false;
    }
    throw StorageFailure(StorageOperation::admit, std::string{name()}, error);
  }

  template <class R, class Callback, class Fallback>
  [[gnu::always_inline]] R run(Permit<S>& permit, Callback&& callback, Fallback&& fallback) {
    static_assert(
        !std::same_as<IsFailure, NoClassifier> || std::is_nothrow_invocable_v<Callback>,
        "this callback may throw: give the breaker an is_failure, (std::exception_ptr) -> bool, or declare the "
        "callback noexcept");
    constexpr bool kMovable = std::is_reference_v<R> || std::is_move_constructible_v<R>;
    std::exception_ptr failure;
    bool returned = false;
    // Past `returned` an exception comes from the classifier or from a storage failure that was asked for: the permit's
    // destructor records Ignored where nothing was recorded.
    if constexpr (std::is_void_v<R>) {
      try {
        std::forward<Callback>(callback)();
        returned = true;
        return record_return(permit);
      } catch (...) {
        if (returned) throw;
        failure = record_throw<Fallback>(std::move(permit));
      }
    } else if constexpr (kMovable) {
      try {
        R result = std::forward<Callback>(callback)();
        returned = true;
        record_return(permit, result);
        if constexpr (std::is_reference_v<R>) {
          return static_cast<R>(result);
        } else {
          return result;
        }
      } catch (...) {
        if (returned) throw;
        failure = record_throw<Fallback>(std::move(permit));
      }
    } else {
      static_assert(
          kMovable || std::same_as<ClassifyResult, AlwaysSuccess>,
          "classify_result looks at the result before the caller gets it: that needs a type that can be moved");
      // The result cannot be kept in a variable: recorded when it is the caller's.
      const detail::OnExit on_return{[&]() noexcept { settle_reported(permit, Outcome::success); }};
      try {
        return std::forward<Callback>(callback)();
      } catch (...) {
        failure = record_throw<Fallback>(std::move(permit));
      }
    }
    // Outside of the handler: a fallback that is cancelled, or uses another breaker, is not inside the failed call.
    return fall_back<R>(std::forward<Fallback>(fallback), std::move(failure));
  }

  /// The verdict on a normal return.
  template <class... Result>
  [[gnu::always_inline]] void record_return(Permit<S>& permit, const Result&... result) {
    if constexpr (std::same_as<ClassifyResult, AlwaysSuccess> ||
                  (sizeof...(Result) == 0 && !std::invocable<const ClassifyResult&>)) {
      settle(permit, Outcome::success);
    } else {
      static_assert(std::invocable<const ClassifyResult&, const Result&...>,
                    "classify_result must be callable as const with what the callback returns");
      const Instant completed_at = breaker_.storage().now();
      const detail::OnExit on_throw{[&]() noexcept { settle_reported(permit, Outcome::ignored); }};  // else settled
      const std::same_as<Outcome> auto outcome = std::as_const(classify_result_)(result...);
      settle(permit, outcome, completed_at);
    }
  }

  /// The verdict on what is being handled: answers it if it is for the fallback, else rethrows it.
  template <class Fallback>
  [[gnu::cold]] std::exception_ptr record_throw([[maybe_unused]] Permit<S> permit) {
    if constexpr (std::same_as<IsFailure, NoClassifier>) {
      throw;  // never: the callback is noexcept
    } else {
      std::exception_ptr thrown = std::current_exception();
      if (thrown == nullptr) {  // not of C++: a cancelled thread, another language
        settle_reported(permit, Outcome::ignored);
        throw;
      }
      const Instant completed_at = breaker_.storage().now();
      const bool failed = judge(permit, thrown);
      settle(permit, failed ? Outcome::failure : Outcome::ignored, completed_at, thrown);
      if (!failed || std::same_as<Fallback, NoFallback>) throw;
      return thrown;
    }
  }

  /// What `is_failure` says. Called while the callback's exception is handled, so that it can nest it itself.
  [[nodiscard]] bool judge(Permit<S>& permit, const std::exception_ptr& thrown) {
    try {
      bool decided = false;
      const detail::OnExit on_exit{[&]() noexcept {
        if (!decided) settle_reported(permit, Outcome::ignored, thrown);
      }};
      const bool failed = std::as_const(is_failure_)(thrown);
      decided = true;
      return failed;
    } catch (const std::exception& broken) {  // nothing else can have anything nested
      detail::rethrow_with_nested(broken, thrown);
    }
  }

  template <class R, class Fallback>
  static R fall_back(Fallback&& fallback, std::exception_ptr why) {
    if constexpr (std::same_as<std::remove_cvref_t<Fallback>, NoFallback>) {
      std::terminate();  // never: without a fallback the exception was rethrown
    } else if constexpr (detail::TakesException<Fallback>) {
      return static_cast<R>(std::forward<Fallback>(fallback)(std::move(why)));
    } else {
      return static_cast<R>(std::forward<Fallback>(fallback)());
    }
  }

  [[gnu::always_inline]] void settle(Permit<S>& permit, Outcome outcome, CompletedAt completed_at = {},
                                     const std::exception_ptr& downstream = detail::kNothingThrown) {
    const Errc error = permit.settle_unreported(outcome, completed_at).error;
    if (error == Errc::ok) [[likely]] {
      return;
    }
    if (reports_.options().raise_record_failure) {
      throw StorageFailure(StorageOperation::record_outcome, std::string{name()}, error, downstream);
    }
    report(StorageOperation::record_outcome, error, downstream);
  }

  /// As `settle`, where nothing may be thrown.
  [[gnu::always_inline]] void settle_reported(Permit<S>& permit, Outcome outcome,
                                              const std::exception_ptr& downstream = detail::kNothingThrown) noexcept {
    const Errc error = permit.settle_unreported(outcome).error;
    if (error != Errc::ok) [[unlikely]] {
      report(StorageOperation::record_outcome, error, downstream);
    }
  }

  [[gnu::cold]] void report(StorageOperation operation, Errc error,
                            const std::exception_ptr& downstream = detail::kNothingThrown) const noexcept {
    reports_.storage_failure(operation, name(), error, downstream);
  }
  static void tell_transition(void* self, const CircuitTransition& transition) noexcept {
    static_cast<const CircuitBreaker*>(self)->reports_.transition(transition);
  }
  static void tell_unrecorded(void* self, Errc cause) noexcept {
    static_cast<const CircuitBreaker*>(self)->report(StorageOperation::record_outcome, cause);
  }

  void require(StorageOperation operation, Errc error) const {
    if (error != Errc::ok) throw StorageFailure(operation, std::string{name()}, error);
  }

  /// Of a call that was turned away without a rejection: "open", retry after 0 ms.
  [[nodiscard]] CircuitOpenError open_error(const Rejection& rejection) const {
    return {std::string{name()}, rejection.state, rejection.retry_after};
  }

  [[no_unique_address]] IsFailure is_failure_;
  [[no_unique_address]] ClassifyResult classify_result_;
  detail::BreakerReports reports_;
  BasicBreaker<S> breaker_;
};

}  // namespace shmcb
