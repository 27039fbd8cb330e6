// SPDX-License-Identifier: BSD-3-Clause
// What is measured: every operation on every contender, and the floors. A case is made from the place that the
// processes of one launch share (made by the first of them, with the breaker in it), and is then called over and over.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

#include "locked_storage.hpp"
#include "shmcb/circuit_breaker.hpp"
#include "shmcb/memory_storage.hpp"
#include "shmcb/segment.hpp"
#include "shmcb/shm_storage.hpp"

namespace shmcb::bench {

/// The compiler may neither leave out how `value` came about nor carry anything in memory over from one call to the
/// next.
template <class T>
[[gnu::always_inline]] inline void keep(T value) noexcept {
  asm volatile("" : : "r"(value) : "memory");
}

template <class T>
[[nodiscard]] T require(Result<T> result) {
  if (result) return *std::move(result);
  std::fprintf(stderr, "%s\n", result.error().message.c_str());
  std::abort();
}

template <class... T>
struct Types {
  template <class F>
  static void for_each(F f) {
    (f(std::type_identity<T>{}), ...);
  }
};

/// In place of the clock where instructions are counted: callgrind does not see the vDSO, and takes the real one for a
/// system call.
struct StillClock {
  static inline std::atomic<std::int64_t> now_us{SystemClock{}.now().time_since_epoch().count()};
  [[nodiscard]] Instant now() const noexcept { return Instant{Micros{now_us.load(std::memory_order_relaxed)}}; }
};

// ---- contenders
// ------------------------------------------------------------------------------------------------------

/// Each is the place of one breaker; `open` gives the calling process its handle.
template <Clock C>
class InMemory {
 public:
  static constexpr const char* kName = "memory";
  static constexpr bool kShared = false;
  using Storage = MemoryStorage<C>;

  explicit InMemory(const BreakerConfig& config) : storage_(require(Storage::open(config))) {}
  [[nodiscard]] Storage open() const { return storage_; }

 private:
  Storage storage_;
};

template <Clock C>
class InSharedMemory {
 public:
  static constexpr const char* kName = "shared memory";
  static constexpr bool kShared = true;
  using Storage = ShmStorage<C>;

  explicit InSharedMemory(BreakerConfig config) : config_(std::move(config)) {
    (void)require(Segment::create(options_));
  }
  InSharedMemory(const InSharedMemory&) = delete;
  InSharedMemory& operator=(const InSharedMemory&) = delete;
  ~InSharedMemory() { (void)Segment::remove(options_); }

  /// An attachment of its own.
  [[nodiscard]] Storage open() const { return require(Storage::open(require(Segment::attach(options_)), config_)); }

 private:
  BreakerConfig config_;
  SegmentOptions options_{.name = "bench-" + std::to_string(::getpid()),
                          .breakers = 8,
                          .ring_slots = 2048,  // for windows up to 1023
                          .participants = 16,
                          .prefault = true};
};

template <class Mutex, Clock C>
class UnderMutex {
 public:
  static constexpr const char* kName =
      std::is_same_v<Mutex, RobustMutex> ? "robust pthread mutex" : "interprocess_mutex";
  static constexpr bool kShared = true;
  using Storage = LockedStorage<Mutex, C>;

  explicit UnderMutex(const BreakerConfig& config) : storage_(config) {}
  [[nodiscard]] Storage open() const { return storage_; }

 private:
  Storage storage_;
};

template <Clock C>
using Contenders = Types<InMemory<C>, InSharedMemory<C>, UnderMutex<RobustMutex, C>, UnderMutex<BoostMutex, C>>;

// ---- operations
// ------------------------------------------------------------------------------------------------------

/// What an operation works on: the breaker and a token of its Closed period.
template <class S>
struct Subject {
  explicit Subject(S storage) : breaker(std::move(storage)) {}

