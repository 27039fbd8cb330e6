// SPDX-License-Identifier: BSD-3-Clause
// CLOCK_MONOTONIC read through the processor's time stamp counter: the counter and an anchor, an instant at which both
// were read, renewed every few milliseconds. docs/performance.md, "Clocks", states the error. No lock, no system call
// but at the first use; works without exceptions.
#pragma once

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <string_view>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "shmcb/core/process_identity.hpp"
#include "shmcb/time.hpp"

namespace shmcb {

/// The counter and the clock of this machine; a parameter of the clock so that tests can have both misbehave.
struct TscMachine {
  /// Whether the counter runs at one rate whatever the processor does, and the kernel itself goes by it. Asked once in
  /// the life of a process.
  [[nodiscard]] static bool available() noexcept {
    int known = availability.load(std::memory_order_relaxed);  // relaxed: the number is all there is
    if (known == 0) [[unlikely]] {
      known = invariant() && trusted_by_kernel() ? 1 : -1;
      availability.store(known, std::memory_order_relaxed);  // relaxed: whoever asks at the same time finds the same
    }
    return known > 0;
  }

  /// May be read a little before what precedes it: ordering it would cost as much again.
  [[nodiscard]] static std::uint64_t ticks() noexcept {
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    return 0;
#endif
  }

  [[nodiscard]] static std::int64_t monotonic_ns() noexcept {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  }

 private:
  [[nodiscard]] static bool invariant() noexcept {
#if defined(__x86_64__)
    constexpr unsigned kAdvancedPowerManagement = 0x8000'0007;
    constexpr unsigned kInvariantTsc = 1U << 8U;
    unsigned eax = 0;
    unsigned ebx = 0;
    unsigned ecx = 0;
    unsigned edx = 0;
    return __get_cpuid(kAdvancedPowerManagement, &eax, &ebx, &ecx, &edx) != 0 && (edx & kInvariantTsc) != 0;
#else
    return false;
#endif
  }

  /// The kernel watches the counters of all processors and takes another source where they disagree.
  [[nodiscard]] static bool trusted_by_kernel() noexcept {
    const int error = errno;
    std::array<char, 32> text{};
    ssize_t bytes = 0;
    const int fd = ::open("/sys/devices/system/clocksource/clocksource0/current_clocksource", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
      bytes = ::read(fd, text.data(), text.size());
      ::close(fd);
    }
    errno = error;
    const std::string_view source{text.data(), bytes > 0 ? static_cast<std::size_t>(bytes) : 0};
    return source == "tsc\n" || source == "kvm-clock\n";
  }

  static inline constinit std::atomic<int> availability{0};  // 0: nobody has asked yet
};

/// The timeline of SystemClock, at less cost. The anchor is the process's: all threads share it, whoever finds it old
/// renews it, and until that is done the others read CLOCK_MONOTONIC itself. Forked children go on with their own copy.
/// Where there is no such counter: SystemClock.
template <class Machine>
class BasicTscClock {
 public:
  /// Whether the counter is used; otherwise this is SystemClock.
  [[nodiscard]] static bool available() noexcept { return Machine::available(); }

  [[nodiscard]] Instant now() const noexcept {
    const Anchor& a = anchor;
    const std::uint64_t version = a.version.load(std::memory_order_acquire);  // sync: tsc-anchor
    if ((version & 1U) == 0) [[likely]] {
      // sync: tsc-anchor-words (acquire): keeps the second look at the version behind them
      const std::uint64_t start = a.start.load(std::memory_order_acquire);
      const std::int64_t start_us = a.start_us.load(std::memory_order_acquire);  // sync: tsc-anchor-words
      const std::uint64_t rate = a.rate.load(std::memory_order_acquire);         // sync: tsc-anchor-words
      const std::uint64_t passed = Machine::ticks() - start;  // huge where another processor's counter is a little less
      // relaxed: behind the acquire loads, see tsc-anchor-words
      if (passed < kSpan && a.version.load(std::memory_order_relaxed) == version) [[likely]] {
        return Instant{Micros{start_us + static_cast<std::int64_t>((passed * rate) >> kRateShift)}};
      }
    }
    return read_monotonic();
  }

 private:
  using Word = std::atomic<std::uint64_t>;
  static_assert(Word::is_always_lock_free, "a signal handler or a forked child may read the clock");

