// SPDX-License-Identifier: BSD-3-Clause
// Who is attached, who is dead, and what a fork makes of it: with real processes that are killed, forked and cloned.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "shmcb/shm_storage.hpp"
#include "support/kernel_faults.hpp"
#include "support/processes.hpp"
#include "support/test_segment.hpp"

namespace shmcb::test {
namespace {

using core::OwnerWord;
using core::StdEnv;

/// Who a process is in a segment, written down for others.
struct Identity {
  std::atomic<bool> known{false};
  std::atomic<std::uint16_t> number{0};
  std::atomic<std::uint32_t> incarnation{0};

  void set(const Segment& segment) {
    number = segment.presence().number();
    incarnation = segment.presence().incarnation();
    known = true;
  }
  [[nodiscard]] OwnerWord owner() const { return OwnerWord::make(number, incarnation, 1); }
};

/// Makes this process change a breaker, so that it must be itself.
void act(const Segment& segment, const char* breaker = "b") {
  auto storage = ShmStorage<>::open(segment, {.name = breaker});
  ASSERT_TRUE(storage) << storage.error().message;
  for (const CircuitState state : {CircuitState::open, CircuitState::half_open, CircuitState::closed}) {
    ASSERT_EQ(storage->force_state(state).error, Errc::ok);
  }
}

/// A child that attaches, says who it is, and stays until it is killed. With `act` it holds a spare record.
[[nodiscard]] Child attached_child(const TestSegment& made, Identity& identity) {
  Child child = fork_child([&] {
    const Segment segment = made.attach();
    act(segment);
    identity.set(segment);
    for (;;)
      ::pause();
  });
  if (!wait_until([&] { return identity.known.load(); })) throw std::runtime_error("the child did not attach");
  return child;
}

/// Makes a child as clone() without any of the library's knowledge: no fork handler runs.
[[nodiscard]] pid_t raw_clone() {
  return static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
}

template <class Work>
[[nodiscard]] Child clone_child(Work work) {
  std::fflush(nullptr);
  const pid_t pid = raw_clone();
  if (pid < 0) throw std::system_error(errno, std::generic_category(), "clone");
  if (pid == 0) {
    const int code = exit_code_of(work);
    std::fflush(nullptr);
    ::_exit(code);
  }
  return Child{pid};
}

[[nodiscard]] std::uint64_t entry_process(const Segment& segment, std::uint16_t number) {
  return StdEnv::load(segment.view().participant(number)->process, StdEnv::relaxed);
}

// ---- the table
// -------------------------------------------------------------------------------------------------------------

TEST(Participants, GetTheLowestNumbersAndAnEntryThatSaysWhoTheyAre) {
  const TestSegment made({.breakers = 2, .participants = 3});
  EXPECT_EQ(made->presence().number(), 0);
  const Segment second = made.attach();
  EXPECT_EQ(second.presence().number(), 1) << "one process attached twice is two participants";
  EXPECT_TRUE(second.has_entry());
  auto& entry = *made->view().participant(0);
  EXPECT_EQ(StdEnv::load(entry.pid, StdEnv::relaxed) & core::low_bits(32), static_cast<std::uint64_t>(::getpid()));
  EXPECT_EQ(StdEnv::load(entry.incarnation, StdEnv::relaxed), made->presence().incarnation());
  EXPECT_NE(entry_process(made.segment(), 0), 0U);
  EXPECT_EQ(entry_process(made.segment(), 2), 0U);
}

TEST(Participants, WhoLeaveInOrderGiveNumberAndSparesBack) {
  const TestSegment made({.breakers = 2, .participants = 2});
  OwnerWord gone;
  {
    const Segment second = made.attach();
    act(second);
    ASSERT_EQ(second.presence().number(), 1);
    gone = OwnerWord::make(1, second.presence().incarnation(), 1);
    EXPECT_FALSE(made->presence().is_dead(gone));
  }
  EXPECT_EQ(entry_process(made.segment(), 1), 0U);
  EXPECT_TRUE(made->presence().is_dead(gone));
  for (std::uint32_t i = 1; i < made->geometry().records; ++i) {
    const OwnerWord owner{StdEnv::load(made->view().record(i)->owner, StdEnv::relaxed)};
    EXPECT_TRUE(owner.free() || owner.published() || owner.participant() == 0) << i;
  }
  const Segment next = made.attach();
  EXPECT_EQ(next.presence().number(), 1);
  EXPECT_NE(next.presence().incarnation(), gone.incarnation());
}

TEST(Participants, BeyondTheTableWorkAndSaySo) {
  const TestSegment made({.breakers = 4, .participants = 1});
  EXPECT_TRUE(made->has_entry());
  act(made.segment());
  std::vector<Segment> more;
  for (int i = 0; i < 3; ++i) {
    more.push_back(made.attach());
    EXPECT_FALSE(more.back().has_entry());
    EXPECT_GE(more.back().presence().number(), 1);
    ASSERT_NO_FATAL_FAILURE(act(more.back()));
    EXPECT_FALSE(made->presence().is_dead(
        OwnerWord::make(more.back().presence().number(), more.back().presence().incarnation(), 1)));
  }
  for (std::size_t i = 0; i < more.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j)
      EXPECT_NE(more[i].presence().number(), more[j].presence().number());
  }
  const OwnerWord gone = OwnerWord::make(more.back().presence().number(), more.back().presence().incarnation(), 1);
  more.pop_back();
  EXPECT_TRUE(made->presence().is_dead(gone));
}

TEST(Participants, BeyondTheTableAreDeadWhenTheyAreKilled) {
  const TestSegment made({.breakers = 4, .participants = 1});
  SharedArea<Identity> identity;
  Child child = attached_child(made, *identity);
  EXPECT_GE(identity->number.load(), 1);
  EXPECT_FALSE(made->presence().is_dead(identity->owner()));
  child.kill();
  ASSERT_TRUE(child.ends_within());
  EXPECT_TRUE(made->presence().is_dead(identity->owner()));
}

TEST(Participants, OfTheTableComeBackAfterDeath) {
  const TestSegment made({.breakers = 2, .participants = 2});
  for (int round = 0; round < 20; ++round) {
    SharedArea<Identity> identity;
    Child child = attached_child(made, *identity);
    ASSERT_EQ(identity->number.load(), 1) << round;
    child.kill();
    EXPECT_EQ(child.wait(), killed_by(SIGKILL));
    EXPECT_TRUE(made->presence().is_dead(identity->owner()));
  }
}

TEST(Participants, KilledInLargeNumbersLoseNoRecord) {
  const TestSegment made({.breakers = 2, .participants = 2});
  for (int round = 0; round < 50; ++round) {
    SharedArea<Identity> identity;
    Child child = attached_child(made, *identity);  // holds a spare
    child.kill();
    EXPECT_EQ(child.wait(), killed_by(SIGKILL));
    ASSERT_NO_FATAL_FAILURE(act(made.segment()));
  }
}

// ---- alive or dead
// ---------------------------------------------------------------------------------------------------------

TEST(Death, OfAZombieIsSeenBeforeItsParentReapsIt) {
  const TestSegment made({.breakers = 2, .participants = 2});
  SharedArea<Identity> identity;
  Child child = attached_child(made, *identity);
  EXPECT_FALSE(made->presence().is_dead(identity->owner()));
  child.kill();
  ASSERT_TRUE(child.ends_within());
  ASSERT_EQ(::kill(child.pid(), 0), 0) << "still there, as a zombie";
  EXPECT_TRUE(made->presence().is_dead(identity->owner()));
  EXPECT_EQ(made.attach().presence().number(), 1) << "its number is free";
}

TEST(Death, OfAStoppedProcessIsNotAssumed) {
  const TestSegment made({.breakers = 2, .participants = 2});
  SharedArea<Identity> identity;
  Child child = attached_child(made, *identity);
  child.kill(SIGSTOP);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child.pid()), &info, WSTOPPED | WNOWAIT), 0);
  EXPECT_FALSE(made->presence().is_dead(identity->owner()));
  EXPECT_FALSE(made.attach().has_entry());
}

