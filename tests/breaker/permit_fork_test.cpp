// SPDX-License-Identifier: BSD-3-Clause
// A forked child has copies of its parent's permits, which must not say anything about its parent's attempts.
#include <sys/wait.h>
#include <unistd.h>

#include <exception>
#include <memory>
#include <optional>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "breaker/scripted_storage.hpp"
#include "shmcb/circuit_breaker.hpp"
#include "shmcb/permit.hpp"

namespace shmcb {
namespace {

using test::Script;
using test::ScriptedStorage;
using ::testing::ElementsAre;

/// The exit status of `in_child`, run in a forked child.
template <class InChild>
int run_in_child(InChild in_child) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(in_child());
  int status = -1;
  if (::waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

TEST(PermitFork, MakesTheChildsCopyInert) {
  auto script = std::make_shared<Script>();
  BasicBreaker<ScriptedStorage> breaker{ScriptedStorage{script}};
  auto acquired = breaker.try_acquire();
  std::optional<Permit<ScriptedStorage>> dropped{breaker.try_acquire().permit()};
  const int status = run_in_child([&] {
    Permit<ScriptedStorage>& copy = acquired.permit();
    if (copy.pending()) return 1;
    if (copy.release().admission != Admission::rejected) return 2;
    if (copy.success().status != RecordStatus::stale) return 3;
    dropped.reset();
    copy = Permit<ScriptedStorage>{};
    return script->operations.size() == 2 ? 0 : 4;  // the admits of the parent
  });
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(acquired.permit().pending());
  EXPECT_EQ(acquired.permit().success().status, RecordStatus::counted);
}

TEST(PermitFork, StaysInertWhenTheChildMovesIt) {
  auto script = std::make_shared<Script>();
  BasicBreaker<ScriptedStorage> breaker{ScriptedStorage{script}};
  auto permit = breaker.try_acquire().permit();
  EXPECT_EQ(run_in_child([&] {
              auto moved = std::move(permit);
              return moved.failure().status == RecordStatus::stale && script->operations.size() == 1 ? 0 : 1;
            }),
            0);
}

TEST(PermitFork, LeavesTheChildItsOwnPermits) {
  auto script = std::make_shared<Script>();
  BasicBreaker<ScriptedStorage> breaker{ScriptedStorage{script}};
  EXPECT_EQ(run_in_child([&] {
              auto acquired = breaker.try_acquire();
              return acquired.permit().success().status == RecordStatus::counted ? 0 : 1;
            }),
            0);
}

TEST(CallFork, InsideACallbackRecordsInTheParentOnly) {
  auto script = std::make_shared<Script>();
  CircuitBreaker breaker{ScriptedStorage{script}, [](std::exception_ptr) { return true; }};
  const pid_t parent = ::getpid();
  pid_t child = -1;
  const int value = breaker.call([&] {
    child = ::fork();
    return 7;
  });
  if (::getpid() != parent) ::_exit(value == 7 && script->operations.size() == 1 ? 0 : 1);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_THAT(script->operations, ElementsAre("admit", "record success"));
}

}  // namespace
}  // namespace shmcb
