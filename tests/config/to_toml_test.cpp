// SPDX-License-Identifier: BSD-3-Clause
// What is written as text comes back as it was.
#include <cstdint>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "config/random_text.hpp"
#include "shmcb/config_text.hpp"

namespace shmcb::test {
namespace {

TEST(ToToml, WritesEveryFieldWithItsDefault) {
  EXPECT_EQ(to_toml({.name = "a"}), R"([[breaker]]
name = "a"
failure_threshold = { failures = 5, window = 10, within = "1m" }
failure_rate = false
consecutive_failures = false
slow_calls = false
cooldown = { base = "30s", multiplier = 1, maximum = "5m", jitter = 0, forget_after = "5m" }
success_threshold = 1
probe_limit = 1
probe_timeout = "30s"
reclaim_dead_probes = false
ramp_up = false
accounting = "exact"
config_revision = 0
)");
}

TEST(ToToml, WritesEveryFieldThatIsSet) {
  EXPECT_EQ(to_toml({.name = "a",
                     .failure_threshold = {.failures = 0, .window = 20, .within = Millis{1}},
                     .failure_rate = FailureRate{},
                     .consecutive_failures = ConsecutiveFailures{},
                     .slow_calls = SlowCalls{.reopen_on_slow_probe = true},
                     .cooldown = {.base = Millis{1'500},
                                  .multiplier = 2,
                                  .maximum = Millis{3'000},
                                  .jitter = 100,
                                  .forget_after = Millis{4'000}},
                     .success_threshold = 2,
                     .probe_limit = 3,
                     .probe_timeout = Millis{5'000},
                     .reclaim_dead_probes = true,
                     .ramp_up = RampUp{},
                     .config_revision = 7}),
            R"([[breaker]]
name = "a"
failure_threshold = { failures = 0, window = 20, within = "1ms" }
failure_rate = { percent = 50, minimum_calls = 10 }
consecutive_failures = { failures = 5 }
slow_calls = { slower_than = "1s", percent = 50, minimum_calls = 10, reopen_on_slow_probe = true }
cooldown = { base = "1500ms", multiplier = 2, maximum = "3s", jitter = 100, forget_after = "4s" }
success_threshold = 2
probe_limit = 3
probe_timeout = "5s"
reclaim_dead_probes = true
ramp_up = { duration = "10s", start_percent = 10 }
accounting = "exact"
config_revision = 7
)");
}

TEST(ToToml, ComesBackWithTheSameSettings) {
  const std::uint64_t seed = test_seed();
  std::mt19937_64 random{seed};
  for (int i = 0; i < 5'000; ++i) {
    const BreakerConfig config = random_config(random);
    ASSERT_EQ(check(config).message, "") << "seed " << seed;
    const std::string text = to_toml(config);
    const Result<Configuration> back = parse_config(text, "text");
    ASSERT_TRUE(back) << back.error().message << "\n" << text << "seed " << seed;
    ASSERT_EQ(back->breakers.size(), 1U);
    EXPECT_EQ(back->breakers[0].name, config.name) << "seed " << seed;
    EXPECT_EQ(differences(settings_of(config), settings_of(back->breakers[0])), "") << text << "seed " << seed;
    EXPECT_EQ(settings_of(config), settings_of(back->breakers[0])) << text << "seed " << seed;
    EXPECT_EQ(to_toml(back->breakers[0]), text) << "seed " << seed;
  }
}

}  // namespace
}  // namespace shmcb::test
