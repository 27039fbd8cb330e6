// SPDX-License-Identifier: BSD-3-Clause
// shmcb-replay from outside: what it prints and how it exits.
#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/exit_codes.hpp"
#include "support/run_program.hpp"

namespace shmcb::test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

/// A trace that holds: a failure opens, then a call is turned away.
const std::string kGood =
    R"({"id":"t-1","config":{"failures":1,"window":2,"within_ms":100,"cooldown_ms":50,"success_threshold":1,)"
    R"("probe_limit":1,"probe_timeout_ms":30},"steps":[)"
    R"({"at_ms":0,"op":"admit","attempt":"a1","expect":{"admission":"allowed","transition":null}},)"
    R"({"at_ms":3,"op":"record","attempt":"a1","outcome":"failure","expect":{"state":"open","opened_at_ms":3,)"
    R"("successes":0,"failures":1,"rejected":0,"transition":{"from":"closed","to":"open",)"
    R"("reason":"failure-threshold-reached","at_ms":3}}},)"
    R"({"at_ms":4,"op":"admit","attempt":"a2","expect":{"admission":"rejected","transition":null}},)"
    R"({"at_ms":5,"op":"force","to":"open","expect":{"transition":null}},)"
    R"({"at_ms":6,"op":"snapshot","expect":{"state":"open","opened_at_ms":5,"successes":0,"failures":0,)"
    R"("rejected":0}}]})";

/// `text` with the first `old_part` replaced; it must be there.
std::string with(std::string text, const std::string& old_part, const std::string& new_part) {
  const std::size_t at = text.find(old_part);
  EXPECT_NE(at, std::string::npos) << old_part;
  return text.replace(at, old_part.size(), new_part);
}

ProgramResult replay(const std::vector<std::string>& arguments, const std::string& input = {}) {
  return run_program(SHMCB_REPLAY_PATH, arguments, input);
}

std::string data(const std::string& file) {
  return SHMCB_TEST_DATA_DIR "/conformance/" + file;
}

TEST(Replay, FindsNoDeviationInTheRecordedTraces) {
  const ProgramResult result = replay({data("agreed.jsonl"), data("strict.jsonl"), data("clock.jsonl")});
  EXPECT_EQ(result.output, "480 traces, 14897 steps, 0 deviations\n");
  EXPECT_EQ(result.errors, "");
  EXPECT_EQ(result.exit_code, tools::exit_ok);
}

TEST(Replay, FindsNoDeviationInTheTracesOfThePoliciesOnAnyStorage) {
  for (const char* storage : {"memory", "shm"}) {
    const ProgramResult result = run_program("/bin/sh", {"-c", "exec \"$0\" --storage \"$1\" \"$2\"/*.jsonl",
                                                         SHMCB_REPLAY_PATH, storage, SHMCB_TEST_DATA_DIR "/policies"});
    EXPECT_THAT(result.output, HasSubstr(", 0 deviations\n"));
    EXPECT_EQ(result.errors, "");
    EXPECT_EQ(result.exit_code, tools::exit_ok);
  }
}

TEST(Replay, FindsNoDeviationInTheExampleOfTheFormat) {
  std::ifstream file{SHMCB_TEST_DATA_DIR "/../../docs/trace-format.md"};
  std::string text{std::istreambuf_iterator<char>{file}, {}};
  const std::size_t begin = text.find("```json\n", text.find("## An example"));
  ASSERT_NE(begin, std::string::npos);
  const std::size_t first = begin + std::string{"```json"}.size();
  std::string trace = text.substr(first, text.find("```", first) - first);
  std::replace(trace.begin(), trace.end(), '\n', ' ');
  for (const char* storage : {"memory", "shm"})
    EXPECT_EQ(replay({"--storage", storage, "-"}, trace).output, "1 traces, 9 steps, 0 deviations\n");
}

TEST(Replay, TakesAStorageByName) {
  EXPECT_EQ(replay({"--storage", "memory", "-"}, kGood).exit_code, tools::exit_ok);
  const ProgramResult unknown = replay({"--storage", "paper", "-"}, kGood);
  EXPECT_EQ(unknown.exit_code, tools::exit_usage);
  EXPECT_THAT(unknown.errors, HasSubstr("paper"));
}

TEST(Replay, ReadsStandardInputForADashAndSkipsBlankLines) {
  const ProgramResult result = replay({"-"}, "\n" + kGood + "\r\n\n" + kGood);
  EXPECT_EQ(result.output, "2 traces, 10 steps, 0 deviations\n");
  EXPECT_EQ(result.exit_code, tools::exit_ok);
}

