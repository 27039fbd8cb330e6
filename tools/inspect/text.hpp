// SPDX-License-Identifier: BSD-3-Clause
// Plain text for terminals: what a segment holds never reaches one unescaped.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace shmcb::inspect {

/// Printable ASCII stays as it is; a backslash and every other byte becomes \xNN.
[[nodiscard]] std::string escaped(std::string_view text);

/// Cut, not rounded, to what a reader needs: "250ms", "12.3s", "4m09s", "3h07m", "2d03h".
[[nodiscard]] std::string duration_text(std::chrono::microseconds duration);

/// A wall-clock time in UTC: "2024-01-31T12:00:00Z".
[[nodiscard]] std::string wall_text(std::int64_t ns_since_1970);

/// "1 breaker", "2 breakers".
[[nodiscard]] std::string counted(std::uint64_t count, std::string_view one, std::string_view many);

using Row = std::vector<std::string>;

/// Lines of aligned columns, two spaces apart; the first `left` columns are aligned to the left, the others to the
/// right.
[[nodiscard]] std::string aligned(const std::vector<Row>& rows, std::size_t left);

}  // namespace shmcb::inspect
