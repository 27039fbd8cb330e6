// SPDX-License-Identifier: BSD-3-Clause
// shmcb-run from outside: what the command gets, how it all exits, and what the breaker makes of it.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <list>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <termios.h>

#include "common/exit_codes.hpp"
#include "shmcb/failure.hpp"
#include "shmcb/shm_storage.hpp"
#include "support/run_program.hpp"
#include "support/test_segment.hpp"
#include "tools/started_program.hpp"

namespace shmcb::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

using Words = std::vector<std::string>;

class Run : public ::testing::Test {
 protected:
  /// The arguments for breaker "b" of this test's segment.
  [[nodiscard]] Words arguments(const Words& flags, const Words& command) const {
    Words all{"--breaker", "b", "--segment", *segment_.options().name};
    all.insert(all.end(), flags.begin(), flags.end());
    all.emplace_back("--");
    all.insert(all.end(), command.begin(), command.end());
    return all;
  }
  [[nodiscard]] ProgramResult run(const Words& flags, const Words& command, const std::string& input = {}) const {
    return run_program(SHMCB_RUN_PATH, arguments(flags, command), input);
  }
  [[nodiscard]] ProgramResult sh(const Words& flags, const std::string& script, const std::string& input = {}) const {
    return run(flags, {"sh", "-c", script}, input);
  }
  [[nodiscard]] StartedProgram start(const Words& flags, const std::string& script) const {
    return {SHMCB_RUN_PATH, arguments(flags, {"sh", "-c", script})};
  }

  /// Requires that shmcb-run has made it.
  [[nodiscard]] ShmStorage<> breaker() const {
    return ShmStorage<>::open(segment_.segment(), {.name = "b"}, OnMismatch::adopt).value();
  }
  [[nodiscard]] StateRecord record() const { return breaker().snapshot().record; }
  void expect_counts(std::uint64_t successes, std::uint64_t failures) const {
    const StateRecord counted = record();
    EXPECT_EQ(counted.successes, successes);
    EXPECT_EQ(counted.failures, failures);
  }
  /// Opens it by one failure, with a cooldown of an hour unless `flags` says otherwise.
  void open_breaker(const Words& flags = kOneFailure) const { EXPECT_EQ(run(flags, {"false"}).exit_code, 1); }

  static inline const Words kOneFailure{"--failures", "1", "--cooldown", "1h"};

  TestSegment segment_;
};

TEST_F(Run, PassesStreamsArgumentsAndExitCodeThrough) {
  const ProgramResult result =
      run({}, {"sh", "-c", "cat; echo \"$@\"; echo oops >&2; exit 7", "sh", "--", "-x", "a b"}, "what came in\n");
  EXPECT_EQ(result.output, "what came in\n-- -x a b\n");
  EXPECT_EQ(result.errors, "oops\n");
  EXPECT_EQ(result.exit_code, 7);
  expect_counts(0, 1);
}

TEST_F(Run, CountsExitCodeZeroAsSuccess) {
  EXPECT_EQ(run({}, {"true"}).exit_code, 0);
  expect_counts(1, 0);
}

TEST_F(Run, DiesByTheSignalThatItsCommandDiedBy) {
  for (const int signal : {SIGKILL, SIGSEGV, SIGTERM, SIGUSR1}) {
    StartedProgram program = start({}, "kill -" + std::to_string(signal) + " $$");
    EXPECT_EQ(program.wait(), killed_by(signal));
    EXPECT_EQ(program.errors(), "");
  }
  expect_counts(0, 4);
}

TEST_F(Run, OpensAfterFailuresOfSeparateInvocationsAndThenRunsNothing) {
  const Words flags{"--failures", "3", "--window", "4", "--cooldown", "1h"};
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(sh(flags, "echo ran; exit 1").output, "ran\n");
  for (int i = 0; i < 2; ++i) {
    const ProgramResult turned_away = sh(flags, "echo ran");
    EXPECT_EQ(turned_away.exit_code, tools::exit_temporary);
    EXPECT_EQ(turned_away.output, "");
    EXPECT_THAT(turned_away.errors, MatchesRegex("shmcb-run: breaker 'b' is open: retry in 3[0-9]+ ms\n"));
  }
  EXPECT_EQ(record().state, CircuitState::open);
  EXPECT_EQ(record().rejected, 2U);
}

TEST_F(Run, SaysWhatTurnsTheCommandAwayBesideAnOutage) {
  EXPECT_EQ(run(kOneFailure, {"true"}).exit_code, 0);
  ShmStorage<> forced = breaker();
  ASSERT_EQ(forced.set_mode({.mode = Mode::forced_open}).error, Errc::ok);
  const ProgramResult by_hand = run(kOneFailure, {"echo", "ran"});
  EXPECT_EQ(by_hand.exit_code, tools::exit_temporary);
  EXPECT_EQ(by_hand.errors, "shmcb-run: breaker 'b' is forced open\n") << "without an end there is nothing to wait for";
  ASSERT_EQ(forced.set_mode({.mode = Mode::forced_open, .expires_after = std::chrono::hours{1}}).error, Errc::ok);
  EXPECT_THAT(run(kOneFailure, {"echo", "ran"}).errors,
              MatchesRegex("shmcb-run: breaker 'b' is forced open: retry in 3[0-9]+ ms\n"));
}

