// SPDX-License-Identifier: BSD-3-Clause
// A worker that does everything to a few breakers at random, and what must hold whatever it and others do: for
// processes that are killed, stopped and started again, and for threads under ThreadSanitizer.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "process/census.hpp"
#include "process/shared_clock.hpp"
#include "shmcb/shm_storage.hpp"
#include "support/test_segment.hpp"

namespace shmcb::test {

inline constexpr std::uint32_t kTorturedBreakers = 2;
inline constexpr std::uint32_t kTorturedWindow = 20;
inline constexpr std::uint32_t kTorturedProbes = 2;

[[nodiscard]] inline BreakerConfig tortured_config(std::uint32_t number, Millis cooldown = Millis{20}) {
  return {.name = "tortured-" + std::to_string(number),
          .failure_threshold = {.failures = 6, .window = kTorturedWindow, .within = Millis{5'000}},
          .cooldown = {cooldown},
          .success_threshold = 2,
          .probe_limit = kTorturedProbes,
          .probe_timeout = Millis{30}};
}

[[nodiscard]] inline SegmentOptions tortured_options() {
  return {.breakers = kTorturedBreakers, .ring_slots = 256, .participants = 16, .epoch = SharedClock::kStart};
}

/// From $SHMCB_TEST_SEED, else random; printed in any case.
[[nodiscard]] inline std::uint64_t torture_seed() {
  const char* given = std::getenv("SHMCB_TEST_SEED");
  const std::uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  std::printf("[ seed     ] SHMCB_TEST_SEED=%lu\n", static_cast<unsigned long>(seed));
  return seed;
}

/// Performs operations one by one. `step` finds what must hold after each; the first thing that does not is kept.
class TortureWorker {
 public:
  TortureWorker(const Segment& segment, const SharedClock& clock, std::uint64_t seed)
      : segment_(segment), clock_(clock), random_(seed) {
    for (std::uint32_t i = 0; i < kTorturedBreakers; ++i)
      breakers_.push_back(open(i, OnMismatch::adopt));
  }

  void step() {
    ShmStorage<SharedClock>& breaker = breakers_[below(kTorturedBreakers)];
    const std::uint32_t choice = below(1'000);
    if (choice < 400) {
      admit(breaker);
    } else if (choice < 900) {
      record(breaker);
    } else if (choice < 960) {
      look(breaker);
    } else if (choice < 990) {
      clock_.advance(Micros{below(4'000)});
    } else if (choice < 994) {
      require(breaker.force_state(static_cast<CircuitState>(below(3))).error, "force_state");
    } else {
      const std::uint32_t number = below(kTorturedBreakers);
      breakers_[number] = open(number, OnMismatch::replace);
    }
  }

  [[nodiscard]] const std::string& complaint() const { return complaint_; }

 private:
  struct Attempt {
    std::uint32_t breaker = 0;
    Token token{};
  };

  ShmStorage<SharedClock> open(std::uint32_t number, OnMismatch on_mismatch) {
    auto opened = ShmStorage<SharedClock>::open(segment_, tortured_config(number, Millis{10 + below(2) * 10}),
                                                on_mismatch, clock_);
    // So many changes within one Closed period are refused by design.
    if (!opened && opened.error().code == Errc::version_exhausted) return breakers_.at(number);
    if (!opened) throw std::runtime_error(opened.error().message);
    return *std::move(opened);
  }

  void admit(ShmStorage<SharedClock>& breaker) {
    const AdmitResult entry = breaker.admit();
    require(entry.error, "admit");
    Attempt& attempt = attempts_[below(kHeld)];
    attempt = {.breaker = index_of(breaker), .token = entry.token};
  }

  /// Of an attempt admitted whenever: in order, late, or (a probe) a second time.
  void record(ShmStorage<SharedClock>& breaker) {
    Attempt attempt = attempts_[below(kHeld)];
    if (attempt.breaker != index_of(breaker)) return;
    const std::uint32_t choice = below(100);
    const Outcome outcome = choice < 25 ? Outcome::failure : choice < 97 ? Outcome::success : Outcome::ignored;
    const RecordResult recorded = breaker.record_outcome(attempt.token, outcome);
    require(recorded.error, "record_outcome");
    if (recorded.transition && recorded.transition->reason == TransitionReason::none)
      complain("a transition without a reason");
  }

  void look(const ShmStorage<SharedClock>& breaker) {
    const SnapshotResult seen = breaker.snapshot();
    require(seen.error, "snapshot");
    if (seen.record.state != CircuitState::half_open &&
        seen.record.successes + seen.record.failures > kTorturedWindow) {
      complain("a window of " + std::to_string(seen.record.successes + seen.record.failures));
    }
    require(breaker.peek().error, "peek");
    core::BreakerCell<core::StdEnv> cell;
    require(core::Registry<core::StdEnv>(segment_.view(), segment_.presence()).find(breaker.name(), cell), "find");
    core::BreakerCell<core::StdEnv>::Control control;
    core::Record record;
    if (!cell.load(control, record)) return complain("a record that does not decode");
    if (record.breaker.probes.count > kTorturedProbes)
      complain(std::to_string(record.breaker.probes.count) + " probes out");
  }

  [[nodiscard]] std::uint32_t index_of(const ShmStorage<SharedClock>& breaker) const {
    return static_cast<std::uint32_t>(&breaker - breakers_.data());
  }
  [[nodiscard]] std::uint32_t below(std::uint32_t end) { return static_cast<std::uint32_t>(random_() % end); }
  void require(Errc error, const char* what) {
    if (error != Errc::ok) complain(std::string{what} + ": " + std::string{to_string(error)});
  }
  void complain(std::string what) {
    if (complaint_.empty()) complaint_ = std::move(what);
  }

  static constexpr std::uint32_t kHeld = 4;
  Segment segment_;
  SharedClock clock_;
  std::minstd_rand random_;
  std::vector<ShmStorage<SharedClock>> breakers_;
  std::array<Attempt, kHeld> attempts_{};
  std::string complaint_;
};

/// What must hold when all have ended.
inline void expect_sound_after_torture(const Segment& segment, const SharedClock& clock,
                                       std::uint32_t may_be_left_behind) {
  for (std::uint32_t i = 0; i < kTorturedBreakers; ++i) {
    SCOPED_TRACE("breaker " + std::to_string(i));
    expect_ring_unbroken(segment, i);
    auto opened = ShmStorage<SharedClock>::open(segment, tortured_config(i), OnMismatch::adopt, clock);
    ASSERT_TRUE(opened) << opened.error().message;
    expect_every_state_can_be_left(*opened, [&clock](Millis by) { clock.advance(by); });
    expect_ring_unbroken(segment, i);
  }
  expect_records_accounted(segment, may_be_left_behind);
}

}  // namespace shmcb::test
