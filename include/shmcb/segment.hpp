// SPDX-License-Identifier: BSD-3-Clause
// A segment: the piece of shared memory in which the breakers of a host live, as a file in /dev/shm. It outlives its
// processes; attaching never resets anything, and only `remove` removes it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shmcb/core/layout.hpp"
#include "shmcb/core/presence.hpp"
#include "shmcb/error.hpp"
#include "shmcb/export.hpp"
#include "shmcb/time.hpp"

namespace shmcb {

/// Which segment, and how it is made if it is not there yet. An aggregate with defaults.
struct SegmentOptions {
  std::optional<std::string> name{};  ///< [A-Za-z0-9._-], 1 to 200 bytes; none: $SHMCB_SEGMENT, else "default"
  std::uint32_t breakers = 1024;      ///< at creation: how many there is room for; 1 to 900,000
  std::uint64_t ring_slots = 0;  ///< at creation: slots for all windows; 0: 16 a breaker (windows up to 15). A window
                                 ///< of w takes the power of two above it, at least 16
  std::uint32_t participants = 256;      ///< at creation: attached processes with an entry in the table; 1 to 32,768
  std::uint32_t journal_entries = 4096;  ///< at creation: entries of the journal, the newest transitions of all
                                         ///< breakers; a power of two from 16 to 1,048,576
  std::uint32_t mode = 0600;             ///< at creation: the exact mode; at attach: write bits beyond it are refused
  std::optional<std::uint32_t> group{};  ///< at creation: the group id of the file
  std::vector<std::uint32_t> trusted_owners{};  ///< at attach: owners accepted beside the effective user and root
  bool prefault = false;  ///< at attach: bring every page into this process, so that no later access faults
  /// At attach: the same, and have the pages stay (mlock). Where that is refused they are only brought in, and
  /// `Segment::lock_error` says why.
  bool lock_memory = false;
  /// At creation and at attach: ask for huge pages (MADV_HUGEPAGE). The mount of `directory` decides; what came of it
  /// is `Segment::memory().huge`. See docs/performance.md, "Memory".
  bool huge_pages = false;
  /// At attach: a file that somebody cuts short becomes an error (`truncated`) of every operation instead of the death
  /// of the process. Installs a handler of SIGBUS, once in the life of the process, which passes on to the handler that
  /// it found whatever has another cause. See README.md, "When not to use it".
  bool sigbus_guard = false;
  std::optional<Instant> epoch{};  ///< at creation: time 0 of the segment; default: now. For tests with a fake clock
  std::string directory = "/dev/shm";  ///< where the file lies; it should be a tmpfs
};

/// What became of the name a process attached by.
enum class SegmentStatus : std::uint8_t {
  current,   ///< the name still leads to this segment
  removed,   ///< the name is gone; this process and others attached before go on
  replaced,  ///< the name leads to another segment by now
  lost,  ///< with `sigbus_guard`: the file was cut short, every operation answers `truncated`; only a new attachment
         ///< to a new segment helps
};

/// Where the pages of this process's mapping of a segment are, in bytes.
struct SegmentMemory {
  std::uint64_t bytes = 0;    ///< mapped
  std::uint64_t present = 0;  ///< brought in: no access to them faults. Whole pages, so it may be a little more
  std::uint64_t locked = 0;   ///< cannot be taken away either
  std::uint64_t huge = 0;     ///< mapped as huge pages
};

/// An attached segment. Copies share the attachment; it ends with the last copy and the last storage made from it.
/// Safe from any thread. After `fork` parent and child both go on, each as itself.
class SHMCB_EXPORT Segment {
 public:
  /// Creates a segment. `segment_exists` if the name is taken.
  [[nodiscard]] static Result<Segment> create(const SegmentOptions& options) noexcept;
  /// Attaches to an existing segment; `segment_not_found` if there is none.
  [[nodiscard]] static Result<Segment> attach(const SegmentOptions& options) noexcept;
  /// Attaches, or creates what is not there. Of several processes at once one creates and all attach to the same.
  [[nodiscard]] static Result<Segment> open(const SegmentOptions& options = {}) noexcept;
  /// Removes the name. Processes that are attached keep working and can tell (`status`).
  [[nodiscard]] static Error remove(const SegmentOptions& options) noexcept;

  [[nodiscard]] const std::string& name() const noexcept;
  [[nodiscard]] const core::Geometry& geometry() const noexcept;
  /// Time 0 of the segment on CLOCK_MONOTONIC.
  [[nodiscard]] Instant epoch() const noexcept;
  /// Looks the name up again: one system call.
  [[nodiscard]] SegmentStatus status() const noexcept;
  /// Whether this process has an entry in the table of attached processes. Without one everything works, but it shares
  /// its number of a lane with others and does not show in the table.
  [[nodiscard]] bool has_entry() const noexcept;

  /// Whether the segment is `lost`: no system call.
  [[nodiscard]] bool lost() const noexcept;

  /// What became of `prefault`, `lock_memory` and `huge_pages`, asked of the kernel now (/proc/self/smaps: tens of
  /// microseconds and more). A forked child has none of them: its pages come in as it touches them, and nothing is
  /// locked; it may attach anew.
  [[nodiscard]] Result<SegmentMemory> memory() const noexcept;
  /// Why the memory could not be locked (memory_lock_limit, with the limit and what to do); none if it was, or was not
  /// to be.
  [[nodiscard]] const Error& lock_error() const noexcept;

  /// For the storages.
  [[nodiscard]] const core::SegmentView<core::StdEnv>& view() const noexcept;
  [[nodiscard]] core::Presence& presence() const noexcept;

 private:
  struct State;
  explicit Segment(std::shared_ptr<State> state) noexcept : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

/// `name`, else $SHMCB_SEGMENT, else "default": the same rule in every tool.
[[nodiscard]] SHMCB_EXPORT std::string segment_name_or_default(const std::optional<std::string>& name);

}  // namespace shmcb
