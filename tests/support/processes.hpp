// SPDX-License-Identifier: BSD-3-Clause
// Processes for tests: forked children under a watchdog, and memory and a barrier that they share with their parent.
// Nothing here sleeps; whatever waits gives up when its watchdog is over.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <limits>
#include <new>
#include <ostream>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>

#include <gtest/gtest.h>

namespace shmcb::test {

using Watchdog = std::chrono::milliseconds;

/// Arbitrary: far beyond what any child needs on a busy machine with sanitizers, below the time after which CTest gives
/// up.
inline constexpr Watchdog kWatchdog = std::chrono::seconds{60};

/// Asks until it is so; false when the watchdog is over.
template <class Condition>
[[nodiscard]] bool wait_until(Condition condition, Watchdog watchdog = kWatchdog) {
  const auto deadline = std::chrono::steady_clock::now() + watchdog;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    ::sched_yield();
  }
  return true;
}

/// How a child ended.
struct Ended {
  int exit_code = -1;  ///< -1: by a signal
  int signal = 0;
  bool timed_out = false;  ///< the watchdog killed it

  friend bool operator==(const Ended&, const Ended&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Ended& ended) {
    if (ended.timed_out) return out << "killed by the watchdog";
    if (ended.signal != 0) return out << "killed by signal " << ended.signal;
    return out << "exited with " << ended.exit_code;
  }
};
[[nodiscard]] inline Ended exited(int code) {
  return {.exit_code = code};
}
[[nodiscard]] inline Ended killed_by(int signal) {
  return {.signal = signal};
}

/// A child process. Killed and reaped, whatever happens, when this goes away.
class Child {
 public:
  static constexpr int kFailedExpectation = 99;  ///< exit code of a child in which an EXPECT failed
  static constexpr int kThrew = 98;

  Child() = default;
  explicit Child(pid_t pid) noexcept : pid_(pid) {}
  Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, 0)) {}
  Child& operator=(Child&& other) noexcept {
    std::swap(pid_, other.pid_);
    return *this;
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      (void)wait();
    }
  }

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  void kill(int signal = SIGKILL) const noexcept { ::kill(pid_, signal); }

  /// Waits for its end and reaps it; kills it when the watchdog is over.
  [[nodiscard]] Ended wait(Watchdog watchdog = kWatchdog) noexcept {
    Ended ended;
    if (!ends_within(watchdog)) {
      ended.timed_out = true;
      ::kill(pid_, SIGKILL);
    }
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = 0;
    if (WIFEXITED(status)) ended.exit_code = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) ended.signal = WTERMSIG(status);
    return ended;
  }

  /// Somebody else has reaped it.
  void reaped() noexcept { pid_ = 0; }

  /// Waits for its end without reaping it: it stays a zombie. False when the watchdog is over.
  [[nodiscard]] bool ends_within(Watchdog watchdog = kWatchdog) const noexcept {
    const int fd = static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0));
    if (fd < 0) {  // before Linux 5.3
      return wait_until(
          [this] {
            siginfo_t info{};
            return ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
                   info.si_pid == pid_;
          },
          watchdog);
    }
    pollfd ended{.fd = fd, .events = POLLIN, .revents = 0};
    int ready = 0;
    do {
      ready = ::poll(&ended, 1, static_cast<int>(watchdog.count()));
    } while (ready < 0 && errno == EINTR);
    ::close(fd);
    return ready > 0;
  }

 private:
  pid_t pid_ = 0;
};

/// Runs `work` and turns what it did into an exit code: what it returns (void: 0), kThrew, or kFailedExpectation.
template <class Work>
[[nodiscard]] int exit_code_of(Work& work) noexcept {
  const bool failed_before = ::testing::Test::HasFailure();
  int code = 0;
  try {
    if constexpr (std::is_void_v<std::invoke_result_t<Work&>>) {
      work();
    } else {
      code = static_cast<int>(work());
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "in a child process: %s\n", e.what());
    code = Child::kThrew;
  } catch (...) {
    code = Child::kThrew;
  }
  return !failed_before && ::testing::Test::HasFailure() ? Child::kFailedExpectation : code;
}

