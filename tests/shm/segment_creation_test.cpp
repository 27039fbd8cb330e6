// SPDX-License-Identifier: BSD-3-Clause
// Creating a segment: options that are refused before anything exists, exact modes, memory that is not there, creators
// that race and creators that are killed. Nobody ever sees half a segment, and nothing is left behind.
#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shm/segment_file.hpp"
#include "shmcb/shm_storage.hpp"
#include "support/kernel_faults.hpp"
#include "support/kill_points.hpp"
#include "support/processes.hpp"
#include "support/test_segment.hpp"

namespace shmcb::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

void expect_error(const Error& error, Errc code, std::initializer_list<std::string_view> parts) {
  EXPECT_EQ(to_string(error.code), to_string(code)) << error.message;
  for (const std::string_view part : parts)
    EXPECT_THAT(error.message, HasSubstr(std::string{part}));
}

/// Whether the segment is there and works, complete.
void expect_usable(const SegmentOptions& options) {
  const auto segment = Segment::attach(options);
  ASSERT_TRUE(segment) << segment.error().message;
  auto storage = ShmStorage<>::open(*segment, {.name = "b"});
  ASSERT_TRUE(storage) << storage.error().message;
  EXPECT_EQ(storage->force_state(CircuitState::open).error, Errc::ok);
  EXPECT_EQ(storage->force_state(CircuitState::closed).error, Errc::ok);
}

[[nodiscard]] mode_t mode_of(const SegmentOptions& options) {
  return status_of(path_of(options)).st_mode & 07777U;
}

// ---- options
// ---------------------------------------------------------------------------------------------------------------

class Creation : public ::testing::Test {
 protected:
  SegmentOptions options{.name = unique_segment_name(), .breakers = 4, .participants = 4};
  ~Creation() override {
    if (options.directory == "/dev/shm") (void)Segment::remove(options);
  }

  void expect_refused(const SegmentOptions& bad, Errc code, std::initializer_list<std::string_view> parts) const {
    const std::set<std::string> before = ours();
    const auto created = Segment::create(bad);
    ASSERT_FALSE(created);
    expect_error(created.error(), code, parts);
    const auto opened = Segment::open(bad);
    ASSERT_FALSE(opened);
    expect_error(opened.error(), code, parts);
    EXPECT_EQ(ours(), before) << "nothing was created";
  }
  /// What lies in /dev/shm under this test's names; other programs are at work there too.
  [[nodiscard]] std::set<std::string> ours() const {
    std::set<std::string> names;
    for (const std::string& name : listing("/dev/shm")) {
      if (name.find(*options.name) != std::string::npos || name.find("bad") != std::string::npos) names.insert(name);
    }
    return names;
  }
};

