// SPDX-License-Identifier: BSD-3-Clause
// What of a text may reach toml++. Version 3.3 has undefined behaviour for characters beyond ASCII where a key or value
// may begin, and destroys nested tables by recursion, so that a long enough dotted key ends the process. Nothing that a
// configuration needs is lost: comments may hold anything, and strings have escapes.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace shmcb::config_text {

struct Objection {
  std::size_t line = 0;
  std::size_t column = 0;
  std::string_view sentence{};
};

/// Blanks the comments, so that every position stays. Refuses other characters than ASCII outside of comments, strings
/// of several lines, and more dots in a line than any configuration has.
[[nodiscard]] std::optional<Objection> make_plain(std::string& text);

}  // namespace shmcb::config_text
