// SPDX-License-Identifier: BSD-3-Clause
#include "segment_files.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "mapped_memory.hpp"
#include "shmcb/core/process_identity.hpp"

namespace shmcb::shm {

namespace {

constexpr std::size_t kMaxSegmentName = 200;  // with the prefix and a private suffix it stays below NAME_MAX
constexpr std::string_view kPrefix = "shmcb.";
constexpr std::string_view kPrivatePrefix = "shmcb-new.";
constexpr std::int64_t kLatestEpochUs = std::int64_t{1} << 60U;  // what is added to it does not overflow

std::string hex(std::uint64_t value) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out = "0x";
  for (int shift = 60; shift >= 0; shift -= 4)
    out += kDigits[(value >> static_cast<unsigned>(shift)) & 0xFU];
  return out;
}

std::string octal(std::uint32_t mode) {
  std::string out = "0";
  for (int shift = 6; shift >= 0; shift -= 3)
    out += static_cast<char>('0' + ((mode >> static_cast<unsigned>(shift)) & 7U));
  return out;
}

std::string segment(const SegmentOptions& options) {
  return "segment '" + segment_name_or_default(options.name) + "'";
}

Error system_error(Errc code, const SegmentOptions& options, std::string_view what, int error) {
  std::array<char, 128> buffer{};
  const char* text = ::strerror_r(error, buffer.data(), buffer.size());
  return {code, segment(options) + ": " + std::string{what} + ": " + text};
}

Error from_open(const SegmentOptions& options, int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR: {
      struct stat directory {};
      if (::stat(options.directory.c_str(), &directory) != 0) {
        return {Errc::system, segment(options) + ": the directory " + options.directory + " does not exist"};
      }
      if (!S_ISDIR(directory.st_mode))
        return {Errc::system, segment(options) + ": " + options.directory + " is not a directory"};
      return {Errc::segment_not_found, segment(options) + " does not exist (" + path_of(options) + ")"};
    }
    case EACCES:
    case EPERM:
    case EROFS: return system_error(Errc::permission_denied, options, "opening " + path_of(options), error);
    case ENOSPC:
    case EDQUOT: return system_error(Errc::no_space, options, "creating a file in " + options.directory, error);
    case ELOOP: return {Errc::not_a_segment, segment(options) + ": " + path_of(options) + " is a symbolic link"};
    case EISDIR:
    case ENXIO: return {Errc::not_a_segment, segment(options) + ": " + path_of(options) + " is not a regular file"};
    default: return system_error(Errc::system, options, "opening " + path_of(options), error);
  }
}

/// Reads a small file of the kernel's; empty if it is not there.
std::string read_small(const char* path) {
  const Fd fd{above_standard_streams(::open(path, O_RDONLY | O_CLOEXEC))};
  std::array<char, 256> buffer{};
  if (!fd) return {};
  const ssize_t bytes = ::read(fd.get(), buffer.data(), buffer.size());
  return bytes > 0 ? std::string(buffer.data(), static_cast<std::size_t>(bytes)) : std::string{};
}

/// What a segment's times depend on. Asked once in a process: neither changes while it runs, but a forked child may be
/// in another time namespace.
struct Place {
  std::array<std::uint8_t, 16> boot_id{};
  std::uint64_t time_namespace = 0;
};

Place look_around() {
  Place place;
  std::size_t digits = 0;
  for (const char c : read_small("/proc/sys/kernel/random/boot_id")) {
    const bool digit = c >= '0' && c <= '9';
    if ((!digit && (c < 'a' || c > 'f')) || digits >= 32) continue;
    const auto value = static_cast<unsigned>(digit ? c - '0' : c - 'a' + 10);
    const unsigned high = place.boot_id[digits / 2];
    place.boot_id[digits / 2] = static_cast<std::uint8_t>((high << 4U) | value);
    ++digits;
  }
  place.time_namespace = namespace_of("/proc/self/ns/time");
  return place;
}

Place place_of_this_process() {
  thread_local Place place;
  thread_local std::uint64_t asked_by = 0;
  if (asked_by != core::current_process()) {
    place = look_around();
    asked_by = core::current_process();
  }
  return place;
}

