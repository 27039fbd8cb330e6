// SPDX-License-Identifier: BSD-3-Clause
// shmcb-run: runs a command under a breaker of shared memory.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <exception>
#include <string>
#include <system_error>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "breaker_flags.hpp"
#include "command.hpp"
#include "common/exit_codes.hpp"
#include "options.hpp"
#include "shmcb/permit.hpp"
#include "shmcb/shm_storage.hpp"
#include "verdict.hpp"

namespace {

using namespace shmcb;
using namespace shmcb::run;

/// How this process ends: by a signal, or with an exit code.
struct Finish {
  int exit_code = 0;
  int signal = 0;
};

/// One line, in one write: invocations side by side must not mix theirs.
template <class... Values>
void say(fmt::format_string<Values...> text, Values&&... values) {
  std::fputs(("shmcb-run: " + fmt::format(text, std::forward<Values>(values)...) + "\n").c_str(), stderr);
}

/// A segment on descriptor 2 would take our messages for its content. Closed again where the command begins.
void occupy_standard_descriptors() noexcept {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0) (void)::open("/dev/null", O_RDWR | O_CLOEXEC);  // takes the lowest that is free
  }
}

[[nodiscard]] Finish finish_of(const End& end, const Command& command) {
  if (end.exec_error != 0) {
    say("cannot run '{}': {}", command.words.front(), std::generic_category().message(end.exec_error));
    return {.exit_code = end.exec_error == ENOENT ? tools::exit_not_found : tools::exit_cannot_run};
  }
  if (end.timed_out) return {.exit_code = tools::exit_timeout};
  return {.exit_code = end.exit_code, .signal = end.signal};
}

[[nodiscard]] Finish without_breaker(const Error& error, const Options& options, const Signals& signals) {
  if (error.code == Errc::config_mismatch) {
    say("{}", in_terms_of_flags(error.message));
    return {.exit_code = tools::exit_config};
  }
  // A name that can never be right must not switch the protection off for good.
  if (error.code == Errc::invalid_config || error.code == Errc::invalid_segment_name) {
    say("{}", error.code == Errc::invalid_config ? in_terms_of_flags(error.message) : error.message);
    return {.exit_code = tools::exit_usage};
  }
  switch (options.on_storage_failure) {
    case OnStorageFailure::fail: break;
    case OnStorageFailure::run:
      say("warning: running without a breaker: {}", error.message);
      return finish_of(run_command(options.command, signals), options.command);
  }
  say("{}", error.message);
  return {.exit_code = tools::exit_io};
}

[[nodiscard]] Result<ShmStorage<>> open_storage(const Options& options) {
  SegmentOptions segment = options.segment;
  segment.sigbus_guard = true;  // else the command's exit code would be lost with us
  return ShmStorage<>::open(Segment::open(segment), options.breaker, options.on_mismatch);
}

/// Why the command does not run. A mode that is set after the rejection may be named in place of the state.
[[nodiscard]] std::string turned_away(const Rejection& rejection, Mode mode) {
  std::string why{to_string(rejection.state)};
  if (mode == Mode::forced_open) {
    why = "forced open";
  } else if (rejection.state == CircuitState::closed) {
    why = "coming back gently";
  }
  std::string out = fmt::format("breaker '{}' is {}", rejection.breaker_name, why);
  if (rejection.retry_after < kNoEnd) out += fmt::format(": retry in {} ms", rejection.retry_after.count());
  return out;
}

[[nodiscard]] Finish guard(const Options& options, const Signals& signals) {
  Result<ShmStorage<>> storage = open_storage(options);
  if (!storage) return without_breaker(storage.error(), options, signals);
  BasicBreaker breaker{*std::move(storage)};
  Acquired entry = breaker.try_acquire();
  if (entry.rejected()) {
    const Rejection& rejection = entry.rejection();
    say("{}", turned_away(rejection, breaker.state().mode));
    return {.exit_code = tools::exit_temporary};
  }
  if (!entry) {
    const std::string message = fmt::format("breaker '{}' cannot admit: {}", breaker.name(), to_string(entry.error()));
    return without_breaker({entry.error(), message}, options, signals);
  }
  const End end = run_command(options.command, signals);
  const Recorded recorded = entry.permit().settle(judge(end, options.exit_rules));
  if (recorded.error != Errc::ok) {
    say("warning: breaker '{}' could not take the outcome: {}", breaker.name(), to_string(recorded.error));
  }
  return finish_of(end, options.command);
}

[[nodiscard]] Finish finish_for(int argc, char** argv) {
  const auto parsed = parse_options(argc, argv);
  if (const int* code = std::get_if<int>(&parsed)) return {.exit_code = *code};
  const Signals signals;
  try {
    return guard(std::get<Options>(parsed), signals);
  } catch (const std::system_error& error) {
    say("{}", error.what());
    return {.exit_code = tools::exit_os_error};
  }
}

}  // namespace

int main(int argc, char** argv) {
  occupy_standard_descriptors();
  try {
    const Finish finish = finish_for(argc, argv);  // everything is given back before a signal may end this process
    if (finish.signal == 0) return finish.exit_code;
    die_by(finish.signal);
    return 128 + finish.signal;
  } catch (const std::exception& error) {
    say("{}", error.what());
    return tools::exit_software;
  }
}
