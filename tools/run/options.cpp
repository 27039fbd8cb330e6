// SPDX-License-Identifier: BSD-3-Clause
#include "options.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "breaker_flags.hpp"
#include "common/arguments.hpp"
#include "common/exit_codes.hpp"
#include "config_file.hpp"
#include "parsed_option.hpp"
#include "shmcb/core/layout.hpp"
#include "shmcb/duration_text.hpp"
#include "shmcb/version.hpp"

namespace shmcb::run {
namespace {

constexpr const char* kDescription =
    "Runs a command under a circuit breaker that all processes of this host share. While the breaker is open the "
    "command\n"
    "is not run: one line on standard error says when to retry, and the exit code is 75.";

constexpr const char* kFooter =
    R"(Durations are whole numbers with a unit: 250ms, 5s, 2m, 1h.

What counts as what:
  success   exit code 0, or what --success-exit-codes lists
  failure   any other exit code, or only those that --failure-exit-codes lists; death by a signal; the time-out
  ignored   exit codes that neither list holds; a command that cannot be run; one that ended after shmcb-run was sent
            SIGINT, SIGTERM, SIGHUP or SIGQUIT, or by the very signal that shmcb-run was sent

The command gets the streams and descriptors of shmcb-run, and the signals INT, TERM, HUP, QUIT, USR1, USR2, TSTP and
CONT. Without --timeout it stays in the process group of shmcb-run. With it the command leads a group of its own and all
of the group is signalled, so that what it has started ends with it; but in the foreground of a terminal, or with
--foreground, it stays where it can use the terminal, and the time-out ends only the command itself.
A shmcb-run that is killed holds nothing up: a probe of its comes back after --probe-timeout. The command it was running
goes on, unless --timeout was given.

Exit code: the command's; death by a signal is passed on as that same signal (the shell shows 128 + its number). Else
   64  wrong usage                        124  the command ran out of time, however it ended then
   71  no process can be made             126  the command cannot be run
   74  the shared memory cannot be used   127  the command is not found
   75  not run: the breaker is open       78  the breaker exists with another configuration)";

/// CLI11 knows nothing of what comes after --.
class Help : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: shmcb-run --breaker NAME [OPTIONS] -- COMMAND [ARGUMENTS]\n"
           "       shmcb-run --config FILE [--breaker NAME] [OPTIONS] -- COMMAND [ARGUMENTS]\n"
           "       shmcb-run --config FILE [--breaker NAME] [OPTIONS] --check-config\n";
  }
};

template <class Target>
CLI::Option* add_duration(CLI::App& app, const std::string& flag, Target& target, const std::string& help) {
  return add_parsed(app, flag, into(target), &parse_duration, help)->type_name("DURATION");
}

CLI::Option* add_text(CLI::App& app, const std::string& flag, std::optional<std::string>& target,
                      const std::string& help) {
  return app.add_option_function<std::string>(
      flag, [&target](const std::string& text) { target = text; }, help);
}

template <class Enum>
void add_choice(CLI::App& app, const std::string& flag, Enum& target, std::map<std::string, Enum> choices,
                const std::string& help) {
  std::string names;
  for (const auto& [name, value] : choices)
    names += (names.empty() ? "" : "|") + name;
  const auto choose = [choices = std::move(choices), names, flag](const std::string&, const std::string& text) {
    const auto found = choices.find(text);
    if (found != choices.end()) return Result<Enum>{found->second};
    return Result<Enum>{detail::bad_field(flag, detail::quoted(text), "one of " + names)};
  };
  add_parsed(app, flag, into(target), choose, help)->type_name(names);
}

/// Where the configuration of the breaker comes from.
struct Source {
  std::optional<std::string> name{};
  std::optional<std::string> file{};
  bool check_only = false;
  BreakerFlags flags{};
};

void add_source(CLI::App& app, Source& source) {
  add_text(app, "--breaker", source.name, "its name: [A-Za-z0-9_.:-]+; may be left out where --config has only one")
      ->type_name("NAME");
  add_text(app, "--config", source.file, "a TOML file that describes it; the flags below override its fields")
      ->type_name("FILE");
  app.add_flag("--check-config", source.check_only,
               "run nothing, print what would be used as TOML; without --breaker all that --config has");
}

void add_segment(CLI::App& app, Options& options) {
  app.add_option_function<std::string>(
         "--segment", [&options](const std::string& name) { options.segment.name = name; },
         "the piece of shared memory it lives in [$SHMCB_SEGMENT, else default]")
      ->type_name("NAME");
  app.add_option_function<std::string>(
         "--mode", [&options](const std::string& text) { options.segment.mode = tools::mode_of(text); },
         "the segment's file mode if it is made now; else, what others may be allowed to write to it [0600]")
      ->type_name("OCTAL");
  app.add_option_function<std::string>(
         "--group", [&options](const std::string& text) { options.segment.group = tools::group_of(text); },
         "the segment's group if it is made now")
      ->type_name("GROUP|GID");
  app.add_option_function<std::vector<std::string>>(
         "--trust-owner",
         [&options](const std::vector<std::string>& users) {
           for (const std::string& user : users)
             options.segment.trusted_owners.push_back(tools::user_of(user));
         },
         "accept a segment of this user, beside one's own and root's; may be repeated")
      ->type_name("USER|UID")
      ->expected(1)
      ->take_all();
}

