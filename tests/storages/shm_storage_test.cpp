// SPDX-License-Identifier: BSD-3-Clause
#include "shmcb/shm_storage.hpp"

#include "conformance_suite.hpp"
#include "support/test_segment.hpp"

namespace shmcb::test {
namespace {

struct ShmFactory {
  Result<ShmStorage<FakeClock, FakeRandom>> open(const BreakerConfig& config, FakeClock clock, FakeRandom random) {
    const SegmentOptions options{
        .name = unique_segment_name(), .breakers = 1, .ring_slots = 8192, .participants = 1, .epoch = clock.now()};
    segment.emplace(options);
    return ShmStorage<FakeClock, FakeRandom>::open(segment->segment(), config, OnMismatch::refuse, clock, random);
  }
  std::optional<TestSegment> segment;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Shm, StorageConformance, ShmFactory);

}  // namespace
}  // namespace shmcb::test
