// SPDX-License-Identifier: BSD-3-Clause
// What the tools' exit codes mean: one table for all of them, for scripts to rely on. 64 to 78 are those of sysexits.h,
// 124 to 127 those of timeout(1) and the shell.
#pragma once

namespace shmcb::tools {

enum ExitCode : int {
  exit_ok = 0,
  exit_negative = 1,        ///< the tool did its work and the answer is no: a deviation, a breaker that is open
  exit_unusable_input = 2,  ///< what was given to examine cannot be examined
  exit_usage = 64,          ///< the command line
  exit_data = 65,           ///< data in a wrong format
  exit_no_input = 66,       ///< an input that does not exist or cannot be read
  exit_unavailable = 69,    ///< a service or segment that is needed is not there
  exit_software = 70,       ///< a bug in the tool
  exit_os_error = 71,       ///< a system call failed
  exit_cannot_create = 73,  ///< an output cannot be created
  exit_io = 74,             ///< reading, writing or the storage failed
  exit_temporary = 75,      ///< try again later
  exit_no_permission = 77,
  exit_config = 78,  ///< a configuration was refused
  exit_timeout = 124,
  exit_cannot_run = 126,  ///< the program was found but could not be run
  exit_not_found = 127,   ///< the program was not found
};

}  // namespace shmcb::tools