TEST_F(Run, ProbesAfterTheCooldownAndClosesWhenTheProbeSucceeds) {
  const Words flags{"--failures", "1", "--cooldown", "5ms", "--probe-timeout", "1h"};
  open_breaker(flags);
  ProgramResult result;
  EXPECT_TRUE(wait_until([&] {
    result = sh(flags, "echo ran");
    return result.exit_code != tools::exit_temporary;
  }));
  EXPECT_EQ(result.output, "ran\n");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(record().state, CircuitState::closed);
}

TEST_F(Run, AProbeThatFailsOpensAgain) {
  const Words flags{"--failures", "1", "--cooldown", "5ms"};
  open_breaker(flags);
  EXPECT_TRUE(wait_until([&] { return run(flags, {"false"}).exit_code == 1; }));
  EXPECT_EQ(record().state, CircuitState::open);
}

TEST_F(Run, LetsOneProbeRunOnTheWholeHost) {
  const Words flags{"--failures", "1", "--cooldown", "5ms", "--probe-timeout", "1h"};
  open_breaker(flags);
  EXPECT_TRUE(wait_until([&] { return breaker().peek().cooldown_left == Millis{0}; }));
  StartedProgram probe = start(flags, "echo probing; cat");
  EXPECT_EQ(probe.line(), "probing");
  const ProgramResult turned_away = run(flags, {"true"});
  EXPECT_EQ(turned_away.exit_code, tools::exit_temporary);
  EXPECT_THAT(turned_away.errors, HasSubstr("breaker 'b' is half-open: retry in 3600000 ms"));
  probe.close_input();
  EXPECT_EQ(probe.wait(), exited(0));
  EXPECT_EQ(record().state, CircuitState::closed);
}

TEST_F(Run, AProbeWhoseShmcbRunIsKilledComesBackByItsLease) {
  const Words flags{"--failures", "1", "--cooldown", "5ms", "--probe-timeout", "5ms"};
  open_breaker(flags);
  EXPECT_TRUE(wait_until([&] {
    StartedProgram probe = start(flags, "echo probing; cat");
    const bool admitted = probe.line() == "probing";
    probe.send(SIGKILL);
    (void)probe.wait();
    return admitted;
  }));
  EXPECT_TRUE(wait_until([&] { return run(flags, {"true"}).exit_code == 0; }));
}

TEST_F(Run, CountsEightInvocationsAtOnce) {
  const Words flags{"--failures", "8", "--window", "8", "--cooldown", "1h"};
  const Words command{"sh", "-c", "echo on; read x; exit 1"};
  std::list<StartedProgram> programs;
  for (int i = 0; i < 8; ++i)
    programs.emplace_back(SHMCB_RUN_PATH, arguments(flags, command));
  for (StartedProgram& program : programs)
    EXPECT_EQ(program.line(), "on");
  EXPECT_EQ(record().state, CircuitState::closed);
  for (StartedProgram& program : programs)
    program.write("\n");
  for (StartedProgram& program : programs)
    EXPECT_EQ(program.wait(), exited(1));
  EXPECT_EQ(record().state, CircuitState::open);
  EXPECT_EQ(record().failures, 8U);
  EXPECT_EQ(run(flags, {"true"}).exit_code, tools::exit_temporary);
}

// --- what counts as what ---

TEST_F(Run, ACommandThatCannotBeRunIsIgnored) {
  const ProgramResult not_found = run(kOneFailure, {"no-such-command"});
  EXPECT_EQ(not_found.exit_code, tools::exit_not_found);
  EXPECT_EQ(not_found.errors, "shmcb-run: cannot run 'no-such-command': No such file or directory\n");
  const ProgramResult not_executable = run(kOneFailure, {"/dev/null"});
  EXPECT_EQ(not_executable.exit_code, tools::exit_cannot_run);
  EXPECT_EQ(not_executable.errors, "shmcb-run: cannot run '/dev/null': Permission denied\n");
  expect_counts(0, 0);
}

TEST_F(Run, ACommandThatExitsWith126Or127HasRun) {
  EXPECT_EQ(sh({}, "exit 127").exit_code, 127);
  EXPECT_EQ(sh({}, "exit 126").exit_code, 126);
  expect_counts(0, 2);
}

TEST_F(Run, WithFailureExitCodesOnlyTheseAreFailuresAndTheRestIsIgnored) {
  const Words flags{"--failure-exit-codes", "7,20-22"};
  for (const char* code : {"1", "6", "8", "19", "23", "255"}) {
    EXPECT_EQ(sh(flags, std::string{"exit "} + code).exit_code, std::stoi(code));
  }
  expect_counts(0, 0);
  for (const char* code : {"7", "20", "22"})
    EXPECT_EQ(sh(flags, std::string{"exit "} + code).exit_code, std::stoi(code));
  expect_counts(0, 3);
  EXPECT_EQ(run(flags, {"true"}).exit_code, 0);
  (void)sh(flags, "kill -KILL $$");
  expect_counts(1, 4);
}

