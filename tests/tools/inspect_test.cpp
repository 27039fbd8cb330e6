// SPDX-License-Identifier: BSD-3-Clause
// shmcb-inspect from outside: what it prints and how it exits.
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <optional>
#include <regex>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/exit_codes.hpp"
#include "shmcb/core/journal.hpp"
#include "shmcb/segment_reader.hpp"
#include "shmcb/shm_storage.hpp"
#include "support/processes.hpp"
#include "support/run_program.hpp"
#include "support/test_segment.hpp"

namespace shmcb::test {
namespace {

using std::chrono::hours;
using std::chrono::seconds;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Storage = ShmStorage<FakeClock>;

ProgramResult inspect(const std::vector<std::string>& arguments) {
  return run_program(SHMCB_INSPECT_PATH, arguments);
}

void expect_refused(const std::vector<std::string>& arguments, int exit_code, const std::string& sentence) {
  const ProgramResult result = inspect(arguments);
  EXPECT_EQ(result.exit_code, exit_code) << sentence;
  EXPECT_EQ(result.output, "");
  EXPECT_EQ(result.errors, "shmcb-inspect: " + sentence + "\n");
}

/// JSON with <ns> for each age and for what is left of a cooldown.
std::string without_ages(const std::string& json) {
  return std::regex_replace(
      json,
      std::regex{
          R"re(("(state_age_ns|opened_age_ns|lease_age_ns|age_ns|in_[a-z_]+_ns)": |"cooldown_left_ns": (?!0))\d+)re"},
      "$1<ns>");
}

/// The seconds of a text's ages, all between one and two minutes, as XX.
std::string without_seconds(const std::string& text) {
  return std::regex_replace(text, std::regex{R"(1m\d\ds)"}, "1mXXs");
}

/// A segment with a breaker in each state. They got there more than a minute ago, so that all times are of one width
/// for the next 45 seconds.
class Inspect : public ::testing::Test {
 protected:
  Inspect() {
    at(seconds{70});
    Storage gamma = open({.name = "gamma",
                          .cooldown = {seconds{1}},
                          .success_threshold = 2,
                          .probe_limit = 2,
                          .probe_timeout = hours{1}});
    record(gamma, "xxxxx");
    Storage beta = open({.name = "beta:2",
                         .failure_threshold = {.failures = 3, .window = 5, .within = hours{1}},
                         .cooldown = {hours{10}}});
    record(beta, ".xxx");
    (void)beta.admit();
    (void)beta.admit();
    at(seconds{65});
    probe_ = gamma.admit().token.period;
    at(seconds{60});
    Storage alpha = open({.name = "alpha",
                          .failure_threshold = {.failures = 5, .window = 100, .within = hours{1}},
                          .config_revision = 3});
    record(alpha, ".x.x..");
    EXPECT_EQ(gamma.snapshot().record.state, CircuitState::half_open);
  }

  void SetUp() override {
    if (start_ < Instant{seconds{90}}) GTEST_SKIP() << "the machine has been up for less than 90 seconds";
  }

  /// From now on things happen as if it were that long ago, and a second.
  void at(seconds ago) { clock_.set(start_ - ago - seconds{1}); }

  [[nodiscard]] Storage open(const BreakerConfig& config) const {
    auto storage = Storage::open(segment_.segment(), config, OnMismatch::refuse, clock_);
    if (!storage) throw std::runtime_error(storage.error().message);
    return *std::move(storage);
  }
  static void record(Storage& storage, const std::string& outcomes) {
    for (const char c : outcomes) {
      (void)storage.record_outcome(storage.admit().token, c == 'x' ? Outcome::failure : Outcome::success);
    }
  }
  [[nodiscard]] ProgramResult run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--segment", name_});
    return inspect(arguments);
  }
  [[nodiscard]] std::string creation_id() const { return SegmentReader::open(segment_.options())->creation_id(); }

