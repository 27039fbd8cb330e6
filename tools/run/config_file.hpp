// SPDX-License-Identifier: BSD-3-Clause
// Breakers from a file and as text, where shmcb-run was built with toml++; else errors that say so.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "shmcb/config.hpp"
#include "shmcb/error.hpp"

namespace shmcb::run {

/// The breaker of that name that a file describes; without a name, all of them.
[[nodiscard]] Result<std::vector<BreakerConfig>> breakers_in(const std::string& path,
                                                             const std::optional<std::string>& name);

/// Prints what would be used on standard output, and what it may not mean on standard error.
[[nodiscard]] Error print_as_text(const std::vector<BreakerConfig>& breakers);

}  // namespace shmcb::run
