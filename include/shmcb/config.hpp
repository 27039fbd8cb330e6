// SPDX-License-Identifier: BSD-3-Clause
// The configuration of a breaker: the numbers that all its processes share, and the rules they must keep.
// `check` is called by every storage before anything is written.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "shmcb/error.hpp"
#include "shmcb/time.hpp"

namespace shmcb {

/// Opens when `failures` of the last `window` outcomes, none older than `within`, were failures.
struct Ratio {
  std::uint32_t failures = 5;
  std::uint32_t window = 10;
  Millis within{60'000};

  friend bool operator==(const Ratio&, const Ratio&) = default;
};

/// What a breaker is called and when it opens, tries again and closes. An aggregate with defaults; durations are whole
/// milliseconds (a finer one does not convert) from 1 to 2^40.
struct BreakerConfig {
  std::string name{};                     ///< [A-Za-z0-9_.:-]+, at most the storage's limit (shared memory: 128 bytes)
  Ratio failure_threshold{};              ///< when to open
  Millis cooldown{30'000};                ///< how long Open turns calls away before probes are tried
  std::uint32_t success_threshold = 1;    ///< successful probes that close
  std::uint32_t probe_limit = 1;          ///< probes out at one time, over all processes; 1 to 32
  std::optional<Millis> probe_timeout{};  ///< after this the probes out are given up; default: the cooldown
  std::uint64_t config_revision = 0;      ///< for rolling deploys: of two different configurations the higher one wins
};

/// What to do when the breaker exists with other numbers than those brought.
enum class OnMismatch : std::uint8_t {
  refuse,   ///< an error that names each field that differs (default)
  adopt,    ///< use what is there
  replace,  ///< write what was brought; state and window are kept
};

inline constexpr std::int64_t kMaxDurationMs = std::int64_t{1} << 40;
inline constexpr std::uint32_t kMaxProbes = 32;  ///< what one record of the shared pool has room for

/// The shared numbers as the rules use them: ticks of one millisecond, every default filled in.
struct Settings {
  std::uint32_t failures = 5;
  std::uint32_t window = 10;
  std::int64_t within_ms = 60'000;
  std::int64_t cooldown_ms = 30'000;
  std::int64_t probe_timeout_ms = 30'000;
  std::uint32_t success_threshold = 1;
  std::uint32_t probe_limit = 1;
  std::uint64_t revision = 0;

  friend bool operator==(const Settings&, const Settings&) = default;
};

[[nodiscard]] inline Settings settings_of(const BreakerConfig& config) noexcept {
  return {.failures = config.failure_threshold.failures,
          .window = config.failure_threshold.window,
          .within_ms = config.failure_threshold.within.count(),
          .cooldown_ms = config.cooldown.count(),
          .probe_timeout_ms = config.probe_timeout.value_or(config.cooldown).count(),
          .success_threshold = config.success_threshold,
          .probe_limit = config.probe_limit,
          .revision = config.config_revision};
}

namespace detail {

[[nodiscard]] constexpr bool is_name_char(char c) noexcept {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
         c == ':' || c == '-';
}

/// The name as it may stand in a message: what is not printable ASCII becomes \xNN, and it ends after 64 characters.
[[nodiscard]] inline std::string quoted(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string out = "'";
  for (const char c : text.substr(0, 64)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f && c != '\'' && c != '\\') {
      out += c;
    } else {
      out += "\\x";
      out += kHex[byte >> 4U];
      out += kHex[byte & 0xFU];
    }
  }
  return out + (text.size() > 64 ? "'..." : "'");
}

[[nodiscard]] inline Error bad_field(std::string_view field, std::string_view value, std::string_view rule) {
  std::string message{field};
  message.append(" is ").append(value).append("; it must be ").append(rule);
  return {Errc::invalid_config, std::move(message)};
}

[[nodiscard]] inline Error check_at_least_one(std::string_view field, std::uint32_t value) {
  return value >= 1 ? Error{} : bad_field(field, std::to_string(value), "at least 1");
}

[[nodiscard]] inline Error check_duration(std::string_view field, Millis value) {
  if (value.count() >= 1 && value.count() <= kMaxDurationMs) return {};
  return bad_field(field, std::to_string(value.count()) + " ms", "from 1 ms to 2^40 ms");
}

}  // namespace detail

/// The first rule that a configuration breaks, as an error that names the field, the value and the rule; or no error.
/// `max_name_bytes` is the storage's limit.
[[nodiscard]] inline Error check(const BreakerConfig& config,
                                 std::size_t max_name_bytes = std::numeric_limits<std::size_t>::max()) {
  using detail::bad_field;
  if (config.name.empty()) return bad_field("name", "empty", "at least one of [A-Za-z0-9_.:-]");
  for (const char c : config.name) {
    if (!detail::is_name_char(c)) return bad_field("name", detail::quoted(config.name), "of [A-Za-z0-9_.:-] only");
  }
  if (config.name.size() > max_name_bytes) {
    return bad_field("name", detail::quoted(config.name) + " (" + std::to_string(config.name.size()) + " bytes)",
                     "at most " + std::to_string(max_name_bytes) + " bytes");
  }
  const Ratio& ratio = config.failure_threshold;
  if (auto e = detail::check_at_least_one("failure_threshold.failures", ratio.failures)) return e;
  if (ratio.window < ratio.failures) {
    return bad_field("failure_threshold.window", std::to_string(ratio.window),
                     "at least failure_threshold.failures (" + std::to_string(ratio.failures) + ")");
  }
  if (auto e = detail::check_duration("failure_threshold.within", ratio.within)) return e;
  if (auto e = detail::check_duration("cooldown", config.cooldown)) return e;
  if (auto e = detail::check_at_least_one("success_threshold", config.success_threshold)) return e;
  if (config.probe_limit < 1 || config.probe_limit > kMaxProbes) {
    return bad_field("probe_limit", std::to_string(config.probe_limit), "from 1 to " + std::to_string(kMaxProbes));
  }
  if (config.probe_timeout) {
    if (auto e = detail::check_duration("probe_timeout", *config.probe_timeout)) return e;
  }
  return {};
}

/// The fields in which two sets of shared numbers differ, e.g. "cooldown (30000 ms there, 5000 ms here)"; empty: none.
[[nodiscard]] inline std::string differences(const Settings& there, const Settings& here) {
  std::string out;
  const auto field = [&out](std::string_view name, auto a, auto b, std::string_view unit) {
    if (a == b) return;
    if (!out.empty()) out += ", ";
    out.append(name).append(" (").append(std::to_string(a)).append(unit).append(" there, ");
    out.append(std::to_string(b)).append(unit).append(" here)");
  };
  field("failure_threshold.failures", there.failures, here.failures, "");
  field("failure_threshold.window", there.window, here.window, "");
  field("failure_threshold.within", there.within_ms, here.within_ms, " ms");
  field("cooldown", there.cooldown_ms, here.cooldown_ms, " ms");
  field("probe_timeout", there.probe_timeout_ms, here.probe_timeout_ms, " ms");
  field("success_threshold", there.success_threshold, here.success_threshold, "");
  field("probe_limit", there.probe_limit, here.probe_limit, "");
  return out;
}

}  // namespace shmcb
