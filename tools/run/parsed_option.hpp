// SPDX-License-Identifier: BSD-3-Clause
// Options of CLI11 whose text is read by functions that answer a Result.
#pragma once

#include <string>
#include <utility>

#include <CLI/CLI.hpp>

#include "shmcb/error.hpp"

namespace shmcb::run {

/// `parse(flag, text)` reads the option's text and `take` gets its value. An error becomes CLI11's message.
template <class Take, class Parse>
CLI::Option* add_parsed(CLI::App& app, const std::string& flag, Take take, Parse parse, const std::string& help) {
  const auto assign = [flag, take, parse](const std::string& text) {
    auto result = parse(flag, text);
    if (!result) throw CLI::ParseError(result.error().message, CLI::ExitCodes::ValidationError);
    take(*std::move(result));
  };
  return app.add_option_function<std::string>(flag, assign, help);
}

/// For `take`: puts the value there.
template <class Target>
[[nodiscard]] auto into(Target& target) {
  return [&target](auto value) { target = std::move(value); };
}

}  // namespace shmcb::run
