// SPDX-License-Identifier: BSD-3-Clause
// How long a random test runs and with what: from the environment, else briefly and with a seed of its own.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "support/processes.hpp"

namespace shmcb::fuzz {

/// $SHMCB_TEST_ROUNDS, or `otherwise`.
[[nodiscard]] inline std::uint64_t rounds(std::uint64_t otherwise) {
  const char* const given = std::getenv("SHMCB_TEST_ROUNDS");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : otherwise;
}

/// $SHMCB_TEST_SEED, or one of its own; printed in any case.
[[nodiscard]] inline std::uint64_t test_seed() {
  const char* const given = std::getenv("SHMCB_TEST_SEED");
  const std::uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  std::printf("[ seed     ] SHMCB_TEST_SEED=%lu\n", static_cast<unsigned long>(seed));
  return seed;
}

/// Arbitrary: a round that takes half a second on the average hangs.
[[nodiscard]] inline test::Watchdog watchdog_for(std::uint64_t count) {
  return test::kWatchdog + std::chrono::milliseconds{500} * static_cast<std::int64_t>(count);
}

}  // namespace shmcb::fuzz
