// SPDX-License-Identifier: BSD-3-Clause
// One entry of a segment's journal as its readers see it: what became of which breaker, when, by whom and why. A plain
// value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "shmcb/time.hpp"
#include "shmcb/types.hpp"

namespace shmcb {

struct SegmentEvent {
  EventKind kind = EventKind::transition;
  std::string breaker{};     ///< its name; empty where the place has been given to another name since
  std::uint32_t place = 0;   ///< of the breaker in the segment
  std::uint64_t number = 0;  ///< counts the events of this breaker from 1 on, without gaps
  CircuitState from = CircuitState::closed;
  CircuitState to = CircuitState::closed;
  TransitionReason reason = TransitionReason::none;
  Mode mode_from = Mode::automatic;
  Mode mode_to = Mode::automatic;
  std::uint64_t generation = 0;    ///< that began with it, or in which it happened
  Instant occurred_at{};           ///< on the timeline of the storage that reported it, to the millisecond
  std::int64_t wall_ns = 0;        ///< the same as wall-clock time, worked out at reading; nanoseconds since 1970
  std::optional<Instant> until{};  ///< of a mode: when it ends by itself
  std::uint32_t pid = 0;           ///< of the process that committed it, in the pid namespace of that process
  std::string who{};               ///< forced states and modes; any bytes but NUL
  std::string why{};
};

}  // namespace shmcb
