// SPDX-License-Identifier: BSD-3-Clause
// The table at the end, and the verdict on the shared pool.
#pragma once

#include <cstdint>
#include <vector>

#include "downstream.hpp"
#include "scoreboard.hpp"

namespace worker_pool {

struct Result {
  Outage outage = Outage::hang;
  Tally shared{};
  Tally per_process{};
};

/// `cooldown` of the breakers, for a note.
void print_table(const std::vector<Result>& results, std::chrono::milliseconds cooldown);

/// Prints whether the shared pool opened after at most `allowed` failures and recovered, in each outage; true if so.
[[nodiscard]] bool print_verdict(const std::vector<Result>& results, std::uint64_t allowed);

}  // namespace worker_pool
