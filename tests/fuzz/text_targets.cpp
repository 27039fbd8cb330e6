// SPDX-License-Identifier: BSD-3-Clause
// What people and programs write: configurations, traces, durations, names, lists of exit codes.
#include <algorithm>
#include <sstream>
#include <string>
#include <string_view>

#include "common/trace.hpp"
#include "fuzz/targets.hpp"
#include "inspect/text.hpp"
#include "run/verdict.hpp"
#include "shmcb/config_text.hpp"
#include "shmcb/duration_text.hpp"
#include "shmcb/segment_reader.hpp"

namespace shmcb::fuzz {
namespace {

[[nodiscard]] std::string_view text_of(Input input) noexcept {
  return {reinterpret_cast<const char*>(input.data()), input.size()};
}

void require_printable(std::string_view text) {
  require(std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; }), "messages are printable");
}

void require_sentence(const Error& error) {
  require_documented(error.code);
  require(!error.message.empty(), "an error has a message");
  require_printable(error.message);
}

}  // namespace

void fuzz_config(Input input) {
  const Result<Configuration> read = parse_config(text_of(input), "f.toml");
  if (!read) {
    require(read.error().code == Errc::invalid_config, "what is wrong with a text is invalid_config");
    return require_sentence(read.error());
  }
  for (const std::string& warning : read->warnings)
    require_printable(warning);
  std::string text;
  for (const BreakerConfig& breaker : read->breakers) {
    require(!check(breaker), "what is read keeps its rules");
    require(read->find(breaker.name) == &breaker, "a breaker is found by its name");
    text += to_toml(breaker);
  }
  const Result<Configuration> again = parse_config(text, "again.toml");
  require(again.has_value() && again->breakers.size() == read->breakers.size(), "what is printed can be read");
  for (std::size_t i = 0; i < read->breakers.size(); ++i) {
    require(again->breakers[i].name == read->breakers[i].name, "names come back");
    require(settings_of(again->breakers[i]) == settings_of(read->breakers[i]), "settings come back");
  }
}

void fuzz_trace(Input input) {
  std::istringstream stream{std::string{text_of(input)}};
  try {
    for (const replay::Trace& trace : replay::read_traces(stream, "f.jsonl")) {
      require(!check(trace.config), "what is read keeps its rules");
      require(!trace.steps.empty(), "a trace has a step");
      for (const replay::Step& step : trace.steps) {
        const bool of_attempt = step.operation == replay::Operation::admit ||
                                step.operation == replay::Operation::record ||
                                step.operation == replay::Operation::abandon;
        require(!of_attempt || step.attempt < trace.attempts, "attempts are numbered");
      }
    }
  } catch (const replay::UnusableInput& error) {
    require_printable(error.what());
  }
}

void fuzz_text(Input input) {
  const std::string_view text = text_of(input);
  if (const Result<Millis> duration = parse_duration("field", text)) {
    require(duration->count() >= 1 && duration->count() <= kMaxDurationMs, "a duration is in its range");
    const Result<Millis> again = parse_duration("field", format_duration(*duration));
    require(again && *again == *duration, "durations come back");
  } else {
    require_sentence(duration.error());
  }
  const Result<run::ExitCodes> codes = run::parse_exit_codes("--codes", text);
  require(!codes || codes->any(), "a list of exit codes names one");
  if (!codes) require_sentence(codes.error());
  if (const Error error = check(BreakerConfig{.name = std::string{text}})) require_sentence(error);
  const auto nowhere = SegmentReader::open({.name = std::string{text}, .directory = "/nonexistent"});
  require(!nowhere, "what is nowhere is not opened");
  require_sentence(nowhere.error());
  require_printable(inspect::escaped(text));
  Bytes in(input);
  require_printable(inspect::duration_text(Micros{in.number<std::int64_t>()}));
  require_printable(inspect::wall_text(in.number<std::int64_t>()));
}

}  // namespace shmcb::fuzz
