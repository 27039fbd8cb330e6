// SPDX-License-Identifier: BSD-3-Clause
#include "common/trace.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <istream>
#include <limits>
#include <map>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "shmcb/core/rules.hpp"

namespace shmcb::replay {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kMaxInstantMs = std::uint64_t{1} << 50U;  // in microseconds this still fits 63 bits
constexpr std::size_t kMaxIdBytes = 64;                           // arbitrary; the id becomes part of a breaker's name

/// One JSON object with the path to it, so that whatever is wrong with a field can be named.
class Fields {
 public:
  Fields(const Json& object, std::string place, std::string path)
      : object_(object), place_(std::move(place)), path_(std::move(path)) {
    if (!object.is_object()) fail(path_.empty() ? "the line" : path_, "is not a JSON object");
  }

  [[noreturn]] void refuse(std::string_view key, const std::string& problem) const { fail(path_of(key), problem); }

  void allow_only(std::initializer_list<std::string_view> keys) const {
    for (const auto& item : object_.items()) {
      if (std::find(keys.begin(), keys.end(), item.key()) == keys.end()) {
        fail(path_of(detail::quoted(item.key())), "is not a field of a trace");
      }
    }
  }

  [[nodiscard]] const Json& at(std::string_view key) const {
    const auto found = object_.find(key);
    if (found == object_.end()) refuse(key, "is missing");
    return *found;
  }
  [[nodiscard]] bool has(std::string_view key) const { return object_.contains(key); }
  [[nodiscard]] bool is_null(std::string_view key) const { return at(key).is_null(); }
  [[nodiscard]] Fields object(std::string_view key) const { return {at(key), place_, path_of(key)}; }

  [[nodiscard]] const Json& array(std::string_view key) const {
    const Json& value = at(key);
    if (!value.is_array()) refuse(key, "is not an array");
    return value;
  }
  [[nodiscard]] std::string text(std::string_view key) const {
    const Json& value = at(key);
    if (!value.is_string()) refuse(key, "is not a string");
    return value.get<std::string>();
  }
  template <class T>
  [[nodiscard]] T number(std::string_view key, std::uint64_t most = std::numeric_limits<T>::max()) const {
    const Json& value = at(key);
    if (!value.is_number_integer()) refuse(key, "is not a whole number");
    if (!value.is_number_unsigned()) refuse(key, "is " + value.dump() + "; it must not be negative");
    const auto result = value.get<std::uint64_t>();
    if (result > most) refuse(key, "is " + value.dump() + "; it must be at most " + std::to_string(most));
    return static_cast<T>(result);
  }
  /// The same, or `otherwise` where the trace does not say.
  template <class T>
  [[nodiscard]] T number_or(T otherwise, std::string_view key,
                            std::uint64_t most = std::numeric_limits<T>::max()) const {
    return has(key) ? number<T>(key, most) : otherwise;
  }
  [[nodiscard]] bool truth(std::string_view key) const {
    const Json& value = at(key);
    if (!value.is_boolean()) refuse(key, "is not true or false");
    return value.get<bool>();
  }
  /// The one of `values` that the string names.
  template <class Values>
  [[nodiscard]] auto one_of(std::string_view key, const Values& values) const {
    const std::string name = text(key);
    std::string names;
    for (const auto value : values) {
      if (name == to_string(value)) return value;
      names.append(names.empty() ? "" : ", ").append(to_string(value));
    }
    refuse(key, "is " + detail::quoted(name) + "; it must be one of " + names);
  }

  [[nodiscard]] const Json& json() const { return object_; }
  [[nodiscard]] std::string path_of(std::string_view key) const {
    return (path_.empty() ? "" : path_ + ".") + std::string{key};
  }
  [[nodiscard]] const std::string& place() const { return place_; }

 private:
  [[noreturn]] void fail(const std::string& subject, const std::string& problem) const {
    throw UnusableInput(place_ + ": " + subject + " " + problem);
  }

