// SPDX-License-Identifier: BSD-3-Clause
// Configuration as text: what is read, and with which words everything else is refused.
#include "shmcb/config_text.hpp"

#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shmcb {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;

/// A line, and those of the text that are the same for all: so a table's own lines begin with the third.
std::string breaker_with(std::string_view lines) {
  return "[[breaker]]\nname = 'a'\n" + std::string{lines};
}

Configuration read(std::string_view text) {
  const Result<Configuration> configuration = parse_config(text, "f.toml");
  EXPECT_TRUE(configuration) << configuration.error().message << "\n" << text;
  return configuration ? *configuration : Configuration{.breakers = {{}}};
}

BreakerConfig only(std::string_view text) {
  const Configuration configuration = read(text);
  EXPECT_EQ(configuration.breakers.size(), 1U) << text;
  return configuration.breakers.at(0);
}

std::string refusal(std::string_view text) {
  const Result<Configuration> configuration = parse_config(text, "f.toml");
  if (configuration) return "accepted";
  EXPECT_EQ(configuration.error().code, Errc::invalid_config);
  return configuration.error().message;
}

// --- what is read ---

TEST(ConfigText, SetsEveryField) {
  const BreakerConfig config = only(R"(
[[breaker]]
name = "payments.eu:1"
failure_threshold = { failures = 2, window = 30, within = "45s" }
failure_rate = { percent = 40, minimum_calls = 11 }
consecutive_failures = { failures = 3 }
slow_calls = { slower_than = "250ms", percent = 60, minimum_calls = 12, reopen_on_slow_probe = true }
cooldown = { base = "10s", multiplier = 2, maximum = "2m", jitter = 50, forget_after = "3m" }
success_threshold = 4
probe_limit = 5
probe_timeout = "7s"
reclaim_dead_probes = true
ramp_up = { duration = "20s", start_percent = 5 }
config_revision = 9
)");
  EXPECT_EQ(config.name, "payments.eu:1");
  EXPECT_EQ(config.failure_threshold, (Ratio{.failures = 2, .window = 30, .within = Millis{45'000}}));
  ASSERT_TRUE(config.failure_rate);
  EXPECT_EQ(config.failure_rate->percent, 40U);
  EXPECT_EQ(config.failure_rate->minimum_calls, 11U);
  ASSERT_TRUE(config.consecutive_failures);
  EXPECT_EQ(config.consecutive_failures->failures, 3U);
  ASSERT_TRUE(config.slow_calls);
  EXPECT_EQ(config.slow_calls->slower_than, Millis{250});
  EXPECT_EQ(config.slow_calls->percent, 60U);
  EXPECT_EQ(config.slow_calls->minimum_calls, 12U);
  EXPECT_TRUE(config.slow_calls->reopen_on_slow_probe);
  EXPECT_EQ(config.cooldown.base, Millis{10'000});
  EXPECT_EQ(config.cooldown.multiplier, 2U);
  EXPECT_EQ(config.cooldown.maximum, Millis{120'000});
  EXPECT_EQ(config.cooldown.jitter, 50U);
  EXPECT_EQ(config.cooldown.forget_after, Millis{180'000});
  EXPECT_EQ(config.success_threshold, 4U);
  EXPECT_EQ(config.probe_limit, 5U);
  EXPECT_EQ(config.probe_timeout, Millis{7'000});
  EXPECT_TRUE(config.reclaim_dead_probes);
  ASSERT_TRUE(config.ramp_up);
  EXPECT_EQ(config.ramp_up->duration, Millis{20'000});
  EXPECT_EQ(config.ramp_up->start_percent, 5U);
  EXPECT_EQ(config.config_revision, 9U);
}

TEST(ConfigText, LeavesTheDefaultsOfTheAggregateWhereNothingIsSaid) {
  const BreakerConfig config = only("[[breaker]]\nname = 'a'\n");
  EXPECT_EQ(settings_of(config), settings_of({.name = "a"}));
  EXPECT_FALSE(config.failure_rate || config.consecutive_failures || config.slow_calls || config.ramp_up);
  EXPECT_FALSE(config.probe_timeout || config.cooldown.maximum || config.cooldown.forget_after);
}

TEST(ConfigText, SetsARuleByAnEmptyTableToItsDefaults) {
  const BreakerConfig config = only(breaker_with("failure_rate = {}\n[breaker.ramp_up]\n"));
  ASSERT_TRUE(config.failure_rate && config.ramp_up);
  EXPECT_EQ(config.failure_rate->percent, FailureRate{}.percent);
  EXPECT_EQ(config.ramp_up->duration, RampUp{}.duration);
}

TEST(ConfigText, TakesTablesInEveryFormOfToml) {
  for (const char* form : {"cooldown = { base = '5s', jitter = 10 }", "cooldown.base = '5s'\ncooldown.jitter = 10",
                           "[breaker.cooldown]\nbase = \"5s\"\njitter = 0xA"}) {
    const BreakerConfig config = only(breaker_with(form));
    EXPECT_EQ(config.cooldown.base, Millis{5'000}) << form;
    EXPECT_EQ(config.cooldown.jitter, 10U) << form;
  }
}

TEST(ConfigText, TakesADurationForACooldownAsItsBase) {
  EXPECT_EQ(only(breaker_with("cooldown = '5s'")).cooldown.base, Millis{5'000});
}

TEST(ConfigText, KeepsTheOrderOfTheBreakersAndFindsThemByName) {
  const Configuration configuration = read("[[breaker]]\nname='b'\n[[breaker]]\nname='a'\nprobe_limit=2\n");
  ASSERT_EQ(configuration.breakers.size(), 2U);
  EXPECT_EQ(configuration.breakers[0].name, "b");
  EXPECT_EQ(configuration.find("a"), &configuration.breakers[1]);
  EXPECT_EQ(configuration.find("c"), nullptr);
}

TEST(ConfigText, OfNothingIsNothing) {
  for (const char* text : {"", "\n", "# a comment\n", "[defaults]\nprobe_limit = 3\n"})
    EXPECT_THAT(read(text).breakers, IsEmpty()) << text;
}

// --- inheritance ---

TEST(ConfigText, InheritsFieldByField) {
  const Configuration configuration = read(R"(
[defaults]
failure_threshold.window = 20
cooldown = { base = "5s", multiplier = 3 }
slow_calls = { percent = 70 }
probe_timeout = "9s"
[[breaker]]
name = "plain"
[[breaker]]
name = "own"
failure_threshold = { failures = 7 }
cooldown = "1m"
slow_calls.slower_than = "2s"
)");
  const BreakerConfig& plain = configuration.breakers.at(0);
  EXPECT_EQ(plain.failure_threshold, (Ratio{.window = 20}));
  EXPECT_EQ(plain.cooldown.base, Millis{5'000});
  EXPECT_EQ(plain.cooldown.multiplier, 3U);
  EXPECT_EQ(plain.slow_calls.value().percent, 70U);
  EXPECT_EQ(plain.probe_timeout, Millis{9'000});
  const BreakerConfig& own = configuration.breakers.at(1);
  EXPECT_EQ(own.failure_threshold, (Ratio{.failures = 7, .window = 20}));
  EXPECT_EQ(own.cooldown.base, Millis{60'000});
  EXPECT_EQ(own.cooldown.multiplier, 3U);
  EXPECT_EQ(own.slow_calls.value().percent, 70U);
  EXPECT_EQ(own.slow_calls.value().slower_than, Millis{2'000});
}

TEST(ConfigText, InheritsFromDefaultsThatComeLater) {
  EXPECT_EQ(only("[[breaker]]\nname='a'\n[defaults]\nprobe_limit=3\n").probe_limit, 3U);
}

TEST(ConfigText, TakesBackInheritedRulesByFalse) {
  const BreakerConfig config = only(R"(
[defaults]
failure_rate = {}
consecutive_failures = {}
slow_calls = {}
ramp_up = {}
[[breaker]]
name = "a"
failure_rate = false
consecutive_failures = false
slow_calls = false
ramp_up = false
)");
  EXPECT_FALSE(config.failure_rate || config.consecutive_failures || config.slow_calls || config.ramp_up);
}

TEST(ConfigText, DoesNotInheritFromTheBreakerBefore) {
  EXPECT_EQ(read("[[breaker]]\nname='a'\nprobe_limit=3\n[[breaker]]\nname='b'\n").breakers.at(1).probe_limit, 1U);
}

TEST(ConfigText, SetsTheAccounting) {
  EXPECT_EQ(read(breaker_with("accounting = 'lean'")).breakers.at(0).accounting, Accounting::lean);
  EXPECT_EQ(read(breaker_with("accounting = 'exact'")).breakers.at(0).accounting, Accounting::exact);
  EXPECT_EQ(read(breaker_with("")).breakers.at(0).accounting, Accounting::exact);
}

// --- what is refused ---

TEST(ConfigText, RefusesKeysThatItDoesNotKnow) {
  const std::string settings =
      "failure_threshold, failure_rate, consecutive_failures, slow_calls, cooldown, success_threshold, probe_limit, "
      "probe_timeout, reclaim_dead_probes, ramp_up, accounting, config_revision";
  EXPECT_EQ(refusal("\n breakers = 1"), "f.toml:2:2: key 'breakers' is not known here; known are defaults, breaker");
  EXPECT_EQ(refusal("[defaults]\nname = 'a'"), "f.toml:2:1: key 'name' is not known here; known are " + settings);
  EXPECT_EQ(refusal(breaker_with("window = 3")),
            "f.toml:3:1: key 'window' is not known here; known are name, " + settings);
  EXPECT_EQ(refusal(breaker_with("cooldown = { base = '1s', max = '2s' }")),
            "f.toml:3:27: key 'max' is not known here; known are base, multiplier, maximum, jitter, forget_after");
  EXPECT_EQ(refusal(breaker_with("failure_threshold.calls = 1")),
            "f.toml:3:19: key 'calls' is not known here; known are failures, window, within");
  EXPECT_EQ(refusal(breaker_with("failure_rate.failures = 1")),
            "f.toml:3:14: key 'failures' is not known here; known are percent, minimum_calls");
  EXPECT_EQ(refusal(breaker_with("consecutive_failures.n = 1")),
            "f.toml:3:22: key 'n' is not known here; known are failures");
  EXPECT_EQ(refusal(breaker_with("slow_calls.slow = 1")),
            "f.toml:3:12: key 'slow' is not known here; known are slower_than, percent, minimum_calls, "
            "reopen_on_slow_probe");
  EXPECT_EQ(refusal(breaker_with("ramp_up.start = 1")),
            "f.toml:3:9: key 'start' is not known here; known are duration, start_percent");
  EXPECT_EQ(refusal(breaker_with("zz = 1\naa = 1")).substr(0, 20), "f.toml:3:1: key 'zz'");  // the first in the text
  EXPECT_THAT(refusal(breaker_with("\"a\\nb\" = 1")), StartsWith("f.toml:3:1: key 'a\\x0ab' is not known"));
}

TEST(ConfigText, RefusesValuesOfTheWrongType) {
  const std::string number = "; it must be a whole number from 0 to 4294967295";
  const std::string duration =
      "; it must be a string: a whole number and its unit, such as 250ms, 5s, 2m or 1h, from 1ms to 305419h (2^40 ms)";
  const std::vector<std::pair<std::string, std::string>> cases{
      {"probe_limit = '3'", "f.toml:3:15: probe_limit is '3' (a string)" + number},
      {"probe_limit = 3.0", "f.toml:3:15: probe_limit is a floating-point number" + number},
      {"probe_limit = true", "f.toml:3:15: probe_limit is true" + number},
      {"probe_limit = [3]", "f.toml:3:15: probe_limit is an array" + number},
      {"probe_limit = { n = 3 }", "f.toml:3:15: probe_limit is a table" + number},
      {"probe_limit = 2026-11-30", "f.toml:3:15: probe_limit is a date or time" + number},
      {"probe_limit = -1", "f.toml:3:15: probe_limit is -1" + number},
      {"probe_limit = 4294967296", "f.toml:3:15: probe_limit is 4294967296" + number},
      {"config_revision = -1",
       "f.toml:3:19: config_revision is -1; it must be a whole number from 0 to 9223372036854775807"},
      {"probe_timeout = 5", "f.toml:3:17: probe_timeout is 5 (an integer)" + duration},
      {"cooldown.maximum = false", "f.toml:3:20: cooldown.maximum is false" + duration},
      {"cooldown = 30",
       "f.toml:3:12: cooldown is 30 (an integer); it must be a table, or a string such as \"30s\", "
       "its base"},
      {"failure_threshold = 5", "f.toml:3:21: failure_threshold is 5 (an integer); it must be a table"},
      {"failure_threshold = false", "f.toml:3:21: failure_threshold is false; it must be a table"},
      {"failure_rate = true", "f.toml:3:16: failure_rate is true; it must be a table, or false for none"},
      {"ramp_up = '10s'", "f.toml:3:11: ramp_up is '10s' (a string); it must be a table, or false for none"},
      {"reclaim_dead_probes = 1", "f.toml:3:23: reclaim_dead_probes is 1 (an integer); it must be true or false"},
      {"accounting = 'fast'", R"(f.toml:3:14: accounting is 'fast' (a string); it must be one of "exact", "lean")"},
      {"accounting = true", R"(f.toml:3:14: accounting is true; it must be one of "exact", "lean")"},
  };
  for (const auto& [line, message] : cases)
    EXPECT_EQ(refusal(breaker_with(line)), message);
  EXPECT_EQ(refusal("[[breaker]]\nname = 7"), "f.toml:2:8: name is 7 (an integer); it must be a string");
  EXPECT_EQ(refusal("defaults = 1"), "f.toml:1:12: defaults is 1 (an integer); it must be a table");
  const std::string tables = "; it must be tables, each begun by [[breaker]]";
  EXPECT_EQ(refusal("[breaker]\nname = 'a'"), "f.toml:1:1: breaker is a table" + tables);
  EXPECT_EQ(refusal("breaker = ['a']"), "f.toml:1:11: breaker is an array" + tables);
}

TEST(ConfigText, RefusesDurationsWithTheWordsOfTheirParser) {
  const std::string rule =
      "; it must be a whole number and its unit, such as 250ms, 5s, 2m or 1h, from 1ms to 305419h (2^40 ms)";
  EXPECT_EQ(refusal(breaker_with("cooldown = '30'")), "f.toml:3:12: cooldown.base is '30'" + rule);
  EXPECT_EQ(refusal(breaker_with("cooldown.base = '0s'")), "f.toml:3:17: cooldown.base is '0s'" + rule);
  EXPECT_EQ(refusal("[defaults]\nprobe_timeout = '1.5s'"), "f.toml:2:17: probe_timeout is '1.5s'" + rule);
}

TEST(ConfigText, RefusesWhatTheCheckRefusesWithItsWordsAndTheLineOfTheField) {
  const std::vector<std::string> broken{
      "failure_threshold.failures = 0",
      "failure_threshold.window = 4",
      "failure_rate.percent = 101",
      "failure_rate.minimum_calls = 11",
      "consecutive_failures.failures = 0",
      "slow_calls.percent = 0",
      "slow_calls.minimum_calls = 11",
      "cooldown.multiplier = 1001",
      "cooldown.maximum = '29s'",
      "cooldown.jitter = 101",
      "success_threshold = 0",
      "probe_limit = 33",
      "ramp_up.start_percent = 101",
  };
  for (const std::string& line : broken) {
    const std::string text = breaker_with("\n\n" + line);
    const std::string message = refusal(text);
    EXPECT_THAT(message, StartsWith("f.toml:5: breaker 'a': " + line.substr(0, line.find(' ')) + " is ")) << line;
  }
  BreakerConfig config{.name = "a"};
  config.cooldown.jitter = 101;
  EXPECT_EQ(refusal(breaker_with("cooldown.jitter = 101")), "f.toml:3: breaker 'a': " + check(config).message);
  EXPECT_EQ(refusal("[[breaker]]\n\nname = 'a b'"),
            "f.toml:3: breaker 'a b': name is 'a b'; it must be of [A-Za-z0-9_.:-] only");
}

TEST(ConfigText, NamesTheLineOfTheBreakerWhereTheFieldIsSetNowhere) {
  EXPECT_EQ(refusal("\n[[breaker]]\nprobe_limit = 2\n"),
            "f.toml:2: breaker '': name is empty; it must be at least one of [A-Za-z0-9_.:-]");
  EXPECT_EQ(refusal(breaker_with("failure_threshold.failures = 11")),
            "f.toml:1: breaker 'a': failure_threshold.window is 10; it must be at least failure_threshold.failures "
            "(11)");
}

TEST(ConfigText, NamesTheLineOfTheDefaultsThatABreakerBreaksItsRulesBy) {
  EXPECT_EQ(refusal("[defaults]\ncooldown.jitter = 101\n[[breaker]]\nname = 'a'\n"),
            "f.toml:2: breaker 'a': cooldown.jitter is 101; it must be a percentage from 0 to 100");
}

TEST(ConfigText, ReportsTheFirstOfSeveralBreakersThatAreWrong) {
  EXPECT_THAT(refusal("[[breaker]]\nname='a'\nprobe_limit=0\n[[breaker]]\nname='b'\nnonsense=1\n"),
              StartsWith("f.toml:3: breaker 'a': probe_limit is 0;"));
}

TEST(ConfigText, RefusesASecondBreakerOfTheSameName) {
  EXPECT_EQ(refusal("[[breaker]]\nname='a'\n[[breaker]]\nname='b'\n[[breaker]]\nname='a'\n"),
            "f.toml:6: breaker 'a': name is 'a'; it must be unlike that of the breaker in line 1");
}

TEST(ConfigText, RefusesWhatIsNoToml) {
  EXPECT_THAT(refusal("[[breaker]\n"), StartsWith("f.toml:1:11: "));
  EXPECT_THAT(refusal("\n[=]\n"), StartsWith("f.toml:2:2: "));  // toml++ 3.3 has an assertion against this one
  EXPECT_THAT(refusal(breaker_with("name = 'b'")), StartsWith("f.toml:3:8: "));
  EXPECT_THAT(refusal(breaker_with("probe_limit = ")), StartsWith("f.toml:3:"));
  EXPECT_THAT(refusal(breaker_with("x = \"\xff\"")), StartsWith("f.toml:"));
  EXPECT_THAT(refusal(std::string(10, '\0')), StartsWith("f.toml:"));
}

TEST(ConfigText, CitesWhatItRefusesInPrintableCharacters) {
  using namespace std::string_view_literals;
  for (const std::string_view text : {"a = f\0l"sv, "a = t\x1b[2J"sv, "a = 1\x7f"sv, "a\1 = 1"sv, "[\x1b"sv}) {
    const std::string message = refusal(text);
    EXPECT_NE(message, "");
    for (const char c : message)
      EXPECT_TRUE(c >= ' ' && c <= '~') << message;
  }
}

TEST(ConfigText, WarnsWithTheWordsOfTheWarnings) {
  const Configuration configuration = read(breaker_with("slow_calls.slower_than = '5s'\nprobe_timeout = '5s'\n"));
  EXPECT_THAT(configuration.warnings,
              ElementsAre("f.toml:4: breaker 'a': " + warnings(configuration.breakers.at(0)).at(0)));
  EXPECT_THAT(read(breaker_with("")).warnings, IsEmpty());
}

// --- hostile input ---

TEST(ConfigText, RefusesATextThatIsTooLong) {
  const std::string most(kMaxConfigTextBytes, '\n');
  EXPECT_THAT(read(most).breakers, IsEmpty());
  EXPECT_EQ(refusal(most + "\n"), "f.toml: the text is longer than 1048576 bytes");
}

TEST(ConfigText, RefusesNestingThatNobodyNeeds) {
  std::string key = "a";
  for (int i = 0; i < 100'000; ++i)
    key += ".a";
  EXPECT_EQ(refusal("\n" + key + " = 1"), "f.toml:2:130: the line has more than 64 dots");
  EXPECT_EQ(refusal("[" + key + "]"), "f.toml:1:131: the line has more than 64 dots");
  EXPECT_THAT(refusal("a = " + std::string(100'000, '[')), StartsWith("f.toml:1:"));
  std::string tables = "a = ";
  for (int i = 0; i < 10'000; ++i)
    tables += "{ a = ";
  EXPECT_THAT(refusal(tables), StartsWith("f.toml:1:"));
  EXPECT_THAT(read("  # " + std::string(100, '.') + "\n").breakers, IsEmpty());
}

TEST(ConfigText, TakesEveryCharacterInCommentsAndOnlyAsciiElsewhere) {
  EXPECT_THAT(read("# \xc3\xa4 \xff \x01 ''' \r\n  # \xe2\x82\xac\n").breakers, IsEmpty());
  EXPECT_EQ(only("\xef\xbb\xbf[[breaker]]\r\nname = 'a' # \"\xc3\xa4\r\n").name, "a");
  const std::string sentence = "only comments may have characters that are not ASCII";
  EXPECT_EQ(refusal("\n\xc3\xa4 = 1"), "f.toml:2:1: " + sentence);
  EXPECT_EQ(refusal("[[breaker]]\nname = '# \xc3\xa4'"), "f.toml:2:11: " + sentence);
  EXPECT_EQ(refusal("[[breaker]]\nname = \"\\\"# \xc3\xa4\""), "f.toml:2:13: " + sentence);
  EXPECT_EQ(refusal("a = \"\"\"\n\"\"\""), "f.toml:1:5: strings of several lines are not known here");
  EXPECT_EQ(refusal("a = '''b'''"), "f.toml:1:5: strings of several lines are not known here");
}

TEST(ConfigText, TellsACommentFromAStringThatHasItsSign) {
  EXPECT_THAT(refusal("[[breaker]]\nname = \"a#b\"\n"), StartsWith("f.toml:2: breaker 'a#b': name is 'a#b';"));
  EXPECT_THAT(refusal("[[breaker]]\nname = \"a\\\\\" # c\n"), StartsWith("f.toml:2: breaker 'a\\x5c': name is"));
  EXPECT_THAT(refusal("[[breaker]]\nname = 'a\\' # c\n"), StartsWith("f.toml:2: breaker 'a\\x5c': name is"));
}

// --- files ---

TEST(ConfigText, OfAFileIsCalledByItsPath) {
  const std::string path = ::testing::TempDir() + "shmcb-config-text-" + std::to_string(::getpid()) + ".toml";
  std::ofstream{path} << "[[breaker]]\nname = 'a'\nprobe_limit = 0\n";
  const Result<Configuration> refused = read_config(path);
  std::ofstream{path} << "[[breaker]]\nname = 'a'\n";
  const Result<Configuration> accepted = read_config(path);
  std::ofstream{path} << std::string(kMaxConfigTextBytes + 5, '\n');
  const Result<Configuration> too_long = read_config(path);
  ::unlink(path.c_str());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, path + ":3: breaker 'a': probe_limit is 0; it must be from 1 to 32");
  ASSERT_TRUE(accepted);
  EXPECT_EQ(accepted->breakers.at(0).name, "a");
  ASSERT_FALSE(too_long);
  EXPECT_EQ(too_long.error().message, path + ": the text is longer than 1048576 bytes");
}

TEST(ConfigText, OfAFileThatCannotBeReadIsAnErrorOfTheSystem) {
  const Result<Configuration> missing = read_config("/no/such/file");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Errc::system);
  EXPECT_EQ(missing.error().message, "cannot read /no/such/file: No such file or directory");
  const Result<Configuration> folder = read_config("/");
  ASSERT_FALSE(folder);
  EXPECT_EQ(folder.error().message, "cannot read /: Is a directory");
}

TEST(ConfigText, OfTheExampleIsThatOfTheDefaultsWithEveryKnob) {
  const Result<Configuration> example = read_config(SHMCB_TEST_DATA_DIR "/../../examples/breakers.toml");
  ASSERT_TRUE(example) << example.error().message;
  EXPECT_THAT(example->warnings, IsEmpty());
  EXPECT_GE(example->breakers.size(), 2U);
  const BreakerConfig* const plain = example->find("plain");
  ASSERT_NE(plain, nullptr);
  EXPECT_EQ(settings_of(*plain), settings_of({.name = "plain"}));
}

}  // namespace
}  // namespace shmcb
