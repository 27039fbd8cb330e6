// SPDX-License-Identifier: BSD-3-Clause
// What shmcb-inspect prints, as text for people and as JSON for programs. Pure: values in, a string out. The JSON of
// one schema always has all its fields; a field that says nothing at the moment is null. Durations are whole
// nanoseconds, with names in _ns; instants are ages, because a monotonic clock's reading means nothing elsewhere.
#pragma once

#include <string>
#include <vector>

#include "shmcb/segment_reader.hpp"

namespace shmcb::inspect {

/// A line of headings, then one breaker a line.
[[nodiscard]] std::string list_text(const std::vector<BreakerInfo>& breakers);
/// One breaker on one screen; `events` are its own, oldest first.
[[nodiscard]] std::string show_text(const SegmentReader& segment, const BreakerInfo& breaker,
                                    const std::vector<SegmentEvent>& events);
/// The segment itself.
[[nodiscard]] std::string info_text(const SegmentInfo& info);

/// Schemas shmcb-inspect/list/1, shmcb-inspect/show/1, shmcb-inspect/info/1.
[[nodiscard]] std::string list_json(const SegmentReader& segment, const std::vector<BreakerInfo>& breakers);
[[nodiscard]] std::string show_json(const SegmentReader& segment, const BreakerInfo& breaker,
                                    const std::vector<SegmentEvent>& events);
[[nodiscard]] std::string info_json(const SegmentInfo& info);

}  // namespace shmcb::inspect
