// SPDX-License-Identifier: BSD-3-Clause
// The harness crowd, in its shortest runs: who ran, and that its counts add up (it compares them itself and fails if
// they do not). No times.
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/run_program.hpp"

namespace shmcb::test {
namespace {

using nlohmann::json;

/// What the harness wrote; it has to end well.
json run_crowd(std::vector<std::string> arguments) {
  const std::string file = ::testing::TempDir() + "crowd-" + std::to_string(::getpid()) + ".json";
  arguments.insert(arguments.end(), {"--launches", "1", "--json", file});
  const ProgramResult result = run_program(SHMCB_CROWD_PATH, arguments);
  EXPECT_EQ(result.exit_code, 0) << result.output << result.errors;
  std::ifstream stream(file);
  json parsed = json::parse(stream);
  std::remove(file.c_str());
  return parsed;
}

TEST(Crowd, RunsEveryContenderInEveryForm) {
  const json result =
      run_crowd({"--milliseconds", "1", "--members", "3", "--pacings", "tight", "--only", "^admit \\+"});
  for (const char* key : {"date", "cpu", "kernel", "compiler", "flags"})
    EXPECT_FALSE(result["machine"][key].get<std::string>().empty()) << key;

  using Key = std::tuple<std::string, std::string, std::string>;
  std::set<Key> seen;
  for (const json& one : result["throughput"]) {
    EXPECT_GT(one["operations_per_second"].get<double>(), 0) << one;
    if (one["operation"] != "admit + record success") continue;
    EXPECT_TRUE(seen.insert(Key{one["form"], one["contender"], one["breakers"]}).second) << one;
  }
  std::set<Key> expected;
  for (const char* breakers : {"one", "each"}) {
    for (const char* contender :
         {"shared memory", "shared memory, lean", "robust pthread mutex", "interprocess_mutex", "spin lock"}) {
      expected.insert({"processes", contender, breakers});
      expected.insert({"threads", contender, breakers});
    }
    expected.insert({"threads", "memory", breakers});
    expected.insert({"threads", "std::mutex", breakers});
  }
  EXPECT_EQ(seen, expected);
}

TEST(Crowd, SubtractsThePacingAndKeepsABreakerThatOnlyFailsClosed) {
  const json result = run_crowd({"--milliseconds", "1", "--members", "2", "--forms", "processes", "--breakers", "one",
                                 "--only", "^record failure, window 10/"});
  std::set<std::string> pacings;
  for (const json& one : result["throughput"]) {
    if (one["operation"] == "floor") continue;
    pacings.insert(one["pacing"]);
    EXPECT_EQ(one["subtracted_ns"].get<double>() > 0, one["pacing"] == "paced") << one;
  }
  EXPECT_EQ(pacings, (std::set<std::string>{"tight", "paced"}));
}

TEST(Crowd, HasTailsOfEveryContenderInEverySituation) {
  const json result = run_crowd({"--tails", "--milliseconds", "10", "--patience", "300", "--members", "3"});
  using Key = std::tuple<std::string, std::string>;
  std::set<Key> seen;
  for (const json& one : result["tails"]) {
    EXPECT_TRUE(seen.insert(Key{one["situation"], one["contender"]}).second) << one;
    EXPECT_GT(one["operations"].get<int>(), 0) << one;
    EXPECT_EQ(one["signals"].get<int>() > 0, one["situation"] != "undisturbed") << one;
    double last = 0;
    for (const char* quantile : {"p50", "p99", "p99.9", "p99.99", "max"}) {
      EXPECT_GE(one[quantile].get<double>(), last) << quantile << " of " << one;
      last = one[quantile].get<double>();
    }
  }
  EXPECT_EQ(seen.size(), 3U * 7U);
}

TEST(Crowd, RefusesWhatItCannotDo) {
  for (const auto& [option, value] : {std::pair{"--members", "65"}, {"--only", "("}, {"--forms", "fibres"}}) {
    const ProgramResult result = run_program(SHMCB_CROWD_PATH, {option, value});
    EXPECT_NE(result.exit_code, 0);
    EXPECT_THAT(result.errors, ::testing::AllOf(::testing::HasSubstr(option), ::testing::HasSubstr(value)));
  }
}

}  // namespace
}  // namespace shmcb::test