TEST(Replay, PrintsOneLinePerDeviationAndExitsWithOne) {
  std::string wrong = with(kGood, R"("admission":"allowed")", R"("admission":"probe")");
  wrong = with(wrong, R"("opened_at_ms":3)", R"("opened_at_ms":null)");
  wrong = with(wrong, R"("at_ms":3}}})", R"("at_ms":2}}})");
  wrong =
      with(wrong, R"("to":"open","expect":{"transition":null})",
           R"("to":"open","expect":{"transition":{"from":"open","to":"closed","reason":"forced-closed","at_ms":9}})");
  wrong = with(wrong, R"("rejected":0}}]})", R"("rejected":7}}]})");
  const ProgramResult result = replay({"-"}, wrong);
  EXPECT_EQ(
      result.output,
      "trace t-1, step 1, admission: expected probe, got allowed\n"
      "trace t-1, step 2, transition: expected closed to open (failure-threshold-reached) at 2 ms, got closed to open "
      "(failure-threshold-reached) at 3 ms\n"
      "trace t-1, step 2, opened_at_ms: expected none, got 3\n"
      "trace t-1, step 4, transition: expected open to closed (forced-closed) at 9 ms, got none\n"
      "trace t-1, step 5, rejected: expected 7, got 0\n"
      "1 traces, 5 steps, 5 deviations\n");
  EXPECT_EQ(result.errors, "");
  EXPECT_EQ(result.exit_code, tools::exit_negative);
}

/// A trace with everything that the policies add: a slow failure opens, a mode lets a call through, a probe closes, the
/// ramp turns one away.
const std::string kPolicies =
    R"({"id":"p-1","config":{"failures":0,"window":2,"within_ms":100,"cooldown":{"base_ms":50,"multiplier":2,)"
    R"("maximum_ms":80,"jitter":50,"forget_after_ms":9},"failure_rate":{"percent":100,"minimum_calls":2},)"
    R"("consecutive_failures":{"failures":2},"slow_calls":{"slower_than_ms":4,"percent":100,"minimum_calls":1,)"
    R"("reopen_on_slow_probe":true},"ramp_up":{"duration_ms":10,"start_percent":0},"success_threshold":1,)"
    R"("probe_limit":1,"probe_timeout_ms":30},"steps":[)"
    R"({"at_ms":0,"op":"admit","attempt":"a1","expect":{"admission":"allowed","state":"closed","transition":null}},)"
    R"({"at_ms":5,"op":"record","attempt":"a1","outcome":"failure","draw":500,"expect":{"state":"open",)"
    R"("opened_at_ms":5,"successes":0,"failures":1,"rejected":0,"slow":1,"mode":"automatic","ramping":false,)"
    R"("status":"counted","transition":{"from":"closed","to":"open","reason":"slow-rate-reached","at_ms":5}}},)"
    R"({"at_ms":6,"op":"admit","attempt":"a2","expect":{"admission":"rejected","retry_after_ms":37,)"
    R"("transition":null}},)"
    R"({"at_ms":7,"op":"mode","to":"observe","expires_after_ms":20,"expect":{"previous":"automatic"}},)"
    R"({"at_ms":8,"op":"admit","attempt":"a3","expect":{"admission":"allowed","transition":null}},)"
    R"({"at_ms":43,"op":"admit","attempt":"a4","expect":{"admission":"probe","transition":{"from":"open",)"
    R"("to":"half-open","reason":"cooldown-elapsed","at_ms":43}}},)"
    R"({"at_ms":44,"op":"record","attempt":"a4","outcome":"success","expect":{"state":"closed","opened_at_ms":5,)"
    R"("successes":0,"failures":0,"rejected":0,"ramping":true,"transition":{"from":"half-open","to":"closed",)"
    R"("reason":"probe-succeeded","at_ms":44}}},)"
    R"({"at_ms":45,"op":"admit","attempt":"a5","draw":100,"expect":{"admission":"rejected","retry_after_ms":1,)"
    R"("transition":null}},)"
    R"({"at_ms":45,"op":"admit","attempt":"a6","draw":99,"expect":{"admission":"allowed","transition":null}},)"
    R"({"at_ms":46,"op":"abandon","attempt":"a6","expect":{"state":"closed","opened_at_ms":5,"successes":0,)"
    R"("failures":0,"rejected":0,"status":"ignored","transition":null}},)"
    R"({"at_ms":47,"op":"counters","expect":{"completed":3,"rejected":2,"ramp_rejected":1,"abandoned":1,)"
    R"("in_closed_ms":8,"in_open_ms":38,"transitions":{"slow-rate-reached":1,"probe-failed":0}}}]})";

