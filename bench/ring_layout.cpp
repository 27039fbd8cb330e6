// SPDX-License-Identifier: BSD-3-Clause
//
// Where should a ring's position hint live and how often should it advance?
// Appends successes to a ring of 8-byte slots in process-shared memory, from one or two processes, for several
// layouts. The variants take turns in every round; every launch is a fresh mapping with fresh processes.
//
//   g++ -std=c++20 -O2 ring_layout.cpp -o ring_layout && ./ring_layout [rounds] [milliseconds per launch] [seconds]
//
// Printed: nanoseconds per record as one process sees them, median [min, max], and the median over the rounds of
// the ratio to the floor. The work between two records of the paced modes is subtracted.

#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

namespace {

using u64 = std::uint64_t;
using Word = std::atomic<u64>;

constexpr std::size_t kLine = 64;
constexpr u64 kMaxCapacity = 8192;
constexpr u64 kTimeMask = (u64{1} << 48) - 1;
constexpr u64 kTagMask = 15;
constexpr u64 kLapMask = 511;
constexpr int kTries = 20;
constexpr int kPaceSteps = 700;  // dependent multiplications between two records, about 1 us

struct Result {
  alignas(kLine) u64 records;  // with those of the warm-up
  u64 picoseconds;             // per record
  bool disturbed;              // the processor was given to somebody else for more than a fiftieth of the time
};

struct Shared {
  alignas(kLine) Word control;
  alignas(kLine) Word hint;
  alignas(kLine) std::atomic<int> ready;
  alignas(kLine) std::atomic<int> phase;  // 0 wait, 1 warm up, 2 measure, 3 stop
  Result result[2];
  alignas(kLine) Word words[kMaxCapacity + 8];  // the slots, in the one-line layouts behind the hint
};

// The position this process starts its scan at; a line of its own, shared by the threads of the process.
struct alignas(kLine) LocalStart {
  Word position;
};
LocalStart local_start;

int repeated = 0;            // launches
int accepted_disturbed = 0;  // after kTries repetitions

u64 clock_ns(clockid_t id) {
  timespec ts{};
  clock_gettime(id, &ts);
  return static_cast<u64>(ts.tv_sec) * 1'000'000'000u + static_cast<u64>(ts.tv_nsec);
}

enum class Rule {
  Behind,  // the scan pulls the hint along once it is K positions behind
  Gate,    // a position that K divides is written only when the hint is there
};

template <Rule rule, u64 K, bool own_line, bool local>
struct Ring {
  Shared& s;
  u64 capacity;
  unsigned shift;

  Word& hint() { return own_line ? s.hint : s.words[0]; }
  Word& slot(u64 h) { return s.words[(h & (capacity - 1)) + (own_line ? 0 : 1)]; }
  u64 lap(u64 h) const { return (h >> shift) & kLapMask; }
  u64 step() const { return K ? K : capacity; }  // K = 0: once a lap

  static u64 lap_of(u64 v) { return (v >> 52) & kLapMask; }

  void init() {
    hint().store(capacity);
    local_start.position.store(capacity);
  }

  // False when the control word says that the period is over.
  bool record(u64 now, u64 generation) {
    const u64 tag = generation & kTagMask;
    u64 known = local ? local_start.position.load(std::memory_order_relaxed) : hint().load(std::memory_order_acquire);
    u64 h = known;
    u64 scanned = 0;
    auto reload = [&] {
      known = h = hint().load(std::memory_order_acquire);
      scanned = 0;
    };
    for (;;) {
      u64 v = slot(h).load(std::memory_order_acquire);
      if (lap_of(v) == lap(h)) {
        ++h;
        ++scanned;
        if constexpr (rule == Rule::Behind) {
          if (h - known >= K) {
            if (hint().compare_exchange_strong(known, h, std::memory_order_acq_rel))
              known = h;
            else
              h = known;
          }
        } else if (scanned > step() + 1) {
          reload();
        }
        continue;
      }
      if (lap_of(v) != lap(h - capacity)) {
        reload();
        continue;
      }
      const u64 u = slot(h - 1).load(std::memory_order_acquire);
      if (lap_of(u) != lap(h - 1)) {
        reload();
        continue;
      }
      if constexpr (rule == Rule::Gate) {
        if ((h & (step() - 1)) == 0) {
          u64 at = hint().load(std::memory_order_acquire);
          if (at == h - step()) {
            if (!hint().compare_exchange_strong(at, h, std::memory_order_acq_rel)) continue;
          } else if (at != h) {
            h = at;
            scanned = 0;
            continue;
          }
        }
      }
      if (s.control.load(std::memory_order_acquire) != generation) return false;
      u64 t = now & kTimeMask;
      if (((u >> 48) & kTagMask) == tag) {  // never older than the predecessor
        t = std::max(t, u & kTimeMask);
        if ((h & ((capacity << 9) - 1)) == 0)  // the lap tag comes round
          t = std::max(t, (u & kTimeMask) + 1);
      }
      if (slot(h).compare_exchange_strong(v, lap(h) << 52 | tag << 48 | t, std::memory_order_release,
                                          std::memory_order_relaxed))
        break;
    }
    if constexpr (local) local_start.position.store(h + 1, std::memory_order_relaxed);
    return true;
  }

