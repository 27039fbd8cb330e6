// SPDX-License-Identifier: BSD-3-Clause
#include "duration.hpp"

#include <array>
#include <charconv>
#include <cstdint>
#include <system_error>

#include "shmcb/config.hpp"

namespace shmcb::run {
namespace {

struct Unit {
  std::string_view name;
  std::int64_t millis;
};

constexpr std::array kUnits{Unit{"ms", 1}, Unit{"s", 1'000}, Unit{"m", 60'000}, Unit{"h", 3'600'000}};

}  // namespace

Result<Millis> parse_duration(std::string_view flag, std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const auto unit_at = static_cast<std::size_t>(end - text.data());
  if (error == std::errc{}) {
    for (const Unit& unit : kUnits) {
      if (text.substr(unit_at) != unit.name) continue;
      if (number >= 1 && number <= kMaxDurationMs / unit.millis) return Millis{number * unit.millis};
    }
  }
  return detail::bad_field(flag, detail::quoted(text),
                           "a whole number and its unit, such as 250ms, 5s, 2m or 1h, from 1ms to 305419h (2^40 ms)");
}

}  // namespace shmcb::run
