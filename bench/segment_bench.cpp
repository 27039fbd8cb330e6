// SPDX-License-Identifier: BSD-3-Clause
// What happens once or seldom: attaching to a segment and making one, beside the bare system calls of it; finding a
// breaker by its name, and registering one. Takes the options of Google Benchmark.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <benchmark/benchmark.h>

#include "machine.hpp"
#include "measured.hpp"
#include "shmcb/segment.hpp"
#include "shmcb/shm_storage.hpp"

namespace {

using namespace shmcb;
using namespace shmcb::bench;

// ---- attaching
// -------------------------------------------------------------------------------------------------------

/// About 1 MiB.
SegmentOptions options_of_mib(const std::string& name) {
  return {.name = name, .breakers = 512, .participants = 128};
}

/// A segment, and beside it as many bytes of shared memory without anything in it. Made by another process, so that
/// nothing of it is remembered in this one.
class Existing {
 public:
  Existing() {
    run_in_child([this] {
      const Segment segment = require(Segment::create(options_of_mib(name())));
      const int file = ::shm_open(plain().c_str(), O_CREAT | O_EXCL | O_RDWR, 0600);
      const auto bytes = static_cast<::off_t>(segment.geometry().total_bytes);
      if (file < 0 || ::ftruncate(file, bytes) != 0) std::abort();
      void* memory = ::mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
      if (memory == MAP_FAILED) std::abort();
      for (::off_t i = 0; i < bytes; i += 4096)
        static_cast<char*>(memory)[i] = 1;  // its pages are there, like those of a segment in use
    });
    const int file = ::shm_open(plain().c_str(), O_RDWR, 0);
    bytes_ = static_cast<std::size_t>(::lseek(file, 0, SEEK_END));
    ::close(file);
  }
  Existing(const Existing&) = delete;
  Existing& operator=(const Existing&) = delete;
  ~Existing() {
    (void)Segment::remove(options_of_mib(name()));
    ::shm_unlink(plain().c_str());
  }

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::string plain() const { return "/" + name_ + "-plain"; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  template <class F>
  static void run_in_child(F work) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      work();
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(pid, &status, 0);
    if (status != 0) std::abort();
  }

  std::string name_ = "bench-attach-" + std::to_string(::getpid());
  std::size_t bytes_ = 0;
};

void attach(const SegmentOptions& options) {
  keep(&require(Segment::attach(options)).geometry());
}

void map_plainly(const char* name, std::size_t bytes) {
  const int file = ::shm_open(name, O_RDWR | O_CLOEXEC, 0);
  if (file < 0) std::abort();
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) std::abort();
  keep(memory);
  ::munmap(memory, bytes);
  ::close(file);
}

void attach_again(benchmark::State& state) {
  const Existing existing;
  const SegmentOptions options = options_of_mib(existing.name());
  attach(options);
  for (auto _ : state)
    attach(options);
  state.SetLabel(std::to_string(existing.bytes()) + " bytes");
}
BENCHMARK(attach_again)->Name("attach and detach/again");

void map_again(benchmark::State& state) {
  const Existing existing;
  const std::string name = existing.plain();
  for (auto _ : state)
    map_plainly(name.c_str(), existing.bytes());
}
BENCHMARK(map_again)->Name("shm_open, mmap, munmap, close/again");

/// The arguments by which this program measures one thing once, at the start of its life, and prints the nanoseconds.
constexpr std::string_view kFirst = "--first";

int measure_first(std::string_view what, const char* name, std::size_t bytes) {
  const SegmentOptions options = options_of_mib(name);
  const std::uint64_t start = clock_ns();
  if (what == "attach") {
    attach(options);
  } else {
    map_plainly(name, bytes);
  }
  std::printf("%llu\n", static_cast<unsigned long long>(clock_ns() - start));
  return 0;
}

double seconds_of_first(const std::string& what, const std::string& name, std::size_t bytes) {
  const std::string command = "exec /proc/" + std::to_string(::getpid()) + "/exe " + std::string{kFirst} + " " + what +
                              " " + name + " " + std::to_string(bytes);
  std::FILE* answer = ::popen(command.c_str(), "r");
  unsigned long long ns = 0;
  if (answer == nullptr || std::fscanf(answer, "%llu", &ns) != 1 || ::pclose(answer) != 0) std::abort();
  return static_cast<double>(ns) / 1e9;
}