  // As if others had written half a ring since this process's last record.
  void age() {
    const u64 p = local_start.position.load(std::memory_order_relaxed);
    local_start.position.store(std::max(capacity, p - capacity / 2), std::memory_order_relaxed);
  }

  // After the run: no position may be missing and the hint must be near the tail.
  bool consistent(u64 records) {
    const u64 tail = capacity + records;
    const u64 at = hint().load();
    const u64 slack = rule == Rule::Behind ? K + 1 : step();
    return at <= tail && tail <= at + slack && lap_of(slot(tail - 1).load()) == lap(tail - 1) &&
           lap_of(slot(tail).load()) == lap(tail - capacity);
  }
};

// The least that a shared record could cost: one load, one locked operation and one store on a shared line.
struct Floor {
  Shared& s;
  u64 capacity;
  unsigned shift;

  void init() {}
  bool record(u64 now, u64) {
    u64 v = s.words[0].load(std::memory_order_acquire);
    s.words[0].compare_exchange_strong(v, v + 1, std::memory_order_acq_rel, std::memory_order_relaxed);
    s.words[1].store(now, std::memory_order_release);
    return true;
  }
  void age() {}
  bool consistent(u64) { return true; }
};

// The loop, the clock and the pacing alone.
struct Nothing {
  Shared& s;
  u64 capacity;
  unsigned shift;

  void init() {}
  bool record(u64, u64) { return true; }
  void age() {}
  bool consistent(u64) { return true; }
};

struct Mode {
  const char* name;
  int processes;
  bool paced;
  bool clock;
  bool aged;
};

void pace(u64& x) {
  for (int i = 0; i < kPaceSteps; ++i) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    asm volatile("" : "+r"(x));
  }
}

template <class R>
void child(R ring, const Mode& mode, int index) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(index), &set);
  sched_setaffinity(0, sizeof set, &set);
  Shared& s = ring.s;
  u64 x = static_cast<u64>(index) + 1;
  u64 now = 0;
  auto batch = [&] {
    for (int i = 0; i < 64; ++i) {
      if (mode.paced) pace(x);
      if (mode.aged) ring.age();
      now = mode.clock ? clock_ns(CLOCK_MONOTONIC) / 1000 : now + 1;
      asm volatile("" : "+r"(now));
      if (!ring.record(now, 1)) std::abort();
    }
  };
  s.ready.fetch_add(1);
  while (s.phase.load(std::memory_order_relaxed) == 0) {
  }
  u64 total = 0;
  for (; s.phase.load(std::memory_order_relaxed) == 1; total += 64)
    batch();
  const u64 before = total;
  const u64 start = clock_ns(CLOCK_MONOTONIC);
  const u64 start_cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
  do {  // at least once, however late this process gets to run
    batch();
    total += 64;
  } while (s.phase.load(std::memory_order_relaxed) == 2);
  const u64 wall = clock_ns(CLOCK_MONOTONIC) - start;
  const u64 cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - start_cpu;
  s.result[index].picoseconds = wall * 1000 / (total - before);
  s.result[index].records = total;
  s.result[index].disturbed = cpu + wall / 50 < wall;
}

// Nanoseconds per record, the mean of the processes.
template <class R>
double launch_once(const Mode& mode, u64 capacity, int milliseconds, bool& disturbed) {
  void* memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  Shared& s = *new (memory) Shared{};
  s.control.store(1);
  R ring{s, capacity, static_cast<unsigned>(__builtin_ctzll(capacity))};
  ring.init();
  for (int i = 0; i < mode.processes; ++i) {
    const pid_t pid = fork();
    if (pid < 0) std::abort();
    if (pid == 0) {
      child(ring, mode, i);
      _exit(0);
    }
  }
  while (s.ready.load() < mode.processes)
    usleep(200);
  s.phase.store(1);
  usleep(5000);
  s.phase.store(2);
  usleep(static_cast<useconds_t>(milliseconds) * 1000);
  s.phase.store(3);
  for (int i = 0; i < mode.processes; ++i) {
    int status = 0;
    wait(&status);
    if (status != 0) {
      std::fprintf(stderr, "a process failed, status %d\n", status);
      std::abort();
    }
  }
  u64 records = 0, picoseconds = 0;
  for (int i = 0; i < mode.processes; ++i) {
    records += s.result[i].records;
    picoseconds += s.result[i].picoseconds;
    disturbed = disturbed || s.result[i].disturbed;
  }
  if (!ring.consistent(records)) {
    std::fprintf(stderr, "%s, capacity %llu: inconsistent ring after %llu records\n", mode.name,
                 static_cast<unsigned long long>(capacity), static_cast<unsigned long long>(records));
    std::abort();
  }
  munmap(memory, sizeof(Shared));
  return static_cast<double>(picoseconds) / 1000 / mode.processes;
}