std::uint64_t checksum_of(const core::Header& header) {
  std::array<char, offsetof(core::Header, checksum)> bytes{};
  std::memcpy(bytes.data(), &header, bytes.size());
  return core::fnv1a({bytes.data(), bytes.size()});
}

core::Header make_header(const SegmentOptions& options, const core::Geometry& g) {
  core::Header h{};
  const Place place = place_of_this_process();
  h.magic = core::kMagic;
  h.layout_major = core::kLayoutMajor;
  h.layout_minor = core::kLayoutMinor;
  h.byte_order = core::kByteOrder;
  h.header_bytes = core::kHeaderBytes;
  h.word_bits = sizeof(void*) * 8;
  h.fingerprint = core::layout_fingerprint();
  h.total_bytes = g.total_bytes;
  for (std::size_t i = 0; i < h.creation_id.size(); i += 8) {
    const std::uint64_t random = core::IdentitySystem::random();
    std::memcpy(h.creation_id.data() + i, &random, 8);
  }
  h.boot_id = place.boot_id;
  h.time_namespace = place.time_namespace;
  h.clock_id = CLOCK_MONOTONIC;
  h.development_build = core::kDevelopmentBuild ? 1 : 0;
  h.epoch_us = options.epoch.value_or(SystemClock{}.now()).time_since_epoch().count();
  timespec wall{};
  ::clock_gettime(CLOCK_REALTIME, &wall);
  h.created_wall_ns = std::int64_t{wall.tv_sec} * 1'000'000'000 + wall.tv_nsec;
  h.breakers = g.breakers;
  h.records = g.records;
  h.participants = g.participants;
  h.index_slots = g.index_slots;
  h.ring_slots = g.ring_slots;
  h.participants_offset = g.participants_offset;
  h.index_offset = g.index_offset;
  h.breakers_offset = g.breakers_offset;
  h.records_offset = g.records_offset;
  h.rings_offset = g.rings_offset;
  h.journal_offset = g.journal_offset;
  h.journal_bytes = std::uint64_t{g.journal_entries} * sizeof(core::JournalCell<core::StdEnv>);
  h.creator_pid = static_cast<std::uint32_t>(::getpid());
  h.checksum = checksum_of(h);
  return h;
}

