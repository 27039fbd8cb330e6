// SPDX-License-Identifier: BSD-3-Clause
// The table of attached processes, as one process sees it: takes a number, proves by an OFD lock that it is alive, and
// tells who is dead. A forked child lets go of its parent's descriptor at once and takes a number of its own when it
// first needs one.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "segment_files.hpp"
#include "shmcb/core/layout.hpp"
#include "shmcb/core/presence.hpp"

namespace shmcb::shm {

class Participants final : public core::Presence::Kernel {
 public:
  using View = core::SegmentView<core::StdEnv>;

  /// Takes over the descriptor of an opened segment.
  Participants(Fd fd, FileIdentity identity, std::string path, const View& view);
  ~Participants() override;
  Participants(const Participants&) = delete;
  Participants& operator=(const Participants&) = delete;

  /// Whether the name led to the segment after it had been opened: if not, whoever is attaching looks again.
  [[nodiscard]] bool name_led_here() const noexcept { return led_here_; }

  bool renew(core::Presence& presence) noexcept override;
  bool is_dead(const core::Presence& presence, std::uint16_t number, std::uint32_t incarnation) noexcept override;
  bool is_unheld(const core::Presence& presence, std::uint16_t number) noexcept override;
  void wake(const void* word) noexcept override;

  /// Leaves in order, if `presence` is this process's own: gives its spare records back and its number up.
  void leave(core::Presence& presence) noexcept;

  /// In a forked child: a descriptor that shares its open file with the parent's would keep the parent's locks alive.
  void reopen_in_child() noexcept;

 private:
  [[nodiscard]] bool acquire(core::Presence& presence) noexcept;
  [[nodiscard]] bool take_entry(core::Presence& presence, std::uint16_t number) noexcept;
  [[nodiscard]] bool take_number_beyond_table(core::Presence& presence) noexcept;
  [[nodiscard]] bool lock(std::uint16_t number) noexcept;
  void unlock(std::uint16_t number) noexcept;
  [[nodiscard]] bool own_descriptor() noexcept;
  [[nodiscard]] bool is_ours(int fd) noexcept;
  [[nodiscard]] int checked(int opened) const noexcept;
  [[nodiscard]] int open_by_name() const noexcept;
  [[nodiscard]] int open_through(int ours) const noexcept;
  [[nodiscard]] bool reopen() noexcept;

  std::atomic<int> fd_;
  std::atomic<std::uint64_t> fd_process_;  ///< the process that opened the descriptor
  std::atomic<std::uint64_t> renewing_{
      0};                              ///< the process in which a thread is renewing; a parent's is nobody's business
  std::atomic<bool> just_seen_{true};  ///< that the descriptor leads to the segment, a moment ago: no need to ask again
  bool led_here_ = false;
  FileIdentity identity_;
  std::string path_;
  const View* view_;
};

/// What the entry of a number says, read once; for tools and for `is_dead`.
struct ProcessSeen {
  std::uint32_t pid = 0;
  std::uint32_t pid_namespace = 0;
  std::uint64_t start_time = 0;
};

/// Whether a process of this pid namespace may still be the one that was seen. In doubt yes. A zombie is not.
[[nodiscard]] bool may_live(const ProcessSeen& seen) noexcept;

/// This process, as entries describe it.
[[nodiscard]] ProcessSeen describe_self() noexcept;

/// Whether anyone holds the lock of a number, seen through a descriptor that does not hold it itself.
[[nodiscard]] bool is_locked(int fd, std::uint16_t number) noexcept;

}  // namespace shmcb::shm
