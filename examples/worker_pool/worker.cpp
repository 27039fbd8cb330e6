// SPDX-License-Identifier: BSD-3-Clause
// All that an application has to do to share a breaker with other processes is in `run_worker` and `call_forever`.
#include "worker.hpp"

#include <unistd.h>

#include <exception>
#include <system_error>
#include <thread>
#include <utility>

#include <shmcb/circuit_breaker.hpp>
#include <shmcb/memory_storage.hpp>
#include <shmcb/shm_storage.hpp>

#include "http_client.hpp"

namespace worker_pool {
namespace {

class Reporter {
 public:
  explicit Reporter(const WorkerOptions& options) : options_(options) {}

  void call(EventKind kind, Time began) const { send({.kind = kind, .began = began}); }
  void transition(const shmcb::CircuitTransition& t) const {
    send({.kind = EventKind::transition, .from = t.from, .to = t.to, .failures = t.state.failures});
  }

 private:
  void send(Event event) const {
    event.pool = options_.pool;
    event.worker = options_.number;
    event.ended = std::chrono::steady_clock::now();
    (void)!::write(options_.events, &event, sizeof event);  // few bytes: all or none of them
  }
  const WorkerOptions& options_;
};

template <shmcb::Storage S>
[[noreturn]] void call_forever(S storage, const WorkerOptions& options) {
  const Reporter report{options};
  // Whatever http_get throws speaks against the service, and so does a status of 500 and above.
  const auto is_failure = [](const std::exception_ptr&) { return true; };
  const auto classify_result = [](int status) {
    return status >= 500 ? shmcb::Outcome::failure : shmcb::Outcome::success;
  };
  const shmcb::CircuitObserver observer{.on_transition = [&](const auto& transition) { report.transition(transition); },
                                        .on_error = [](const auto&, const auto&) {}};
  shmcb::CircuitBreaker breaker{std::move(storage), is_failure, classify_result, {.observers = {observer}}};

  for (;;) {
    const Time began = std::chrono::steady_clock::now();
    try {
      const int status = breaker.call([&] { return http_get(options.port, options.timeout); });
      report.call(status >= 500 ? EventKind::failed : EventKind::answered, began);
    } catch (const shmcb::CircuitOpenError&) {
      report.call(EventKind::turned_away, began);
    } catch (const std::system_error&) {
      report.call(EventKind::failed, began);
    }
    std::this_thread::sleep_for(options.pause);
  }
}

}  // namespace

void run_worker(const WorkerOptions& options) {
  switch (options.pool) {
    case Pool::shared: {
      const auto segment = shmcb::Segment::open({.name = options.segment}).value();
      call_forever(shmcb::ShmStorage<>::open(segment, options.breaker).value(), options);
    }
    case Pool::per_process: call_forever(shmcb::MemoryStorage<>::open(options.breaker).value(), options);
  }
}

}  // namespace worker_pool