TEST(Death, OfAnEarlierIncarnationIsKnownWhileTheNumberIsInUse) {
  const TestSegment made({.breakers = 2, .participants = 2});
  const core::Presence& me = made->presence();
  EXPECT_FALSE(made->presence().is_dead(OwnerWord::make(0, me.incarnation(), 1)));
  EXPECT_TRUE(made->presence().is_dead(OwnerWord::make(0, me.incarnation() + 1, 1)));
  const Segment other = made.attach();
  EXPECT_FALSE(made->presence().is_dead(OwnerWord::make(1, other.presence().incarnation(), 1)));
  EXPECT_TRUE(made->presence().is_dead(OwnerWord::make(1, other.presence().incarnation() + 1, 1)));
}

TEST(Death, IsNotAssumedOfAProcessThatClosedAllItsDescriptors) {
  const TestSegment made({.breakers = 2, .participants = 2});
  SharedArea<Identity> identity;
  SharedArea<std::atomic<bool>> go_on;
  Child child = fork_child([&] {
    std::optional<Segment> segment{made.attach()};
    act(*segment);
    ::close_range(3, ~0U, 0);
    // The daemon's own file gets the number that the segment's descriptor had.
    const int own = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    identity->set(*segment);
    if (!wait_until([&] { return go_on->load(); })) return 1;
    act(*segment);
    segment.reset();
    return ::fcntl(own, F_GETFD) >= 0 ? 0 : 2;
  });
  ASSERT_TRUE(wait_until([&] { return identity->known.load(); }));
  EXPECT_FALSE(made->presence().is_dead(identity->owner()));
  EXPECT_FALSE(made.attach().has_entry()) << "its number is not given to anybody";
  ASSERT_NO_FATAL_FAILURE(act(made.segment(), "another"));
  *go_on = true;
  EXPECT_EQ(child.wait(), exited(0));
  EXPECT_TRUE(made->presence().is_dead(identity->owner()));
  EXPECT_TRUE(made.attach().has_entry());
}

