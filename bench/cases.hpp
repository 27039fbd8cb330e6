// SPDX-License-Identifier: BSD-3-Clause
// What is measured: every operation on every contender, and the floors. A case is made from the place that the
// processes of one launch share (made by the first of them, with the breakers in it), and is then called over and over.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <type_traits>
#include <utility>

#include "contenders.hpp"
#include "floors.hpp"
#include "measured.hpp"
#include "shmcb/circuit_breaker.hpp"

namespace shmcb::bench {

/// What an operation works on: the breaker and a token of its Closed period.
template <class S>
struct Subject {
  explicit Subject(S storage) : breaker(std::move(storage)) {}

  CircuitBreaker<S> breaker;
  Token token{};
  std::uint32_t company = 1;  ///< processes or threads that work on this breaker
  std::uint32_t in_a_row = 0;
  std::uint32_t count = 0;
};

/// Defaults; `prepare` leaves the breaker Closed with a full window.
template <std::uint32_t kWindow = 10>
struct Operation {
  static constexpr CircuitState kState = CircuitState::closed;  ///< in which it stays
  static constexpr unsigned kMaxCompany = 256;
  static constexpr std::uint32_t kPeriod = 1;  ///< after so many times it does the same again
  static BreakerConfig config() {
    return {.name = "bench",
            .failure_threshold = {.failures = kWindow, .window = kWindow},
            .cooldown = {Millis{3'600'000}}};
  }
  template <class S>
  static void prepare(Subject<S>& subject) {
    S& storage = subject.breaker.storage();
    subject.token = storage.admit().token;
    for (std::uint32_t i = 0; i < 2 * kWindow; ++i)
      (void)storage.record_outcome(subject.token, Outcome::success);
  }
};

struct Admit : Operation<> {
  static constexpr const char* kName = "admit";
  static constexpr const char* kFloor = kLoadFloor;
  template <class S>
  [[gnu::always_inline]] static void run(Subject<S>& subject) {
    const AdmitResult admitted = subject.breaker.storage().admit();
    keep(admitted.admission);
    keep(admitted.token.period);
  }
};

struct RecordSuccess : Operation<> {
  static constexpr const char* kName = "record success";
  static constexpr const char* kFloor = kRecordFloor;
  template <class S>
  [[gnu::always_inline]] static void run(Subject<S>& subject) {
    keep(subject.breaker.storage().record_outcome(subject.token, Outcome::success).status);
  }
};

struct AdmitAndRecord : Operation<> {
  static constexpr const char* kName = "admit + record success";
  static constexpr const char* kFloor = kRecordFloor;
  template <class S>
  [[gnu::always_inline]] static void run(Subject<S>& subject) {
    S& storage = subject.breaker.storage();
    const AdmitResult admitted = storage.admit();
    if (admitted.admission == Admission::rejected) std::abort();
    keep(storage.record_outcome(admitted.token, Outcome::success).status);
  }
};

struct Call : Operation<> {
  static constexpr const char* kName = "CircuitBreaker::call";
  static constexpr const char* kFloor = kRecordFloor;
  template <class S>
  [[gnu::always_inline]] static void run(Subject<S>& subject) {
    keep(subject.breaker.call([]() noexcept { return downstream(1); }));
  }
};

struct AcquireAndSettle : Operation<> {
  static constexpr const char* kName = "try_acquire + success";
  static constexpr const char* kFloor = kRecordFloor;
  template <class S>
  [[gnu::always_inline]] static void run(Subject<S>& subject) {
    Acquired<S> entry = subject.breaker.try_acquire();
    if (!entry) std::abort();
    keep(entry.permit().success().status);
  }
};

struct Reject : Operation<> {
  static constexpr const char* kName = "reject";
  static constexpr const char* kFloor = kRejectFloor;
  static constexpr CircuitState kState = CircuitState::open;
  template <class S>
  static void prepare(Subject<S>& subject) {
    (void)subject.breaker.storage().force_state(CircuitState::open);
  }
  template <class S>
  [[gnu::always_inline]] static void run(Subject<S>& subject) {
    const AdmitResult admitted = subject.breaker.storage().admit();
    keep(admitted.admission);
    keep(admitted.retry_after.count());
  }
};

constexpr const char* name_of_record_failure(std::uint32_t window) {
  switch (window) {
    case 10: return "record failure, window 10";
    case 100: return "record failure, window 100";
    case 1000: return "record failure, window 1000";
    case 4096: return "record failure, window 4096";
    default: return nullptr;
  }
}

/// A success after so few failures that those of all who work on the breaker never fill a window: it stays Closed.
template <std::uint32_t kWindow>
struct RecordFailure : Operation<kWindow> {
  static constexpr const char* kName = name_of_record_failure(kWindow);
  static constexpr const char* kFloor = name_of_failure_floor(kWindow);
  static constexpr unsigned kMaxCompany = kWindow / 2;
  static constexpr std::uint32_t kPeriod = (kWindow - 1) / 2 + 1;  ///< in a company of two
  template <class S>
  static void prepare(Subject<S>& subject) {
    Operation<kWindow>::prepare(subject);
    subject.in_a_row = (kWindow - 1) / subject.company;
  }
  template <class S>
  [[gnu::always_inline]] static void run(Subject<S>& subject) {
    const bool failure = subject.count < subject.in_a_row;
    subject.count = failure ? subject.count + 1 : 0;
    const Outcome outcome = failure ? Outcome::failure : Outcome::success;
    keep(subject.breaker.storage().record_outcome(subject.token, outcome).status);
  }
};

struct Snapshot : Operation<> {
  static constexpr const char* kName = "snapshot";
  static constexpr const char* kFloor = kLoadFloor;
  template <class S>
  [[gnu::always_inline]] static void run(Subject<S>& subject) {
    const SnapshotResult snapshot = subject.breaker.storage().snapshot();
    keep(snapshot.record.successes);
    keep(snapshot.record.failures);
  }
};

using Operations = Types<Admit, RecordSuccess, AdmitAndRecord, Call, AcquireAndSettle, Reject, RecordFailure<10>,
                         RecordFailure<100>, RecordFailure<1000>, RecordFailure<4096>, Snapshot>;

/// `company`: how many work on the same breaker.
template <class Operation, class Contender>
class Case {
 public:
  static constexpr const char* kGroup = Operation::kName;
  static constexpr const char* kName = Contender::kName;
  static constexpr const char* kFloor = Operation::kFloor;
  static constexpr bool kShared = Contender::kShared;
  static constexpr std::uint32_t kPeriod = Operation::kPeriod;
  struct Place : Contender {
    explicit Place(unsigned breakers = 1) : Contender(Operation::config(), breakers) {}
  };

  explicit Case(const Place& place, unsigned breaker = 0, unsigned company = 2) : subject_(place.open(breaker)) {
    subject_.company = company;
    Operation::prepare(subject_);
  }
  [[gnu::always_inline]] void operator()() { Operation::run(subject_); }
  /// Whether the breaker is still in the state that the operation is measured in.
  [[nodiscard]] bool as_prepared() { return subject_.breaker.storage().peek().state == Operation::kState; }

 private:
  Subject<typename Contender::Storage> subject_;
};

/// Calls `visit` with the type of every case there is.
template <Clock C, class Visit>
void for_each_case(Visit visit) {
  Floors<C>::for_each(visit);
  Operations::for_each([&]<class O>(std::type_identity<O>) {
    Contenders<C>::for_each([&]<class P>(std::type_identity<P>) { visit(std::type_identity<Case<O, P>>{}); });
  });
}

}  // namespace shmcb::bench
