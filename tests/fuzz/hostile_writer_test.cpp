// SPDX-License-Identifier: BSD-3-Clause
// Somebody writes into a segment while everybody uses it: any words at any time, mostly such as look right. Nobody
// crashes, hangs or touches what lies beside the mapping. SHMCB_TEST_ROUNDS sets how often everything is done.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "fuzz/damage.hpp"
#include "fuzz/rounds.hpp"
#include "fuzz/targets.hpp"
#include "shmcb/segment_reader.hpp"
#include "support/processes.hpp"
#include "support/test_segment.hpp"

namespace shmcb::fuzz {
namespace {

using test::Child;
using test::TestSegment;

template <std::size_t kBytes>
[[nodiscard]] std::array<std::byte, kBytes> random_bytes(std::mt19937_64& random) {
  std::array<std::byte, kBytes> bytes{};
  for (std::byte& byte : bytes)
    byte = static_cast<std::byte>(random());
  return bytes;
}

/// The words of a segment as they were, put back word by word.
class Original {
 public:
  explicit Original(const Words& words, const core::Geometry& geometry) : words_(words) {
    for (std::size_t offset = core::kSegmentWordsOffset; offset < geometry.total_bytes; offset += 8)
      saved_.push_back(words.get(offset));
  }
  void restore() const {
    for (std::size_t i = 0; i < saved_.size(); ++i)
      words_.set(core::kSegmentWordsOffset + i * 8, saved_[i]);
  }

 private:
  Words words_;
  std::vector<std::uint64_t> saved_;
};

/// Damages words until it is told to stop; now and then all of them are as they were, or nothing would be left to
/// damage.
template <class Stop>
void scribble(void* base, const core::Geometry& geometry, std::uint64_t seed, Stop stop) {
  std::mt19937_64 random(seed);
  const Words words(base, geometry);
  const Original original(words, geometry);
  while (!stop()) {
    for (std::uint64_t damages = random() % 256; damages > 0; --damages) {
      const auto how = random_bytes<24>(random);
      Bytes in(how);
      words.damage(in);
    }
    original.restore();
  }
}

/// The file of a segment in memory, not mapped by the library.
class Mapped {
 public:
  Mapped(const std::string& path, std::size_t bytes) : bytes_(bytes) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    base_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ::close(fd);
    if (base_ == MAP_FAILED) throw std::system_error(errno, std::generic_category(), path);
  }
  ~Mapped() { ::munmap(base_, bytes_); }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  [[nodiscard]] void* base() const noexcept { return base_; }

 private:
  void* base_;
  std::size_t bytes_;
};

class HostileWriter : public ::testing::Test {
 protected:
  HostileWriter() {
    for (int i = 0; i < 4; ++i) {
      const auto input = random_bytes<64>(random_);
      use_segment(made_.segment(), input);
    }
  }
  void* base() const {
    return reinterpret_cast<std::byte*>(&made_.segment().view().words()) - core::kSegmentWordsOffset;
  }

  const std::uint64_t seed_ = test::test_seed();
  std::mt19937_64 random_{seed_};
  TestSegment made_{SegmentOptions{
      .breakers = 8, .ring_slots = 320, .participants = 4, .journal_entries = 16, .epoch = FakeClock{}.now()}};
};

TEST_F(HostileWriter, InAnotherProcessHarmsNobody) {
  const core::Geometry geometry = made_.segment().geometry();
  const std::uint64_t count = test::test_rounds(60);
  made_.detach();
  Child scribbler = test::fork_child([&] {
    const Mapped mapped(made_.path(), geometry.total_bytes);
    scribble(mapped.base(), geometry, seed_, [] { return false; });
  });
  std::vector<Child> children;
  for (std::uint64_t worker = 1; worker <= 2; ++worker) {
    children.push_back(test::fork_child([&, worker] {
      std::mt19937_64 random(seed_ + worker);
      for (std::uint64_t n = 0; n < count; ++n) {
        const auto segment = Segment::attach(made_.options());
        ASSERT_TRUE(segment) << segment.error().message;
        use_segment(*segment, random_bytes<64>(random));
      }
    }));
  }
  children.push_back(test::fork_child([&] {
    std::mt19937_64 random(seed_ + 99);
    for (std::uint64_t n = 0; n < count; ++n) {
      const auto reader = SegmentReader::open(made_.options());
      ASSERT_TRUE(reader) << reader.error().message;
      read_segment(*reader, random_bytes<8>(random));
    }
  }));
  for (Child& child : children)
    EXPECT_EQ(child.wait(watchdog_for(count)), test::exited(0));
}

TEST_F(HostileWriter, InAnotherThreadHarmsNobody) {
  const std::uint64_t count = test::test_rounds(60);
  const core::Geometry geometry = made_.segment().geometry();
  test::expect_success_in_child(
      [&] {
        std::atomic<bool> stop{false};
        std::thread scribbler(
            [&] { scribble(base(), geometry, seed_, [&] { return stop.load(std::memory_order_relaxed); }); });
        std::vector<std::thread> workers;
        for (std::uint64_t worker = 1; worker <= 2; ++worker) {
          workers.emplace_back([&, worker] {
            std::mt19937_64 random(seed_ + worker);
            for (std::uint64_t n = 0; n < count; ++n)
              use_segment(made_.segment(), random_bytes<64>(random));
          });
        }
        for (std::thread& worker : workers)
          worker.join();
        stop.store(true, std::memory_order_relaxed);
        scribbler.join();
      },
      watchdog_for(count));
}

}  // namespace
}  // namespace shmcb::fuzz