TEST(Death, IsNotDecidedByAProcessThatClosedAllItsDescriptors) {
  const TestSegment made({.breakers = 2, .participants = 3});
  SharedArea<Identity> identity;
  Child victim = attached_child(made, *identity);
  victim.kill();
  EXPECT_EQ(victim.wait(), killed_by(SIGKILL));
  expect_success_in_child([&] {
    const Segment segment = made.attach();
    const OwnerWord gone = OwnerWord::make(2, 77, 1);
    EXPECT_TRUE(segment.presence().is_dead(gone));
    ::close_range(3, ~0U, 0);
    EXPECT_FALSE(segment.presence().is_dead(gone)) << "it cannot know";
    act(segment);
  });
}

/// Runs `work` as the first process of a pid namespace with a /proc of its own.
template <class Work>
[[nodiscard]] Ended run_in_pid_namespace(Work work, bool with_proc = true) {
  return run_in_child([&]() -> int {
    if (::unshare(CLONE_NEWPID | CLONE_NEWNS) != 0) return kRefusedByKernel;
    const Ended first = run_in_child([&]() -> int {
      if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return kRefusedByKernel;
      if (with_proc && ::mount("proc", "/proc", "proc", 0, nullptr) != 0) return kRefusedByKernel;
      return work();
    });
    return first.exit_code;
  });
}