  Instant start_ = SystemClock{}.now();
  FakeClock clock_;
  TestSegment segment_{SegmentOptions{
      .breakers = 4, .ring_slots = 1024, .participants = 4, .mode = 0640, .epoch = start_ - seconds{90}}};
  std::string name_ = *segment_.options().name;
  std::uint64_t probe_ = 0;
};

TEST_F(Inspect, ListsAllBreakersByName) {
  const ProgramResult result = run({"list"});
  EXPECT_EQ(without_seconds(result.output),
            "NAME    STATE      SINCE  FAILURES/WINDOW  SUCCESSES  REJECTED  COOLDOWN-LEFT  PROBES\n"
            "alpha   closed     1mXXs            2/100          4         0              -     0/1\n"
            "beta:2  open       1mXXs              3/5          1         2          9h58m     0/1\n"
            "gamma   half-open  1mXXs                -          0         0              -     1/2\n");
  EXPECT_EQ(result.errors, "");
  EXPECT_EQ(result.exit_code, tools::exit_ok);
}

TEST_F(Inspect, ListsAllBreakersAsJson) {
  const ProgramResult result = run({"list", "-o", "json"});
  EXPECT_EQ(result.errors, "");
  EXPECT_EQ(result.exit_code, tools::exit_ok);
  const auto json = nlohmann::ordered_json::parse(result.output);
  EXPECT_EQ(json["schema"], "shmcb-inspect/list/1");
  EXPECT_EQ(json["segment"], (nlohmann::ordered_json{{"name", name_}, {"creation_id", creation_id()}}));
  ASSERT_EQ(json["breakers"].size(), 3U);
  EXPECT_EQ(without_ages(json["breakers"][1].dump(2)), R"({
  "name": "beta:2",
  "place": 1,
  "error": null,
  "state": "open",
  "mode": "automatic",
  "mode_left_ns": null,
  "mode_who": "",
  "mode_why": "",
  "ramping": false,
  "generation": 1,
  "state_age_ns": <ns>,
  "opened_age_ns": <ns>,
  "lease_age_ns": null,
  "successes": 1,
  "failures": 3,
  "slow": 0,
  "rejected": 2,
  "counters": {
    "completed": 4,
    "successes": 1,
    "failures": 3,
    "ignored": 0,
    "stale": 0,
    "rejected": 2,
    "ramp_rejected": 0,
    "abandoned": 0,
    "probes": 0,
    "probe_verdicts": 0,
    "transitions": {
      "failure-threshold-reached": 1,
      "cooldown-elapsed": 0,
      "probe-succeeded": 0,
      "probe-failed": 0,
      "forced-open": 0,
      "forced-closed": 0,
      "forced-half-open": 0,
      "failure-rate-reached": 0,
      "consecutive-failures-reached": 0,
      "slow-rate-reached": 0,
      "probe-slow": 0
    },
    "in_closed_ns": <ns>,
    "in_open_ns": <ns>,
    "in_half_open_ns": <ns>
  },
  "cooldown_left_ns": <ns>,
  "probes": [],
  "settings": {
    "failures": 3,
    "window": 5,
    "within_ns": 3600000000000,
    "failure_rate_percent": 0,
    "failure_rate_minimum_calls": 0,
    "consecutive_failures": 0,
    "slow_percent": 0,
    "slow_minimum_calls": 0,
    "slower_than_ns": 0,
    "reopen_on_slow_probe": false,
    "cooldown_ns": 36000000000000,
    "cooldown_multiplier": 1,
    "cooldown_maximum_ns": 0,
    "cooldown_jitter_percent": 0,
    "forget_after_ns": 0,
    "success_threshold": 1,
    "probe_limit": 1,
    "probe_timeout_ns": 36000000000000,
    "reclaim_dead_probes": false,
    "ramp_ns": 0,
    "ramp_start_percent": 0,
    "accounting": "exact",
    "revision": 0
  },
  "ring_slots": 16,
  "memory_bytes": 1280
})");
  const auto age = json["breakers"][1]["state_age_ns"].get<std::int64_t>();
  EXPECT_GE(age, std::chrono::nanoseconds{seconds{70}}.count());
  EXPECT_EQ(json["breakers"][0]["name"], "alpha");
  EXPECT_GE(json["breakers"][0]["state_age_ns"].get<std::int64_t>(), std::chrono::nanoseconds{seconds{60}}.count());
  EXPECT_EQ(json["breakers"][2]["probes"],
            nlohmann::ordered_json::parse(R"([{"id":)" + std::to_string(probe_) + R"(,"process":0,"pid":)" +
                                          std::to_string(::getpid()) + R"(,"foreign_pid_namespace":false}])"));
}

