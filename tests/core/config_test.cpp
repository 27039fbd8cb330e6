// SPDX-License-Identifier: BSD-3-Clause
#include "shmcb/config.hpp"

#include <limits>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

namespace shmcb {
namespace {

constexpr std::size_t kNameLimit = 128;  // that of shared memory

BreakerConfig good() {
  return {.name = "payments"};
}

/// The message with which a good configuration is refused after `change`; empty where it is accepted.
template <class Change>
std::string refusal(Change change) {
  BreakerConfig config = good();
  change(config);
  const Error error = check(config, kNameLimit);
  EXPECT_EQ(error.code, error.message.empty() ? Errc::ok : Errc::invalid_config);
  return error.message;
}

std::string refusal_of_name(std::string_view name) {
  return refusal([name](BreakerConfig& c) { c.name = name; });
}

TEST(Config, AcceptsItsDefaultsWithAName) {
  EXPECT_EQ(refusal([](BreakerConfig&) {}), "");
}

TEST(Config, HasNoDefaultName) {
  EXPECT_EQ(check(BreakerConfig{}).message, "name is empty; it must be at least one of [A-Za-z0-9_.:-]");
}

TEST(Config, AcceptsEveryAllowedCharacterInAName) {
  EXPECT_EQ(refusal_of_name("ABCXYZabcxyz0123456789_.:-"), "");
  EXPECT_EQ(refusal_of_name("-"), "");
}

TEST(Config, RefusesEveryOtherByteAnywhereInAName) {
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    const bool allowed = std::string_view{"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.:-"}.find(
                             c) != std::string_view::npos;
    const std::string one(1, c);
    for (const std::string& name : {one, "a" + one, one + "a", "a" + one + "a"}) {
      EXPECT_EQ(refusal_of_name(name).empty(), allowed) << "byte " << byte;
    }
  }
}

TEST(Config, RefusesANewlineAtTheEndOfAName) {
  EXPECT_EQ(refusal_of_name("payments\n"), "name is 'payments\\x0a'; it must be of [A-Za-z0-9_.:-] only");
}

TEST(Config, RefusesANulInAName) {
  EXPECT_EQ(refusal_of_name(std::string_view{"pay\0ments", 9}),
            "name is 'pay\\x00ments'; it must be of [A-Za-z0-9_.:-] only");
}

TEST(Config, ShowsAStrangeNameWithoutItsControlCharactersAndQuotes) {
  EXPECT_EQ(refusal_of_name("\x1b[31m'\\\xff"),
            "name is '\\x1b[31m\\x27\\x5c\\xff'; it must be of [A-Za-z0-9_.:-] only");
}

TEST(Config, RefusesANameBeyondTheLimitOfTheStorage) {
  EXPECT_EQ(refusal_of_name(std::string(128, 'n')), "");
  EXPECT_EQ(refusal_of_name(std::string(129, 'n')),
            "name is '" + std::string(64, 'n') + "'... (129 bytes); it must be at most 128 bytes");
  EXPECT_FALSE(check({.name = std::string(129, 'n')}));  // no limit, no refusal
}

TEST(Config, RefusesAThresholdOfNoFailures) {
  EXPECT_EQ(refusal([](BreakerConfig& c) { c.failure_threshold.failures = 0; }),
            "failure_threshold.failures is 0; it must be at least 1 unless failure_rate, consecutive_failures or "
            "slow_calls is set");
}

TEST(Config, RefusesAWindowThatCannotHoldTheFailures) {
  EXPECT_EQ(refusal([](BreakerConfig& c) { c.failure_threshold = {.failures = 5, .window = 5}; }), "");
  EXPECT_EQ(refusal([](BreakerConfig& c) { c.failure_threshold = {.failures = 5, .window = 4}; }),
            "failure_threshold.window is 4; it must be at least failure_threshold.failures (5)");
}

/// A duration that is out of range is refused by its name; both ends of the range are accepted.
template <class Set>
void expect_duration_rule(const std::string& field, Set set) {
  const auto with = [&set](std::int64_t ms) { return refusal([&](BreakerConfig& c) { set(c, Millis{ms}); }); };
  const std::string rule = " ms; it must be from 1 ms to 2^40 ms";
  EXPECT_EQ(with(1), "");
  EXPECT_EQ(with(1'099'511'627'776), "");
  EXPECT_EQ(with(0), field + " is 0" + rule);
  EXPECT_EQ(with(-1), field + " is -1" + rule);
  EXPECT_EQ(with(1'099'511'627'777), field + " is 1099511627777" + rule);
  EXPECT_EQ(with(std::numeric_limits<std::int64_t>::min()), field + " is -9223372036854775808" + rule);
  EXPECT_EQ(with(std::numeric_limits<std::int64_t>::max()), field + " is 9223372036854775807" + rule);
}

TEST(Config, RefusesDurationsOutOfRange) {
  expect_duration_rule("failure_threshold.within", [](BreakerConfig& c, Millis d) { c.failure_threshold.within = d; });
  expect_duration_rule("cooldown.base", [](BreakerConfig& c, Millis d) { c.cooldown.base = d; });
  expect_duration_rule("probe_timeout", [](BreakerConfig& c, Millis d) { c.probe_timeout = d; });
}

TEST(Config, RefusesASuccessThresholdOfZero) {
  EXPECT_EQ(refusal([](BreakerConfig& c) { c.success_threshold = 0; }),
            "success_threshold is 0; it must be at least 1");
}

TEST(Config, RefusesAProbeLimitOutOfRange) {
  EXPECT_EQ(refusal([](BreakerConfig& c) { c.probe_limit = 1; }), "");
  EXPECT_EQ(refusal([](BreakerConfig& c) { c.probe_limit = 32; }), "");
  EXPECT_EQ(refusal([](BreakerConfig& c) { c.probe_limit = 0; }), "probe_limit is 0; it must be from 1 to 32");
  EXPECT_EQ(refusal([](BreakerConfig& c) { c.probe_limit = 33; }), "probe_limit is 33; it must be from 1 to 32");
}

TEST(Settings, AreTheNumbersOfTheConfigWithEveryDefaultFilledIn) {
  const Settings settings = settings_of({.name = "n",
                                         .failure_threshold = {.failures = 2, .window = 3, .within = Millis{4}},
                                         .cooldown = {Millis{5}},
                                         .success_threshold = 6,
                                         .probe_limit = 7,
                                         .probe_timeout = Millis{8},
                                         .config_revision = 9});
  EXPECT_EQ(settings, (Settings{.failures = 2,
                                .window = 3,
                                .within_ms = 4,
                                .cooldown_ms = 5,
                                .probe_timeout_ms = 8,
                                .success_threshold = 6,
                                .probe_limit = 7,
                                .revision = 9}));
  EXPECT_EQ(settings_of({.name = "n", .cooldown = {Millis{5}}}).probe_timeout_ms, 5);
  EXPECT_EQ(settings_of({.name = "n"}), Settings{});
}

TEST(Settings, NameEachFieldThatDiffers) {
  const Settings there;
  EXPECT_EQ(differences(there, there), "");
  Settings here;
  here.cooldown_ms = 5'000;
  here.probe_limit = 3;
  EXPECT_EQ(differences(there, here), "cooldown.base (30000 ms there, 5000 ms here), probe_limit (1 there, 3 here)");
  here = {.failures = 1,
          .window = 2,
          .within_ms = 3,
          .cooldown_ms = 4,
          .probe_timeout_ms = 5,
          .success_threshold = 6,
          .probe_limit = 7};
  for (const char* field :
       {"failure_threshold.failures (5 ", "failure_threshold.window (10 ", "failure_threshold.within (60000 ms ",
        "cooldown.base (", "probe_timeout (30000 ms ", "success_threshold (1 ", "probe_limit ("}) {
    EXPECT_NE(differences(there, here).find(field), std::string::npos) << field;
  }
}

TEST(Settings, DoNotDifferByTheirRevisionAlone) {
  EXPECT_EQ(differences(Settings{.revision = 1}, Settings{.revision = 2}), "");
}

}  // namespace
}  // namespace shmcb