TEST(Death, OfAProcessWhosePidIsAnothersNowIsKnown) {
  const TestSegment made({.breakers = 2, .participants = 2});
  const Ended ended = run_in_pid_namespace([&]() -> int {
    SharedArea<Identity> identity;
    Child first = attached_child(made, *identity);
    const pid_t pid = first.pid();
    first.kill();
    EXPECT_EQ(first.wait(), killed_by(SIGKILL));
    // The start time of a process is told in ticks of 10 ms; within one tick the old process would count as alive.
    const auto tick = [] {
      timespec now{};
      ::clock_gettime(CLOCK_BOOTTIME, &now);
      return now.tv_sec * 100 + now.tv_nsec / 10'000'000;
    };
    const auto then = tick();
    EXPECT_TRUE(wait_until([&] { return tick() > then; }));
    const int fd = ::open("/proc/sys/kernel/ns_last_pid", O_WRONLY | O_CLOEXEC);
    const std::string before = std::to_string(pid - 1);
    if (fd < 0 || ::write(fd, before.data(), before.size()) < 0) return kRefusedByKernel;
    const Child second = fork_child([] {
      for (;;)
        ::pause();
    });
    EXPECT_EQ(second.pid(), pid);
    EXPECT_EQ(::kill(pid, 0), 0);
    const Segment mine = made.attach();
    EXPECT_TRUE(mine.has_entry()) << "the number of the dead process";
    EXPECT_TRUE(mine.presence().is_dead(identity->owner()));
    return 0;
  });
  SHMCB_SKIP_IF_REFUSED(ended, "no pid namespaces or no ns_last_pid for this user");
  EXPECT_EQ(ended, exited(0));
}

TEST(Death, IsSeenAcrossPidNamespacesAndOnlyWhenItIsTrue) {
  const TestSegment made({.breakers = 2, .participants = 3});
  for (const bool with_proc : {true, false}) {
    SharedArea<Identity> inside;
    SharedArea<std::atomic<bool>> go_on;
    Child child = fork_child([&]() -> int {
      const Ended ended = run_in_pid_namespace(
          [&]() -> int {
            const Segment segment = made.attach();
            EXPECT_FALSE(segment.presence().is_dead(OwnerWord::make(0, made->presence().incarnation(), 1)));
            act(segment);
            inside->set(segment);
            return wait_until([&] { return go_on->load(); }) ? 0 : 1;
          },
          with_proc);
      return ended.exit_code;
    });
    const bool attached =
        wait_until([&] { return inside->known.load() || child.ends_within(Watchdog{0}); }) && inside->known;
    if (!attached) {
      const Ended ended = child.wait();
      SHMCB_SKIP_IF_REFUSED(ended, "no pid namespaces for this user");
      FAIL() << ended;
    }
    EXPECT_FALSE(made->presence().is_dead(inside->owner()));
    ASSERT_NO_FATAL_FAILURE(act(made.segment()));
    *go_on = true;
    EXPECT_EQ(child.wait(), exited(0));
    EXPECT_TRUE(made->presence().is_dead(inside->owner()));
    EXPECT_TRUE(made.attach().has_entry()) << (with_proc ? "with" : "without") << " a /proc of its own";
  }
}

// Without a /proc of its own namespace a process must not take the start time of a stranger for its own: the stranger
// lives on, and with it the dead one.
TEST(Death, OfAProcessInAPidNamespaceWithoutItsOwnProcIsSeenByItsSiblings) {
  const TestSegment made({.breakers = 2, .participants = 2});
  const Ended ended = run_in_pid_namespace(
      [&]() -> int {
        SharedArea<Identity> identity;
        Child sibling = attached_child(made, *identity);
        sibling.kill();
        EXPECT_EQ(sibling.wait(), killed_by(SIGKILL));
        const Segment mine = made.attach();
        EXPECT_TRUE(mine.has_entry());
        EXPECT_TRUE(mine.presence().is_dead(identity->owner()));
        return 0;
      },
      false);
  SHMCB_SKIP_IF_REFUSED(ended, "no pid namespaces for this user");
  EXPECT_EQ(ended, exited(0));
}