/// Runs `work` in a forked child, which ends with `_exit`: nothing of the parent's is destroyed there. Its exit code is
/// what `exit_code_of` says. A child of the main thread dies with its parent.
template <class Work>
[[nodiscard]] Child fork_child(Work work) {
  std::fflush(nullptr);  // else the child would print it again
  const bool of_main_thread = ::getpid() == static_cast<pid_t>(::syscall(SYS_gettid));
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (pid == 0) {
    if (of_main_thread) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent && ::getppid() != 0)
        ::_exit(Child::kThrew);  // 0: the parent is outside our pid namespace
    }
    const int code = exit_code_of(work);
    std::fflush(nullptr);
    ::_exit(code);
  }
  return Child{pid};
}

/// The whole story of a child that needs no company.
template <class Work>
[[nodiscard]] Ended run_in_child(Work work, Watchdog watchdog = kWatchdog) {
  return fork_child(std::move(work)).wait(watchdog);
}

/// Runs `work` in a child and expects that it ends by itself, with 0, and that nothing fails in it.
template <class Work>
void expect_success_in_child(Work work, Watchdog watchdog = kWatchdog) {
  const Ended ended = run_in_child(std::move(work), watchdog);
  EXPECT_EQ(ended, exited(0)) << "a child process";
}

/// A T in memory that this process shares with the children it forks from now on. T needs no destructor.
template <class T>
class SharedArea {
 public:
  static_assert(std::is_trivially_destructible_v<T>);

  SharedArea() : memory_(::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    if (memory_ == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
    value_ = ::new (memory_) T{};
  }
  SharedArea(const SharedArea&) = delete;
  SharedArea& operator=(const SharedArea&) = delete;
  ~SharedArea() { ::munmap(memory_, sizeof(T)); }

  [[nodiscard]] T& operator*() const noexcept { return *value_; }
  [[nodiscard]] T* operator->() const noexcept { return value_; }

 private:
  void* memory_;
  T* value_ = nullptr;
};

/// Lets `count` processes or threads start together, as often as they like.
class SharedBarrier {
 public:
  explicit SharedBarrier(std::uint32_t count) : count_(count) {}

  /// False when the others have not all come until the watchdog was over.
  [[nodiscard]] bool arrive_and_wait(Watchdog watchdog = kWatchdog) const noexcept {
    const std::uint32_t round = area_->round.load(std::memory_order_acquire);
    if (area_->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == count_) {
      area_->arrived.store(0, std::memory_order_relaxed);
      area_->round.store(round + 1, std::memory_order_release);
      ::syscall(SYS_futex, &area_->round, FUTEX_WAKE, std::numeric_limits<int>::max(), nullptr, nullptr, 0);
      return true;
    }
    const auto deadline = std::chrono::steady_clock::now() + watchdog;
    while (area_->round.load(std::memory_order_acquire) == round) {
      const auto left = deadline - std::chrono::steady_clock::now();
      if (left.count() <= 0) return false;
      const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
      const timespec timeout{.tv_sec = seconds.count(), .tv_nsec = std::chrono::nanoseconds(left - seconds).count()};
      ::syscall(SYS_futex, &area_->round, FUTEX_WAIT, round, &timeout, nullptr, 0);
    }
    return true;
  }

 private:
  struct Words {
    std::atomic<std::uint32_t> arrived{0};
    std::atomic<std::uint32_t> round{0};
  };
  std::uint32_t count_;
  SharedArea<Words> area_;
};

/// How many descriptors this process has open.
[[nodiscard]] inline std::size_t open_descriptors() {
  DIR* directory = ::opendir("/proc/self/fd");
  if (directory == nullptr) throw std::system_error(errno, std::generic_category(), "/proc/self/fd");
  std::size_t count = 0;
  while (::readdir(directory) != nullptr)
    ++count;  // NOLINT(concurrency-mt-unsafe): a stream of our own
  ::closedir(directory);
  return count;
}

/// How many mappings of this process name a file whose path contains `part`.
[[nodiscard]] inline std::size_t mappings_of(const std::string& part) {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);)
    count += line.find(part) != std::string::npos ? 1U : 0U;
  return count;
}

}  // namespace shmcb::test
