// SPDX-License-Identifier: BSD-3-Clause
// A clock for tests that stands still until it is set, the same for a process and the children it forks.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "shmcb/time.hpp"
#include "support/processes.hpp"

namespace shmcb::test {

class SharedClock {
 public:
  static constexpr Instant kStart{std::chrono::hours{1}};

  // Relaxed throughout: whoever needs an order between an instant and something else makes it by other means.
  [[nodiscard]] Instant now() const noexcept { return kStart + Micros{area()->load(std::memory_order_relaxed)}; }
  void advance(Micros by) const noexcept { area()->fetch_add(by.count(), std::memory_order_relaxed); }

 private:
  using Word = std::atomic<std::int64_t>;
  [[nodiscard]] Word* area() const noexcept { return &**since_start_us_; }
  std::shared_ptr<SharedArea<Word>> since_start_us_ = std::make_shared<SharedArea<Word>>();
};

static_assert(Clock<SharedClock>);

}  // namespace shmcb::test
