// SPDX-License-Identifier: BSD-3-Clause
// What can be said of a segment at rest, whatever died in it: every record is accounted for, every ring is one unbroken
// run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "shmcb/core/registry.hpp"
#include "shmcb/segment.hpp"
#include "shmcb/storage.hpp"

namespace shmcb::test {

struct Census {
  std::uint32_t free = 0;
  std::uint32_t current = 0;      ///< named by a breaker's control word
  std::uint32_t owned = 0;        ///< a living process's: a spare, or just being filled
  std::uint32_t left_behind = 0;  ///< the next one in need takes it back
  [[nodiscard]] std::uint32_t total() const { return free + current + owned + left_behind; }
};

/// Counts the records of a segment in which nothing runs.
[[nodiscard]] inline Census take_census(const Segment& segment) {
  using Env = core::StdEnv;
  const auto& view = segment.view();
  core::Presence& presence = segment.presence();
  const core::Registry<Env> registry(view, presence);
  std::vector<bool> named(view.geometry().records, false);
  for (std::uint32_t i = 0; i < view.geometry().breakers; ++i) {
    if (!registry.published(i)) continue;
    const core::ControlWord<Env::Widths> control{Env::load(view.breaker(i)->control, Env::acquire)};
    EXPECT_NE(view.record(control.record()), nullptr) << "breaker " << i << " names no record";
    EXPECT_FALSE(named.at(control.record())) << "two breakers name record " << control.record();
    named.at(control.record()) = true;
  }
  Census census;
  for (std::uint32_t i = 1; i < view.geometry().records; ++i) {
    const core::OwnerWord owner{Env::load(view.record(i)->owner, Env::acquire)};
    if (named[i]) {
      EXPECT_FALSE(owner.free()) << "record " << i << " is current and free";
      ++census.current;
    } else if (owner.free()) {
      ++census.free;
    } else if (owner.published() || presence.is_dead(owner)) {
      ++census.left_behind;
    } else {
      ++census.owned;
    }
  }
  return census;
}

/// Claims every record there is to be had and gives them back: afterwards nothing may be left behind. How many there
/// were.
inline std::uint32_t take_back_all(const Segment& segment) {
  core::RecordPool<core::StdEnv> pool(segment.view(), segment.presence());
  std::vector<std::uint32_t> claimed;
  Errc error = Errc::ok;
  while (const std::uint32_t record = pool.claim(error))
    claimed.push_back(record);
  EXPECT_EQ(error, Errc::records_exhausted);
  for (const std::uint32_t record : claimed)
    pool.release(record);
  return static_cast<std::uint32_t>(claimed.size());
}

/// Takes what was left behind back, at most `at_most`, and finds that then every record is accounted for. Requires that
/// `segment` is the only attachment alive.
inline void expect_records_accounted(const Segment& segment, std::uint32_t at_most) {
  const Census before = take_census(segment);
  EXPECT_LE(before.left_behind, at_most);
  const std::uint32_t claimed = take_back_all(segment);
  const Census after = take_census(segment);
  EXPECT_EQ(after.left_behind, 0U);
  EXPECT_EQ(after.current, before.current);
  EXPECT_EQ(claimed + after.current, segment.geometry().records - 1) << "a record is out of reach for ever";
  EXPECT_EQ(after.total(), segment.geometry().records - 1);
  EXPECT_LE(after.owned, 2U) << "a process keeps two spares";
}

/// Finds the ring of a published breaker at rest unbroken: the tail near the hint, behind it one whole lap without a
/// gap, in which times and entries of one period keep their order, and no entry of the current period behind a flagged
/// one.
inline void expect_ring_unbroken(const Segment& segment, std::uint32_t breaker) {
  using Env = core::StdEnv;
  const auto& view = segment.view();
  auto& cells = *view.breaker(breaker);
  const core::RingWord word{Env::load(cells.ring, Env::acquire)};
  auto* slots = view.ring(word);
  ASSERT_NE(slots, nullptr);
  const core::Ring<Env> ring(slots, word.capacity(), &cells.hint);
  core::Ring<Env>::Tail tail;
  ASSERT_TRUE(ring.locate_tail(tail)) << "no tail within reach of the hint";
  const core::BreakerCell<Env> cell(
      core::CellCore<Env>(view, segment.presence(), breaker, cells, slots, word.capacity()));
  core::BreakerCell<Env>::Control control;
  core::Record record;
  ASSERT_TRUE(cell.load(control, record));
  EXPECT_LE(record.window_begin, tail.position);
  EXPECT_LT(record.window_end, tail.position);
  EXPECT_LE(record.breaker.probes.count, record.settings.probe_limit);
  const std::uint64_t first = tail.position - ring.capacity();
  for (std::uint64_t p = first; p < tail.position; ++p) {
    const auto entry = ring.at(p);
    EXPECT_TRUE(ring.holds(p, entry)) << "position " << p << " of " << first << " to " << tail.position;
    // The first is the free slot at the tail: whoever touched it has changed its time.
    if (p <= first + 1 || p - 1 < record.window_begin) continue;
    const auto before = ring.at(p - 1);
    // A straggler of the period before may have got in just where this one begins: it does not count.
    if (before.generation() != entry.generation()) continue;
    EXPECT_LE(before.time_us(), entry.time_us()) << "position " << p;
    EXPECT_FALSE(before.trip()) << "position " << p << " stands behind a flagged entry";
  }
}

/// Finds that a breaker can still be led into each of its states, whatever state it is in. `advance(Millis)` moves its
/// clock.
template <Storage S, class Advance>
void expect_every_state_can_be_left(S& breaker, Advance advance) {
  const Settings settings = breaker.settings();
  const auto close = [&] {
    for (std::uint32_t round = 0; round < settings.success_threshold + 4; ++round) {
      if (breaker.peek().state == CircuitState::closed) return;
      advance(Millis{std::max({settings.cooldown_ms, settings.cooldown_maximum_ms, settings.probe_timeout_ms})});
      const AdmitResult probe = breaker.admit();
      ASSERT_EQ(probe.error, Errc::ok);
      ASSERT_EQ(probe.admission, Admission::probe) << "cooldown and lease are over";
      ASSERT_EQ(breaker.record_outcome(probe.token, Outcome::success).status, RecordStatus::counted);
    }
    ADD_FAILURE() << "successful probes do not close the breaker";
  };
  const auto open = [&] {
    advance(Millis{settings.ramp_ms});
    const AdmitResult allowed = breaker.admit();
    ASSERT_EQ(allowed.admission, Admission::allowed);
    for (std::uint32_t i = 0; i < settings.failures && breaker.peek().state == CircuitState::closed; ++i) {
      ASSERT_EQ(breaker.record_outcome(allowed.token, Outcome::failure).error, Errc::ok);
    }
    ASSERT_EQ(breaker.peek().state, CircuitState::open) << "failures do not open the breaker";
    ASSERT_EQ(breaker.admit().admission, Admission::rejected);
  };
  close();
  open();
  close();
  open();
}

}  // namespace shmcb::test
