// SPDX-License-Identifier: BSD-3-Clause
#include "signals.hpp"

#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <cerrno>

namespace shmcb::run {
namespace {

constexpr int kPassedOn[] = {SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGTERM, SIGCONT, SIGTSTP};

[[nodiscard]] bool is_ignored(int signal) noexcept {
  struct sigaction action {};
  ::sigaction(signal, nullptr, &action);
  return action.sa_handler == SIG_IGN;
}

[[nodiscard]] timespec until(std::chrono::steady_clock::time_point deadline) noexcept {
  const auto left = std::max(deadline - std::chrono::steady_clock::now(), std::chrono::steady_clock::duration::zero());
  const auto seconds = std::chrono::floor<std::chrono::seconds>(left);
  return {.tv_sec = seconds.count(), .tv_nsec = std::chrono::nanoseconds{left - seconds}.count()};
}

/// Lets a blocked signal do what it does by default, now.
void take_default(int signal) noexcept {
  ::signal(signal, SIG_DFL);
  sigset_t only;
  sigset_t before;
  sigemptyset(&only);
  sigaddset(&only, signal);
  ::raise(signal);
  ::sigprocmask(SIG_UNBLOCK, &only, &before);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace

Signals::Signals() noexcept {
  sigemptyset(&awaited_);
  for (const int signal : kPassedOn) {
    // A blocked signal is queued even where it is ignored: it must not be awaited.
    if (!is_ignored(signal)) sigaddset(&awaited_, signal);
  }
  sigaddset(&awaited_, SIGCHLD);
  sigset_t blocked = awaited_;
  sigaddset(&blocked, SIGPIPE);  // a reader of our own messages that is gone must not end the command's guard
  ::sigprocmask(SIG_BLOCK, &blocked, &mask_before_);
  // Whoever started us with SIGCHLD ignored would have the kernel reap the command and its status.
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  ::sigaction(SIGCHLD, &action, &child_before_);
  ::sigaction(SIGBUS, nullptr, &bus_before_);  // the segment's guard handles it from now on
}

int Signals::wait(Deadline deadline, siginfo_t& info) const noexcept {
  for (;;) {
    int signal = 0;
    if (deadline) {
      const timespec left = until(*deadline);
      signal = ::sigtimedwait(&awaited_, &info, &left);
    } else {
      signal = ::sigwaitinfo(&awaited_, &info);
    }
    if (signal > 0) return signal;
    if (errno == EAGAIN) return 0;
  }
}

void Signals::restore() const noexcept {
  ::sigaction(SIGCHLD, &child_before_, nullptr);
  ::sigaction(SIGBUS, &bus_before_, nullptr);
  ::sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
}

bool asks_to_end(int signal) noexcept {
  return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
}

void stop_self() noexcept {
  take_default(SIGTSTP);
}

void die_by(int signal) noexcept {
  ::prctl(PR_SET_DUMPABLE, 0);  // the command has left its own core, if any
  take_default(signal);
}

}  // namespace shmcb::run
