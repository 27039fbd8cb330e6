// SPDX-License-Identifier: BSD-3-Clause
#include "shmcb/core/process_identity.hpp"

#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace shmcb::core {
namespace {

// The branches for machines that have no page or no wiping. Each type has an identity of its own.
struct NoWiping : IdentitySystem {
  static bool wipe_on_fork(void*) noexcept { return false; }
};
struct NoPage : IdentitySystem {
  static void* map_page() noexcept { return nullptr; }
};
struct OnlyZeros : IdentitySystem {
  static std::uint64_t random() noexcept { return 0; }
};
struct Raced : IdentitySystem {};

template <class System>
class ProcessIdentityTest : public ::testing::Test {};
using Systems = ::testing::Types<IdentitySystem, NoWiping, NoPage>;
TYPED_TEST_SUITE(ProcessIdentityTest, Systems);

/// What `current` answers in a child that `make_child` (as fork) makes, twice.
template <class System>
std::pair<std::uint64_t, std::uint64_t> identities_in_child(pid_t (*make_child)()) {
  int ends[2];
  if (::pipe(ends) != 0) return {};
  const pid_t child = make_child();
  if (child == 0) {
    const std::uint64_t ids[] = {ProcessIdentity<System>::current(), ProcessIdentity<System>::current()};
    ::_exit(::write(ends[1], ids, sizeof ids) == ssize_t{sizeof ids} ? 0 : 1);
  }
  std::uint64_t ids[2] = {};
  EXPECT_EQ(::read(ends[0], ids, sizeof ids), ssize_t{sizeof ids});
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
  ::close(ends[0]);
  ::close(ends[1]);
  return {ids[0], ids[1]};
}

pid_t forked() {
  return ::fork();
}
pid_t cloned() {
  return static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
}

TYPED_TEST(ProcessIdentityTest, IsNonzeroAndStays) {
  const std::uint64_t id = ProcessIdentity<TypeParam>::current();
  EXPECT_NE(id, 0U);
  EXPECT_EQ(ProcessIdentity<TypeParam>::current(), id);
}

TYPED_TEST(ProcessIdentityTest, IsAnotherOneInEveryForkedChild) {
  std::set<std::uint64_t> seen{ProcessIdentity<TypeParam>::current()};
  for (int i = 0; i < 3; ++i) {
    const auto [first, second] = identities_in_child<TypeParam>(&forked);
    EXPECT_EQ(first, second);
    EXPECT_NE(first, 0U);
    EXPECT_TRUE(seen.insert(first).second);
  }
  EXPECT_TRUE(seen.contains(ProcessIdentity<TypeParam>::current()));  // the parent keeps its own
}

TEST(ProcessIdentity, IsAnotherOneInAChildOfRawClone) {
  const std::uint64_t id = current_process();
  const auto [first, second] = identities_in_child<IdentitySystem>(&cloned);
  EXPECT_EQ(first, second);
  EXPECT_NE(first, 0U);
  EXPECT_NE(first, id);
}

TEST(ProcessIdentity, IsNeverZeroWhateverTheRandomNumber) {
  EXPECT_NE(ProcessIdentity<OnlyZeros>::current(), 0U);
}

TEST(ProcessIdentity, IsTheSameForThreadsThatRaceForIt) {
  constexpr std::size_t kThreads = 8;  // arbitrary
  std::atomic<std::size_t> ready{0};
  std::vector<std::uint64_t> ids(kThreads);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      ++ready;
      while (ready != kThreads)
        std::this_thread::yield();
      ids[i] = ProcessIdentity<Raced>::current();
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(std::set<std::uint64_t>(ids.begin(), ids.end()).size(), 1U);
}

}  // namespace
}  // namespace shmcb::core
