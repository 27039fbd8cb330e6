// SPDX-License-Identifier: BSD-3-Clause
#include "verdict.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <system_error>

#include "shmcb/config.hpp"

namespace shmcb::run {
namespace {

/// A whole number from 0 to 255 and nothing else.
[[nodiscard]] std::optional<std::uint8_t> parse_code(std::string_view text) noexcept {
  std::uint8_t code = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, code);
  if (error != std::errc{} || end != last) return std::nullopt;
  return code;
}

}  // namespace

Result<ExitCodes> parse_exit_codes(std::string_view flag, std::string_view text) {
  ExitCodes codes;
  std::string_view rest = text;
  for (;;) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view item = rest.substr(0, comma);
    const std::size_t dash = std::min(item.find('-'), item.size());
    const auto from = parse_code(item.substr(0, dash));
    const auto to = dash == item.size() ? from : parse_code(item.substr(dash + 1));
    if (!from || !to || *from > *to) {
      return detail::bad_field(flag, detail::quoted(text), "codes and ranges from 0 to 255, such as 1,2,10-20");
    }
    for (std::size_t code = *from; code <= *to; ++code)
      codes.set(code);
    if (comma == rest.size()) return codes;
    rest.remove_prefix(comma + 1);
  }
}

Outcome judge(const End& end, const ExitRules& rules) noexcept {
  if (end.exec_error != 0 || end.by_request) return Outcome::ignored;
  if (end.timed_out || end.signal != 0) return Outcome::failure;
  const auto code = static_cast<std::size_t>(end.exit_code);
  if (rules.success.test(code)) return Outcome::success;
  return !rules.failure || rules.failure->test(code) ? Outcome::failure : Outcome::ignored;
}

}  // namespace shmcb::run
