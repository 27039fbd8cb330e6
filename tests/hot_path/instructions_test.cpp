// SPDX-License-Identifier: BSD-3-Clause
// What the path of every call is made of: a tracer steps through one operation as the compiler made it and looks at
// each instruction that is executed. Pinned are their number, the calls and the locked ones. A program of its own,
// which is compiled with -O2 whatever the build: no other file's version of an inline function gets into it.
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>
#include <ostream>
#include <vector>

#include <gtest/gtest.h>

#include "shmcb/core/layout.hpp"
#include "shmcb/shm_storage.hpp"
#include "support/processes.hpp"
#include "support/test_segment.hpp"

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

// The linker's: where this program's code begins and ends.
extern "C" const char __executable_start[];  // NOLINT(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)
extern "C" const char etext[];               // NOLINT(readability-identifier-naming)

namespace shmcb::test {

using Storage = ShmStorage<>;

// What is stepped through, from the first instruction to the return.

[[gnu::noinline]] bool admit_closed(Storage& storage, std::uint64_t& period) {
  const AdmitResult admitted = storage.admit();
  period = admitted.token.period;
  return admitted.admission == Admission::allowed;
}
[[gnu::noinline]] bool admit_open(Storage& storage) {
  return storage.admit().admission == Admission::rejected;
}
[[gnu::noinline]] bool record(Storage& storage, const Token& token, Outcome outcome) {
  return storage.record_outcome(token, outcome).status == RecordStatus::counted;
}
/// Four locked ones, each of another kind.
[[gnu::noinline]] bool lock_and_call(std::atomic<std::uint64_t>& word) {
  std::uint64_t seen = word.load(std::memory_order_relaxed);
  bool done = word.compare_exchange_strong(seen, seen + 1, std::memory_order_acq_rel, std::memory_order_relaxed);
  done = done && word.exchange(3, std::memory_order_acq_rel) == seen + 1;
  word.fetch_add(1, std::memory_order_relaxed);
  asm volatile("mfence" : : : "memory");
  return done && ::getpid() > 0;
}

namespace {

/// One instruction: where it stands, and its first bytes.
struct Instruction {
  std::uint64_t address = 0;
  std::array<std::uint8_t, 16> bytes{};

  /// Of libshmcb's headers and this file. What the clock does is the C library's and the kernel's.
  [[nodiscard]] bool is_ours() const {
    return address >= reinterpret_cast<std::uint64_t>(__executable_start) &&
           address < reinterpret_cast<std::uint64_t>(etext);
  }
  [[nodiscard]] bool is_call() const {
    const std::uint8_t* code = &bytes[prefixes()];
    return code[0] == 0xE8 || (code[0] == 0xFF && (code[1] >> 3U & 7U) == 2);
  }
  /// With the prefix; also an exchange with memory, which is locked without it, and a full fence, which costs the same.
  [[nodiscard]] bool is_locked() const {
    const std::size_t count = prefixes();
    const std::uint8_t* code = &bytes[count];
    const bool prefixed = std::find(bytes.begin(), bytes.begin() + count, 0xF0) != bytes.begin() + count;
    const bool exchange = (code[0] == 0x86 || code[0] == 0x87) && code[1] >> 6U != 3;
    const bool fence = code[0] == 0x0F && code[1] == 0xAE && code[2] == 0xF0;
    return prefixed || exchange || fence;
  }

 private:
  /// How many bytes stand before the operation's code: no more than 11 do.
  [[nodiscard]] std::size_t prefixes() const {
    static constexpr std::array<std::uint8_t, 11> kPrefixes{0x66, 0x67, 0xF2, 0xF3, 0x2E, 0x36,
                                                            0x3E, 0x26, 0x64, 0x65, 0xF0};
    std::size_t count = 0;
    while (count < 11 && ((bytes[count] & 0xF0U) == 0x40 ||  // REX
                          std::find(kPrefixes.begin(), kPrefixes.end(), bytes[count]) != kPrefixes.end()))
      ++count;
    return count;
  }
};

/// What a function executed of this program's code, from its first instruction to its return.
class Executed {
 public:
  void add(const Instruction& instruction) { all_.push_back(instruction); }

