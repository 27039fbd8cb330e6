// SPDX-License-Identifier: BSD-3-Clause
// What an instant costs: the clocks that a storage may have, the bare calls and instructions under them, and what
// CLOCK_BOOTTIME would cost. Takes the options of Google Benchmark.
#include <time.h>

#include <benchmark/benchmark.h>

#include "shmcb/time.hpp"
#include "shmcb/tsc_clock.hpp"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace {

template <class C>
void clock_policy(benchmark::State& state) {
  const C clock;
  for (auto _ : state)
    benchmark::DoNotOptimize(clock.now());
}
BENCHMARK(clock_policy<shmcb::SystemClock>)->Name("SystemClock");
BENCHMARK(clock_policy<shmcb::CoarseClock>)->Name("CoarseClock");

void tsc_clock(benchmark::State& state) {
  if (!shmcb::TscClock::available()) state.SetLabel("not available: SystemClock");
  const shmcb::TscClock clock;
  for (auto _ : state)
    benchmark::DoNotOptimize(clock.now());
}
BENCHMARK(tsc_clock)->Name("TscClock");

/// What TscClock is where there is no counter.
struct NoTsc : shmcb::TscMachine {
  static bool available() noexcept { return false; }
};
BENCHMARK(clock_policy<shmcb::BasicTscClock<NoTsc>>)->Name("TscClock, fallback");

void kernel_clock(benchmark::State& state, clockid_t id) {
  timespec now{};
  for (auto _ : state) {
    ::clock_gettime(id, &now);
    benchmark::DoNotOptimize(now);
  }
}
BENCHMARK_CAPTURE(kernel_clock, monotonic, CLOCK_MONOTONIC)->Name("CLOCK_MONOTONIC");
BENCHMARK_CAPTURE(kernel_clock, boottime, CLOCK_BOOTTIME)->Name("CLOCK_BOOTTIME");
BENCHMARK_CAPTURE(kernel_clock, coarse, CLOCK_MONOTONIC_COARSE)->Name("CLOCK_MONOTONIC_COARSE");

#if defined(__x86_64__)
void rdtsc(benchmark::State& state) {
  for (auto _ : state)
    benchmark::DoNotOptimize(__rdtsc());
}
BENCHMARK(rdtsc);

void rdtscp(benchmark::State& state) {
  unsigned processor = 0;
  for (auto _ : state)
    benchmark::DoNotOptimize(__rdtscp(&processor));
}
BENCHMARK(rdtscp);
#endif

}  // namespace
