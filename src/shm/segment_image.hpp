// SPDX-License-Identifier: BSD-3-Clause
// A private copy of parts of a segment, each at the offset it has there, so that the core's own code decodes it. Only
// what was read takes memory, whatever size the file claims; an access beyond either end meets a page that may not be
// touched.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shmcb/core/layout.hpp"
#include "shmcb/error.hpp"

namespace shmcb::shm {

class SegmentImage {
 public:
  using Env = core::StdEnv;

  /// Throws std::bad_alloc where there is no address space. `fd` stays the caller's.
  SegmentImage(int fd, const core::Geometry& geometry);
  ~SegmentImage();
  SegmentImage(const SegmentImage&) = delete;
  SegmentImage& operator=(const SegmentImage&) = delete;

  /// Requires that [offset, offset + bytes) lies within the geometry. Copies from low addresses to high ones. Every
  /// word is copied whole: the kernel copies aligned memory by words or more.
  [[nodiscard]] Error read(std::uint64_t offset, std::uint64_t bytes);
  [[nodiscard]] Error read_words() { return read(core::kSegmentWordsOffset, sizeof(core::SegmentWords<Env>)); }
  [[nodiscard]] Error read_participants();
  [[nodiscard]] Error read_index();
  /// `count` from `first` on; requires that they exist. Likewise below.
  [[nodiscard]] Error read_breakers(std::uint32_t first, std::uint32_t count);
  [[nodiscard]] Error read_records(std::uint32_t first, std::uint32_t count);
  [[nodiscard]] Error read_units(std::uint64_t first, std::uint64_t count);
  [[nodiscard]] Error read_journal();

  [[nodiscard]] const core::SegmentView<Env>& view() const noexcept { return view_; }
  [[nodiscard]] const core::Geometry& geometry() const noexcept { return view_.geometry(); }

 private:
  int fd_;
  std::byte* area_ = nullptr;  ///< a guard page, the image, a guard page
  std::size_t area_bytes_ = 0;
  core::SegmentView<Env> view_;
};

/// Reads exactly `bytes` from `offset` on into `target`; truncated where the file is shorter.
[[nodiscard]] Error read_exactly(int fd, std::uint64_t offset, void* target, std::uint64_t bytes);

}  // namespace shmcb::shm
