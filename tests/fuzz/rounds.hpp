// SPDX-License-Identifier: BSD-3-Clause
// How long rounds of a random test may take.
#pragma once

#include <chrono>
#include <cstdint>

#include "support/processes.hpp"
#include "support/random_input.hpp"

namespace shmcb::fuzz {

/// Arbitrary: a round that takes half a second on the average hangs.
[[nodiscard]] inline test::Watchdog watchdog_for(std::uint64_t count) {
  return test::kWatchdog + std::chrono::milliseconds{500} * static_cast<std::int64_t>(count);
}

}  // namespace shmcb::fuzz
