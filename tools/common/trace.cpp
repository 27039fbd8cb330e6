// SPDX-License-Identifier: BSD-3-Clause
#include "common/trace.hpp"

#include <algorithm>
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
  /// The one of `values` that the string names.
  template <class E>
  [[nodiscard]] E one_of(std::string_view key, std::initializer_list<E> values) const {
    const std::string name = text(key);
    std::string names;
    for (const E value : values) {
      if (name == to_string(value)) return value;
      names.append(names.empty() ? "" : ", ").append(to_string(value));
    }
    refuse(key, "is " + detail::quoted(name) + "; it must be one of " + names);
  }

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

[[nodiscard]] CircuitState state_of(const Fields& fields, std::string_view key) {
  return fields.one_of(key, {CircuitState::closed, CircuitState::open, CircuitState::half_open});
}

[[nodiscard]] std::int64_t instant_of(const Fields& fields, std::string_view key) {
  return fields.number<std::int64_t>(key, kMaxInstantMs);
}

[[nodiscard]] std::optional<TraceTransition> transition_of(const Fields& expect) {
  if (expect.is_null("transition")) return std::nullopt;
  const Fields fields = expect.object("transition");
  fields.allow_only({"from", "to", "reason", "at_ms"});
  using enum TransitionReason;
  return TraceTransition{
      .from = state_of(fields, "from"),
      .to = state_of(fields, "to"),
      .reason = fields.one_of("reason", {failure_threshold_reached, cooldown_elapsed, probe_succeeded, probe_failed,
                                         forced_open, forced_closed, forced_half_open}),
      .at_ms = instant_of(fields, "at_ms")};
}

[[nodiscard]] TraceRecord record_of(const Fields& expect) {
  TraceRecord record{.state = state_of(expect, "state"),
                     .successes = expect.number<std::uint64_t>("successes"),
                     .failures = expect.number<std::uint64_t>("failures"),
                     .rejected = expect.number<std::uint64_t>("rejected")};
  if (!expect.is_null("opened_at_ms")) record.opened_at_ms = instant_of(expect, "opened_at_ms");
  return record;
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

[[nodiscard]] Step step_of(const Fields& fields, Attempts& attempts) {
  Step step;
  step.at_ms = instant_of(fields, "at_ms");
  step.operation = fields.one_of("op", {Operation::admit, Operation::record, Operation::snapshot, Operation::force});
  const Fields expect = fields.object("expect");
  switch (step.operation) {
    case Operation::admit:
      fields.allow_only({"at_ms", "op", "attempt", "expect"});
      expect.allow_only({"admission", "transition"});
      step.attempt = attempts.admit(fields);
      step.admission = expect.one_of("admission", {Admission::allowed, Admission::probe, Admission::rejected});
      step.transition = transition_of(expect);
      break;
    case Operation::record:
      fields.allow_only({"at_ms", "op", "attempt", "outcome", "expect"});
      expect.allow_only({"state", "opened_at_ms", "successes", "failures", "rejected", "transition"});
      step.attempt = attempts.find(fields);
      step.outcome = fields.one_of("outcome", {Outcome::success, Outcome::failure, Outcome::ignored});
      step.record = record_of(expect);
      step.transition = transition_of(expect);
      break;
    case Operation::snapshot:
      fields.allow_only({"at_ms", "op", "expect"});
      expect.allow_only({"state", "opened_at_ms", "successes", "failures", "rejected"});
      step.record = record_of(expect);
      break;
    case Operation::force:
      fields.allow_only({"at_ms", "op", "to", "expect"});
      expect.allow_only({"transition"});
      step.to = state_of(fields, "to");
      step.transition = transition_of(expect);
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

[[nodiscard]] BreakerConfig config_of(const Fields& trace) {
  const Fields fields = trace.object("config");
  fields.allow_only(
      {"failures", "window", "within_ms", "cooldown_ms", "success_threshold", "probe_limit", "probe_timeout_ms"});
  const auto millis = [&fields](std::string_view key) {
    return Millis{fields.number<std::int64_t>(key, static_cast<std::uint64_t>(kMaxDurationMs))};
  };
  BreakerConfig config{.name = "trace." + id_of(trace),
                       .failure_threshold = {.failures = fields.number<std::uint32_t>("failures"),
                                             .window = fields.number<std::uint32_t>("window"),
                                             .within = millis("within_ms")},
                       .cooldown = millis("cooldown_ms"),
                       .success_threshold = fields.number<std::uint32_t>("success_threshold"),
                       .probe_limit = fields.number<std::uint32_t>("probe_limit"),
                       .probe_timeout = millis("probe_timeout_ms")};
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