  [[nodiscard]] std::size_t instructions() const { return all_.size(); }
  [[nodiscard]] std::size_t calls() const { return count(&Instruction::is_call); }
  [[nodiscard]] std::size_t locked() const { return count(&Instruction::is_locked); }

  /// Addresses as objdump -d shows them.
  friend std::ostream& operator<<(std::ostream& out, const Executed& executed) {
    out << executed.instructions() << " instructions, " << executed.calls() << " calls, " << executed.locked()
        << " locked:" << std::hex;
    for (const Instruction& i : executed.all_) {
      out << (i.is_locked() ? " locked "
              : i.is_call() ? " call "
                            : " ")
          << i.address - reinterpret_cast<std::uint64_t>(__executable_start);
    }
    return out << std::dec;
  }

 private:
  [[nodiscard]] std::size_t count(bool (Instruction::*is)() const) const {
    return static_cast<std::size_t>(
        std::count_if(all_.begin(), all_.end(), [is](const Instruction& i) { return (i.*is)(); }));
  }
  std::vector<Instruction> all_;
};

/// A child that is being traced; everything stops at the first failure, and `ok()` is false from then on.
class Traced {
 public:
  template <class Work>
  explicit Traced(Work work)
      : child_(fork_child([work]() -> int {
          if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) return 1;
          ::raise(SIGSTOP);
          return work() ? 0 : 2;
        })) {
    ok_ = ::waitpid(child_.pid(), &status_, 0) == child_.pid();
    if (!WIFSTOPPED(status_)) child_.reaped();
  }

  [[nodiscard]] bool ok() const { return ok_ && WIFSTOPPED(status_); }
  [[nodiscard]] user_regs_struct registers() {
    user_regs_struct registers{};
    ok_ = ok_ && ::ptrace(PTRACE_GETREGS, child_.pid(), nullptr, &registers) == 0;
    return registers;
  }
  [[nodiscard]] std::uint64_t word_at(std::uint64_t address) {
    errno = 0;
    const long word = ::ptrace(PTRACE_PEEKDATA, child_.pid(), address, nullptr);
    ok_ = ok_ && errno == 0;
    return static_cast<std::uint64_t>(word);
  }
  void step() {
    ok_ = ok_ && ::ptrace(PTRACE_SINGLESTEP, child_.pid(), nullptr, nullptr) == 0 &&
          ::waitpid(child_.pid(), &status_, 0) == child_.pid();
    if (!WIFSTOPPED(status_)) child_.reaped();
  }
  [[nodiscard]] Ended run_to_the_end() {
    ::ptrace(PTRACE_CONT, child_.pid(), nullptr, nullptr);
    return child_.wait();
  }

 private:
  Child child_;
  int status_ = 0;
  bool ok_ = false;
};

constexpr std::size_t kEndless = 100'000;  // arbitrary: no operation is as long, nor is the way to it

/// Steps through a call of `function`, which has to answer true, in a child. Nothing: processes may not be traced here.
template <class... P, class... A>
[[nodiscard]] std::optional<Executed> step_through(bool (*function)(P...), A&... arguments) {
  Traced traced([&] {
    bool (*volatile called)(P...) = function;  // volatile: a copy made for these arguments would stand elsewhere
    return called(arguments...);
  });
  if (!traced.ok()) return std::nullopt;
  std::size_t steps = 0;
  while (traced.ok() && traced.registers().rip != reinterpret_cast<std::uint64_t>(function) && ++steps < kEndless)
    traced.step();
  const std::uint64_t end = traced.word_at(traced.registers().rsp);  // where the call returns to

  Executed executed;
  while (traced.ok() && ++steps < kEndless) {
    Instruction instruction{.address = traced.registers().rip};
    if (instruction.address == end) break;
    if (instruction.is_ours()) {
      const std::array<std::uint64_t, 2> words{traced.word_at(instruction.address),
                                               traced.word_at(instruction.address + sizeof(std::uint64_t))};
      std::memcpy(instruction.bytes.data(), words.data(), sizeof(words));
      executed.add(instruction);
    }
    traced.step();
  }
  EXPECT_GT(executed.instructions(), 1U);
  EXPECT_LT(steps, kEndless);
  EXPECT_TRUE(traced.ok()) << "the child has ended or cannot be looked at";
  if (!traced.ok()) return executed;
  EXPECT_EQ(traced.run_to_the_end(), exited(0)) << "2: the operation did not do what it should";
  return executed;
}

struct Limits {
  std::size_t instructions = 0;
  std::size_t calls = 0;
  std::size_t locked = 0;
};

/// A breaker in the midst of its life: its window is full.
class HotPathInstructions : public ::testing::Test {
 protected:
  HotPathInstructions() {
    for (int i = 0; i < 40; ++i)
      EXPECT_TRUE(record(storage_, token_, Outcome::success));
  }

