// SPDX-License-Identifier: BSD-3-Clause
// A place that is given to one name after the other, without end: for the child beside whoever reads it meanwhile.
#pragma once

#include <stdexcept>
#include <string>

#include "shmcb/breaker_group.hpp"

namespace shmcb::test {

/// Each life has the same few events. Of each `who` is the name, and the time is its life's alone. Ends when killed.
[[noreturn]] inline void recycle_one_place(const Segment& segment) {
  constexpr Millis kIdle{10};
  FakeClock clock{segment.epoch()};
  const auto group = BreakerGroup<FakeClock>::open(segment, {.name = "g", .limit = 1, .idle_after = kIdle}, clock);
  if (!group) throw std::runtime_error(group.error().message);
  for (std::uint64_t life = 0;; ++life) {
    const std::string name = std::to_string(life);
    auto breaker = group->breaker(name);
    if (!breaker && breaker.error().code == Errc::group_full) continue;  // whoever looked at it has taken it back
    if (!breaker) throw std::runtime_error(breaker.error().message);
    for (const Mode mode : {Mode::observe, Mode::forced_closed, Mode::automatic})
      (void)breaker->set_mode({.mode = mode, .note = {.who = "g:" + name}});
    clock.advance(kIdle);
  }
}

}  // namespace shmcb::test
