// SPDX-License-Identifier: BSD-3-Clause
// Where the pages of an attachment are: brought in, locked, huge; what is refused, and what a forked child has of it.
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shmcb/shm_storage.hpp"
#include "support/kernel_faults.hpp"
#include "support/processes.hpp"
#include "support/test_segment.hpp"

namespace shmcb::test {
namespace {

using ::testing::HasSubstr;

const SegmentOptions kSome{.breakers = 1'024, .participants = 16};  // 1.6 MiB, within the usual limit of locked memory
constexpr std::uint64_t kHugePage = std::uint64_t{2} << 20U;

[[nodiscard]] SegmentMemory memory_of(const Segment& segment) {
  const auto memory = segment.memory();
  if (!memory) throw std::runtime_error(memory.error().message);
  return *memory;
}

void use(const Segment& segment) {
  auto storage = ShmStorage<>::open(segment, {.name = "used"});
  ASSERT_TRUE(storage) << storage.error().message;
  EXPECT_EQ(storage->record_outcome(storage->admit().token, Outcome::failure).error, Errc::ok);
}

/// In a child: no more than so much may be locked, whoever it runs as. False: refused.
[[nodiscard]] bool limit_locked_memory(rlim_t bytes) {
  const rlimit limit{.rlim_cur = bytes, .rlim_max = bytes};
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct sets[2] = {};
  if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || ::syscall(SYS_capget, &header, sets) != 0) return false;
  sets[0].effective &= ~(1U << CAP_IPC_LOCK);
  return ::syscall(SYS_capset, &header, sets) == 0;
}

TEST(SegmentMemory, ComesInAsItIsTouchedUnlessItIsAskedFor) {
  const TestSegment made{kSome};
  expect_success_in_child([&] {
    const SegmentMemory memory = memory_of(made.attach());
    EXPECT_EQ(memory.bytes, made->geometry().total_bytes);
    EXPECT_LT(memory.present, memory.bytes / 2);
    EXPECT_EQ(memory.locked, 0U);
  });
  expect_success_in_child([&] {
    SegmentOptions options = made.options();
    options.prefault = true;
    const auto segment = Segment::attach(options);
    ASSERT_TRUE(segment) << segment.error().message;
    const SegmentMemory memory = memory_of(*segment);
    EXPECT_GE(memory.present, memory.bytes);
    EXPECT_EQ(memory.locked, 0U);
  });
}

TEST(SegmentMemory, IsLockedWhereThatIsAskedForAndNotInAForkedChild) {
  const TestSegment made{kSome};
  SegmentOptions options = made.options();
  options.lock_memory = true;
  const auto segment = Segment::attach(options);
  ASSERT_TRUE(segment) << segment.error().message;
  ASSERT_FALSE(segment->lock_error()) << segment->lock_error().message;
  const SegmentMemory memory = memory_of(*segment);
  EXPECT_GE(memory.present, memory.bytes);
  EXPECT_GE(memory.locked, memory.bytes);
  expect_success_in_child([&] {
    EXPECT_EQ(memory_of(*segment).locked, 0U);
    use(*segment);
    const auto own = Segment::attach(options);  // what the child can do about it
    ASSERT_TRUE(own) << own.error().message;
    EXPECT_GE(memory_of(*own).locked, memory.bytes);
  });
  EXPECT_GE(memory_of(*segment).locked, memory.bytes);
}

TEST(SegmentMemory, BeyondTheLimitOfLockedMemoryIsBroughtInAndTheErrorNamesTheLimit) {
  const TestSegment made{kSome};
  const Ended ended = run_in_child([&]() -> int {
    if (!limit_locked_memory(65'536)) return kRefusedByKernel;
    SegmentOptions options = made.options();
    options.lock_memory = true;
    const auto segment = Segment::attach(options);
    EXPECT_TRUE(segment) << segment.error().message;
    if (!segment) return 1;
    EXPECT_EQ(to_string(segment->lock_error().code), to_string(Errc::memory_lock_limit));
    for (const std::string& part : {"segment '" + *options.name + "'", std::string{"(RLIMIT_MEMLOCK) is 65536 bytes"},
                                    std::to_string(segment->geometry().total_bytes) + " bytes"})
      EXPECT_THAT(segment->lock_error().message, HasSubstr(part));
    const SegmentMemory memory = memory_of(*segment);
    EXPECT_GE(memory.present, memory.bytes);
    EXPECT_EQ(memory.locked, 0U);
    use(*segment);
    return ::testing::Test::HasFailure() ? 1 : 0;
  });
  SHMCB_SKIP_IF_REFUSED(ended, "no right to change limits");
  EXPECT_EQ(ended, exited(0));
}

TEST(SegmentMemory, ThatCannotBeLockedForAnotherReasonSaysSo) {
  const TestSegment made{kSome};
  const Ended ended = run_in_child([&]() -> int {
    if (!fail_system_call({.number = SYS_mlock}, EAGAIN)) return kRefusedByKernel;
    SegmentOptions options = made.options();
    options.lock_memory = true;
    const auto segment = Segment::attach(options);
    EXPECT_TRUE(segment) << segment.error().message;
    if (!segment) return 1;
    EXPECT_EQ(to_string(segment->lock_error().code), to_string(Errc::system));
    EXPECT_THAT(segment->lock_error().message, HasSubstr("mlock"));
    return ::testing::Test::HasFailure() ? 1 : 0;
  });
  SHMCB_SKIP_IF_REFUSED(ended, "no seccomp filters");
  EXPECT_EQ(ended, exited(0));
}

/// On a tmpfs of its own that is mounted so: a segment of 5 MiB, made with or without asking.
[[nodiscard]] Ended expect_huge_pages(const char* mounted, bool asked, bool expected) {
  const TemporaryDirectory directory;
  return run_in_child([&]() -> int {
    if (!mount_privately(directory.path(), "tmpfs", mounted)) return kRefusedByKernel;
    const auto segment = Segment::create(
        {.name = "huge", .breakers = 4'096, .prefault = true, .huge_pages = asked, .directory = directory.path()});
    EXPECT_TRUE(segment) << segment.error().message;
    if (!segment) return 1;
    const SegmentMemory memory = memory_of(*segment);
    EXPECT_GE(memory.bytes, 2 * kHugePage);
    EXPECT_GE(memory.present, memory.bytes);
    if (expected) {
      EXPECT_GE(memory.huge, kHugePage) << mounted;
    } else {
      EXPECT_EQ(memory.huge, 0U) << mounted;
    }
    use(*segment);
    return ::testing::Test::HasFailure() ? 1 : 0;
  });
}

TEST(SegmentMemory, IsOfHugePagesWhereTheMountAdvisesAndTheSegmentAsks) {
  const Ended asked = expect_huge_pages("huge=advise,size=64m", true, true);
  SHMCB_SKIP_IF_REFUSED(asked, "no mounts, or a kernel without huge pages in tmpfs");
  EXPECT_EQ(asked, exited(0));
  EXPECT_EQ(expect_huge_pages("huge=advise,size=64m", false, false), exited(0));
}

TEST(SegmentMemory, IsOfSmallPagesWhereTheMountHasNoOthersAndSaysSo) {
  const Ended ended = expect_huge_pages("huge=never,size=64m", true, false);
  SHMCB_SKIP_IF_REFUSED(ended, "no mounts, or a kernel without huge pages in tmpfs");
  EXPECT_EQ(ended, exited(0));
}

TEST(SegmentMemory, IsNotGivenMoreThanThereIsRoomForByAskingForHugePages) {
  const TemporaryDirectory directory;
  const Ended ended = run_in_child([&]() -> int {
    if (!mount_privately(directory.path(), "tmpfs", "huge=advise,size=3m")) return kRefusedByKernel;
    const auto segment =
        Segment::create({.name = "huge", .breakers = 4'096, .huge_pages = true, .directory = directory.path()});
    EXPECT_EQ(to_string(segment ? Errc::ok : segment.error().code), to_string(Errc::no_space));
    EXPECT_TRUE(listing(directory.path()).empty());
    return ::testing::Test::HasFailure() ? 1 : 0;
  });
  SHMCB_SKIP_IF_REFUSED(ended, "no mounts, or a kernel without huge pages in tmpfs");
  EXPECT_EQ(ended, exited(0));
}

}  // namespace
}  // namespace shmcb::test