  const Json& object_;
  std::string place_;
  std::string path_;
};

using enum TransitionReason;
constexpr std::array kStates{CircuitState::closed, CircuitState::open, CircuitState::half_open};
constexpr std::array kAllModes{Mode::automatic, Mode::forced_open, Mode::forced_closed, Mode::disabled, Mode::observe};
constexpr std::array kOutcomes{Outcome::success, Outcome::failure, Outcome::ignored};
constexpr std::array kAdmissions{Admission::allowed, Admission::probe, Admission::rejected};
constexpr std::array kStatuses{RecordStatus::counted, RecordStatus::ignored, RecordStatus::stale,
                               RecordStatus::rejected};
constexpr std::array kReasons{failure_threshold_reached,
                              cooldown_elapsed,
                              probe_succeeded,
                              probe_failed,
                              forced_open,
                              forced_closed,
                              forced_half_open,
                              failure_rate_reached,
                              consecutive_failures_reached,
                              slow_rate_reached,
                              probe_slow};
static_assert(kReasons.size() + 1 == kTransitionReasons && kAllModes.size() == kModes);

constexpr std::string_view kTransitions = "transitions";

struct CounterField {
  std::string_view name;
  std::uint64_t (*of)(const Counters&) noexcept;
};
constexpr std::array kCounterFields{
    CounterField{"completed", [](const Counters& c) noexcept { return c.completed; }},
    CounterField{"successes", [](const Counters& c) noexcept { return c.successes; }},
    CounterField{"failures", [](const Counters& c) noexcept { return c.failures; }},
    CounterField{"ignored", [](const Counters& c) noexcept { return c.ignored; }},
    CounterField{"stale", [](const Counters& c) noexcept { return c.stale; }},
    CounterField{"rejected", [](const Counters& c) noexcept { return c.rejected; }},
    CounterField{"ramp_rejected", [](const Counters& c) noexcept { return c.ramp_rejected; }},
    CounterField{"abandoned", [](const Counters& c) noexcept { return c.abandoned; }},
    CounterField{"probes", [](const Counters& c) noexcept { return c.probes; }},
    CounterField{"probe_verdicts", [](const Counters& c) noexcept { return c.probe_verdicts; }},
    CounterField{"in_closed_ms",
                 [](const Counters& c) noexcept { return static_cast<std::uint64_t>(c.in_closed.count()); }},
    CounterField{"in_open_ms",
                 [](const Counters& c) noexcept { return static_cast<std::uint64_t>(c.in_open.count()); }},
    CounterField{"in_half_open_ms",
                 [](const Counters& c) noexcept { return static_cast<std::uint64_t>(c.in_half_open.count()); }},
};

[[nodiscard]] CircuitState state_of(const Fields& fields, std::string_view key) {
  return fields.one_of(key, kStates);
}

[[nodiscard]] std::int64_t instant_of(const Fields& fields, std::string_view key) {
  return fields.number<std::int64_t>(key, kMaxInstantMs);
}

[[nodiscard]] std::optional<TraceTransition> transition_of(const Fields& expect) {
  if (expect.is_null("transition")) return std::nullopt;
  const Fields fields = expect.object("transition");
  fields.allow_only({"from", "to", "reason", "at_ms"});
  return TraceTransition{.from = state_of(fields, "from"),
                         .to = state_of(fields, "to"),
                         .reason = fields.one_of("reason", kReasons),
                         .at_ms = instant_of(fields, "at_ms")};
}

[[nodiscard]] TraceRecord record_of(const Fields& expect) {
  TraceRecord record{.state = state_of(expect, "state"),
                     .successes = expect.number<std::uint64_t>("successes"),
                     .failures = expect.number<std::uint64_t>("failures"),
                     .rejected = expect.number<std::uint64_t>("rejected")};
  if (!expect.is_null("opened_at_ms")) record.opened_at_ms = instant_of(expect, "opened_at_ms");
  if (expect.has("slow")) record.slow = expect.number<std::uint64_t>("slow");
  if (expect.has("mode")) record.mode = expect.one_of("mode", kAllModes);
  if (expect.has("ramping")) record.ramping = expect.truth("ramping");
  return record;
}

[[nodiscard]] std::vector<TraceCounter> counters_of(const Fields& expect) {
  std::vector<TraceCounter> counters;
  const auto add = [&counters](const Fields& fields, const std::string& prefix) {
    for (const auto& item : fields.json().items()) {
      if (prefix.empty() && item.key() == kTransitions) continue;
      const std::string name = prefix + item.key();
      if (!counter_named({}, name)) fields.refuse(detail::quoted(item.key()), "is not a counter");
      counters.push_back({.name = name, .value = fields.number<std::uint64_t>(item.key())});
    }
  };
  add(expect, "");
  if (expect.has(kTransitions)) add(expect.object(kTransitions), std::string{kTransitions} + ".");
  if (counters.empty()) expect.refuse("a counter", "is missing");
  return counters;
}

/// Attempts by name, in order of admission.
class Attempts {
 public:
  [[nodiscard]] std::size_t admit(const Fields& step) {
    const auto [place, fresh] = numbers_.emplace(step.text("attempt"), numbers_.size());
    if (!fresh) step.refuse("attempt", "was admitted before");
    return place->second;
  }
  [[nodiscard]] std::size_t find(const Fields& step) const {
    const auto found = numbers_.find(step.text("attempt"));
    if (found == numbers_.end()) step.refuse("attempt", "was not admitted before");
    return found->second;
  }
  [[nodiscard]] std::size_t count() const { return numbers_.size(); }

