// SPDX-License-Identifier: BSD-3-Clause
// The configuration of a breaker: the numbers that all its processes share, and the rules they must keep.
// `check` is called by every storage before anything is written.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shmcb/error.hpp"
#include "shmcb/time.hpp"
#include "shmcb/types.hpp"

namespace shmcb {

/// Opens when `failures` of the last `window` outcomes, none older than `within`, were failures. `window` and `within`
/// are what the other opening rules look at too. `failures` 0, where another rule is set: this one is not.
struct Ratio {
  std::uint32_t failures = 5;
  std::uint32_t window = 10;
  Millis within{60'000};

  friend bool operator==(const Ratio&, const Ratio&) = default;
};

/// Opens when at least `minimum_calls` outcomes are in the window and `percent` of them or more were failures. Decided
/// by every outcome, so also by the success that completes `minimum_calls`.
struct FailureRate {
  std::uint32_t percent = 50;  ///< 1 to 100
  std::uint32_t minimum_calls = 10;
};

/// Opens when the newest `failures` outcomes of the window were failures.
struct ConsecutiveFailures {
  std::uint32_t failures = 5;
};

/// A call that took longer than `slower_than`, from its admission to its completion, is slow, whatever came of it.
/// Opens when at least `minimum_calls` outcomes are in the window and `percent` of them or more were slow. A slow
/// success is slow, not failed. Costs a reading of the clock at every admit.
struct SlowCalls {
  Millis slower_than{1'000};
  std::uint32_t percent = 50;  ///< 1 to 100
  std::uint32_t minimum_calls = 10;
  bool reopen_on_slow_probe = false;  ///< a probe that succeeds slowly opens the breaker again
};

/// How long Open turns calls away before probes are tried. Grows by `multiplier` with each failed recovery (a probe
/// that fails, or an opening within `forget_after` of the closing), up to `maximum`; an opening after a longer healthy
/// time takes back one step for each `forget_after` of it. Whoever opens draws the cooldown evenly from the last
/// `jitter` percent below that length, once, for all processes (50 and 100 are "equal" and "full" jitter in Marc
/// Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015).
struct Cooldown {
  Millis base{30'000};
  std::uint32_t multiplier = 1;          ///< 1: does not grow; at most 1,000
  std::optional<Millis> maximum{};       ///< default: ten times base
  std::uint32_t jitter = 0;              ///< percent, 0 to 100
  std::optional<Millis> forget_after{};  ///< default: maximum
};

/// For `duration` after closing, a share of the calls is admitted that grows evenly from `start_percent` to all; the
/// rest is rejected.
struct RampUp {
  Millis duration{10'000};
  std::uint32_t start_percent = 10;  ///< 0 to 100
};

/// What becomes of successes while no failure is near.
enum class Accounting : std::uint8_t {
  exact,  ///< each one is recorded
  lean,   ///< shared memory: none is, so they write nothing and read no clock; decisions are the same, `successes` of a
          ///< snapshot is a lower bound
};

/// What a breaker is called and when it opens, tries again and closes. An aggregate with defaults; durations are whole
/// milliseconds (a finer one does not convert) from 1 to 2^40. It opens when any of its opening rules says so.
struct BreakerConfig {
  std::string name{};         ///< [A-Za-z0-9_.:-]+, at most the storage's limit (shared memory: 128 bytes)
  Ratio failure_threshold{};  ///< when to open, and the window that every opening rule looks at
  std::optional<FailureRate> failure_rate{};
  std::optional<ConsecutiveFailures> consecutive_failures{};
  std::optional<SlowCalls> slow_calls{};
  Cooldown cooldown{};                    ///< how long Open turns calls away before probes are tried
  std::uint32_t success_threshold = 1;    ///< successful probes that close
  std::uint32_t probe_limit = 1;          ///< probes out at one time, over all processes; 1 to 32
  std::optional<Millis> probe_timeout{};  ///< after this the probes out are given up; default: cooldown.base
  bool reclaim_dead_probes = false;       ///< shared memory: a probe of a dead process is given up at the next admit
  std::optional<RampUp> ramp_up{};        ///< none: closing admits every call at once
  Accounting accounting = Accounting::exact;
  std::uint64_t config_revision = 0;  ///< for rolling deploys: of two different configurations the higher one wins
};

[[nodiscard]] constexpr std::string_view to_string(Accounting accounting) noexcept {
  return accounting == Accounting::lean ? "lean" : "exact";
}

/// What to do when the breaker exists with other numbers than those brought.
enum class OnMismatch : std::uint8_t {
  refuse,   ///< an error that names each field that differs (default)
  adopt,    ///< use what is there
  replace,  ///< write what was brought; state and window are kept
};

inline constexpr std::int64_t kMaxDurationMs = std::int64_t{1} << 40;
inline constexpr std::uint32_t kMaxProbes = 32;  ///< what one record of the shared pool has room for

inline constexpr std::uint32_t kMaxMultiplier = 1'000;  ///< arbitrary; its product with 2^40 is exact everywhere

/// The shared numbers as the rules use them: ticks of one millisecond, every default filled in, 0 for a rule that is
/// not set.
struct Settings {
  std::uint32_t failures = 5;
  std::uint32_t window = 10;
  std::int64_t within_ms = 60'000;
  std::uint32_t rate_percent = 0;
  std::uint32_t rate_minimum_calls = 0;
  std::uint32_t consecutive_failures = 0;
  std::uint32_t slow_percent = 0;
  std::uint32_t slow_minimum_calls = 0;
  std::int64_t slower_than_ms = 0;
  bool reopen_on_slow_probe = false;
  std::int64_t cooldown_ms = 30'000;
  std::uint32_t cooldown_multiplier = 1;
  std::uint32_t cooldown_jitter = 0;
  std::int64_t cooldown_maximum_ms = 0;  // this and the next: 0 where it does not grow
  std::int64_t forget_after_ms = 0;
  std::int64_t probe_timeout_ms = 30'000;
  std::uint32_t success_threshold = 1;
  std::uint32_t probe_limit = 1;
  bool reclaim_dead_probes = false;
  std::int64_t ramp_ms = 0;
  std::uint32_t ramp_start_percent = 0;
  bool lean = false;
  std::uint64_t revision = 0;

