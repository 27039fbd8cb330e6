// SPDX-License-Identifier: BSD-3-Clause
// A program that a test talks to while it runs. Every wait is under the watchdog of support/processes.hpp.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "support/processes.hpp"

namespace shmcb::test {

class StartedProgram {
 public:
  /// In a process group of its own, with the signals as an interactive shell leaves them.
  StartedProgram(const std::string& program, const std::vector<std::string>& arguments)
      : errors_(::memfd_create("errors", MFD_CLOEXEC)) {
    std::array<int, 2> in{};
    std::array<int, 2> out{};
    if (errors_ < 0 || ::pipe2(in.data(), O_CLOEXEC) != 0 || ::pipe2(out.data(), O_CLOEXEC) != 0) {
      throw std::system_error(errno, std::generic_category(), "pipe2");
    }
    input_ = in[1];
    output_ = out[0];
    std::vector<std::string> words{program};
    words.insert(words.end(), arguments.begin(), arguments.end());
    child_ = fork_child([&] {
      ::setpgid(0, 0);
      for (const int signal : {SIGINT, SIGQUIT, SIGHUP, SIGTERM, SIGTSTP})
        ::signal(signal, SIG_DFL);
      ::dup2(in[0], 0);
      ::dup2(out[1], 1);
      ::dup2(errors_, 2);
      std::vector<char*> argv;
      for (std::string& word : words)
        argv.push_back(word.data());
      argv.push_back(nullptr);
      ::execv(program.c_str(), argv.data());
      return 127;
    });
    ::close(in[0]);
    ::close(out[1]);
  }
  StartedProgram(const StartedProgram&) = delete;
  StartedProgram& operator=(const StartedProgram&) = delete;
  ~StartedProgram() {
    close_input();
    ::close(output_);
    ::close(errors_);
  }

  [[nodiscard]] pid_t pid() const { return child_.pid(); }
  void send(int signal) const { child_.kill(signal); }
  [[nodiscard]] Ended wait() { return child_.wait(); }

  void write(const std::string& text) const { (void)!::write(input_, text.data(), text.size()); }
  void close_input() {
    if (input_ >= 0) ::close(input_);
    input_ = -1;
  }
  /// The next line of its output without its end; what there was where the output ends or the watchdog is over.
  [[nodiscard]] std::string line() {
    std::string text;
    char c = 0;
    while (readable() && ::read(output_, &c, 1) == 1 && c != '\n')
      text += c;
    return text;
  }
  /// What is left of its output, until nobody has it open any more. `complete`: before the watchdog was over.
  struct Rest {
    std::string text{};
    bool complete = false;
  };
  [[nodiscard]] Rest rest() const {
    Rest rest;
    std::array<char, 1024> buffer{};
    while (readable()) {
      const ssize_t got = ::read(output_, buffer.data(), buffer.size());
      if (got <= 0) {
        rest.complete = got == 0;
        break;
      }
      rest.text.append(buffer.data(), static_cast<std::size_t>(got));
    }
    return rest;
  }
  [[nodiscard]] std::string errors() const {
    std::array<char, 4096> buffer{};  // more than any of the programs says
    const ssize_t got = ::pread(errors_, buffer.data(), buffer.size(), 0);
    return {buffer.data(), static_cast<std::size_t>(got < 0 ? 0 : got)};
  }

 private:
  [[nodiscard]] bool readable() const {
    pollfd ready{.fd = output_, .events = POLLIN, .revents = 0};
    return ::poll(&ready, 1, static_cast<int>(kWatchdog.count())) > 0;
  }

  int errors_;
  int input_ = -1;
  int output_ = -1;
  Child child_;
};

}  // namespace shmcb::test
