// SPDX-License-Identifier: BSD-3-Clause
// Parses a command line with CLI11 and turns what it says into the tools' exit codes.
#pragma once

#include <grp.h>
#include <pwd.h>

#include <charconv>
#include <cstdint>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>

#include <CLI/CLI.hpp>

#include "common/exit_codes.hpp"

namespace shmcb::tools {

/// None: go on. Else the exit code to leave with; help or a message has been printed. (CLI11's own codes, 100 and up,
/// would differ from version to version.)
[[nodiscard]] inline std::optional<int> parse_arguments(CLI::App& app, int argc, const char* const* argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // help
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    std::cerr << app.get_name() << ": " << error.what() << "\nRun with --help for more information.\n";
    return exit_usage;
  }
  return std::nullopt;
}

/// A whole number, and nothing after it.
template <class T>
[[nodiscard]] std::optional<T> number_in(std::string_view text, int base) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc{} && end == text.data() + text.size() ? std::optional<T>{value} : std::nullopt;
}

/// The file mode, group or user that an option names; else throws what parse_arguments turns into a message.
[[nodiscard]] inline std::uint32_t mode_of(const std::string& text) {
  if (const auto mode = number_in<std::uint32_t>(text, 8)) return *mode;
  throw CLI::ValidationError("--mode", "'" + text + "' is not an octal number like 0640");
}
[[nodiscard]] inline std::uint32_t group_of(const std::string& text) {
  if (const auto id = number_in<std::uint32_t>(text, 10)) return *id;
  if (const group* found = ::getgrnam(text.c_str())) return found->gr_gid;
  throw CLI::ValidationError("--group", "there is no group '" + text + "'");
}
[[nodiscard]] inline std::uint32_t user_of(const std::string& text) {
  if (const auto id = number_in<std::uint32_t>(text, 10)) return *id;
  if (const passwd* found = ::getpwnam(text.c_str())) return found->pw_uid;
  throw CLI::ValidationError("--trust-owner", "there is no user '" + text + "'");
}

}  // namespace shmcb::tools
