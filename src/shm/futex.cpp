// SPDX-License-Identifier: BSD-3-Clause
#include "futex.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <limits>

namespace shmcb::shm {

namespace {

[[nodiscard]] const std::uint32_t* low_half(const void* word) noexcept {
  return static_cast<const std::uint32_t*>(word) + (std::endian::native == std::endian::big ? 1 : 0);
}

}  // namespace

void sleep_on(const void* word, std::uint32_t expected, Micros at_most) noexcept {
  const std::int64_t us = std::max<std::int64_t>(at_most.count(), 0);
  timespec timeout{};
  timeout.tv_sec = us / 1'000'000;
  timeout.tv_nsec = us % 1'000'000 * 1'000;
  // Not private: the word lies in memory that processes share.
  (void)::syscall(SYS_futex, low_half(word), FUTEX_WAIT, expected, &timeout, nullptr, 0);
}

void wake_sleepers(const void* word) noexcept {
  (void)::syscall(SYS_futex, low_half(word), FUTEX_WAKE, std::numeric_limits<int>::max(), nullptr, nullptr, 0);
}

}  // namespace shmcb::shm
