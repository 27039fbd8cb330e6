// SPDX-License-Identifier: BSD-3-Clause
// A second process that does the same as the measured one, on another processor, from a common start until it is told
// to stop. And how long a process had to wait for a processor: what tells a disturbed launch from a slow operation.
#pragma once

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>

namespace shmcb::bench {

inline void pin_to(unsigned processor) noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  ::sched_setaffinity(0, sizeof set, &set);  // with one processor this fails, and the numbers say so
}

/// Nanoseconds that this process was ready to run and did not; not what it slept for a mutex.
[[nodiscard]] inline std::uint64_t waited_ns() noexcept {
  unsigned long long ran = 0;
  unsigned long long waited = 0;
  if (std::FILE* file = std::fopen("/proc/self/schedstat", "r")) {
    if (std::fscanf(file, "%llu %llu", &ran, &waited) != 2) waited = 0;
    std::fclose(file);
  }
  return waited;
}

class Neighbour {
 public:
  /// Forks. `make` is called in the child and answers what it calls over and over.
  template <class Make>
  explicit Neighbour(Make make) {
    void* memory = ::mmap(nullptr, sizeof(Words), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    words_ = ::new (memory) Words;
    std::fflush(nullptr);
    pid_ = ::fork();
    if (pid_ < 0) std::abort();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      pin_to(1);
      live(make);
      ::_exit(0);
    }
    await([this] { return words_->ready.load(std::memory_order_acquire); });
  }
  Neighbour(const Neighbour&) = delete;
  Neighbour& operator=(const Neighbour&) = delete;
  ~Neighbour() {
    if (pid_ > 0) stop();
    ::munmap(words_, sizeof(Words));
  }

  /// Returns when both are at it.
  void start() {
    words_->go.store(true, std::memory_order_release);
    await([this] { return done() > 0; });
  }
  /// Calls it has made.
  [[nodiscard]] std::uint64_t done() const noexcept { return words_->done.load(std::memory_order_relaxed); }

  /// Ends it; answers how long it had to wait for a processor.
  std::uint64_t stop() {
    words_->stop.store(true, std::memory_order_relaxed);
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = 0;
    if (status != 0) die();
    return words_->waited_ns;
  }

 private:
  static constexpr int kBatch = 64;  // arbitrary: calls between two looks at `stop`

  struct Words {
    alignas(64) std::atomic<bool> ready{false};
    std::uint64_t waited_ns = 0;
    alignas(64) std::atomic<bool> go{false};
    std::atomic<bool> stop{false};
    alignas(64) std::atomic<std::uint64_t> done{0};
  };

  template <class Make>
  void live(Make& make) {
    auto act = make();
    words_->ready.store(true, std::memory_order_release);
    while (!words_->go.load(std::memory_order_acquire)) {
    }
    const std::uint64_t waited_before = waited_ns();
    for (std::uint64_t total = 0; !words_->stop.load(std::memory_order_relaxed);) {
      for (int i = 0; i < kBatch; ++i)
        act();
      words_->done.store(total += kBatch, std::memory_order_relaxed);
    }
    words_->waited_ns = waited_ns() - waited_before;
  }

  template <class Condition>
  void await(Condition condition) {
    while (!condition()) {
      int status = 0;
      if (::waitpid(pid_, &status, WNOHANG) != 0) die();
      ::sched_yield();
    }
  }
  [[noreturn]] static void die() {
    std::fprintf(stderr, "the second process has failed\n");
    std::abort();
  }

  Words* words_ = nullptr;
  pid_t pid_ = 0;
};

}  // namespace shmcb::bench