TEST(Replay, ComparesWhatThePoliciesAdd) {
  for (const char* storage : {"memory", "shm"}) {
    const ProgramResult good = replay({"--storage", storage, "-"}, kPolicies);
    EXPECT_EQ(good.output, "1 traces, 11 steps, 0 deviations\n") << good.errors;
    std::string wrong =
        with(kPolicies, R"("admission":"allowed","state":"closed")", R"("admission":"allowed","state":"open")");
    wrong = with(wrong, R"("slow":1,"mode":"automatic","ramping":false,"status":"counted")",
                 R"("slow":0,"mode":"disabled","ramping":true,"status":"stale")");
    wrong = with(wrong, R"("retry_after_ms":37)", R"("retry_after_ms":50)");
    wrong = with(wrong, R"("previous":"automatic")", R"("previous":"observe")");
    wrong = with(wrong, R"("in_open_ms":38,"transitions":{"slow-rate-reached":1)",
                 R"("in_open_ms":39,"transitions":{"slow-rate-reached":2)");
    EXPECT_EQ(replay({"--storage", storage, "-"}, wrong).output,
              "trace p-1, step 1, state: expected open, got closed\n"
              "trace p-1, step 2, status: expected stale, got counted\n"
              "trace p-1, step 2, slow: expected 0, got 1\n"
              "trace p-1, step 2, mode: expected disabled, got automatic\n"
              "trace p-1, step 2, ramping: expected true, got false\n"
              "trace p-1, step 3, retry_after_ms: expected 50, got 37\n"
              "trace p-1, step 4, previous: expected observe, got automatic\n"
              "trace p-1, step 11, in_open_ms: expected 39, got 38\n"
              "trace p-1, step 11, transitions.slow-rate-reached: expected 2, got 1\n"
              "1 traces, 11 steps, 9 deviations\n");
  }
}

/// Input that cannot be used: nothing runs, and the message names place and field.
void expect_unusable(const std::string& input, const std::string& message) {
  const ProgramResult result = replay({"-"}, input);
  EXPECT_EQ(result.exit_code, tools::exit_unusable_input) << message;
  EXPECT_EQ(result.output, "");
  EXPECT_EQ(result.errors, "shmcb-replay: standard input:" + message + "\n");
}

