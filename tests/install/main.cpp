// SPDX-License-Identifier: BSD-3-Clause
// What a stranger's first program does with shmcb, however it came by it: each consumer here builds and runs this file.
#include <unistd.h>

#include <cstdio>
#include <stdexcept>
#include <string>

#include <shmcb/shmcb.hpp>

int main() {
  std::printf("shmcb %s\n", shmcb::kVersion);
  const shmcb::SegmentOptions options{.name = "install-test-" + std::to_string(::getpid())};
  const shmcb::Segment segment = shmcb::Segment::open(options).value();
  if (shmcb::Segment::remove(options)) return 1;
  shmcb::CircuitBreaker breaker{
      shmcb::ShmStorage<>::open(segment, {.name = "downstream", .failure_threshold = {.failures = 2}}).value(),
      [](std::exception_ptr) { return true; }};
  for (int i = 0; i < 3; ++i) {
    const int answer = breaker.call([]() -> int { throw std::runtime_error("down"); }, [] { return 42; });
    if (answer != 42) return 2;
  }
  return breaker.state() == shmcb::CircuitState::open ? 0 : 3;
}