  /// For how many ticks an anchor serves: 2 to 4 ms at 4 to 2 GHz. Within it the rate counts as constant; the kernel
  /// changes it by no more than a tenth, and in normal operation by 500 ppm, 2 us in this span.
  static constexpr std::uint64_t kSpan = std::uint64_t{1} << 23U;
  /// An interval that is longer (0.5 to 1 s) may have a suspended machine in it: no rate is taken from it.
  static constexpr std::uint64_t kLongest = std::uint64_t{1} << 31U;
  static constexpr std::int64_t kLongestNs = std::int64_t{1} << 31U;  // shifted by kRateShift it does not overflow
  /// The clock was read somewhere between two looks at the counter; where they are further apart than this (0.5 to 1
  /// us) the thread was interrupted, and it is no anchor.
  static constexpr std::uint64_t kMostBetween = std::uint64_t{1} << 11U;
  static constexpr unsigned kRateShift = 32;

  struct alignas(64) Anchor {
    Word version{1};  ///< odd: not to be used
    Word start{0};    ///< the counter at the beginning of the microsecond `start_us`
    std::atomic<std::int64_t> start_us{0};
    Word rate{0};  ///< microseconds a tick, times 2^32
    // Of the one who renews it alone:
    Word renewing{0};   ///< the process in which a thread is renewing; a parent's is nobody's business
    Word last_tick{0};  ///< when both were read last
    std::atomic<std::int64_t> last_ns{0};
    Word last_rate{0};  ///< what they said since the time before; 0: nothing
  };

  [[nodiscard, gnu::noinline]] static Instant read_monotonic() noexcept {
    if (!Machine::available()) return instant(Machine::monotonic_ns());
    const std::uint64_t before = Machine::ticks();
    const std::int64_t ns = Machine::monotonic_ns();
    const std::uint64_t between = Machine::ticks() - before;
    if (between <= kMostBetween) renew(before + between / 2, ns);
    return instant(ns);
  }

  [[nodiscard]] static Instant instant(std::int64_t ns) noexcept { return Instant{Micros{ns / 1'000}}; }

  static void renew(std::uint64_t tick, std::int64_t ns) noexcept {
    Anchor& a = anchor;
    const std::uint64_t self = core::current_process();
    std::uint64_t found = 0;
    // sync: tsc-renewing (acquire). Relaxed on failure: then another thread renews it, or the thread that this signal
    // handler interrupts.
    while (!a.renewing.compare_exchange_strong(found, self, std::memory_order_acquire, std::memory_order_relaxed)) {
      if (found == self) return;
    }
    // A parent's thread was just renewing when this child was forked: what it left may be half of two anchors.
    if (found != 0) a.last_rate.store(0, std::memory_order_relaxed);  // relaxed, here and below: ours until released
    const std::uint64_t ticks = tick - a.last_tick.load(std::memory_order_relaxed);
    // Else somebody was here just now; on a processor whose counter is ahead of ours, if it seems to come.
    if (std::min(ticks, 0 - ticks) >= kSpan) {
      const std::int64_t passed_ns = ns - a.last_ns.load(std::memory_order_relaxed);
      const bool plausible = ticks < kLongest && passed_ns > 0 && passed_ns < kLongestNs;
      const std::uint64_t rate =
          plausible ? (static_cast<std::uint64_t>(passed_ns) << kRateShift) / (1'000 * ticks) : 0;
      const std::uint64_t last = a.last_rate.load(std::memory_order_relaxed);
      a.last_tick.store(tick, std::memory_order_relaxed);
      a.last_ns.store(ns, std::memory_order_relaxed);
      a.last_rate.store(rate, std::memory_order_relaxed);

      const std::uint64_t version = a.version.load(std::memory_order_relaxed) | 1U;
      a.version.store(version, std::memory_order_relaxed);  // relaxed: what follows is released behind it
      // Believed if two intervals in a row agree within an eighth, which leaves room for the kernel's tenth.
      if (rate > last - last / 8 && rate < last + last / 8) {
        const auto into_us = static_cast<std::uint64_t>(ns % 1'000) * ticks / static_cast<std::uint64_t>(passed_ns);
        a.start.store(tick - into_us, std::memory_order_release);  // sync: tsc-anchor-words: the version is odd
        a.start_us.store(ns / 1'000, std::memory_order_release);   // sync: tsc-anchor-words
        a.rate.store(rate, std::memory_order_release);             // sync: tsc-anchor-words
        a.version.store(version + 1, std::memory_order_release);   // sync: tsc-anchor
      }
    }
    a.renewing.store(0, std::memory_order_release);  // sync: tsc-renewing
  }

  static inline constinit Anchor anchor{};
};

using TscClock = BasicTscClock<TscMachine>;
static_assert(Clock<TscClock>);

}  // namespace shmcb
