// SPDX-License-Identifier: BSD-3-Clause
// Parses a command line with CLI11 and turns what it says into the tools' exit codes.
#pragma once

#include <optional>

#include <CLI/CLI.hpp>

#include "common/exit_codes.hpp"

namespace shmcb::tools {

/// None: go on. Else the exit code to leave with; help or a message has been printed. (CLI11's own codes, 100 and up,
/// would differ from version to version.)
[[nodiscard]] inline std::optional<int> parse_arguments(CLI::App& app, int argc, const char* const* argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? exit_ok : exit_usage;
  }
  return std::nullopt;
}

}  // namespace shmcb::tools
