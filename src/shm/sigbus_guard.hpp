// SPDX-License-Identifier: BSD-3-Clause
// An opt-in handler of SIGBUS: where somebody has cut the file of a mapped segment short, an access beyond its new end
// goes on, on private memory in which every word is one that no process writes, so that operations answer an error.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace shmcb::shm {

/// What stands in every word of a segment that was lost. As a control word: a breaker that is *gone*, which no admit
/// takes for a closed one; as a link of the index: a place that no segment has, so that no name is found and none
/// registered; as hint and slot: laps that never fit together.
inline constexpr std::uint64_t kLostWord = 0xF800'0000'FFFF'FFFF;

/// A mapping that the handler knows.
struct GuardedMapping {
  std::atomic<std::uintptr_t> begin{0};  ///< 0: free for the next one
  std::atomic<std::size_t> bytes{0};
  std::atomic<bool> lost{false};
  GuardedMapping* next = nullptr;  ///< in the list, for good
};

/// Keeps one mapping guarded. The first one of a process installs the handler, which stays.
class SigbusGuard {
 public:
  SigbusGuard() = default;  ///< guards nothing
  /// The mapping must outlive this. Throws std::system_error where the handler cannot be installed.
  SigbusGuard(void* begin, std::size_t bytes);
  SigbusGuard(SigbusGuard&& other) noexcept : mapping_(std::exchange(other.mapping_, nullptr)) {}
  SigbusGuard& operator=(SigbusGuard&&) = delete;
  SigbusGuard(const SigbusGuard&) = delete;
  SigbusGuard& operator=(const SigbusGuard&) = delete;
  ~SigbusGuard();

  /// Whether the handler has replaced the mapping.
  [[nodiscard]] bool lost() const noexcept {
    // relaxed: set before the mapping is replaced, so that whoever reads of the replacement has it in sight; for others
    // it is news at the next look
    return mapping_ != nullptr && mapping_->lost.load(std::memory_order_relaxed);
  }

 private:
  GuardedMapping* mapping_ = nullptr;
};

}  // namespace shmcb::shm
