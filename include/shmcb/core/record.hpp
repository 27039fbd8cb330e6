// SPDX-License-Identifier: BSD-3-Clause
// The record: everything about a breaker that changes rarely, as a plain value, and as the words of a RecordCell.
// Decoding checks: words that no correct process writes are an error, never an index.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "shmcb/core/layout.hpp"
#include "shmcb/core/rules.hpp"

namespace shmcb::core {

/// Who set the mode and why, as zero-padded bytes.
struct NoteText {
  std::array<char, kMaxWhoBytes> who{};
  std::array<char, kMaxWhyBytes> why{};

  friend constexpr bool operator==(const NoteText&, const NoteText&) noexcept = default;

  /// The bytes up to the first NUL.
  template <std::size_t kBytes>
  [[nodiscard]] static constexpr std::string_view text(const std::array<char, kBytes>& bytes) noexcept {
    return {bytes.data(), static_cast<std::size_t>(std::find(bytes.begin(), bytes.end(), '\0') - bytes.begin())};
  }

  /// Cuts what is too long; `check` refuses it beforehand.
  [[nodiscard]] static constexpr NoteText of(const Note& note) noexcept {
    NoteText text;
    std::copy_n(note.who.begin(), std::min(note.who.size(), text.who.size()), text.who.begin());
    std::copy_n(note.why.begin(), std::min(note.why.size(), text.why.size()), text.why.begin());
    return text;
  }
};

struct Record {
  rules::Breaker breaker;  // its state, mode and ramp live in the control word
  Settings settings;
  std::uint64_t rejected_generation = 0;  ///< the generation at the last reset of `rejected`
  std::uint64_t window_generation = 0;    ///< the Closed period whose entries the window counts
  std::uint64_t window_begin = 0;         ///< the position at which that period began: nothing before it counts
  std::uint64_t window_end = 0;           ///< the flagged entry that ended it; 0: not ended by a full window
  bool leaves_out = false;                ///< every failure of that period has raised the lean mark
  bool left_out = false;                  ///< successes of that period may have been left out
  std::uint64_t journaled = 0;            ///< how many entries of the journal tell of this breaker
  NoteText note;                          ///< of the mode
};

/// Words of a record, by meaning.
namespace word {
enum Index : std::size_t {
  // What turns a call away in Open:
  opened_at = 0,  // +1; 0: never
  // {probe successes 63..32, probes out 31..24, generation of the rejected reset 23..0}
  counts = 1,
  open_until = 2,
  opening_end = 3,
  // What an outcome is judged by:
  window_begin = 3,
  ratio = 4,  // {failures 63..32, window 31..0}
  within = 5,
  consecutive = 6,  // {lean 32, failures 31..0}
  mode_until = 7,   // +1; 0: no end
  rate = 8,         // {percent 63..32, minimum calls 31..0}
  slow = 9,         // {reopen 63, percent 62..32, minimum calls 31..0}
  slower_than = 10,
  judging_end = 11,
  // The rest of the state:
  lease_at = 11,
  window_end = 12,
  window_generation = 13,
  since = 14,   // +1; 0: not known
  growth = 15,  // {left out 34, leaves out 33, recovered 32, growth of the cooldown 31..0}
  state_end = 16,
  // The rest of the settings:
  cooldown = 16,
  cooldown_growth = 17,  // {multiplier 63..32, jitter 31..0}
  cooldown_maximum = 18,
  forget_after = 19,
  probe_timeout = 20,
  probing = 21,  // {success threshold 63..32, reclaim the dead's 31, probe limit 30..0}
  ramp = 22,
  ramp_start = 23,
  revision = 24,
  settings_end = 25,
  // What only changes need:
  journaled = 25,
  probe_base = 26,    // what the 32-bit probe words are relative to
  probe_ids = 27,     // two of 32 bits a word
  probe_owners = 43,  // four of 16 bits a word
  tally_probes = 51,
  tally_verdicts = 52,
  tally_transitions = 53,  // two of 32 bits a word
  tally_spent = 59,        // by state
  who = 62,
  why = 66,
  end = 78,
};
static_assert(end == kRecordWords && probe_owners - probe_ids == kMaxProbes / 2 &&
              tally_probes - probe_owners == kMaxProbes / 4 &&
              tally_spent - tally_transitions == kTransitionReasons / 2 && why - who == kMaxWhoBytes / 8 &&
              end - why == kMaxWhyBytes / 8);
}  // namespace word

using RecordWords = std::array<std::uint64_t, kRecordWords>;

[[nodiscard]] constexpr Successes successes_of(const Record& record) noexcept {
  if (record.settings.times_calls()) return Successes::timed;
  if (record.settings.judges_successes()) return Successes::judged;
  return record.settings.lean && record.leaves_out ? Successes::left_out : Successes::written;
}

/// What the control word says about a breaker that this record describes.
[[nodiscard]] constexpr Marks marks_of(const Record& record) noexcept {
  return {.state = record.breaker.state,
          .mode = record.breaker.mode,
          .ramping = record.breaker.ramping,
          .successes = successes_of(record)};
}

namespace coding {

[[nodiscard]] constexpr std::uint64_t pair(std::uint64_t high, std::uint64_t low) noexcept {
  return (high << 32U) | low;
}
[[nodiscard]] constexpr std::uint32_t high(std::uint64_t word) noexcept {
  return static_cast<std::uint32_t>(word >> 32U);
}
[[nodiscard]] constexpr std::uint32_t low(std::uint64_t word) noexcept {
  return static_cast<std::uint32_t>(word);
}
/// A tick or kNever, as 0 and up.
[[nodiscard]] constexpr std::uint64_t or_never(rules::Tick tick) noexcept {
  return static_cast<std::uint64_t>(tick + 1);
}
[[nodiscard]] constexpr rules::Tick tick_or_never(std::uint64_t word) noexcept {
  return static_cast<rules::Tick>(word & low_bits(62)) - 1;
}

constexpr void encode_settings(const Settings& s, RecordWords& words) noexcept {
  words[word::ratio] = pair(s.failures, s.window);
  words[word::within] = static_cast<std::uint64_t>(s.within_ms);
  words[word::rate] = pair(s.rate_percent, s.rate_minimum_calls);
  words[word::slow] = (flag(s.reopen_on_slow_probe) << 63U) | pair(s.slow_percent, s.slow_minimum_calls);
  words[word::slower_than] = static_cast<std::uint64_t>(s.slower_than_ms);
  words[word::consecutive] = pair(flag(s.lean), s.consecutive_failures);
  words[word::cooldown] = static_cast<std::uint64_t>(s.cooldown_ms);
  words[word::cooldown_growth] = pair(s.cooldown_multiplier, s.cooldown_jitter);
  words[word::cooldown_maximum] = static_cast<std::uint64_t>(s.cooldown_maximum_ms);
  words[word::forget_after] = static_cast<std::uint64_t>(s.forget_after_ms);
  words[word::probe_timeout] = static_cast<std::uint64_t>(s.probe_timeout_ms);
  words[word::probing] = pair(s.success_threshold, (flag(s.reclaim_dead_probes) << 31U) | s.probe_limit);
  words[word::ramp] = static_cast<std::uint64_t>(s.ramp_ms);
  words[word::ramp_start] = s.ramp_start_percent;
  words[word::revision] = s.revision;
}

constexpr void encode_probes(const rules::Probes& probes, RecordWords& words) noexcept {
  // Identities lie close together (2^31 changes would have to lie between two probes that are out), so each is kept as
  // its distance from the first.
  const std::uint64_t base = probes.count > 0 ? probes.id[0] : 0;
  words[word::probe_base] = base;
  for (std::uint32_t i = 0; i < probes.count; ++i) {
    words[word::probe_ids + i / 2] |= ((probes.id[i] - base) & low_bits(32)) << (i % 2 * 32);
    words[word::probe_owners + i / 4] |= std::uint64_t{probes.owner[i]} << (i % 4 * 16);
  }
}

template <std::size_t kBytes>
constexpr void encode_text(const std::array<char, kBytes>& text, std::uint64_t* words) noexcept {
  for (std::size_t i = 0; i < kBytes; ++i)
    words[i / 8] |= std::uint64_t{static_cast<unsigned char>(text[i])} << (i % 8 * 8);
}
template <std::size_t kBytes>
constexpr void decode_text(const std::uint64_t* words, std::array<char, kBytes>& text) noexcept {
  for (std::size_t i = 0; i < kBytes; ++i)
    text[i] = static_cast<char>((words[i / 8] >> (i % 8 * 8)) & 0xFFU);
}

}  // namespace coding

[[nodiscard]] constexpr RecordWords encode(const Record& record) noexcept {
  RecordWords words{};
  const rules::Breaker& b = record.breaker;
  words[word::opened_at] = coding::or_never(b.opened_at);
  words[word::counts] =
      coding::pair(b.probe_successes, (std::uint64_t{b.probes.count} << 24U) | record.rejected_generation);
  words[word::open_until] = static_cast<std::uint64_t>(b.open_until);
  words[word::lease_at] = static_cast<std::uint64_t>(b.lease_at);
  words[word::window_begin] = record.window_begin;
  words[word::window_end] = record.window_end;
  words[word::window_generation] = record.window_generation;
  words[word::since] = coding::or_never(b.since);
  words[word::mode_until] = coding::or_never(b.mode_until);
  words[word::growth] =
      coding::pair(flag(b.recovered) | (flag(record.leaves_out) << 1U) | (flag(record.left_out) << 2U), b.growth);
  coding::encode_settings(record.settings, words);
  words[word::journaled] = record.journaled;
  coding::encode_probes(b.probes, words);
  words[word::tally_probes] = b.tally.probes;
  words[word::tally_verdicts] = b.tally.probe_verdicts;
  for (std::size_t i = 0; i < kTransitionReasons; ++i)
    words[word::tally_transitions + i / 2] |= std::uint64_t{b.tally.transitions[i]} << (i % 2 * 32);
  for (std::size_t i = 0; i < b.tally.spent.size(); ++i)
    words[word::tally_spent + i] = static_cast<std::uint64_t>(b.tally.spent[i]);
  coding::encode_text(record.note.who, &words[word::who]);
  coding::encode_text(record.note.why, &words[word::why]);
  return words;
}

/// The settings that an outcome is judged by; false: corrupt.
[[nodiscard]] constexpr bool decode_rules(const RecordWords& words, Settings& s) noexcept {
  s.failures = coding::high(words[word::ratio]);
  s.window = coding::low(words[word::ratio]);
  s.within_ms = static_cast<std::int64_t>(words[word::within]);
  s.consecutive_failures = coding::low(words[word::consecutive]);
  s.lean = coding::high(words[word::consecutive]) != 0;
  s.rate_percent = coding::high(words[word::rate]);
  s.rate_minimum_calls = coding::low(words[word::rate]);
  s.slow_percent = coding::high(words[word::slow]) & 0x7FFF'FFFFU;
  s.slow_minimum_calls = coding::low(words[word::slow]);
  s.reopen_on_slow_probe = words[word::slow] >> 63U != 0;
  s.slower_than_ms = static_cast<std::int64_t>(words[word::slower_than]);
  // One comparison each: what is too small is very large without its sign.
  return s.window - 1 < kMaxWindow && s.window >= s.failures &&
         words[word::within] - 1 < std::uint64_t{kMaxDurationMs} && s.rate_percent <= 100 && s.slow_percent <= 100 &&
         words[word::slower_than] <= std::uint64_t{kMaxDurationMs};
}

/// All settings; false: corrupt.
[[nodiscard]] constexpr bool decode_settings(const RecordWords& words, Settings& s) noexcept {
  using coding::high;
  using coding::low;
  if (!decode_rules(words, s)) return false;
  const auto ms = [&words](std::size_t index) { return static_cast<std::int64_t>(words[index]); };
  s.cooldown_ms = ms(word::cooldown);
  s.cooldown_multiplier = high(words[word::cooldown_growth]);
  s.cooldown_jitter = low(words[word::cooldown_growth]);
  s.cooldown_maximum_ms = ms(word::cooldown_maximum);
  s.forget_after_ms = ms(word::forget_after);
  s.probe_timeout_ms = ms(word::probe_timeout);
  s.success_threshold = high(words[word::probing]);
  s.probe_limit = low(words[word::probing]) & 0x7FFF'FFFFU;
  s.reclaim_dead_probes = (words[word::probing] >> 31U & 1U) != 0;
  s.ramp_ms = ms(word::ramp);
  s.ramp_start_percent = low(words[word::ramp_start]);
  s.revision = words[word::revision];
  constexpr auto duration = [](std::int64_t value) { return value >= 1 && value <= kMaxDurationMs; };
  constexpr auto duration_or_none = [](std::int64_t value) { return value >= 0 && value <= kMaxDurationMs; };
  return duration(s.cooldown_ms) && duration_or_none(s.cooldown_maximum_ms) && duration_or_none(s.forget_after_ms) &&
         (s.cooldown_multiplier == 1 || (s.cooldown_maximum_ms != 0 && s.forget_after_ms != 0)) &&
         s.cooldown_multiplier >= 1 && s.cooldown_multiplier <= kMaxMultiplier && s.cooldown_jitter <= 100 &&
         duration(s.probe_timeout_ms) && s.success_threshold >= 1 && s.probe_limit >= 1 &&
         s.probe_limit <= kMaxProbes && duration_or_none(s.ramp_ms) && s.ramp_start_percent <= 100;
}

constexpr std::uint64_t kMaxTick = low_bits(48);

/// What turns a call away in Open, without the rest of a record.
struct Opening {
  rules::Tick opened_at = rules::kNever;
  rules::Tick open_until = 0;
  std::uint32_t probe_successes = 0;
  std::uint32_t probes_out = 0;
  std::uint64_t rejected_generation = 0;