void add_choices(CLI::App& app, Options& options) {
  add_choice<OnMismatch>(
      app, "--on-mismatch", options.on_mismatch,
      {{"refuse", OnMismatch::refuse}, {"adopt", OnMismatch::adopt}, {"replace", OnMismatch::replace}},
      "where it exists with other numbers [refuse]");
  add_choice<OnStorageFailure>(app, "--on-storage-failure", options.on_storage_failure,
                               {{"fail", OnStorageFailure::fail}, {"run", OnStorageFailure::run}},
                               "where the shared memory cannot be used: exit with 74, or run unguarded [fail]");
}

void add_command(CLI::App& app, Options& options) {
  add_parsed(app, "--success-exit-codes", into(options.exit_rules.success), &parse_exit_codes,
             "what counts as a success [0]")
      ->type_name("CODES");
  add_parsed(app, "--failure-exit-codes", into(options.exit_rules.failure), &parse_exit_codes,
             "what counts as a failure, such as 1,2,10-20 [all others]")
      ->type_name("CODES");
  CLI::Option* const timeout =
      add_duration(app, "--timeout", options.command.timeout, "the command's time, after which it is sent SIGTERM");
  add_duration(app, "--kill-after", options.command.kill_after, "and how much later SIGKILL")
      ->default_str("2s")
      ->needs(timeout);
  app.add_flag("--foreground", options.command.foreground, "no process group of its own, also with --timeout");
}

/// What no flag alone can show.
[[nodiscard]] Error check(const Options& options) {
  if (options.command.words.empty()) return {Errc::invalid_config, "no command: it comes after --"};
  if (options.command.words.front().empty()) return detail::bad_field("COMMAND", "empty", "a program");
  const ExitRules& rules = options.exit_rules;
  if (rules.failure && (rules.success & *rules.failure).any()) {
    return {Errc::invalid_config, "--success-exit-codes and --failure-exit-codes have a code in common"};
  }
  return {};
}

/// The breakers that the command line names, with its flags laid over them; each keeps its rules.
[[nodiscard]] Result<std::vector<BreakerConfig>> breakers_of(const Source& source) {
  if (!source.name && !source.file) return Error{Errc::invalid_config, "--breaker is required"};
  std::vector<BreakerConfig> breakers;
  if (source.file) {
    Result<std::vector<BreakerConfig>> read = breakers_in(*source.file, source.name);
    if (!read) return read.error();
    breakers = *std::move(read);
  } else {
    breakers.push_back({.name = *source.name});
  }
  for (BreakerConfig& breaker : breakers) {
    source.flags.apply(breaker);
    if (Error error = shmcb::check(breaker, core::kMaxNameBytes)) {
      error.message = in_terms_of_flags(std::move(error.message));
      if (source.file) error.message = *source.file + ": breaker '" + breaker.name + "': " + error.message;
      return error;
    }
  }
  return breakers;
}

[[nodiscard]] Result<BreakerConfig> breaker_of(const Source& source) {
  Result<std::vector<BreakerConfig>> breakers = breakers_of(source);
  if (!breakers) return breakers.error();
  if (breakers->size() == 1) return std::move(breakers->front());
  return Error{
      Errc::invalid_config,
      *source.file + (breakers->empty() ? " has no breaker" : " has several breakers; --breaker must name one")};
}

[[nodiscard]] int wrong_usage(const Error& error) {
  fmt::print(stderr, "shmcb-run: {}\nRun with --help for more information.\n", error.message);
  return tools::exit_usage;
}

[[nodiscard]] int check_config(const Source& source) {
  const Result<std::vector<BreakerConfig>> breakers = breakers_of(source);
  if (!breakers) return wrong_usage(breakers.error());
  const Error error = print_as_text(*breakers);
  if (!error) return tools::exit_ok;
  if (error.code != Errc::system) return wrong_usage(error);
  fmt::print(stderr, "shmcb-run: {}\n", error.message);
  return tools::exit_io;
}

}  // namespace

std::variant<Options, int> parse_options(int argc, const char* const* argv) {
  Options options;
  Source source;
  CLI::App app{kDescription, "shmcb-run"};
  app.footer(kFooter);
  app.formatter(std::make_shared<Help>());
  app.set_version_flag("--version", std::string{kVersion});
  add_source(app, source);
  add_segment(app, options);
  source.flags.add_to(app);
  add_choices(app, options);
  add_command(app, options);

  // Split here: what comes after -- belongs to the command, whatever it looks like.
  const char* const* const end = argv + argc;
  const char* const* const dashes = std::find(argv, end, std::string_view{"--"});
  if (dashes != end) options.command.words.assign(dashes + 1, end);
  if (const auto code = tools::parse_arguments(app, static_cast<int>(dashes - argv), argv)) return *code;
  if (source.check_only) return check_config(source);
  if (const Error error = check(options)) return wrong_usage(error);
  Result<BreakerConfig> breaker = breaker_of(source);
  if (!breaker) return wrong_usage(breaker.error());
  options.breaker = *std::move(breaker);
  return options;
}

}  // namespace shmcb::run
