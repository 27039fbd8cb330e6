// SPDX-License-Identifier: BSD-3-Clause
#include "segment_image.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>

namespace shmcb::shm {

namespace {

constexpr std::size_t kGuard = 65'536;  // a page of every Linux machine

}  // namespace

Error read_exactly(int fd, std::uint64_t offset, void* target, std::uint64_t bytes) {
  constexpr std::uint64_t kAtOnce = std::uint64_t{1} << 30U;  // Linux reads at most 2^31 - 4096 bytes in one call
  auto* to = static_cast<std::byte*>(target);
  while (bytes > 0) {
    const auto wanted = static_cast<std::size_t>(std::min(bytes, kAtOnce));
    const ssize_t got = ::pread(fd, to, wanted, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      std::array<char, 128> buffer{};
      return {Errc::system, std::string{"reading it failed: "} + ::strerror_r(errno, buffer.data(), buffer.size())};
    }
    if (got == 0) {
      return {Errc::truncated, "it was cut short while it was open: nothing at byte " + std::to_string(offset) +
                                   ", expected " + std::to_string(bytes) + " bytes more"};
    }
    to += got;
    offset += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::uint64_t>(got);
  }
  return {};
}

SegmentImage::SegmentImage(int fd, const core::Geometry& geometry)
    : fd_(fd), area_bytes_(geometry.total_bytes + 2 * kGuard) {
  void* area = ::mmap(nullptr, area_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (area == MAP_FAILED) throw std::bad_alloc{};
  area_ = static_cast<std::byte*>(area);
  if (::mprotect(area_ + kGuard, geometry.total_bytes, PROT_READ | PROT_WRITE) != 0) {
    ::munmap(area_, area_bytes_);
    throw std::bad_alloc{};
  }
  view_ = {area_ + kGuard, geometry};
}

SegmentImage::~SegmentImage() {
  ::munmap(area_, area_bytes_);
}

Error SegmentImage::read(std::uint64_t offset, std::uint64_t bytes) {
  return read_exactly(fd_, offset, area_ + kGuard + offset, bytes);
}

Error SegmentImage::read_participants() {
  return read(geometry().participants_offset,
              std::uint64_t{geometry().participants} * sizeof(core::ParticipantEntry<Env>));
}

Error SegmentImage::read_index() {
  return read(geometry().index_offset, std::uint64_t{geometry().index_slots} * sizeof(Env::Word));
}

Error SegmentImage::read_breakers(std::uint32_t first, std::uint32_t count) {
  constexpr std::uint64_t kBytes = sizeof(core::BreakerCells<Env>);
  return read(geometry().breakers_offset + first * kBytes, count * kBytes);
}

Error SegmentImage::read_records(std::uint32_t first, std::uint32_t count) {
  constexpr std::uint64_t kBytes = sizeof(core::RecordCell<Env>);
  return read(geometry().records_offset + first * kBytes, count * kBytes);
}

Error SegmentImage::read_units(std::uint64_t first, std::uint64_t count) {
  constexpr std::uint64_t kBytes = core::kMinRing * sizeof(Env::Word);
  return read(geometry().rings_offset + first * kBytes, count * kBytes);
}

Error SegmentImage::read_journal() {
  return read(geometry().journal_offset, geometry().total_bytes - geometry().journal_offset);
}

}  // namespace shmcb::shm
