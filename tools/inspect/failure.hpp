// SPDX-License-Identifier: BSD-3-Clause
// Which exit code of the common table an error of the library becomes.
#pragma once

#include "common/exit_codes.hpp"
#include "shmcb/error.hpp"

namespace shmcb::inspect {

/// For --help: the codes of `exit_code_of` in words.
inline constexpr const char* kExitCodes =
    "Exit codes:\n"
    "  0   done\n"
    "  1   no: there is no such breaker; rm was not confirmed, or the segment is another one\n"
    "  64  wrong usage, an impossible segment name or capacity\n"
    "  65  not a segment of this version and host, or cut short, or corrupt (also a single breaker: the rest is "
    "printed)\n"
    "  66  the segment does not exist\n"
    "  70  a bug in shmcb-inspect\n"
    "  71  a system call failed\n"
    "  73  create: the segment exists already\n"
    "  74  create: no room for it in memory or within the file size limit; or standard output was lost\n"
    "  75  a breaker changed each time it was read (the rest is printed); rm: the segment was just replaced\n"
    "  77  not permitted, or owned by somebody who is not trusted";

[[nodiscard]] constexpr int exit_code_of(Errc code) noexcept {
  switch (code) {
    case Errc::ok: return tools::exit_ok;
    case Errc::breaker_not_found: return tools::exit_negative;
    case Errc::invalid_config:
    case Errc::invalid_segment_name:
    case Errc::invalid_segment_options: return tools::exit_usage;
    case Errc::not_a_segment:
    case Errc::truncated:
    case Errc::incompatible:
    case Errc::foreign_clock:
    case Errc::corrupt: return tools::exit_data;
    case Errc::segment_not_found: return tools::exit_no_input;
    case Errc::segment_exists: return tools::exit_cannot_create;
    case Errc::no_space:
    case Errc::file_size_limit: return tools::exit_io;
    case Errc::busy: return tools::exit_temporary;
    case Errc::permission_denied:
    case Errc::wrong_owner:
    case Errc::unsafe_mode:
    case Errc::read_only: return tools::exit_no_permission;
    case Errc::system: return tools::exit_os_error;
    case Errc::config_mismatch:
    case Errc::registry_full:
    case Errc::ring_full:
    case Errc::records_exhausted:
    case Errc::version_exhausted:
    case Errc::group_full:
    case Errc::wrong_group:
    case Errc::memory_lock_limit:
    case Errc::unusable: break;  // of using breakers: nothing here does
  }
  return tools::exit_software;
}

}  // namespace shmcb::inspect
