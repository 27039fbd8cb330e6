// SPDX-License-Identifier: BSD-3-Clause
// The storages that shmcb-replay can run a trace on.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "common/trace.hpp"
#include "common/trace_runner.hpp"

namespace shmcb::replay {

struct StorageEntry {
  std::string_view name;
  /// Runs a trace on a fresh storage; the error says why that could not be opened.
  Result<std::vector<Deviation>> (*run)(const Trace& trace);
};

[[nodiscard]] std::span<const StorageEntry> storages() noexcept;

}  // namespace shmcb::replay