// ---- fork
// ------------------------------------------------------------------------------------------------------------------

class Fork : public ::testing::Test {
 protected:
  const TestSegment made{{.breakers = 4, .participants = 8}};
  ShmStorage<> storage = *ShmStorage<>::open(made.segment(), {.name = "b"});
  const std::uint16_t number = made->presence().number();
  const std::uint32_t incarnation = made->presence().incarnation();

  void force_all() {
    for (const CircuitState state : {CircuitState::open, CircuitState::half_open, CircuitState::closed}) {
      ASSERT_EQ(storage.force_state(state).error, Errc::ok);
    }
  }
  void expect_unaffected() {
    EXPECT_EQ(made->presence().number(), number);
    EXPECT_EQ(made->presence().incarnation(), incarnation);
    EXPECT_NE(entry_process(made.segment(), number), 0U);
    const Segment observer = made.attach();
    EXPECT_FALSE(observer.presence().is_dead(OwnerWord::make(number, incarnation, 1)));
    ASSERT_NO_FATAL_FAILURE(force_all());
    EXPECT_EQ(made->status(), SegmentStatus::current);
  }
  void expect_somebody_else() {
    ASSERT_NO_FATAL_FAILURE(force_all());
    EXPECT_TRUE(made->presence().current());
    EXPECT_NE(made->presence().number(), number);
    EXPECT_TRUE(made->has_entry());
    EXPECT_FALSE(made->presence().is_dead(OwnerWord::make(number, incarnation, 1))) << "the parent lives";
  }
};

TEST_F(Fork, GivesTheChildANumberOfItsOwnWhenItFirstChangesSomething) {
  force_all();
  expect_success_in_child([&] {
    EXPECT_FALSE(made->presence().current());
    EXPECT_EQ(storage.admit().admission, Admission::allowed);
    EXPECT_FALSE(made->presence().current()) << "an admit in Closed needs none";
    expect_somebody_else();
  });
  expect_unaffected();
}

TEST_F(Fork, LeavesTheParentAloneHoweverTheChildEnds) {
  force_all();
  EXPECT_EQ(run_in_child([&] { force_all(); }), exited(0)) << "_exit";
  expect_unaffected();
  EXPECT_EQ(run_in_child([&] {
              force_all();
              ::kill(::getpid(), SIGKILL);
            }),
            killed_by(SIGKILL));
  expect_unaffected();
  EXPECT_EQ(run_in_child([&] { ::kill(::getpid(), SIGKILL); }), killed_by(SIGKILL)) << "without a single operation";
  expect_unaffected();
  expect_success_in_child([&] {
    // As exit() would: the child's copies are destroyed.
    { const ShmStorage<> moved = std::move(storage); }
    std::optional<Segment> copy{made.segment()};
    copy.reset();
  });
  expect_unaffected();
}

TEST_F(Fork, LetsTheChildDestroyTheLastCopyWithoutHarmToTheParent) {
  std::optional<Segment> mine{made.attach()};
  const OwnerWord owner = OwnerWord::make(mine->presence().number(), mine->presence().incarnation(), 1);
  for (const bool used : {false, true}) {
    expect_success_in_child([&] {
      if (used) act(*mine);
      mine.reset();
    });
    EXPECT_FALSE(made->presence().is_dead(owner));
    EXPECT_NE(entry_process(made.segment(), owner.participant()), 0U);
    ASSERT_NO_FATAL_FAILURE(act(*mine));
  }
}

TEST_F(Fork, GivesAChildOfTheChildANumberOfItsOwnToo) {
  for (const bool child_acts : {false, true}) {
    expect_success_in_child([&] {
      if (child_acts) force_all();
      const std::uint16_t mine = made->presence().number();
      expect_success_in_child([&] {
        expect_somebody_else();
        EXPECT_TRUE(!child_acts || made->presence().number() != mine);
      });
      expect_somebody_else();
    });
  }
  expect_unaffected();
}