TEST_F(Inspect, ShowsAClosedBreakerOnOneScreen) {
  const ProgramResult result = run({"show", "alpha"});
  EXPECT_EQ(without_seconds(result.output),
            "breaker     alpha\n"
            "segment     " +
                name_ +
                ", place 2\n"
                "state       closed for 1mXXs; never opened or forced\n"
                "mode        automatic\n"
                "counts      2 failures, 4 successes, of the last 100 within 1h00m\n"
                "window      .x.x..\n"
                "            oldest first; x failure, s slow, . success\n"
                "ages        1mXXs to 1mXXs\n"
                "rejected    0 in this outage\n"
                "probes      0 of 1 out\n"
                "settings    failures 5, window 100, within 3600000ms\n"
                "            cooldown 30000ms\n"
                "            success threshold 1, probe limit 1, probe timeout 30000ms\n"
                "            revision 3\n"
                "lifetime    6 completed: 4 ok, 2 failed, 0 ignored, 0 stale; 0 rejected, 0 in ramps, 0 abandoned\n"
                "memory      2176 bytes, 128 ring slots\n"
                "generation  0\n"
                "events      none in the journal\n");
  EXPECT_EQ(result.errors, "");
  EXPECT_EQ(result.exit_code, tools::exit_ok);
}

TEST_F(Inspect, ShowsAnOpenAndAHalfOpenBreaker) {
  EXPECT_THAT(without_seconds(run({"show", "beta:2"}).output),
              AllOf(HasSubstr("state       open for 1mXXs; 9h58m of the cooldown left\n"),
                    HasSubstr("window      .xxx\n"), HasSubstr("rejected    2 in this outage\n")));
  EXPECT_THAT(without_seconds(run({"show", "gamma"}).output),
              AllOf(HasSubstr("state       half-open for 1mXXs; newest lease 1mXXs old\n"),
                    HasSubstr("counts      0 successful probes of 2\n"), HasSubstr("window      empty\n"),
                    HasSubstr("probes      1 of 2 out: process 0 (pid " + std::to_string(::getpid()) + ")\n")));
}

TEST_F(Inspect, ShowsTheNewestOutcomesOfALargeWindow) {
  at(seconds{0});
  Storage alpha = open(
      {.name = "alpha", .failure_threshold = {.failures = 5, .window = 100, .within = hours{1}}, .config_revision = 3});
  record(alpha, std::string(99, '.') + "x");
  EXPECT_THAT(run({"show", "alpha"}).output,
              HasSubstr("window      ..." + std::string(63, '.') + "x (and 36 before)\n"));
}

