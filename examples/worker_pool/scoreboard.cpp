// SPDX-License-Identifier: BSD-3-Clause
#include "scoreboard.hpp"

#include <algorithm>
#include <cstdio>

namespace worker_pool {

using shmcb::CircuitState;

const char* to_string(Pool pool) noexcept {
  switch (pool) {
    case Pool::shared: return "shared";
    case Pool::per_process: return "per process";
  }
  return "invalid";
}

void Timeline::line(Time at, const std::string& who, const std::string& what) const {
  const std::chrono::duration<double> since = at - start_;
  std::printf("%6.2f s  %-11s  %s\n", since.count(), who.c_str(), what.c_str());
  std::fflush(stdout);
}

Scoreboard::Scoreboard(Pool pool, std::uint32_t workers, const Timeline& timeline)
    : pool_(pool), timeline_(timeline), workers_(workers) {}

void Scoreboard::outage_begins() {
  tally_ = {};
  outage_ = true;
  for (Worker& worker : workers_)
    worker = {.open = worker.open};
}

void Scoreboard::service_is_back() {
  tally_.service_back_at = std::chrono::steady_clock::now();
}

bool Scoreboard::all_is_well() const noexcept {
  return std::all_of(workers_.begin(), workers_.end(), [](const Worker& w) { return w.served && !w.open; });
}

std::uint32_t Scoreboard::count(bool (*what)(const Worker&)) const {
  return static_cast<std::uint32_t>(std::count_if(workers_.begin(), workers_.end(), what));
}

void Scoreboard::take(const Event& event) {
  switch (event.kind) {
    case EventKind::transition: transition(event); return;
    case EventKind::answered: answered(event); return;
    case EventKind::failed: failed(event); return;
    case EventKind::turned_away:
      if (outage_) ++tally_.turned_away;
      return;
  }
}

void Scoreboard::transition(const Event& event) {
  for (std::uint32_t i = 0; i < workers_.size(); ++i) {
    if (pool_ == Pool::shared || i == event.worker) workers_[i].open = event.to != CircuitState::closed;
  }
  if (event.to == CircuitState::open) opened(event);
  if (pool_ == Pool::shared && event.to == CircuitState::closed) tell(event.ended, "a probe succeeded: closed");
}

void Scoreboard::opened(const Event& event) {
  if (event.from == CircuitState::half_open) {
    if (pool_ == Pool::shared) tell(event.ended, "a probe failed: open again");
    return;
  }
  for (std::uint32_t i = 0; i < workers_.size(); ++i) {
    if (pool_ == Pool::shared || i == event.worker) workers_[i].protected_at = event.ended;
  }
  tally_.opening_failures += event.failures;
  const auto protected_now = count([](const Worker& w) { return w.protected_at.has_value(); });
  if (protected_now == workers_.size()) tally_.protected_at = event.ended;

  const std::string all = std::to_string(workers_.size());
  if (pool_ == Pool::shared) {
    tell(event.ended, "opened by " + std::to_string(event.failures) + " failures of the whole pool: all " + all +
                          " workers are protected");
  } else if (protected_now == 1) {
    tell(event.ended, "a breaker opened by " + std::to_string(event.failures) + " failures of its worker: 1 of " + all +
                          " is protected");
  } else if (protected_now == workers_.size()) {
    tell(event.ended, "the last breaker opened: all " + all + " workers are protected, after " +
                          std::to_string(tally_.opening_failures) + " failures");
  }
}

void Scoreboard::answered(const Event& event) {
  Worker& worker = workers_[event.worker];
  if (!outage_) {
    worker.served = true;
    return;
  }
  if (!tally_.service_back_at || event.began < *tally_.service_back_at) return;
  worker.served = true;
  if (count([](const Worker& w) { return w.served; }) < workers_.size()) return;
  tally_.recovered_at = event.ended;
  outage_ = false;
  tell(event.ended, "every worker gets answers again");
}

void Scoreboard::failed(const Event& event) {
  if (!outage_) return;
  ++tally_.failures;
  tally_.blocked += std::chrono::duration_cast<std::chrono::microseconds>(event.ended - event.began);
  const auto& protected_at = workers_[event.worker].protected_at;
  if (!protected_at || event.began < *protected_at) ++tally_.failures_before_protection;
}

}  // namespace worker_pool
