// SPDX-License-Identifier: BSD-3-Clause
// Time: one monotonic timeline, injected as a clock. The rules tick in whole milliseconds; instants are kept to the
// microsecond. Wall-clock time decides nothing anywhere.
#pragma once

#include <time.h>

#include <atomic>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <memory>

namespace shmcb {

using Millis = std::chrono::duration<std::int64_t, std::milli>;
using Micros = std::chrono::duration<std::int64_t, std::micro>;

/// The timeline of CLOCK_MONOTONIC (or of a fake clock); a type of its own so that wall-clock time cannot be mixed in.
struct MonotonicTimeline {};

/// A point on a storage's monotonic timeline.
using Instant = std::chrono::time_point<MonotonicTimeline, Micros>;

/// A source of instants. `now` is called at most once per operation and only where the operation needs the time (never
/// by an admit in Closed). Safe to call from any thread.
template <class C>
concept Clock = std::copy_constructible<C> && requires(const C& clock) {
  { clock.now() } noexcept -> std::same_as<Instant>;
};

/// CLOCK_MONOTONIC, the same for all processes of a host and a time namespace. The default.
struct SystemClock {
  [[nodiscard]] Instant now() const noexcept { return read(CLOCK_MONOTONIC); }

 private:
  friend struct CoarseClock;
  static Instant read(clockid_t id) noexcept {
    timespec ts;  // NOLINT(cppcoreguidelines-pro-type-member-init): the call fills it
    ::clock_gettime(id, &ts);
    const auto ns = static_cast<std::uint32_t>(ts.tv_nsec);  // below 10^9; unsigned divides in fewer instructions
    return Instant{Micros{std::int64_t{ts.tv_sec} * 1'000'000 + ns / 1'000}};
  }
};

/// CLOCK_MONOTONIC_COARSE: the same timeline, up to one timer tick (1 to 10 ms) behind. Mixing it with SystemClock in
/// one segment is fine: an instant earlier than what the breaker has seen counts as that one.
struct CoarseClock {
  [[nodiscard]] Instant now() const noexcept { return SystemClock::read(CLOCK_MONOTONIC_COARSE); }
};

/// A clock for tests: stands still until it is set. Copies share the time; safe from any thread.
class FakeClock {
 public:
  explicit FakeClock(Instant start = Instant{std::chrono::hours{1}})
      : now_us_(std::make_shared<std::atomic<std::int64_t>>(start.time_since_epoch().count())) {}

  // Relaxed: a test that hands instants between threads orders them by its own means.
  [[nodiscard]] Instant now() const noexcept { return Instant{Micros{now_us_->load(std::memory_order_relaxed)}}; }
  void set(Instant now) noexcept { now_us_->store(now.time_since_epoch().count(), std::memory_order_relaxed); }
  void advance(Micros by) noexcept { now_us_->fetch_add(by.count(), std::memory_order_relaxed); }

 private:
  std::shared_ptr<std::atomic<std::int64_t>> now_us_;
};

}  // namespace shmcb
