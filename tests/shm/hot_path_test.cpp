// SPDX-License-Identifier: BSD-3-Clause
// What the path of every call may not do: an admit in Closed writes nothing, and admit, record and reject make no
// system call and allocate nothing. A child in which it happened dies of it; each test also shows that it would.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string>

#include <gtest/gtest.h>

#include "shmcb/core/layout.hpp"
#include "shmcb/permit.hpp"
#include "shmcb/segment.hpp"
#include "shmcb/shm_storage.hpp"
#include "support/kernel_faults.hpp"
#include "support/processes.hpp"
#include "support/test_segment.hpp"

// ---- every allocation of this test program is counted
// ----------------------------------------------------------------

namespace {

std::atomic<std::uint64_t> allocations{0};

[[nodiscard]] void* counted(std::size_t size) noexcept {
  allocations.fetch_add(1, std::memory_order_relaxed);  // relaxed: read by the thread that allocates
  return std::malloc(size);
}
[[nodiscard]] void* counted_or_throw(std::size_t size) {
  if (void* memory = counted(size)) return memory;
  throw std::bad_alloc();
}

/// Not inlined: g++ 12 would take a `free` in an operator delete for a mistake.
[[gnu::noinline]] void release(void* memory) noexcept {
  std::free(memory);
}

}  // namespace

