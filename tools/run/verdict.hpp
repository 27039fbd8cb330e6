// SPDX-License-Identifier: BSD-3-Clause
// What the end of a command says about what it depends on. Pure.
#pragma once

#include <bitset>
#include <optional>
#include <string_view>

#include "command.hpp"
#include "shmcb/error.hpp"
#include "shmcb/types.hpp"

namespace shmcb::run {

using ExitCodes = std::bitset<256>;

/// Which exit codes mean what. Those of neither list say nothing: they are Ignored.
struct ExitRules {
  ExitCodes success{1};                ///< 0 only
  std::optional<ExitCodes> failure{};  ///< none: all that are not in `success`
};

/// "1,2,10-20". The error names the flag, the value and the rule.
[[nodiscard]] Result<ExitCodes> parse_exit_codes(std::string_view flag, std::string_view text);

/// Ignored: the command could not be run, or ended after (or by) a signal that somebody sent. Failure: it ran out of
/// time, or died by any other signal. Otherwise its exit code decides.
[[nodiscard]] Outcome judge(const End& end, const ExitRules& rules) noexcept;

}  // namespace shmcb::run
