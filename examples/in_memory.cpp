// SPDX-License-Identifier: BSD-3-Clause
// A breaker in the memory of one process: it opens after three failures, turns calls away, and closes after a probe.
#include <chrono>
#include <exception>
#include <iostream>
#include <stdexcept>
#include <string>
#include <thread>

#include <shmcb/circuit_breaker.hpp>
#include <shmcb/memory_storage.hpp>

namespace {

/// A downstream that is down at first.
class PriceService {
 public:
  std::string price_of(const std::string& article) {
    if (article.empty()) throw std::invalid_argument("no article");
    if (++calls_ <= 3) throw std::runtime_error("connection refused");
    return "9.99";
  }

 private:
  int calls_ = 0;
};

// What the caller did wrong says nothing about the service.
bool is_failure(std::exception_ptr thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const std::invalid_argument&) {
    return false;
  } catch (...) {
    return true;
  }
}

void print_transition(const shmcb::CircuitTransition& transition) {
  std::cout << "  [" << transition.breaker_name << ": " << to_string(transition.from) << " -> "
            << to_string(transition.to) << ", " << to_string(transition.reason) << "]\n";
}

}  // namespace

int main() {
  using namespace std::chrono_literals;

  shmcb::BreakerConfig config{
      .name = "prices", .failure_threshold = {.failures = 3, .window = 10, .within = 10s}, .cooldown = {50ms}};
  shmcb::BreakerOptions options;
  options.observers.push_back(
      {.on_transition = print_transition,
       .on_error = [](std::exception_ptr, const shmcb::CircuitTransition&) { std::cerr << "the observer failed\n"; }});
  shmcb::CircuitBreaker breaker{shmcb::MemoryStorage<>::open(config).value(), is_failure, {}, options};

  PriceService service;
  const auto ask = [&] { return service.price_of("book"); };
  const auto last_known = [](std::exception_ptr why) -> std::string {
    try {
      std::rethrow_exception(why);
    } catch (const std::exception& error) {
      return std::string{"8.99 (last known; "} + error.what() + ")";
    }
  };

  for (int i = 0; i < 5; ++i)
    std::cout << breaker.call(ask, last_known) << '\n';

  try {
    std::cout << breaker.call(ask) << '\n';
  } catch (const shmcb::CircuitOpenError& error) {
    std::cout << "turned away: " << error.what() << '\n';
    std::this_thread::sleep_for(error.retry_after() + 1ms);
  }

  std::cout << breaker.call(ask) << '\n';
  const shmcb::Metrics metrics = breaker.metrics();
  std::cout << to_string(metrics.state) << ", " << metrics.failures << " failures in the window\n";
}
