// SPDX-License-Identifier: BSD-3-Clause
// Attaching: what is refused, with which words, and that nothing of a refusal stays behind. And what an attachment
// knows about the name it came by.
#include "shmcb/segment.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shm/segment_file.hpp"
#include "shmcb/shm_storage.hpp"
#include "support/kernel_faults.hpp"
#include "support/processes.hpp"
#include "support/test_segment.hpp"

namespace shmcb::test {
namespace {

using ::testing::HasSubstr;

constexpr uid_t kNobody = 65'534;
const std::string kAnySegment = "/dev/shm/shmcb.";

[[nodiscard]] Error attach_in_child(const SegmentOptions& options) {
  return error_in_child([&] { return error_of(Segment::attach(options)); });
}

void expect_refused(const Error& error, Errc code, std::initializer_list<std::string_view> parts) {
  EXPECT_EQ(to_string(error.code), to_string(code)) << error.message;
  for (const std::string_view part : parts)
    EXPECT_THAT(error.message, HasSubstr(std::string{part}));
}

/// Opens, uses and looks at a breaker; an error is fine, a crash is not.
void use(const Segment& segment, const std::string& name = "used") {
  auto storage = ShmStorage<>::open(segment, {.name = name});
  if (!storage) return;
  for (int i = 0; i < 12; ++i) {
    const AdmitResult admitted = storage->admit();
    (void)storage->record_outcome(admitted.token, i % 2 == 0 ? Outcome::failure : Outcome::success);
  }
  (void)storage->force_state(CircuitState::half_open);
  (void)storage->snapshot();
  (void)storage->peek();
}

// ---- content
// -------------------------------------------------------------------------------------------------------------

class AttachTo : public ::testing::Test {
 protected:
  TestSegment made{};
  const std::string path = made.path();
  const core::Header header = read_header(path);

  AttachTo() { made.detach(); }

