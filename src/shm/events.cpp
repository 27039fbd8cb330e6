// SPDX-License-Identifier: BSD-3-Clause
#include "events.hpp"

#include <time.h>

#include <algorithm>
#include <array>
#include <string>

#include "shmcb/core/name_index.hpp"

namespace shmcb::shm {

namespace {

using Env = core::StdEnv;

/// The name at a place, if it is still that incarnation's.
[[nodiscard]] std::string name_at(const Events::View& view, std::uint32_t place, std::uint32_t incarnation) {
  const auto* cells = view.breaker(place);
  if (cells == nullptr) return {};
  // relaxed: names are written before the place is published, long before an entry tells of it; the second look finds
  // out whether the place was given away meanwhile, on machines that reorder loads with the same words' next use only.
  // (In a private copy it finds out nothing: who makes one sees to it that the name is the incarnation's.)
  const auto holds = [&] {
    return static_cast<std::uint32_t>(Env::load(cells->incarnation, Env::relaxed)) == incarnation;
  };
  std::array<char, core::kMaxNameBytes> buffer{};
  if (!holds()) return {};
  const std::string name{core::name_of<Env>(*cells, buffer.data())};
  return holds() ? name : std::string{};
}

}  // namespace

Events::Events(const View& view, Instant epoch) noexcept : view_(&view), epoch_(epoch), now_(SystemClock{}.now()) {
  timespec wall{};
  ::clock_gettime(CLOCK_REALTIME, &wall);
  wall_now_ns_ = std::int64_t{wall.tv_sec} * 1'000'000'000 + wall.tv_nsec;
}

SegmentEvent Events::of(const core::JournalEntry& entry) const {
  const auto instant = [this](rules::Tick tick) { return epoch_ + Millis{tick}; };
  constexpr std::int64_t kMostUs = std::int64_t{1} << 52U;  // 142 years: in nanoseconds it does not overflow
  SegmentEvent event{.kind = entry.kind,
                     .breaker = name_at(*view_, entry.breaker, entry.incarnation),
                     .place = entry.breaker,
                     .number = entry.number,
                     .from = entry.from,
                     .to = entry.to,
                     .reason = entry.reason,
                     .mode_from = entry.mode_from,
                     .mode_to = entry.mode_to,
                     .generation = core::ControlWord<Env::Widths>{entry.change}.generation(),
                     .occurred_at = instant(entry.at),
                     .pid = entry.pid,
                     .who = std::string{core::NoteText::text(entry.note.who)},
                     .why = std::string{core::NoteText::text(entry.note.why)}};
  const std::int64_t age_us = std::clamp((now_ - event.occurred_at).count(), -kMostUs, kMostUs);
  event.wall_ns = wall_now_ns_ - age_us * 1'000;
  if (entry.until) event.until = instant(*entry.until);
  return event;
}

}  // namespace shmcb::shm
