// SPDX-License-Identifier: BSD-3-Clause
// Counts what the workers of one pool tell, and prints the moments that matter as a timeline. Nothing in it is computed
// from the configuration: every number is an event that a worker has sent.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "event.hpp"

namespace worker_pool {

[[nodiscard]] const char* to_string(Pool pool) noexcept;

/// Lines on standard output, each with the seconds since the start.
class Timeline {
 public:
  void line(Time at, const std::string& who, const std::string& what) const;

 private:
  Time start_ = std::chrono::steady_clock::now();
};

/// What one outage was for one pool.
struct Tally {
  std::uint64_t failures_before_protection = 0;  ///< of calls that began before the breaker of their worker had opened
  std::uint64_t opening_failures = 0;            ///< in the windows of the breakers when they opened
  std::uint64_t failures = 0;
  std::uint64_t turned_away = 0;
  std::chrono::microseconds blocked{0};  ///< in calls that failed, summed over the workers
  std::optional<Time> protected_at{};    ///< when the last worker's breaker had opened
  std::optional<Time> service_back_at{};
  std::optional<Time> recovered_at{};  ///< when the last worker had an answer again
};

class Scoreboard {
 public:
  Scoreboard(Pool pool, std::uint32_t workers, const Timeline& timeline);

  void outage_begins();
  void service_is_back();
  void take(const Event& event);

  /// All workers have had an answer since the start or the last outage, and no breaker is open.
  [[nodiscard]] bool all_is_well() const noexcept;
  /// Of the latest outage. Ends when the pool has recovered.
  [[nodiscard]] const Tally& tally() const noexcept { return tally_; }

 private:
  struct Worker {
    bool open = false;
    bool served = false;                 ///< since the start, or since the service is back
    std::optional<Time> protected_at{};  ///< in this outage
  };

  void transition(const Event& event);
  void opened(const Event& event);
  void answered(const Event& event);
  void failed(const Event& event);
  [[nodiscard]] std::uint32_t count(bool (*what)(const Worker&)) const;
  void tell(Time at, const std::string& what) const { timeline_.line(at, to_string(pool_), what); }

  Pool pool_;
  const Timeline& timeline_;
  std::vector<Worker> workers_;
  bool outage_ = false;
  Tally tally_;
};

}  // namespace worker_pool
