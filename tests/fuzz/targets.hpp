// SPDX-License-Identifier: BSD-3-Clause
// What takes bytes from outside, as functions of any bytes: the fuzzers call them, and so do the tests, with what is
// kept in tests/data/fuzz. What must never happen ends the process: a crash, an access outside of the mapping, an
// answer that is not documented, more work than an operation may do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string_view>

#include "shmcb/error.hpp"

namespace shmcb {
class Segment;
class SegmentReader;
}  // namespace shmcb

namespace shmcb::fuzz {

using Input = std::span<const std::byte>;

void fuzz_words(Input input);    ///< every operation of the core on changed words, also while they change
void fuzz_segment(Input input);  ///< a changed segment: attach, every operation, observer, inspector
void fuzz_header(Input input);   ///< any first page and any file size: attach and open for reading
void fuzz_reader(Input input);   ///< a changed segment, cut anywhere: the reader and what the inspector prints
void fuzz_config(Input input);   ///< a configuration as text, and back
void fuzz_trace(Input input);    ///< a file of traces
void fuzz_text(Input input);     ///< durations, names, lists of exit codes, escapes

struct Target {
  std::string_view name;
  void (*run)(Input input);
  std::size_t most_bytes;  ///< of an input that makes sense
};
inline constexpr Target kTargets[] = {{"words", &fuzz_words, 1'024},   {"segment", &fuzz_segment, 1'024},
                                      {"header", &fuzz_header, 1'024}, {"reader", &fuzz_reader, 1'024},
                                      {"config", &fuzz_config, 4'096}, {"trace", &fuzz_trace, 4'096},
                                      {"text", &fuzz_text, 512}};

/// What fuzz_segment does with an attached segment, and fuzz_reader with one that is opened for reading.
void use_segment(const Segment& segment, Input input);
void read_segment(const SegmentReader& segment, Input input);

/// The most accesses to shared words that one operation of fuzz_words has made in this process.
[[nodiscard]] std::uint64_t most_steps() noexcept;

/// Ends the process where something does not hold.
inline void require(bool holds, const char* what) noexcept {
  if (holds) return;
  std::fprintf(stderr, "fuzz target: not so: %s\n", what);
  std::abort();
}

inline void require_documented(Errc code) noexcept {
  require(to_string(code) != "unknown", "every answer is a documented code");
}

/// An input, read from its beginning; zeros behind its end.
class Bytes {
 public:
  explicit Bytes(Input input) noexcept : rest_(input) {}

  [[nodiscard]] bool empty() const noexcept { return rest_.empty(); }
  [[nodiscard]] std::uint8_t byte() noexcept { return number<std::uint8_t>(); }
  template <class T>
  [[nodiscard]] T number() noexcept {
    T value{};
    const std::size_t bytes = rest_.size() < sizeof value ? rest_.size() : sizeof value;
    if (bytes > 0) std::memcpy(&value, rest_.data(), bytes);
    rest_ = rest_.subspan(bytes);
    return value;
  }
  [[nodiscard]] Input rest() const noexcept { return rest_; }

 private:
  Input rest_;
};

}  // namespace shmcb::fuzz
