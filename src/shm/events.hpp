// SPDX-License-Identifier: BSD-3-Clause
// Turns entries of the journal into events.
#pragma once

#include "shmcb/core/journal.hpp"
#include "shmcb/core/layout.hpp"
#include "shmcb/segment_event.hpp"
#include "shmcb/time.hpp"

namespace shmcb::shm {

/// Works out names and times. The view may be a private copy of the segment, in which a
/// place's name, where it has one, belongs to its incarnation.
class Events {
 public:
  using View = core::SegmentView<core::StdEnv>;

  /// Reads both clocks: for events that are read at about the same time.
  Events(const View& view, Instant epoch) noexcept;

  [[nodiscard]] SegmentEvent of(const core::JournalEntry& entry) const;

 private:
  const View* view_;
  Instant epoch_;
  Instant now_;
  std::int64_t wall_now_ns_;
};

}  // namespace shmcb::shm