TEST(Replay, RefusesInputThatIsNotATrace) {
  expect_unusable("", "1: there is no trace in it");
  expect_unusable("{", "1: not valid JSON at column 2");
  expect_unusable(kGood + "\n" + kGood.substr(0, 40), "2: not valid JSON at column 41");
  expect_unusable("[]", "1: the line is not a JSON object");
  expect_unusable("7", "1: the line is not a JSON object");
  expect_unusable("1e999", "1: not valid JSON: a number is out of range");
  expect_unusable("\xff\xfe", "1: not valid JSON at column 1");
  expect_unusable(std::string(100'000, '['), "1: not valid JSON at column 100001");
}

TEST(Replay, NamesTheFieldThatIsWrong) {
  const auto expect_refused = [](const std::string& old_part, const std::string& new_part, const std::string& message) {
    expect_unusable(with(kGood, old_part, new_part), "1: " + message);
  };
  expect_refused(R"("id":"t-1",)", "", "id is missing");
  expect_refused(R"("t-1")", R"("t 1")", "id is 't 1'; it must be 1 to 64 of [A-Za-z0-9_.:-]");
  expect_refused(R"("id")", R"("extra":1,"id")", "'extra' is not a field of a trace");
  expect_refused(R"("window":2,)", "", "config.window is missing");
  expect_refused(R"("window":2)", R"("window":"2")", "config.window is not a whole number");
  expect_refused(R"("window":2)", R"("window":2.0)", "config.window is not a whole number");
  expect_refused(R"("window":2)", R"("window":-2)", "config.window is -2; it must not be negative");
  expect_refused(R"("window":2)", R"("window":4294967296)",
                 "config.window is 4294967296; it must be at most 4294967295");
  expect_refused(
      R"("window":2)", R"("window":0)",
      "config is refused: failure_threshold.window is 0; it must be at least failure_threshold.failures (1)");
  expect_refused(R"("op":"snapshot")", R"("op":"snap")",
                 "steps[5].op is 'snap'; it must be one of admit, record, abandon, snapshot, force, mode, counters");
  expect_refused(R"("op":"snapshot",)", "", "steps[5].op is missing");
  expect_refused(R"({"at_ms":0)", R"({"at_ms":-1)", "steps[1].at_ms is -1; it must not be negative");
  expect_refused(R"({"at_ms":0)", R"({"at_ms":1125899906842625)",
                 "steps[1].at_ms is 1125899906842625; it must be at most 1125899906842624");
  expect_refused(R"("outcome":"failure")", R"("outcome":"crash\n")",
                 "steps[2].outcome is 'crash\\x0a'; it must be one of success, failure, ignored");
  expect_refused(R"("attempt":"a2")", R"("attempt":"a1")", "steps[3].attempt was admitted before");
  expect_refused(R"("attempt":"a1","outcome")", R"("attempt":"a9","outcome")",
                 "steps[2].attempt was not admitted before");
  expect_refused(R"("attempt":"a1","outcome")", R"("attempt":1,"outcome")", "steps[2].attempt is not a string");
  expect_refused(R"("to":"open","expect")", R"("expect")", "steps[4].to is missing");
  expect_refused(R"("expect":{"transition":null})", R"("expect":{})", "steps[4].expect.transition is missing");
  expect_refused(R"("expect":{"transition":null})", R"("expect":null)", "steps[4].expect is not a JSON object");
  expect_refused(R"("reason":"failure-threshold-reached")", R"("reason":"none")",
                 "steps[2].expect.transition.reason is 'none'; it must be one of failure-threshold-reached, "
                 "cooldown-elapsed, probe-succeeded, probe-failed, forced-open, forced-closed, forced-half-open, "
                 "failure-rate-reached, consecutive-failures-reached, slow-rate-reached, probe-slow");
  expect_refused(R"("successes":0)", R"("success":0,"successes":0)",
                 "steps[2].expect.'success' is not a field of a trace");
}

TEST(Replay, NamesTheFieldOfThePoliciesThatIsWrong) {
  const auto expect_refused = [](const std::string& old_part, const std::string& new_part, const std::string& message) {
    expect_unusable(with(kPolicies, old_part, new_part), "1: " + message);
  };
  expect_refused(R"("cooldown":{)", R"("cooldown_ms":50,"cooldown":{)", "config.cooldown_ms stands beside cooldown");
  expect_refused(R"("base_ms":50,)", "", "config.cooldown.base_ms is missing");
  expect_refused(R"("jitter":50)", R"("jitters":50)", "config.cooldown.'jitters' is not a field of a trace");
  expect_refused(R"("maximum_ms":80)", R"("maximum_ms":49)",
                 "config is refused: cooldown.maximum is 49 ms; it must be at least cooldown.base (50 ms)");
  expect_refused(R"("reopen_on_slow_probe":true)", R"("reopen_on_slow_probe":1)",
                 "config.slow_calls.reopen_on_slow_probe is not true or false");
  expect_refused(R"("draw":500)", R"("draw":1000)", "steps[2].draw is 1000; it must be at most 999");
  expect_refused(R"("to":"observe")", R"("to":"watch")",
                 "steps[4].to is 'watch'; it must be one of automatic, forced-open, forced-closed, disabled, observe");
  expect_refused(
      R"("to":"observe")", R"("to":"automatic")",
      "steps[4].op is refused: expires_after is 20 ms; it must be left out for the mode automatic, which has "
      "no end");
  expect_refused(R"("ramp_rejected":1)", R"("ramped":1)", "steps[11].expect.'ramped' is not a counter");
  expect_refused(R"("probe-failed":0)", R"("none":0)", "steps[11].expect.transitions.'none' is not a counter");
  expect_refused(R"("status":"counted")", R"("status":"done")",
                 "steps[2].expect.status is 'done'; it must be one of counted, ignored, stale, rejected");
}

TEST(Replay, RefusesAFileThatCannotBeRead) {
  for (const auto& [path, cause] :
       {std::pair{"/nonexistent/t.jsonl", "No such file or directory"}, std::pair{"/", "Is a directory"}}) {
    const ProgramResult result = replay({path});
    EXPECT_EQ(result.exit_code, tools::exit_unusable_input);
    EXPECT_EQ(result.output, "");
    EXPECT_EQ(result.errors, std::string{"shmcb-replay: "} + path + ": cannot be read: " + cause + "\n");
  }
}

TEST(Replay, RefusesAConfigurationThatTheStorageHasNoRoomFor) {
  const ProgramResult result = replay({"-"}, with(kGood, R"("window":2)", R"("window":4000000000)"));
  EXPECT_EQ(result.exit_code, tools::exit_unusable_input);
  EXPECT_THAT(result.errors,
              StartsWith("shmcb-replay: standard input:1: no storage for trace t-1: failure_threshold.window "));
}

TEST(Replay, SaysHowItIsUsed) {
  EXPECT_EQ(replay({}).exit_code, tools::exit_usage);
  EXPECT_EQ(replay({"--nonsense", "-"}, kGood).exit_code, tools::exit_usage);
  const ProgramResult help = replay({"--help"});
  EXPECT_EQ(help.exit_code, tools::exit_ok);
  EXPECT_THAT(help.output, HasSubstr("shmcb-replay [OPTIONS] FILE..."));
}

TEST(Replay, FailsWhenItsOutputIsLost) {
  const ProgramResult result = run_program("/bin/sh", {"-c", "exec \"$0\" - >/dev/full", SHMCB_REPLAY_PATH}, kGood);
  EXPECT_EQ(result.exit_code, tools::exit_io);
  EXPECT_THAT(result.errors, StartsWith("shmcb-replay: standard output: "));
}

}  // namespace
}  // namespace shmcb::test
