// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "config/fields.hpp"
#include "shmcb/config_text.hpp"
#include "shmcb/duration_text.hpp"

namespace shmcb {
namespace {

using config_text::each_field;

[[nodiscard]] std::string value_of(std::uint64_t number) {
  return std::to_string(number);
}
[[nodiscard]] std::string value_of(std::uint32_t number) {
  return std::to_string(number);
}
[[nodiscard]] std::string value_of(bool flag) {
  return flag ? "true" : "false";
}
[[nodiscard]] std::string value_of(Millis duration) {
  return '"' + format_duration(duration) + '"';
}
[[nodiscard]] std::string value_of(Accounting accounting) {
  return '"' + std::string{to_string(accounting)} + '"';
}
/// A name that keeps its rules has nothing to escape.
[[nodiscard]] std::string value_of(const std::string& name) {
  return '"' + name + '"';
}

template <class Aggregate>
[[nodiscard]] std::string value_of(const Aggregate& table);

/// Rules that are not set are false; durations have been filled in.
template <class T>
[[nodiscard]] std::string value_of(const std::optional<T>& value) {
  return value ? value_of(*value) : value_of(false);
}

template <class Aggregate>
std::string value_of(const Aggregate& table) {
  std::string out;
  each_field(table, [&out](std::string_view name, const auto& field) {
    out.append(out.empty() ? "{ " : ", ").append(name).append(" = ").append(value_of(field));
  });
  return out + " }";
}

/// With the durations that have a default of their own filled in, as the rules would.
[[nodiscard]] BreakerConfig completed(BreakerConfig config) {
  BreakerConfig growing = config;  // where it does not grow, settings have no use for a maximum, but there is one
  growing.cooldown.multiplier = std::max(config.cooldown.multiplier, 2U);
  const Settings settings = settings_of(growing);
  config.cooldown.maximum = Millis{settings.cooldown_maximum_ms};
  config.cooldown.forget_after = Millis{settings.forget_after_ms};
  config.probe_timeout = Millis{settings.probe_timeout_ms};
  return config;
}

}  // namespace

std::string to_toml(const BreakerConfig& config) {
  std::string out = "[[breaker]]\n";
  const BreakerConfig full = completed(config);
  each_field(full, [&out](std::string_view name, const auto& field) {
    out.append(name).append(" = ").append(value_of(field)).append("\n");
  });
  return out;
}

}  // namespace shmcb
