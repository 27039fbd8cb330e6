// SPDX-License-Identifier: BSD-3-Clause
// Errors of the machinery as values: a code per cause and, off the hot path, a sentence. A rejection is not an error.
// Nothing here throws except `Result::value`, which needs `shmcb/failure.hpp` and exceptions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace shmcb {

/// One code per cause. The values are stable: tools and the C interface pass them on.
enum class Errc : std::uint8_t {
  ok = 0,
  invalid_config = 1,           ///< a field breaks its rule, or exceeds a limit of this storage
  config_mismatch = 2,          ///< the breaker exists with other numbers
  invalid_segment_name = 3,     ///< empty, too long, or a character that is not allowed
  invalid_segment_options = 4,  ///< a capacity of zero or beyond the format's maximum
  segment_not_found = 5,
  permission_denied = 6,
  wrong_owner = 7,       ///< owned by a user that is not in the allow-list
  unsafe_mode = 8,       ///< writable by more than was allowed
  not_a_segment = 9,     ///< not a regular file, or foreign content
  truncated = 10,        ///< shorter than its header says, or became so while attached (`sigbus_guard`)
  incompatible = 11,     ///< another layout version, word size, byte order, type sizes or unknown feature
  foreign_clock = 12,    ///< another boot, clock or time namespace
  corrupt = 13,          ///< a value in the segment that no correct process writes
  no_space = 14,         ///< /dev/shm is full or the memory is not there
  file_size_limit = 15,  ///< RLIMIT_FSIZE is below the segment's size
  registry_full = 16,
  ring_full = 17,          ///< the arena of window slots is used up, or the ring is too small for a new window
  records_exhausted = 18,  ///< every spare record is held by a live process
  version_exhausted = 19,  ///< too many configuration changes in one Closed period
  read_only = 20,
  unusable = 21,           ///< no storage behind this handle (FallbackStorage without a primary)
  busy = 22,               ///< this process is just re-attaching after a fork
  system = 23,             ///< a system call failed; the message names it
  segment_exists = 24,     ///< asked to create one whose name is taken
  breaker_not_found = 25,  ///< no breaker of that name in the segment
  group_full = 26,         ///< a BreakerGroup has as many breakers as it may, and none of them is idle
  wrong_group = 27,        ///< the name is a breaker's of another group, of a group, or of none
  memory_lock_limit = 28,  ///< RLIMIT_MEMLOCK does not let the segment be locked in memory
};

/// The code's name, e.g. "registry_full".
[[nodiscard]] constexpr std::string_view to_string(Errc code) noexcept {
  switch (code) {
    case Errc::ok: return "ok";
    case Errc::invalid_config: return "invalid_config";
    case Errc::config_mismatch: return "config_mismatch";
    case Errc::invalid_segment_name: return "invalid_segment_name";
    case Errc::invalid_segment_options: return "invalid_segment_options";
    case Errc::segment_not_found: return "segment_not_found";
    case Errc::permission_denied: return "permission_denied";
    case Errc::wrong_owner: return "wrong_owner";
    case Errc::unsafe_mode: return "unsafe_mode";
    case Errc::not_a_segment: return "not_a_segment";
    case Errc::truncated: return "truncated";
    case Errc::incompatible: return "incompatible";
    case Errc::foreign_clock: return "foreign_clock";
    case Errc::corrupt: return "corrupt";
    case Errc::no_space: return "no_space";
    case Errc::file_size_limit: return "file_size_limit";
    case Errc::registry_full: return "registry_full";
    case Errc::ring_full: return "ring_full";
    case Errc::records_exhausted: return "records_exhausted";
    case Errc::version_exhausted: return "version_exhausted";
    case Errc::read_only: return "read_only";
    case Errc::unusable: return "unusable";
    case Errc::busy: return "busy";
    case Errc::system: return "system";
    case Errc::segment_exists: return "segment_exists";
    case Errc::breaker_not_found: return "breaker_not_found";
    case Errc::group_full: return "group_full";
    case Errc::wrong_group: return "wrong_group";
    case Errc::memory_lock_limit: return "memory_lock_limit";
  }
  return "unknown";
}

/// What went wrong, as a code and one sentence that names the field, the value and the rule.
struct Error {
  Errc code = Errc::ok;
  std::string message{};

  [[nodiscard]] explicit operator bool() const noexcept { return code != Errc::ok; }
};

namespace detail {
/// Defined in shmcb/failure.hpp: which exception an Error becomes.
template <class T>
struct Raise;
}  // namespace detail

/// A T or the Error that stands in its place.
template <class T>
class [[nodiscard]] Result {
 public:
  // NOLINTBEGIN(google-explicit-constructor): `return value;` and `return error;` are the point of it
  Result(T value) noexcept : value_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) noexcept : value_(std::in_place_index<1>, std::move(error)) {}
  // NOLINTEND(google-explicit-constructor)

  [[nodiscard]] bool has_value() const noexcept { return value_.index() == 0; }
  [[nodiscard]] explicit operator bool() const noexcept { return has_value(); }

  /// Requires has_value().
  [[nodiscard]] T& operator*() & noexcept { return *std::get_if<0>(&value_); }
  [[nodiscard]] const T& operator*() const& noexcept { return *std::get_if<0>(&value_); }
  [[nodiscard]] T&& operator*() && noexcept { return std::move(*std::get_if<0>(&value_)); }
  [[nodiscard]] T* operator->() noexcept { return std::get_if<0>(&value_); }
  [[nodiscard]] const T* operator->() const noexcept { return std::get_if<0>(&value_); }

  /// Requires !has_value().
  [[nodiscard]] const Error& error() const noexcept { return *std::get_if<1>(&value_); }

  /// The value, or throws ConfigError or SegmentError (include shmcb/failure.hpp, which the umbrella header does).
  [[nodiscard]] T value() && {
    if (!has_value()) detail::Raise<T>::raise(error());
    return std::move(**this);
  }

 private:
  std::variant<T, Error> value_;
};

}  // namespace shmcb
