// SPDX-License-Identifier: BSD-3-Clause
// The command line of shmcb-run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "command.hpp"
#include "shmcb/config.hpp"
#include "shmcb/segment.hpp"
#include "verdict.hpp"

namespace shmcb::run {

/// What to do where the storage cannot say whether the command may run.
enum class OnStorageFailure : std::uint8_t { fail, run };

struct Options {
  SegmentOptions segment{};  ///< its name: none is $SHMCB_SEGMENT, else "default"
  BreakerConfig breaker{};   ///< keeps its rules
  OnMismatch on_mismatch = OnMismatch::refuse;
  OnStorageFailure on_storage_failure = OnStorageFailure::fail;
  ExitRules exit_rules{};
  Command command{};  ///< has at least one word
};

/// The options, or the exit code to leave with; help or a message has been printed.
[[nodiscard]] std::variant<Options, int> parse_options(int argc, const char* const* argv);

}  // namespace shmcb::run
