// SPDX-License-Identifier: BSD-3-Clause
#include "text.hpp"

#include <time.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include <fmt/format.h>

namespace shmcb::inspect {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f && c != '\\') {
      out += c;
    } else {
      out += fmt::format("\\x{:02x}", byte);
    }
  }
  return out;
}

std::string duration_text(std::chrono::microseconds duration) {
  const std::int64_t ms = duration.count() / 1'000;
  const std::int64_t s = ms / 1'000;
  if (s < 1) return fmt::format("{}ms", ms);
  if (s < 60) return fmt::format("{}.{}s", s, ms % 1'000 / 100);
  if (s < 3'600) return fmt::format("{}m{:02}s", s / 60, s % 60);
  if (s < 86'400) return fmt::format("{}h{:02}m", s / 3'600, s % 3'600 / 60);
  return fmt::format("{}d{:02}h", s / 86'400, s % 86'400 / 3'600);
}

std::string wall_text(std::int64_t ns_since_1970) {
  const time_t seconds = ns_since_1970 / 1'000'000'000 - (ns_since_1970 % 1'000'000'000 < 0 ? 1 : 0);
  tm parts{};
  ::gmtime_r(&seconds, &parts);  // 64 bits of nanoseconds are years 1677 to 2262
  std::array<char, 32> buffer{};
  return {buffer.data(), ::strftime(buffer.data(), buffer.size(), "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

std::string counted(std::uint64_t count, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

std::string aligned(const std::vector<Row>& rows, std::size_t left) {
  std::vector<std::size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (i > 0) line += "  ";
      const std::string padding(widths[i] - row[i].size(), ' ');
      line += i < left ? row[i] + padding : padding + row[i];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

}  // namespace shmcb::inspect
