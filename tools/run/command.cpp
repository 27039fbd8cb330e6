// SPDX-License-Identifier: BSD-3-Clause
#include "command.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <system_error>

namespace shmcb::run {
namespace {

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

[[nodiscard]] bool in_foreground_of_terminal() noexcept {
  const int terminal = ::open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
  if (terminal < 0) return false;
  const bool foreground = ::tcgetpgrp(terminal) == ::getpgrp();
  ::close(terminal);
  return foreground;
}

/// Carries errno of a failed exec from the child. A successful exec closes it, so that nothing is left in the command.
class ExecPipe {
 public:
  ExecPipe() {
    if (::pipe2(ends_.data(), O_CLOEXEC) != 0) fail("pipe2");
  }
  ExecPipe(const ExecPipe&) = delete;
  ExecPipe& operator=(const ExecPipe&) = delete;
  ~ExecPipe() {
    close_write_end();
    ::close(ends_[0]);
  }

  void close_write_end() noexcept {
    if (ends_[1] >= 0) ::close(ends_[1]);
    ends_[1] = -1;
  }
  void send(int error) const noexcept { (void)!::write(ends_[1], &error, sizeof error); }
  /// 0: exec worked. Requires that the child has ended.
  [[nodiscard]] int receive() const noexcept {
    int error = 0;
    return ::read(ends_[0], &error, sizeof error) == ssize_t{sizeof error} ? error : 0;
  }

 private:
  std::array<int, 2> ends_{-1, -1};
};

class Running {
 public:
  Running(const Command& command, const Signals& signals)
      : command_(command),
        signals_(signals),
        own_group_(command.timeout && !command.foreground && !in_foreground_of_terminal()) {
    start();
    if (command.timeout) deadline_ = std::chrono::steady_clock::now() + *command.timeout;
  }

  [[nodiscard]] End wait() {
    int status = 0;
    for (;;) {
      siginfo_t info{};
      const int signal = signals_.wait(deadline_, info);
      if (signal != 0 && signal != SIGCHLD) {
        pass_on(signal, info);
        continue;
      }
      // Its process id is its own until here, so that no signal reaches a stranger.
      const pid_t ended = ::waitpid(pid_, &status, WNOHANG);
      if (ended < 0 && errno != EINTR) fail("waitpid");
      if (ended == pid_) return end_of(status);
      if (signal == 0) time_is_over();
    }
  }

 private:
  void start() {
    std::vector<char*> words;
    for (const std::string& word : command_.words)
      words.push_back(const_cast<char*>(word.c_str()));  // as exec wants it
    words.push_back(nullptr);
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ < 0) fail("fork");
    if (pid_ == 0) become(words.data(), parent);
    if (own_group_) ::setpgid(pid_, pid_);  // here and there: whoever comes first
    exec_pipe_.close_write_end();
  }

  [[noreturn]] void become(char* const* words, pid_t parent) const noexcept {
    if (own_group_) ::setpgid(0, 0);
    if (command_.timeout) {  // what limits it may be killed: it must not go on without a limit
      ::prctl(PR_SET_PDEATHSIG, SIGTERM);
      if (::getppid() != parent) ::_exit(0);
    }
    signals_.restore();
    ::execvp(words[0], words);
    exec_pipe_.send(errno);
    ::_exit(0);
  }

  void send(int signal) const noexcept { ::kill(own_group_ ? -pid_ : pid_, signal); }

  void pass_on(int signal, const siginfo_t& info) noexcept {
    if (asks_to_end(signal) && !timed_out_) asked_to_end_ = true;
    sigaddset(&passed_on_, signal);
    // From the kernel: the terminal has sent it to the whole foreground group. A second one would mean something else.
    const bool has_it_already = !own_group_ && info.si_code > 0;
    if (!has_it_already) send(signal);
    if (signal == SIGTSTP) stop_self();
  }

  void time_is_over() noexcept {
    if (timed_out_) {
      send(SIGKILL);
      deadline_.reset();
      return;
    }
    timed_out_ = true;
    send(SIGTERM);
    send(SIGCONT);  // a stopped one could not obey
    deadline_ = std::chrono::steady_clock::now() + command_.kill_after;
  }

  [[nodiscard]] End end_of(int status) const noexcept {
    End end{.exec_error = exec_pipe_.receive(), .timed_out = timed_out_};
    if (WIFSIGNALED(status)) end.signal = WTERMSIG(status);
    if (WIFEXITED(status)) end.exit_code = WEXITSTATUS(status);
    end.by_request = asked_to_end_ || (end.signal != 0 && !timed_out_ && sigismember(&passed_on_, end.signal) == 1);
    return end;
  }

  const Command& command_;
  const Signals& signals_;
  bool own_group_;
  ExecPipe exec_pipe_;
  pid_t pid_ = 0;
  Signals::Deadline deadline_;
  bool timed_out_ = false;
  bool asked_to_end_ = false;
  sigset_t passed_on_{};
};

}  // namespace

End run_command(const Command& command, const Signals& signals) {
  return Running{command, signals}.wait();
}

}  // namespace shmcb::run
