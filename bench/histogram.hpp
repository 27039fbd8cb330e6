// SPDX-License-Identifier: BSD-3-Clause
// Latencies in nanoseconds, from 0 to 2^40 (18 minutes), in log-linear buckets: 32 to each power of two, so that a
// value is known to a sixty-fourth (1.6 %). Plain memory of a fixed size, all zeros when empty: fit for shared memory,
// with one writer each.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace shmcb::bench {

class Histogram {
 public:
  void add(std::uint64_t ns) noexcept {
    const std::uint64_t value = std::min(ns, kLargest);
    ++buckets_[bucket_of(value)];
    if (value > max_) max_ = value;
  }

  Histogram& operator+=(const Histogram& other) noexcept {
    for (std::size_t i = 0; i < kBuckets; ++i)
      buckets_[i] += other.buckets_[i];
    max_ = std::max(max_, other.max_);
    return *this;
  }

  [[nodiscard]] std::uint64_t count() const noexcept {
    std::uint64_t count = 0;
    for (const std::uint64_t bucket : buckets_)
      count += bucket;
    return count;
  }
  /// Exact.
  [[nodiscard]] std::uint64_t max() const noexcept { return max_; }

  /// The middle of the bucket below whose end `share` (0 to 1) of all values lie; 0 if there are none.
  [[nodiscard]] double quantile(double share) const noexcept {
    const auto wanted = static_cast<std::uint64_t>(std::ceil(share * static_cast<double>(count())));
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < kBuckets; ++i) {
      seen += buckets_[i];
      if (seen >= wanted && seen > 0) return std::min(middle_of(i), static_cast<double>(max_));
    }
    return 0;
  }

 private:
  static constexpr unsigned kBits = 5;
  static constexpr std::uint64_t kPerOctave = std::uint64_t{1} << kBits;
  static constexpr unsigned kTopBit = 39;
  static constexpr std::uint64_t kLargest = (std::uint64_t{1} << (kTopBit + 1)) - 1;
  static constexpr std::size_t kBuckets = (kTopBit - kBits + 2) * kPerOctave;

  /// The values below 32 have a bucket each; then every octave shifts its values down to 32 ... 63.
  [[nodiscard]] static std::size_t bucket_of(std::uint64_t value) noexcept {
    if (value < kPerOctave) return value;
    const auto shift = static_cast<unsigned>(std::bit_width(value)) - kBits - 1;
    return shift * kPerOctave + (value >> shift);
  }
  [[nodiscard]] static double middle_of(std::size_t bucket) noexcept {
    if (bucket < 2 * kPerOctave) return static_cast<double>(bucket);
    const auto shift = static_cast<unsigned>(bucket / kPerOctave) - 1;
    const std::uint64_t low = (kPerOctave + bucket % kPerOctave) << shift;
    return static_cast<double>(low) + static_cast<double>((std::uint64_t{1} << shift) - 1) / 2;
  }

  std::array<std::uint64_t, kBuckets> buckets_{};
  std::uint64_t max_ = 0;
};

}  // namespace shmcb::bench
