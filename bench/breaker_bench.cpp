// SPDX-License-Identifier: BSD-3-Clause
// Every operation in one run: in memory, in shared memory, under mutexes, and the floors; in one process, and with a
// second one that does the same. Each launch has a segment or mapping of its own, launches of all
// cases take turns in random order. Takes the options of Google Benchmark; prints the tables of docs/performance.md.
#include <time.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <benchmark/benchmark.h>

#include "cases.hpp"
#include "machine.hpp"
#include "neighbour.hpp"
#include "shmcb/core/layout.hpp"
#include "tables.hpp"

namespace {

using namespace shmcb::bench;

enum class Mode : std::uint8_t { alone, hammering, paced };

constexpr const char* name_of(Mode mode) {
  switch (mode) {
    case Mode::alone: return "1 process";
    case Mode::hammering: return "2 processes, hammering";
    case Mode::paced: return "2 processes, paced";
  }
  return "";
}

template <class C, Mode mode>
struct Step {
  explicit Step(const typename C::Place& place) : act(place) {}
  [[gnu::always_inline]] void operator()() {
    if constexpr (mode == Mode::paced) pace(x);
    act();
  }
  C act;
  std::uint64_t x = 1;
};

/// Seconds on the wall, or, for one process, which waits for nobody, on its processor: other load preempts it, no more.
template <Mode mode>
double seconds() {
  timespec now{};
  ::clock_gettime(mode == Mode::alone ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

/// One launch. `ns`: an operation as one process sees it, the mean of the processes.
template <class C, Mode mode>
void launch(benchmark::State& state) {
  pin_to(0);
  const typename C::Place place;
  std::optional<Neighbour> neighbour;
  if constexpr (mode != Mode::alone) neighbour.emplace([&place] { return Step<C, mode>(place); });
  Step<C, mode> step(place);
  if (neighbour) neighbour->start();

  const std::uint64_t waited_before = waited_ns();
  const std::uint64_t done_before = neighbour ? neighbour->done() : 0;
  const double start = seconds<mode>();
  for (auto _ : state)
    step();
  const double elapsed = seconds<mode>() - start;
  const std::uint64_t done = neighbour ? neighbour->done() - done_before : 0;
  std::uint64_t waited = waited_ns() - waited_before;

  double ns = elapsed * 1e9 / static_cast<double>(state.iterations());
  if (neighbour) {
    waited = std::max(waited, neighbour->stop());
    if (done > 0) ns = (ns + elapsed * 1e9 / static_cast<double>(done)) / 2;
  }
  state.counters["ns"] = ns;
  state.counters["waited"] = static_cast<double>(waited) / 1e9 / elapsed;
  if constexpr (requires { C::kFloor; }) state.SetLabel(C::kFloor);  // for those who read the JSON
}

template <class C, Mode mode>
void add() {
  const std::string name = std::string{name_of(mode)} + "/" + C::kGroup + "/" + C::kName;
  benchmark::RegisterBenchmark(name.c_str(), &launch<C, mode>)->UseRealTime();
}

/// Calls `visit` with the mode and the type of everything there is to launch, in the order of the tables.
template <class Visit>
void for_each_launch(Visit visit) {
  for_each_case<shmcb::SystemClock>(
      [&]<class C>(std::type_identity<C> c) { visit(c, std::integral_constant<Mode, Mode::alone>{}); });
  for_each_case<shmcb::SystemClock>([&]<class C>(std::type_identity<C> c) {
    if constexpr (C::kShared) visit(c, std::integral_constant<Mode, Mode::hammering>{});
  });
  for_each_case<shmcb::SystemClock>([&]<class C>(std::type_identity<C> c) {
    if constexpr (C::kShared) visit(c, std::integral_constant<Mode, Mode::paced>{});
  });
}

class TableReporter : public benchmark::BenchmarkReporter {
 public:
  TableReporter() {  // they come in random order
    for_each_launch([this]<class C, Mode mode>(std::type_identity<C>, std::integral_constant<Mode, mode>) {
      tables_.expect(name_of(mode), C::kGroup, C::kName);
    });
  }
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (run.run_type != Run::RT_Iteration || run.error_occurred) continue;
      const std::string& name = run.run_name.function_name;
      const std::size_t first = name.find('/');
      const std::size_t second = name.find('/', first + 1);
      tables_.add(name.substr(0, first), name.substr(first + 1, second - first - 1), name.substr(second + 1),
                  {.ns = run.counters.at("ns"), .waited = run.counters.at("waited")});
    }
  }
  void Finalize() override {
    tables_.print([](const std::string& operation) {
      std::string floor;
      Operations::for_each([&]<class O>(std::type_identity<O>) {
        if (operation == O::kName) floor = O::kFloor;
      });
      return floor;
    });
  }

 private:
  static std::vector<std::string> contenders() {
    std::vector<std::string> names;
    Contenders<shmcb::SystemClock>::for_each([&]<class C>(std::type_identity<C>) { names.emplace_back(C::kName); });
    return names;
  }

  Tables tables_{contenders()};
};

/// Everything included, in a segment that has just the room: records, rings, index, 256 participants, the journal.
void print_memory() {
  constexpr std::uint32_t kParticipants = 256;  // the default
  constexpr std::array kWindows{10U, 100U, 1'000U, 4'096U};
  std::printf("\n### Memory, bytes a breaker\n\n| breakers |");
  for (const std::uint32_t window : kWindows)
    std::printf(" window %u |", window);
  std::printf("\n|---|---|---|---|---|\n");
  for (const std::uint32_t breakers : {100U, 1'000U, 100'000U}) {
    std::printf("| %u |", breakers);
    for (const std::uint32_t window : kWindows) {
      const std::uint64_t slots = std::uint64_t{breakers} * shmcb::core::ring_capacity(window);
      const std::uint64_t bytes = shmcb::core::geometry_of(breakers, kParticipants, slots).total_bytes;
      std::printf(" %.0f |", static_cast<double>(bytes) / breakers);
    }
    std::printf("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  for_each_launch(
      []<class C, Mode mode>(std::type_identity<C>, std::integral_constant<Mode, mode>) { add<C, mode>(); });

  // Before the caller's own, which win. Many short launches: each has a fair chance not to be disturbed.
  std::vector<std::string> options{argv[0], "--benchmark_repetitions=61", "--benchmark_min_time=0.005",
                                   "--benchmark_enable_random_interleaving=true"};
  options.insert(options.end(), argv + 1, argv + argc);
  std::vector<char*> arguments;
  for (std::string& option : options)
    arguments.push_back(option.data());
  int count = static_cast<int>(arguments.size());
  benchmark::Initialize(&count, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) return 2;
  for (const auto& [key, value] : machine())
    benchmark::AddCustomContext(key, value);
  TableReporter reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter);
  print_memory();
}
