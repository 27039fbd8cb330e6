// SPDX-License-Identifier: BSD-3-Clause
// Where the pages of a mapping are: brought in, locked, or as huge ones. All of it belongs to this process's mapping
// and not to the segment, and none of it goes over to a forked child.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shmcb/error.hpp"
#include "shmcb/segment.hpp"

namespace shmcb::shm {

/// Brings every page in, so that no later access faults. Goes on without where that cannot be had.
void bring_in(void* begin, std::size_t bytes) noexcept;

/// Asks for huge pages. Whether there are any is for the file system to say, see `memory_of`.
void ask_for_huge_pages(void* begin, std::size_t bytes) noexcept;

/// Brings every page in and keeps it there; an error that names the limit, and only a sentence, where that is refused.
[[nodiscard]] Error lock(void* begin, std::size_t bytes);

/// For the creator of a file that nobody else sees yet: allocates its memory by a mapping that asks for huge pages, as
/// a tmpfs with huge=advise wants it. As far as that goes: what it leaves out is reserved otherwise.
void allocate_huge_pages(int fd, std::size_t bytes) noexcept;

/// What the kernel says of a mapping.
[[nodiscard]] Result<SegmentMemory> memory_of(const void* begin, std::size_t bytes);

}  // namespace shmcb::shm
