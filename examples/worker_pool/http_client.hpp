// SPDX-License-Identifier: BSD-3-Clause
// The smallest HTTP client that can be guarded: one GET, one connection, one deadline for all of it.
#pragma once

#include <chrono>
#include <cstdint>

namespace worker_pool {

/// The status of the answer. Throws std::system_error where there is none in time (ETIMEDOUT), the connection is
/// refused or breaks off.
[[nodiscard]] int http_get(std::uint16_t port, std::chrono::milliseconds timeout);

}  // namespace worker_pool
