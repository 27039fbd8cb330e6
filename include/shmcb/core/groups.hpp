// SPDX-License-Identifier: BSD-3-Clause
// The table of groups: how many places each may have, and how many it has. A place that a group has got stays its own,
// so the number only grows, and is exact: it is part of the swap that admits a place.
#pragma once

#include <cstdint>

#include "shmcb/core/layout.hpp"
#include "shmcb/core/ring.hpp"

namespace shmcb::core {

template <class Env>
class Groups {
 public:
  explicit Groups(const SegmentView<Env>& view) noexcept : view_(&view) {}

  /// The entry of the group `id` (not 0), taken if it has none. registry_full: all entries are other groups'.
  [[nodiscard]] Errc open(Bits id, std::uint32_t& entry) const noexcept {
    for (std::uint32_t n = 0; n < kMaxGroups; ++n) {
      entry = static_cast<std::uint32_t>((id + n) % kMaxGroups);
      auto& there = view_->group(entry).id;
      // relaxed here and below: the word stands for itself, and is written once
      if (Env::load(there, Env::relaxed) == 0) Env::cas(there, 0, id, Env::relaxed);
      if (Env::load(there, Env::relaxed) == id) return Errc::ok;
    }
    return Errc::registry_full;
  }

  /// The numbers in force; zero: none were written yet. relaxed here and below: the word stands for itself
  [[nodiscard]] GroupRules rules(std::uint32_t entry) const noexcept {
    return {Env::load(view_->group(entry).rules, Env::relaxed)};
  }
  /// Writes the numbers of a group that has none; those of one that has others only if it `replaces`. config_mismatch:
  /// `there` are others, and stay. busy: others are written all the time.
  [[nodiscard]] Errc agree(std::uint32_t entry, GroupRules brought, bool replaces, GroupRules& there) const noexcept {
    for (Work work; work.charge();) {
      there = rules(entry);
      if (there.bits == brought.bits) return Errc::ok;
      if (there.bits != 0 && !replaces) return Errc::config_mismatch;
      if (Env::cas(view_->group(entry).rules, there.bits, brought.bits, Env::relaxed)) return Errc::ok;
    }
    return Errc::busy;
  }

  /// How many places a group has; for display and tests.
  [[nodiscard]] std::uint64_t members(std::uint32_t entry) const noexcept {
    return ArenaWord{Env::load(view_->group(entry).members, Env::relaxed)}.units();  // relaxed: a number of a moment
  }

  /// ok, or group_full, as things stand. Whoever was admitted last has its place.
  [[nodiscard]] Errc has_room(std::uint32_t entry) const noexcept {
    const ArenaWord seen{Env::load(view_->group(entry).members, Env::acquire)};  // sync: group-members
    if (const Errc error = finish(entry, seen); error != Errc::ok) return error;
    return seen.units() < rules(entry).limit() ? Errc::ok : Errc::group_full;
  }

  /// Makes a place of ours the group's, for good, unless it has as many as it may.
  [[nodiscard]] Errc admit(std::uint32_t entry, std::uint32_t place) const noexcept {
    auto& members = view_->group(entry).members;
    for (Work work; work.charge();) {
      const ArenaWord seen{Env::load(members, Env::acquire)};  // sync: group-members
      if (const Errc error = finish(entry, seen); error != Errc::ok) return error;
      if (seen.units() >= rules(entry).limit()) return Errc::group_full;
      const ArenaWord more = ArenaWord::make(place, seen.units() + 1);
      // sync: group-members (release): the place is ours
      if (Env::cas(members, seen.bits, more.bits, Env::acq_rel)) return finish(entry, more);
    }
    return Errc::corrupt;
  }

  /// Whoever died between being admitted and saying so has been admitted.
  [[nodiscard]] Errc finish_all() const noexcept {
    for (std::uint32_t entry = 0; entry < kMaxGroups; ++entry) {
      const ArenaWord seen{Env::load(view_->group(entry).members, Env::acquire)};  // sync: group-members
      if (const Errc error = finish(entry, seen); error != Errc::ok) return error;
    }
    return Errc::ok;
  }

 private:
  /// Writes the group into the place that it got last, unless that is done: nobody ever writes another one there.
  [[nodiscard]] Errc finish(std::uint32_t entry, ArenaWord seen) const noexcept {
    if (!seen.has_taker()) return Errc::ok;
    auto* cells = view_->breaker(seen.taker());
    if (cells == nullptr) return Errc::corrupt;
    if (Env::load(cells->group, Env::acquire) == 0) {                                            // sync: group-members
      Env::cas(cells->group, 0, Env::load(view_->group(entry).id, Env::relaxed), Env::acq_rel);  // sync: group-members
    }
    return Errc::ok;
  }

  const SegmentView<Env>* view_;
};

}  // namespace shmcb::core