/// Compares what a header claims with what this build expects, in an order that names the real cause first.
Error validate(const core::Header& h, const SegmentOptions& options, Access access, core::Geometry& geometry) {
  const auto refuse = [&](Errc code, std::string_view field, const std::string& found, const std::string& expected) {
    return Error{code, segment(options) + ": " + std::string{field} + " is " + found + ", expected " + expected};
  };
  if (h.magic != core::kMagic) return refuse(Errc::not_a_segment, "magic", hex(h.magic), hex(core::kMagic));
  if (h.byte_order != core::kByteOrder)
    return refuse(Errc::incompatible, "byte order", hex(h.byte_order), hex(core::kByteOrder));
  if (h.layout_major != core::kLayoutMajor) {
    return refuse(Errc::incompatible, "layout version",
                  std::to_string(h.layout_major) + "." + std::to_string(h.layout_minor),
                  std::to_string(core::kLayoutMajor) + ".x");
  }
  if (h.word_bits != sizeof(void*) * 8) {
    return refuse(Errc::incompatible, "word size", std::to_string(h.word_bits) + " bits",
                  std::to_string(sizeof(void*) * 8) + " bits");
  }
  if (h.fingerprint != core::layout_fingerprint()) {
    return refuse(Errc::incompatible, "layout fingerprint", hex(h.fingerprint), hex(core::layout_fingerprint()));
  }
  if (h.checksum != checksum_of(h))
    return refuse(Errc::corrupt, "header checksum", hex(h.checksum), hex(checksum_of(h)));
  if (h.features_incompatible != 0) {
    return refuse(Errc::incompatible, "incompatible feature mask", hex(h.features_incompatible), "none of these bits");
  }
  if (h.features_read_only != 0 && access == Access::read_write) {
    return refuse(Errc::read_only, "read-only-compatible feature mask", hex(h.features_read_only),
                  "none of these bits for writing; this version can only inspect the segment");
  }
  if (h.development_build != (core::kDevelopmentBuild ? 1U : 0U)) {
    return refuse(Errc::incompatible, "development-build bit", std::to_string(h.development_build),
                  core::kDevelopmentBuild ? "1" : "0");
  }
  if (h.header_bytes != core::kHeaderBytes) {
    return refuse(Errc::incompatible, "header size", std::to_string(h.header_bytes),
                  std::to_string(core::kHeaderBytes));
  }
  const Place place = place_of_this_process();
  if (h.clock_id != CLOCK_MONOTONIC) {
    return refuse(Errc::foreign_clock, "clock id", std::to_string(h.clock_id), std::to_string(CLOCK_MONOTONIC));
  }
  if (h.boot_id != place.boot_id) return refuse(Errc::foreign_clock, "boot id", "another boot's", "this boot's");
  if (h.time_namespace != place.time_namespace) {
    return refuse(Errc::foreign_clock, "time namespace", std::to_string(h.time_namespace),
                  std::to_string(place.time_namespace));
  }
  if (h.breakers < 1 || h.breakers > core::kMaxBreakers) {
    return refuse(Errc::corrupt, "number of breakers", std::to_string(h.breakers),
                  "1 to " + std::to_string(core::kMaxBreakers));
  }
  if (h.participants < 1 || h.participants > core::kMaxParticipants) {
    return refuse(Errc::corrupt, "number of participants", std::to_string(h.participants),
                  "1 to " + std::to_string(core::kMaxParticipants));
  }
  if (h.ring_slots < core::kMinRing || h.ring_slots > core::low_bits(40)) {
    return refuse(Errc::corrupt, "number of ring slots", std::to_string(h.ring_slots), "16 to 2^40");
  }
  if (h.epoch_us < 0 || h.epoch_us > kLatestEpochUs) {
    return refuse(Errc::corrupt, "epoch", std::to_string(h.epoch_us), "0 to 2^60");
  }
  constexpr std::uint64_t kEntryBytes = sizeof(core::JournalCell<core::StdEnv>);
  const std::uint64_t entries = h.journal_bytes / kEntryBytes;
  if (h.journal_bytes % kEntryBytes != 0 || entries < core::kMinJournal || entries > core::kMaxJournal ||
      !std::has_single_bit(entries)) {
    return refuse(Errc::corrupt, "size of the journal", std::to_string(h.journal_bytes) + " bytes",
                  "a power of two of entries, from 16 to 1048576");
  }
  geometry = core::geometry_of(h.breakers, h.participants, h.ring_slots, static_cast<std::uint32_t>(entries));
  const core::Geometry claimed{.breakers = h.breakers,
                               .records = h.records,
                               .participants = h.participants,
                               .index_slots = h.index_slots,
                               .ring_slots = h.ring_slots,
                               .journal_entries = geometry.journal_entries,
                               .participants_offset = h.participants_offset,
                               .index_offset = h.index_offset,
                               .breakers_offset = h.breakers_offset,
                               .records_offset = h.records_offset,
                               .rings_offset = h.rings_offset,
                               .journal_offset = h.journal_offset,
                               .notes_offset = geometry.notes_offset,
                               .total_bytes = h.total_bytes};
  if (!(claimed == geometry)) {
    return refuse(Errc::corrupt, "geometry (sizes and offsets)", "not what its capacities give",
                  std::to_string(geometry.total_bytes) + " bytes in all");
  }
  return {};
}

Error check_file(int fd, const SegmentOptions& options, struct stat& info) {
  if (::fstat(fd, &info) != 0) return system_error(Errc::system, options, "fstat", errno);
  if (!S_ISREG(info.st_mode)) {
    return {Errc::not_a_segment, segment(options) + ": " + path_of(options) + " is not a regular file"};
  }
  const auto& trusted = options.trusted_owners;
  if (info.st_uid != ::geteuid() && info.st_uid != 0 &&
      std::find(trusted.begin(), trusted.end(), info.st_uid) == trusted.end()) {
    return {Errc::wrong_owner, segment(options) + ": owner is uid " + std::to_string(info.st_uid) + ", expected uid " +
                                   std::to_string(::geteuid()) + ", root or a trusted owner"};
  }
  const std::uint32_t unexpected = info.st_mode & 0022U & ~options.mode;
  if (unexpected != 0) {
    return {Errc::unsafe_mode, segment(options) + ": mode is " + octal(info.st_mode & 0777U) +
                                   ", expected no write bits beyond " + octal(options.mode) +
                                   ", the mode that was asked for"};
  }
  if (info.st_nlink > 1) {
    return {Errc::not_a_segment, segment(options) + ": " + path_of(options) + " has " + std::to_string(info.st_nlink) +
                                     " hard links, expected 1"};
  }
  return {};
}