TEST_F(Creation, RefusesEachOptionOutOfItsRangeAndNamesFieldValueAndRule) {
  const auto with = [this](auto change) {
    SegmentOptions bad = options;
    change(bad);
    return bad;
  };
  expect_refused(with([](auto& o) { o.breakers = 0; }), Errc::invalid_segment_options,
                 {"breakers is 0", "from 1 to 900000"});
  expect_refused(with([](auto& o) { o.breakers = 900'001; }), Errc::invalid_segment_options,
                 {"breakers is 900001", "from 1 to 900000"});
  expect_refused(with([](auto& o) { o.breakers = ~0U; }), Errc::invalid_segment_options, {"breakers is 4294967295"});
  expect_refused(with([](auto& o) { o.participants = 0; }), Errc::invalid_segment_options,
                 {"participants is 0", "from 1 to 32768"});
  expect_refused(with([](auto& o) { o.participants = 32'769; }), Errc::invalid_segment_options,
                 {"participants is 32769", "from 1 to 32768"});
  expect_refused(with([](auto& o) { o.ring_slots = 15; }), Errc::invalid_segment_options,
                 {"ring_slots is 15", "from 16 to 2^36"});
  expect_refused(with([](auto& o) { o.ring_slots = (std::uint64_t{1} << 36U) + 1; }), Errc::invalid_segment_options,
                 {"ring_slots is 68719476737"});
  expect_refused(with([](auto& o) { o.ring_slots = ~std::uint64_t{0}; }), Errc::invalid_segment_options,
                 {"ring_slots is 18446744073709551615"});
  for (const std::uint32_t entries : {0U, 8U, 17U, 4095U, 1U << 21U, ~0U}) {
    expect_refused(with([=](auto& o) { o.journal_entries = entries; }), Errc::invalid_segment_options,
                   {"journal_entries is " + std::to_string(entries), "a power of two from 16 to 1048576"});
  }
  expect_refused(with([](auto& o) { o.epoch = Instant{Micros{-1}}; }), Errc::invalid_segment_options,
                 {"epoch is -1 us", "from 0 to 2^60 us"});
  expect_refused(with([](auto& o) { o.epoch = Instant::max(); }), Errc::invalid_segment_options,
                 {"epoch is 9223372036854775807 us"});
}

TEST_F(Creation, RefusesModesThatTheOwnerCouldNotUseOrThatMeanSomethingElse) {
  for (const std::uint32_t mode : {0U, 0400U, 0200U, 0066U, 0700U, 0601U, 0610U, 01600U, 02660U, 04600U, 0100600U}) {
    SegmentOptions bad = options;
    bad.mode = mode;
    std::array<char, 16> octal{};
    std::snprintf(octal.data(), octal.size(), "0%03o", mode & 0777U);
    expect_refused(bad, Errc::invalid_segment_options, {"mode is ", "0600"});
    if (mode <= 0777U) expect_refused(bad, Errc::invalid_segment_options, {octal.data()});
  }
}

TEST_F(Creation, RefusesNamesThatAreNoFileNames) {
  const auto expect_bad_name = [this](const std::string& name, std::string_view shown) {
    SegmentOptions bad = options;
    bad.name = name;
    expect_refused(bad, Errc::invalid_segment_name, {"segment name is ", shown, "it must be"});
    EXPECT_EQ(Segment::attach(bad).error().code, Errc::invalid_segment_name);
    EXPECT_EQ(Segment::remove(bad).code, Errc::invalid_segment_name);
  };
  expect_bad_name("", "empty");
  expect_bad_name("bad/name", "'bad/name'");
  expect_bad_name("/bad", "'/bad'");
  expect_bad_name("bad/../../etc/passwd", "'bad/../../etc/passwd'");
  expect_bad_name("bad name", "'bad name'");
  expect_bad_name("bad:name", "'bad:name'");
  expect_bad_name("bad\n", "'bad\\x0a'");
  expect_bad_name(std::string("bad\0name", 8), "'bad\\x00name'");
  expect_bad_name("bad\x1b[31m", "'bad\\x1b[31m'");
  expect_bad_name("bad\xc3\xa4", "'bad\\xc3\\xa4'");
  expect_bad_name(std::string(201, 'x'), "(201 bytes)");
  expect_bad_name(std::string(100'000, 'x'), "at most 200 bytes");
}

TEST_F(Creation, TakesEveryNameThatTheRuleAllows) {
  const std::string longest = (*options.name + std::string(200, 'x')).substr(0, 200);
  for (const std::string& name : {*options.name + ".Az09._-", longest}) {
    SegmentOptions good = options;
    good.name = name;
    EXPECT_TRUE(Segment::create(good));
    expect_usable(good);
    EXPECT_FALSE(Segment::remove(good));
  }
  // With the prefix "shmcb." dots are a name like any other.
  TemporaryDirectory directory;
  for (const char* name : {".", "..", "..."}) {
    SegmentOptions dots = options;
    dots.directory = directory.path();
    dots.name = name;
    EXPECT_TRUE(Segment::create(dots)) << name;
    expect_usable(dots);
  }
  EXPECT_THAT(listing(directory.path()), ::testing::ElementsAre("shmcb..", "shmcb...", "shmcb...."));
}

TEST_F(Creation, TakesTheNameFromTheEnvironmentWhenNoneIsGiven) {
  expect_success_in_child([this] {
    ::setenv("SHMCB_SEGMENT", options.name->c_str(), 1);
    SegmentOptions unnamed = options;
    unnamed.name.reset();
    const auto segment = Segment::create(unnamed);
    ASSERT_TRUE(segment) << segment.error().message;
    EXPECT_EQ(segment->name(), *options.name);
    ::setenv("SHMCB_SEGMENT", "no/good", 1);
    EXPECT_EQ(Segment::attach(unnamed).error().code, Errc::invalid_segment_name);
    ::setenv("SHMCB_SEGMENT", "", 1);
    EXPECT_EQ(segment_name_or_default(std::nullopt), "default");
    ::unsetenv("SHMCB_SEGMENT");
    EXPECT_EQ(segment_name_or_default(std::nullopt), "default");
  });
  EXPECT_NE(status_of(path_of(options)).st_ino, 0U);
}

TEST_F(Creation, RefusesANameThatIsTaken) {
  ASSERT_TRUE(Segment::create(options));
  const auto again = Segment::create(options);
  ASSERT_FALSE(again);
  expect_error(again.error(), Errc::segment_exists, {"segment '" + *options.name + "' exists already"});
  EXPECT_TRUE(Segment::open(options)) << "but it can be attached to";
}

TEST_F(Creation, MakesAFileOfTheSizeAndWithTheMemoryThatItSays) {
  const auto segment = Segment::create(options);
  ASSERT_TRUE(segment) << segment.error().message;
  const struct stat info = status_of(path_of(options));
  EXPECT_EQ(static_cast<std::uint64_t>(info.st_size), segment->geometry().total_bytes);
  EXPECT_GE(static_cast<std::uint64_t>(info.st_blocks) * 512, segment->geometry().total_bytes) << "no page is missing";
  EXPECT_EQ(info.st_nlink, 1U);
}

// ---- mode and group
// --------------------------------------------------------------------------------------------------------

TEST_F(Creation, MakesExactlyTheModeThatWasAskedForWhateverTheUmask) {
  for (const mode_t mask : {0U, 022U, 077U, 0777U}) {
    for (const mode_t mode : {0600U, 0640U, 0660U, 0644U, 0666U}) {
      options.mode = mode;
      expect_success_in_child([&] {
        ::umask(mask);
        ASSERT_TRUE(Segment::create(options));
        EXPECT_EQ(::umask(mask), mask) << "it is left as it was";
      });
      EXPECT_EQ(mode_of(options), mode) << "umask " << mask;
      EXPECT_FALSE(Segment::remove(options));
    }
  }
}

TEST_F(Creation, GivesTheFileToTheGroup) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file to any group";
  options.group = 65'534;
  options.mode = 0660;
  ASSERT_TRUE(Segment::create(options));
  EXPECT_EQ(status_of(path_of(options)).st_gid, 65'534U);
  EXPECT_EQ(mode_of(options), 0660U);
}

TEST_F(Creation, RefusesAGroupThatTheUserIsNotIn) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become somebody else";
  options.group = 0;
  expect_success_in_child([&] {
    ASSERT_EQ(::setresgid(65'534, 65'534, 65'534), 0);
    ASSERT_EQ(::setresuid(65'534, 65'534, 65'534), 0);
    expect_refused(options, Errc::permission_denied, {"changing the group to 0", "Operation not permitted"});
  });
}

// ---- limits and space
// ------------------------------------------------------------------------------------------------------

TEST_F(Creation, BeyondTheFileSizeLimitIsAnErrorAndNoSignal) {
  for (const rlim_t limit : {rlim_t{0}, rlim_t{4096}, rlim_t{core::geometry_of(4, 4, 64).total_bytes - 1}}) {
    expect_success_in_child([&] {
      const rlimit file_size{.rlim_cur = limit, .rlim_max = RLIM_INFINITY};
      ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &file_size), 0);
      expect_refused(options, Errc::file_size_limit,
                     {"its size is " + std::to_string(core::geometry_of(4, 4, 64).total_bytes),
                      "RLIMIT_FSIZE) is " + std::to_string(limit)});
    });
  }
  expect_success_in_child([&] {
    const rlimit exact{.rlim_cur = core::geometry_of(4, 4, 64).total_bytes, .rlim_max = RLIM_INFINITY};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &exact), 0);
    EXPECT_TRUE(Segment::create(options));
    expect_usable(options);
  });
}

/// Creation in a directory that is a file system of its own, seen by nobody else.
class CreationOn : public Creation {
 protected:
  TemporaryDirectory directory;
  CreationOn() { options.directory = directory.path(); }

  template <class Work>
  void run_on(const char* type, const char* mount_options, unsigned long flags, Work work) {
    const Ended ended = run_in_child([&]() -> int {
      if (!mount_privately(directory.path(), type, mount_options, flags)) return kRefusedByKernel;
      return exit_code_of(work);
    });
    SHMCB_SKIP_IF_REFUSED(ended, std::string{"this user cannot mount a "} + type);
    EXPECT_EQ(ended, exited(0));
  }
};

TEST_F(CreationOn, AFullFileSystemIsAnErrorAndLeavesNoFile) {
  run_on("tmpfs", "size=16k", 0, [&] {
    for (const bool unnamed_files : {true, false}) {
      if (!unnamed_files && !refuse_unnamed_files()) return;
      const auto created = Segment::create(options);
      ASSERT_FALSE(created);
      expect_error(created.error(), Errc::no_space,
                   {"its size is " + std::to_string(core::geometry_of(4, 4, 64).total_bytes) + " bytes",
                    directory.path() + " has no room"});
      EXPECT_EQ(Segment::open(options).error().code, Errc::no_space);
      EXPECT_THAT(listing(directory.path()), IsEmpty());
    }
  });
}

TEST_F(CreationOn, AFileSystemThatFillsUpLaterNeverTakesMemoryBack) {
  options.journal_entries = 16;
  run_on("tmpfs", "size=256k", 0, [&] {
    const auto segment = Segment::create(options);
    ASSERT_TRUE(segment) << segment.error().message;
    const int fd = ::open((directory.path() + "/filler").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    const std::array<char, 4096> page{};
    while (::write(fd, page.data(), page.size()) > 0) {
    }
    EXPECT_EQ(errno, ENOSPC);
    for (int i = 0; i < 4; ++i) {
      auto storage = ShmStorage<>::open(*segment, {.name = "b" + std::to_string(i)});
      ASSERT_TRUE(storage) << storage.error().message;
      for (int n = 0; n < 40; ++n) {
        const AdmitResult admitted = storage->admit();
        (void)storage->record_outcome(admitted.token, n % 3 == 0 ? Outcome::failure : Outcome::success);
      }
    }
    ::close(fd);
  });
}

TEST_F(CreationOn, AFileSystemWithoutInodesLeftIsOneWithoutRoom) {
  run_on("tmpfs", "nr_inodes=1", 0, [&] {
    for (const bool unnamed_files : {true, false}) {
      if (!unnamed_files && !refuse_unnamed_files()) return;
      const auto created = Segment::create(options);
      ASSERT_FALSE(created);
      expect_error(created.error(), Errc::no_space, {"No space left on device"});
    }
  });
}

TEST_F(CreationOn, AReadOnlyFileSystemIsRefused) {
  run_on("tmpfs", "", MS_RDONLY, [&] {
    const auto created = Segment::create(options);
    ASSERT_FALSE(created);
    expect_error(created.error(), Errc::permission_denied, {directory.path(), "Read-only file system"});
    EXPECT_EQ(Segment::open(options).error().code, Errc::permission_denied);
  });
}

TEST_F(CreationOn, AFileSystemThatEmulatesReservingMemoryWorks) {
  run_on("ramfs", "", 0, [&] {
    ASSERT_TRUE(Segment::create(options));
    expect_usable(options);
  });
}

TEST_F(CreationOn, ADirectoryThatIsNotThereNamesIt) {
  options.directory += "/missing";
  const auto created = Segment::create(options);
  ASSERT_FALSE(created);
  expect_error(created.error(), Errc::system, {options.directory + " does not exist"});
  EXPECT_EQ(Segment::open(options).error().code, Errc::system);
}

TEST_F(CreationOn, AFileForADirectoryNamesIt) {
  options.directory = "/proc/version";
  const auto created = Segment::create(options);
  ASSERT_FALSE(created);
  expect_error(created.error(), Errc::system, {"/proc/version is not a directory"});
  EXPECT_EQ(Segment::open(options).error().code, Errc::system);
}

TEST_F(CreationOn, ADirectoryWithoutTheRightToWriteIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become somebody else";
  ASSERT_EQ(::chmod(directory.path().c_str(), 0755), 0);
  expect_success_in_child([&] {
    ASSERT_EQ(::setresuid(65'534, 65'534, 65'534), 0);
    const auto created = Segment::create(options);
    ASSERT_FALSE(created);
    expect_error(created.error(), Errc::permission_denied, {directory.path(), "Permission denied"});
  });
}

TEST_F(CreationOn, SystemCallsThatFailGivesAnErrorThatNamesThemAndLeavesNothing) {
  struct Failure {
    long call;
    int error;
    Errc code;
    std::string_view message;
  };
  const std::vector<Failure> failures{
      {SYS_fallocate, ENOSPC, Errc::no_space, "has no room"},
      {SYS_fallocate, ENOMEM, Errc::no_space, "has no room"},
      {SYS_fallocate, EPERM, Errc::system, "reserving memory: Operation not permitted"},
      {SYS_fchmod, EPERM, Errc::system, "setting the mode: Operation not permitted"},
      {SYS_pwrite64, EIO, Errc::system, "writing the header: Input/output error"},
      {SYS_linkat, EPERM, Errc::system, "linking it into place: Operation not permitted"},
      {SYS_linkat, EEXIST, Errc::segment_exists, "exists already"},
      {SYS_openat, EMFILE, Errc::system, "Too many open files"},
      {SYS_openat, ENFILE, Errc::system, "Too many open files in system"},
  };
  for (const Failure& failure : failures) {
    for (const bool unnamed_files : {true, false}) {
      if (failure.call == SYS_linkat && !unnamed_files) continue;
      const Ended ended = run_in_child([&]() -> int {
        if (!unnamed_files && !refuse_unnamed_files()) return kRefusedByKernel;
        (void)Segment::attach(options);  // what is opened once for all is open now
        const std::size_t descriptors = open_descriptors();
        if (failure.call != SYS_openat) {
          if (!fail_system_call({.number = failure.call}, failure.error)) return kRefusedByKernel;
        } else {
          const std::uint32_t creating = unnamed_files ? O_TMPFILE : O_CREAT;
          if (!fail_system_call({.number = SYS_openat, .argument = 2, .mask = creating}, failure.error))
            return kRefusedByKernel;
        }
        const auto created = Segment::create(options);
        if (created) throw std::runtime_error("it was created");
        expect_error(created.error(), failure.code, {failure.message});
        // To look, a process of its own: this one may not open files any more.
        EXPECT_TRUE(failure.call == SYS_openat || open_descriptors() == descriptors);
        return 0;
      });
      SHMCB_SKIP_IF_REFUSED(ended, "no seccomp filters");
      EXPECT_EQ(ended, exited(0)) << failure.call << " " << failure.error;
      EXPECT_THAT(listing(directory.path()), IsEmpty()) << failure.call << " " << failure.error;
    }
  }
}

TEST_F(Creation, GetsThroughAStormOfSignals) {
  options.breakers = 100'000;  // a hundred megabytes: many times the interval between two signals
  const Ended ended = run_in_child([&] {
    struct sigaction action {};
    action.sa_handler = [](int) {};
    action.sa_flags = 0;  // interrupts system calls
    ASSERT_EQ(::sigaction(SIGPROF, &action, nullptr), 0);
    ASSERT_EQ(::sigaction(SIGALRM, &action, nullptr), 0);
    const timeval often{.tv_sec = 0, .tv_usec = 200};
    const itimerval timer{.it_interval = often, .it_value = often};
    ASSERT_EQ(::setitimer(ITIMER_REAL, &timer, nullptr), 0);
    const auto segment = Segment::create(options);
    ASSERT_TRUE(segment) << segment.error().message;
  });
  EXPECT_EQ(ended, exited(0));
}

// ---- without O_TMPFILE
// -----------------------------------------------------------------------------------------------------

TEST_F(CreationOn, AFileSystemWithoutUnnamedFilesMakesAPrivateNameAndMovesIt) {
  // Old kernels and other file systems say it in three ways.
  for (const int error : {EOPNOTSUPP, EISDIR, EINVAL}) {
    const Ended ended = run_in_child([&]() -> int {
      if (!fail_system_call({.number = SYS_openat, .argument = 2, .mask = O_TMPFILE}, error)) return kRefusedByKernel;
      ::umask(077);
      options.mode = 0664;
      EXPECT_TRUE(Segment::create(options));
      EXPECT_EQ(mode_of(options), 0664U);
      EXPECT_EQ(listing(directory.path()), (std::set<std::string>{"shmcb." + *options.name}));
      expect_usable(options);
      EXPECT_EQ(Segment::create(options).error().code, Errc::segment_exists);
      EXPECT_FALSE(Segment::remove(options));
      return 0;
    });
    SHMCB_SKIP_IF_REFUSED(ended, "no seccomp filters");
    EXPECT_EQ(ended, exited(0)) << error;
  }
}

TEST_F(CreationOn, ASystemWithoutProcMakesAPrivateNameAndMovesIt) {
  const Ended ended = run_in_child([&]() -> int {
    if (!mount_privately("/proc", "tmpfs", "")) return kRefusedByKernel;
    EXPECT_TRUE(Segment::create(options));
    EXPECT_EQ(listing(directory.path()), (std::set<std::string>{"shmcb." + *options.name}));
    expect_usable(options);
    return 0;
  });
  SHMCB_SKIP_IF_REFUSED(ended, "this user cannot mount");
  EXPECT_EQ(ended, exited(0));
}

TEST_F(CreationOn, AFileSystemWithoutUnnamedFilesSweepsWhatKilledCreatorsLeftAndNothingElse) {
  const std::string prefix = directory.path() + "/shmcb-new." + *options.name + ".";
  const auto touch = [](const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    EXPECT_GE(fd, 0);
    return fd;
  };
  const std::string foreign = directory.path() + "/shmcb-new.another.0123456789abcdef";
  const std::string segment = directory.path() + "/shmcb.another";
  const std::string held = prefix + "1111111111111111";
  for (const std::string& path : {prefix + "0123456789abcdef", prefix + "fedcba9876543210", foreign, segment})
    ::close(touch(path));
  ASSERT_EQ(::symlink(segment.c_str(), (prefix + "2222222222222222").c_str()), 0);
  ASSERT_EQ(::mkfifo((prefix + "3333333333333333").c_str(), 0600), 0);
  const int fd = touch(held);
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_len = 1;
  ASSERT_EQ(::fcntl(fd, F_OFD_SETLK, &lock), 0);

  const Ended ended = run_in_child([&]() -> int {
    if (!refuse_unnamed_files()) return kRefusedByKernel;
    EXPECT_TRUE(Segment::create(options));
    return 0;
  });
  ::close(fd);
  SHMCB_SKIP_IF_REFUSED(ended, "no seccomp filters");
  EXPECT_EQ(ended, exited(0));
  const std::set<std::string> left = listing(directory.path());
  EXPECT_EQ(left.count("shmcb-new." + *options.name + ".0123456789abcdef"), 0U);
  EXPECT_EQ(left.count("shmcb-new." + *options.name + ".fedcba9876543210"), 0U);
  EXPECT_EQ(left.count("shmcb-new." + *options.name + ".1111111111111111"), 1U) << "its creator lives";
  EXPECT_EQ(left.count("shmcb-new.another.0123456789abcdef"), 1U) << "not of this name";
  EXPECT_EQ(left.count("shmcb.another"), 1U) << "what a link leads to is no business of ours";
}

// ---- races
// -------------------------------------------------------------------------------------------------------------------

struct RaceSeen {
  std::atomic<std::uint32_t> creators{0};
  std::atomic<std::uint32_t> others{0};
  std::atomic<std::uint64_t> inode{0};
};

/// `processes` create at once, round after round; all must end at the same file, made by one of them.
void race(const SegmentOptions& base, std::uint32_t processes, int rounds, bool unnamed_files) {
  const SharedBarrier barrier(processes);
  std::vector<SharedArea<RaceSeen>> seen(static_cast<std::size_t>(rounds));
  std::vector<Child> children;
  for (std::uint32_t p = 0; p < processes; ++p) {
    children.push_back(fork_child([&]() -> int {
      if (!unnamed_files && !refuse_unnamed_files()) return kRefusedByKernel;
      for (int round = 0; round < rounds; ++round) {
        RaceSeen& result = *seen[static_cast<std::size_t>(round)];
        SegmentOptions options = base;
        options.name = *base.name + "." + std::to_string(round);
        if (!barrier.arrive_and_wait()) return 1;
        const auto created = Segment::create(options);
        if (!created && created.error().code != Errc::segment_exists) throw std::runtime_error(created.error().message);
        (created ? result.creators : result.others) += 1;
        const auto opened = Segment::open(options);
        if (!opened) throw std::runtime_error(opened.error().message);
        if (opened->status() != SegmentStatus::current) return 2;
        const std::uint64_t inode = status_of(path_of(options)).st_ino;
        std::uint64_t none = 0;
        if (!result.inode.compare_exchange_strong(none, inode) && none != inode) return 3;
        // Nobody may remove it before all have looked.
        if (!barrier.arrive_and_wait()) return 1;
        (void)Segment::remove(options);
      }
      return 0;
    }));
  }
  for (Child& child : children) {
    const Ended ended = child.wait();
    SHMCB_SKIP_IF_REFUSED(ended, "no seccomp filters");
    EXPECT_EQ(ended, exited(0));
  }
  for (const auto& round : seen) {
    EXPECT_EQ(round->creators, 1U);
    EXPECT_EQ(round->others, processes - 1);
  }
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kRounds = 30;
#else
constexpr int kRounds = 100;
#endif

TEST_F(CreationOn, OneNameBySixtyFourProcessesAtOnceHasOneCreatorAndOneFile) {
  options.directory = "/dev/shm";
  race(options, 64, kRounds, true);
  EXPECT_THAT(ours(), IsEmpty());
}

TEST_F(CreationOn, OneNameByManyProcessesAtOnceHasOneCreatorWithoutUnnamedFilesToo) {
  race(options, 16, 30, false);
  EXPECT_THAT(listing(directory.path()), IsEmpty());
}

TEST_F(Creation, OpenedByManyProcessesAtOnceSucceedsForAll) {
  const SharedBarrier barrier(16);
  std::vector<Child> children;
  for (int p = 0; p < 16; ++p) {
    children.push_back(fork_child([&]() -> int {
      for (int round = 0; round < 20; ++round) {
        if (!barrier.arrive_and_wait()) return 1;
        const auto segment = Segment::open(options);
        if (!segment) throw std::runtime_error(segment.error().message);
        if (!barrier.arrive_and_wait()) return 1;
        (void)Segment::remove(options);
        if (!barrier.arrive_and_wait()) return 1;
      }
      return 0;
    }));
  }
  for (Child& child : children)
    EXPECT_EQ(child.wait(), exited(0));
}

// ---- attaching while the name changes hands
// ----------------------------------------------------------------------------------

/// Somebody removes the segment, and makes another one, before and after each system call of one that attaches.
class OvertakenAttach : public CreationOn {
 protected:
  void make_anew() const {
    (void)Segment::remove(options);
    ASSERT_TRUE(Segment::create(options));
  }
};

TEST_F(OvertakenAttach, ByARemovalIsAttachedOrNotFound) {
  bool overtaken = true;
  for (int stop = 0; overtaken; ++stop) {
    make_anew();
    overtaken = false;
    const Ended ended = run_stopped_at_system_call(
        [&]() -> int {
          const auto segment = Segment::attach(options);
          if (!segment) return segment.error().code == Errc::segment_not_found ? 0 : 1;
          // Removed after it had looked: it says so, and works.
          auto storage = ShmStorage<>::open(*segment, {.name = "b"});
          if (!storage || storage->force_state(CircuitState::open).error != Errc::ok) return 2;
          return segment->status() == SegmentStatus::current || segment->status() == SegmentStatus::removed ? 0 : 3;
        },
        stop,
        [&](const Child&) {
          overtaken = true;
          (void)Segment::remove(options);
        });
    SHMCB_SKIP_IF_REFUSED(ended, "no ptrace");
    ASSERT_EQ(ended, exited(0)) << "at stop " << stop;
    ASSERT_LT(stop, 2'000);
  }
}

TEST_F(OvertakenAttach, ByAReplacementIsAttachedToTheOldOrTheNewOne) {
  bool overtaken = true;
  for (int stop = 0; overtaken; ++stop) {
    make_anew();
    overtaken = false;
    const Ended ended = run_stopped_at_system_call(
        [&]() -> int {
          const auto segment = Segment::attach(options);
          if (!segment) throw std::runtime_error(segment.error().message);
          auto storage = ShmStorage<>::open(*segment, {.name = "b"});
          if (!storage || storage->force_state(CircuitState::open).error != Errc::ok) return 2;
          return segment->status() == SegmentStatus::removed ? 3 : 0;
        },
        stop,
        [&](const Child&) {
          overtaken = true;
          make_anew();
        });
    SHMCB_SKIP_IF_REFUSED(ended, "no ptrace");
    ASSERT_EQ(ended, exited(0)) << "at stop " << stop;
    ASSERT_LT(stop, 2'000);
  }
}

/// The lowest descriptor by which a process has the file open, and how many there are.
[[nodiscard]] std::pair<int, int> descriptors_of(pid_t process, const std::string& path) {
  std::pair<int, int> found{-1, 0};
  std::error_code ignored;
  const std::filesystem::path directory = "/proc/" + std::to_string(process) + "/fd";
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (std::filesystem::read_symlink(entry.path(), ignored) != path) continue;
    const int descriptor = std::stoi(entry.path().filename().string());
    found.first = found.second == 0 ? descriptor : std::min(found.first, descriptor);
    ++found.second;
  }
  return found;
}

TEST_F(OvertakenAttach, ByAReplacementBeforeItsLastLookAtTheNameIsAttachedToTheNewOne) {
  const std::string path = options.directory + "/shmcb." + *options.name;
  int first = -1;  // by which it opens the segment; a second one follows, by the name again, and the first is closed
  int tried = 0;
  for (int stop = 0, overtaken = 1; overtaken != 0; ++stop) {
    make_anew();
    overtaken = 0;
    bool replaced = false;
    const Ended ended = run_stopped_at_system_call(
        [&]() -> int {
          const auto segment = Segment::attach(options);
          if (!segment) throw std::runtime_error(segment.error().message);
          return segment->status() == SegmentStatus::current ? 0 : 3;
        },
        stop,
        [&](const Child& child) {
          overtaken = 1;
          const auto [lowest, count] = descriptors_of(child.pid(), path);
          if (first < 0) first = lowest;
          replaced = count == 1 && lowest == first;
          if (!replaced) return;
          std::filesystem::rename(path, path + ".aside");  // it keeps its one link
          ASSERT_TRUE(Segment::create(options));
        });
    SHMCB_SKIP_IF_REFUSED(ended, "no ptrace");
    std::filesystem::remove(path + ".aside");
    ASSERT_EQ(ended, exited(0)) << "at stop " << stop;
    ASSERT_LT(stop, 2'000);
    tried += replaced ? 1 : 0;
  }
  EXPECT_GT(tried, 5);
}

TEST_F(OvertakenAttach, EachTimeItLooksGivesUp) {
  make_anew();
  Child child = fork_child([&]() -> int {
    ::alarm(60);  // the tracer cannot wait with a limit
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) return kRefusedByKernel;
    ::raise(SIGSTOP);
    const Error error = Segment::attach(options).error();
    return error.code == Errc::system && error.message.find("was replaced 100 times") != std::string::npos ? 0 : 1;
  });
  int status = 0;
  int stops = 0;
  while (::waitpid(child.pid(), &status, 0) == child.pid() && WIFSTOPPED(status) && ++stops < 20'000) {
    make_anew();
    ::ptrace(PTRACE_SYSCALL, child.pid(), nullptr, nullptr);
  }
  child.reaped();
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kRefusedByKernel) GTEST_SKIP() << "no ptrace";
  EXPECT_EQ(WEXITSTATUS(status), 0) << "after " << stops << " stops";
}

// ---- killed creators
// -----------------------------------------------------------------------------------------------------------

/// Kills a creator before and after each of its system calls in turn.
class KilledCreator : public CreationOn {
 protected:
  template <class Check>
  void kill_at_each_system_call(bool unnamed_files, Check check) {
    constexpr int kMore = 2'000;
    int killed = 0;
    for (int stop = 0; stop < kMore; ++stop) {
      const Ended ended = run_killed_at_system_call(
          [&]() -> int {
            if (!unnamed_files && !refuse_unnamed_files()) return kRefusedByKernel;
            const auto segment = Segment::open(options);
            if (!segment) throw std::runtime_error(segment.error().message);
            return 0;
          },
          stop);
      SHMCB_SKIP_IF_REFUSED(ended, "no ptrace or no seccomp filters");
      const bool finished = ended == exited(0);
      ASSERT_TRUE(finished || ended == killed_by(SIGKILL)) << ended;
      killed += finished ? 0 : 1;
      check(stop);
      if (HasFatalFailure()) return;
      // The next one comes, whatever was left.
      const auto segment = Segment::open(options);
      ASSERT_TRUE(segment) << segment.error().message;
      ASSERT_NO_FATAL_FAILURE(expect_usable(options));
      ASSERT_FALSE(Segment::remove(options));
      if (finished) break;
    }
    EXPECT_GT(killed, 30) << "before and after each of the system calls of a creation";
    KillPoints::count(static_cast<std::uint64_t>(killed));
  }
};

TEST_F(KilledCreator, LeavesNothingOrAWholeSegment) {
  kill_at_each_system_call(true, [&](int stop) {
    const std::set<std::string> left = listing(directory.path());
    if (left.empty()) return;
    ASSERT_EQ(left, (std::set<std::string>{"shmcb." + *options.name})) << "at stop " << stop;
    ASSERT_NO_FATAL_FAILURE(expect_usable(options));
  });
}

TEST_F(KilledCreator, WithoutUnnamedFilesLeavesNothingVisibleAndTheNextOneSweeps) {
  kill_at_each_system_call(false, [&](int stop) {
    if (Segment::attach(options)) {
      ASSERT_NO_FATAL_FAILURE(expect_usable(options));
      return;
    }
    std::size_t leftovers = 0;
    for (const std::string& name : listing(directory.path())) {
      ASSERT_THAT(name, StartsWith("shmcb-new." + *options.name + "."));
      ++leftovers;
    }
    ASSERT_LE(leftovers, 1U) << "at stop " << stop;
    const Ended ended = run_in_child([&]() -> int {
      if (!refuse_unnamed_files()) return kRefusedByKernel;
      return Segment::create(options) ? 0 : 1;
    });
    ASSERT_EQ(ended, exited(0));
    ASSERT_EQ(listing(directory.path()), (std::set<std::string>{"shmcb." + *options.name}));
  });
}

/// Stops a creator before and after each of its system calls in turn, and lets another one create or remove meanwhile.
class OvertakenCreator : public CreationOn {
 protected:
  template <class Meanwhile>
  void overtake_at_each_system_call(bool unnamed_files, Meanwhile meanwhile, std::set<Errc> expected) {
    constexpr int kMore = 2'000;
    for (int stop = 0; stop < kMore; ++stop) {
      const SharedArea<Errc> result;
      bool overtaken = false;
      const Ended ended = run_stopped_at_system_call(
          [&]() -> int {
            if (!unnamed_files && !refuse_unnamed_files()) return kRefusedByKernel;
            const auto created = Segment::create(options);
            *result = created ? Errc::ok : created.error().code;
            if (!created && expected.count(*result) == 0) throw std::runtime_error(created.error().message);
            return 0;
          },
          stop,
          [&](const Child&) {
            overtaken = true;
            meanwhile();
          });
      SHMCB_SKIP_IF_REFUSED(ended, "no ptrace or no seccomp filters");
      ASSERT_EQ(ended, exited(0)) << "at stop " << stop;
      if (!overtaken) return;
      ASSERT_EQ(expected.count(*result), 1U) << to_string(*result);
      ASSERT_EQ(listing(directory.path()), (std::set<std::string>{"shmcb." + *options.name})) << "at stop " << stop;
      ASSERT_NO_FATAL_FAILURE(expect_usable(options));
      ASSERT_FALSE(Segment::remove(options));
    }
    FAIL() << "it never came to an end";
  }
  void create_in_another_process(bool unnamed_files) const {
    const Ended ended = run_in_child([&]() -> int {
      if (!unnamed_files && !refuse_unnamed_files()) return kRefusedByKernel;
      const auto created = Segment::create(options);
      return created || created.error().code == Errc::segment_exists ? 0 : 1;
    });
    EXPECT_EQ(ended, exited(0));
  }
};

TEST_F(OvertakenCreator, FindsTheSegmentOfTheOtherOne) {
  overtake_at_each_system_call(true, [&] { create_in_another_process(true); }, {Errc::ok, Errc::segment_exists});
}

TEST_F(OvertakenCreator, WithoutUnnamedFilesFindsTheSegmentOfTheOtherOne) {
  overtake_at_each_system_call(false, [&] { create_in_another_process(false); }, {Errc::ok, Errc::segment_exists});
}

TEST_F(OvertakenCreator, WithoutUnnamedFilesCreatesAllTheSameWhenAnotherOneHasSweptAndGone) {
  overtake_at_each_system_call(false,
                               [&] {
                                 if (status_of(path_of(options)).st_ino != 0) return;  // it has got there
                                 create_in_another_process(false);
                                 (void)Segment::remove(options);
                                 // Who sweeps and then goes away without a segment.
                                 (void)run_in_child([&] {
                                   (void)refuse_unnamed_files();
                                   (void)fail_system_call({.number = SYS_fchmod}, EPERM);
                                   (void)Segment::create(options);
                                 });
                               },
                               {Errc::ok});
}

TEST_F(Creation, ByManyProcessesThatAreKilledAtRandomIsCompleteOrNotThere) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 40; ++round) {
    const SharedBarrier barrier(9);
    std::vector<Child> children;
    for (int p = 0; p < 8; ++p) {
      children.push_back(fork_child([&]() -> int {
        if (!barrier.arrive_and_wait()) return 1;
        const auto segment = Segment::open(options);
        if (!segment) throw std::runtime_error(segment.error().message);
        return 0;
      }));
    }
    ASSERT_TRUE(barrier.arrive_and_wait());
    for (Child& child : children) {
      if (random() % 2 == 0) child.kill();
      if (random() % 4 == 0) {
        const auto segment = Segment::attach(options);
        ASSERT_TRUE(segment || segment.error().code == Errc::segment_not_found) << segment.error().message;
      }
    }
    for (Child& child : children) {
      const Ended ended = child.wait();
      EXPECT_TRUE(ended == exited(0) || ended == killed_by(SIGKILL)) << ended;
    }
    if (status_of(path_of(options)).st_ino != 0) {
      ASSERT_NO_FATAL_FAILURE(expect_usable(options));
    }
    (void)Segment::remove(options);
    EXPECT_THAT(ours(), IsEmpty());
  }
}

}  // namespace
}  // namespace shmcb::test
