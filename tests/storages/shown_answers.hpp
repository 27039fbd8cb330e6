// SPDX-License-Identifier: BSD-3-Clause
// For tests that ask two storages the same at random: what is drawn, and answers as text.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <random>
#include <string>
#include <string_view>

#include "shmcb/types.hpp"

namespace shmcb::test {

class Chance {
 public:
  explicit Chance(std::uint64_t seed) : engine_(seed) {}

  [[nodiscard]] std::uint32_t from_to(std::uint32_t least, std::uint32_t most) {
    return std::uniform_int_distribution<std::uint32_t>{least, most}(engine_);
  }
  [[nodiscard]] bool percent(std::uint32_t likely) { return from_to(0, 99) < likely; }
  template <class T, std::size_t kSize>
  [[nodiscard]] T one_of(const std::array<T, kSize>& values) {
    return values[from_to(0, static_cast<std::uint32_t>(kSize) - 1)];
  }
  [[nodiscard]] Millis millis(std::initializer_list<std::int64_t> values) {
    return Millis{values.begin()[from_to(0, static_cast<std::uint32_t>(values.size()) - 1)]};
  }

 private:
  std::mt19937_64 engine_;
};

// What an answer says, as text.

[[nodiscard]] inline std::string shown(Instant instant) {
  return std::to_string(instant.time_since_epoch().count());
}
[[nodiscard]] inline std::string shown(const StateRecord& r) {
  return std::string{to_string(r.state)} + " " + (r.opened_at ? shown(*r.opened_at) : "-") + "/" +
         std::to_string(r.successes) + "/" + std::to_string(r.failures) + "/" + std::to_string(r.rejected) + "/" +
         std::to_string(r.slow) + " " + std::string{to_string(r.mode)} + (r.ramping ? " ramping" : "");
}
[[nodiscard]] inline std::string shown(const std::optional<CircuitTransition>& t) {
  if (!t) return " no transition";
  return " " + std::string{to_string(t->from)} + ">" + std::string{to_string(t->to)} + " " +
         std::string{to_string(t->reason)} + " " + shown(t->occurred_at) + " " + shown(t->state);
}
[[nodiscard]] inline std::string shown(const AdmitResult& a) {
  return std::string{to_string(a.error)} + " " + std::string{to_string(a.admission)} + " " +
         std::string{to_string(a.state)} + " " + std::to_string(a.retry_after.count()) + "/" + shown(a.retry_at) +
         shown(a.transition);
}
[[nodiscard]] inline std::string shown(const RecordResult& r) {
  return std::string{to_string(r.error)} + " " + std::string{to_string(r.status)} + shown(r.transition);
}
[[nodiscard]] inline std::string shown(const ForceResult& f) {
  return std::string{to_string(f.error)} + shown(f.transition);
}
[[nodiscard]] inline std::string shown(const ModeResult& m) {
  return std::string{to_string(m.error)} + " " + std::string{to_string(m.previous)};
}
[[nodiscard]] inline std::string shown(const PeekResult& p) {
  return std::string{to_string(p.error)} + " " + std::string{to_string(p.state)} + " " +
         std::string{to_string(p.mode)} + " " + std::to_string(p.cooldown_left.count());
}
[[nodiscard]] inline std::string shown(const CountersResult& r) {
  const Counters& c = r.counters;
  std::string out{to_string(r.error)};
  for (const std::uint64_t value : {c.completed, c.successes, c.failures, c.ignored, c.stale, c.rejected,
                                    c.ramp_rejected, c.abandoned, c.probes, c.probe_verdicts})
    out += " " + std::to_string(value);
  for (const std::uint64_t value : c.transitions)
    out += " " + std::to_string(value);
  for (const Millis time : {c.in_closed, c.in_open, c.in_half_open})
    out += " " + std::to_string(time.count()) + "ms";
  return out;
}

}  // namespace shmcb::test