  CircuitBreaker<S> breaker;
  Token token{};
  std::uint32_t count = 0;
};

/// Stands for what a breaker protects: not inlined, does nothing.
[[gnu::noinline]] inline int downstream(int argument) noexcept {
  asm volatile("" : "+r"(argument));
  return argument;
}

inline constexpr const char* kLoadFloor = "a load";
inline constexpr const char* kRecordFloor = "clock, CAS, load, store";

/// Defaults; `prepare` leaves the breaker Closed with a full window.
template <std::uint32_t kWindow = 10>
struct Operation {
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
  static constexpr const char* kFloor = kRecordFloor;
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

/// Of two processes each has a success among half a window of its outcomes, so whole windows never fail: it stays
/// Closed.
template <std::uint32_t kWindow>
struct RecordFailure : Operation<kWindow> {
  static constexpr const char* kName = kWindow == 10 ? "record failure, window 10" : "record failure, window 1000";
  static constexpr const char* kFloor = kRecordFloor;
  template <class S>
  [[gnu::always_inline]] static void run(Subject<S>& subject) {
    const bool failure = ++subject.count < kWindow / 2;
    if (!failure) subject.count = 0;
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
                         RecordFailure<1000>, Snapshot>;

template <class Operation, class Contender>
class Case {
 public:
  static constexpr const char* kGroup = Operation::kName;
  static constexpr const char* kName = Contender::kName;
  static constexpr bool kShared = Contender::kShared;
  struct Place : Contender {
    Place() : Contender(Operation::config()) {}
  };

  explicit Case(const Place& place) : subject_(place.open()) { Operation::prepare(subject_); }
  [[gnu::always_inline]] void operator()() { Operation::run(subject_); }

 private:
  Subject<typename Contender::Storage> subject_;
};

// ---- floors
// ----------------------------------------------------------------------------------------------------------

/// A page of zeros that processes share, and in it a line for readers and one for writers.
class SharedPage {
 public:
  struct Words {
    alignas(64) std::atomic<std::uint64_t> read{0};
    alignas(64) std::atomic<std::uint64_t> swapped{0};
    std::atomic<std::uint64_t> stored{0};
  };

  SharedPage() {
    void* memory = ::mmap(nullptr, sizeof(Words), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    words_ = ::new (memory) Words;
  }
  SharedPage(const SharedPage&) = delete;
  SharedPage& operator=(const SharedPage&) = delete;
  ~SharedPage() { ::munmap(words_, sizeof(Words)); }
  [[nodiscard]] Words& words() const noexcept { return *words_; }

 private:
  Words* words_ = nullptr;
};

class Floor {
 public:
  static constexpr const char* kGroup = "floor";
  static constexpr bool kShared = true;
  using Place = SharedPage;
  explicit Floor(const Place& place) : words_(&place.words()) {}

 protected:
  SharedPage::Words* words_;
};

/// The loop alone; of the paced modes the work between two operations, which is subtracted from the others.
struct NothingFloor : Floor {
  static constexpr const char* kName = "nothing";
  using Floor::Floor;
  [[gnu::always_inline]] void operator()() const { keep(0); }
};

struct CallFloor : Floor {
  static constexpr const char* kName = "the bare call";
  using Floor::Floor;
  [[gnu::always_inline]] void operator()() const { keep(downstream(1)); }
};

struct LoadFloor : Floor {
  static constexpr const char* kName = kLoadFloor;
  using Floor::Floor;
  [[gnu::always_inline]] void operator()() const { keep(words_->read.load(std::memory_order_acquire)); }
};

template <Clock C>
struct ClockFloor : Floor {
  static constexpr const char* kName = "the clock";
  using Floor::Floor;
  [[gnu::always_inline]] void operator()() const { keep(C{}.now().time_since_epoch().count()); }
};

/// The least that an outcome could cost that is stamped with the time and shared: one load, one swap that is not
/// repeated when it is lost, one store, on a line that all processes write.
template <Clock C>
struct RecordFloor : Floor {
  static constexpr const char* kName = kRecordFloor;
  using Floor::Floor;
  [[gnu::always_inline]] void operator()() const {
    const auto now = static_cast<std::uint64_t>(C{}.now().time_since_epoch().count());
    std::uint64_t seen = words_->swapped.load(std::memory_order_acquire);
    keep(words_->swapped.compare_exchange_strong(seen, seen + 1, std::memory_order_acq_rel, std::memory_order_relaxed));
    words_->stored.store(now, std::memory_order_release);
  }
};

template <Clock C>
using Floors = Types<NothingFloor, CallFloor, LoadFloor, ClockFloor<C>, RecordFloor<C>>;

/// Calls `visit` with the type of every case there is.
template <Clock C, class Visit>
void for_each_case(Visit visit) {
  Floors<C>::for_each(visit);
  Operations::for_each([&]<class O>(std::type_identity<O>) {
    Contenders<C>::for_each([&]<class P>(std::type_identity<P>) { visit(std::type_identity<Case<O, P>>{}); });
  });
}

}  // namespace shmcb::bench