  /// From the words of a record by these names.
  [[nodiscard]] static constexpr Opening of(std::uint64_t opened_at, std::uint64_t counts,
                                            std::uint64_t open_until) noexcept {
    return {.opened_at = static_cast<rules::Tick>(opened_at - 1),
            .open_until = static_cast<rules::Tick>(open_until),
            .probe_successes = coding::high(counts),
            .probes_out = (coding::low(counts) >> 24U) & 0xFFU,
            .rejected_generation = counts & low_bits(24)};
  }
  /// False: corrupt. (What is negative is too large without its sign.)
  [[nodiscard]] constexpr bool valid() const noexcept {
    return static_cast<std::uint64_t>(opened_at) + 1 <= kMaxTick && probes_out <= kMaxProbes &&
           static_cast<std::uint64_t>(open_until) <= kMaxTick + kMaxDurationMs;
  }
};

/// What a failure is judged by where the number of failures is the only rule.
struct RatioRule {
  std::uint32_t failures = 0;
  std::uint32_t window = 1;
  std::int64_t within_ms = 1;
  bool lean = false;
  bool alone = true;
  std::uint64_t window_begin = 0;

  /// From the words of a record by these names.
  [[nodiscard]] static constexpr RatioRule of(std::uint64_t window_begin, std::uint64_t ratio, std::uint64_t within,
                                              std::uint64_t consecutive) noexcept {
    return {.failures = coding::high(ratio),
            .window = coding::low(ratio),
            .within_ms = static_cast<std::int64_t>(within),
            .lean = coding::high(consecutive) != 0,
            .alone = coding::low(consecutive) == 0,
            .window_begin = window_begin};
  }
  [[nodiscard]] constexpr bool valid() const noexcept {
    return alone && failures != 0 && window != 0 && within_ms >= 1 && within_ms <= kMaxDurationMs;
  }
};

/// What an outcome of a Closed period is judged by, without the rest of a record.
struct Judging {
  rules::Tick opened_at = rules::kNever;
  Mode mode = Mode::automatic;
  rules::Tick mode_until = rules::kNever;
  std::uint64_t window_begin = 0;
  Settings settings;  ///< those that decode_rules knows
};

/// The words before judging_end but the mode, which the control word says; false: corrupt.
[[nodiscard]] constexpr bool decode_judging(const RecordWords& words, Judging& judging) noexcept {
  judging.opened_at = coding::tick_or_never(words[word::opened_at]);
  judging.mode_until = coding::tick_or_never(words[word::mode_until]);
  judging.window_begin = words[word::window_begin];
  return words[word::opened_at] <= kMaxTick && words[word::mode_until] <= kMaxTick + kMaxDurationMs &&
         decode_rules(words, judging.settings);
}

/// The words before opening_end into a record. State, mode and ramp are set by the caller, from the control word.
[[nodiscard]] constexpr bool decode_opening(const RecordWords& words, Record& record) noexcept {
  const Opening opening = Opening::of(words[word::opened_at], words[word::counts], words[word::open_until]);
  if (!opening.valid()) return false;
  record.breaker.opened_at = opening.opened_at;
  record.breaker.open_until = opening.open_until;
  record.breaker.probe_successes = opening.probe_successes;
  record.breaker.probes.count = opening.probes_out;
  record.rejected_generation = opening.rejected_generation;
  return true;
}

/// The state among the words before state_end; false: corrupt.
[[nodiscard]] constexpr bool decode_state(const RecordWords& words, Record& record) noexcept {
  record.breaker.lease_at = static_cast<rules::Tick>(words[word::lease_at]);
  record.window_begin = words[word::window_begin];
  record.window_end = words[word::window_end];
  record.window_generation = words[word::window_generation];
  record.breaker.since = coding::tick_or_never(words[word::since]);
  record.breaker.mode_until = coding::tick_or_never(words[word::mode_until]);
  record.breaker.growth = coding::low(words[word::growth]);
  record.breaker.recovered = (coding::high(words[word::growth]) & 1U) != 0;
  record.leaves_out = (coding::high(words[word::growth]) & 2U) != 0;
  record.left_out = (coding::high(words[word::growth]) & 4U) != 0;
  return words[word::lease_at] <= kMaxTick && words[word::since] <= kMaxTick &&
         words[word::mode_until] <= kMaxTick + kMaxDurationMs;
}

/// What only changes need; requires that decode_opening accepted the words.
constexpr void decode_rest(const RecordWords& words, Record& record) noexcept {
  record.journaled = words[word::journaled];
  rules::Probes& probes = record.breaker.probes;
  for (std::uint32_t i = 0; i < probes.count; ++i) {
    const auto distance = static_cast<std::int32_t>((words[word::probe_ids + i / 2] >> (i % 2 * 32)) & low_bits(32));
    probes.id[i] = (words[word::probe_base] + static_cast<std::uint64_t>(std::int64_t{distance})) & low_bits(36);
    probes.owner[i] = static_cast<std::uint16_t>((words[word::probe_owners + i / 4] >> (i % 4 * 16)) & 0xFFFFU);
  }
  rules::Tally& tally = record.breaker.tally;
  tally.probes = words[word::tally_probes];
  tally.probe_verdicts = words[word::tally_verdicts];
  for (std::size_t i = 0; i < kTransitionReasons; ++i)
    tally.transitions[i] = static_cast<std::uint32_t>(words[word::tally_transitions + i / 2] >> (i % 2 * 32));
  // Sums of durations: whatever stands here is a number, and is kept from overflowing.
  for (std::size_t i = 0; i < tally.spent.size(); ++i)
    tally.spent[i] = static_cast<rules::Tick>(words[word::tally_spent + i] & low_bits(60));
  coding::decode_text(&words[word::who], record.note.who);
  coding::decode_text(&words[word::why], record.note.why);
}

}  // namespace shmcb::core
