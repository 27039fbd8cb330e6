// SPDX-License-Identifier: BSD-3-Clause
// Runs a command as its caller would have run it: streams, signals, terminal and exit status go through.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "shmcb/time.hpp"
#include "signals.hpp"

namespace shmcb::run {

struct Command {
  std::vector<std::string> words{};  ///< the program, looked up in PATH, and its arguments
  std::optional<Millis> timeout{};   ///< then it is sent SIGTERM
  Millis kill_after{2'000};          ///< and this much later SIGKILL
  bool foreground = false;           ///< never in a process group of its own
};

/// How a command ended: by one of the first three.
struct End {
  int exec_error = 0;  ///< it did not begin: errno of exec
  int signal = 0;      ///< it died by this signal
  int exit_code = 0;
  bool timed_out = false;   ///< its time was over before it ended
  bool by_request = false;  ///< somebody sent this process a signal that asks to end, or the very one it died by
};

/// Runs `command` to its end. Throws std::system_error where no process can be made.
///
/// Without a time-out it stays in this process's group, as with env(1) and nice(1). With one it leads a group of its
/// own, so that all that it has started ends with it, unless this process is in the foreground of its terminal, where
/// the command must be too (it may read from it, and Ctrl-C and Ctrl-Z are meant for it); then only the command itself
/// is signalled. A command with a time-out is sent SIGTERM when this process dies: it must not go on without a limit.
[[nodiscard]] End run_command(const Command& command, const Signals& signals);

}  // namespace shmcb::run