Error check_create_options(const SegmentOptions& options, core::Geometry& geometry) {
  const auto refuse = [&](std::string_view field, const std::string& value, const std::string& rule) {
    return Error{Errc::invalid_segment_options,
                 segment(options) + ": " + std::string{field} + " is " + value + "; it must be " + rule};
  };
  if (options.breakers < 1 || options.breakers > core::kMaxBreakers) {
    return refuse("breakers", std::to_string(options.breakers), "from 1 to " + std::to_string(core::kMaxBreakers));
  }
  if (options.participants < 1 || options.participants > core::kMaxParticipants) {
    return refuse("participants", std::to_string(options.participants),
                  "from 1 to " + std::to_string(core::kMaxParticipants));
  }
  if ((options.mode & ~0666U) != 0 || (options.mode & 0600U) != 0600U) {
    return refuse("mode", octal(options.mode), "0600, with read and write bits for group and others as wanted");
  }
  const std::uint64_t slots =
      options.ring_slots != 0 ? options.ring_slots : std::uint64_t{options.breakers} * core::kMinRing;
  if (slots < core::kMinRing || slots > std::uint64_t{1} << 36U) {
    return refuse("ring_slots", std::to_string(slots), "from " + std::to_string(core::kMinRing) + " to 2^36");
  }
  if (options.journal_entries < core::kMinJournal || options.journal_entries > core::kMaxJournal ||
      !std::has_single_bit(options.journal_entries)) {
    return refuse(
        "journal_entries", std::to_string(options.journal_entries),
        "a power of two from " + std::to_string(core::kMinJournal) + " to " + std::to_string(core::kMaxJournal));
  }
  if (options.epoch) {
    const std::int64_t epoch_us = options.epoch->time_since_epoch().count();
    if (epoch_us < 0 || epoch_us > kLatestEpochUs)
      return refuse("epoch", std::to_string(epoch_us) + " us", "from 0 to 2^60 us");
  }
  geometry = core::geometry_of(options.breakers, options.participants,
                               (slots + core::kMinRing - 1) / core::kMinRing * core::kMinRing, options.journal_entries);

  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      limit.rlim_cur < geometry.total_bytes) {
    return {Errc::file_size_limit, segment(options) + ": its size is " + std::to_string(geometry.total_bytes) +
                                       " bytes; the process's file size limit (RLIMIT_FSIZE) is " +
                                       std::to_string(limit.rlim_cur)};
  }
  return {};
}

/// Gets memory for the whole file. In small pieces: on older kernels (6.1 among them) any signal undoes the call under
/// way, and a program with a profiling timer would not get through a large one.
int reserve(int fd, off_t bytes) {
  constexpr off_t kPiece = off_t{64} * 1024;  // takes tens of microseconds
  for (off_t offset = 0; offset < bytes; offset += kPiece) {
    int error = 0;
    do {
      error = ::posix_fallocate(fd, offset, std::min(kPiece, bytes - offset));
    } while (error == EINTR);
    if (error != 0) return error;
  }
  return 0;
}

/// Mode, group, memory and header of a file that nobody else can see yet.
Error complete(int fd, const SegmentOptions& options, const core::Geometry& geometry) {
  if (options.group && ::fchown(fd, static_cast<uid_t>(-1), *options.group) != 0) {
    return system_error(Errc::permission_denied, options, "changing the group to " + std::to_string(*options.group),
                        errno);
  }
  // The umask does not apply to fchmod, so the mode is exactly this one.
  if (::fchmod(fd, options.mode) != 0) return system_error(Errc::system, options, "setting the mode", errno);
  if (options.huge_pages) allocate_huge_pages(fd, geometry.total_bytes);
  const int error = reserve(fd, static_cast<off_t>(geometry.total_bytes));
  if (error == ENOSPC || error == EFBIG || error == ENOMEM) {
    return {Errc::no_space, segment(options) + ": its size is " + std::to_string(geometry.total_bytes) +
                                " bytes, which " + options.directory + " has no room for"};
  }
  if (error != 0) return system_error(Errc::system, options, "reserving memory", error);
  const core::Header header = make_header(options, geometry);
  ssize_t written = 0;
  do {
    written = ::pwrite(fd, &header, sizeof header, 0);
  } while (written < 0 && errno == EINTR);
  if (written != ssize_t{sizeof header})
    return system_error(Errc::system, options, "writing the header", written < 0 ? errno : ENOSPC);
  return {};
}

