// SPDX-License-Identifier: BSD-3-Clause
// A segment for one test: a name nobody else has, removed at the end by the process that made it.
#pragma once

#include <unistd.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "shmcb/segment.hpp"

namespace shmcb::test {

inline std::string unique_segment_name() {
  static std::atomic<int> count{0};
  const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
  std::string name =
      "test-" + std::to_string(::getpid()) + "-" + std::to_string(count.fetch_add(1, std::memory_order_relaxed));
  if (info != nullptr) name += std::string{"-"} + info->name();
  for (char& c : name) {
    if (c == '/') c = '_';
  }
  return name.substr(0, 200);
}

class TestSegment {
 public:
  explicit TestSegment(SegmentOptions options = {.breakers = 8, .participants = 16}) : options_(std::move(options)) {
    if (!options_.name) options_.name = unique_segment_name();
    auto created = Segment::create(options_);
    if (!created) throw std::runtime_error(created.error().message);
    segment_.emplace(*std::move(created));
  }
  TestSegment(TestSegment&& other) noexcept
      : options_(std::move(other.options_)),
        segment_(std::move(other.segment_)),
        maker_(std::exchange(other.maker_, 0)) {}
  TestSegment& operator=(TestSegment&&) = delete;
  TestSegment(const TestSegment&) = delete;
  TestSegment& operator=(const TestSegment&) = delete;
  ~TestSegment() {
    if (maker_ == ::getpid()) (void)Segment::remove(options_);
  }

  [[nodiscard]] const SegmentOptions& options() const { return options_; }
  [[nodiscard]] const Segment& segment() const { return *segment_; }
  const Segment* operator->() const { return &*segment_; }
  [[nodiscard]] std::string path() const { return options_.directory + "/shmcb." + *options_.name; }
  /// Another attachment, as another process would get it.
  [[nodiscard]] Segment attach() const {
    auto attached = Segment::attach(options_);
    if (!attached) throw std::runtime_error(attached.error().message);
    return *std::move(attached);
  }
  /// Lets go of this process's own attachment; the segment stays.
  void detach() { segment_.reset(); }

 private:
  SegmentOptions options_;
  std::optional<Segment> segment_;
  pid_t maker_ = ::getpid();
};

}  // namespace shmcb::test
