// SPDX-License-Identifier: BSD-3-Clause
#include "storages.hpp"

#include <unistd.h>

#include <array>
#include <string>

#include "shmcb/memory_storage.hpp"
#include "shmcb/shm_storage.hpp"

namespace shmcb::replay {
namespace {

Result<std::vector<Deviation>> run_on_memory(const Trace& trace) {
  return run_fresh(trace, &MemoryStorage<FakeClock, FakeRandom>::open);
}

/// Every trace gets a segment of its own, gone again before it can be seen to be there.
Result<std::vector<Deviation>> run_on_shm(const Trace& trace) {
  const auto open = [](const BreakerConfig& config, FakeClock clock,
                       FakeRandom random) -> Result<ShmStorage<FakeClock, FakeRandom>> {
    const SegmentOptions options{.name = "replay-" + std::to_string(::getpid()),
                                 .breakers = 1,
                                 .ring_slots = core::ring_capacity(config.failure_threshold.window),
                                 .participants = 1,
                                 .epoch = clock.now()};
    Result<Segment> segment = Segment::create(options);
    if (!segment) return segment.error();
    if (Error error = Segment::remove(options)) return error;
    return ShmStorage<FakeClock, FakeRandom>::open(*segment, config, OnMismatch::refuse, clock, random);
  };
  return run_fresh(trace, open);
}

constexpr std::array kStorages{
    StorageEntry{"memory", &run_on_memory},
    StorageEntry{"shm", &run_on_shm},
};

}  // namespace

std::span<const StorageEntry> storages() noexcept {
  return kStorages;
}

}  // namespace shmcb::replay