constexpr int kFirstTimes = 20;  // arbitrary; each takes a new process

void attach_first(benchmark::State& state) {
  const Existing existing;
  for (auto _ : state)
    state.SetIterationTime(seconds_of_first("attach", existing.name(), existing.bytes()));
}
BENCHMARK(attach_first)->Name("attach and detach/first in a process")->UseManualTime()->Iterations(kFirstTimes);

void map_first(benchmark::State& state) {
  const Existing existing;
  for (auto _ : state)
    state.SetIterationTime(seconds_of_first("map", existing.plain(), existing.bytes()));
}
BENCHMARK(map_first)
    ->Name("shm_open, mmap, munmap, close/first in a process")
    ->UseManualTime()
    ->Iterations(kFirstTimes);

void create(benchmark::State& state) {
  const SegmentOptions options = options_of_mib("bench-create-" + std::to_string(::getpid()));
  for (auto _ : state) {
    const std::uint64_t start = clock_ns();
    {
      const Segment segment = require(Segment::create(options));
      state.SetIterationTime(static_cast<double>(clock_ns() - start) / 1e9);
    }
    (void)Segment::remove(options);
  }
}
BENCHMARK(create)->Name("create a segment")->UseManualTime();

// ---- breakers by name
// ------------------------------------------------------------------------------------------------

BreakerConfig breaker(std::uint64_t i) {
  return {.name = "payments.backend-" + std::to_string(i) + ".example"};
}

/// A segment full of breakers, but for `room`.
class Full {
 public:
  explicit Full(std::uint64_t breakers, std::uint64_t room = 0)
      : options_{.name = "bench-names-" + std::to_string(::getpid()),
                 .breakers = static_cast<std::uint32_t>(breakers + room),
                 .prefault = true},
        segment_(require(Segment::create(options_))) {
    for (std::uint64_t i = 0; i < breakers; ++i)
      (void)require(ShmStorage<>::open(segment_, breaker(i)));
  }
  Full(const Full&) = delete;
  Full& operator=(const Full&) = delete;
  ~Full() { (void)Segment::remove(options_); }
  [[nodiscard]] const Segment& segment() const { return segment_; }

 private:
  SegmentOptions options_;
  Segment segment_;
};

/// Opens breakers that exist, in an order that no cache foresees.
void look_up(benchmark::State& state) {
  const auto count = static_cast<std::uint64_t>(state.range(0));
  const Full full(count);
  constexpr std::uint64_t kConfigs = 4096;  // made before, so that writing names is not measured
  std::vector<BreakerConfig> configs;
  std::uint64_t x = 1;
  for (std::uint64_t i = 0; i < kConfigs; ++i) {
    x = x * 6364136223846793005U + 1442695040888963407U;
    configs.push_back(breaker((x >> 33U) % count));
  }
  std::size_t i = 0;
  for (auto _ : state) {
    const auto storage = ShmStorage<>::open(full.segment(), configs[i++ % kConfigs]);
    if (!storage) std::abort();
    keep(&*storage);
  }
}
BENCHMARK(look_up)->Name("open an existing breaker")->Arg(10)->Arg(1'000)->Arg(100'000);

void add(benchmark::State& state) {
  const auto count = static_cast<std::uint64_t>(state.range(0));
  constexpr std::uint64_t kRoom = 1'000;
  const Full full(count, kRoom);
  std::vector<BreakerConfig> configs;
  for (std::uint64_t i = 0; i < kRoom; ++i)
    configs.push_back(breaker(count + i));
  std::size_t i = 0;
  for (auto _ : state) {
    const auto storage = ShmStorage<>::open(full.segment(), configs[i++]);
    if (!storage) std::abort();
    keep(&*storage);
  }
}
BENCHMARK(add)->Name("register a breaker beside")->Arg(10)->Arg(1'000)->Arg(100'000)->Iterations(1'000);

}  // namespace

int main(int argc, char** argv) {
  if (argc == 5 && argv[1] == kFirst) return measure_first(argv[2], argv[3], std::strtoull(argv[4], nullptr, 10));
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  for (const auto& [key, value] : machine())
    benchmark::AddCustomContext(key, value);
  benchmark::RunSpecifiedBenchmarks();
}
