// SPDX-License-Identifier: BSD-3-Clause
// What the shared-memory storage is measured against: the same contract with the same rules in memory that processes
// share, all of it under a mutex. `Mutex` is a process-shared pthread mutex (robust), Boost's interprocess_mutex, a
// spin lock or, for the threads of one process, std::mutex.
// Fair to them: the clock is read before the lock is taken, failures are counted as they come and go, an admit in
// Closed does nothing but look at the state.
#pragma once

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <boost/interprocess/sync/interprocess_mutex.hpp>

#include "shmcb/config.hpp"
#include "shmcb/core/rules.hpp"
#include "shmcb/storage.hpp"
#include "shmcb/time.hpp"
#include "shmcb/types.hpp"

namespace shmcb::bench {

/// PTHREAD_PROCESS_SHARED and PTHREAD_MUTEX_ROBUST: the death of a holder is told to the next one.
class RobustMutex {
 public:
  static constexpr const char* kName = "robust pthread mutex";
  static constexpr bool kShared = true;
  RobustMutex() noexcept {
    pthread_mutexattr_t attributes;
    ::pthread_mutexattr_init(&attributes);
    ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    ::pthread_mutex_init(&mutex_, &attributes);
    ::pthread_mutexattr_destroy(&attributes);
  }
  RobustMutex(const RobustMutex&) = delete;
  RobustMutex& operator=(const RobustMutex&) = delete;
  ~RobustMutex() { ::pthread_mutex_destroy(&mutex_); }

  /// True if the last holder died with it.
  [[nodiscard]] bool lock() noexcept {
    if (::pthread_mutex_lock(&mutex_) != EOWNERDEAD) [[likely]] {
      return false;
    }
    ::pthread_mutex_consistent(&mutex_);
    return true;
  }
  void unlock() noexcept { ::pthread_mutex_unlock(&mutex_); }

 private:
  pthread_mutex_t mutex_;
};

/// Boost's: not robust, so whoever dies with it stops all others for good.
class BoostMutex {
 public:
  static constexpr const char* kName = "interprocess_mutex";
  static constexpr bool kShared = true;
  [[nodiscard]] bool lock() noexcept {
    mutex_.lock();
    return false;
  }
  void unlock() noexcept { mutex_.unlock(); }

 private:
  boost::interprocess::interprocess_mutex mutex_;
};

/// Test and test-and-set, without ever giving the processor up: whoever is stopped or killed with it stops all others.
class SpinMutex {
 public:
  static constexpr const char* kName = "spin lock";
  static constexpr bool kShared = true;
  [[nodiscard]] bool lock() noexcept {
    // Acquire: pairs with the release of `unlock`. Relaxed while others have it: only the exchange takes it.
    while (taken_.exchange(true, std::memory_order_acquire)) {
      while (taken_.load(std::memory_order_relaxed))
        relax();
    }
    return false;
  }
  void unlock() noexcept { taken_.store(false, std::memory_order_release); }  // pairs with the exchange of `lock`

 private:
  static void relax() noexcept {
#if defined(__x86_64__)
    asm volatile("pause");
#elif defined(__aarch64__)
    asm volatile("isb");
#endif
  }
  std::atomic<bool> taken_{false};
};

/// Within one process.
class StdMutex {
 public:
  static constexpr const char* kName = "std::mutex";
  static constexpr bool kShared = false;
  [[nodiscard]] bool lock() noexcept {
    mutex_.lock();
    return false;
  }
  void unlock() noexcept { mutex_.unlock(); }

 private:
  std::mutex mutex_{};
};

/// The breaker as it lies in shared memory. Its functions require the lock.
template <class Mutex>
struct LockedBreaker {
  static constexpr std::uint32_t kMaxWindow = 4096;  // arbitrary: enough for what is measured

  /// {time in ticks, failure: 1}
  using Entry = std::uint64_t;

  explicit LockedBreaker(const Settings& numbers) noexcept : settings(numbers) {}

  [[nodiscard]] static rules::Tick time_of(Entry entry) noexcept { return static_cast<rules::Tick>(entry >> 1U); }
  [[nodiscard]] std::uint32_t index(std::uint32_t position) const noexcept {
    const std::uint32_t i = oldest + position;
    return i < settings.window ? i : i - settings.window;
  }

