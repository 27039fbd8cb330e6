// SPDX-License-Identifier: BSD-3-Clause
#include "config/plain_toml.hpp"

#include <algorithm>
#include <span>

namespace shmcb::config_text {
namespace {

constexpr std::size_t kMaxDots = 64;  // in a line; with toml++'s own limit of nested values some thousand levels

void blank(std::span<char> comment) {
  for (char& c : comment) {
    if (c != '\r') c = ' ';
  }
}

/// The first thing to object to in a line without its end; `at` is where.
[[nodiscard]] std::string_view objection_to(std::span<char> line, std::size_t& at) {
  char quote = '\0';  // of the string that `at` is in
  bool escaped = false;
  std::size_t dots = 0;
  for (at = 0; at < line.size(); ++at) {
    const char c = line[at];
    if (static_cast<unsigned char>(c) > 0x7f) return "only comments may have characters that are not ASCII";
    if (quote != '\0') {
      if (!escaped && c == quote) quote = '\0';
      escaped = !escaped && c == '\\' && quote == '"';
    } else if (c == '#') {
      blank(line.subspan(at));
      return {};
    } else if (c == '"' || c == '\'') {
      const auto three = line.subspan(at, std::min<std::size_t>(3, line.size() - at));
      if (std::count(three.begin(), three.end(), c) == 3) return "strings of several lines are not known here";
      quote = c;
    } else if (c == '.' && ++dots > kMaxDots) {
      return "the line has more than 64 dots";
    }
  }
  return {};
}

}  // namespace

std::optional<Objection> make_plain(std::string& text) {
  std::size_t line = 1;
  for (std::size_t begin = 0; begin < text.size(); ++line) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::size_t at = 0;
    const std::string_view sentence = objection_to(std::span{text}.subspan(begin, end - begin), at);
    if (!sentence.empty()) return Objection{line, at + 1, sentence};
    begin = end + 1;
  }
  return std::nullopt;
}

}  // namespace shmcb::config_text