  [[nodiscard]] Error attach() const { return attach_in_child(made.options()); }
  /// Whether it is still a segment for everybody else.
  void restore() const { write_header(path, header); }
};

TEST_F(AttachTo, FilesThatAreTooShortForAHeaderIsRefusedAsTruncated) {
  for (const off_t size : {0, 1, 100, 223}) {
    ASSERT_EQ(::truncate(path.c_str(), size), 0);
    expect_refused(attach(), Errc::truncated,
                   {"segment '" + *made.options().name + "'", "size is " + std::to_string(size) + " bytes",
                    "expected at least", "4096"});
  }
}

TEST_F(AttachTo, AFileThatIsShorterThanItsHeaderSaysIsRefusedAsTruncated) {
  for (const std::uint64_t size : {std::uint64_t{4095}, std::uint64_t{4096}, header.total_bytes - 1}) {
    ASSERT_EQ(::truncate(path.c_str(), static_cast<off_t>(size)), 0);
    expect_refused(attach(), Errc::truncated,
                   {"size is " + std::to_string(size) + " bytes", "expected " + std::to_string(header.total_bytes)});
    ASSERT_EQ(::truncate(path.c_str(), static_cast<off_t>(header.total_bytes)), 0);
  }
}

TEST_F(AttachTo, AFileThatIsLongerThanItsHeaderSaysIsRefused) {
  ASSERT_EQ(::truncate(path.c_str(), static_cast<off_t>(header.total_bytes + 1)), 0);
  expect_refused(
      attach(), Errc::corrupt,
      {"size is " + std::to_string(header.total_bytes + 1), "expected " + std::to_string(header.total_bytes)});
}

TEST_F(AttachTo, AFileOfZerosIsNoSegment) {
  write_header(path, core::Header{});
  expect_refused(attach(), Errc::not_a_segment, {"magic is 0x0000000000000000", "expected 0x47455342434d4853"});
}

TEST_F(AttachTo, AFileOfSomebodyElsesIsNoSegment) {
  core::Header foreign = header;
  foreign.magic = 0x1122'3344'5566'7788;
  write_header(path, foreign);
  expect_refused(attach(), Errc::not_a_segment, {"magic is 0x1122334455667788", "expected 0x47455342434d4853"});
}

struct Patch {
  const char* what;
  std::function<void(core::Header&)> apply;
  Errc code;
  std::vector<std::string> message;
};

TEST_F(AttachTo, AHeaderWithOneForeignFieldIsRefusedWithFieldFoundAndExpected) {
  const auto number = [](auto value) { return std::to_string(value); };
  const std::vector<Patch> patches{
      {"byte order",
       [](auto& h) { h.byte_order = 0x0403'0201; },
       Errc::incompatible,
       {"byte order is 0x0000000004030201", "expected 0x0000000001020304"}},
      {"older major",
       [](auto& h) { h.layout_major = 0; },
       Errc::incompatible,
       {"layout version is 0.0", "expected 1.x"}},
      {"newer major",
       [](auto& h) { h.layout_major = 2, h.layout_minor = 7; },
       Errc::incompatible,
       {"layout version is 2.7", "expected 1.x"}},
      {"word size",
       [](auto& h) { h.word_bits = 32; },
       Errc::incompatible,
       {"word size is 32 bits", "expected 64 bits"}},
      {"fingerprint",
       [](auto& h) { h.fingerprint = 5; },
       Errc::incompatible,
       {"layout fingerprint is 0x0000000000000005", "expected 0x"}},
      {"incompatible feature",
       [](auto& h) { h.features_incompatible = 4; },
       Errc::incompatible,
       {"incompatible feature mask is 0x0000000000000004", "expected none"}},
      {"read-only feature",
       [](auto& h) { h.features_read_only = 8; },
       Errc::read_only,
       {"read-only-compatible feature mask is 0x0000000000000008", "expected none", "inspect"}},
      {"development build",
       [](auto& h) { h.development_build ^= 1U; },
       Errc::incompatible,
       {"development-build bit is 1", "expected 0"}},
      {"header size",
       [](auto& h) { h.header_bytes = 8192; },
       Errc::incompatible,
       {"header size is 8192", "expected 4096"}},
      {"clock", [](auto& h) { h.clock_id = 7; }, Errc::foreign_clock, {"clock id is 7", "expected 1"}},
      {"boot",
       [](auto& h) { h.boot_id[3] ^= 1U; },
       Errc::foreign_clock,
       {"boot id is another boot's", "expected this boot's"}},
      {"time namespace",
       [](auto& h) { h.time_namespace = 99; },
       Errc::foreign_clock,
       {"time namespace is 99", "expected " + number(header.time_namespace)}},
      {"no breakers",
       [](auto& h) { h.breakers = 0; },
       Errc::corrupt,
       {"number of breakers is 0", "expected 1 to 900000"}},
      {"too many breakers",
       [](auto& h) { h.breakers = core::kMaxBreakers + 1; },
       Errc::corrupt,
       {"number of breakers is 900001", "expected 1 to 900000"}},
      {"no participants",
       [](auto& h) { h.participants = 0; },
       Errc::corrupt,
       {"number of participants is 0", "expected 1 to 32768"}},
      {"too many participants",
       [](auto& h) { h.participants = 32'769; },
       Errc::corrupt,
       {"number of participants is 32769", "expected 1 to 32768"}},
      {"no ring slots",
       [](auto& h) { h.ring_slots = 15; },
       Errc::corrupt,
       {"number of ring slots is 15", "expected 16 to 2^40"}},
      {"too many ring slots",
       [](auto& h) { h.ring_slots = ~std::uint64_t{0}; },
       Errc::corrupt,
       {"number of ring slots is 18446744073709551615", "expected 16 to 2^40"}},
      {"other breakers", [](auto& h) { ++h.breakers; }, Errc::corrupt, {"geometry", "expected"}},
      {"other participants", [](auto& h) { ++h.participants; }, Errc::corrupt, {"geometry", "expected"}},
      {"other ring slots", [](auto& h) { h.ring_slots += 4096; }, Errc::corrupt, {"geometry", "expected"}},
      {"records", [](auto& h) { ++h.records; }, Errc::corrupt, {"geometry", "expected"}},
      {"index", [](auto& h) { h.index_slots = 0; }, Errc::corrupt, {"geometry", "expected"}},
      {"participants' offset", [](auto& h) { h.participants_offset += 8; }, Errc::corrupt, {"geometry"}},
      {"index's offset", [](auto& h) { h.index_offset = 0; }, Errc::corrupt, {"geometry"}},
      {"breakers' offset", [](auto& h) { h.breakers_offset = ~std::uint64_t{0}; }, Errc::corrupt, {"geometry"}},
      {"records' offset", [](auto& h) { h.records_offset = 1; }, Errc::corrupt, {"geometry"}},
      {"rings' offset", [](auto& h) { h.rings_offset = 1; }, Errc::corrupt, {"geometry"}},
      {"journal's offset", [](auto& h) { h.journal_offset -= 4096; }, Errc::corrupt, {"geometry"}},
      {"no journal", [](auto& h) { h.journal_bytes = 0; }, Errc::corrupt, {"size of the journal is 0", "power of two"}},
      {"a journal of other entries", [](auto& h) { h.journal_bytes += 8; }, Errc::corrupt, {"size of the journal"}},
      {"a journal of three quarters", [](auto& h) { h.journal_bytes = 48 * 64; }, Errc::corrupt, {"expected a power"}},
      {"a longer journal", [](auto& h) { h.journal_bytes *= 2; }, Errc::corrupt, {"geometry", "expected"}},
      {"a journal beyond all bounds", [](auto& h) { h.journal_bytes = 64ULL << 21U; }, Errc::corrupt, {"1048576"}},
      {"total size",
       [](auto& h) { h.total_bytes = 4096; },
       Errc::corrupt,
       {"geometry", "expected " + number(header.total_bytes)}},
      {"an epoch before time began",
       [](auto& h) { h.epoch_us = -1; },
       Errc::corrupt,
       {"epoch is -1", "expected 0 to 2^60"}},
      {"an epoch that overflows",
       [](auto& h) { h.epoch_us = INT64_MAX; },
       Errc::corrupt,
       {"epoch is 9223372036854775807", "expected 0 to 2^60"}},
  };
  for (const Patch& patch : patches) {
    SCOPED_TRACE(patch.what);
    core::Header patched = header;
    patch.apply(patched);
    sign(patched);
    write_header(path, patched);
    const Error error = attach();
    expect_refused(error, patch.code, {"segment '" + *made.options().name + "': "});
    for (const std::string& part : patch.message)
      EXPECT_THAT(error.message, HasSubstr(part));
  }
}

TEST_F(AttachTo, AHeaderWithAWrongChecksumIsRefusedWithBoth) {
  core::Header patched = header;
  patched.breakers = 7;
  write_header(path, patched);
  expect_refused(attach(), Errc::corrupt, {"header checksum is 0x", "expected 0x"});
}

TEST_F(AttachTo, AHeaderWithWhatOnlyLaterVersionsKnowWorks) {
  const std::vector<Patch> patches{
      {"newer minor", [](auto& h) { h.layout_minor = 9; }, Errc::ok, {}},
      {"compatible features", [](auto& h) { h.features_compatible = ~std::uint64_t{0}; }, Errc::ok, {}},
      {"the reserved word", [](auto& h) { h.reserved = ~0U; }, Errc::ok, {}},
      {"another creator",
       [](auto& h) { h.creator_pid = ~0U, h.creation_id[0] ^= 1U, h.created_wall_ns = INT64_MIN; },
       Errc::ok,
       {}},
      {"the earliest epoch", [](auto& h) { h.epoch_us = 0; }, Errc::ok, {}},
      {"the latest epoch", [](auto& h) { h.epoch_us = std::int64_t{1} << 60U; }, Errc::ok, {}},
  };
  int number = 0;
  for (const Patch& patch : patches) {
    SCOPED_TRACE(patch.what);
    core::Header patched = header;
    patch.apply(patched);
    sign(patched);
    write_header(path, patched);
    const std::string name = "b" + std::to_string(number++);
    expect_success_in_child([&] {
      const auto segment = Segment::attach(made.options());
      ASSERT_TRUE(segment) << segment.error().message;
      auto storage = ShmStorage<>::open(*segment, {.name = name});
      ASSERT_TRUE(storage) << storage.error().message;
      const AdmitResult admitted = storage->admit();
      EXPECT_EQ(admitted.admission, Admission::allowed);
      EXPECT_EQ(storage->record_outcome(admitted.token, Outcome::failure).status, RecordStatus::counted);
      EXPECT_EQ(storage->force_state(CircuitState::open).error, Errc::ok);
      EXPECT_EQ(storage->admit().admission, Admission::rejected);
    });
  }
}

TEST_F(AttachTo, AHeaderWithAnyBitFlippedIsRefused) {
  expect_success_in_child([&] {
    for (std::size_t bit = 0; bit < sizeof header * 8; ++bit) {
      core::Header flipped = header;
      reinterpret_cast<unsigned char*>(&flipped)[bit / 8] ^= static_cast<unsigned char>(1U << (bit % 8));
      write_header(path, flipped);
      const auto segment = Segment::attach(made.options());
      ASSERT_FALSE(segment) << "bit " << bit;
      ASSERT_FALSE(segment.error().message.empty());
    }
    restore();
    EXPECT_TRUE(Segment::attach(made.options()));
  });
}

TEST_F(AttachTo, AHeaderWithAnyBitFlippedAndSignedAnewIsRefusedOrWorks) {
  int worked = 0;
  const SharedArea<int> count;
  expect_success_in_child([&] {
    for (std::size_t bit = 0; bit < offsetof(core::Header, checksum) * 8; ++bit) {
      core::Header flipped = header;
      reinterpret_cast<unsigned char*>(&flipped)[bit / 8] ^= static_cast<unsigned char>(1U << (bit % 8));
      sign(flipped);
      write_header(path, flipped);
      const auto segment = Segment::attach(made.options());
      if (!segment) continue;
      ++*count;
      use(*segment);
    }
  });
  worked = *count;
  // Those that do not decide anything: minor version, compatible features, creation and its time, the journal, the
  // creator.
  EXPECT_GT(worked, 300);
  EXPECT_LT(worked, 700);
}

TEST(SegmentWords, WithAnyBitFlippedGiveErrorsOrWork) {
  constexpr std::size_t kWords = 5;
  for (std::size_t bit = 0; bit < kWords * 64; ++bit) {
    const TestSegment made({.breakers = 4, .participants = 2});
    std::uint64_t words[kWords] = {};
    words[bit / 64] ^= std::uint64_t{1} << (bit % 64);
    write_bytes(made.path(), core::kSegmentWordsOffset, words, sizeof words);
    expect_success_in_child([&] {
      for (const char* name : {"one", "another", "third"})
        use(made.segment(), name);
    });
    if (HasFailure()) FAIL() << "bit " << bit;
  }
}

// ---- files that are none of ours
// ---------------------------------------------------------------------------------------------

/// A name of which nothing exists.
class AttachByName : public ::testing::Test {
 protected:
  const SegmentOptions options{.name = unique_segment_name(), .breakers = 2, .participants = 2};
  const std::string path = path_of(options);
  ~AttachByName() override {
    ::unlink(path.c_str());
    ::rmdir(path.c_str());
  }
};

TEST_F(AttachByName, ThatDoesNotExistSaysWhere) {
  expect_refused(attach_in_child(options), Errc::segment_not_found,
                 {"segment '" + *options.name + "' does not exist", path});
}

TEST_F(AttachByName, InADirectoryThatDoesNotExistNamesTheDirectory) {
  SegmentOptions elsewhere = options;
  elsewhere.directory = "/dev/shm/no-such-directory";
  expect_refused(attach_in_child(elsewhere), Errc::system, {"/dev/shm/no-such-directory does not exist"});
}

TEST_F(AttachByName, InADirectoryThatIsAFileSaysSo) {
  SegmentOptions elsewhere = options;
  elsewhere.directory = "/proc/version";
  expect_refused(attach_in_child(elsewhere), Errc::system, {"/proc/version is not a directory"});
}

TEST_F(AttachByName, OfASymbolicLinkIsRefusedWhereverItLeads) {
  const TestSegment real;
  for (const std::string& target : {real.path(), std::string{"/dev/shm/nothing-here"}, path}) {
    ASSERT_EQ(::symlink(target.c_str(), path.c_str()), 0);
    expect_refused(attach_in_child(options), Errc::not_a_segment, {path, "is a symbolic link"});
    expect_refused(error_in_child([&] { return error_of(Segment::open(options)); }), Errc::not_a_segment,
                   {"is a symbolic link"});
    expect_refused(error_in_child([&] { return error_of(Segment::create(options)); }), Errc::segment_exists,
                   {"exists already"});
    ASSERT_EQ(::unlink(path.c_str()), 0);
  }
}

TEST_F(AttachByName, OfAFifoIsRefusedAtOnce) {
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  expect_refused(attach_in_child(options), Errc::not_a_segment, {path, "is not a regular file"});
}

TEST_F(AttachByName, OfADirectoryIsRefused) {
  ASSERT_EQ(::mkdir(path.c_str(), 0700), 0);
  expect_refused(attach_in_child(options), Errc::not_a_segment, {path, "is not a regular file"});
}

TEST_F(AttachByName, OfASocketIsRefused) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  ASSERT_LT(path.size(), sizeof address.sun_path);
  path.copy(address.sun_path, path.size());
  ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  expect_refused(attach_in_child(options), Errc::not_a_segment, {path, "is not a regular file"});
  ::close(fd);
}

TEST_F(AttachByName, OfADeviceIsRefused) {
  if (::mknod(path.c_str(), S_IFCHR | 0600, (1U << 8U) | 3U) != 0)
    GTEST_SKIP() << "no right to make a device";  // /dev/null
  const Error error = attach_in_child(options);
  EXPECT_TRUE(error.code == Errc::not_a_segment || error.code == Errc::permission_denied)
      << error.message;  // mounted nodev
}

TEST_F(AttachByName, OfAHardLinkIsRefused) {
  const TestSegment real;
  ASSERT_EQ(::link(real.path().c_str(), path.c_str()), 0);
  expect_refused(attach_in_child(options), Errc::not_a_segment, {path, "has 2 hard links", "expected 1"});
  expect_refused(attach_in_child(real.options()), Errc::not_a_segment, {"has 2 hard links"});
}

TEST_F(AttachByName, RefusesToRemoveWhatIsNoFile) {
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  expect_refused(Segment::remove(options), Errc::not_a_segment, {"is not a regular file", "not removed"});
  EXPECT_NE(status_of(path).st_ino, 0U);
  ASSERT_EQ(::unlink(path.c_str()), 0);
  expect_refused(Segment::remove(options), Errc::segment_not_found, {"does not exist"});
}

// ---- owner and mode
// ------------------------------------------------------------------------------------------------------------

TEST(SegmentOwner, ThatIsNeitherTheUserNorRootNorTrustedIsRefused) {
  TestSegment made;
  made.detach();
  if (::chown(made.path().c_str(), kNobody, static_cast<gid_t>(-1)) != 0)
    GTEST_SKIP() << "only root can change the owner of a file";
  expect_refused(attach_in_child(made.options()), Errc::wrong_owner,
                 {"owner is uid 65534", "expected uid " + std::to_string(::geteuid()), "root", "trusted"});
  SegmentOptions trusting = made.options();
  trusting.trusted_owners = {1234};
  expect_refused(attach_in_child(trusting), Errc::wrong_owner, {"owner is uid 65534"});
  trusting.trusted_owners.push_back(kNobody);
  EXPECT_EQ(attach_in_child(trusting).message, "");
}

TEST(SegmentOwner, MayBeRootForAnybodyWhomTheModeLetsIn) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  TestSegment open_to_all({.breakers = 2, .participants = 4, .mode = 0666});
  open_to_all.detach();
  TestSegment private_one({.breakers = 2, .participants = 4});
  private_one.detach();
  const auto as_nobody = [](const SegmentOptions& options) {
    return error_in_child([&] {
      if (::setresuid(kNobody, kNobody, kNobody) != 0) return Error{Errc::unusable, "setresuid"};
      return error_of(Segment::attach(options));
    });
  };
  EXPECT_EQ(as_nobody(open_to_all.options()).message, "");
  expect_refused(as_nobody(private_one.options()), Errc::permission_denied,
                 {"opening " + private_one.path(), "Permission denied"});
}

TEST(SegmentMode, WithMoreWriteBitsThanAllowedIsRefused) {
  TestSegment made;
  made.detach();
  for (const mode_t mode : {0620U, 0602U, 0622U, 0666U, 0777U}) {
    ASSERT_EQ(::chmod(made.path().c_str(), mode), 0);
    SegmentOptions options = made.options();
    char octal[8];
    std::snprintf(octal, sizeof octal, "0%o", mode);
    expect_refused(attach_in_child(options), Errc::unsafe_mode,
                   {"mode is " + std::string{octal}, "expected no write bits beyond", "0600"});
    options.mode = mode & 0666U;
    EXPECT_EQ(attach_in_child(options).message, "");
  }
  SegmentOptions group_writes = made.options();
  group_writes.mode = 0660;
  expect_refused(attach_in_child(group_writes), Errc::unsafe_mode, {"expected no write bits beyond", "0660"});
}

TEST(SegmentMode, MayLetOthersRead) {
  TestSegment made;
  made.detach();
  ASSERT_EQ(::chmod(made.path().c_str(), 0644), 0);
  EXPECT_EQ(attach_in_child(made.options()).message, "");
}

// ---- clocks
// --------------------------------------------------------------------------------------------------------------------

TEST(SegmentClock, OfAnotherTimeNamespaceIsRefused) {
  const TestSegment made;
  const Ended ended = run_in_child([&] {
    if (::unshare(CLONE_NEWTIME) != 0) return kRefusedByKernel;
    const int fd = ::open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC);
    constexpr std::string_view kOffset = "monotonic 100000 0\n";
    if (fd < 0 || ::write(fd, kOffset.data(), kOffset.size()) < 0) return kRefusedByKernel;
    ::close(fd);
    // The process itself stays in its namespace, its children do not.
    EXPECT_TRUE(Segment::attach(made.options()));
    expect_success_in_child([&] {
      expect_refused(error_of(Segment::attach(made.options())), Errc::foreign_clock,
                     {"time namespace is " + std::to_string(read_header(made.path()).time_namespace), "expected "});
      SegmentOptions mine{.name = unique_segment_name() + "-there", .breakers = 1, .participants = 1};
      EXPECT_TRUE(Segment::create(mine));
      EXPECT_TRUE(Segment::attach(mine));
      EXPECT_FALSE(Segment::remove(mine));
    });
    return ::testing::Test::HasFailure() ? Child::kFailedExpectation : 0;
  });
  SHMCB_SKIP_IF_REFUSED(ended, "no time namespaces for this user");
  EXPECT_EQ(ended, exited(0));
}

// ---- nothing stays behind
// --------------------------------------------------------------------------------------------------

TEST(SegmentRefusals, LeaveNoDescriptorAndNoMapping) {
  expect_success_in_child([] {
    TestSegment made;
    made.detach();
    const core::Header header = read_header(made.path());
    const SegmentOptions& options = made.options();
    (void)Segment::attach(options);  // whatever is opened once for all is open now
    const std::size_t descriptors = open_descriptors();
    EXPECT_EQ(mappings_of(kAnySegment), 0U);
    for (const int kind : {0, 1, 2, 3, 4, 5}) {
      core::Header patched = header;
      if (kind == 0) patched.magic = 0;
      if (kind == 1) patched.checksum = 0;
      if (kind == 2) patched.records = 0;
      if (kind != 1) sign(patched);
      write_header(made.path(), patched);
      if (kind == 3) (void)::chmod(made.path().c_str(), 0666);
      if (kind == 4) (void)::truncate(made.path().c_str(), 5000);
      if (kind == 5) (void)::truncate(made.path().c_str(), 0);
      for (int i = 0; i < 10; ++i)
        ASSERT_FALSE(Segment::attach(options)) << kind;
      for (int i = 0; i < 10; ++i)
        ASSERT_FALSE(Segment::open(options)) << kind;
      for (int i = 0; i < 10; ++i)
        ASSERT_FALSE(Segment::create(options)) << kind;
      (void)::chmod(made.path().c_str(), 0600);
    }
    EXPECT_EQ(open_descriptors(), descriptors);
    EXPECT_EQ(mappings_of(kAnySegment), 0U);
    EXPECT_FALSE(Segment::remove(options));
  });
}

TEST(SegmentRefusals, WithoutADescriptorNameTheCause) {
  TestSegment made;
  made.detach();
  expect_success_in_child([&] {
    rlimit before{};
    if (::getrlimit(RLIMIT_NOFILE, &before) != 0) throw std::runtime_error("getrlimit");
    const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
    if (::setrlimit(RLIMIT_NOFILE, &none) != 0) throw std::runtime_error("setrlimit");
    const Error error = error_of(Segment::attach(made.options()));
    if (::setrlimit(RLIMIT_NOFILE, &before) != 0) throw std::runtime_error("setrlimit");  // the sanitizers need some
    expect_refused(error, Errc::system, {"opening " + made.path(), "Too many open files"});
  });
}

TEST(SegmentRefusals, WithoutMemoryNameTheCauseAndLeaveNoDescriptor) {
  TestSegment made;
  made.detach();
  const Ended ended = run_in_child([&]() -> int {
    (void)Segment::attach(made.options());
    const std::size_t descriptors = open_descriptors();
    if (!fail_system_call({.number = SYS_mmap, .argument = 3, .mask = MAP_SHARED}, ENOMEM)) return kRefusedByKernel;
    expect_refused(error_of(Segment::attach(made.options())), Errc::system, {"segment"});
    EXPECT_EQ(open_descriptors(), descriptors);
    return 0;
  });
  SHMCB_SKIP_IF_REFUSED(ended, "no seccomp filters");
  EXPECT_EQ(ended, exited(0));
}

TEST(SegmentAttachment, HoldsOneDescriptorAndOneMappingUntilItsLastCopyGoes) {
  expect_success_in_child([] {
    TestSegment made;
    made.detach();
    const std::size_t descriptors = open_descriptors();
    {
      const Segment segment = made.attach();
      const std::optional<Segment> copy{segment};
      EXPECT_EQ(open_descriptors(), descriptors + 1);
      EXPECT_EQ(mappings_of("shmcb." + *made.options().name), 1U);
    }
    EXPECT_EQ(open_descriptors(), descriptors);
    EXPECT_EQ(mappings_of(kAnySegment), 0U);
  });
}

TEST(SegmentAttachment, IsNotInheritedThroughExec) {
  const TestSegment made;
  const std::string name = "shmcb." + *made.options().name;
  expect_success_in_child([&] {
    const Segment segment = made.attach();
    // Nothing of the segment may show in the new program.
    const std::string script = "! grep -q '" + name + "' /proc/$$/maps && ! ls -l /proc/$$/fd | grep -q '" + name + "'";
    ::execl("/bin/sh", "sh", "-c", script.c_str(), nullptr);
    return 1;
  });
}

TEST(SegmentAttachment, CanBringInEveryPage) {
  TestSegment made;
  SegmentOptions options = made.options();
  options.prefault = true;
  const auto segment = Segment::attach(options);
  ASSERT_TRUE(segment) << segment.error().message;
  use(*segment);
}

TEST(SegmentAttachment, CanBringInEveryPageWhereTheKernelDoesNotDoItAtOnce) {
  TestSegment made;
  made.detach();
  SegmentOptions options = made.options();
  options.prefault = true;
  for (const int error : {EINVAL, EPERM, ENOMEM}) {
    const Ended ended = run_in_child([&]() -> int {
      if (!fail_system_call({.number = SYS_madvise}, error)) return kRefusedByKernel;
      const auto segment = Segment::attach(options);
      if (!segment) throw std::runtime_error(segment.error().message);
      use(*segment);
      return 0;
    });
    SHMCB_SKIP_IF_REFUSED(ended, "no seccomp filters");
    EXPECT_EQ(ended, exited(0)) << error;
  }
}

// ---- the name
// ------------------------------------------------------------------------------------------------------------------

TEST(SegmentStatus, SaysWhetherTheNameStillLeadsHere) {
  const TestSegment made;
  const Segment segment = made.attach();
  auto storage = ShmStorage<>::open(segment, {.name = "b"});
  ASSERT_TRUE(storage);
  EXPECT_EQ(segment.status(), SegmentStatus::current);
  EXPECT_FALSE(Segment::remove(made.options()));
  EXPECT_EQ(segment.status(), SegmentStatus::removed);
  const auto next = Segment::create(made.options());
  ASSERT_TRUE(next) << next.error().message;
  EXPECT_EQ(segment.status(), SegmentStatus::replaced);
  EXPECT_EQ(next->status(), SegmentStatus::current);

  // The old members go on with each other and know nothing of the new ones.
  EXPECT_EQ(storage->force_state(CircuitState::open).error, Errc::ok);
  auto sibling = ShmStorage<>::open(made.segment(), {.name = "b"});
  ASSERT_TRUE(sibling);
  EXPECT_EQ(sibling->peek().state, CircuitState::open);
  auto newcomer = ShmStorage<>::open(*next, {.name = "b"});
  ASSERT_TRUE(newcomer);
  EXPECT_EQ(newcomer->peek().state, CircuitState::closed);
}

TEST(SegmentStatus, IsReplacedWhereAnythingElseHasTheName) {
  const TestSegment made;
  EXPECT_FALSE(Segment::remove(made.options()));
  ASSERT_EQ(::symlink("/dev/null", made.path().c_str()), 0);
  EXPECT_EQ(made->status(), SegmentStatus::replaced);
  ASSERT_EQ(::unlink(made.path().c_str()), 0);
}

TEST(SegmentStatus, OfAForkedChildOfARemovedSegmentIsRemovedAndItsBreakersWork) {
  const TestSegment made;
  EXPECT_FALSE(Segment::remove(made.options()));
  expect_success_in_child([&] {
    EXPECT_EQ(made->status(), SegmentStatus::removed);
    auto storage = ShmStorage<>::open(made.segment(), {.name = "b"});
    ASSERT_TRUE(storage) << storage.error().message;
    EXPECT_EQ(storage->force_state(CircuitState::open).error, Errc::ok);
  });
  auto storage = ShmStorage<>::open(made.segment(), {.name = "b"});
  ASSERT_TRUE(storage);
  EXPECT_EQ(storage->peek().state, CircuitState::open);
}

TEST(SegmentName, ThatIsRemovedAndMadeAgainAllTheTimeIsAttachedToOrNotFound) {
  const SegmentOptions options{.name = unique_segment_name(), .breakers = 1, .participants = 1};
  const SharedArea<std::atomic<bool>> stop;
  std::vector<Child> others;
  others.push_back(fork_child([&] {
    while (!stop->load()) {
      const auto made = Segment::create(options);
      if (!made && made.error().code != Errc::segment_exists && made.error().code != Errc::segment_not_found) {
        throw std::runtime_error(made.error().message);
      }
    }
  }));
  others.push_back(fork_child([&] {
    while (!stop->load())
      (void)Segment::remove(options);
  }));
  int attached = 0;
  EXPECT_TRUE(wait_until([&] {
    const auto segment = Segment::attach(options);
    if (!segment) {
      EXPECT_EQ(to_string(segment.error().code), to_string(Errc::segment_not_found)) << segment.error().message;
    } else {
      ++attached;
      use(*segment);
    }
    return attached == 200 || ::testing::Test::HasFailure();
  }));
  stop->store(true);
  for (Child& child : others)
    EXPECT_EQ(child.wait(), exited(0));
  (void)Segment::remove(options);
}

}  // namespace
}  // namespace shmcb::test