TEST_F(Run, SuccessExitCodesCountAsSuccesses) {
  const Words flags{"--success-exit-codes", "0,1"};
  for (const char* code : {"0", "1", "2"})
    EXPECT_EQ(sh(flags, std::string{"exit "} + code).exit_code, std::stoi(code));
  expect_counts(2, 1);
}

// --- signals ---

TEST_F(Run, PassesSignalsOn) {
  const std::map<std::string, int> signals{{"TERM", SIGTERM}, {"INT", SIGINT},   {"HUP", SIGHUP},
                                           {"QUIT", SIGQUIT}, {"USR1", SIGUSR1}, {"USR2", SIGUSR2}};
  for (const auto& [name, signal] : signals) {
    StartedProgram program =
        start({}, "trap 'echo got " + name + "; exit 9' " + name + "; echo ready; while :; do read x; done");
    EXPECT_EQ(program.line(), "ready");
    program.send(signal);
    EXPECT_EQ(program.line(), "got " + name);
    EXPECT_EQ(program.wait(), exited(9));
  }
}

TEST_F(Run, ACommandThatEndsByASignalThatWasSentToShmcbRunIsIgnored) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1}) {
    StartedProgram program = start(kOneFailure, "echo ready; exec cat");
    EXPECT_EQ(program.line(), "ready");
    program.send(signal);
    EXPECT_EQ(program.wait(), killed_by(signal));
  }
  expect_counts(0, 0);
}

TEST_F(Run, ACommandThatFailsAfterUsr1StillCounts) {
  StartedProgram program = start({}, "trap 'echo got; exit 3' USR1; echo ready; while :; do read x; done");
  EXPECT_EQ(program.line(), "ready");
  program.send(SIGUSR1);
  EXPECT_EQ(program.wait(), exited(3));
  expect_counts(0, 1);
}

char state_of(pid_t pid) {
  std::ifstream stat{"/proc/" + std::to_string(pid) + "/stat"};
  std::string text;
  std::getline(stat, text);
  const std::size_t at = text.rfind(") ");
  return at == std::string::npos ? '?' : text[at + 2];
}

TEST_F(Run, StopsAndContinuesWithItsCommand) {
  for (const Words& flags : {Words{}, Words{"--timeout", "1h"}}) {
    StartedProgram program = start(flags, "echo $$; exec cat");
    const pid_t command = std::stoi(program.line());
    program.send(SIGTSTP);
    EXPECT_TRUE(wait_until([&] { return state_of(program.pid()) == 'T' && state_of(command) == 'T'; }));
    program.send(SIGCONT);
    program.write("on we go\n");
    EXPECT_EQ(program.line(), "on we go");
    program.close_input();
    EXPECT_EQ(program.wait(), exited(0));
  }
}

TEST_F(Run, WhatWasIgnoredStaysIgnored) {
  Words words{"-c", "trap '' HUP; exec \"$@\"", "sh", SHMCB_RUN_PATH};
  const Words rest = arguments({}, {"sh", "-c", "echo ready; read x; kill -HUP $$; echo alive"});
  words.insert(words.end(), rest.begin(), rest.end());
  StartedProgram program{"/bin/sh", words};
  EXPECT_EQ(program.line(), "ready");
  program.send(SIGHUP);
  program.write("\n");
  EXPECT_EQ(program.line(), "alive");
  EXPECT_EQ(program.wait(), exited(0));
  expect_counts(1, 0);  // it was not interrupted
}

TEST_F(Run, TheCommandIgnoresSigbusWhereShmcbRunDid) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's runtime takes SIGBUS for itself before shmcb-run begins";
#endif
  Words words{"-c", "trap '' BUS; exec \"$@\"", "sh", SHMCB_RUN_PATH};
  const Words rest = arguments({}, {"sh", "-c", "kill -BUS $$; echo alive"});
  words.insert(words.end(), rest.begin(), rest.end());
  EXPECT_EQ(run_program("/bin/sh", words).output, "alive\n");
}

TEST_F(Run, WorksWhereChildrenAreReapedByThemselves) {
  Words words{"-c", "trap '' CHLD; exec \"$@\"", "sh", SHMCB_RUN_PATH};
  const Words rest = arguments({}, {"sh", "-c", "exit 5"});
  words.insert(words.end(), rest.begin(), rest.end());
  EXPECT_EQ(run_program("/bin/sh", words).exit_code, 5);
}

// --- time-outs ---

TEST_F(Run, ACommandThatRunsOutOfTimeIsAskedToEndAndIsAFailure) {
  const ProgramResult result = sh({"--timeout", "20ms"}, "trap 'echo ending; exit 0' TERM; while :; do read x; done");
  EXPECT_EQ(result.exit_code, tools::exit_timeout);
  expect_counts(0, 1);
}

TEST_F(Run, ACommandThatIgnoresTheRequestIsKilled) {
  StartedProgram program = start({"--timeout", "20ms", "--kill-after", "20ms"},
                                 "trap '' TERM; exec 3<&0; cat <&3 & while :; do read x; done");
  EXPECT_EQ(program.wait(), exited(tools::exit_timeout));
  EXPECT_TRUE(program.rest().complete);  // what it had started has ended with it
  expect_counts(0, 1);
}

