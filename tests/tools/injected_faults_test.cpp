// SPDX-License-Identifier: BSD-3-Clause
// The tools under faults that others inject into them from outside: strace makes system calls fail or kill, faketime
// moves the wall clock, unshare gives another clock or another /dev/shm.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/exit_codes.hpp"
#include "shmcb/failure.hpp"
#include "shmcb/shm_storage.hpp"
#include "support/kernel_faults.hpp"
#include "support/run_program.hpp"
#include "support/test_segment.hpp"
#include "tools/started_program.hpp"

namespace shmcb::test {
namespace {

using ::testing::HasSubstr;
using Words = std::vector<std::string>;

/// A program found by $PATH, with what it is asked to run.
[[nodiscard]] ProgramResult run_by_path(const Words& words) {
  Words arguments{"-c", "exec \"$@\"", "sh"};
  arguments.insert(arguments.end(), words.begin(), words.end());
  return run_program("/bin/sh", arguments);
}

[[nodiscard]] Words operator+(Words first, const Words& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

class Injected : public ::testing::Test {
 protected:
  Injected() = default;
  ~Injected() override { (void)Segment::remove({.name = name}); }

  [[nodiscard]] bool exists() const { return !leftovers().empty(); }
  /// Whatever lies in /dev/shm under this test's name, complete or not.
  [[nodiscard]] std::vector<std::string> leftovers() const {
    std::vector<std::string> found;
    for (const std::string& file : listing("/dev/shm")) {
      if (file.find(name) != std::string::npos) found.push_back(file);
    }
    return found;
  }

  const std::string name = unique_segment_name();
  const Words create{SHMCB_INSPECT_PATH, "create", "--segment", name, "--breakers", "64"};
  const Words list{SHMCB_INSPECT_PATH, "list", "--segment", name};
  const Words guard{SHMCB_RUN_PATH, "--segment", name, "--breaker", "b", "--failures", "2", "--window", "10"};
};

// ---- system calls that fail -----------------------------------------------------------------------------------------

class InjectedByStrace : public Injected {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "LeakSanitizer does not work under a tracer";
#endif
    if (run_by_path({"strace", "-o", "/dev/null", "true"}).exit_code != 0)
      GTEST_SKIP() << "no strace (Debian: strace), or it may not trace";
  }
  /// `what`: as in strace -e inject=...
  [[nodiscard]] static ProgramResult run_with(const Words& what, const Words& command) {
    Words words{"strace", "-f", "-o", "/dev/null"};
    for (const std::string& one : what) {
      words.emplace_back("-e");
      words.push_back("inject=" + one);
    }
    return run_by_path(words + command);
  }
  /// The same for the calls on the segment's file only; the dynamic linker has its own.
  [[nodiscard]] ProgramResult run_on_segment(const std::string& what, const Words& command) const {
    return run_by_path(
        Words{"strace", "-f", "-o", "/dev/null", "-P", "/dev/shm/shmcb." + name, "-e", "inject=" + what} + command);
  }
};

TEST_F(InjectedByStrace, CallsThatASignalInterruptsAreMadeAgain) {
  const ProgramResult created =
      run_with({"fallocate:error=EINTR:when=1..40", "pwrite64:error=EINTR:when=1..3"}, create);
  EXPECT_EQ(created.exit_code, 0) << created.errors;
  const ProgramResult listed = run_on_segment("pread64:error=EINTR:when=1..9+2", list);
  EXPECT_EQ(listed.exit_code, 0) << listed.errors;
  const ProgramResult ran = run_on_segment("pread64:error=EINTR:when=1..3", guard + Words{"--", "true"});
  EXPECT_EQ(ran.exit_code, 0) << ran.errors;
  EXPECT_EQ(ran.errors, "");
}

TEST_F(InjectedByStrace, AFileSystemThatCannotReserveHasItEmulated) {
  const ProgramResult created = run_with({"fallocate:error=EOPNOTSUPP"}, create);
  EXPECT_EQ(created.exit_code, 0) << created.errors;
  struct stat info {};
  ASSERT_EQ(::stat(("/dev/shm/shmcb." + name).c_str(), &info), 0);
  EXPECT_GE(info.st_blocks * 512, info.st_size) << "no page is missing";
}

TEST_F(InjectedByStrace, MemoryThatRunsOutInTheMidstIsAnErrorAndLeavesNothing) {
  struct Case {
    const char* error;
    int exit_code;
  };
  for (const Case& one :
       {Case{"ENOSPC", tools::exit_io}, Case{"ENOMEM", tools::exit_io}, Case{"EPERM", tools::exit_os_error}}) {
    for (const char* when : {"1", "2"}) {
      const ProgramResult created =
          run_with({std::string{"fallocate:error="} + one.error + ":when=" + when + "+"}, create);
      EXPECT_EQ(created.exit_code, one.exit_code) << one.error << created.errors;
      EXPECT_THAT(created.errors, HasSubstr("segment '" + name + "'"));
      EXPECT_FALSE(exists()) << one.error;
    }
  }
}

TEST_F(InjectedByStrace, CallsThatFailOnTheSegmentAreErrorsThatSaySo) {
  ASSERT_EQ(run_by_path(create).exit_code, 0);
  for (const char* what : {"mmap:error=ENOMEM", "openat:error=EMFILE", "openat:error=ENFILE", "pread64:error=EIO"}) {
    const ProgramResult ran = run_on_segment(what, guard + Words{"--", "echo", "ran"});
    EXPECT_EQ(ran.exit_code, tools::exit_io) << what;
    EXPECT_EQ(ran.output, "") << what;
    EXPECT_THAT(ran.errors, HasSubstr("segment")) << what;
    const ProgramResult unguarded =
        run_on_segment(what, guard + Words{"--on-storage-failure", "run", "--", "echo", "ran"});
    EXPECT_EQ(unguarded.exit_code, 0) << what << unguarded.errors;
    EXPECT_EQ(unguarded.output, "ran\n") << what;
  }
  EXPECT_EQ(run_by_path(guard + Words{"--", "true"}).exit_code, 0) << "nothing of that is left in it";
}

TEST_F(InjectedByStrace, LocksThatCannotBeHadLeaveAProcessThatWorks) {
  ASSERT_EQ(run_by_path(create).exit_code, 0);
  for (const char* error : {"ENOLCK", "EINVAL", "EINTR"}) {
    const ProgramResult ran = run_on_segment(std::string{"fcntl:error="} + error, guard + Words{"--", "echo", "ran"});
    EXPECT_EQ(ran.exit_code, 0) << error << ran.errors;
    EXPECT_EQ(ran.output, "ran\n") << error;
  }
}

TEST_F(InjectedByStrace, ACreatorKilledWhileItReservesMemoryLeavesNothing) {
  for (const char* call : {"fallocate", "pwrite64", "fchmod", "linkat"}) {
    const ProgramResult killed = run_with({std::string{call} + ":signal=SIGKILL:when=1"}, create);
    EXPECT_NE(killed.exit_code, 0) << call;
    EXPECT_FALSE(std::string{call} != "linkat" && exists()) << call;
    (void)Segment::remove({.name = name});
  }
  EXPECT_EQ(run_by_path(create).exit_code, 0);
}

// ---- clocks ---------------------------------------------------------------------------------------------------------

class InjectedByFaketime : public Injected {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the sanitizers want to be the first library of a program, and so does faketime";
#endif
    const ProgramResult faked = run_at("+1h", {"date", "+%s"});
    if (faked.exit_code != 0) GTEST_SKIP() << "no faketime (Debian: faketime)";
    const long here = std::stol(run_by_path({"date", "+%s"}).output);
    ASSERT_GT(std::stol(faked.output) - here, 3'500) << "the wall clock is another one";
  }
  /// With the wall clock moved by `offset`, and only that.
  [[nodiscard]] static ProgramResult run_at(const std::string& offset, const Words& command) {
    return run_by_path(Words{"env", "DONT_FAKE_MONOTONIC=1", "faketime", "-f", offset} + command);
  }
};

TEST_F(InjectedByFaketime, TheWallClockChangesNoDecision) {
  ASSERT_EQ(run_by_path(create).exit_code, 0);
  const Words failing = guard + Words{"--within", "10m", "--cooldown", "30m", "--", "false"};
  EXPECT_EQ(run_at("-1h", failing).exit_code, 1);
  EXPECT_EQ(run_at("+1h", failing).exit_code, 1);
  // Neither too old nor of the future: together they have opened it. And no cooldown is over, whatever the clock says.
  for (const char* offset : {"+0", "+1h", "-1h", "+9000h", "-9000h"}) {
    const ProgramResult turned_away = run_at(offset, failing);
    EXPECT_EQ(turned_away.exit_code, tools::exit_temporary) << offset;
    EXPECT_THAT(turned_away.errors, HasSubstr("retry in 1")) << offset << ": 17 or 18 hundred thousand milliseconds";
  }
}

TEST_F(InjectedByFaketime, TheWallClockChangesNoAgeThatInspectShows) {
  ASSERT_EQ(run_at("+5h", create).exit_code, 0);
  ASSERT_EQ(run_by_path(guard + Words{"--cooldown", "30m", "--", "false"}).exit_code, 1);
  ASSERT_EQ(run_by_path(guard + Words{"--cooldown", "30m", "--", "false"}).exit_code, 1);
  for (const char* offset : {"+1h", "-1h"}) {
    const ProgramResult shown = run_at(offset, {SHMCB_INSPECT_PATH, "show", "b", "--segment", name});
    EXPECT_EQ(shown.exit_code, 0) << shown.errors;
    EXPECT_THAT(shown.output, ::testing::ContainsRegex("2[0-9]m[0-9]*s of the cooldown left")) << offset;
  }
}

class InjectedByUnshare : public Injected {
 protected:
  void SetUp() override {
    if (run_by_path({"unshare", "-m", "-T", "--monotonic", "100000", "true"}).exit_code != 0)
      GTEST_SKIP() << "no unshare (Debian: util-linux), or no right to namespaces";
    ASSERT_EQ(run_by_path(create).exit_code, 0);
  }
};

TEST_F(InjectedByUnshare, AnotherMonotonicClockIsRefusedByEveryTool) {
  const Words elsewhere{"unshare", "-T", "--monotonic", "28800"};
  const ProgramResult ran = run_by_path(elsewhere + guard + Words{"--", "echo", "ran"});
  EXPECT_EQ(ran.exit_code, tools::exit_io);
  EXPECT_EQ(ran.output, "");
  EXPECT_THAT(ran.errors, HasSubstr("time namespace is "));
  const ProgramResult listed = run_by_path(elsewhere + list);
  EXPECT_NE(listed.exit_code, 0);
  EXPECT_THAT(listed.errors, HasSubstr("time namespace is "));
  EXPECT_EQ(run_by_path(list).exit_code, 0);
}

TEST_F(InjectedByUnshare, AProcessOfAnotherPidNamespaceIsShownAsOne) {
  StartedProgram program{"/bin/sh", Words{"-c", "exec \"$@\"", "sh", "unshare", "-p", "-f", "--kill-child"} + guard +
                                        Words{"--", "sh", "-c", "echo ready; read x"}};
  ASSERT_EQ(program.line(), "ready");
  const ProgramResult seen = run_by_path({SHMCB_INSPECT_PATH, "info", "--segment", name});
  EXPECT_EQ(seen.exit_code, 0) << seen.errors;
  EXPECT_THAT(seen.output, ::testing::ContainsRegex("of a foreign pid namespace.*alive"));
  program.write("\n");
  (void)program.wait();
  const ProgramResult afterwards = run_by_path({SHMCB_INSPECT_PATH, "info", "--segment", name});
  EXPECT_THAT(afterwards.output, HasSubstr(" 0 alive"));
}

TEST_F(InjectedByUnshare, AUserOfTheGroupWhoMayOnlyReadInspectsAndGuardsNothing) {
  constexpr gid_t kGroup = 54'321;  // arbitrary
  const Words as_user{"setpriv", "--reuid", "54322", "--regid", "54321", "--clear-groups"};
  const std::string path = "/dev/shm/shmcb." + name;
  if (run_by_path(as_user + Words{SHMCB_INSPECT_PATH, "--version"}).exit_code != 0)
    GTEST_SKIP() << "no setpriv (Debian: util-linux), no right to it, or others may not run " << SHMCB_INSPECT_PATH;
  ASSERT_EQ(run_by_path(guard + Words{"--", "true"}).exit_code, 0);
  ASSERT_EQ(::chown(path.c_str(), 0, kGroup), 0);
  ASSERT_EQ(::chmod(path.c_str(), 0640), 0);
  const ProgramResult listed = run_by_path(as_user + list);
  EXPECT_EQ(listed.exit_code, 0) << listed.errors;
  EXPECT_THAT(listed.output, HasSubstr("closed"));
  const ProgramResult ran = run_by_path(as_user + guard + Words{"--", "echo", "ran"});
  EXPECT_EQ(ran.exit_code, tools::exit_io);
  EXPECT_THAT(ran.errors, HasSubstr("Permission denied"));
  EXPECT_NE(run_by_path(as_user + Words{SHMCB_INSPECT_PATH, "rm", "--yes", "--segment", name}).exit_code, 0);
  EXPECT_TRUE(exists());
}

TEST_F(InjectedByUnshare, AShmThatIsMissingReadOnlyOrFullIsTroubleAndNoMore) {
  struct Case {
    const char* mount;
    const char* words;
  };
  for (const Case& one : {Case{"mount -t tmpfs -o ro none /dev/shm", "Read-only file system"},
                          Case{"mount -t tmpfs -o size=32k none /dev/shm", "no room"},
                          Case{"mount -t tmpfs none /dev && mkdir /dev/null", "/dev/shm does not exist"}}) {
    const std::string script =
        std::string{one.mount} + " && '" + SHMCB_RUN_PATH + "' --segment " + name + " --breaker b -- echo ran";
    const ProgramResult failed = run_by_path({"unshare", "-m", "sh", "-c", script});
    EXPECT_EQ(failed.exit_code, tools::exit_io) << one.mount << failed.errors;
    EXPECT_EQ(failed.output, "");
    EXPECT_THAT(failed.errors, HasSubstr(one.words));
    const std::string unguarded = std::string{one.mount} + " && '" + SHMCB_RUN_PATH + "' --segment " + name +
                                  " --on-storage-failure run --breaker b -- echo ran && ls -A /dev/shm";
    const ProgramResult ran = run_by_path({"unshare", "-m", "sh", "-c", unguarded});
    EXPECT_THAT(ran.output, ::testing::StartsWith("ran\n"));
    EXPECT_EQ(ran.output.find("shmcb"), std::string::npos) << "no file is left";
  }
}

}  // namespace
}  // namespace shmcb::test
