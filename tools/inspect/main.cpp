// SPDX-License-Identifier: BSD-3-Clause
// shmcb-inspect: shows what a segment holds, makes and removes segments. All but `create` and `rm` only read.
#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "common/arguments.hpp"
#include "failure.hpp"
#include "render.hpp"
#include "shmcb/segment.hpp"
#include "shmcb/segment_reader.hpp"
#include "shmcb/version.hpp"
#include "text.hpp"

namespace {

using namespace shmcb;
using namespace shmcb::inspect;

/// What the command line says.
struct Arguments {
  SegmentOptions segment{};
  bool json = false;
  std::string breaker{};      // show
  bool yes = false;           // rm
  std::string creation_id{};  // rm
};

/// Messages of the library are printable: it quotes what it cites.
void complain(std::string_view message) {
  fmt::print(stderr, "shmcb-inspect: {}\n", message);
}

[[nodiscard]] int fail(const Error& error) {
  complain(error.code == Errc::wrong_owner ? error.message + " (--trust-owner)" : error.message);
  return exit_code_of(error.code);
}

[[nodiscard]] int print(std::string_view text, int code = tools::exit_ok) {
  const std::size_t written = std::fwrite(text.data(), 1, text.size(), stdout);
  if (written == text.size() && std::fflush(stdout) == 0) return code;
  std::perror("shmcb-inspect: standard output");
  return tools::exit_io;
}

// ---- reading ------------------------------------------------------------------------------------

/// One sentence for each breaker that could not be read, up to a screenful; the exit code for the worst of them.
[[nodiscard]] int complain_about(const std::vector<BreakerInfo>& breakers) {
  constexpr std::size_t kMost = 20;
  int code = tools::exit_ok;
  std::size_t bad = 0;
  for (const BreakerInfo& breaker : breakers) {
    if (!breaker.error) continue;
    if (++bad <= kMost) complain(breaker.error.message);
    if (code != tools::exit_data) code = exit_code_of(breaker.error.code);
  }
  if (bad > kMost) complain(fmt::format("{} more breakers could not be read", bad - kMost));
  return code;
}

[[nodiscard]] int list(const Arguments& arguments) {
  const Result<SegmentReader> reader = SegmentReader::open(arguments.segment);
  if (!reader) return fail(reader.error());
  Result<std::vector<BreakerInfo>> breakers = reader->breakers();
  if (!breakers) return fail(breakers.error());
  std::sort(breakers->begin(), breakers->end(),
            [](const BreakerInfo& a, const BreakerInfo& b) { return a.name < b.name; });
  int code = complain_about(*breakers);
  const Result<SegmentInfo> info = reader->info();
  if (info && info->bad_index_entries != 0) {
    complain(
        fmt::format("segment '{}' is corrupt: {} entries of its index name no breaker, so some may be missing here; "
                    "remove it with rm and restart its processes",
                    reader->name(), info->bad_index_entries));
    code = tools::exit_data;
  }
  return print(arguments.json ? list_json(*reader, *breakers) : list_text(*breakers), code);
}

[[nodiscard]] int show(const Arguments& arguments) {
  const Result<SegmentReader> reader = SegmentReader::open(arguments.segment);
  if (!reader) return fail(reader.error());
  const Result<BreakerInfo> breaker = reader->breaker(arguments.breaker);
  if (!breaker) return fail(breaker.error());
  Result<std::vector<SegmentEvent>> events = reader->journal(breaker->place);
  if (!events) return fail(events.error());
  // Others are of names that had the place before.
  std::erase_if(*events, [&](const SegmentEvent& event) { return event.breaker != breaker->name; });
  const int code = complain_about({*breaker});
  return print(arguments.json ? show_json(*reader, *breaker, *events) : show_text(*reader, *breaker, *events), code);
}

[[nodiscard]] int info(const Arguments& arguments) {
  const Result<SegmentReader> reader = SegmentReader::open(arguments.segment);
  if (!reader) return fail(reader.error());
  const Result<SegmentInfo> info = reader->info();
  if (!info) return fail(info.error());
  return print(arguments.json ? info_json(*info) : info_text(*info),
               info->bad_index_entries == 0 ? tools::exit_ok : tools::exit_data);
}

// ---- create and rm ------------------------------------------------------------------------------

[[nodiscard]] int create(const Arguments& arguments) {
  const Result<Segment> segment = Segment::create(arguments.segment);
  if (!segment) return fail(segment.error());
  const core::Geometry& g = segment->geometry();
  return print(fmt::format("segment '{}' created: {} bytes for {}, {} and {}\n", segment->name(), g.total_bytes,
                           counted(g.breakers, "breaker", "breakers"), counted(g.ring_slots, "ring slot", "ring slots"),
                           counted(g.participants, "process", "processes")));
}

/// What is going to be removed, for the question.
[[nodiscard]] std::string describe(const Result<SegmentReader>& reader, const std::string& name) {
  if (!reader) return fmt::format("segment '{}', which cannot be read ({})", name, reader.error().message);
  const Result<SegmentInfo> info = reader->info();
  if (!info) return fmt::format("segment '{}', which cannot be read ({})", name, info.error().message);
  const auto alive =
      std::count_if(info->processes.begin(), info->processes.end(), [](const ProcessInfo& p) { return p.alive; });
  return fmt::format("segment '{}' with {}, created {}; {} attached and would go on with it alone", name,
                     counted(info->breakers, "breaker", "breakers"), wall_text(info->created_wall_ns),
                     counted(static_cast<std::uint64_t>(alive), "process is", "processes are"));
}

[[nodiscard]] bool confirmed(const std::string& what) {
  fmt::print(stderr, "Remove {}? [y/N] ", what);
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

/// Errors with which there is nothing to remove, or nothing that a segment tool should remove.
[[nodiscard]] bool nothing_to_remove(Errc code) {
  return code == Errc::segment_not_found || code == Errc::invalid_segment_name || code == Errc::system;
}

[[nodiscard]] int remove(const Arguments& arguments) {
  const std::string name = segment_name_or_default(arguments.segment.name);
  const Result<SegmentReader> reader = SegmentReader::open(arguments.segment);
  if (!reader && (nothing_to_remove(reader.error().code) || !arguments.creation_id.empty()))
    return fail(reader.error());
  if (!arguments.creation_id.empty() && reader->creation_id() != arguments.creation_id) {
    complain(fmt::format("segment '{}' has the creation id {}; not removed", name, reader->creation_id()));
    return tools::exit_negative;
  }
  if (!arguments.yes) {
    if (::isatty(STDIN_FILENO) == 0) {
      complain("rm needs --yes where there is no terminal to ask on");
      return tools::exit_usage;
    }
    if (!confirmed(describe(reader, name))) {
      complain(fmt::format("segment '{}' was not removed", name));
      return tools::exit_negative;
    }
  }
  if (reader) {  // the answer may have taken a while
    const Result<SegmentReader> now = SegmentReader::open(arguments.segment);
    if (now && now->creation_id() != reader->creation_id()) {
      complain(fmt::format("segment '{}' has just been replaced by another one; not removed", name));
      return tools::exit_temporary;
    }
  }
  if (const Error error = Segment::remove(arguments.segment)) return fail(error);
  return print(fmt::format("segment '{}' removed\n", name));
}

// ---- the command line ---------------------------------------------------------------------------

void add_segment_option(CLI::App& app, Arguments& arguments) {
  app.add_option_function<std::string>(
         "-s,--segment", [&arguments](const std::string& name) { arguments.segment.name = name; },
         "which segment; else $SHMCB_SEGMENT, else default")
      ->type_name("NAME");
}

void add_reading_options(CLI::App& app, Arguments& arguments) {
  add_segment_option(app, arguments);
  app.add_option_function<std::vector<std::string>>(
         "--trust-owner",
         [&arguments](const std::vector<std::string>& users) {
           for (const std::string& user : users)
             arguments.segment.trusted_owners.push_back(tools::user_of(user));
         },
         "accept a segment of this user, beside one's own and root's; may be repeated")
      ->type_name("USER|UID")
      ->expected(1)
      ->take_all();
}

void add_output_option(CLI::App& app, Arguments& arguments) {
  app.add_option_function<std::string>(
         "-o,--output", [&arguments](const std::string& format) { arguments.json = format == "json"; }, "table or json")
      ->check(CLI::IsMember({"table", "json"}))
      ->default_str("table");
}

void add_create_options(CLI::App& app, Arguments& arguments) {
  SegmentOptions& segment = arguments.segment;
  add_segment_option(app, arguments);
  app.add_option("--breakers", segment.breakers, "how many there is room for")->capture_default_str();
  app.add_option(
         "--ring-slots", segment.ring_slots,
         "slots for all windows together; a window of w takes the power of two above it, at least 16; 0: 16 a breaker")
      ->capture_default_str();
  app.add_option("--participants", segment.participants, "how many attached processes have an entry of their own")
      ->capture_default_str();
  app.add_option("--journal", segment.journal_entries,
                 "entries of the journal of transitions, a power of two, 76 bytes each")
      ->capture_default_str();
  app.add_option_function<std::string>(
         "--mode", [&segment](const std::string& text) { segment.mode = tools::mode_of(text); },
         "the file's exact mode, in octal")
      ->type_name("OCTAL")
      ->default_str("0600");
  app.add_option_function<std::string>(
         "--group", [&segment](const std::string& text) { segment.group = tools::group_of(text); }, "the file's group")
      ->type_name("GROUP|GID");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Arguments arguments;
    CLI::App app{"Shows what a shmcb segment holds; makes and removes segments.", "shmcb-inspect"};
    app.footer(kExitCodes);
    app.require_subcommand(1);
    add_segment_option(app, arguments);  // before the command as well as after it

    CLI::App* list_command = app.add_subcommand("list", "a table of all breakers");
    CLI::App* show_command =
        app.add_subcommand("show", "one breaker: state, window, probes, settings, newest transitions");
    CLI::App* info_command =
        app.add_subcommand("info", "the segment: capacities, records, journal, attached processes");
    CLI::App* create_command = app.add_subcommand("create", "makes a segment, before the first process attaches");
    CLI::App* rm_command = app.add_subcommand("rm", "removes a segment; attached processes keep what they have");
    for (CLI::App* command : {list_command, show_command, info_command}) {
      add_reading_options(*command, arguments);
      add_output_option(*command, arguments);
    }
    show_command->add_option("NAME", arguments.breaker, "the breaker")->required();
    add_create_options(*create_command, arguments);
    add_reading_options(*rm_command, arguments);
    rm_command->add_flag("-y,--yes", arguments.yes, "do not ask");
    rm_command->add_option("--creation-id", arguments.creation_id, "only the segment with this creation id (see info)");
    for (CLI::App* command : app.get_subcommands({}))
      command->footer(kExitCodes);

    app.set_version_flag("--version", std::string{kVersion});
    if (const auto code = tools::parse_arguments(app, argc, argv)) return *code;
    if (list_command->parsed()) return list(arguments);
    if (show_command->parsed()) return show(arguments);
    if (info_command->parsed()) return info(arguments);
    if (create_command->parsed()) return create(arguments);
    return remove(arguments);
  } catch (const std::exception& error) {
    complain(error.what());
    return tools::exit_software;
  }
}