TEST_F(Run, AStoppedCommandRunsOutOfTimeToo) {
  StartedProgram program = start({"--timeout", "50ms"}, "kill -STOP $$");
  EXPECT_EQ(program.wait(), exited(tools::exit_timeout));
}

TEST_F(Run, InTheForegroundOnlyTheCommandItselfRunsOutOfTime) {
  for (int millis = 50;; millis *= 2) {  // until it is long enough for the script to get that far
    StartedProgram program = start({"--timeout", std::to_string(millis) + "ms", "--foreground"},
                                   "exec 3<&0; cat <&3 & echo $!; while :; do read x; done");
    const std::string other = program.line();
    EXPECT_EQ(program.wait(), exited(tools::exit_timeout));
    if (other.empty()) continue;
    EXPECT_EQ(::kill(std::stoi(other), 0), 0);  // it lives until its input is closed
    return;
  }
}

TEST_F(Run, ACommandThatEndsInTimeIsNotATimeOut) {
  EXPECT_EQ(sh({"--timeout", "1h"}, "exit 4").exit_code, 4);
  EXPECT_EQ(run({"--timeout", "1h"}, {"no-such-command"}).exit_code, tools::exit_not_found);
}

TEST_F(Run, WithATimeOutTheCommandEndsWithShmcbRun) {
  StartedProgram program = start({"--timeout", "1h"}, "echo ready; exec cat");
  EXPECT_EQ(program.line(), "ready");
  program.send(SIGKILL);
  EXPECT_EQ(program.wait(), killed_by(SIGKILL));
  EXPECT_TRUE(program.rest().complete);
}

// --- the terminal ---

