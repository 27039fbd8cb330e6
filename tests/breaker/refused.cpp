// SPDX-License-Identifier: BSD-3-Clause
// What must not compile, and with which words. SHMCB_CASE chooses; 0 compiles.
#include <exception>
#include <string>

#include "shmcb/circuit_breaker.hpp"
#include "shmcb/memory_storage.hpp"

namespace {

struct Pinned {
  Pinned() = default;
  Pinned(Pinned&&) = delete;
};

const auto kEveryException = [](std::exception_ptr) { return true; };

[[maybe_unused]] void refused(shmcb::MemoryStorage<> storage) {
#if SHMCB_CASE == 0
  shmcb::CircuitBreaker{storage}.call([]() noexcept {});
#elif SHMCB_CASE == 1  // this callback may throw
  shmcb::CircuitBreaker{storage}.call([] {});
#elif SHMCB_CASE == 2  // is_failure must be callable as const
  shmcb::CircuitBreaker{storage, [calls = 0](std::exception_ptr) mutable { return ++calls > 0; }}.call([] {});
#elif SHMCB_CASE == 3  // classify_result must be callable as const
  shmcb::CircuitBreaker{storage, kEveryException, [](const std::string&) { return shmcb::Outcome::success; }}.call(
      [] { return 1; });
#elif SHMCB_CASE == 4  // needs a type that can be moved
  shmcb::CircuitBreaker{storage, kEveryException, [](const Pinned&) { return shmcb::Outcome::success; }}.call(
      [] { return Pinned{}; });
#elif SHMCB_CASE == 5  // must convert to what the callback returns
  shmcb::CircuitBreaker{storage, kEveryException}.call([] { return std::string{}; }, [] { return 1; });
#elif SHMCB_CASE == 6  // not as a reference to a temporary
  const std::string value;
  shmcb::CircuitBreaker{storage, kEveryException}.call([&]() -> const std::string& { return value; },
                                                       [] { return std::string{}; });
#elif SHMCB_CASE == 7  // options come after classify_result
  shmcb::CircuitBreaker{storage, kEveryException, shmcb::BreakerOptions{}};
#endif
}

}  // namespace
