// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "render.hpp"
#include "text.hpp"

namespace shmcb::inspect {

namespace {

/// How long the state has lasted, as far as it is known.
[[nodiscard]] std::string since(const BreakerInfo& b) {
  return b.state_age ? duration_text(*b.state_age) : "-";
}

[[nodiscard]] Row list_row(const BreakerInfo& b) {
  if (b.error) return {escaped(b.name), std::string{to_string(b.error.code)}, "-", "-", "-", "-", "-", "-"};
  const bool open = b.state == CircuitState::open;
  return {escaped(b.name),
          std::string{to_string(b.state)} + (b.mode == Mode::automatic ? "" : fmt::format(" ({})", to_string(b.mode))),
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
      return fmt::format("{} for {}; {} of the cooldown left", state, since(b), duration_text(b.cooldown_left));
    case CircuitState::half_open:
      return fmt::format("{} for {}; newest lease {} old", state, since(b),
                         duration_text(b.lease_age.value_or(Micros{0})));
    case CircuitState::closed: break;
  }
  const std::string closed = fmt::format("{} for {}{}", state, since(b), b.ramping ? ", ramping up" : "");
  return b.opened_age ? fmt::format("{}; last opened or forced {} ago", closed, duration_text(*b.opened_age))
                      : closed + "; never opened or forced";
}

[[nodiscard]] std::string mode_text(const BreakerInfo& b) {
  std::string out{to_string(b.mode)};
  if (b.mode == Mode::automatic) return out;
  out += b.mode_left ? fmt::format(", {} left", duration_text(*b.mode_left)) : ", until it is set to another";
  if (!b.mode_who.empty()) out += "; by " + escaped(b.mode_who);
  if (!b.mode_why.empty()) out += "; " + escaped(b.mode_why);
  return out;
}

[[nodiscard]] std::string counts_text(const BreakerInfo& b) {
  if (b.state == CircuitState::half_open) {
    return fmt::format("{} of {}", counted(b.successes, "successful probe", "successful probes"),
                       b.settings.success_threshold);
  }
  return fmt::format("{}, {}{}, of the last {} within {}", counted(b.failures, "failure", "failures"),
                     b.settings.lean ? "at least " : "", counted(b.successes, "success", "successes"),
                     b.settings.window, duration_text(Millis{b.settings.within_ms}));
}

/// The newest marks, oldest first: x is a failure, a dot a success.
[[nodiscard]] std::string window_text(const BreakerInfo& b) {
  constexpr std::size_t kMarks = 64;  // what fits beside the label
  if (b.window.empty()) return "empty";
  const std::size_t shown = std::min(kMarks, b.window.size());
  std::string out;
  for (std::size_t i = b.window.size() - shown; i < b.window.size(); ++i)
    out += b.window[i].failure ? 'x' : b.window[i].slow ? 's' : '.';
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

/// What opens it, how long it stays open, how it comes back: a line each, and only what is set.
[[nodiscard]] std::vector<std::string> settings_lines(const Settings& s) {
  std::string opens = s.failures != 0 ? fmt::format("failures {}, ", s.failures) : "";
  opens += fmt::format("window {}, within {}ms", s.window, s.within_ms);
  if (s.rate_percent != 0)
    opens += fmt::format(", failure rate {}% of {} or more", s.rate_percent, s.rate_minimum_calls);
  if (s.consecutive_failures != 0) opens += fmt::format(", {} in a row", s.consecutive_failures);
  if (s.slow_percent != 0) {
    opens += fmt::format(", slower than {}ms {}% of {} or more{}", s.slower_than_ms, s.slow_percent,
                         s.slow_minimum_calls, s.reopen_on_slow_probe ? ", slow probes reopen" : "");
  }
  std::string stays = fmt::format("cooldown {}ms", s.cooldown_ms);
  if (s.cooldown_multiplier > 1) {
    stays += fmt::format(", times {} up to {}ms, forgotten after {}ms", s.cooldown_multiplier, s.cooldown_maximum_ms,
                         s.forget_after_ms);
  }
  if (s.cooldown_jitter != 0) stays += fmt::format(", jitter {}%", s.cooldown_jitter);
  std::string returns = fmt::format("success threshold {}, probe limit {}, probe timeout {}ms", s.success_threshold,
                                    s.probe_limit, s.probe_timeout_ms);
  if (s.reclaim_dead_probes) returns += ", probes of the dead reclaimed";
  if (s.ramp_ms != 0) returns += fmt::format(", ramp {}ms from {}%", s.ramp_ms, s.ramp_start_percent);
  return {opens, stays, returns, fmt::format("{}revision {}", s.lean ? "lean accounting, " : "", s.revision)};
}

[[nodiscard]] std::string lifetime_text(const Counters& c) {
  return fmt::format("{} completed: {} ok, {} failed, {} ignored, {} stale; {} rejected, {} in ramps, {} abandoned",
                     c.completed, c.successes, c.failures, c.ignored, c.stale, c.rejected, c.ramp_rejected,
                     c.abandoned);
}

[[nodiscard]] std::string event_text(const SegmentEvent& e) {
  std::string out = fmt::format("{} #{} ", wall_text(e.wall_ns), e.number);
  switch (e.kind) {
    case EventKind::transition:
      out += fmt::format("{} to {}, {}", to_string(e.from), to_string(e.to), to_string(e.reason));
      break;
    case EventKind::forced: out += fmt::format("forced from {} to {}", to_string(e.from), to_string(e.to)); break;
    case EventKind::mode_change:
    case EventKind::mode_expired:
      out += fmt::format("{} {} to {}", to_string(e.kind), to_string(e.mode_from), to_string(e.mode_to));
      break;
    case EventKind::none:
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
  rows.push_back({"mode", mode_text(b)});
  rows.push_back({"counts", counts_text(b)});
  rows.push_back({"window", window_text(b)});
  rows.push_back({"", "oldest first; x failure, s slow, . success"});
  rows.push_back({"ages", window_ages_text(b)});
  rows.push_back({"rejected", fmt::format("{} in this outage", b.rejected)});
  rows.push_back({"probes", probes_text(b)});
  std::string_view label = "settings";
  for (std::string& line : settings_lines(b.settings)) {
    rows.push_back({std::string{label}, std::move(line)});
    label = "";
  }
  rows.push_back({"lifetime", lifetime_text(b.counters)});
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
