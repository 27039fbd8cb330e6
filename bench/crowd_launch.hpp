// SPDX-License-Identifier: BSD-3-Clause
// One launch of a crowd: fresh breakers, fresh processes (or the threads of a fresh process), a common start, a while
// of work, and what came of it. Meanwhile members may be stopped, or killed and replaced.
#pragma once

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "crowd_case.hpp"
#include "histogram.hpp"

namespace shmcb::bench {

enum class Form : std::uint8_t { processes, threads };
enum class Pacing : std::uint8_t { tight, paced, timed };
enum class Trouble : std::uint8_t { none, stopped, killed };

inline constexpr unsigned kMaxMembers = 64;

struct LaunchPlan {
  const CrowdCase* what = nullptr;
  Form form = Form::processes;
  unsigned members = 1;
  bool breaker_each = false;
  Pacing pacing = Pacing::tight;
  Trouble trouble = Trouble::none;
  std::chrono::microseconds warm_up{2'000};
  std::chrono::microseconds length{20'000};
  std::chrono::milliseconds patience{3'000};  ///< without any progress, then all are taken to hang
  std::uint64_t seed = 0;                     ///< of the times and victims of the trouble
};

struct LaunchResult {
  std::uint64_t operations = 0;  ///< of all members, in `elapsed_ns`
  std::uint64_t elapsed_ns = 0;
  double waited = 0;      ///< the largest share of the time in which a member was ready and did not get a processor
  unsigned troubles = 0;  ///< signals sent
  bool hung = false;      ///< nobody went on any more, and all had to be killed

  /// One operation, as a member sees it.
  [[nodiscard]] double ns(unsigned members) const noexcept {
    return operations == 0 ? 0 : static_cast<double>(elapsed_ns) * members / static_cast<double>(operations);
  }
  [[nodiscard]] double per_second() const noexcept {
    return static_cast<double>(operations) * 1e9 / static_cast<double>(elapsed_ns);
  }
};

/// The processors that this process may use.
[[nodiscard]] inline std::vector<unsigned> processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  ::sched_getaffinity(0, sizeof set, &set);
  std::vector<unsigned> list;
  for (unsigned i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) list.push_back(i);
  }
  return list;
}

/// What the processes of a launch share.
struct Arena {
  struct alignas(64) Member {
    std::atomic<std::uint64_t> done{0};
    std::atomic<int> tid{0};
  };
  enum Phase : int { kGather, kRun, kStop };

  // Released by the launcher and acquired by the members at their start; relaxed while they look whether to go on.
  alignas(64) std::atomic<int> phase{kGather};
  alignas(64) std::atomic<unsigned> ready{0};  // released by members, acquired by the launcher
  std::atomic<unsigned> spoilt{0};             // members that found their breaker in another state
  LaunchResult result{};
  std::array<Member, kMaxMembers> members{};
  std::array<Histogram, kMaxMembers> latencies{};
};

/// Runs in a process of its own, which makes the breakers and watches the members.
class Launcher {
 public:
  Launcher(Arena& arena, const LaunchPlan& plan)
      : arena_(arena), plan_(plan), processors_(processors()), random_(plan.seed) {}

  void run() {
    const std::unique_ptr<Scene> scene = plan_.what->scene(plan_.breaker_each ? plan_.members : 1);
    scene_ = scene.get();
    if (plan_.form == Form::threads) {
      for (unsigned i = 0; i < plan_.members; ++i)
        workers_.push_back(join(i));
    }
    for (unsigned i = 0; i < plan_.members; ++i)
      start(i);
    gather();
    arena_.phase.store(Arena::kRun, std::memory_order_release);
    std::this_thread::sleep_for(plan_.warm_up);
    measure();
    arena_.phase.store(Arena::kStop, std::memory_order_release);
    finish();
    check(*scene);
  }

 private:
  static constexpr int kBatch = 64;  // arbitrary: operations between two looks at the phase
  static constexpr std::chrono::milliseconds kPoll{1};

  [[noreturn]] void die(const char* why) {
    kill_all();
    throw std::runtime_error(plan_.what->operation + ", " + plan_.what->contender + ": " + why);
  }

  [[nodiscard]] std::unique_ptr<Worker> join(unsigned i) {
    return scene_->join(plan_.breaker_each ? i : 0, plan_.breaker_each ? 1 : plan_.members);
  }

