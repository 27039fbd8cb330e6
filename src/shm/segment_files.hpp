// SPDX-License-Identifier: BSD-3-Clause
// The file of a segment: every system call on it is made here. Made complete in private and linked into place, so that
// nobody ever sees half of one; opened without following anything, checked on the open descriptor, bounded in time.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>

#include "shmcb/core/layout.hpp"
#include "shmcb/segment.hpp"

namespace shmcb::shm {

/// A file descriptor that closes itself.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) noexcept : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd();

  [[nodiscard]] int get() const noexcept { return fd_; }
  [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }
  [[nodiscard]] explicit operator bool() const noexcept { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

/// The same open file as a descriptor above 2, closing what came in: a process that was started without standard
/// streams must not print into a segment. -1 stays -1.
[[nodiscard]] int above_standard_streams(int fd) noexcept;

/// Which file a descriptor leads to.
struct FileIdentity {
  dev_t device = 0;
  ino_t inode = 0;
  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

struct OpenedSegment {
  Fd fd;
  FileIdentity identity;
  core::Header header{};
  core::Geometry geometry;
};

enum class Access : std::uint8_t { read_write, read_only };

/// The error of an impossible name, or none.
[[nodiscard]] Error check_segment_name(const std::string& name);
[[nodiscard]] std::string path_of(const SegmentOptions& options);

/// Creates the file with its header. segment_exists if the name is taken.
[[nodiscard]] Error create_file(const SegmentOptions& options);

inline constexpr int kAttempts = 100;  // arbitrary: how often a name may change under an attach before it gives up

/// Opens and validates an existing one. With `read_only` the name led there when it had been opened; otherwise that is
/// for the caller to find out.
[[nodiscard]] Result<OpenedSegment> open_file(const SegmentOptions& options, Access access);

/// The error of who gives up after kAttempts.
[[nodiscard]] Error replaced_too_often(const SegmentOptions& options);

[[nodiscard]] Error remove_file(const SegmentOptions& options);

/// The number of one of this process's namespaces, by its link in /proc; 0 where that is not to be had.
[[nodiscard]] std::uint64_t namespace_of(const char* path) noexcept;

/// What the name leads to; a default-constructed identity if to nothing.
[[nodiscard]] FileIdentity identity_of(const std::string& path) noexcept;
[[nodiscard]] FileIdentity identity_of(int fd) noexcept;

}  // namespace shmcb::shm
