// SPDX-License-Identifier: BSD-3-Clause
// The demo is a check too: its exit code is the verdict. Here from outside, with short times.
#include <signal.h>

#include <filesystem>
#include <regex>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/run_program.hpp"
#include "tools/started_program.hpp"

namespace shmcb::test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class WorkerPool : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto build = std::filesystem::path{SHMCB_RUN_PATH}.parent_path().parent_path();
    program_ = build / "examples" / "worker_pool";
    if (!std::filesystem::exists(program_)) GTEST_SKIP() << program_ << " is not built: SHMCB_BUILD_EXAMPLES is OFF";
  }

  /// The segment that an output names, as a file.
  static std::filesystem::path segment_in(const std::string& output) {
    std::smatch found;
    EXPECT_TRUE(std::regex_search(output, found, std::regex{"in segment '([^']+)'"})) << output;
    return "/dev/shm/shmcb." + found[1].str();
  }

  std::string program_;
};

TEST_F(WorkerPool, ShowsThatTheSharedBreakerOpensInTimeAndRecovers) {
  const ProgramResult result = run_program(program_, {"--quick"});
  EXPECT_EQ(result.exit_code, 0) << result.output << result.errors;
  EXPECT_EQ(result.errors, "");
  EXPECT_THAT(result.output, ContainsRegex("\nhang +shared +[0-9]+ +[0-9]+ +[0-9.]+ s +[0-9]+ +[0-9.]+ s\n"));
  EXPECT_THAT(result.output, ContainsRegex("\n +per process +[0-9]+ +[0-9]+ +[0-9.]+ s +[0-9]+ +[0-9.]+ s\n"));
  EXPECT_THAT(result.output, HasSubstr("OK: the shared pool opened in time"));
  EXPECT_FALSE(std::filesystem::exists(segment_in(result.output)));
}

TEST_F(WorkerPool, CountsThePoolsFailuresTogether) {
  // One failure each opens the shared breaker; a worker alone needs four.
  const ProgramResult result =
      run_program(program_, {"--quick", "--workers=4", "--failures=4", "--outages", "kill,hang"});
  EXPECT_EQ(result.exit_code, 0) << result.output << result.errors;
  EXPECT_THAT(result.output, HasSubstr("opened by 4 failures of the whole pool: all 4 workers are protected"));
  EXPECT_THAT(result.output, HasSubstr("all 4 workers are protected, after 16 failures"));
}

TEST_F(WorkerPool, LeavesNothingWhenItIsInterrupted) {
  StartedProgram demo{program_, {}};
  const auto segment = segment_in(demo.line());
  EXPECT_TRUE(wait_until([&] { return std::filesystem::exists(segment); }));
  demo.send(SIGINT);
  EXPECT_EQ(demo.wait(), exited(128 + SIGINT));
  EXPECT_TRUE(demo.rest().complete);  // no worker has its output open any more
  EXPECT_FALSE(std::filesystem::exists(segment));
}

TEST_F(WorkerPool, RefusesWhatItDoesNotKnow) {
  for (const char* argument : {"--workers=0", "--failures=x", "--outages=rain", "--outages=", "--fast", "--workers"}) {
    EXPECT_EQ(run_program(program_, {argument}).exit_code, 64) << argument;
  }
}

}  // namespace
}  // namespace shmcb::test
