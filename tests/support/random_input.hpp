// SPDX-License-Identifier: BSD-3-Clause
// How much a random test does and with what: from the environment, else briefly and with a seed of its own.
#pragma once

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <random>
#include <string_view>

namespace shmcb::test {

/// A number from the environment. Anything else there ends the program: a test that understood 0 would pass for
/// nothing.
[[nodiscard]] inline std::optional<std::uint64_t> number_from_environment(const char* name, std::uint64_t least) {
  const char* const given = std::getenv(name);
  if (given == nullptr) return std::nullopt;
  const std::string_view text{given};
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc{} && end == text.data() + text.size() && number >= least) return number;
  std::fprintf(stderr, "%s is '%s', must be a whole number from %lu on\n", name, given,
               static_cast<unsigned long>(least));
  std::exit(2);
}

/// $SHMCB_TEST_ROUNDS, or `otherwise`.
[[nodiscard]] inline std::uint64_t test_rounds(std::uint64_t otherwise) {
  return number_from_environment("SHMCB_TEST_ROUNDS", 1).value_or(otherwise);
}

/// $SHMCB_TEST_SEED, or one of its own; printed in any case.
[[nodiscard]] inline std::uint64_t test_seed() {
  const std::optional<std::uint64_t> given = number_from_environment("SHMCB_TEST_SEED", 0);
  const std::uint64_t seed = given ? *given : std::random_device{}();
  std::printf("[ seed     ] SHMCB_TEST_SEED=%lu\n", static_cast<unsigned long>(seed));
  return seed;
}

}  // namespace shmcb::test