 private:
  std::map<std::string, std::size_t> numbers_;
};

[[nodiscard]] ModeRequest mode_of(const Fields& step) {
  ModeRequest request{.mode = step.one_of("to", kAllModes)};
  if (step.has("expires_after_ms")) {
    request.expires_after =
        Millis{step.number<std::int64_t>("expires_after_ms", static_cast<std::uint64_t>(kMaxDurationMs))};
  }
  if (const Error error = check(request)) step.refuse("op", "is refused: " + error.message);
  return request;
}

void read_outcome(const Fields& expect, Step& step) {
  expect.allow_only({"state", "opened_at_ms", "successes", "failures", "rejected", "slow", "mode", "ramping", "status",
                     "transition"});
  step.record = record_of(expect);
  step.transition = transition_of(expect);
  if (expect.has("status")) step.status = expect.one_of("status", kStatuses);
}

[[nodiscard]] Step step_of(const Fields& fields, Attempts& attempts) {
  using enum Operation;
  Step step;
  step.at_ms = instant_of(fields, "at_ms");
  step.operation = fields.one_of("op", std::array{admit, record, abandon, snapshot, force, mode, counters});
  step.draw = fields.number_or<std::uint32_t>(0, "draw", rules::kDraws - 1);
  const Fields expect = fields.object("expect");
  switch (step.operation) {
    case admit:
      fields.allow_only({"at_ms", "op", "draw", "attempt", "expect"});
      expect.allow_only({"admission", "retry_after_ms", "state", "transition"});
      step.attempt = attempts.admit(fields);
      step.admission = expect.one_of("admission", kAdmissions);
      if (expect.has("retry_after_ms")) step.retry_after_ms = instant_of(expect, "retry_after_ms");
      if (expect.has("state")) step.state = state_of(expect, "state");
      step.transition = transition_of(expect);
      break;
    case record:
      fields.allow_only({"at_ms", "op", "draw", "attempt", "outcome", "expect"});
      step.attempt = attempts.find(fields);
      step.outcome = fields.one_of("outcome", kOutcomes);
      read_outcome(expect, step);
      break;
    case abandon:
      fields.allow_only({"at_ms", "op", "draw", "attempt", "expect"});
      step.attempt = attempts.find(fields);
      read_outcome(expect, step);
      break;
    case snapshot:
      fields.allow_only({"at_ms", "op", "draw", "expect"});
      expect.allow_only({"state", "opened_at_ms", "successes", "failures", "rejected", "slow", "mode", "ramping"});
      step.record = record_of(expect);
      break;
    case force:
      fields.allow_only({"at_ms", "op", "draw", "to", "expect"});
      expect.allow_only({"transition"});
      step.to = state_of(fields, "to");
      step.transition = transition_of(expect);
      break;
    case mode:
      fields.allow_only({"at_ms", "op", "draw", "to", "expires_after_ms", "expect"});
      expect.allow_only({"previous"});
      step.mode = mode_of(fields);
      step.previous = expect.one_of("previous", kAllModes);
      break;
    case counters:
      fields.allow_only({"at_ms", "op", "draw", "expect"});
      step.counters = counters_of(expect);
      break;
  }
  return step;
}

[[nodiscard]] std::string id_of(const Fields& fields) {
  const std::string id = fields.text("id");
  if (id.empty() || id.size() > kMaxIdBytes || !std::all_of(id.begin(), id.end(), detail::is_name_char)) {
    fields.refuse(
        "id", "is " + detail::quoted(id) + "; it must be 1 to " + std::to_string(kMaxIdBytes) + " of [A-Za-z0-9_.:-]");
  }
  return id;
}

[[nodiscard]] Millis millis_of(const Fields& fields, std::string_view key) {
  return Millis{fields.number<std::int64_t>(key, static_cast<std::uint64_t>(kMaxDurationMs))};
}

[[nodiscard]] Cooldown cooldown_of(const Fields& config) {
  if (!config.has("cooldown")) return {.base = millis_of(config, "cooldown_ms")};
  if (config.has("cooldown_ms")) config.refuse("cooldown_ms", "stands beside cooldown");
  const Fields fields = config.object("cooldown");
  fields.allow_only({"base_ms", "multiplier", "maximum_ms", "jitter", "forget_after_ms"});
  Cooldown cooldown{.base = millis_of(fields, "base_ms"),
                    .multiplier = fields.number_or<std::uint32_t>(1, "multiplier"),
                    .jitter = fields.number_or<std::uint32_t>(0, "jitter")};
  if (fields.has("maximum_ms")) cooldown.maximum = millis_of(fields, "maximum_ms");
  if (fields.has("forget_after_ms")) cooldown.forget_after = millis_of(fields, "forget_after_ms");
  return cooldown;
}

/// The opening rules beside the ratio, and the ramp.
void read_policies(const Fields& fields, BreakerConfig& config) {
  if (fields.has("failure_rate")) {
    const Fields rate = fields.object("failure_rate");
    rate.allow_only({"percent", "minimum_calls"});
    config.failure_rate = {.percent = rate.number<std::uint32_t>("percent"),
                           .minimum_calls = rate.number<std::uint32_t>("minimum_calls")};
  }
  if (fields.has("consecutive_failures")) {
    const Fields run = fields.object("consecutive_failures");
    run.allow_only({"failures"});
    config.consecutive_failures = {.failures = run.number<std::uint32_t>("failures")};
  }
  if (fields.has("slow_calls")) {
    const Fields slow = fields.object("slow_calls");
    slow.allow_only({"slower_than_ms", "percent", "minimum_calls", "reopen_on_slow_probe"});
    config.slow_calls = {
        .slower_than = millis_of(slow, "slower_than_ms"),
        .percent = slow.number<std::uint32_t>("percent"),
        .minimum_calls = slow.number<std::uint32_t>("minimum_calls"),
        .reopen_on_slow_probe = slow.has("reopen_on_slow_probe") && slow.truth("reopen_on_slow_probe")};
  }
  if (fields.has("ramp_up")) {
    const Fields ramp = fields.object("ramp_up");
    ramp.allow_only({"duration_ms", "start_percent"});
    config.ramp_up = {.duration = millis_of(ramp, "duration_ms"),
                      .start_percent = ramp.number<std::uint32_t>("start_percent")};
  }
}

[[nodiscard]] BreakerConfig config_of(const Fields& trace) {
  const Fields fields = trace.object("config");
  fields.allow_only({"failures", "window", "within_ms", "cooldown_ms", "success_threshold", "probe_limit",
                     "probe_timeout_ms", "cooldown", "failure_rate", "consecutive_failures", "slow_calls", "ramp_up"});
  BreakerConfig config{.name = "trace." + id_of(trace),
                       .failure_threshold = {.failures = fields.number<std::uint32_t>("failures"),
                                             .window = fields.number<std::uint32_t>("window"),
                                             .within = millis_of(fields, "within_ms")},
                       .cooldown = cooldown_of(fields),
                       .success_threshold = fields.number<std::uint32_t>("success_threshold"),
                       .probe_limit = fields.number<std::uint32_t>("probe_limit"),
                       .probe_timeout = millis_of(fields, "probe_timeout_ms")};
  read_policies(fields, config);
  if (const Error error = check(config)) trace.refuse("config", "is refused: " + error.message);
  return config;
}

[[nodiscard]] Trace trace_of(const Json& json, const std::string& place) {
  const Fields fields{json, place, ""};
  fields.allow_only({"id", "config", "steps", "rules"});
  Trace trace{.id = id_of(fields), .place = place, .config = config_of(fields)};
  if (fields.has("rules")) {
    for (const Json& rule : fields.array("rules")) {
      if (!rule.is_string()) fields.refuse("rules", "holds something other than strings");
      trace.rules.push_back(rule.get<std::string>());
    }
  }
  Attempts attempts;
  for (const Json& step : fields.array("steps")) {
    const std::string path = "steps[" + std::to_string(trace.steps.size() + 1) + "]";  // as deviations count them
    trace.steps.push_back(step_of(Fields{step, place, path}, attempts));
  }
  if (trace.steps.empty()) fields.refuse("steps", "is empty");
  trace.attempts = attempts.count();
  return trace;
}

[[nodiscard]] Json json_of(const std::string& line, const std::string& place) {
  try {
    return Json::parse(line);
  } catch (const Json::parse_error& error) {
    throw UnusableInput(place + ": not valid JSON at column " + std::to_string(error.byte));
  } catch (const Json::exception&) {  // a number that no double holds
    throw UnusableInput(place + ": not valid JSON: a number is out of range");
  }
}

[[noreturn]] void cannot_read(const std::string& file, int cause) {
  throw UnusableInput(file + ": cannot be read: " + std::strerror(cause == 0 ? EIO : cause));
}

}  // namespace