TEST_F(Fork, ByARawCloneWorksAsWell) {
  force_all();
  Child child = clone_child([&] {
    EXPECT_FALSE(made->presence().current());
    expect_somebody_else();
  });
  EXPECT_EQ(child.wait(), exited(0));
  expect_unaffected();
}

TEST_F(Fork, LeavesNoNumberInUseWhenItsChildrenHaveGone) {
  for (int i = 0; i < 40; ++i) {
    EXPECT_EQ(run_in_child([&] { force_all(); }), exited(0));
    Child cloned = clone_child([&] { force_all(); });
    EXPECT_EQ(cloned.wait(), exited(0));
  }
  const Segment next = made.attach();
  EXPECT_TRUE(next.has_entry());
  expect_unaffected();
}

TEST_F(Fork, DoesNotKeepADeadParentAliveThroughItsIdleChild) {
  SharedArea<Identity> identity;
  SharedArea<std::atomic<pid_t>> orphan;
  Child parent = fork_child([&] {
    const Segment segment = made.attach();
    act(segment);
    const pid_t pid = ::fork();
    if (pid == 0) {
      *orphan = ::getpid();
      for (;;)
        ::pause();
    }
    identity->set(segment);
    for (;;)
      ::pause();
  });
  EXPECT_TRUE(wait_until([&] { return identity->known && *orphan != 0; }));
  EXPECT_FALSE(made->presence().is_dead(identity->owner()));
  parent.kill();
  EXPECT_EQ(parent.wait(), killed_by(SIGKILL));
  EXPECT_EQ(::kill(*orphan, 0), 0) << "the idle child is there";
  EXPECT_TRUE(made->presence().is_dead(identity->owner()));
  ::kill(*orphan, SIGKILL);
}

// The kernel's lock belongs to the open file, and no fork handler ran to let go of it: in doubt nobody is dead.
TEST_F(Fork, ByARawCloneKeepsADeadParentAliveUntilTheChildActsOrEnds) {
  SharedArea<Identity> identity;
  SharedArea<std::atomic<pid_t>> orphan;
  SharedArea<std::atomic<bool>> go_on;
  SharedArea<std::atomic<bool>> acted;
  Child parent = fork_child([&] {
    const Segment segment = made.attach();
    act(segment);
    if (raw_clone() == 0) {
      *orphan = ::getpid();
      if (!wait_until([&] { return go_on->load(); })) ::_exit(1);
      act(segment);
      *acted = true;
      for (;;)
        ::pause();
    }
    identity->set(segment);
    for (;;)
      ::pause();
  });
  EXPECT_TRUE(wait_until([&] { return identity->known && *orphan != 0; }));
  parent.kill();
  EXPECT_EQ(parent.wait(), killed_by(SIGKILL));
  EXPECT_FALSE(made->presence().is_dead(identity->owner()));
  *go_on = true;
  EXPECT_TRUE(wait_until([&] { return acted->load(); }));
  EXPECT_TRUE(made->presence().is_dead(identity->owner()));
  ::kill(*orphan, SIGKILL);
}

TEST_F(Fork, WhileOtherThreadsAreInsideOperationsGivesChildrenThatWork) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([this, &stop, t] {
      ShmStorage<> mine = storage;
      while (!stop.load(std::memory_order_relaxed)) {
        const AdmitResult admitted = mine.admit();
        (void)mine.record_outcome(admitted.token, t == 0 ? Outcome::failure : Outcome::success);
        if (t == 1) (void)mine.force_state(CircuitState::closed);
      }
    });
  }
  for (int i = 0; i < 60; ++i) {
    // Nothing in the child allocates: another thread may have been inside malloc.
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::alarm(30);
      for (int n = 0; n < 30; ++n) {
        const AdmitResult admitted = storage.admit();
        if (admitted.error != Errc::ok) ::_exit(10 + static_cast<int>(admitted.error));
        const RecordResult recorded =
            storage.record_outcome(admitted.token, n % 2 == 0 ? Outcome::failure : Outcome::success);
        if (recorded.error != Errc::ok) ::_exit(50 + static_cast<int>(recorded.error));
        const ForceResult forced = storage.force_state(n % 3 == 0 ? CircuitState::open : CircuitState::closed);
        if (forced.error != Errc::ok) ::_exit(100 + static_cast<int>(forced.error));
      }
      ::_exit(0);
    }
    Child child{pid};
    EXPECT_EQ(child.wait(), exited(0));
  }
  stop = true;
  for (std::thread& thread : threads)
    thread.join();
  expect_unaffected();
}

