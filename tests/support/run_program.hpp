// SPDX-License-Identifier: BSD-3-Clause
// Runs a program to its end and keeps what it printed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace shmcb::test {

struct ProgramResult {
  int exit_code = -1;  ///< 128 + the signal's number where one ended it, as a shell shows it
  std::string output{};
  std::string errors{};
};

/// Runs `program` (a path) with `arguments`, `input` on its standard input. Throws std::system_error where it cannot
/// start.
[[nodiscard]] ProgramResult run_program(const std::string& program, const std::vector<std::string>& arguments,
                                        std::string_view input = {});

}  // namespace shmcb::test
