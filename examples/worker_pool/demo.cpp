// SPDX-License-Identifier: BSD-3-Clause
#include "demo.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include <shmcb/segment.hpp>

#include "worker.hpp"

namespace worker_pool {
namespace {

constexpr milliseconds kPatience{10'000};  // arbitrary: for what takes one cooldown when all is right

[[nodiscard]] bool never() {
  return false;
}

}  // namespace

Demo::Demo(const Options& options, std::function<bool()> interrupted)
    : options_(options),
      interrupted_(std::move(interrupted)),
      segment_("worker_pool-" + std::to_string(::getpid())),
      shared_(Pool::shared, options.workers, timeline_),
      per_process_(Pool::per_process, options.workers, timeline_) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail("pipe2");
  events_in_ = Socket{ends[0]};
  events_out_ = Socket{ends[1]};
  const std::string workers = std::to_string(options.workers);
  timeline_.line(std::chrono::steady_clock::now(), "shared",
                 workers + " workers share one breaker, in segment '" + segment_ + "'");
  timeline_.line(std::chrono::steady_clock::now(), "per process", workers + " workers have a breaker each");
  start_workers(Pool::shared);
  start_workers(Pool::per_process);
}

Demo::~Demo() {
  workers_.clear();
  (void)shmcb::Segment::remove({.name = segment_});
}

void Demo::start_workers(Pool pool) {
  const shmcb::BreakerConfig breaker{
      .name = "downstream",
      .failure_threshold = {.failures = options_.failures, .window = 2 * options_.failures},
      .cooldown = {options_.cooldown}};
  for (std::uint32_t number = 0; number < options_.workers; ++number) {
    const WorkerOptions worker{.pool = pool,
                               .number = number,
                               .port = downstream_.port(),
                               .timeout = options_.timeout,
                               .pause = options_.pause,
                               .segment = segment_,
                               .breaker = breaker,
                               .events = events_out_.fd()};
    workers_.emplace_back([&worker] { run_worker(worker); });
  }
}

std::vector<Result> Demo::run() {
  std::vector<Result> results;
  for (const Outage outage : options_.outages) {
    watch(options_.healthy, never);
    watch(kPatience, [this] { return all_is_well(); });
    const Result result = play(outage);
    if (interrupted_()) break;
    results.push_back(result);
  }
  return results;
}

Result Demo::play(Outage outage) {
  const std::string service = "service";
  if (interrupted_()) return {};
  timeline_.line(std::chrono::steady_clock::now(), service, std::string{describe(outage)});
  shared_.outage_begins();
  per_process_.outage_begins();
  downstream_.break_down(outage);
  watch(length_of(outage), never);
  if (interrupted_()) return {};

  downstream_.recover(outage);
  shared_.service_is_back();
  per_process_.service_is_back();
  timeline_.line(std::chrono::steady_clock::now(), service, "is back");
  watch(kPatience, [this] { return all_is_well(); });
  return {.outage = outage, .shared = shared_.tally(), .per_process = per_process_.tally()};
}

milliseconds Demo::length_of(Outage outage) const {
  const bool burns_time_outs = outage == Outage::hang || outage == Outage::slow;
  const milliseconds call = options_.pause + (burns_time_outs ? options_.timeout : milliseconds{0});
  return options_.failures * call + options_.outage;
}

void Demo::watch(milliseconds at_most, const std::function<bool()>& enough) {
  constexpr milliseconds kLook{50};  // arbitrary: how soon an interrupt between the check and the poll is noticed
  const Time end = std::chrono::steady_clock::now() + at_most;
  while (!enough() && !interrupted_()) {
    const auto left = std::chrono::ceil<milliseconds>(end - std::chrono::steady_clock::now());
    if (left <= milliseconds{0}) return;
    pollfd ready{.fd = events_in_.fd(), .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, static_cast<int>(std::min(left, kLook).count())) > 0) take_events();
  }
}

void Demo::take_events() {
  std::array<Event, 64> events;
  // Events are written whole, so that a read of a multiple of their size finds whole ones.
  const ssize_t got = ::read(events_in_.fd(), events.data(), sizeof events);
  if (got < 0 && errno != EINTR) fail("read");
  for (std::size_t i = 0; i < static_cast<std::size_t>(std::max<ssize_t>(got, 0)) / sizeof(Event); ++i) {
    (events[i].pool == Pool::shared ? shared_ : per_process_).take(events[i]);
  }
}

}  // namespace worker_pool
