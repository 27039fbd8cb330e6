// SPDX-License-Identifier: BSD-3-Clause
// What a worker tells the process that started it, through a pipe: one event a call, one a transition it committed.
#pragma once

#include <chrono>
#include <cstdint>
#include <type_traits>

#include <shmcb/types.hpp>

namespace worker_pool {

using Time = std::chrono::steady_clock::time_point;  // CLOCK_MONOTONIC: the same in all processes
using std::chrono::milliseconds;

enum class Pool : std::uint8_t { shared, per_process };
enum class EventKind : std::uint8_t { answered, failed, turned_away, transition };

struct Event {
  Pool pool = Pool::shared;
  EventKind kind = EventKind::answered;
  std::uint32_t worker = 0;
  Time began{};
  Time ended{};
  // Of a transition:
  shmcb::CircuitState from = shmcb::CircuitState::closed;
  shmcb::CircuitState to = shmcb::CircuitState::closed;
  std::uint64_t failures = 0;  ///< in the window after it
};

static_assert(std::is_trivially_copyable_v<Event>, "it goes through a pipe as it lies in memory");

}  // namespace worker_pool