  /// What a robust mutex is for. The counts are made to fit the entries again; a full implementation would also have to
  /// undo a half-made transition. Reached only where holders are killed.
  [[gnu::noinline]] void repair() noexcept {
    size = std::min(size, settings.window);
    oldest = oldest < settings.window ? oldest : 0;
    failures = 0;
    for (std::uint32_t i = 0; i < size; ++i)
      failures += static_cast<std::uint32_t>(entries[index(i)] & 1U);
  }

  void drop_oldest() noexcept {
    failures -= static_cast<std::uint32_t>(entries[oldest] & 1U);
    oldest = index(1);
    --size;
  }
  void push(rules::Tick at, bool failure) noexcept {
    while (size > 0 && time_of(entries[oldest]) < at - settings.within_ms)
      drop_oldest();
    if (size == settings.window) drop_oldest();
    entries[index(size)] = (static_cast<Entry>(at) << 1U) | (failure ? 1U : 0U);
    ++size;
    failures += failure ? 1U : 0U;
  }
  [[nodiscard]] rules::Tick newest_or(rules::Tick otherwise) const noexcept {
    return size == 0 ? otherwise : time_of(entries[index(size - 1)]);
  }

  [[nodiscard]] rules::Effects record_allowed(std::uint64_t period, bool failure, rules::Tick now,
                                              RecordStatus& status) noexcept {
    if (breaker.state != CircuitState::closed || period != generation) {
      status = RecordStatus::stale;
      return {};
    }
    rules::Tick at = rules::not_before(breaker, now);
    at = std::max(at, newest_or(at));
    push(at, failure);
    status = RecordStatus::counted;
    // The rule of the benchmarks' configurations only: a number of failures.
    if (!failure || failures < settings.failures) return {};
    return rules::trip(breaker, settings, at, TransitionReason::failure_threshold_reached, 0);
  }

  void carry_out(const rules::Effects& effects) noexcept {
    if (effects.change == rules::Change::transition) ++generation;
    if (effects.empties_window) oldest = size = failures = 0;
    if (effects.resets_rejected) rejected = 0;
  }

  Mutex mutex{};
  Settings settings;
  rules::Breaker breaker{};
  std::uint64_t generation = 1;
  std::uint64_t next_probe = 1;
  std::uint64_t rejected = 0;
  std::uint32_t oldest = 0;
  std::uint32_t size = 0;
  std::uint32_t failures = 0;
  std::array<Entry, kMaxWindow> entries{};
};

/// The storage over it. Copies, and those of forked children, act on the same breaker.
template <class Mutex, Clock C = SystemClock>
class LockedStorage {
 public:
  /// Maps a fresh breaker that the children of this process will share.
  explicit LockedStorage(const BreakerConfig& config, C clock = {}) : name_(config.name), clock_(std::move(clock)) {
    void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || config.failure_threshold.window > Shared::kMaxWindow) std::abort();
    shared_ = std::shared_ptr<Shared>(::new (memory) Shared(settings_of(config)), [](Shared* shared) {
      ::munmap(shared, sizeof(Shared));  // without the mutex's destructor: other processes may still have it
    });
  }

  [[nodiscard]] AdmitResult admit() noexcept {
    const Locked shared(*shared_);
    if (shared->breaker.state == CircuitState::closed) {
      return {.admission = Admission::allowed,
              .state = CircuitState::closed,
              .token = {.period = shared->generation, .admission = Admission::allowed}};
    }
    const rules::AdmitDecision decision = rules::admit(shared->breaker, shared->settings, tick_of(now()),
                                                       {.ids = {shared->next_probe, shared->next_probe}});
    AdmitResult result{.admission = decision.admission, .transition = carry_out(*shared, decision.effects)};
    result.state = shared->breaker.state;
    result.token = {.period = decision.probe, .admission = decision.admission};
    if (decision.admission == Admission::rejected) {
      ++shared->rejected;
      result.retry_after = Millis{decision.retry_after};
      result.retry_at = instant(decision.retry_at);
    } else {
      ++shared->next_probe;
    }
    return result;
  }

  [[nodiscard]] RecordResult record_outcome(Token token, Outcome outcome, CompletedAt completed_at = {}) noexcept {
    if (token.admission == Admission::rejected) return {.status = RecordStatus::rejected};
    if (token.admission == Admission::allowed && outcome == Outcome::ignored) return {.status = RecordStatus::ignored};
    const rules::Tick at = tick_of(completed_at ? *completed_at : now());
    const Locked shared(*shared_);
    RecordResult result;
    if (token.admission == Admission::allowed) {
      const bool failure = outcome == Outcome::failure;
      result.transition = carry_out(*shared, shared->record_allowed(token.period, failure, at, result.status));
    } else {
      const auto decision =
          rules::record_probe(shared->breaker, shared->settings, at, {.probe = token.period, .outcome = outcome});
      result.status = decision.status;
      result.transition = carry_out(*shared, decision.effects);
    }
    return result;
  }