Error exists(const SegmentOptions& options) {
  return {Errc::segment_exists, segment(options) + " exists already"};
}

/// Removes what creators killed on a file system without O_TMPFILE have left. A living one holds a lock on its file.
void sweep(const SegmentOptions& options) {
  const std::string prefix = std::string{kPrivatePrefix} + segment_name_or_default(options.name) + ".";
  DIR* directory = ::opendir(options.directory.c_str());
  if (directory == nullptr) return;
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(directory)) {  // NOLINT(concurrency-mt-unsafe): a stream of our own
    if (std::string_view{entry->d_name}.starts_with(prefix)) names.emplace_back(entry->d_name);
  }
  ::closedir(directory);
  for (const std::string& name : names) {
    const std::string path = options.directory + "/" + name;
    const Fd fd{above_standard_streams(::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK))};
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_len = 1;
    if (fd && ::fcntl(fd.get(), F_OFD_SETLK, &lock) == 0) ::unlink(path.c_str());
  }
}

/// For file systems without O_TMPFILE, and where /proc is not mounted: a private name, moved into place without
/// replacing.
Error create_by_rename(const SegmentOptions& options, const core::Geometry& geometry) {
  sweep(options);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const std::string path = options.directory + "/" + std::string{kPrivatePrefix} +
                             segment_name_or_default(options.name) + "." +
                             hex(core::IdentitySystem::random()).substr(2);
    const Fd fd{above_standard_streams(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600))};
    if (!fd) return from_open(options, errno);
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_len = 1;
    (void)::fcntl(fd.get(), F_OFD_SETLK, &lock);
    if (Error error = complete(fd.get(), options, geometry)) {
      ::unlink(path.c_str());
      return error;
    }
    if (::renameat2(AT_FDCWD, path.c_str(), AT_FDCWD, path_of(options).c_str(), RENAME_NOREPLACE) == 0) return {};
    const int error = errno;
    ::unlink(path.c_str());
    if (error == EEXIST) return exists(options);
    // ENOENT: another creator came between our open and our lock, took the file for a leftover and swept it.
    if (error != ENOENT) return system_error(Errc::system, options, "moving it into place", error);
  }
  return {Errc::system,
          segment(options) + " was swept away " + std::to_string(kAttempts) + " times while it was being created"};
}

}  // namespace

Fd::~Fd() {
  if (fd_ >= 0) ::close(fd_);
}

int above_standard_streams(int fd) noexcept {
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  const int moved = ::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int error = errno;
  ::close(fd);
  errno = error;
  return moved;
}

Error check_segment_name(const std::string& name) {
  if (name.empty())
    return {Errc::invalid_segment_name, "segment name is empty; it must be at least one of [A-Za-z0-9._-]"};
  for (const char c : name) {
    if (!detail::is_name_char(c) || c == ':') {
      return {Errc::invalid_segment_name,
              "segment name is " + detail::quoted(name) + "; it must be of [A-Za-z0-9._-] only"};
    }
  }
  if (name.size() > kMaxSegmentName) {
    return {Errc::invalid_segment_name, "segment name is " + detail::quoted(name) + " (" + std::to_string(name.size()) +
                                            " bytes); it must be at most " + std::to_string(kMaxSegmentName) +
                                            " bytes"};
  }
  return {};
}

std::string path_of(const SegmentOptions& options) {
  return options.directory + "/" + std::string{kPrefix} + segment_name_or_default(options.name);
}