  /// Steps through `function` at every distance from where the ring's hint is raised: three records later each time.
  template <class Function, class... A>
  void expect_within(const Limits& limits, Function* function, A&&... arguments) {
    static_assert(core::kHintEvery % 3 != 0);
    Limits most;
    for (std::uint64_t i = 0; i < core::kHintEvery && !HasFailure(); ++i) {
      const auto executed = step_through(function, arguments...);
      if (!executed) GTEST_SKIP() << "processes may not be traced here";
      EXPECT_LE(executed->instructions(), limits.instructions) << *executed;
      EXPECT_LE(executed->calls(), limits.calls) << *executed;
      EXPECT_LE(executed->locked(), limits.locked) << *executed;
      most = {.instructions = std::max(most.instructions, executed->instructions()),
              .calls = std::max(most.calls, executed->calls()),
              .locked = std::max(most.locked, executed->locked())};
      // Two, as the handle has not seen the one that its copy in the child made: after these it knows the ring's end.
      (void)record(storage_, token_, Outcome::success);
      (void)record(storage_, token_, Outcome::success);
    }
    std::printf("[ executed ] %zu instructions, %zu calls, %zu locked at most\n", most.instructions, most.calls,
                most.locked);
  }

  const TestSegment segment_;
  Storage storage_ = *Storage::open(segment_.segment(), {.name = "b"});
  Token token_ = storage_.admit().token;
};

TEST(HotPathInstruction, IsSeenIfItIsLockedOrACall) {
  std::atomic<std::uint64_t> word{0};
  const auto executed = step_through(&lock_and_call, word);
  if (!executed) GTEST_SKIP() << "processes may not be traced here";
  EXPECT_EQ(executed->locked(), 4U) << *executed;
  EXPECT_EQ(executed->calls(), 1U) << *executed;
}

// The limits are those of now, rounded up over what g++ 12 and clang++ 14 make of it; whoever makes a path shorter
// lowers them. A branch or a load more is for tools/bench --instructions --check to see; this is for a call, a lock or
// a copy.

TEST_F(HotPathInstructions, OfAClosedAdmitAreAHandfulWithoutACallAndWithoutALock) {
  std::uint64_t period = 0;
  expect_within({.instructions = 20, .calls = 0, .locked = 0}, &admit_closed, storage_, period);
}

// Locked: the slot's swap, and once in core::kHintEvery records the hint's. A call: the clock.
TEST_F(HotPathInstructions, OfASuccessTwoAreLockedAtMost) {
  expect_within({.instructions = 190, .calls = 4, .locked = 2}, &record, storage_, token_, Outcome::success);
}

// No clock either.
TEST_F(HotPathInstructions, OfASuccessThatIsLeftOutAreAHandfulWithoutACallAndWithoutALock) {
  Storage lean = *Storage::open(segment_.segment(), {.name = "lean", .accounting = Accounting::lean});
  const Token token = lean.admit().token;
  expect_within({.instructions = 60, .calls = 0, .locked = 0}, &record, lean, token, Outcome::success);
}

// Locked: one more, of a counter.
TEST_F(HotPathInstructions, OfAFailureThreeAreLockedAtMost) {
  expect_within({.instructions = 480, .calls = 8, .locked = 3}, &record, storage_, token_, Outcome::failure);
}

// Locked: the counter of rejections.
TEST_F(HotPathInstructions, OfARejectOneIsLocked) {
  ASSERT_EQ(storage_.force_state(CircuitState::open).error, Errc::ok);
  expect_within({.instructions = 200, .calls = 6, .locked = 1}, &admit_open, storage_);
}

}  // namespace
}  // namespace shmcb::test

#else

TEST(HotPathInstructions, AreLookedAtOnX8664WithoutSanitizers) {
  GTEST_SKIP() << "another architecture, or a sanitizer makes of every instruction ten of its own";
}

#endif
