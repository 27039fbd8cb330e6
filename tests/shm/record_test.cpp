// SPDX-License-Identifier: BSD-3-Clause
// The record as words and back, and every value of a word that no correct process writes.
#include "shmcb/core/record.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace shmcb::core {
namespace {

constexpr std::uint64_t kMaxProbeId = low_bits(36);

Record full_record(std::uint64_t first_probe) {
  Record record;
  record.breaker.opened_at = 123'456;
  record.breaker.lease_at = 234'567;
  record.breaker.probe_successes = 0xFFFF'FFFE;
  for (std::uint32_t i = 0; i < kMaxProbes; ++i) {
    record.breaker.probes.add((first_probe + 3 * i) & kMaxProbeId, static_cast<std::uint16_t>(0xFFFE - i));
  }
  record.settings = {.failures = 77,
                     .window = kMaxWindow,
                     .within_ms = kMaxDurationMs,
                     .rate_percent = 100,
                     .rate_minimum_calls = 0xFFFF'FFFF,
                     .consecutive_failures = 0xFFFF'FFFE,
                     .slow_percent = 99,
                     .slow_minimum_calls = 0xFFFF'FFFD,
                     .slower_than_ms = kMaxDurationMs - 2,
                     .reopen_on_slow_probe = true,
                     .cooldown_ms = 1,
                     .cooldown_multiplier = kMaxMultiplier,
                     .cooldown_jitter = 98,
                     .cooldown_maximum_ms = kMaxDurationMs - 3,
                     .forget_after_ms = kMaxDurationMs - 4,
                     .probe_timeout_ms = kMaxDurationMs - 1,
                     .success_threshold = 0xFFFF'FFFF,
                     .probe_limit = kMaxProbes,
                     .reclaim_dead_probes = true,
                     .ramp_ms = kMaxDurationMs - 5,
                     .ramp_start_percent = 97,
                     .revision = ~std::uint64_t{0}};
  record.breaker.open_until = 345'678;
  record.breaker.since = 456'789;
  record.breaker.mode_until = static_cast<rules::Tick>(kMaxTick) + kMaxDurationMs - 1;
  record.breaker.growth = 0xFFFF'FFFC;
  record.breaker.recovered = true;
  record.breaker.tally.probes = ~std::uint64_t{0};
  record.breaker.tally.probe_verdicts = ~std::uint64_t{0} - 1;
  for (std::size_t i = 0; i < kTransitionReasons; ++i)
    record.breaker.tally.transitions[i] = 0xFFFF'FFFF - static_cast<std::uint32_t>(i);
  record.breaker.tally.spent = {(rules::Tick{1} << 60U) - 1, 2, 3};
  record.journaled = low_bits(36);
  record.note =
      NoteText::of({.who = std::string(kMaxWhoBytes, 'w'), .why = "\xFF\x01" + std::string(kMaxWhyBytes, 'y')});
  record.rejected_generation = low_bits(24);
  record.window_generation = low_bits(24) - 1;
  record.window_begin = std::uint64_t{1} << 50U;
  record.window_end = (std::uint64_t{1} << 50U) + 12;
  return record;
}

/// What comes out of words; an expectation fails where they are refused.
Record decoded(const RecordWords& words) {
  Record record;
  EXPECT_TRUE(decode_opening(words, record));
  EXPECT_TRUE(decode_state(words, record));
  EXPECT_TRUE(decode_settings(words, record.settings));
  decode_rest(words, record);
  return record;
}

void expect_same(const Record& got, const Record& expected) {
  EXPECT_EQ(got.breaker.opened_at, expected.breaker.opened_at);
  EXPECT_EQ(got.breaker.lease_at, expected.breaker.lease_at);
  EXPECT_EQ(got.breaker.probe_successes, expected.breaker.probe_successes);
  EXPECT_EQ(got.settings, expected.settings);
  EXPECT_EQ(got.rejected_generation, expected.rejected_generation);
  EXPECT_EQ(got.window_generation, expected.window_generation);
  EXPECT_EQ(got.window_begin, expected.window_begin);
  EXPECT_EQ(got.window_end, expected.window_end);
  EXPECT_EQ(got.breaker.open_until, expected.breaker.open_until);
  EXPECT_EQ(got.breaker.since, expected.breaker.since);
  EXPECT_EQ(got.breaker.mode_until, expected.breaker.mode_until);
  EXPECT_EQ(got.breaker.growth, expected.breaker.growth);
  EXPECT_EQ(got.breaker.recovered, expected.breaker.recovered);
  EXPECT_EQ(got.breaker.tally.probes, expected.breaker.tally.probes);
  EXPECT_EQ(got.breaker.tally.probe_verdicts, expected.breaker.tally.probe_verdicts);
  EXPECT_EQ(got.breaker.tally.transitions, expected.breaker.tally.transitions);
  EXPECT_EQ(got.breaker.tally.spent, expected.breaker.tally.spent);
  EXPECT_EQ(got.journaled, expected.journaled);
  EXPECT_EQ(got.note.who, expected.note.who);
  EXPECT_EQ(got.note.why, expected.note.why);
  ASSERT_EQ(got.breaker.probes.count, expected.breaker.probes.count);
  for (std::uint32_t i = 0; i < expected.breaker.probes.count; ++i) {
    EXPECT_EQ(got.breaker.probes.id[i], expected.breaker.probes.id[i]) << i;
    EXPECT_EQ(got.breaker.probes.owner[i], expected.breaker.probes.owner[i]) << i;
  }
}

TEST(Record, OfANewBreakerComesBackFromItsWords) {
  Record record;
  record.window_begin = kMinRing;
  const RecordWords words = encode(record);
  EXPECT_EQ(words[word::opened_at], 0U) << "never opened";
  expect_same(decoded(words), record);
}

TEST(Record, WithEveryFieldAtItsLimitComesBackFromItsWords) {
  const Record record = full_record(1'000);
  expect_same(decoded(encode(record)), record);
}

TEST(Record, KeepsProbesWhoseIdentitiesHaveWrapped) {
  const Record record = full_record(kMaxProbeId - 10);
  expect_same(decoded(encode(record)), record);
}

TEST(Record, KeepsProbesWhoseFirstIsNotTheOldest) {
  Record record;
  record.window_begin = kMinRing;
  for (const std::uint64_t id : {std::uint64_t{5'000}, std::uint64_t{2}, kMaxProbeId, std::uint64_t{5'001}})
    record.breaker.probes.add(id, 3);
  expect_same(decoded(encode(record)), record);
}

TEST(Record, KeepsEverySettingInBitsOfItsOwn) {
  // Each setting alone changes the words, and its change comes back alone.
  const Settings base;
  const std::vector<std::function<void(Settings&)>> changes{[](Settings& v) { v.failures = 4; },
                                                            [](Settings& v) { v.window = 11; },
                                                            [](Settings& v) { v.within_ms = 1; },
                                                            [](Settings& v) { v.rate_percent = 1; },
                                                            [](Settings& v) { v.rate_minimum_calls = 1; },
                                                            [](Settings& v) { v.consecutive_failures = 1; },
                                                            [](Settings& v) { v.slow_percent = 1; },
                                                            [](Settings& v) { v.slow_minimum_calls = 1; },
                                                            [](Settings& v) { v.slower_than_ms = 1; },
                                                            [](Settings& v) { v.reopen_on_slow_probe = true; },
                                                            [](Settings& v) { v.cooldown_ms = 1; },
                                                            [](Settings& v) { v.cooldown_jitter = 1; },
                                                            [](Settings& v) { v.cooldown_maximum_ms = 1; },
                                                            [](Settings& v) { v.forget_after_ms = 1; },
                                                            [](Settings& v) { v.probe_timeout_ms = 1; },
                                                            [](Settings& v) { v.success_threshold = 2; },
                                                            [](Settings& v) { v.probe_limit = 2; },
                                                            [](Settings& v) { v.reclaim_dead_probes = true; },
                                                            [](Settings& v) { v.ramp_ms = 1; },
                                                            [](Settings& v) { v.ramp_start_percent = 1; },
                                                            [](Settings& v) { v.revision = 1; }};
  for (const auto& change : changes) {
    Record record;
    record.settings = base;
    change(record.settings);
    EXPECT_NE(record.settings, base);
    EXPECT_EQ(decoded(encode(record)).settings, record.settings);
  }
}

TEST(Record, OfAnOpenBreakerShowsItsOpeningInItsFirstWords) {
  const Record record = full_record(1);
  RecordWords words = encode(record);
  for (std::size_t i = word::opening_end; i < word::end; ++i)
    words[i] = ~std::uint64_t{0};
  Record opening;
  ASSERT_TRUE(decode_opening(words, opening));
  EXPECT_EQ(opening.breaker.opened_at, record.breaker.opened_at);
  EXPECT_EQ(opening.breaker.open_until, record.breaker.open_until);
  EXPECT_EQ(opening.rejected_generation, record.rejected_generation);
}

struct Impossible {
  const char* what;
  std::size_t word;
  std::uint64_t value;
};

TEST(Record, RefusesEachImpossibleOpening) {
  const std::vector<Impossible> cases{
      {"opened beyond the last tick", word::opened_at, kMaxTick + 1},
      {"opened at a negative tick", word::opened_at, ~std::uint64_t{0}},
      {"one probe too many", word::counts, std::uint64_t{kMaxProbes + 1} << 24U},
      {"255 probes", word::counts, 0xFFULL << 24U},
      {"open until beyond the last tick and cooldown", word::open_until, kMaxTick + kMaxDurationMs + 1},
      {"open until a negative tick", word::open_until, ~std::uint64_t{0}},
  };
  for (const Impossible& c : cases) {
    RecordWords words = encode(full_record(1));
    words[c.word] = c.value;
    Record record;
    EXPECT_FALSE(decode_opening(words, record)) << c.what;
  }
}

TEST(Record, RefusesAnImpossibleLease) {
  for (const std::uint64_t lease : {kMaxTick + 1, std::uint64_t{1} << 63U, ~std::uint64_t{0}}) {
    RecordWords words = encode(full_record(1));
    words[word::lease_at] = lease;
    Record record;
    EXPECT_FALSE(decode_state(words, record)) << lease;
  }
}

TEST(Record, RefusesEachImpossibleSetting) {
  const auto pair = [](std::uint64_t high, std::uint64_t low) { return (high << 32U) | low; };
  constexpr std::uint64_t kTooLong = static_cast<std::uint64_t>(kMaxDurationMs) + 1;
  constexpr std::uint64_t kNegative = ~std::uint64_t{0};
  const std::vector<Impossible> cases{
      {"cooldown of nothing", word::cooldown, 0},
      {"cooldown too long", word::cooldown, kTooLong},
      {"cooldown negative", word::cooldown, kNegative},
      {"cooldown multiplied by nothing", word::cooldown_growth, pair(0, 0)},
      {"cooldown multiplied by too much", word::cooldown_growth, pair(kMaxMultiplier + 1, 0)},
      {"jitter of more than the whole", word::cooldown_growth, pair(1, 101)},
      {"growing without a maximum", word::cooldown_maximum, 0},
      {"growing without an end of the growth", word::forget_after, 0},
      {"failure rate over 100", word::rate, pair(101, 1)},
      {"slow rate over 100", word::slow, pair(101, 1)},
      {"slower than a negative time", word::slower_than, kNegative},
      {"ramp too long", word::ramp, kTooLong},
      {"ramp that starts above all", word::ramp_start, 101},
      {"no window", word::ratio, pair(1, 0)},
      {"a window below the failures", word::ratio, pair(11, 10)},
      {"a window that no ring holds", word::ratio, pair(1, kMaxWindow + 1)},
      {"a window that would overflow its capacity", word::ratio, pair(1, 0xFFFF'FFFF)},
      {"within of nothing", word::within, 0},
      {"within too long", word::within, kTooLong},
      {"within negative", word::within, kNegative},
      {"probe timeout of nothing", word::probe_timeout, 0},
      {"probe timeout too long", word::probe_timeout, kTooLong},
      {"probe timeout negative", word::probe_timeout, kNegative},
      {"no successes to close", word::probing, pair(0, 1)},
      {"no probes", word::probing, pair(1, 0)},
      {"more probes than a record holds", word::probing, pair(1, kMaxProbes + 1)},
  };
  for (const Impossible& c : cases) {
    RecordWords words = encode(full_record(1));
    words[c.word] = c.value;
    Settings settings;
    EXPECT_FALSE(decode_settings(words, settings)) << c.what;
  }
  // Also where the cooldown does not grow: they are shown all the same.
  for (const std::size_t unused : {word::cooldown_maximum, word::forget_after}) {
    for (const std::uint64_t value : {kTooLong, kNegative}) {
      Record record = full_record(1);
      record.settings.cooldown_multiplier = 1;
      RecordWords words = encode(record);
      words[unused] = value;
      Settings settings;
      EXPECT_FALSE(decode_settings(words, settings)) << unused << " " << value;
    }
  }
  EXPECT_FALSE(([] {
    Settings settings;
    return decode_settings(RecordWords{}, settings);
  }()))
      << "zeroed memory";
}

TEST(Record, OfAnyBytesIsRefusedOrHoldsWhatTheRulesCanWorkWith) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 100'000; ++round) {
    RecordWords words{};
    for (auto& w : words)
      w = random() >> (random() % 64);
    Record record;
    if (decode_opening(words, record)) {
      ASSERT_LE(record.breaker.probes.count, kMaxProbes);
      ASSERT_GE(record.breaker.opened_at, rules::kNever);
      decode_rest(words, record);
      for (std::uint32_t i = 0; i < record.breaker.probes.count; ++i)
        ASSERT_LE(record.breaker.probes.id[i], kMaxProbeId);
    }
    Settings s;
    if (decode_settings(words, s)) {
      ASSERT_LE(ring_capacity(s.window), kMaxRing);
      ASSERT_LE(static_cast<std::int64_t>(kMaxTick),
                std::numeric_limits<std::int64_t>::max() - s.probe_timeout_ms - s.within_ms);
    }
  }
}

}  // namespace
}  // namespace shmcb::core
