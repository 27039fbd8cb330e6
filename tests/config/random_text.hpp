// SPDX-License-Identifier: BSD-3-Clause
// Random configurations that keep their rules, and random damage to texts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <random>
#include <string>
#include <string_view>

#include "shmcb/config.hpp"
#include "support/random_input.hpp"

namespace shmcb::test {

class ConfigMaker {
 public:
  explicit ConfigMaker(std::mt19937_64& random) : random_(random) {}

  [[nodiscard]] BreakerConfig make() {
    BreakerConfig config{.name = name()};
    config.failure_threshold = {.failures = number(1, 50), .window = number(50, 500), .within = duration()};
    const std::uint32_t window = config.failure_threshold.window;
    if (coin()) config.failure_rate = {.percent = number(1, 100), .minimum_calls = number(1, window)};
    if (coin()) config.consecutive_failures = {.failures = number(1, window)};
    if (coin()) {
      config.slow_calls = {.slower_than = duration(),
                           .percent = number(1, 100),
                           .minimum_calls = number(1, window),
                           .reopen_on_slow_probe = coin()};
    }
    const bool others = config.failure_rate || config.consecutive_failures || config.slow_calls;
    if (others && coin()) config.failure_threshold.failures = 0;
    config.cooldown = {.base = duration(), .multiplier = coin() ? 1 : number(2, 1'000), .jitter = number(0, 100)};
    if (coin()) config.cooldown.maximum = std::max(config.cooldown.base, duration());
    if (coin()) config.cooldown.forget_after = duration();
    config.success_threshold = number(1, ~0U);
    config.probe_limit = number(1, kMaxProbes);
    if (coin()) config.probe_timeout = duration();
    config.reclaim_dead_probes = coin();
    if (coin()) config.ramp_up = {.duration = duration(), .start_percent = number(0, 100)};
    if (!config.failure_rate && !config.slow_calls && coin()) config.accounting = Accounting::lean;
    config.config_revision = random_() >> (1 + random_() % 63);
    return config;
  }

 private:
  [[nodiscard]] bool coin() { return random_() % 2 == 0; }
  [[nodiscard]] std::uint32_t number(std::uint32_t from, std::uint32_t to) {
    return std::uniform_int_distribution<std::uint32_t>{from, to}(random_);
  }
  /// Of every magnitude, many of them whole in some unit.
  [[nodiscard]] Millis duration() {
    constexpr std::int64_t kUnits[] = {1, 1'000, 60'000, 3'600'000};
    const std::int64_t unit = kUnits[random_() % 4];
    const auto most = static_cast<std::uint64_t>(kMaxDurationMs / unit);
    return Millis{static_cast<std::int64_t>(1 + (random_() >> (random_() % 64)) % most) * unit};
  }
  [[nodiscard]] std::string name() {
    constexpr std::string_view kChars = "ABCXYZabcxyz0123456789_.:-";
    std::string out(1 + random_() % 40, ' ');
    for (char& c : out)
      c = kChars[random_() % kChars.size()];
    return out;
  }

  std::mt19937_64& random_;
};

[[nodiscard]] inline BreakerConfig random_config(std::mt19937_64& random) {
  return ConfigMaker{random}.make();
}

}  // namespace shmcb::test