  /// Whether a call's start matters, so that admits read the clock.
  [[nodiscard]] constexpr bool times_calls() const noexcept { return slow_percent != 0; }
  /// Whether a success may open the breaker, so that it looks at the window too.
  [[nodiscard]] constexpr bool judges_successes() const noexcept { return rate_percent != 0 || slow_percent != 0; }

  friend bool operator==(const Settings&, const Settings&) = default;
};

[[nodiscard]] inline Settings settings_of(const BreakerConfig& config) noexcept {
  const Cooldown& cooldown = config.cooldown;
  Settings s{.failures = config.failure_threshold.failures,
             .window = config.failure_threshold.window,
             .within_ms = config.failure_threshold.within.count(),
             .cooldown_ms = cooldown.base.count(),
             .cooldown_multiplier = cooldown.multiplier,
             .cooldown_jitter = cooldown.jitter,
             .probe_timeout_ms = config.probe_timeout.value_or(cooldown.base).count(),
             .success_threshold = config.success_threshold,
             .probe_limit = config.probe_limit,
             .reclaim_dead_probes = config.reclaim_dead_probes,
             .lean = config.accounting == Accounting::lean,
             .revision = config.config_revision};
  if (cooldown.multiplier > 1) {
    const Millis tenfold{std::min(10 * s.cooldown_ms, kMaxDurationMs)};
    s.cooldown_maximum_ms = cooldown.maximum.value_or(tenfold).count();
    s.forget_after_ms = cooldown.forget_after.value_or(Millis{s.cooldown_maximum_ms}).count();
  }
  if (config.failure_rate) {
    s.rate_percent = config.failure_rate->percent;
    s.rate_minimum_calls = config.failure_rate->minimum_calls;
  }
  if (config.consecutive_failures) s.consecutive_failures = config.consecutive_failures->failures;
  if (config.slow_calls) {
    s.slow_percent = config.slow_calls->percent;
    s.slow_minimum_calls = config.slow_calls->minimum_calls;
    s.slower_than_ms = config.slow_calls->slower_than.count();
    s.reopen_on_slow_probe = config.slow_calls->reopen_on_slow_probe;
  }
  if (config.ramp_up) {
    s.ramp_ms = config.ramp_up->duration.count();
    s.ramp_start_percent = config.ramp_up->start_percent;
  }
  return s;
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

[[nodiscard]] inline Error check_percent(std::string_view field, std::uint32_t value, std::uint32_t least) {
  if (value >= least && value <= 100) return {};
  return bad_field(field, std::to_string(value), "a percentage from " + std::to_string(least) + " to 100");
}

/// A number of outcomes that the window must have room for.
[[nodiscard]] inline Error check_fits_window(std::string_view field, std::uint32_t value, std::uint32_t window) {
  if (value >= 1 && value <= window) return {};
  return bad_field(field, std::to_string(value), "from 1 to failure_threshold.window (" + std::to_string(window) + ")");
}

[[nodiscard]] inline Error check_duration(std::string_view field, Millis value) {
  if (value.count() >= 1 && value.count() <= kMaxDurationMs) return {};
  return bad_field(field, std::to_string(value.count()) + " ms", "from 1 ms to 2^40 ms");
}

[[nodiscard]] inline Error check_opening_rules(const BreakerConfig& config) {
  const Ratio& ratio = config.failure_threshold;
  const bool others = config.failure_rate || config.consecutive_failures || config.slow_calls;
  if (ratio.failures == 0 && !others) {
    return bad_field("failure_threshold.failures", "0",
                     "at least 1 unless failure_rate, consecutive_failures or slow_calls is set");
  }
  if (ratio.window < 1 || ratio.window < ratio.failures) {
    return bad_field("failure_threshold.window", std::to_string(ratio.window),
                     ratio.failures == 0
                         ? "at least 1"
                         : "at least failure_threshold.failures (" + std::to_string(ratio.failures) + ")");
  }
  if (auto e = check_duration("failure_threshold.within", ratio.within)) return e;
  if (const auto& rate = config.failure_rate) {
    if (auto e = check_percent("failure_rate.percent", rate->percent, 1)) return e;
    if (auto e = check_fits_window("failure_rate.minimum_calls", rate->minimum_calls, ratio.window)) return e;
  }
  if (const auto& run = config.consecutive_failures) {
    if (auto e = check_fits_window("consecutive_failures.failures", run->failures, ratio.window)) return e;
  }
  if (const auto& slow = config.slow_calls) {
    if (auto e = check_duration("slow_calls.slower_than", slow->slower_than)) return e;
    if (auto e = check_percent("slow_calls.percent", slow->percent, 1)) return e;
    if (auto e = check_fits_window("slow_calls.minimum_calls", slow->minimum_calls, ratio.window)) return e;
  }
  return {};
}

[[nodiscard]] inline Error check_cooldown(const Cooldown& cooldown) {
  if (auto e = check_duration("cooldown.base", cooldown.base)) return e;
  if (cooldown.multiplier < 1 || cooldown.multiplier > kMaxMultiplier) {
    return bad_field("cooldown.multiplier", std::to_string(cooldown.multiplier),
                     "from 1 to " + std::to_string(kMaxMultiplier));
  }
  if (cooldown.maximum) {
    if (auto e = check_duration("cooldown.maximum", *cooldown.maximum)) return e;
    if (*cooldown.maximum < cooldown.base) {
      return bad_field("cooldown.maximum", std::to_string(cooldown.maximum->count()) + " ms",
                       "at least cooldown.base (" + std::to_string(cooldown.base.count()) + " ms)");
    }
  }
  if (auto e = check_percent("cooldown.jitter", cooldown.jitter, 0)) return e;
  return cooldown.forget_after ? check_duration("cooldown.forget_after", *cooldown.forget_after) : Error{};
}

[[nodiscard]] inline Error check_text(std::string_view field, std::string_view value, std::size_t most) {
  if (value.size() <= most) return {};
  return bad_field(field, quoted(value) + " (" + std::to_string(value.size()) + " bytes)",
                   "at most " + std::to_string(most) + " bytes");
}

}  // namespace detail

/// The rule that a note breaks; or no error.
[[nodiscard]] inline Error check(const Note& note) {
  if (auto e = detail::check_text("who", note.who, kMaxWhoBytes)) return e;
  return detail::check_text("why", note.why, kMaxWhyBytes);
}

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
  if (auto e = detail::check_opening_rules(config)) return e;
  if (auto e = detail::check_cooldown(config.cooldown)) return e;
  if (auto e = detail::check_at_least_one("success_threshold", config.success_threshold)) return e;
  if (config.probe_limit < 1 || config.probe_limit > kMaxProbes) {
    return bad_field("probe_limit", std::to_string(config.probe_limit), "from 1 to " + std::to_string(kMaxProbes));
  }
  if (config.probe_timeout) {
    if (auto e = detail::check_duration("probe_timeout", *config.probe_timeout)) return e;
  }
  if (config.ramp_up) {
    if (auto e = detail::check_duration("ramp_up.duration", config.ramp_up->duration)) return e;
    if (auto e = detail::check_percent("ramp_up.start_percent", config.ramp_up->start_percent, 0)) return e;
  }
  if (config.accounting != Accounting::exact && config.accounting != Accounting::lean) {
    return bad_field("accounting", std::to_string(static_cast<unsigned>(config.accounting)), "one of exact, lean");
  }
  if (config.accounting == Accounting::lean && (config.failure_rate || config.slow_calls)) {
    return bad_field("accounting", "lean",
                     std::string{"exact where "} + (config.failure_rate ? "failure_rate" : "slow_calls") +
                         " is set, which needs the number of successes");
  }
  return {};
}

/// What a valid configuration may not mean, a sentence each; empty: nothing.
[[nodiscard]] inline std::vector<std::string> warnings(const BreakerConfig& config) {
  std::vector<std::string> out;
  const Millis probe_timeout = config.probe_timeout.value_or(config.cooldown.base);
  if (config.slow_calls && probe_timeout <= config.slow_calls->slower_than) {
    out.push_back("probe_timeout is " + std::to_string(probe_timeout.count()) +
                  " ms, not above slow_calls.slower_than (" + std::to_string(config.slow_calls->slower_than.count()) +
                  " ms): a slow probe is given up before it can be told to be slow");
  }
  return out;
}

/// The rule that a mode request breaks; or no error.
[[nodiscard]] inline Error check(const ModeRequest& request) {
  if (static_cast<std::uint8_t>(request.mode) >= kModes) {
    return detail::bad_field("mode", std::to_string(static_cast<unsigned>(request.mode)),
                             "one of automatic, forced-open, forced-closed, disabled, observe");
  }
  if (request.expires_after) {
    if (auto e = detail::check_duration("expires_after", *request.expires_after)) return e;
    if (request.mode == Mode::automatic) {
      return detail::bad_field("expires_after", std::to_string(request.expires_after->count()) + " ms",
                               "left out for the mode automatic, which has no end");
    }
  }
  return check(request.note);
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
  field("failure_rate.percent", there.rate_percent, here.rate_percent, "");
  field("failure_rate.minimum_calls", there.rate_minimum_calls, here.rate_minimum_calls, "");
  field("consecutive_failures.failures", there.consecutive_failures, here.consecutive_failures, "");
  field("slow_calls.slower_than", there.slower_than_ms, here.slower_than_ms, " ms");
  field("slow_calls.percent", there.slow_percent, here.slow_percent, "");
  field("slow_calls.minimum_calls", there.slow_minimum_calls, here.slow_minimum_calls, "");
  field("slow_calls.reopen_on_slow_probe", there.reopen_on_slow_probe, here.reopen_on_slow_probe, "");
  field("cooldown.base", there.cooldown_ms, here.cooldown_ms, " ms");
  field("cooldown.multiplier", there.cooldown_multiplier, here.cooldown_multiplier, "");
  field("cooldown.maximum", there.cooldown_maximum_ms, here.cooldown_maximum_ms, " ms");
  field("cooldown.jitter", there.cooldown_jitter, here.cooldown_jitter, "");
  field("cooldown.forget_after", there.forget_after_ms, here.forget_after_ms, " ms");
  field("probe_timeout", there.probe_timeout_ms, here.probe_timeout_ms, " ms");
  field("success_threshold", there.success_threshold, here.success_threshold, "");
  field("probe_limit", there.probe_limit, here.probe_limit, "");
  field("reclaim_dead_probes", there.reclaim_dead_probes, here.reclaim_dead_probes, "");
  field("ramp_up.duration", there.ramp_ms, here.ramp_ms, " ms");
  field("ramp_up.start_percent", there.ramp_start_percent, here.ramp_start_percent, "");
  if (there.lean != here.lean) {
    if (!out.empty()) out += ", ";
    out += there.lean ? "accounting (lean there, exact here)" : "accounting (exact there, lean here)";
  }
  return out;
}

}  // namespace shmcb