TEST_F(Inspect, ShowsABreakerAsJson) {
  const ProgramResult result = run({"show", "alpha", "-o", "json"});
  EXPECT_EQ(result.exit_code, tools::exit_ok);
  EXPECT_EQ(without_ages(result.output), R"({
  "schema": "shmcb-inspect/show/1",
  "segment": {
    "name": ")" + name_ + R"(",
    "creation_id": ")" + creation_id() + R"("
  },
  "breaker": {
    "name": "alpha",
    "place": 2,
    "error": null,
    "state": "closed",
    "mode": "automatic",
    "mode_left_ns": null,
    "mode_who": "",
    "mode_why": "",
    "ramping": false,
    "generation": 0,
    "state_age_ns": <ns>,
    "opened_age_ns": null,
    "lease_age_ns": null,
    "successes": 4,
    "failures": 2,
    "slow": 0,
    "rejected": 0,
    "counters": {
      "completed": 6,
      "successes": 4,
      "failures": 2,
      "ignored": 0,
      "stale": 0,
      "rejected": 0,
      "ramp_rejected": 0,
      "abandoned": 0,
      "probes": 0,
      "probe_verdicts": 0,
      "transitions": {
        "failure-threshold-reached": 0,
        "cooldown-elapsed": 0,
        "probe-succeeded": 0,
        "probe-failed": 0,
        "forced-open": 0,
        "forced-closed": 0,
        "forced-half-open": 0,
        "failure-rate-reached": 0,
        "consecutive-failures-reached": 0,
        "slow-rate-reached": 0,
        "probe-slow": 0
      },
      "in_closed_ns": <ns>,
      "in_open_ns": <ns>,
      "in_half_open_ns": <ns>
    },
    "cooldown_left_ns": 0,
    "probes": [],
    "settings": {
      "failures": 5,
      "window": 100,
      "within_ns": 3600000000000,
      "failure_rate_percent": 0,
      "failure_rate_minimum_calls": 0,
      "consecutive_failures": 0,
      "slow_percent": 0,
      "slow_minimum_calls": 0,
      "slower_than_ns": 0,
      "reopen_on_slow_probe": false,
      "cooldown_ns": 30000000000,
      "cooldown_multiplier": 1,
      "cooldown_maximum_ns": 0,
      "cooldown_jitter_percent": 0,
      "forget_after_ns": 0,
      "success_threshold": 1,
      "probe_limit": 1,
      "probe_timeout_ns": 30000000000,
      "reclaim_dead_probes": false,
      "ramp_ns": 0,
      "ramp_start_percent": 0,
      "accounting": "exact",
      "revision": 3
    },
    "ring_slots": 128,
    "memory_bytes": 2176,
    "window": [
      {
        "failure": false,
        "slow": false,
        "age_ns": <ns>
      },
      {
        "failure": true,
        "slow": false,
        "age_ns": <ns>
      },
      {
        "failure": false,
        "slow": false,
        "age_ns": <ns>
      },
      {
        "failure": true,
        "slow": false,
        "age_ns": <ns>
      },
      {
        "failure": false,
        "slow": false,
        "age_ns": <ns>
      },
      {
        "failure": false,
        "slow": false,
        "age_ns": <ns>
      }
    ],
    "events": []
  }
}
)");
}

TEST_F(Inspect, ShowsTheNewestEventsOfABreaker) {
  const std::string pid = std::to_string(::getpid());
  const auto shown = [&](const std::string& name) {
    const std::regex wall{R"re(20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ)re"};
    return std::regex_replace(run({"show", name}).output, wall, "<wall>");
  };
  EXPECT_THAT(shown("gamma"),
              EndsWith("events      <wall> #1 closed to open, failure-threshold-reached, pid " + pid +
                       "\n            <wall> #2 open to half-open, cooldown-elapsed, pid " + pid + "\n"));
  Storage beta = open({.name = "beta:2",
                       .failure_threshold = {.failures = 3, .window = 5, .within = hours{1}},
                       .cooldown = {hours{10}}});
  for (int i = 0; i < 20; ++i)
    ASSERT_EQ(beta.force_state(CircuitState::closed).error, Errc::ok);
  EXPECT_THAT(shown("beta:2"), HasSubstr("events      <wall> #12 forced from closed to closed, pid " + pid + "\n"));
  const auto json = nlohmann::json::parse(run({"show", "beta:2", "-o", "json"}).output)["breaker"]["events"];
  ASSERT_EQ(json.size(), 21U);
  EXPECT_EQ(json[0]["number"], 1);
  EXPECT_EQ(json[0]["kind"], "transition");
  EXPECT_EQ(json[1]["kind"], "forced");
  EXPECT_EQ(json[1]["from"], "open");
  EXPECT_EQ(json[1]["reason"], "forced-closed");
  EXPECT_EQ(json[20]["pid"], ::getpid());
  EXPECT_EQ(json[20]["mode_ns"], nullptr);
}

