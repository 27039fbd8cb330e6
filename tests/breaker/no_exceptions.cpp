// SPDX-License-Identifier: BSD-3-Clause
// To be compiled with -fno-exceptions -fno-rtti, and without GoogleTest, which needs them.
#include "breaker/no_exceptions.hpp"

#include <utility>

#include "shmcb/classify.hpp"
#include "shmcb/memory_storage.hpp"
#include "shmcb/permit.hpp"

#if defined(__cpp_exceptions) || defined(__cpp_rtti)
#error "compile this file with -fno-exceptions -fno-rtti: that it compiles so is the test"
#endif

namespace shmcb::test {

namespace {

// A clock of its own: its MemoryStorage must not share code with files that have exceptions.
struct StandingClock {
  Instant now() const noexcept { return Instant{std::chrono::hours{1}}; }
};

}  // namespace

int use_permits_without_exceptions() noexcept {
  auto opened = MemoryStorage<StandingClock>::open(
      {.name = "no-exceptions", .failure_threshold = {.failures = 1, .window = 1}, .cooldown = {Millis{500}}});
  if (!opened) return 1;
  BasicBreaker<MemoryStorage<StandingClock>> breaker{*std::move(opened)};

  auto acquired = breaker.try_acquire();
  if (!acquired || acquired.permit().is_probe()) return 2;
  auto permit = std::move(acquired).permit();
  if (permit.settle(classify::negative_is_failure(-1)).status != RecordStatus::counted) return 3;
  if (permit.success().status != RecordStatus::stale) return 4;

  const auto turned_away = breaker.try_acquire();
  if (!turned_away.rejected() || turned_away.rejection().retry_after != Millis{500}) return 5;
  if (breaker.can_call() || breaker.state().state != CircuitState::open) return 6;
  if (breaker.metrics().metrics.rejected != 1) return 7;
  if (breaker.force_closed() != Errc::ok || !breaker.can_call()) return 8;
  return 0;
}

}  // namespace shmcb::test
