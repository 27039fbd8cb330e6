// SPDX-License-Identifier: BSD-3-Clause
// Processes do everything to two breakers at random while they are killed, stopped, continued and started again at
// random. Bounded by operations and deaths, not by time.
#include "process/torture.hpp"

#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

#include <atomic>
#include <cstdint>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "process/shared_clock.hpp"
#include "support/processes.hpp"
#include "support/test_segment.hpp"

namespace shmcb::test {
namespace {

constexpr std::uint32_t kWorkers = 6;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint32_t kActs = 100;
#else
constexpr std::uint32_t kActs = 250;
#endif
constexpr std::uint64_t kOperationsBetween = 100;    // acts, so that all of them fall into the midst of operations
constexpr std::uint64_t kOperationsAllowed = 5'000;  // until the next act: what bounds the whole

struct Progress {
  std::atomic<std::uint64_t> operations{0};
  std::atomic<std::uint64_t> allowed{kOperationsAllowed};
  std::atomic<bool> enough{false};
};

class Torture {
 public:
  explicit Torture(std::uint64_t seed) : random_(seed) {
    // Registered beforehand: a process that is stopped while it registers holds one of the two places there are.
    const TortureWorker registering(test_.segment(), clock_, random_());
    for (std::uint32_t i = 0; i < kWorkers; ++i)
      workers_.push_back(Worker{start_worker()});
  }

  void run() {
    TortureWorker observer(test_.segment(), clock_, random_());
    std::uint32_t kills = 0;
    for (std::uint32_t act = 0; act < kActs; ++act) {
      const std::uint64_t before = progress_->operations.load();
      progress_->allowed.store(before + kOperationsAllowed);
      ASSERT_TRUE(wait_until([&] { return progress_->operations.load() >= before + kOperationsBetween; }))
          << "nobody gets anywhere";
      Worker& worker = workers_[random_() % kWorkers];
      switch (random_() % 4) {
        case 0:
          // Killed where it stands or runs; started again as a new process or as a fork that inherits the mapping.
          worker.child.kill(SIGKILL);
          ASSERT_EQ(worker.child.wait(), killed_by(SIGKILL)) << "it had ended by itself";
          worker = Worker{start_worker()};
          ++kills;
          break;
        case 1:
          if (stopped() + 1 < kWorkers) {
            worker.child.kill(SIGSTOP);
            worker.stopped = true;
          }
          break;
        default:
          worker.child.kill(SIGCONT);
          worker.stopped = false;
          break;
      }
      for (int i = 0; i < 10; ++i)
        observer.step();
      ASSERT_EQ(observer.complaint(), "") << "act " << act;
    }
    progress_->enough.store(true);
    for (Worker& worker : workers_) {
      worker.child.kill(SIGCONT);
      EXPECT_EQ(worker.child.wait(), exited(0));
    }
    std::printf("[ torture  ] %lu operations, %u of the processes killed\n",
                static_cast<unsigned long>(progress_->operations.load()), kills);
    expect_sound_after_torture(test_.segment(), clock_, test_->geometry().records);
  }

 private:
  struct Worker {
    Child child;
    bool stopped = false;
  };

  Child start_worker() {
    return fork_child([this, seed = random_(), inherit = random_() % 2 == 0] {
      TortureWorker worker(inherit ? test_.segment() : test_.attach(), clock_, seed);
      while (!progress_->enough.load(std::memory_order_relaxed)) {
        if (progress_->operations.load(std::memory_order_relaxed) >=
            progress_->allowed.load(std::memory_order_relaxed)) {
          ::sched_yield();
          continue;
        }
        worker.step();
        progress_->operations.fetch_add(1, std::memory_order_relaxed);
        if (!worker.complaint().empty()) {
          std::fprintf(stderr, "a worker: %s\n", worker.complaint().c_str());
          return 1;
        }
      }
      return 0;
    });
  }
  [[nodiscard]] std::uint32_t stopped() const {
    std::uint32_t count = 0;
    for (const Worker& worker : workers_)
      count += worker.stopped ? 1U : 0U;
    return count;
  }

  std::mt19937_64 random_;
  const SharedClock clock_;
  const SharedArea<Progress> progress_;
  const TestSegment test_{tortured_options()};
  std::vector<Worker> workers_;
};

TEST(TorturedProcesses, LeaveEveryBreakerSound) {
  Torture torture(torture_seed());
  torture.run();
}

}  // namespace
}  // namespace shmcb::test