TEST_F(Inspect, ShowsWhoForcedAStateAndWhyWithoutWhatATerminalWouldObey) {
  core::Journal<core::StdEnv> journal(segment_->view(), segment_->presence());
  journal.write({.kind = EventKind::forced,
                 .from = CircuitState::closed,
                 .to = CircuitState::open,
                 .breaker = 2,
                 .number = 1,
                 .note = core::NoteText::of({.who = "op\x1b[2J", .why = "roll-out \xff"})});
  const std::string expected =
      "forced from closed to open, pid " + std::to_string(::getpid()) + ", by op\\x1b[2J: roll-out \\xff\n";
  EXPECT_THAT(run({"show", "alpha"}).output, EndsWith(expected));
  const auto json = nlohmann::json::parse(run({"show", "alpha", "-o", "json"}).output)["breaker"]["events"];
  EXPECT_EQ(json[0]["who"], "op\\x1b[2J");
  EXPECT_EQ(json[0]["why"], "roll-out \\xff");
}

TEST_F(Inspect, SaysThatABreakerDoesNotExist) {
  expect_refused({"show", "delta", "-s", name_}, tools::exit_negative,
                 "segment '" + name_ + "': breaker 'delta' does not exist");
  expect_refused({"show", "\x1b[2J", "-s", name_}, tools::exit_negative,
                 "segment '" + name_ + "': breaker '\\x1b[2J' does not exist");
}

TEST_F(Inspect, ShowsWhatTheSegmentIsMadeOf) {
  const ProgramResult result = run({"info"});
  EXPECT_EQ(result.exit_code, tools::exit_ok);
  EXPECT_THAT(result.output, StartsWith("segment      " + name_ + "\nfile         " + segment_.path() + ", "));
  EXPECT_THAT(result.output, HasSubstr("mode 0640, uid " + std::to_string(::geteuid())));
  EXPECT_THAT(result.output, HasSubstr("creation id  " + creation_id() + "\n"));
  EXPECT_THAT(result.output,
              EndsWith("breakers     3 registered, 3 of 4 places used\n"
                       "ring slots   160 of 1024 given out\n"
                       "records      11 free, 3 current, 0 held by live processes, 0 left behind by the dead\n"
                       "journal      4096 entries, 3 written since the creation\n"
                       "processes    1 of 4 entries in use, 1 alive\n"
                       "             0: pid " +
                       std::to_string(::getpid()) + ", alive\n"));
  const auto json = nlohmann::json::parse(run({"info", "-o", "json"}).output);
  EXPECT_EQ(json["schema"], "shmcb-inspect/info/1");
  EXPECT_EQ(json["records_current"], 3);
  EXPECT_EQ(json["mode"], 0640);
  EXPECT_EQ(json["journal_entries"], 4096);
  EXPECT_EQ(json["journal_next"], 3);
  EXPECT_EQ(json["processes"][0]["pid"], ::getpid());
}

TEST_F(Inspect, PrintsTheGoodBreakersAndEscapesTheCorruptOne) {
  auto& name = segment_->view().breaker(2)->name[0];
  name.store(name.load(std::memory_order_relaxed) ^ ('a' ^ 0x1bU), std::memory_order_relaxed);
  const std::string sentence = "breaker '\\x1blpha': its name is not one";
  ProgramResult result = run({"list"});
  EXPECT_EQ(result.exit_code, tools::exit_data);
  EXPECT_EQ(result.errors, "shmcb-inspect: " + sentence + "\n");
  EXPECT_THAT(
      result.output,
      HasSubstr("\n\\x1blpha  corrupt        -                -          -         -              -       -\n"));
  EXPECT_THAT(result.output, HasSubstr("\nbeta:2    open "));
  result = run({"list", "-o", "json"});
  EXPECT_EQ(result.exit_code, tools::exit_data);
  const auto json = nlohmann::json::parse(result.output);
  EXPECT_EQ(json["breakers"][0]["name"], "\\x1blpha");
  EXPECT_EQ(json["breakers"][0]["error"], (nlohmann::json{{"code", "corrupt"}, {"message", sentence}}));
  EXPECT_EQ(json["breakers"][0]["state"], nullptr);
  EXPECT_EQ(json["breakers"][0].size(), json["breakers"][1].size());
}

