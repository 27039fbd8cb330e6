// SPDX-License-Identifier: BSD-3-Clause
// Threads that start together and are joined before the function returns.
#pragma once

#include <cstddef>
#include <latch>
#include <thread>
#include <vector>

namespace shmcb::test {

/// Runs `work(index)` in `count` threads that wait for each other at the start.
template <class Work>
void run_threads(std::size_t count, Work work) {
  std::latch start{static_cast<std::ptrdiff_t>(count)};
  std::vector<std::jthread> threads;
  threads.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    threads.emplace_back([&start, &work, i] {
      start.arrive_and_wait();
      work(i);
    });
  }
}

}  // namespace shmcb::test
