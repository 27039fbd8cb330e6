// SPDX-License-Identifier: BSD-3-Clause
// Random histories with random policies on two storages at once: whatever is asked, both say the same. What is right is
// for the traces to say; these go where nobody has thought of going.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "shmcb/failure.hpp"
#include "shmcb/memory_storage.hpp"
#include "shmcb/shm_storage.hpp"
#include "storages/shown_answers.hpp"
#include "support/random_input.hpp"
#include "support/test_segment.hpp"

namespace shmcb::test {
namespace {

constexpr std::array kStates{CircuitState::closed, CircuitState::open, CircuitState::half_open};
constexpr std::array kSetModes{Mode::automatic, Mode::forced_open, Mode::forced_closed, Mode::disabled, Mode::observe};

[[nodiscard]] BreakerConfig random_config(Chance& chance) {
  const std::uint32_t window = chance.percent(90) ? chance.from_to(1, 12) : chance.from_to(1, 200);
  const auto up_to_window = [&] { return chance.from_to(1, window); };
  BreakerConfig config{.name = "same",
                       .failure_threshold = {.failures = up_to_window(),
                                             .window = window,
                                             .within = chance.millis({1, 10, 100, 1'000, kMaxDurationMs})},
                       .cooldown = {.base = chance.millis({1, 3, 10, 50, 100})},
                       .success_threshold = chance.from_to(1, 3),
                       .probe_limit = chance.percent(95) ? chance.from_to(1, 3) : kMaxProbes,
                       .reclaim_dead_probes = chance.percent(20)};
  if (chance.percent(80)) config.probe_timeout = chance.millis({1, 10, 30, 100});
  if (chance.percent(40)) {
    config.failure_rate = {.percent = chance.from_to(1, 100), .minimum_calls = up_to_window()};
  }
  if (chance.percent(40)) config.consecutive_failures = {.failures = up_to_window()};
  if (chance.percent(40)) {
    config.slow_calls = {.slower_than = chance.millis({1, 5, 20}),
                         .percent = chance.from_to(1, 100),
                         .minimum_calls = up_to_window(),
                         .reopen_on_slow_probe = chance.percent(50)};
  }
  const bool others = config.failure_rate || config.consecutive_failures || config.slow_calls;
  if (others && chance.percent(60)) config.failure_threshold.failures = 0;
  Cooldown& cooldown = config.cooldown;
  if (chance.percent(60)) cooldown.multiplier = chance.one_of(std::array{2U, 3U, 10U, kMaxMultiplier});
  if (chance.percent(40)) cooldown.maximum = cooldown.base * chance.from_to(1, 100);
  if (chance.percent(50)) cooldown.jitter = chance.from_to(0, 100);
  if (chance.percent(50)) cooldown.forget_after = chance.millis({1, 20, 100});
  if (chance.percent(50)) {
    config.ramp_up = {.duration = chance.millis({1, 7, 100, 1'000}), .start_percent = chance.from_to(0, 100)};
  }
  return config;
}

/// One history. Tokens are handed back to the storage that issued them.
class History {
 public:
  using Memory = MemoryStorage<FakeClock, FakeRandom>;
  using Shm = ShmStorage<FakeClock, FakeRandom>;

  explicit History(std::uint64_t seed)
      : chance_(seed),
        config_(random_config(chance_)),
        failing_(chance_.from_to(0, 100)),
        memory_(Memory::open(config_, clock_, random_).value()),
        segment_({.name = unique_segment_name(),
                  .breakers = 1,
                  .ring_slots = core::ring_capacity(config_.failure_threshold.window),
                  .participants = 2,
                  .epoch = clock_.now()}),
        shm_{Shm::open(segment_.segment(), config_, OnMismatch::refuse, clock_, random_).value(),
             Shm::open(segment_.attach(), config_, OnMismatch::refuse, clock_, random_).value()} {}

  /// Empty, or what was done and where the answers part.
  [[nodiscard]] std::string run(int operations) {
    for (int i = 0; i < operations; ++i) {
      now_ += advance();
      clock_.set(now_);
      random_.set(chance_.from_to(0, rules::kDraws - 1));
      done_.append("\n  ").append(shown(now_)).append(" ");
      const bool same = operate() && look();
      if (!same) return done_;
    }
    return {};
  }

 private:
  /// Nothing, a little, to where something is due or just before it; now and then back.
  [[nodiscard]] Micros advance() {
    const Micros into{chance_.from_to(0, 999)};
    if (chance_.percent(30)) return Micros{0};
    if (chance_.percent(4)) return -std::min<Micros>(now_ - start_, Micros{chance_.from_to(0, 60'000)});
    if (chance_.percent(50)) return Millis{chance_.from_to(0, 7)} + into;
    const Settings& s = memory_.settings();
    const std::array due{wait_.count(),     s.within_ms,      s.slower_than_ms, s.probe_timeout_ms, s.ramp_ms,
                         s.forget_after_ms, std::int64_t{20}, wait_.count(),    wait_.count()};
    const std::int64_t ms = std::min<std::int64_t>(chance_.one_of(due), 10'000);
    return std::max<Micros>(Micros{0}, Millis{ms} + Micros{chance_.from_to(0, 2)} - Micros{1});
  }

  [[nodiscard]] bool operate() {
    const std::uint32_t roll = chance_.from_to(0, 99);
    if (roll < 50 || tokens_.empty()) return admit();
    if (roll < 92) return record();
    if (roll < 95) {
      const auto [memory, shared] = token();
      return same("abandon", memory_.abandon(memory), shm().abandon(shared));
    }
    if (roll < 97) {
      const CircuitState state = chance_.one_of(kStates);
      const std::string what = "force " + std::string{to_string(state)};
      return same(what, memory_.force_state(state), shm().force_state(state));
    }
    ModeRequest request{.mode = chance_.percent(40) ? Mode::automatic : chance_.one_of(kSetModes)};
    if (request.mode != Mode::automatic && chance_.percent(60)) request.expires_after = chance_.millis({1, 20, 100});
    wait_ = request.expires_after.value_or(Millis{1});
    const std::string what =
        "mode " + std::string{to_string(request.mode)} + " for " + std::to_string(wait_.count()) + " ms";
    return same(what, memory_.set_mode(request), shm().set_mode(request));
  }

  [[nodiscard]] bool admit() {
    const AdmitResult memory = memory_.admit();
    const AdmitResult shared = shm().admit();
    tokens_.emplace_back(memory.token, shared.token);
    if (memory.admission == Admission::rejected) wait_ = std::min(memory.retry_after, Millis{1'000});
    return same("admit", memory, shared) && same("token", std::to_string(static_cast<int>(memory.token.admission)),
                                                 std::to_string(static_cast<int>(shared.token.admission)));
  }

  [[nodiscard]] bool record() {
    const auto [memory, shared] = token();
    const bool fails = chance_.percent(memory.admission == Admission::probe ? 25 : failing_);
    const Outcome outcome = fails ? Outcome::failure : chance_.percent(15) ? Outcome::ignored : Outcome::success;
    CompletedAt at;
    if (chance_.percent(10)) at = std::max(start_, now_ - Micros{chance_.from_to(0, 30'000)});
    const std::string what = "record " + std::string{to_string(outcome)} + " at " + (at ? shown(*at) : "now");
    return same(what, memory_.record_outcome(memory, outcome, at), shm().record_outcome(shared, outcome, at));
  }

  /// Most often one that was not recorded yet.
  [[nodiscard]] std::pair<Token, Token> token() {
    const auto last = static_cast<std::uint32_t>(tokens_.size()) - 1;
    const std::uint32_t index = chance_.percent(50) ? last : chance_.from_to(0, last);
    const auto result = tokens_[index];
    if (chance_.percent(90)) tokens_.erase(tokens_.begin() + index);
    return result;
  }

  [[nodiscard]] bool look() {
    return same("snapshot", shown(memory_.snapshot().record), shown(shm().snapshot().record)) &&
           same("peek", memory_.peek(), shm().peek()) && same("counters", memory_.counters(), shm().counters());
  }

  [[nodiscard]] Shm& shm() { return shm_[chance_.from_to(0, 1)]; }

  template <class Answer>
  [[nodiscard]] bool same(std::string_view what, const Answer& memory, const Answer& shm) {
    return same(what, shown(memory), shown(shm));
  }
  [[nodiscard]] bool same(std::string_view what, const std::string& memory, const std::string& shm) {
    done_.append(what).append(": ").append(memory).append("; ");
    if (memory == shm) return true;
    done_.append("\n  but in shared memory: ").append(shm);
    return false;
  }

  Chance chance_;
  BreakerConfig config_;
  std::uint32_t failing_;
  Instant start_{std::chrono::hours{1}};
  Instant now_ = start_;
  FakeClock clock_{start_};
  FakeRandom random_;
  Memory memory_;
  TestSegment segment_;
  std::array<Shm, 2> shm_;  // attached twice, as two processes are
  std::vector<std::pair<Token, Token>> tokens_;
  Millis wait_{1};
  std::string done_;
};

TEST(Storages, GiveTheSameAnswersToRandomHistoriesWithRandomPolicies) {
  constexpr int kHistories = 2'000;  // arbitrary: some seconds
  constexpr int kOperations = 60;    // arbitrary: an outage or two with their recoveries
  const std::uint64_t seed = test_seed();
  for (std::uint64_t i = 0; i < kHistories; ++i) {
    History history{seed + i};  // history i alone: SHMCB_TEST_SEED = seed + i
    const std::string parted = history.run(kOperations);
    ASSERT_TRUE(parted.empty()) << "SHMCB_TEST_SEED=" << seed + i << ":" << parted;
  }
}

}  // namespace
}  // namespace shmcb::test