TEST_F(Inspect, TakesTheSegmentFromTheEnvironmentUnlessOneIsNamed) {
  ::setenv("SHMCB_SEGMENT", name_.c_str(), 1);
  EXPECT_THAT(inspect({"list"}).output, HasSubstr("\nalpha "));
  expect_refused({"list", "--segment", name_ + "-other"}, tools::exit_no_input,
                 "segment '" + name_ + "-other' does not exist (" + segment_.path() + "-other)");
  const std::string rule = "segment name is empty; it must be at least one of [A-Za-z0-9._-]";
  expect_refused({"list", "--segment", ""}, tools::exit_usage, rule);
  expect_refused({"--segment", "", "list"}, tools::exit_usage, rule);
  ::unsetenv("SHMCB_SEGMENT");
  EXPECT_THAT(inspect({"--segment", name_, "list"}).output, HasSubstr("\nalpha "));
}

TEST_F(Inspect, RefusesASegmentOfAStrangerUnlessTrusted) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  ASSERT_EQ(::chown(segment_.path().c_str(), 54'321, static_cast<gid_t>(-1)), 0);
  expect_refused(
      {"list", "-s", name_}, tools::exit_no_permission,
      "segment '" + name_ + "': owner is uid 54321, expected uid 0, root or a trusted owner (--trust-owner)");
  EXPECT_EQ(run({"list", "--trust-owner", "54321"}).exit_code, tools::exit_ok);
  EXPECT_EQ(run({"list", "--trust-owner", "nobody", "--trust-owner", "54321"}).exit_code, tools::exit_ok);
}

TEST_F(Inspect, RefusesAFileThatIsCutShort) {
  const std::uint64_t bytes = segment_->geometry().total_bytes;
  segment_.detach();
  ASSERT_EQ(::truncate(segment_.path().c_str(), 8192), 0);
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"list"}, {"show", "alpha"}, {"info"}}) {
    std::vector<std::string> arguments = command;
    arguments.insert(arguments.end(), {"-s", name_});
    expect_refused(arguments, tools::exit_data,
                   "segment '" + name_ + "': size is 8192 bytes, expected " + std::to_string(bytes));
  }
}

TEST_F(Inspect, FailsWhenItsOutputIsLost) {
  for (const char* command : {"list", "info", "list -o json", "show alpha"}) {
    const ProgramResult result = run_program(
        "/bin/sh", {"-c", "exec " SHMCB_INSPECT_PATH " " + std::string{command} + " -s " + name_ + " >/dev/full"});
    EXPECT_EQ(result.exit_code, tools::exit_io);
    EXPECT_THAT(result.errors, StartsWith("shmcb-inspect: standard output: "));
  }
}

// ---- create and rm ------------------------------------------------------------------------------

/// A name with no segment yet.
class InspectChanges : public ::testing::Test {
 protected:
  ~InspectChanges() override { (void)Segment::remove(options_); }

  SegmentOptions options_{.name = unique_segment_name()};
  std::string name_ = *options_.name;
  std::string path_ = "/dev/shm/shmcb." + name_;
};

TEST_F(InspectChanges, CreateASegmentAsToldAndRemoveIt) {
  ProgramResult result =
      inspect({"create", "--segment", name_, "--breakers", "10", "--ring-slots", "4096", "--participants", "20",
               "--journal", "64", "--mode", "0660", "--group", std::to_string(::getegid())});
  EXPECT_EQ(result.exit_code, tools::exit_ok);
  EXPECT_EQ(result.errors, "");
  const auto info = SegmentReader::open(options_)->info();
  ASSERT_TRUE(info);
  EXPECT_EQ(info->geometry, core::geometry_of(10, 20, 4096, 64));
  EXPECT_EQ(info->mode, 0660U);
  EXPECT_EQ(info->group, ::getegid());
  EXPECT_EQ(result.output, "segment '" + name_ + "' created: " + std::to_string(info->geometry.total_bytes) +
                               " bytes for 10 breakers, 4096 ring slots and 20 processes\n");

  expect_refused({"create", "-s", name_}, tools::exit_cannot_create, "segment '" + name_ + "' exists already");

  result = inspect({"rm", "-s", name_, "--yes"});
  EXPECT_EQ(result.output, "segment '" + name_ + "' removed\n");
  EXPECT_EQ(result.errors, "");
  EXPECT_EQ(result.exit_code, tools::exit_ok);
  expect_refused({"rm", "-s", name_, "--yes"}, tools::exit_no_input,
                 "segment '" + name_ + "' does not exist (" + path_ + ")");
}

