// SPDX-License-Identifier: BSD-3-Clause
// Configurations as text, in TOML: the names of BreakerConfig, its rules and its messages. Part of the library
// shmcb::config, which is there where shmcb was built with toml++. Functions of this file keep no state: safe from any
// thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "shmcb/config.hpp"
#include "shmcb/error.hpp"
#include "shmcb/export.hpp"

namespace shmcb {

/// A text of more bytes is refused.
inline constexpr std::size_t kMaxConfigTextBytes = std::size_t{1} << 20;

/// What a text says.
struct Configuration {
  std::vector<BreakerConfig> breakers{};  ///< in the order of the text, no two of one name, each keeps its rules
  std::vector<std::string> warnings{};    ///< what they may not mean: "FILE:LINE: breaker 'NAME': " and a sentence

  /// The breaker of that name; none: nullptr. Valid as long as `breakers` is not changed.
  [[nodiscard]] SHMCB_EXPORT const BreakerConfig* find(std::string_view name) const noexcept;
};

/// Reads
///
///     [defaults]                  # what every breaker has unless it says otherwise, field by field
///     cooldown = "30s"            # short for { base = "30s" }
///     [[breaker]]
///     name = "payments"
///     failure_threshold = { failures = 5, window = 10, within = "60s" }
///     cooldown.multiplier = 2     # its base is still that of [defaults]
///
/// Durations are text with a unit ("250ms", "30s", "5m", "1h"). `false` in place of a table that may be left out takes
/// back what [defaults] set. A key that is not known is an error, and so is everything that `check` refuses: then the
/// whole text is refused. Errors are Errc::invalid_config, as "SOURCE:LINE:COLUMN: " and a sentence; what only the
/// fields of a breaker together break, as "SOURCE:LINE: breaker 'NAME': " and the sentence of `check`. `source_name`
/// is what messages call the text. Throws nothing but std::bad_alloc.
[[nodiscard]] SHMCB_EXPORT Result<Configuration> parse_config(std::string_view text, std::string_view source_name);

/// The same for a file, which messages call by its path. Errc::system where it cannot be read.
[[nodiscard]] SHMCB_EXPORT Result<Configuration> read_config(const std::string& path);

/// A configuration that keeps its rules as a [[breaker]] table of every field, with the defaults filled in: what
/// `parse_config` makes of it has the same settings. (TOML's numbers end at 2^63 - 1, so a config_revision beyond does
/// not come back.)
[[nodiscard]] SHMCB_EXPORT std::string to_toml(const BreakerConfig& config);

}  // namespace shmcb
