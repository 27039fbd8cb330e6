// SPDX-License-Identifier: BSD-3-Clause
// The command line of the demo.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "downstream.hpp"
#include "event.hpp"

namespace worker_pool {

struct Options {
  std::uint32_t workers = 8;   ///< of each pool
  std::uint32_t failures = 5;  ///< that open a breaker, among twice as many calls
  std::vector<Outage> outages{Outage::hang, Outage::errors, Outage::kill};
  milliseconds timeout{250};  ///< of a call
  milliseconds pause{20};     ///< between two calls of a worker
  milliseconds cooldown{500};
  milliseconds healthy{1'000};  ///< before each outage
  milliseconds outage{2'000};   ///< beyond the time in which a worker alone opens its breaker
};

/// The options, or the exit code to leave with; help or a message has been printed.
[[nodiscard]] std::variant<Options, int> parse_options(const std::vector<std::string>& words);

}  // namespace worker_pool