TEST_F(InspectChanges, CreateTakesAGroupByName) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file to any group";
  EXPECT_EQ(inspect({"create", "-s", name_, "--mode", "640", "--group", "daemon"}).exit_code, tools::exit_ok);
  EXPECT_EQ(SegmentReader::open(options_)->info()->group, 1U);  // Debian's base-passwd
}

TEST_F(InspectChanges, CreateRefusesImpossibleCapacitiesAndLeavesNothing) {
  const std::string who = "segment '" + name_ + "': ";
  expect_refused({"create", "-s", name_, "--breakers", "0"}, tools::exit_usage,
                 who + "breakers is 0; it must be from 1 to 900000");
  expect_refused({"create", "-s", name_, "--participants", "40000"}, tools::exit_usage,
                 who + "participants is 40000; it must be from 1 to 32768");
  expect_refused({"create", "-s", name_, "--journal", "100"}, tools::exit_usage,
                 who + "journal_entries is 100; it must be a power of two from 16 to 1048576");
  expect_refused({"create", "-s", name_, "--mode", "0400"}, tools::exit_usage,
                 who + "mode is 0400; it must be 0600, with read and write bits for group and others as wanted");
  EXPECT_NE(::access(path_.c_str(), F_OK), 0);
}

TEST_F(InspectChanges, CreateRefusesWhatExceedsTheFileSizeLimit) {
  const ProgramResult result =
      run_program("/bin/sh", {"-c", "ulimit -f 16; exec " SHMCB_INSPECT_PATH " create -s " + name_});
  EXPECT_EQ(result.exit_code, tools::exit_io);
  EXPECT_EQ(result.output, "");
  EXPECT_THAT(result.errors,
              AllOf(StartsWith("shmcb-inspect: segment '" + name_ + "': its size is "), HasSubstr("RLIMIT_FSIZE")));
  EXPECT_NE(::access(path_.c_str(), F_OK), 0);
}

TEST_F(InspectChanges, RefuseWhatIsNotASegment) {
  std::ofstream(path_) << std::string(8192, '\0');
  ::chmod(path_.c_str(), 0600);
  const std::string sentence = "segment '" + name_ + "': magic is 0x0000000000000000, expected 0x47455342434d4853";
  expect_refused({"list", "-s", name_}, tools::exit_data, sentence);
  expect_refused({"show", "a", "-s", name_}, tools::exit_data, sentence);
  expect_refused({"info", "-s", name_}, tools::exit_data, sentence);
  expect_refused({"create", "-s", name_}, tools::exit_cannot_create, "segment '" + name_ + "' exists already");
  EXPECT_EQ(inspect({"rm", "-s", name_, "--yes"}).exit_code, tools::exit_ok);  // what cannot be used can be removed
  ASSERT_EQ(::mkdir(path_.c_str(), 0700), 0);
  EXPECT_EQ(inspect({"rm", "-s", name_, "--yes"}).exit_code, tools::exit_data);
  EXPECT_EQ(::rmdir(path_.c_str()), 0);
}

TEST_F(InspectChanges, RmRemovesOnlyTheSegmentWithTheCreationIdThatIsAskedFor) {
  const TestSegment segment{{.name = name_, .breakers = 1, .participants = 1}};
  const std::string id = SegmentReader::open(options_)->creation_id();
  expect_refused({"rm", "-s", name_, "--yes", "--creation-id", "0123"}, tools::exit_negative,
                 "segment '" + name_ + "' has the creation id " + id + "; not removed");
  EXPECT_EQ(segment->status(), SegmentStatus::current);
  EXPECT_EQ(inspect({"rm", "-s", name_, "--yes", "--creation-id", id}).exit_code, tools::exit_ok);
  EXPECT_EQ(segment->status(), SegmentStatus::removed);
}

