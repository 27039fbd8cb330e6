// SPDX-License-Identifier: BSD-3-Clause
// Durations as people write them, in files and on command lines: a whole number and its unit, which is never guessed.
#pragma once

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

#include "shmcb/config.hpp"
#include "shmcb/error.hpp"
#include "shmcb/time.hpp"

namespace shmcb {

namespace detail {

struct DurationUnit {
  std::string_view name;
  std::int64_t millis;
};

inline constexpr std::array kDurationUnits{DurationUnit{"ms", 1}, DurationUnit{"s", 1'000}, DurationUnit{"m", 60'000},
                                           DurationUnit{"h", 3'600'000}};

inline constexpr std::string_view kDurationRule =
    "a whole number and its unit, such as 250ms, 5s, 2m or 1h, from 1ms to 305419h (2^40 ms)";

}  // namespace detail

/// "250ms", "5s", "2m" or "1h", from 1 ms to 2^40 ms. The error names the field (or flag), the text and the rule.
[[nodiscard]] inline Result<Millis> parse_duration(std::string_view field, std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const auto unit_at = static_cast<std::size_t>(end - text.data());
  if (error == std::errc{}) {
    for (const detail::DurationUnit& unit : detail::kDurationUnits) {
      if (text.substr(unit_at) != unit.name) continue;
      if (number >= 1 && number <= kMaxDurationMs / unit.millis) return Millis{number * unit.millis};
    }
  }
  return detail::bad_field(field, detail::quoted(text), detail::kDurationRule);
}

/// The text for parse_duration, in the largest unit that is exact: 90000 ms is "90s", 60000 ms is "1m".
[[nodiscard]] inline std::string format_duration(Millis duration) {
  detail::DurationUnit unit = detail::kDurationUnits.front();
  for (const detail::DurationUnit& larger : detail::kDurationUnits) {
    if (duration.count() != 0 && duration.count() % larger.millis == 0) unit = larger;
  }
  return std::to_string(duration.count() / unit.millis).append(unit.name);
}

}  // namespace shmcb