/// shmcb-run as the first program of a terminal of its own, in the foreground.
class OnTerminal {
 public:
  explicit OnTerminal(const Words& arguments) {
    const pid_t pid = ::forkpty(&master_, nullptr, nullptr, nullptr);
    if (pid == 0) {
      Words words{SHMCB_RUN_PATH};
      words.insert(words.end(), arguments.begin(), arguments.end());
      std::vector<char*> argv;
      for (std::string& word : words)
        argv.push_back(word.data());
      argv.push_back(nullptr);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    child_ = Child{pid};
  }
  OnTerminal(const OnTerminal&) = delete;
  OnTerminal& operator=(const OnTerminal&) = delete;
  ~OnTerminal() { ::close(master_); }

  void type(const std::string& text) const { (void)!::write(master_, text.data(), text.size()); }
  /// What is on the screen when `text` is; all of it where the terminal is closed before.
  std::string screen_with(const std::string& text) {
    while (screen_.find(text) == std::string::npos) {
      char c = 0;
      pollfd ready{.fd = master_, .events = POLLIN, .revents = 0};
      if (::poll(&ready, 1, static_cast<int>(kWatchdog.count())) <= 0 || ::read(master_, &c, 1) != 1) break;
      screen_ += c;
    }
    return screen_;
  }
  [[nodiscard]] Ended wait() { return child_.wait(); }

 private:
  int master_ = -1;
  Child child_;
  std::string screen_;
};

TEST_F(Run, WithATimeOutTheCommandCanReadFromItsTerminal) {
  OnTerminal terminal{arguments({"--timeout", "1h"}, {"sh", "-c", "echo ready; read x; echo \"got <$x>\""})};
  EXPECT_THAT(terminal.screen_with("ready"), HasSubstr("ready"));
  terminal.type("something\n");
  EXPECT_THAT(terminal.screen_with("got <something>"), HasSubstr("got <something>"));
  EXPECT_EQ(terminal.wait(), exited(0));
}

TEST_F(Run, CtrlCReachesTheCommandOnceAndIsIgnored) {
  OnTerminal terminal{arguments(
      {}, {"sh", "-c", "trap 'echo interrupted' INT; echo ready; read x; read x; echo \"got <$x>\"; exit 3"})};
  EXPECT_THAT(terminal.screen_with("ready"), HasSubstr("ready"));
  terminal.type("\003");
  EXPECT_THAT(terminal.screen_with("interrupted"), HasSubstr("interrupted"));
  terminal.type("one\ntwo\n");
  const std::string screen = terminal.screen_with("got <");
  EXPECT_EQ(screen.find("interrupted"), screen.rfind("interrupted")) << screen;
  (void)terminal.screen_with("nothing more");
  EXPECT_EQ(terminal.wait(), exited(3));
  expect_counts(0, 0);
}

// --- the command line ---

TEST_F(Run, RefusesBadFlagsAndRunsNothing) {
  struct Case {
    Words flags;
    std::string complaint;
  };
  const std::vector<Case> cases{
      {{"--cooldown", "30"}, "--cooldown is '30'; it must be a whole number and its unit"},
      {{"--cooldown", "1.5s"}, "--cooldown is '1.5s'"},
      {{"--within", "0s"}, "--within is '0s'"},
      {{"--within=-5s"}, "--within is '-5s'"},
      {{"--timeout", "5 s"}, "--timeout is '5 s'"},
      {{"--timeout", "s"}, "--timeout is 's'"},
      {{"--timeout", "5sec"}, "--timeout is '5sec'"},
      {{"--probe-timeout", "99999999999h"}, "--probe-timeout is '99999999999h'"},
      {{"--probe-timeout", "305420h"}, "--probe-timeout is '305420h'"},
      {{"--kill-after", "1s"}, "--kill-after"},
      {{"--failures", "many"}, "--failures"},
      {{"--failures", "-1"}, "--failures"},
      {{"--failures", "0"},
       "--failures is 0; it must be at least 1 unless --failure-rate, --consecutive-failures or --slower-than is set"},
      {{"--failures", "11"}, "--window is 10; it must be at least --failures (11)"},
      {{"--probe-limit", "33"}, "--probe-limit is 33"},
      {{"--success-threshold", "0"}, "--success-threshold is 0"},
      {{"--failure-rate", "101"}, "--failure-rate is 101; it must be a percentage from 1 to 100"},
      {{"--failure-rate-minimum-calls", "11"},
       "--failure-rate-minimum-calls is 11; it must be from 1 to --window (10)"},
      {{"--consecutive-failures", "11"}, "--consecutive-failures is 11; it must be from 1 to --window (10)"},
      {{"--slower-than", "1"}, "--slower-than is '1'"},
      {{"--slow-percent", "0"}, "--slow-percent is 0"},
      {{"--slow-minimum-calls", "0"}, "--slow-minimum-calls is 0"},
      {{"--cooldown-multiplier", "0"}, "--cooldown-multiplier is 0; it must be from 1 to 1000"},
      {{"--cooldown-maximum", "29s"}, "--cooldown-maximum is 29000 ms; it must be at least --cooldown (30000 ms)"},
      {{"--cooldown-jitter", "101"}, "--cooldown-jitter is 101"},
      {{"--cooldown-forget-after", "0s"}, "--cooldown-forget-after is '0s'"},
      {{"--ramp-up", "10"}, "--ramp-up is '10'"},
      {{"--ramp-up-start-percent", "101"}, "--ramp-up-start-percent is 101"},
      {{"--failure-exit-codes", "1,,2"}, "--failure-exit-codes is '1,,2'"},
      {{"--failure-exit-codes", "256"}, "--failure-exit-codes is '256'"},
      {{"--failure-exit-codes", "9-8"}, "--failure-exit-codes is '9-8'"},
      {{"--failure-exit-codes", "0-3"}, "have a code in common"},
      {{"--on-mismatch", "panic"}, "--on-mismatch is 'panic'"},
      {{"--on-storage-failure", "panic"}, "--on-storage-failure is 'panic'; it must be one of fail|run"},
      {{"--window", "1048576"}, "--window is 1048576; it must be at most 524288"},
      {{"--no-such-flag"}, "--no-such-flag"},
      {{"stray"}, "stray"},
  };
  for (const Case& c : cases) {
    const ProgramResult result = run(c.flags, {"echo", "ran"});
    EXPECT_EQ(result.exit_code, tools::exit_usage) << c.complaint;
    EXPECT_EQ(result.output, "");
    EXPECT_THAT(result.errors, HasSubstr(c.complaint));
  }
}

TEST_F(Run, NeedsABreakerAndACommand) {
  const std::string segment = *segment_.options().name;
  EXPECT_THAT(run_program(SHMCB_RUN_PATH, {"--segment", segment, "--", "true"}).errors, HasSubstr("--breaker"));
  EXPECT_THAT(run_program(SHMCB_RUN_PATH, {"--breaker", "a b", "--segment", segment, "--", "true"}).errors,
              HasSubstr("--breaker is 'a b'; it must be of [A-Za-z0-9_.:-] only"));
  for (const Words& words : {Words{"--breaker", "b", "--segment", segment}, Words{"--breaker", "b", "--"},
                             Words{"--breaker", "b", "--", ""}, Words{}}) {
    EXPECT_EQ(run_program(SHMCB_RUN_PATH, words).exit_code, tools::exit_usage);
  }
}

TEST_F(Run, PrintsHelp) {
  const ProgramResult help = run_program(SHMCB_RUN_PATH, {"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.output, AllOf(HasSubstr("-- COMMAND"), HasSubstr("--cooldown"), HasSubstr("75")));
}

TEST_F(Run, TheSegmentComesFromTheEnvironmentWhereNoFlagNamesIt) {
  open_breaker();
  ::setenv("SHMCB_SEGMENT", segment_.options().name->c_str(), 1);
  Words words{"--breaker", "b"};
  words.insert(words.end(), kOneFailure.begin(), kOneFailure.end());
  words.insert(words.end(), {"--", "true"});
  EXPECT_EQ(run_program(SHMCB_RUN_PATH, words).exit_code, tools::exit_temporary);
  ::unsetenv("SHMCB_SEGMENT");
}

TEST_F(Run, AnotherConfigurationIsRefusedAdoptedOrReplaced) {
  EXPECT_EQ(run({"--cooldown", "1h"}, {"true"}).exit_code, 0);
  const ProgramResult refused = run({"--cooldown", "2h"}, {"echo", "ran"});
  EXPECT_EQ(refused.exit_code, tools::exit_config);
  EXPECT_EQ(refused.output, "");
  EXPECT_THAT(refused.errors,
              HasSubstr("exists with another configuration: --cooldown (3600000 ms there, 7200000 ms here)"));
  EXPECT_EQ(run({"--cooldown", "2h", "--on-storage-failure=run"}, {"true"}).exit_code, tools::exit_config);

  EXPECT_EQ(run({"--cooldown", "2h", "--on-mismatch", "adopt"}, {"true"}).exit_code, 0);
  EXPECT_EQ(run({"--cooldown", "1h"}, {"true"}).exit_code, 0);
  EXPECT_EQ(run({"--cooldown", "2h", "--on-mismatch", "replace"}, {"true"}).exit_code, 0);
  EXPECT_EQ(run({"--cooldown", "2h"}, {"true"}).exit_code, 0);
  EXPECT_EQ(run({"--cooldown", "3h", "--config-revision", "1"}, {"true"}).exit_code, 0);
  EXPECT_EQ(run({"--cooldown", "3h", "--config-revision", "1"}, {"true"}).exit_code, 0);
}

// --- the policies ---

TEST_F(Run, OpensByConsecutiveFailures) {
  const Words flags{"--failures", "0", "--consecutive-failures", "2", "--cooldown", "1h"};
  for (const char* command : {"false", "true", "false", "false"})
    EXPECT_NE(run(flags, {command}).exit_code, tools::exit_temporary) << command;
  EXPECT_EQ(run(flags, {"true"}).exit_code, tools::exit_temporary);
}

TEST_F(Run, OpensByFailureRate) {
  const Words flags{"--failures", "0", "--failure-rate", "50", "--failure-rate-minimum-calls", "4", "--cooldown", "1h"};
  for (const char* command : {"false", "false", "true", "true"})
    EXPECT_NE(run(flags, {command}).exit_code, tools::exit_temporary) << command;
  EXPECT_EQ(run(flags, {"true"}).exit_code, tools::exit_temporary);
}

TEST_F(Run, OpensByCommandsThatSucceedSlowly) {
  const Words flags{"--failures", "0", "--slower-than", "1ms", "--slow-minimum-calls", "1", "--cooldown", "1h"};
  EXPECT_EQ(sh(flags, "sleep 0.05").exit_code, 0);
  EXPECT_EQ(run(flags, {"true"}).exit_code, tools::exit_temporary);
}

TEST_F(Run, EveryFlagOfThePolicyReachesTheBreaker) {
  const Words flags{"--failures",
                    "2",
                    "--window",
                    "20",
                    "--within",
                    "3s",
                    "--failure-rate",
                    "40",
                    "--failure-rate-minimum-calls",
                    "5",
                    "--consecutive-failures",
                    "6",
                    "--slower-than",
                    "7s",
                    "--slow-percent",
                    "80",
                    "--slow-minimum-calls",
                    "9",
                    "--reopen-on-slow-probe",
                    "--cooldown",
                    "10s",
                    "--cooldown-multiplier",
                    "11",
                    "--cooldown-maximum",
                    "12s",
                    "--cooldown-jitter",
                    "13",
                    "--cooldown-forget-after",
                    "14s",
                    "--success-threshold",
                    "15",
                    "--probe-limit",
                    "16",
                    "--probe-timeout",
                    "17s",
                    "--reclaim-dead-probes",
                    "--ramp-up",
                    "18s",
                    "--ramp-up-start-percent",
                    "19",
                    "--config-revision",
                    "20"};
  EXPECT_EQ(run(flags, {"true"}).exit_code, 0);
  const BreakerConfig expected{
      .name = "b",
      .failure_threshold = {.failures = 2, .window = 20, .within = Millis{3'000}},
      .failure_rate = FailureRate{.percent = 40, .minimum_calls = 5},
      .consecutive_failures = ConsecutiveFailures{.failures = 6},
      .slow_calls =
          SlowCalls{.slower_than = Millis{7'000}, .percent = 80, .minimum_calls = 9, .reopen_on_slow_probe = true},
      .cooldown = {.base = Millis{10'000},
                   .multiplier = 11,
                   .maximum = Millis{12'000},
                   .jitter = 13,
                   .forget_after = Millis{14'000}},
      .success_threshold = 15,
      .probe_limit = 16,
      .probe_timeout = Millis{17'000},
      .reclaim_dead_probes = true,
      .ramp_up = RampUp{.duration = Millis{18'000}, .start_percent = 19},
      .config_revision = 20};
  const auto agreed = ShmStorage<>::open(segment_.segment(), expected, OnMismatch::refuse);
  EXPECT_TRUE(agreed) << agreed.error().message;
}

// --- the configuration file ---

#ifdef SHMCB_HAS_CONFIG_TEXT

class RunConfig : public Run {
 protected:
  ~RunConfig() override { ::unlink(path_.c_str()); }

  /// What shmcb-run says of a file with this text.
  [[nodiscard]] ProgramResult with(const std::string& text, const Words& more) const {
    std::ofstream{path_} << text;
    Words words{"--config", path_, "--segment", *segment_.options().name};
    words.insert(words.end(), more.begin(), more.end());
    return run_program(SHMCB_RUN_PATH, words);
  }
  void expect_wrong_usage(const std::string& text, const Words& more, const std::string& complaint) const {
    const ProgramResult result = with(text, more);
    EXPECT_EQ(result.exit_code, tools::exit_usage);
    EXPECT_EQ(result.output, "");
    EXPECT_EQ(result.errors, "shmcb-run: " + complaint + "\nRun with --help for more information.\n");
  }

  static inline const std::string kTwo =
      "[defaults]\ncooldown = '1h'\n[[breaker]]\nname = 'b'\nfailure_threshold.failures = 1\n"
      "[[breaker]]\nname = 'c'\n";

  const std::string path_ = ::testing::TempDir() + *segment_.options().name + ".toml";
};

TEST_F(RunConfig, GuardsByTheBreakerThatIsChosen) {
  EXPECT_EQ(with(kTwo, {"--breaker", "b", "--", "false"}).exit_code, 1);
  EXPECT_EQ(with(kTwo, {"--breaker", "b", "--", "true"}).exit_code, tools::exit_temporary);
  EXPECT_EQ(with(kTwo, {"--breaker", "c", "--", "true"}).exit_code, 0);
  EXPECT_EQ(run({"--failures", "1", "--cooldown", "1h"}, {"true"}).exit_code, tools::exit_temporary);  // the same one
}

TEST_F(RunConfig, NeedsNoNameWhereThereIsOneBreaker) {
  EXPECT_EQ(with("[[breaker]]\nname = 'b'\n", {"--", "false"}).exit_code, 1);
  expect_counts(0, 1);
  expect_wrong_usage(kTwo, {"--", "true"}, path_ + " has several breakers; --breaker must name one");
  expect_wrong_usage("", {"--", "true"}, path_ + " has no breaker");
}

TEST_F(RunConfig, FlagsOverrideFields) {
  const ProgramResult shown = with(kTwo, {"--failures", "3", "--breaker", "b", "--ramp-up", "5s", "--check-config"});
  EXPECT_EQ(shown.exit_code, 0);
  EXPECT_THAT(shown.output, AllOf(HasSubstr("failures = 3, window = 10"), HasSubstr("base = \"1h\""),
                                  HasSubstr("ramp_up = { duration = \"5s\", start_percent = 10 }")));
  const std::string switches = "[[breaker]]\nname = 'b'\nreclaim_dead_probes = true\n";
  EXPECT_THAT(with(switches, {"--no-reclaim-dead-probes", "--check-config"}).output,
              HasSubstr("reclaim_dead_probes = false"));
  expect_wrong_usage(kTwo, {"--breaker", "b", "--failures", "11", "--", "true"},
                     path_ + ": breaker 'b': --window is 10; it must be at least --failures (11)");
}

TEST_F(RunConfig, CheckConfigPrintsWhatWouldBeUsedAndRunsNothing) {
  const ProgramResult shown = with(kTwo, {"--check-config", "--", "echo", "ran"});
  EXPECT_EQ(shown.exit_code, 0);
  EXPECT_EQ(shown.errors, "");
  EXPECT_THAT(shown.output, AllOf(HasSubstr("name = \"b\""), HasSubstr("name = \"c\""), Not(HasSubstr("ran"))));
  const ProgramResult again = with(shown.output, {"--check-config"});
  EXPECT_EQ(again.output, shown.output);
}

TEST_F(RunConfig, CheckConfigWarns) {
  const ProgramResult shown = with("[[breaker]]\nname = 'b'\nslow_calls.slower_than = '31s'\n", {"--check-config"});
  EXPECT_EQ(shown.exit_code, 0);
  EXPECT_THAT(shown.errors, MatchesRegex("shmcb-run: warning: breaker 'b': probe_timeout is 30000 ms, .*\n"));
}

TEST_F(RunConfig, CheckConfigShowsWhatFlagsAloneSay) {
  const ProgramResult shown = run_program(SHMCB_RUN_PATH, {"--breaker", "b", "--failures", "3", "--check-config"});
  EXPECT_EQ(shown.exit_code, 0);
  EXPECT_THAT(shown.output, HasSubstr("failures = 3, window = 10"));
}

TEST_F(RunConfig, AFileThatIsWrongIsWrongUsage) {
  expect_wrong_usage("[[breaker]]\nname = 'b'\nprobe_limit = 0\n", {"--", "echo", "ran"},
                     path_ + ":3: breaker 'b': probe_limit is 0; it must be from 1 to 32");
  expect_wrong_usage("[[breaker]]\nname = 'b'\nprobe_limit = '1'\n", {"--check-config"},
                     path_ + ":3:15: probe_limit is '1' (a string); it must be a whole number from 0 to 4294967295");
  expect_wrong_usage(kTwo, {"--breaker", "d", "--", "true"}, path_ + " has no breaker 'd'; it has b, c");
  const ProgramResult missing = run_program(SHMCB_RUN_PATH, {"--config", "/no/such", "--", "true"});
  EXPECT_EQ(missing.exit_code, tools::exit_usage);
  EXPECT_THAT(missing.errors, HasSubstr("cannot read /no/such: No such file or directory"));
}

#else

TEST_F(Run, SaysThatItCannotReadConfigurations) {
  const ProgramResult result = run_program(SHMCB_RUN_PATH, {"--config", "/no/such", "--", "true"});
  EXPECT_EQ(result.exit_code, tools::exit_usage);
  EXPECT_THAT(result.errors, HasSubstr("--config is not there: this shmcb-run was built without toml++"));
}

#endif

// --- the storage ---

/// Runs `echo ran` with a segment that cannot be used, in both ways.
void expect_trouble_with(const std::string& segment) {
  Words words{"--breaker", "b", "--segment", segment, "--", "echo", "ran"};
  const ProgramResult failed = run_program(SHMCB_RUN_PATH, words);
  EXPECT_EQ(failed.exit_code, tools::exit_io);
  EXPECT_EQ(failed.output, "");
  EXPECT_THAT(failed.errors, MatchesRegex("shmcb-run: .*segment.*\n"));

  words.insert(words.begin(), "--on-storage-failure=run");
  const ProgramResult unguarded = run_program(SHMCB_RUN_PATH, words);
  EXPECT_EQ(unguarded.exit_code, 0);
  EXPECT_EQ(unguarded.output, "ran\n");
  EXPECT_THAT(unguarded.errors, MatchesRegex("shmcb-run: warning: running without a breaker: .*segment.*\n"));
}

TEST_F(Run, ASegmentNameThatCanNeverBeRightIsWrongUsageAlsoWhereTroubleIsNot) {
  const Words words{"--breaker", "b", "--segment", "no/such/place", "--on-storage-failure", "run", "--", "echo", "ran"};
  const ProgramResult result = run_program(SHMCB_RUN_PATH, words);
  EXPECT_EQ(result.exit_code, tools::exit_usage);
  EXPECT_EQ(result.output, "");
  EXPECT_THAT(result.errors, HasSubstr("segment name is 'no/such/place'; it must be of [A-Za-z0-9._-] only"));
}

TEST_F(Run, ASegmentThatAGroupMayWriteIsUsedWhereThatIsAskedFor) {
  segment_.detach();
  ASSERT_EQ(::chmod(segment_.path().c_str(), 0660), 0);
  EXPECT_EQ(
      run_program(SHMCB_RUN_PATH, {"--breaker", "b", "--segment", *segment_.options().name, "--", "true"}).exit_code,
      tools::exit_io);
  EXPECT_EQ(run_program(SHMCB_RUN_PATH,
                        {"--breaker", "b", "--segment", *segment_.options().name, "--mode", "0660", "--", "true"})
                .exit_code,
            0);
}

TEST_F(Run, ASegmentThatCannotBeUsedIsTroubleOrNoneByChoice) {
  segment_.detach();
  const std::string path = segment_.path();

  { std::ofstream{path, std::ios::binary | std::ios::trunc} << std::string(100'000, 'x'); }
  expect_trouble_with(*segment_.options().name);

  ::unlink(path.c_str());
  ASSERT_EQ(::mkdir(path.c_str(), 0700), 0);
  expect_trouble_with(*segment_.options().name);
  ::rmdir(path.c_str());
}

TEST_F(Run, AFullSegmentIsTrouble) {
  for (int i = 0; i < 8; ++i) {
    const Words words{"--breaker", "b" + std::to_string(i), "--segment", *segment_.options().name, "--", "true"};
    EXPECT_EQ(run_program(SHMCB_RUN_PATH, words).exit_code, 0);
  }
  expect_trouble_with(*segment_.options().name);
}

TEST_F(Run, TheCommandHasNoDescriptorOfTheSegment) {
  const std::string script = "ls /proc/$$/fd; grep shmcb /proc/$$/maps";
  const std::string without = run_program("/bin/sh", {"-c", script}).output;
  EXPECT_EQ(sh({}, script).output, without);
  EXPECT_EQ(sh({"--timeout", "1h"}, script).output, without);
}

TEST_F(Run, PassesTheExitCodeThroughAlsoWhereSomebodyCutsTheSegmentShortMeanwhile) {
  segment_.detach();
  StartedProgram program = start({}, "echo ready; read x; exit 3");
  EXPECT_EQ(program.line(), "ready");
  ASSERT_EQ(::truncate(segment_.path().c_str(), 0), 0);
  program.write("\n");
  EXPECT_EQ(program.wait(), exited(3));
  EXPECT_EQ(program.errors(), "shmcb-run: warning: breaker 'b' could not take the outcome: truncated\n");
}

TEST_F(Run, MessagesNeverGoIntoTheSegment) {
  Words words{"-c", "exec \"$@\" <&- >&- 2>&-", "sh", SHMCB_RUN_PATH};
  const Words rest = arguments(kOneFailure, {"no-such-command"});
  words.insert(words.end(), rest.begin(), rest.end());
  EXPECT_EQ(run_program("/bin/sh", words).exit_code, tools::exit_not_found);
  EXPECT_EQ(run(kOneFailure, {"true"}).exit_code, 0);
  expect_counts(1, 0);
}

}  // namespace
}  // namespace shmcb::test