/// Runs shmcb-inspect on a terminal of its own, on which `answer` is typed.
ProgramResult inspect_on_terminal(const std::vector<std::string>& arguments, const std::string& answer) {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (terminal < 0 || ::grantpt(terminal) != 0 || ::unlockpt(terminal) != 0) throw std::runtime_error("no terminal");
  const std::string side = ::ptsname(terminal);
  Child child = fork_child([&] {
    ::setsid();
    const int fd = ::open(side.c_str(), O_RDWR);
    for (const int stream : {0, 1, 2})
      ::dup2(fd, stream);
    std::vector<std::string> words{SHMCB_INSPECT_PATH};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words)
      argv.push_back(word.data());
    argv.push_back(nullptr);
    ::execv(argv[0], argv.data());
    return tools::exit_cannot_run;
  });
  EXPECT_EQ(::write(terminal, answer.data(), answer.size()), static_cast<ssize_t>(answer.size()));
  ProgramResult result{.exit_code = child.wait().exit_code};
  ::fcntl(terminal, F_SETFL, O_NONBLOCK);
  std::vector<char> screen(4096);
  const ssize_t got = ::read(terminal, screen.data(), screen.size());
  if (got > 0) result.output.assign(screen.data(), static_cast<std::size_t>(got));
  ::close(terminal);
  return result;
}

TEST_F(InspectChanges, RmAsksOnATerminal) {
  const TestSegment segment{{.name = name_, .breakers = 1, .participants = 1}};
  ProgramResult result = inspect_on_terminal({"rm", "-s", name_}, "n\n");
  EXPECT_EQ(result.exit_code, tools::exit_negative);
  EXPECT_THAT(result.output, HasSubstr("Remove segment '" + name_ + "' with 0 breakers, created "));
  EXPECT_THAT(result.output, HasSubstr("; 1 process is attached and would go on with it alone? [y/N] "));
  EXPECT_EQ(segment->status(), SegmentStatus::current);
  result = inspect_on_terminal({"rm", "-s", name_}, "\x04");  // end of input
  EXPECT_EQ(result.exit_code, tools::exit_negative);
  EXPECT_EQ(segment->status(), SegmentStatus::current);
  result = inspect_on_terminal({"rm", "-s", name_}, "y\n");
  EXPECT_EQ(result.exit_code, tools::exit_ok);
  EXPECT_EQ(segment->status(), SegmentStatus::removed);
}

TEST_F(InspectChanges, RmWithoutATerminalWantsToBeTold) {
  const TestSegment segment{{.name = name_, .breakers = 1, .participants = 1}};
  expect_refused({"rm", "-s", name_}, tools::exit_usage, "rm needs --yes where there is no terminal to ask on");
  EXPECT_EQ(segment->status(), SegmentStatus::current);
}

TEST(InspectUsage, IsRefusedWhereItIsWrong) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{},
                                             {"nonsense"},
                                             {"list", "extra"},
                                             {"show"},
                                             {"list", "-o", "xml"},
                                             {"list", "--yes"},
                                             {"create", "-o", "json"},
                                             {"create", "--breakers", "many"},
                                             {"create", "--breakers", "-1"},
                                             {"create", "--mode", "0999"},
                                             {"create", "--mode", ""},
                                             {"create", "--group", "no-such-group"},
                                             {"list", "--trust-owner", "no-such-user"},
                                             {"list", "--segment", "a/b"}}) {
    const ProgramResult result = inspect(arguments);
    EXPECT_EQ(result.exit_code, tools::exit_usage) << ::testing::PrintToString(arguments);
    EXPECT_EQ(result.output, "");
    EXPECT_NE(result.errors, "");
  }
}

TEST(InspectUsage, IsExplainedWithTheExitCodes) {
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{{"--help"},
                                                                                         {"list", "--help"},
                                                                                         {"show", "--help"},
                                                                                         {"info", "--help"},
                                                                                         {"create", "--help"},
                                                                                         {"rm", "--help"}}) {
    const ProgramResult result = inspect(arguments);
    EXPECT_EQ(result.exit_code, tools::exit_ok);
    EXPECT_THAT(result.output, HasSubstr("  66  the segment does not exist\n"));
  }
}

}  // namespace
}  // namespace shmcb::test
