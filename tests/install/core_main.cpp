// SPDX-License-Identifier: BSD-3-Clause
// Uses the header-only part alone: linked to shmcb::core, so a header that needs libshmcb fails here.
#include <cstdio>

#include <shmcb/circuit_breaker.hpp>
#include <shmcb/memory_storage.hpp>
#include <shmcb/version.hpp>

int main() {
  std::printf("shmcb %s, headers only\n", shmcb::kVersion);
  shmcb::CircuitBreaker breaker{shmcb::MemoryStorage<>::open({.name = "downstream"}).value()};
  return breaker.call([]() noexcept { return 42; }) == 42 ? 0 : 1;
}