// All forms but the aligned ones, so that a sanitizer's own never meet these.
void* operator new(std::size_t size) {
  return counted_or_throw(size);
}
void* operator new[](std::size_t size) {
  return counted_or_throw(size);
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return counted(size);
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return counted(size);
}
void operator delete(void* memory) noexcept {
  release(memory);
}
void operator delete[](void* memory) noexcept {
  release(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  release(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  release(memory);
}
void operator delete(void* memory, const std::nothrow_t&) noexcept {
  release(memory);
}
void operator delete[](void* memory, const std::nothrow_t&) noexcept {
  release(memory);
}

namespace shmcb::test {
namespace {

[[nodiscard]] std::byte* begin_of(const Segment& segment) {
  return reinterpret_cast<std::byte*>(&segment.view().words()) - core::kSegmentWordsOffset;
}

/// In a child that is meant to die: the default action, whatever a sanitizer had in mind, and no core file.
void die_quietly_of(int signal) {
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  ::signal(signal, SIG_DFL);
}

/// Runs `work` on a breaker whose segment the child cannot write to.
template <class Work>
[[nodiscard]] Ended run_where_nothing_can_be_written(const TestSegment& made, Work work) {
  return run_in_child([&]() -> int {
    auto storage = ShmStorage<>::open(made.segment(), {.name = "b"});
    if (!storage) return Child::kThrew;
    BasicBreaker<ShmStorage<>> breaker(*std::move(storage));
    die_quietly_of(SIGSEGV);
    if (::mprotect(begin_of(made.segment()), made->geometry().total_bytes, PROT_READ) != 0) return Child::kThrew;
    return work(breaker) ? 0 : 1;
  });
}

TEST(HotPath, ClosedAdmitWritesNothingToSharedMemory) {
  const TestSegment made;
  const auto admit = [](BasicBreaker<ShmStorage<>>& breaker) {
    return breaker.storage().admit().admission == Admission::allowed;
  };
  const auto acquire = [](BasicBreaker<ShmStorage<>>& breaker) {
    Acquired<ShmStorage<>> entry = breaker.try_acquire();
    return entry && entry.permit().release().admission == Admission::allowed;
  };
  const auto record = [](BasicBreaker<ShmStorage<>>& breaker) {
    Acquired<ShmStorage<>> entry = breaker.try_acquire();
    return entry && entry.permit().success().status == RecordStatus::counted;
  };
  EXPECT_EQ(run_where_nothing_can_be_written(made, admit), exited(0));
  EXPECT_EQ(run_where_nothing_can_be_written(made, acquire), exited(0));
  EXPECT_EQ(run_where_nothing_can_be_written(made, record), killed_by(SIGSEGV)) << "it could be written to";
}

TEST(HotPath, LookingWritesNothingToSharedMemoryInAnyState) {
  const TestSegment made;
  auto storage = ShmStorage<>::open(made.segment(), {.name = "b"});
  ASSERT_TRUE(storage) << storage.error().message;
  for (const CircuitState state : {CircuitState::closed, CircuitState::open, CircuitState::half_open}) {
    ASSERT_EQ(storage->force_state(state).error, Errc::ok);
    const auto look = [state](const BasicBreaker<ShmStorage<>>& breaker) {
      return breaker.state().state == state && breaker.metrics().metrics.state == state &&
             breaker.can_call() == (state != CircuitState::open);
    };
    EXPECT_EQ(run_where_nothing_can_be_written(made, look), exited(0)) << to_string(state);
  }
}

/// In a child: from now on all it may do is end, and write to descriptors it has. False: refused.
[[nodiscard]] bool forbid_system_calls() {
  die_quietly_of(SIGSYS);
  const std::array<sock_filter, 6> program{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 3, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sigaltstack, 1, 0),  // AddressSanitizer's, before each _exit
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog filter{.len = program.size(), .filter = const_cast<sock_filter*>(program.data())};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

/// Runs `work` without system calls. It answers what its child exits with.
template <class Work>
[[nodiscard]] Ended run_without_system_calls(Work work) {
  return run_in_child([&]() -> int { return forbid_system_calls() ? work() : kRefusedByKernel; });
}

[[nodiscard]] int read_the_clock() {
  timespec now{};
  return ::clock_gettime(CLOCK_MONOTONIC, &now);
}

/// Two breakers, attached to in this process.
struct Breakers {
  explicit Breakers(const Segment& segment)
      : opens(*ShmStorage<>::open(segment, {.name = "opens", .cooldown = {Millis{3'600'000}}})),
        recovers(*ShmStorage<>::open(segment, {.name = "recovers", .cooldown = {Millis{1}}})) {}

  BasicBreaker<ShmStorage<>> opens;
  BasicBreaker<ShmStorage<>> recovers;
};

constexpr int kOften = 1'000;  // arbitrary: many times round the ring

[[nodiscard]] bool admit_and_record(BasicBreaker<ShmStorage<>>& breaker) {
  for (int i = 0; i < kOften; ++i) {
    Acquired<ShmStorage<>> entry = breaker.try_acquire();
    const Outcome outcome = i % 3 == 0 ? Outcome::failure : Outcome::success;
    if (!entry || entry.permit().settle(outcome).status != RecordStatus::counted) return false;
  }
  return true;
}

/// The failures that open it count too, and so does the transition.
[[nodiscard]] bool open_and_reject(BasicBreaker<ShmStorage<>>& breaker) {
  while (breaker.state().state == CircuitState::closed) {
    if (breaker.try_acquire().permit().failure().status != RecordStatus::counted) return false;
  }
  for (int i = 0; i < kOften; ++i) {
    if (!breaker.try_acquire().rejected()) return false;
  }
  return breaker.metrics().metrics.rejected == kOften;
}

[[nodiscard]] bool probe_and_close(BasicBreaker<ShmStorage<>>& breaker) {
  if (breaker.force_open() != Errc::ok) return false;
  Acquired<ShmStorage<>> entry = breaker.try_acquire();
  while (entry.rejected())
    entry = breaker.try_acquire();  // for 1 ms, and the child's watchdog looks on
  return entry && entry.permit().is_probe() && entry.permit().success().status == RecordStatus::counted &&
         breaker.state().state == CircuitState::closed;
}

TEST(HotPath, AdmitRecordAndRejectMakeNoSystemCallAndNoAllocation) {
  const Ended killed = run_without_system_calls([] { return ::getppid() > 0 ? 0 : 1; });
  SHMCB_SKIP_IF_REFUSED(killed, "no seccomp filters here");
  ASSERT_EQ(killed, killed_by(SIGSYS)) << "system calls could be made";
  if (run_without_system_calls(&read_the_clock) == killed_by(SIGSYS)) {
    GTEST_SKIP() << "reading the clock is a system call on this machine: the vDSO does not serve it";
  }
  const std::uint64_t allocated = allocations.load();
  ::operator delete(::operator new(1));
  ASSERT_EQ(allocations.load(), allocated + 1) << "allocations are not counted";

  const TestSegment made;
  const Ended ended = run_in_child([&]() -> int {
    const Segment segment = made.attach();
    Breakers breakers(segment);
    const std::uint64_t before = allocations.load();
    if (!forbid_system_calls()) return kRefusedByKernel;
    // No EXPECT from here on: it could not speak. And no return: letting go of the segment takes system calls.
    if (!admit_and_record(breakers.opens)) ::_exit(1);
    if (!open_and_reject(breakers.opens)) ::_exit(2);
    if (!probe_and_close(breakers.recovers)) ::_exit(3);
    ::_exit(allocations.load() == before ? 0 : 4);
  });
  EXPECT_EQ(ended, exited(0)) << "1: admit or record, 2: reject, 3: probe, 4: it allocated, SIGSYS: a system call";
}

/// Reads and writes a byte of every page; answers how many faults that took. Not looked at by sanitizers: the first
/// look at their own memory for a page is a fault too.
[[nodiscard, gnu::noinline]] __attribute__((no_sanitize("address", "thread", "undefined"))) long faults_of_touching(
    std::byte* begin, std::size_t bytes) {
  rusage before{};
  rusage after{};
  ::getrusage(RUSAGE_SELF, &before);
  auto* pages = reinterpret_cast<volatile unsigned char*>(begin);
  for (std::size_t offset = 0; offset < bytes; offset += 4096)
    pages[offset] = pages[offset];
  ::getrusage(RUSAGE_SELF, &after);
  return after.ru_minflt - before.ru_minflt;
}

TEST(HotPath, AfterPrefaultingOrLockingNoPageOfTheSegmentFaults) {
  const TestSegment made({.breakers = 1'024, .participants = 16});
  enum class Memory : std::uint8_t { as_touched, prefaulted, locked };
  for (const Memory memory : {Memory::as_touched, Memory::prefaulted, Memory::locked}) {
    expect_success_in_child([&] {
      SegmentOptions options = made.options();
      options.prefault = memory == Memory::prefaulted;
      options.lock_memory = memory == Memory::locked;
      const auto segment = Segment::attach(options);
      ASSERT_TRUE(segment) << segment.error().message;
      std::array<std::byte, 1> warm_up{};
      (void)faults_of_touching(warm_up.data(), warm_up.size());
      const long faults = faults_of_touching(begin_of(*segment), segment->geometry().total_bytes);
      if (memory != Memory::as_touched) {
        EXPECT_EQ(faults, 0);
      } else {
        EXPECT_GT(faults, 0) << "they are not seen";
      }
    });
  }
}

}  // namespace
}  // namespace shmcb::test
