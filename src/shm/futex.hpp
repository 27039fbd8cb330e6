// SPDX-License-Identifier: BSD-3-Clause
// Sleeping on a shared word until another process changes it: the low half of the word is the futex.
#pragma once

#include <cstdint>

#include "shmcb/time.hpp"

namespace shmcb::shm {

/// Sleeps while the low half of the word is `expected`, until `wake_sleepers`, a signal, or the time is over.
void sleep_on(const void* word, std::uint32_t expected, Micros at_most) noexcept;

/// Wakes all who sleep on the word, in any process.
void wake_sleepers(const void* word) noexcept;

}  // namespace shmcb::shm