// Repeated while other load on the machine disturbs it.
template <class R>
double launch(const Mode& mode, u64 capacity, int milliseconds) {
  for (int tries = 0;; ++tries) {
    bool disturbed = false;
    const double ns = launch_once<R>(mode, capacity, milliseconds, disturbed);
    if (!disturbed || tries == kTries) {
      repeated += tries;
      accepted_disturbed += disturbed;
      return ns;
    }
  }
}

struct Variant {
  const char* name;
  double (*launch)(const Mode&, u64, int);
};

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  const std::size_t n = v.size();
  return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

// One table: its variants take turns, the first is what the others are compared with.
struct Table {
  Mode mode;
  u64 capacity;
  std::vector<Variant> variants;
  std::vector<double> idle{};
  std::vector<std::vector<double>> ns{};

  void round(int milliseconds) {
    ns.resize(variants.size());
    if (mode.paced) {  // the pacing alone: without the loop and the clock, which belong to the record
      const Mode unpaced{"", mode.processes, false, mode.clock, false};
      idle.push_back(launch<Nothing>(mode, capacity, milliseconds) - launch<Nothing>(unpaced, capacity, milliseconds));
    }
    for (std::size_t i = 0; i < variants.size(); ++i)
      ns[i].push_back(variants[i].launch(mode, capacity, milliseconds));
  }

  void print() {
    const double between = mode.paced ? median(idle) : 0;
    std::printf("\n%s, capacity %llu", mode.name, static_cast<unsigned long long>(capacity));
    if (mode.paced) std::printf(" (%.0f ns of other work subtracted)", between);
    std::printf("\n");
    for (std::size_t i = 0; i < variants.size(); ++i) {
      std::vector<double> ratio;
      for (std::size_t r = 0; r < ns[i].size(); ++r) {
        ns[i][r] -= between;
        ratio.push_back(ns[i][r] / ns[0][r]);
      }
      std::printf("  %-34s %s   x %s\n", variants[i].name, spread(ns[i], 1).c_str(), spread(ratio, 2).c_str());
    }
  }

  static std::string spread(const std::vector<double>& v, int digits) {
    const auto [low, high] = std::minmax_element(v.begin(), v.end());
    char text[96];
    std::snprintf(text, sizeof text, "%8.*f [%.*f, %.*f]", digits, median(v), digits, *low, digits, *high);
    return text;
  }
};

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 11;
  const int milliseconds = argc > 2 ? std::max(1, std::atoi(argv[2])) : 100;
  const int seconds = argc > 3 ? std::max(1, std::atoi(argv[3])) : 600;  // no new round after these
  const Variant floor{"floor", &launch<Floor>};
  const Variant own2{"1  own line, every 2", &launch<Ring<Rule::Behind, 2, true, false>>};
  const Variant own8{"2  own line, K=8", &launch<Ring<Rule::Gate, 8, true, false>>};
  const Variant local8{"3  own line, K=8, local start", &launch<Ring<Rule::Gate, 8, true, true>>};
  const Variant local16{"3b own line, K=16, local start", &launch<Ring<Rule::Gate, 16, true, true>>};
  const Variant one2{"4a one line, every 2", &launch<Ring<Rule::Behind, 2, false, false>>};
  const Variant one8{"4b one line, K=8", &launch<Ring<Rule::Gate, 8, false, false>>};
  const Variant one8local{"4c one line, K=8, local start", &launch<Ring<Rule::Gate, 8, false, true>>};
  const Variant lap{"5  own line, K=capacity, local", &launch<Ring<Rule::Gate, 0, true, true>>};

  std::vector<Table> tables;
  const std::vector<Variant> all{floor, own2, own8, local8, one2, one8, one8local, lap};
  for (const bool clock : {true, false}) {
    tables.push_back({{clock ? "1 process, clock" : "1 process, no clock", 1, false, clock, false}, 16, all});
    tables.push_back({{clock ? "2 hammering, clock" : "2 hammering, no clock", 2, false, clock, false}, 16, all});
    tables.push_back({{clock ? "2 paced, clock" : "2 paced, no clock", 2, true, clock, false}, 16, all});
  }
  const std::vector<Variant> some{floor, own8, local8, local16, lap};
  for (const u64 capacity : {u64{128}, kMaxCapacity}) {
    tables.push_back({{"1 process, clock", 1, false, true, false}, capacity, some});
    tables.push_back({{"2 hammering, clock", 2, false, true, false}, capacity, some});
    tables.push_back({{"2 paced, clock", 2, true, true, false}, capacity, some});
    tables.push_back({{"1 process, clock, local start half a ring old", 1, false, true, true}, capacity, some});
  }
  const u64 end = clock_ns(CLOCK_MONOTONIC) + static_cast<u64>(seconds) * 1'000'000'000u;
  for (int r = 0; r < rounds && clock_ns(CLOCK_MONOTONIC) < end; ++r)
    for (Table& t : tables)
      t.round(milliseconds);
  for (Table& t : tables)
    t.print();
  std::printf("\n%d disturbed launches repeated, %d accepted\n", repeated, accepted_disturbed);
}
