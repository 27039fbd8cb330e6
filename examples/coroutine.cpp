// SPDX-License-Identifier: BSD-3-Clause
// A permit held in a coroutine: it is taken before the request, and settled when the reply arrives on another thread. A
// callback could not be wrapped here: it would return when the request has been sent.
#include <coroutine>
#include <exception>
#include <iostream>
#include <string_view>
#include <thread>
#include <utility>

#include <shmcb/memory_storage.hpp>
#include <shmcb/permit.hpp>

namespace {

using Breaker = shmcb::BasicBreaker<shmcb::MemoryStorage<>>;

/// A coroutine that runs by itself and frees its frame at the end.
struct Detached {
  struct promise_type {  // NOLINT(readability-identifier-naming): the language's name
    Detached get_return_object() noexcept { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() noexcept {}
    void unhandled_exception() noexcept { std::terminate(); }
  };
};

/// Stands for a network library: `co_await reply` resumes on the network's thread.
struct Reply {
  std::thread& network;
  int status;

  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> waiting) const {
    std::thread& target = network;  // once the thread runs, the frame and this object in it may be gone
    target = std::thread{waiting};
  }
  int await_resume() const noexcept { return status; }
};

Detached request(Breaker& breaker, std::thread& network, int status) {
  auto acquired = breaker.try_acquire();
  if (!acquired) {
    std::cout << "turned away for " << acquired.rejection().retry_after.count() << " ms\n";
    co_return;
  }
  // If the frame is destroyed while it waits, the permit records Ignored and frees its place.
  auto permit = std::move(acquired).permit();
  const int received = co_await Reply{network, status};
  if (received >= 500) {
    permit.failure();
  } else {
    permit.success();
  }
  std::cout << "status " << received << '\n';
}

}  // namespace

int main() {
  auto storage = shmcb::MemoryStorage<>::open({.name = "http", .failure_threshold = {.failures = 2, .window = 10}});
  if (!storage) {
    std::cerr << storage.error().message << '\n';
    return 1;
  }
  Breaker breaker{*std::move(storage)};
  for (const int status : {200, 503, 503, 200}) {
    std::thread network;
    request(breaker, network, status);
    if (network.joinable()) network.join();
  }
}