// The parent of a second fork may be in the middle of becoming itself after the first.
TEST_F(Fork, WhileAnotherThreadIsJustGettingItsNumberGivesAChildThatWorks) {
  // Every other entry belongs to a living process without a lock, which takes long to find out.
  const TestSegment crowded({.breakers = 4, .participants = 512});
  ShmStorage<> breaker = *ShmStorage<>::open(crowded.segment(), {.name = "b"});
  const auto& mine = *crowded->view().participant(0);
  for (std::uint32_t n = 1; n < crowded->geometry().participants; ++n) {
    auto& entry = *crowded->view().participant(n);
    StdEnv::store(entry.pid, StdEnv::load(mine.pid, StdEnv::relaxed), StdEnv::relaxed);
    StdEnv::store(entry.start_time, StdEnv::load(mine.start_time, StdEnv::relaxed), StdEnv::relaxed);
    StdEnv::store(entry.process, 1, StdEnv::relaxed);
  }
  for (int round = 0; round < 5; ++round) {
    SharedArea<std::atomic<bool>> begun;
    SharedArea<Errc> error;
    *error = Errc::system;
    const Ended ended = run_in_child([&] {
      std::thread renewing([&] {
        *begun = true;
        (void)breaker.force_state(CircuitState::closed);
      });
      while (!*begun)
        ::sched_yield();
      for (int i = 0; i < 20 * round; ++i)
        ::sched_yield();
      const pid_t pid = ::fork();
      if (pid == 0) {
        ::alarm(30);
        *error = breaker.force_state(CircuitState::open).error;
        ::kill(::getpid(), SIGKILL);  // _exit would have ThreadSanitizer look for the other thread
      }
      Child child{pid};
      EXPECT_EQ(child.wait(), killed_by(SIGKILL));
      renewing.join();
    });
    EXPECT_EQ(ended, exited(0)) << "round " << round;
    EXPECT_EQ(to_string(*error), "ok") << "round " << round;
  }
}

TEST_F(Fork, AfterTheSegmentWasRemovedGivesAChildThatWorks) {
  EXPECT_FALSE(Segment::remove(made.options()));
  expect_success_in_child([&] { expect_somebody_else(); });
  Child cloned = clone_child([&] { expect_somebody_else(); });
  EXPECT_EQ(cloned.wait(), exited(0));
}

TEST_F(Fork, OfAChildWithoutTheRightToOpenTheFileGoesOnAsOneThatNobodyProvesDead) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  SharedArea<Identity> identity;
  expect_success_in_child([&] {
    // A worker that dropped its rights after it was forked keeps what it has.
    force_all();
    EXPECT_TRUE(made->has_entry());
    if (::setresuid(65'534, 65'534, 65'534) != 0) throw std::runtime_error("setresuid");
    force_all();
    // Its own children cannot prove themselves.
    expect_success_in_child([&] {
      force_all();
      EXPECT_FALSE(made->has_entry());
      identity->set(made.segment());
    });
  });
  EXPECT_FALSE(made->presence().is_dead(identity->owner())) << "in doubt nobody is";
  expect_unaffected();
}

}  // namespace
}  // namespace shmcb::test
