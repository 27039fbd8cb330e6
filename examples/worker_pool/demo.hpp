// SPDX-License-Identifier: BSD-3-Clause
// The scenario: starts the service and both pools, breaks the service, and watches. Cleans up when it goes away.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "downstream.hpp"
#include "options.hpp"
#include "process.hpp"
#include "report.hpp"
#include "scoreboard.hpp"

namespace worker_pool {

class Demo {
 public:
  /// `interrupted` says when to give up.
  Demo(const Options& options, std::function<bool()> interrupted);
  Demo(const Demo&) = delete;
  Demo& operator=(const Demo&) = delete;
  ~Demo();

  /// One result for each outage; fewer where it was interrupted.
  [[nodiscard]] std::vector<Result> run();

 private:
  void start_workers(Pool pool);
  [[nodiscard]] Result play(Outage outage);
  [[nodiscard]] milliseconds length_of(Outage outage) const;
  /// Takes events until `enough` or until the time is over.
  void watch(milliseconds at_most, const std::function<bool()>& enough);
  void take_events();
  [[nodiscard]] bool all_is_well() const { return shared_.all_is_well() && per_process_.all_is_well(); }

  Options options_;
  std::function<bool()> interrupted_;
  std::string segment_;
  Timeline timeline_;
  Scoreboard shared_;
  Scoreboard per_process_;
  Socket events_in_;  ///< the two ends of a pipe
  Socket events_out_;
  Downstream downstream_;
  std::vector<Process> workers_;
};

}  // namespace worker_pool
