// SPDX-License-Identifier: BSD-3-Clause
// Durations as people write them on a command line: a whole number and its unit, which is never guessed.
#pragma once

#include <string_view>

#include "shmcb/error.hpp"
#include "shmcb/time.hpp"

namespace shmcb::run {

/// "250ms", "5s", "2m" or "1h". The error names the flag, the value and the rule.
[[nodiscard]] Result<Millis> parse_duration(std::string_view flag, std::string_view text);

}  // namespace shmcb::run
