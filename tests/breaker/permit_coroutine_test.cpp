// SPDX-License-Identifier: BSD-3-Clause
// Permits in coroutine frames: held over suspensions, settled on other threads, dropped with the frame.
#include <coroutine>
#include <exception>
#include <memory>
#include <thread>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "breaker/scripted_storage.hpp"
#include "shmcb/permit.hpp"

namespace shmcb {
namespace {

using test::Script;
using test::ScriptedStorage;
using ::testing::ElementsAre;

/// A coroutine that starts at once; the owner of the handle destroys the frame.
class Task {
 public:
  struct promise_type {  // NOLINT(readability-identifier-naming): the language's name
    Task get_return_object() { return Task{std::coroutine_handle<promise_type>::from_promise(*this)}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() noexcept {}
    void unhandled_exception() { std::terminate(); }
  };

  explicit Task(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  Task& operator=(Task&&) = delete;
  ~Task() {
    if (handle_) handle_.destroy();
  }

  void resume() { handle_.resume(); }
  bool done() const { return handle_.done(); }

 private:
  std::coroutine_handle<promise_type> handle_;
};

Task request(BasicBreaker<ScriptedStorage>& breaker, bool reply) {
  auto acquired = breaker.try_acquire();
  if (!acquired) co_return;
  co_await std::suspend_always{};  // for the reply
  reply ? acquired.permit().success() : acquired.permit().failure();
}

TEST(PermitCoroutine, IsSettledByTheThreadThatResumes) {
  auto script = std::make_shared<Script>();
  BasicBreaker<ScriptedStorage> breaker{ScriptedStorage{script}};
  Task task = request(breaker, true);
  EXPECT_THAT(script->operations, ElementsAre("admit"));
  std::thread{[&] { task.resume(); }}.join();
  EXPECT_TRUE(task.done());
  EXPECT_THAT(script->operations, ElementsAre("admit", "record success"));
}

TEST(PermitCoroutine, RecordsIgnoredWhenTheFrameIsDestroyed) {
  auto script = std::make_shared<Script>();
  BasicBreaker<ScriptedStorage> breaker{ScriptedStorage{script}};
  { const Task task = request(breaker, true); }
  EXPECT_THAT(script->operations, ElementsAre("admit", "abandon"));
}

/// Hands its result over when it is awaited; resumes on a thread of its own.
struct PermitOnAnotherThread {
  BasicBreaker<ScriptedStorage>& breaker;
  std::thread& resumer;
  Permit<ScriptedStorage> permit{};

  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> waiting) {
    permit = breaker.try_acquire().permit();
    resumer = std::thread{waiting};
  }
  Permit<ScriptedStorage> await_resume() noexcept { return std::move(permit); }
};

Task await_permit(BasicBreaker<ScriptedStorage>& breaker, std::thread& resumer, std::thread::id& settled_on) {
  auto permit = co_await PermitOnAnotherThread{breaker, resumer};
  settled_on = std::this_thread::get_id();
  permit.failure();
}

TEST(PermitCoroutine, CanBeTheResultOfAnAwait) {
  auto script = std::make_shared<Script>();
  BasicBreaker<ScriptedStorage> breaker{ScriptedStorage{script}};
  std::thread resumer;
  std::thread::id settled_on;
  const Task task = await_permit(breaker, resumer, settled_on);
  resumer.join();
  EXPECT_TRUE(task.done());
  EXPECT_NE(settled_on, std::this_thread::get_id());
  EXPECT_THAT(script->operations, ElementsAre("admit", "record failure"));
}

}  // namespace
}  // namespace shmcb