std::uint64_t namespace_of(const char* path) noexcept {
  // Half of what stat costs, which makes an inode for the answer.
  std::array<char, 64> text{};  // "time:[4026531834]"
  if (::readlink(path, text.data(), text.size() - 1) < 0) return 0;
  const char* number = std::strchr(text.data(), '[');
  return number != nullptr ? std::strtoull(number + 1, nullptr, 10) : 0;
}

FileIdentity identity_of(const std::string& path) noexcept {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 ? FileIdentity{info.st_dev, info.st_ino} : FileIdentity{};
}

FileIdentity identity_of(int fd) noexcept {
  struct stat info {};
  return ::fstat(fd, &info) == 0 ? FileIdentity{info.st_dev, info.st_ino} : FileIdentity{};
}

Error create_file(const SegmentOptions& options) {
  core::Geometry geometry;
  if (Error error = check_create_options(options, geometry)) return error;
  // Cheap and common; the link below decides.
  if (!(identity_of(path_of(options)) == FileIdentity{})) return exists(options);

  const Fd fd{above_standard_streams(::open(options.directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600))};
  if (!fd) {
    if (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL) return create_by_rename(options, geometry);
    return from_open(options, errno);
  }
  if (Error error = complete(fd.get(), options, geometry)) return error;
  const std::string link = "/proc/self/fd/" + std::to_string(fd.get());
  if (::linkat(AT_FDCWD, link.c_str(), AT_FDCWD, path_of(options).c_str(), AT_SYMLINK_FOLLOW) == 0) return {};
  if (errno == EEXIST) return exists(options);
  if (errno == ENOENT) return create_by_rename(options, geometry);  // /proc is not mounted
  return system_error(Errc::system, options, "linking it into place", errno);
}

Result<OpenedSegment> open_file(const SegmentOptions& options, Access access) {
  const std::string path = path_of(options);
  const int flags = (access == Access::read_write ? O_RDWR : O_RDONLY) | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    OpenedSegment opened;
    opened.fd = Fd{above_standard_streams(::open(path.c_str(), flags))};
    if (!opened.fd) return from_open(options, errno);
    struct stat info {};
    if (Error error = check_file(opened.fd.get(), options, info)) return error;
    opened.identity = {info.st_dev, info.st_ino};
    // Somebody may have removed or replaced it since the open: then look at what is there now.
    // Who attaches looks at the name later still.
    if (info.st_nlink == 0) continue;
    if (access == Access::read_only && !(identity_of(path) == opened.identity)) continue;
    ssize_t bytes = 0;
    do {
      bytes = ::pread(opened.fd.get(), &opened.header, sizeof opened.header, 0);
    } while (bytes < 0 && errno == EINTR);
    if (bytes < 0) return system_error(Errc::system, options, "reading the header", errno);
    if (bytes != ssize_t{sizeof opened.header}) {
      return Error{Errc::truncated, segment(options) + ": size is " + std::to_string(info.st_size) +
                                        " bytes, expected at least the header's " + std::to_string(core::kHeaderBytes)};
    }
    if (Error error = validate(opened.header, options, access, opened.geometry)) return error;
    const auto size = static_cast<std::uint64_t>(info.st_size);
    if (size != opened.geometry.total_bytes) {
      return Error{size < opened.geometry.total_bytes ? Errc::truncated : Errc::corrupt,
                   segment(options) + ": size is " + std::to_string(size) + " bytes, expected " +
                       std::to_string(opened.geometry.total_bytes)};
    }
    return opened;
  }
  return replaced_too_often(options);
}

Error replaced_too_often(const SegmentOptions& options) {
  return {Errc::system,
          segment(options) + " was replaced " + std::to_string(kAttempts) + " times while it was being opened"};
}

Error remove_file(const SegmentOptions& options) {
  const std::string path = path_of(options);
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return from_open(options, errno);
  if (!S_ISREG(info.st_mode))
    return {Errc::not_a_segment, segment(options) + ": " + path + " is not a regular file; not removed"};
  if (::unlink(path.c_str()) == 0) return {};
  const int error = errno;
  return system_error(error == ENOENT                     ? Errc::segment_not_found
                      : error == EACCES || error == EPERM ? Errc::permission_denied
                                                          : Errc::system,
                      options, "removing " + path, error);
}

}  // namespace shmcb::shm
