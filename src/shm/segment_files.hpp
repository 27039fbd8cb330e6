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

/// Opens and validates an existing one.
[[nodiscard]] Result<OpenedSegment> open_file(const SegmentOptions& options, Access access);

[[nodiscard]] Error remove_file(const SegmentOptions& options);

/// What the name leads to; a default-constructed identity if to nothing.
[[nodiscard]] FileIdentity identity_of(const std::string& path) noexcept;
[[nodiscard]] FileIdentity identity_of(int fd) noexcept;

}  // namespace shmcb::shm