  void start(unsigned i) {
    if (plan_.form == Form::threads) {
      threads_.emplace_back([this, i] { work(i, *workers_[i]); });
      return;
    }
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid < 0) die("fork failed");
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(1);
      const std::unique_ptr<Worker> worker = join(i);
      work(i, *worker);
      ::_exit(0);
    }
    if (pids_.size() <= i) pids_.resize(i + 1);
    pids_[i] = pid;
  }

  /// The life of a member. One that replaces another goes on with its number and its count.
  void work(unsigned i, Worker& worker) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processors_[i % processors_.size()], &set);
    ::sched_setaffinity(0, sizeof set, &set);
    Arena::Member& self = arena_.members[i];
    std::uint64_t done = self.done.load(std::memory_order_relaxed);
    self.tid.store(::gettid(), std::memory_order_relaxed);
    arena_.ready.fetch_add(1, std::memory_order_release);
    while (arena_.phase.load(std::memory_order_acquire) == Arena::kGather)
      ::usleep(50);
    do {
      switch (plan_.pacing) {
        case Pacing::tight: worker.tight(kBatch); break;
        case Pacing::paced: worker.paced(kBatch); break;
        case Pacing::timed: worker.timed(kBatch, arena_.latencies[i]); break;
      }
      self.done.store(done += kBatch, std::memory_order_relaxed);
    } while (arena_.phase.load(std::memory_order_relaxed) != Arena::kStop);
    if (!worker.as_prepared()) arena_.spoilt.fetch_add(1, std::memory_order_relaxed);
  }

  void gather() {
    while (arena_.ready.load(std::memory_order_acquire) < plan_.members) {
      for (const pid_t pid : pids_) {
        if (::waitpid(pid, nullptr, WNOHANG) != 0) die("a member failed at its start");
      }
      std::this_thread::sleep_for(kPoll);
    }
  }

  void measure() {
    const bool watch = plan_.members <= processors_.size();  // more have to wait for each other
    std::vector<std::uint64_t> waited;
    for (unsigned i = 0; watch && i < plan_.members; ++i)
      waited.push_back(waited_ns(i));
    const Count before = count();
    const auto end = std::chrono::steady_clock::now() + plan_.length;
    if (plan_.trouble == Trouble::none) {
      std::this_thread::sleep_until(end);
    } else {
      make_trouble(end);
    }
    Count after = count();
    while (after.done == before.done && !stalled()) {  // where each waits for many others
      std::this_thread::sleep_for(kPoll);
      after = count();
    }
    LaunchResult& result = arena_.result;
    result.elapsed_ns = after.at_ns - before.at_ns;
    result.operations = after.done - before.done;
    std::uint64_t longest = 0;
    for (unsigned i = 0; watch && i < plan_.members; ++i)
      longest = std::max(longest, waited_ns(i) - waited[i]);
    result.waited = static_cast<double>(longest) / static_cast<double>(result.elapsed_ns);
  }

  /// Stops or kills a member every few milliseconds. Ends early if nobody goes on any more.
  void make_trouble(std::chrono::steady_clock::time_point end) {
    std::uniform_int_distribution<int> pause_us(1'000, 5'000);
    std::uniform_int_distribution<int> stop_us(500, 2'000);
    std::uniform_int_distribution<unsigned> victims(0, plan_.members - 1);
    while (std::chrono::steady_clock::now() < end && !stalled()) {
      std::this_thread::sleep_for(std::chrono::microseconds{pause_us(random_)});
      const unsigned victim = victims(random_);
      ++arena_.result.troubles;
      if (plan_.trouble == Trouble::stopped) {
        ::kill(pids_[victim], SIGSTOP);
        std::this_thread::sleep_for(std::chrono::microseconds{stop_us(random_)});
        ::kill(pids_[victim], SIGCONT);
      } else {
        ::kill(pids_[victim], SIGKILL);
        ::waitpid(pids_[victim], nullptr, 0);
        start(victim);
      }
    }
  }

  /// Whether no member has finished a batch for too long.
  [[nodiscard]] bool stalled() {
    const std::uint64_t done = total();
    const auto now = std::chrono::steady_clock::now();
    if (done != seen_ || progress_ == std::chrono::steady_clock::time_point{}) {
      seen_ = done;
      progress_ = now;
    }
    return now - progress_ > plan_.patience;
  }

  /// Ends all members: they end themselves unless a lock is held by a dead one.
  void finish() {
    for (std::thread& thread : threads_)
      thread.join();
    progress_ = {};
    std::vector<pid_t> left = pids_;
    while (!left.empty() && !arena_.result.hung) {
      const auto gone = [this](pid_t pid) {
        int status = 0;
        if (::waitpid(pid, &status, WNOHANG) == 0) return false;
        if (status != 0) die("a member failed");
        progress_ = {};
        return true;
      };
      left.erase(std::remove_if(left.begin(), left.end(), gone), left.end());
      arena_.result.hung = !left.empty() && stalled();
      if (!left.empty()) std::this_thread::sleep_for(kPoll);
    }
    if (arena_.result.hung) kill_all();
  }

  void kill_all() {
    for (const pid_t pid : pids_) {
      // A zombie that is not waited for yet keeps its number; ECHILD tells those that are gone.
      if (::waitpid(pid, nullptr, WNOHANG) != 0) continue;
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
  }

  void check(const Scene& scene) {
    const LaunchResult& result = arena_.result;
    if (result.hung || plan_.trouble == Trouble::killed) return;  // a victim's last batch is in no count
    if (arena_.spoilt.load(std::memory_order_relaxed) != 0) die("the breaker did not stay in its state");
    const std::optional<std::uint64_t> counted = scene.counted();
    if (counted && *counted != total()) die("operations are missing");
    if (plan_.pacing != Pacing::timed) return;
    std::uint64_t timed = 0;
    for (unsigned i = 0; i < plan_.members; ++i)
      timed += arena_.latencies[i].count();
    if (timed != total()) die("latencies are missing");
  }

  struct Count {
    std::uint64_t at_ns = 0;
    std::uint64_t done = 0;
  };
  /// The total and when it was that. Again, if this process lost its processor in between.
  [[nodiscard]] Count count() const noexcept {
    constexpr std::uint64_t kAtOnce = 50'000;  // arbitrary: many times what the loads take
    constexpr int kTries = 100;
    Count counted;
    for (int i = 0; i < kTries; ++i) {
      counted.at_ns = clock_ns();
      counted.done = total();
      if (clock_ns() - counted.at_ns < kAtOnce) break;
    }
    return counted;
  }

  [[nodiscard]] std::uint64_t total() const noexcept {
    std::uint64_t sum = 0;
    for (unsigned i = 0; i < plan_.members; ++i)
      sum += arena_.members[i].done.load(std::memory_order_relaxed);  // a number only
    return sum;
  }

  /// Nanoseconds that a member was ready to run and did not; not what it slept for a mutex.
  [[nodiscard]] std::uint64_t waited_ns(unsigned member) const {
    const int tid = arena_.members[member].tid.load(std::memory_order_relaxed);
    unsigned long long ran = 0;
    unsigned long long waited = 0;
    if (std::FILE* file = std::fopen(("/proc/" + std::to_string(tid) + "/schedstat").c_str(), "r")) {
      if (std::fscanf(file, "%llu %llu", &ran, &waited) != 2) waited = 0;
      std::fclose(file);
    }
    return waited;
  }

  Arena& arena_;
  const LaunchPlan& plan_;
  std::vector<unsigned> processors_;
  std::mt19937_64 random_;
  const Scene* scene_ = nullptr;
  std::vector<std::unique_ptr<Worker>> workers_{};
  std::vector<std::thread> threads_{};
  std::vector<pid_t> pids_{};
  std::uint64_t seen_ = 0;
  std::chrono::steady_clock::time_point progress_{};
};

/// Launches and waits. Adds the latencies of all members to `latencies`.
inline LaunchResult launch(const LaunchPlan& plan, Histogram* latencies = nullptr) {
  void* memory = ::mmap(nullptr, sizeof(Arena), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  auto* const arena = ::new (memory) Arena;
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  if (pid < 0) std::abort();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    try {
      Launcher(*arena, plan).run();
    } catch (const std::exception& error) {  // the breakers are gone, as after any launch
      std::fprintf(stderr, "crowd: %s\n", error.what());
      ::_exit(1);
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (status != 0) std::exit(1);
  const LaunchResult result = arena->result;
  for (unsigned i = 0; latencies != nullptr && i < plan.members; ++i)
    *latencies += arena->latencies[i];
  ::munmap(memory, sizeof(Arena));
  return result;
}

}  // namespace shmcb::bench
