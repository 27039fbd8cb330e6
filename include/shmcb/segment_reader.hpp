// SPDX-License-Identifier: BSD-3-Clause
// A segment as an inspector reads it: opened for reading only, by `pread` and never mapped, so that a file cut short
// under it is a short read and not a signal. Writes nothing, takes no lock, does not show in the table of attached
// processes. Whatever bytes it meets, it answers values or errors.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shmcb/config.hpp"
#include "shmcb/core/layout.hpp"
#include "shmcb/error.hpp"
#include "shmcb/export.hpp"
#include "shmcb/segment.hpp"
#include "shmcb/segment_event.hpp"
#include "shmcb/time.hpp"
#include "shmcb/types.hpp"

namespace shmcb {

/// An entry of the table of attached processes.
struct ProcessInfo {
  std::uint16_t number = 0;
  std::uint32_t pid = 0;      ///< in the pid namespace of that process
  bool foreign_pids = false;  ///< that is another pid namespace than the reader's: `pid` means nothing here
  bool alive = false;         ///< it holds its lock, or its pid still runs
};

/// Records of the pool. One that is being swapped right now may count as left behind.
struct RecordCounts {
  std::uint32_t free = 0;
  std::uint32_t current = 0;      ///< a registered breaker's
  std::uint32_t held = 0;         ///< by a live process: its spares, or one that it is filling
  std::uint32_t left_behind = 0;  ///< by the dead; taken back when one is needed

  friend bool operator==(const RecordCounts&, const RecordCounts&) = default;
};

struct SegmentInfo {
  std::string name{};
  std::string path{};
  std::uint16_t layout_major = 0;
  std::uint16_t layout_minor = 0;
  std::string creation_id{};         ///< 32 hexadecimal digits
  std::int64_t created_wall_ns = 0;  ///< wall clock of the creation, in nanoseconds since 1970
  std::uint32_t creator_pid = 0;
  Instant epoch{};  ///< time 0 of the segment on CLOCK_MONOTONIC
  core::Geometry geometry{};
  std::uint32_t mode = 0;  ///< permission bits
  std::uint32_t owner = 0;
  std::uint32_t group = 0;
  std::uint32_t breakers = 0;  ///< registered
  std::uint32_t places_used =
      0;  ///< of `geometry.breakers`: registered, being registered, or left behind by who died meanwhile
  std::uint64_t ring_slots_used = 0;
  std::uint64_t journal_next = 0;       ///< how many entries the journal has been given since the creation
  std::uint32_t bad_index_entries = 0;  ///< that name no possible breaker: not 0 is corruption
  RecordCounts records{};
  std::vector<ProcessInfo> processes{};  ///< entries in use. Processes beyond the table's size are attached without one
};

/// A probe that is out.
struct ProbeInfo {
  std::uint64_t id = 0;
  std::uint16_t owner = 0;             ///< number of the attached process that was admitted
  std::optional<std::uint32_t> pid{};  ///< of the process that has this number now; none: no entry in the table
  bool foreign_pids = false;           ///< as in ProcessInfo
};

/// One outcome in the window.
struct WindowMark {
  bool failure = false;
  bool slow = false;
  Micros age{0};
};

/// What is known about one breaker. Where `error` is set, only what stands before `state` means anything.
struct BreakerInfo {
  Error error{};            ///< corrupt; or busy: it changed whenever it was looked at
  std::uint32_t place = 0;  ///< its index in the segment
  std::string name{};       ///< as it stands in the segment: possibly any bytes where `error` is set

  CircuitState state = CircuitState::closed;
  Mode mode = Mode::automatic;
  std::optional<Millis> mode_left{};  ///< until `automatic` returns; none: the mode has no end
  std::string mode_who{};             ///< who set the mode, why: possibly any bytes
  std::string mode_why{};
  bool ramping = false;  ///< Closed, and admitting only a growing share of the calls
  std::uint64_t generation = 0;
  std::optional<Micros> opened_age{};  ///< since it last opened or was forced; none: never
  std::optional<Micros> state_age{};   ///< since the present state began
  std::optional<Micros> lease_age{};   ///< HalfOpen: of the newest lease, so it has been HalfOpen at least as long
  std::uint64_t successes = 0;         ///< as in StateRecord, like the two below
  std::uint64_t failures = 0;
  std::uint64_t rejected = 0;
  std::uint64_t slow = 0;
  Counters counters{};
  Millis cooldown_left{0};  ///< Open: until probes are tried; 0 elsewhere
  std::vector<ProbeInfo> probes{};
  Settings settings{};
  std::uint32_t ring_capacity = 0;  ///< slots
  std::uint64_t memory_bytes = 0;   ///< its words, its record and its ring
  std::vector<WindowMark>
      window{};  ///< what `successes` and `failures` count in Closed and Open, oldest first. `breaker` only
};

/// A segment opened for reading. Copies share the descriptor. Safe from any thread; every call reads anew.
class SHMCB_EXPORT SegmentReader {
 public:
  /// `mode` of the options is not asked: a reader shows a file that too many may write to, and is not harmed by it.
  [[nodiscard]] static Result<SegmentReader> open(const SegmentOptions& options = {}) noexcept;

  /// Errors here and below: truncated, system.
  [[nodiscard]] Result<SegmentInfo> info() const noexcept;

  /// All registered breakers by place. Each is consistent in itself, as of a moment during the call; not all as of one
  /// moment.
  [[nodiscard]] Result<std::vector<BreakerInfo>> breakers(Instant now = SystemClock{}.now()) const noexcept;

  /// One breaker with its window; breaker_not_found. One that cannot be read is not an error of the call: see
  /// BreakerInfo::error.
  [[nodiscard]] Result<BreakerInfo> breaker(std::string_view name, Instant now = SystemClock{}.now()) const noexcept;

  /// What the journal holds, oldest first, for each breaker in the order of its events; of one breaker only, if `place`
  /// names it. Entries that are just being written, or whose writer was killed, are not among them. An event's name is
  /// empty also where its place was given away while it was read.
  [[nodiscard]] Result<std::vector<SegmentEvent>> journal(
      std::optional<std::uint32_t> place = std::nullopt) const noexcept;

  [[nodiscard]] const std::string& name() const noexcept;
  /// 32 hexadecimal digits that no other segment has.
  [[nodiscard]] const std::string& creation_id() const noexcept;

 private:
  struct State;
  explicit SegmentReader(std::shared_ptr<const State> state) noexcept : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

}  // namespace shmcb
