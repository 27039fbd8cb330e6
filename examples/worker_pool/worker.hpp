// SPDX-License-Identifier: BSD-3-Clause
// A worker: calls the service again and again through a circuit breaker.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include <shmcb/config.hpp>

#include "event.hpp"

namespace worker_pool {

struct WorkerOptions {
  Pool pool = Pool::shared;
  std::uint32_t number = 0;
  std::uint16_t port = 0;  ///< of the service
  milliseconds timeout{250};
  milliseconds pause{20};  ///< between two calls
  std::string segment{};
  shmcb::BreakerConfig breaker{};
  int events = -1;  ///< a pipe that takes an Event for each call and transition
};

/// Until the process is killed. Throws where the breaker cannot be opened.
void run_worker(const WorkerOptions& options);

}  // namespace worker_pool
