// SPDX-License-Identifier: BSD-3-Clause
// The file of a segment as somebody else might leave it: read, patched and written behind the library's back.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

#include "shmcb/core/layout.hpp"
#include "shmcb/segment.hpp"
#include "support/processes.hpp"

namespace shmcb::test {

[[nodiscard]] inline std::string path_of(const SegmentOptions& options) {
  return options.directory + "/shmcb." + options.name.value();
}

/// Mode, size and owner of what lies at a path, not following links; all zero: nothing.
[[nodiscard]] inline struct stat status_of(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) info = {};
  return info;
}

inline void write_bytes(const std::string& path, std::uint64_t offset, const void* bytes, std::size_t count) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) throw std::system_error(errno, std::generic_category(), path);
  const ssize_t written = ::pwrite(fd, bytes, count, static_cast<off_t>(offset));
  ::close(fd);
  if (written != static_cast<ssize_t>(count)) throw std::system_error(errno, std::generic_category(), path);
}

[[nodiscard]] inline core::Header read_header(const std::string& path) {
  core::Header header{};
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw std::system_error(errno, std::generic_category(), path);
  const ssize_t got = ::pread(fd, &header, sizeof header, 0);
  ::close(fd);
  if (got != static_cast<ssize_t>(sizeof header)) throw std::runtime_error("no header in " + path);
  return header;
}

inline void sign(core::Header& header) {
  std::array<char, offsetof(core::Header, checksum)> bytes{};
  std::memcpy(bytes.data(), &header, bytes.size());
  header.checksum = core::fnv1a({bytes.data(), bytes.size()});
}

inline void write_header(const std::string& path, const core::Header& header) {
  write_bytes(path, 0, &header, sizeof header);
}

/// What `operation` (returns an Error) says in a child: it must say it within seconds, whatever lies in its way.
template <class Operation>
[[nodiscard]] Error error_in_child(Operation operation) {
  struct Answer {
    Errc code;
    std::array<char, 1024> message;
  };
  const SharedArea<Answer> answer;
  const Ended ended = run_in_child(
      [&] {
        const Error error = operation();
        answer->code = error.code;
        error.message.copy(answer->message.data(), answer->message.size() - 1);
      },
      std::chrono::seconds{20});
  EXPECT_EQ(ended, exited(0));
  return {answer->code, std::string{answer->message.data()}};
}

[[nodiscard]] inline Error error_of(const Result<Segment>& result) {
  return result ? Error{} : result.error();
}

}  // namespace shmcb::test
