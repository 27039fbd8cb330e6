// SPDX-License-Identifier: BSD-3-Clause
#include "support/run_program.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <system_error>

#include <spawn.h>

namespace shmcb::test {
namespace {

[[noreturn]] void fail(const char* what, int error = errno) {
  throw std::system_error(error, std::generic_category(), what);
}

/// A file without a name for one of the three streams: unlike a pipe it never fills up, so nobody needs to read along.
class Stream {
 public:
  Stream() : fd_(::memfd_create("stream", MFD_CLOEXEC)) {
    if (fd_ < 0) fail("memfd_create");
  }
  ~Stream() { ::close(fd_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  [[nodiscard]] int fd() const { return fd_; }
  void fill(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t written = ::write(fd_, text.data(), text.size());
      if (written < 0) fail("write");
      text.remove_prefix(static_cast<std::size_t>(written));
    }
    if (::lseek(fd_, 0, SEEK_SET) != 0) fail("lseek");
  }
  [[nodiscard]] std::string content() const {
    std::string text;
    std::array<char, 4096> buffer{};
    for (;;) {
      const ssize_t got = ::pread(fd_, buffer.data(), buffer.size(), static_cast<off_t>(text.size()));
      if (got < 0) fail("pread");
      if (got == 0) return text;
      text.append(buffer.data(), static_cast<std::size_t>(got));
    }
  }

 private:
  int fd_;
};

[[nodiscard]] int wait_for(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) fail("waitpid");
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

ProgramResult run_program(const std::string& program, const std::vector<std::string>& arguments,
                          std::string_view input) {
  const std::array<Stream, 3> streams;
  streams[0].fill(input);
  std::vector<std::string> words{program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words)
    argv.push_back(word.data());
  argv.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  for (int i = 0; i < 3; ++i)
    ::posix_spawn_file_actions_adddup2(&actions, streams[static_cast<std::size_t>(i)].fd(), i);
  pid_t child = 0;
  const int error = ::posix_spawn(&child, program.c_str(), &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) fail(program.c_str(), error);
  const int exit_code = wait_for(child);
  return {.exit_code = exit_code, .output = streams[1].content(), .errors = streams[2].content()};
}

}  // namespace shmcb::test