std::optional<std::uint64_t> counter_named(const Counters& counters, std::string_view name) noexcept {
  for (const CounterField& field : kCounterFields) {
    if (field.name == name) return field.of(counters);
  }
  const std::size_t prefix = kTransitions.size() + 1;
  if (name.size() <= prefix || name.substr(0, prefix) != "transitions.") return std::nullopt;
  for (const TransitionReason reason : kReasons) {
    if (to_string(reason) == name.substr(prefix)) return counters.transitions[static_cast<std::size_t>(reason)];
  }
  return std::nullopt;
}

std::vector<Trace> read_traces(std::istream& input, const std::string& file) {
  std::vector<Trace> traces;
  std::string line;
  errno = 0;
  for (std::size_t number = 1; std::getline(input, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string place = file + ":" + std::to_string(number);
    traces.push_back(trace_of(json_of(line, place), place));
  }
  if (input.bad()) cannot_read(file, errno);
  if (traces.empty()) throw UnusableInput(file + ":1: there is no trace in it");
  return traces;
}

std::vector<Trace> read_trace_file(const std::string& path) {
  errno = 0;
  std::ifstream input{path, std::ios::binary};
  if (!input) cannot_read(path, errno);
  return read_traces(input, path);
}

}  // namespace shmcb::replay