  [[nodiscard]] RecordResult abandon(Token token) noexcept { return record_outcome(token, Outcome::ignored); }
  [[nodiscard]] ForceResult force_state(CircuitState state, const Note& /*note*/ = {}) noexcept {
    const Locked shared(*shared_);
    return {.transition =
                carry_out(*shared, rules::force(shared->breaker, shared->settings, tick_of(now()), state, 0))};
  }
  [[nodiscard]] ModeResult set_mode(const ModeRequest& request) noexcept {
    const Locked shared(*shared_);
    const Mode previous = shared->breaker.mode;
    (void)carry_out(*shared, rules::set_mode(shared->breaker, tick_of(now()), request.mode, rules::kNever));
    return {.previous = previous};
  }
  /// It keeps none.
  [[nodiscard]] CountersResult counters() const noexcept { return {.error = Errc::unusable}; }
  [[nodiscard]] SnapshotResult snapshot() const noexcept {
    const Locked shared(*shared_);
    return {.record = record(*shared)};
  }
  [[nodiscard]] PeekResult peek() const noexcept {
    const Locked shared(*shared_);
    PeekResult result{.state = shared->breaker.state};
    if (result.state != CircuitState::open) return result;
    const rules::Tick at = rules::not_before(shared->breaker, tick_of(now()));
    const rules::Tick left = shared->breaker.open_until - at;
    result.cooldown_left = Millis{std::max<rules::Tick>(0, left)};
    return result;
  }
  [[nodiscard]] Instant now() const noexcept { return clock_.now(); }
  [[nodiscard]] std::string_view name() const noexcept { return name_; }
  [[nodiscard]] Settings settings() const noexcept { return shared_->settings; }
  [[nodiscard]] bool degraded() const noexcept { return false; }

 private:
  using Shared = LockedBreaker<Mutex>;

  /// The breaker, for as long as the lock is held.
  class Locked {
   public:
    explicit Locked(Shared& shared) noexcept : shared_(shared) {
      if (shared.mutex.lock()) [[unlikely]] {
        shared.repair();
      }
    }
    ~Locked() { shared_.mutex.unlock(); }
    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;
    Shared& operator*() const noexcept { return shared_; }
    Shared* operator->() const noexcept { return &shared_; }

   private:
    Shared& shared_;
  };

  [[nodiscard]] static rules::Tick tick_of(Instant instant) noexcept {
    return std::chrono::floor<Millis>(instant.time_since_epoch()).count();
  }
  [[nodiscard]] static Instant instant(rules::Tick tick) noexcept { return Instant{Millis{tick}}; }

  [[nodiscard]] static StateRecord record(const Shared& shared) noexcept {
    StateRecord out{.state = shared.breaker.state, .rejected = shared.rejected};
    if (shared.breaker.opened_at != rules::kNever) out.opened_at = instant(shared.breaker.opened_at);
    const bool probing = out.state == CircuitState::half_open;
    out.successes = probing ? shared.breaker.probe_successes : shared.size - shared.failures;
    out.failures = probing ? 0 : shared.failures;
    return out;
  }
  [[nodiscard]] std::optional<CircuitTransition> carry_out(Shared& shared,
                                                           const rules::Effects& effects) const noexcept {
    shared.carry_out(effects);
    if (effects.reason == TransitionReason::none) [[likely]] {
      return std::nullopt;
    }
    return CircuitTransition{.breaker_name = name_,
                             .from = effects.from,
                             .to = shared.breaker.state,
                             .reason = effects.reason,
                             .occurred_at = instant(effects.at),
                             .state = record(shared)};
  }

  std::string name_;
  [[no_unique_address]] C clock_;
  std::shared_ptr<Shared> shared_;
};

static_assert(Storage<LockedStorage<RobustMutex>> && Storage<LockedStorage<BoostMutex>>);
static_assert(Storage<LockedStorage<SpinMutex>> && Storage<LockedStorage<StdMutex>>);

}  // namespace shmcb::bench
