// SPDX-License-Identifier: BSD-3-Clause
// The signals of this process while it stands for a command: blocked from the first moment, so that none is missed.
// Those that were ignored at the start (nohup, background jobs of a script) stay ignored, here and in the command.
#pragma once

#include <signal.h>

#include <chrono>
#include <optional>

namespace shmcb::run {

class Signals {
 public:
  using Deadline = std::optional<std::chrono::steady_clock::time_point>;  ///< none: never

  /// Blocks for good: one for the life of the process, which must have one thread.
  Signals() noexcept;
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  ~Signals() = default;

  /// The next one that came, SIGCHLD among them; 0 when the deadline has passed.
  [[nodiscard]] int wait(Deadline deadline, siginfo_t& info) const noexcept;

  /// In a forked child, right before it becomes the command: everything as this process found it.
  void restore() const noexcept;

 private:
  sigset_t awaited_{};
  sigset_t mask_before_{};
  struct sigaction child_before_ {};
  struct sigaction bus_before_ {};
};

/// Whether it asks the command to end; the others tell it something.
[[nodiscard]] bool asks_to_end(int signal) noexcept;

/// Stops this process as SIGTSTP does; returns when it is continued.
void stop_self() noexcept;

/// Ends this process by `signal`, so that its parent sees what the command's parent would have seen. Returns only where
/// that signal cannot end it (process 1 of a container).
void die_by(int signal) noexcept;

}  // namespace shmcb::run
