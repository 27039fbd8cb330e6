// SPDX-License-Identifier: BSD-3-Clause
// The record: everything about a breaker that changes rarely, as a plain value, and as the words of a RecordCell.
// Decoding checks: words that no correct process writes are an error, never an index.
#pragma once

#include <array>
#include <cstdint>

#include "shmcb/core/layout.hpp"
#include "shmcb/core/rules.hpp"

namespace shmcb::core {

struct Record {
  rules::Breaker breaker;  // its `state` lives in the control word
  Settings settings;
  std::uint64_t rejected_generation = 0;  ///< the generation at the last reset of `rejected`
  std::uint64_t window_generation = 0;    ///< the Closed period whose entries the window counts
  std::uint64_t window_begin = 0;         ///< the position at which that period began: nothing before it counts
  std::uint64_t window_end = 0;           ///< the flagged entry that ended it; 0: not ended by a full window
  std::uint64_t journaled = 0;            ///< how many entries of the journal tell of this breaker
};

/// Words of a record, by meaning. Policies, growing cooldowns and modes will use the reserved ones.
namespace word {
enum Index : std::size_t {
  // What turns a call away in Open:
  opened_at = 0,  // +1; 0: never
  // {probe successes 63..32, probes out 31..24, generation of the rejected reset 23..0}
  counts = 1,
  cooldown = 2,
  opening_end = 3,
  // The rest of the state:
  lease_at = 3,
  window_begin = 4,
  window_end = 5,
  window_generation = 6,
  probe_base = 7,  // what the 32-bit probe words are relative to
  journaled = 8,
  reserved_state = 9,
  state_end = 10,
  // The rest of the settings:
  ratio = 10,  // {failures 63..32, window 31..0}
  within = 11,
  probe_timeout = 12,
  probing = 13,  // {success threshold 63..32, probe limit 31..0}
  revision = 14,
  reserved_settings = 15,  // 15 to 21
  probe_ids = 22,          // two of 32 bits a word
  probe_owners = 38,       // four of 16 bits a word
  end = 46,
};
static_assert(end == kRecordWords && probe_owners - probe_ids == kMaxProbes / 2 &&
              end - probe_owners == kMaxProbes / 4);
}  // namespace word

using RecordWords = std::array<std::uint64_t, kRecordWords>;

[[nodiscard]] constexpr RecordWords encode(const Record& record) noexcept {
  RecordWords words{};
  const rules::Breaker& b = record.breaker;
  const Settings& s = record.settings;
  words[word::opened_at] = static_cast<std::uint64_t>(b.opened_at + 1);
  words[word::lease_at] = static_cast<std::uint64_t>(b.lease_at);
  words[word::counts] =
      (std::uint64_t{b.probe_successes} << 32U) | (std::uint64_t{b.probes.count} << 24U) | record.rejected_generation;
  words[word::window_begin] = record.window_begin;
  words[word::window_end] = record.window_end;
  words[word::window_generation] = record.window_generation;
  words[word::journaled] = record.journaled;
  words[word::ratio] = (std::uint64_t{s.failures} << 32U) | s.window;
  words[word::within] = static_cast<std::uint64_t>(s.within_ms);
  words[word::cooldown] = static_cast<std::uint64_t>(s.cooldown_ms);
  words[word::probe_timeout] = static_cast<std::uint64_t>(s.probe_timeout_ms);
  words[word::probing] = (std::uint64_t{s.success_threshold} << 32U) | s.probe_limit;
  words[word::revision] = s.revision;
  // Identities lie close together (2^31 changes would have to lie between two probes that are out), so each is kept as
  // its distance from the first.
  const std::uint64_t base = b.probes.count > 0 ? b.probes.id[0] : 0;
  words[word::probe_base] = base;
  for (std::uint32_t i = 0; i < b.probes.count; ++i) {
    words[word::probe_ids + i / 2] |= ((b.probes.id[i] - base) & low_bits(32)) << (i % 2 * 32);
    words[word::probe_owners + i / 4] |= std::uint64_t{b.probes.owner[i]} << (i % 4 * 16);
  }
  return words;
}

/// The settings but the cooldown; false: corrupt.
[[nodiscard]] constexpr bool decode_settings(const RecordWords& words, Settings& s) noexcept {
  s.failures = static_cast<std::uint32_t>(words[word::ratio] >> 32U);
  s.window = static_cast<std::uint32_t>(words[word::ratio] & low_bits(32));
  s.within_ms = static_cast<std::int64_t>(words[word::within]);
  s.probe_timeout_ms = static_cast<std::int64_t>(words[word::probe_timeout]);
  s.success_threshold = static_cast<std::uint32_t>(words[word::probing] >> 32U);
  s.probe_limit = static_cast<std::uint32_t>(words[word::probing] & low_bits(32));
  s.revision = words[word::revision];
  constexpr auto duration = [](std::int64_t ms) { return ms >= 1 && ms <= kMaxDurationMs; };
  return s.failures >= 1 && s.window >= s.failures && s.window <= kMaxWindow && duration(s.within_ms) &&
         duration(s.probe_timeout_ms) && s.success_threshold >= 1 && s.probe_limit >= 1 && s.probe_limit <= kMaxProbes;
}

constexpr std::uint64_t kMaxTick = low_bits(48);

/// The words before opening_end; false: corrupt. `breaker.state` is set by the caller, from the control word.
[[nodiscard]] constexpr bool decode_opening(const RecordWords& words, Record& record) noexcept {
  record.breaker.opened_at = static_cast<rules::Tick>(words[word::opened_at] & low_bits(62)) - 1;
  record.breaker.probe_successes = static_cast<std::uint32_t>(words[word::counts] >> 32U);
  record.breaker.probes.count = static_cast<std::uint32_t>((words[word::counts] >> 24U) & 0xFFU);
  record.rejected_generation = words[word::counts] & low_bits(24);
  record.settings.cooldown_ms = static_cast<std::int64_t>(words[word::cooldown]);
  return words[word::opened_at] <= kMaxTick && record.breaker.probes.count <= kMaxProbes &&
         record.settings.cooldown_ms >= 1 && record.settings.cooldown_ms <= kMaxDurationMs;
}

/// The words from there to state_end; false: corrupt.
[[nodiscard]] constexpr bool decode_state(const RecordWords& words, Record& record) noexcept {
  record.breaker.lease_at = static_cast<rules::Tick>(words[word::lease_at]);
  record.window_begin = words[word::window_begin];
  record.window_end = words[word::window_end];
  record.window_generation = words[word::window_generation];
  record.journaled = words[word::journaled];
  return words[word::lease_at] <= kMaxTick;
}

/// The probes; requires that decode_opening accepted the words.
constexpr void decode_probes(const RecordWords& words, Record& record) noexcept {
  rules::Probes& probes = record.breaker.probes;
  for (std::uint32_t i = 0; i < probes.count; ++i) {
    const auto distance = static_cast<std::int32_t>((words[word::probe_ids + i / 2] >> (i % 2 * 32)) & low_bits(32));
    probes.id[i] = (words[word::probe_base] + static_cast<std::uint64_t>(std::int64_t{distance})) & low_bits(36);
    probes.owner[i] = static_cast<std::uint16_t>((words[word::probe_owners + i / 4] >> (i % 4 * 16)) & 0xFFFFU);
  }
}

}  // namespace shmcb::core
