// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "render.hpp"
#include "text.hpp"

namespace shmcb::inspect {

namespace {

/// How long the state has lasted, as far as it is known.
[[nodiscard]] std::string since(const BreakerInfo& b) {
  if (b.state_age) return duration_text(*b.state_age);
  if (b.lease_age) return ">=" + duration_text(*b.lease_age);
  return "-";
}

[[nodiscard]] Row list_row(const BreakerInfo& b) {
  if (b.error) return {escaped(b.name), std::string{to_string(b.error.code)}, "-", "-", "-", "-", "-", "-"};
  const bool open = b.state == CircuitState::open;
  return {escaped(b.name),
          std::string{to_string(b.state)},
          since(b),
          b.state == CircuitState::half_open ? "-" : fmt::format("{}/{}", b.failures, b.settings.window),
          fmt::format("{}", b.successes),
          fmt::format("{}", b.rejected),
          open ? duration_text(b.cooldown_left) : "-",
          fmt::format("{}/{}", b.probes.size(), b.settings.probe_limit)};
}

[[nodiscard]] std::string state_text(const BreakerInfo& b) {
  const std::string state{to_string(b.state)};
  switch (b.state) {
    case CircuitState::open:
      return fmt::format("{} for {}; cooldown {}, {} left", state, since(b),
                         duration_text(Millis{b.settings.cooldown_ms}), duration_text(b.cooldown_left));
    case CircuitState::half_open:
      return fmt::format("{} for at least {}, the age of the newest lease", state,
                         duration_text(b.lease_age.value_or(Micros{0})));
    case CircuitState::closed: break;
  }
  return b.opened_age ? fmt::format("{}; last opened or forced {} ago", state, duration_text(*b.opened_age))
                      : state + "; never opened or forced";
}

[[nodiscard]] std::string counts_text(const BreakerInfo& b) {
  if (b.state == CircuitState::half_open) {
    return fmt::format("{} of {}", counted(b.successes, "successful probe", "successful probes"),
                       b.settings.success_threshold);
  }
  return fmt::format("{}, {}, of the last {} within {}", counted(b.failures, "failure", "failures"),
                     counted(b.successes, "success", "successes"), b.settings.window,
                     duration_text(Millis{b.settings.within_ms}));
}

/// The newest marks, oldest first: x is a failure, a dot a success.
[[nodiscard]] std::string window_text(const BreakerInfo& b) {
  constexpr std::size_t kMarks = 64;  // what fits beside the label
  if (b.window.empty()) return "empty";
  const std::size_t shown = std::min(kMarks, b.window.size());
  std::string out;
  for (std::size_t i = b.window.size() - shown; i < b.window.size(); ++i)
    out += b.window[i].failure ? 'x' : '.';
  if (shown < b.window.size()) out = fmt::format("...{} (and {} before)", out, b.window.size() - shown);
  return out;
}

[[nodiscard]] std::string window_ages_text(const BreakerInfo& b) {
  if (b.window.empty()) return "-";
  return fmt::format("{} to {}", duration_text(b.window.front().age), duration_text(b.window.back().age));
}

[[nodiscard]] std::string probe_text(const ProbeInfo& probe) {
  if (!probe.pid) return fmt::format("process {}", probe.owner);
  return fmt::format("process {} (pid {}{})", probe.owner, *probe.pid,
                     probe.foreign_pids ? " of a foreign pid namespace" : "");
}

[[nodiscard]] std::string probes_text(const BreakerInfo& b) {
  std::string out = fmt::format("{} of {} out", b.probes.size(), b.settings.probe_limit);
  std::string_view separator = ": ";
  for (const ProbeInfo& probe : b.probes) {
    out += std::string{separator} + probe_text(probe);
    separator = ", ";
  }
  return out;
}

[[nodiscard]] std::string settings_text(const Settings& s) {
  return fmt::format("failures {}, window {}, within {}ms, cooldown {}ms,", s.failures, s.window, s.within_ms,
                     s.cooldown_ms);
}

[[nodiscard]] std::string more_settings_text(const Settings& s) {
  return fmt::format("success threshold {}, probe limit {}, probe timeout {}ms, revision {}", s.success_threshold,
                     s.probe_limit, s.probe_timeout_ms, s.revision);
}

[[nodiscard]] std::string event_text(const SegmentEvent& e) {
  std::string out = fmt::format("{} #{} ", wall_text(e.wall_ns), e.number);
  switch (e.kind) {
    case EventKind::transition:
      out += fmt::format("{} to {}, {}", to_string(e.from), to_string(e.to), to_string(e.reason));
      break;
    case EventKind::forced: out += fmt::format("forced from {} to {}", to_string(e.from), to_string(e.to)); break;
    case EventKind::mode_change:
    case EventKind::mode_expired: out += fmt::format("{} {} to {}", to_string(e.kind), e.mode_from, e.mode_to); break;
    case EventKind::settings_replaced:
    case EventKind::ramp_ended: out += to_string(e.kind); break;
  }
  out += fmt::format(", pid {}", e.pid);
  if (!e.who.empty()) out += ", by " + escaped(e.who);
  if (!e.why.empty()) out += ": " + escaped(e.why);
  return out;
}

/// The newest, oldest first.
void add_events(const std::vector<SegmentEvent>& events, std::vector<Row>& rows) {
  constexpr std::size_t kShown = 10;  // what leaves the rest of the breaker on the screen
  const std::size_t first = events.size() - std::min(events.size(), kShown);
  if (events.empty()) rows.push_back({"events", "none in the journal"});
  for (std::size_t i = first; i < events.size(); ++i)
    rows.push_back({i == first ? "events" : "", event_text(events[i])});
}

[[nodiscard]] std::string process_text(const ProcessInfo& process) {
  return fmt::format("{}: pid {}{}, {}", process.number, process.pid,
                     process.foreign_pids ? " of a foreign pid namespace" : "", process.alive ? "alive" : "dead");
}

}  // namespace

std::string list_text(const std::vector<BreakerInfo>& breakers) {
  std::vector<Row> rows;
  rows.reserve(breakers.size() + 1);
  rows.push_back({"NAME", "STATE", "SINCE", "FAILURES/WINDOW", "SUCCESSES", "REJECTED", "COOLDOWN-LEFT", "PROBES"});
  for (const BreakerInfo& breaker : breakers)
    rows.push_back(list_row(breaker));
  return aligned(rows, 2);
}

std::string show_text(const SegmentReader& segment, const BreakerInfo& b, const std::vector<SegmentEvent>& events) {
  std::vector<Row> rows{{"breaker", escaped(b.name)},
                        {"segment", fmt::format("{}, place {}", segment.name(), b.place)}};
  if (b.error) {
    rows.push_back({"state", std::string{to_string(b.error.code)}});
    add_events(events, rows);
    return aligned(rows, 2);
  }
  rows.push_back({"state", state_text(b)});
  rows.push_back({"counts", counts_text(b)});
  rows.push_back({"window", window_text(b)});
  rows.push_back({"", "oldest first; x failure, . success"});
  rows.push_back({"ages", window_ages_text(b)});
  rows.push_back({"rejected", fmt::format("{} in this outage", b.rejected)});
  rows.push_back({"probes", probes_text(b)});
  rows.push_back({"settings", settings_text(b.settings)});
  rows.push_back({"", more_settings_text(b.settings)});
  rows.push_back({"memory", fmt::format("{} bytes, {} ring slots", b.memory_bytes, b.ring_capacity)});
  rows.push_back({"generation", fmt::format("{}", b.generation)});
  add_events(events, rows);
  return aligned(rows, 2);
}

std::string info_text(const SegmentInfo& i) {
  const auto alive =
      std::count_if(i.processes.begin(), i.processes.end(), [](const ProcessInfo& p) { return p.alive; });
  const core::Geometry& g = i.geometry;
  std::vector<Row> rows{
      {"segment", i.name},
      {"file",
       fmt::format("{}, {} bytes, mode {:04o}, uid {}, gid {}", i.path, g.total_bytes, i.mode, i.owner, i.group)},
      {"layout", fmt::format("{}.{}", i.layout_major, i.layout_minor)},
      {"creation id", i.creation_id},
      {"created", fmt::format("{} by pid {}", wall_text(i.created_wall_ns), i.creator_pid)},
      {"breakers", fmt::format("{} registered, {} of {} places used", i.breakers, i.places_used, g.breakers)},
      {"ring slots", fmt::format("{} of {} given out", i.ring_slots_used, g.ring_slots)},
      {"records", fmt::format("{} free, {} current, {} held by live processes, {} left behind by the dead",
                              i.records.free, i.records.current, i.records.held, i.records.left_behind)},
      {"journal", fmt::format("{} entries, {} written since the creation", g.journal_entries, i.journal_next)},
      {"processes", fmt::format("{} of {} entries in use, {} alive", i.processes.size(), g.participants, alive)}};
  for (const ProcessInfo& process : i.processes)
    rows.push_back({"", process_text(process)});
  if (i.bad_index_entries != 0)
    rows.push_back({"corrupt", counted(i.bad_index_entries, "index entry", "index entries")});
  return aligned(rows, 2);
}

}  // namespace shmcb::inspect
