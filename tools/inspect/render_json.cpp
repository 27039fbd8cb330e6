// SPDX-License-Identifier: BSD-3-Clause
#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "render.hpp"
#include "text.hpp"

namespace shmcb::inspect {

namespace {

using Json = nlohmann::ordered_json;

/// As far as 64 bits hold it: 292 years. (Sums of a segment that somebody else writes to may be longer.)
template <class Period>
[[nodiscard]] std::int64_t ns(std::chrono::duration<std::int64_t, Period> duration) {
  constexpr std::int64_t kEach = std::nano::den / Period::den;
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / kEach;
  return duration.count() > kMost ? std::numeric_limits<std::int64_t>::max() : duration.count() * kEach;
}

[[nodiscard]] Json ns_or_null(const std::optional<Micros>& duration) {
  return duration ? Json(ns(*duration)) : Json(nullptr);
}

[[nodiscard]] Json json_of(const SegmentReader& segment) {
  return {{"name", segment.name()}, {"creation_id", segment.creation_id()}};
}

[[nodiscard]] Json json_of(const Error& error) {
  if (!error) return nullptr;
  return {{"code", std::string{to_string(error.code)}}, {"message", error.message}};
}

[[nodiscard]] Json json_of(const Settings& s) {
  return {{"failures", s.failures},
          {"window", s.window},
          {"within_ns", ns(Millis{s.within_ms})},
          {"failure_rate_percent", s.rate_percent},
          {"failure_rate_minimum_calls", s.rate_minimum_calls},
          {"consecutive_failures", s.consecutive_failures},
          {"slow_percent", s.slow_percent},
          {"slow_minimum_calls", s.slow_minimum_calls},
          {"slower_than_ns", ns(Millis{s.slower_than_ms})},
          {"reopen_on_slow_probe", s.reopen_on_slow_probe},
          {"cooldown_ns", ns(Millis{s.cooldown_ms})},
          {"cooldown_multiplier", s.cooldown_multiplier},
          {"cooldown_maximum_ns", ns(Millis{s.cooldown_maximum_ms})},
          {"cooldown_jitter_percent", s.cooldown_jitter},
          {"forget_after_ns", ns(Millis{s.forget_after_ms})},
          {"success_threshold", s.success_threshold},
          {"probe_limit", s.probe_limit},
          {"probe_timeout_ns", ns(Millis{s.probe_timeout_ms})},
          {"reclaim_dead_probes", s.reclaim_dead_probes},
          {"ramp_ns", ns(Millis{s.ramp_ms})},
          {"ramp_start_percent", s.ramp_start_percent},
          {"accounting", s.lean ? "lean" : "exact"},
          {"revision", s.revision}};
}

[[nodiscard]] Json json_of(const Counters& c) {
  Json transitions = Json::object();
  for (std::size_t i = 1; i < kTransitionReasons; ++i)
    transitions[std::string{to_string(static_cast<TransitionReason>(i))}] = c.transitions[i];
  return {{"completed", c.completed},
          {"successes", c.successes},
          {"failures", c.failures},
          {"ignored", c.ignored},
          {"stale", c.stale},
          {"rejected", c.rejected},
          {"ramp_rejected", c.ramp_rejected},
          {"abandoned", c.abandoned},
          {"probes", c.probes},
          {"probe_verdicts", c.probe_verdicts},
          {"transitions", std::move(transitions)},
          {"in_closed_ns", ns(c.in_closed)},
          {"in_open_ns", ns(c.in_open)},
          {"in_half_open_ns", ns(c.in_half_open)}};
}

[[nodiscard]] Json json_of(const std::vector<ProbeInfo>& probes) {
  Json out = Json::array();
  for (const ProbeInfo& probe : probes) {
    out.push_back({{"id", probe.id},
                   {"process", probe.owner},
                   {"pid", probe.pid ? Json(*probe.pid) : Json(nullptr)},
                   {"foreign_pid_namespace", probe.foreign_pids}});
  }
  return out;
}

[[nodiscard]] Json json_of(const std::vector<WindowMark>& window) {
  Json out = Json::array();
  for (const WindowMark& mark : window)
    out.push_back({{"failure", mark.failure}, {"slow", mark.slow}, {"age_ns", ns(mark.age)}});
  return out;
}

[[nodiscard]] Json json_of(const std::vector<SegmentEvent>& events) {
  Json out = Json::array();
  for (const SegmentEvent& e : events) {
    out.push_back({{"number", e.number},
                   {"kind", std::string{to_string(e.kind)}},
                   {"from", std::string{to_string(e.from)}},
                   {"to", std::string{to_string(e.to)}},
                   {"reason", std::string{to_string(e.reason)}},
                   {"mode_from", std::string{to_string(e.mode_from)}},
                   {"mode_to", std::string{to_string(e.mode_to)}},
                   {"mode_ns", e.until ? Json(ns(*e.until - e.occurred_at)) : Json(nullptr)},
                   {"generation", e.generation},
                   {"wall_ns", e.wall_ns},
                   {"pid", e.pid},
                   {"who", escaped(e.who)},
                   {"why", escaped(e.why)}});
  }
  return out;
}

/// Without the window.
[[nodiscard]] Json json_of(const BreakerInfo& b) {
  Json out{{"name", escaped(b.name)}, {"place", b.place}, {"error", json_of(b.error)}};
  const Json fields{{"state", std::string{to_string(b.state)}},
                    {"mode", std::string{to_string(b.mode)}},
                    {"mode_left_ns", b.mode_left ? Json(ns(*b.mode_left)) : Json(nullptr)},
                    {"mode_who", escaped(b.mode_who)},
                    {"mode_why", escaped(b.mode_why)},
                    {"ramping", b.ramping},
                    {"generation", b.generation},
                    {"state_age_ns", ns_or_null(b.state_age)},
                    {"opened_age_ns", ns_or_null(b.opened_age)},
                    {"lease_age_ns", ns_or_null(b.lease_age)},
                    {"successes", b.successes},
                    {"failures", b.failures},
                    {"slow", b.slow},
                    {"rejected", b.rejected},
                    {"counters", json_of(b.counters)},
                    {"cooldown_left_ns", ns(b.cooldown_left)},
                    {"probes", json_of(b.probes)},
                    {"settings", json_of(b.settings)},
                    {"ring_slots", b.ring_capacity},
                    {"memory_bytes", b.memory_bytes}};
  for (const auto& [name, value] : fields.items())
    out[name] = b.error ? Json(nullptr) : value;
  return out;
}

[[nodiscard]] std::string text(const Json& json) {
  return json.dump(2) + "\n";
}

}  // namespace

std::string list_json(const SegmentReader& segment, const std::vector<BreakerInfo>& breakers) {
  Json rows = Json::array();
  for (const BreakerInfo& breaker : breakers)
    rows.push_back(json_of(breaker));
  return text({{"schema", "shmcb-inspect/list/1"}, {"segment", json_of(segment)}, {"breakers", std::move(rows)}});
}

std::string show_json(const SegmentReader& segment, const BreakerInfo& breaker,
                      const std::vector<SegmentEvent>& events) {
  Json row = json_of(breaker);
  row["window"] = breaker.error ? Json(nullptr) : json_of(breaker.window);
  row["events"] = json_of(events);
  return text({{"schema", "shmcb-inspect/show/1"}, {"segment", json_of(segment)}, {"breaker", std::move(row)}});
}

std::string info_json(const SegmentInfo& i) {
  const core::Geometry& g = i.geometry;
  Json processes = Json::array();
  for (const ProcessInfo& p : i.processes) {
    processes.push_back(
        {{"number", p.number}, {"pid", p.pid}, {"foreign_pid_namespace", p.foreign_pids}, {"alive", p.alive}});
  }
  return text({{"schema", "shmcb-inspect/info/1"},
               {"name", i.name},
               {"path", escaped(i.path)},
               {"layout_major", i.layout_major},
               {"layout_minor", i.layout_minor},
               {"creation_id", i.creation_id},
               {"created_wall_ns", i.created_wall_ns},
               {"creator_pid", i.creator_pid},
               {"bytes", g.total_bytes},
               {"mode", i.mode},
               {"uid", i.owner},
               {"gid", i.group},
               {"breakers", i.breakers},
               {"places_used", i.places_used},
               {"places", g.breakers},
               {"ring_slots_used", i.ring_slots_used},
               {"ring_slots", g.ring_slots},
               {"records_free", i.records.free},
               {"records_current", i.records.current},
               {"records_held", i.records.held},
               {"records_left_behind", i.records.left_behind},
               {"journal_entries", g.journal_entries},
               {"journal_next", i.journal_next},
               {"bad_index_entries", i.bad_index_entries},
               {"participants", g.participants},
               {"processes", std::move(processes)}});
}

}  // namespace shmcb::inspect
