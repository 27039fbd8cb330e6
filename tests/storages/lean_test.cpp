// SPDX-License-Identifier: BSD-3-Clause
// Lean accounting against exact accounting: the recorded traces, and random histories on a breaker of each kind. Every
// answer is the same but `successes`, which may be fewer; where instants of outcomes go back, times may be earlier too.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "common/trace.hpp"
#include "common/trace_runner.hpp"
#include "conformance_suite.hpp"
#include "shmcb/breaker_group.hpp"
#include "shmcb/failure.hpp"
#include "shmcb/shm_storage.hpp"
#include "storages/shown_answers.hpp"
#include "support/processes.hpp"
#include "support/random_input.hpp"
#include "support/test_segment.hpp"

namespace shmcb::test {
namespace {

using Breaker = ShmStorage<FakeClock, FakeRandom>;

[[nodiscard]] BreakerConfig made_lean(BreakerConfig config) {
  config.accounting = Accounting::lean;
  return config;
}

/// Outcomes that stand in the ring of the only breaker.
[[nodiscard]] std::uint64_t written(const Segment& segment) {
  const auto view = segment.view();
  auto* cells = view.breaker(0);
  if (cells == nullptr) return 0;
  const core::RingWord word{cells->ring.load()};
  const core::Ring<core::StdEnv> ring(view.ring(word), word.capacity(), &cells->hint);
  core::Ring<core::StdEnv>::Tail tail;
  return ring.locate_tail(tail) ? tail.position - cells->first.load() : 0;
}

// ---- recorded traces

struct Replayed {
  std::size_t traces = 0;      ///< but those whose rules need the number of successes, which are refused
  std::uint64_t left_out = 0;  ///< successes that no ring has
  std::size_t fewer = 0;       ///< answers with fewer successes
  std::size_t deviations = 0;  ///< other ones
};

/// Replays the traces of a file with lean accounting.
void replay_lean(const std::string& file, const replay::Timing& timing, Replayed& replayed) {
  for (const replay::Trace& trace : replay::read_trace_file(SHMCB_TEST_DATA_DIR "/" + file)) {
    const BreakerConfig config = made_lean(trace.config);
    if (check(config)) {
      EXPECT_TRUE(config.failure_rate || config.slow_calls) << trace.place;
      continue;
    }
    ++replayed.traces;
    FakeClock clock{timing.start};
    FakeRandom random;
    const TestSegment segment(
        {.name = unique_segment_name(), .breakers = 1, .ring_slots = 8192, .participants = 1, .epoch = clock.now()});
    auto storage = Breaker::open(segment.segment(), config, OnMismatch::refuse, clock, random);
    ASSERT_TRUE(storage) << trace.place << ": " << storage.error().message;
    for (const replay::Deviation& deviation : replay::run(trace, *storage, clock, random, timing)) {
      if (deviation.field == "successes" && std::stoull(deviation.got) < std::stoull(deviation.expected)) {
        ++replayed.fewer;
        continue;
      }
      ++replayed.deviations;
      ADD_FAILURE() << trace.place << ": " << replay::to_string(deviation);
    }
    const Counters counters = storage->counters().counters;
    replayed.left_out += counters.successes + counters.failures - written(segment.segment());
  }
}

TEST(LeanAccounting, AnswersTheRecordedTracesButForFewerSuccesses) {
  std::vector<std::string> files = policy_files();
  files.insert(files.end(), {"conformance/agreed.jsonl", "conformance/strict.jsonl", "conformance/clock.jsonl"});
  for (const Micros into : {Micros{0}, Micros{999}}) {
    for (const std::string& file : files) {
      SCOPED_TRACE(file);
      Replayed r;
      replay_lean(file, {.into_the_tick = into}, r);
      EXPECT_EQ(r.deviations, 0U);
      EXPECT_GT(r.traces, 0U);
      EXPECT_GT(r.left_out, 0U) << "nothing was left out";
      EXPECT_GT(r.fewer, 0U);
    }
  }
}

/// What no recorded trace asks: an outcome that was left out has no time, and so does not hold back a failure that is
/// reported with an earlier instant.
TEST(LeanAccounting, LetsAFailureOpenAtItsOwnInstantBehindALeftOutSuccessOfALaterOne) {
  for (const Accounting accounting : {Accounting::exact, Accounting::lean}) {
    FakeClock clock;
    const TestSegment segment({.name = unique_segment_name(), .breakers = 1, .participants = 1, .epoch = clock.now()});
    auto breaker =
        Breaker::open(segment.segment(),
                      {.name = "b", .failure_threshold = {.failures = 1, .window = 2}, .accounting = accounting},
                      OnMismatch::refuse, clock, FakeRandom{})
            .value();
    const Token token = breaker.admit().token;
    const Instant early = clock.now() + Millis{50};
    const Instant late = clock.now() + Millis{100};
    ASSERT_EQ(breaker.record_outcome(token, Outcome::success, late).status, RecordStatus::counted);
    const RecordResult opens = breaker.record_outcome(token, Outcome::failure, early);
    ASSERT_TRUE(opens.transition.has_value());
    EXPECT_EQ(opens.transition->occurred_at, accounting == Accounting::lean ? early : late);
  }
}

// ---- one breaker

/// Counts how often it is read.
struct CountingClock {
  std::shared_ptr<int> reads = std::make_shared<int>(0);
  [[nodiscard]] Instant now() const noexcept {
    ++*reads;
    return Instant{std::chrono::hours{1}};
  }
};

[[nodiscard]] TestSegment segment_of_one() {
  return TestSegment(
      {.name = unique_segment_name(), .breakers = 1, .participants = 4, .epoch = Instant{std::chrono::hours{1}}});
}
[[nodiscard]] BreakerConfig lean_config() {
  return {.name = "b", .failure_threshold = {.failures = 2, .window = 4}, .accounting = Accounting::lean};
}
[[nodiscard]] auto open_counting(const Segment& segment, const BreakerConfig& config, const CountingClock& clock = {},
                                 OnMismatch on_mismatch = OnMismatch::refuse) {
  return ShmStorage<CountingClock>::open(segment, config, on_mismatch, clock).value();
}
using Counting = ShmStorage<CountingClock>;

void succeed(Counting& breaker, int times) {
  for (int i = 0; i < times; ++i)
    ASSERT_EQ(breaker.record_outcome(breaker.admit().token, Outcome::success).status, RecordStatus::counted);
}
void fail(Counting& breaker) {
  ASSERT_EQ(breaker.record_outcome(breaker.admit().token, Outcome::failure).status, RecordStatus::counted);
}
[[nodiscard]] std::uint64_t successes(const Counting& breaker) {
  return breaker.counters().counters.successes;
}

/// Every byte of the segment.
[[nodiscard]] std::string bytes_of(const TestSegment& segment) {
  std::ifstream file(segment.path(), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(LeanAccounting, WritesNothingAndReadsNoClockForASuccessWhileNoFailureIsNear) {
  for (const Accounting accounting : {Accounting::lean, Accounting::exact}) {
    const TestSegment segment = segment_of_one();
    BreakerConfig config = lean_config();
    config.accounting = accounting;
    const CountingClock clock;
    Counting breaker = open_counting(segment.segment(), config, clock);
    const std::string before = bytes_of(segment);
    const int reads = *clock.reads;
    succeed(breaker, 1'000);
    const bool lean = accounting == Accounting::lean;
    EXPECT_EQ(bytes_of(segment) == before, lean) << to_string(accounting);
    EXPECT_EQ(*clock.reads == reads, lean) << to_string(accounting);
  }
}

TEST(LeanAccounting, RecordsEverythingForAWholeRingBehindAFailure) {
  const TestSegment segment = segment_of_one();
  Counting breaker = open_counting(segment.segment(), lean_config());
  succeed(breaker, 5);
  EXPECT_EQ(written(segment.segment()), 0U);
  fail(breaker);
  succeed(breaker, 100);
  EXPECT_EQ(written(segment.segment()), 1U + core::ring_capacity(4));
}

TEST(LeanAccounting, SaysThatTheSuccessesOfItsWindowAreALowerBound) {
  const TestSegment segment = segment_of_one();
  Counting breaker = open_counting(segment.segment(), lean_config());
  succeed(breaker, 3);
  EXPECT_TRUE(breaker.snapshot().record.successes_at_least);
  EXPECT_EQ(breaker.snapshot().record.successes, 0U);
  fail(breaker);
  succeed(breaker, 1);
  EXPECT_EQ(breaker.snapshot().record.successes, 1U);
  EXPECT_EQ(breaker.snapshot().record.failures, 1U);
  (void)breaker.force_state(CircuitState::half_open);
  EXPECT_FALSE(breaker.snapshot().record.successes_at_least) << "verdicts of probes are all counted";
}

TEST(LeanAccounting, TellsItsTotalsWhenABatchIsFullAndWhenAHandleEnds) {
  const TestSegment segment = segment_of_one();
  Counting reader = open_counting(segment.segment(), lean_config());
  {
    Counting breaker = open_counting(segment.segment(), lean_config());
    succeed(breaker, 1'000);
    EXPECT_EQ(successes(breaker), 1'000U) << "a handle knows its own";
    EXPECT_EQ(successes(reader), 0U);
    const Counting copy = breaker;
    EXPECT_EQ(successes(copy), 0U) << "they are counted once, by the handle that left them out";
    succeed(breaker, 100);
    EXPECT_EQ(successes(reader), 1'024U);
    EXPECT_EQ(successes(breaker), 1'100U);
  }
  EXPECT_EQ(successes(reader), 1'100U);
}

TEST(LeanAccounting, CountsWhatAHandleLeftOutThatIsAssignedTo) {
  const TestSegment segment = segment_of_one();
  Counting breaker = open_counting(segment.segment(), lean_config());
  const Counting other = breaker;
  succeed(breaker, 10);
  breaker = other;
  EXPECT_EQ(successes(other), 10U);
}

TEST(LeanAccounting, CountsWhatAParentLeftOutOnceHoweverManyChildrenItHas) {
  const TestSegment segment = segment_of_one();
  Counting reader = open_counting(segment.segment(), lean_config());
  {
    Counting breaker = open_counting(segment.segment(), lean_config());
    succeed(breaker, 10);
    expect_success_in_child([&] {
      succeed(breaker, 2'048);  // of which the first batch, with the parent's, is dropped
      Counting ends = breaker;
      succeed(ends, 3);
    });
    EXPECT_EQ(successes(reader), 1'024U + 3U);
  }
  EXPECT_EQ(successes(reader), 1'024U + 3U + 10U);
}

TEST(LeanAccounting, IsRefusedWhereTheNumberOfSuccessesMatters) {
  const auto refusal = [](auto change) {
    BreakerConfig config = lean_config();
    change(config);
    return check(config).message;
  };
  EXPECT_EQ(refusal([](auto&) {}), "");
  EXPECT_EQ(refusal([](auto& c) { c.failure_rate = {.percent = 50, .minimum_calls = 2}; }),
            "accounting is lean; it must be exact where failure_rate is set, which needs the number of successes");
  EXPECT_EQ(refusal([](auto& c) { c.slow_calls = {.slower_than = Millis{5}, .percent = 50, .minimum_calls = 2}; }),
            "accounting is lean; it must be exact where slow_calls is set, which needs the number of successes");
  EXPECT_EQ(
      check(GroupConfig{.name = "g", .breaker = lean_config()}).message,
      "accounting is lean; it must be exact in a group: the newest outcome says how long a breaker has been idle");
}

TEST(LeanAccounting, IsNamedAmongTheNumbersThatDiffer) {
  Settings lean = settings_of(lean_config());
  Settings exact = lean;
  exact.lean = false;
  EXPECT_EQ(differences(lean, exact), "accounting (lean there, exact here)");
  EXPECT_EQ(differences(exact, lean), "accounting (exact there, lean here)");
  exact.window = 9;
  EXPECT_EQ(differences(lean, exact),
            "failure_threshold.window (4 there, 9 here), accounting (lean there, exact here)");
}

TEST(LeanAccounting, SetInTheMidstOfAPeriodKeepsTheFailuresThatAreThere) {
  const TestSegment segment = segment_of_one();
  BreakerConfig config = lean_config();
  config.accounting = Accounting::exact;
  Counting breaker = open_counting(segment.segment(), config);
  fail(breaker);
  config = lean_config();
  config.config_revision = 1;
  (void)open_counting(segment.segment(), config);
  EXPECT_TRUE(breaker.settings().lean);
  succeed(breaker, 2);
  EXPECT_EQ(breaker.snapshot().record.failures, 1U);
  EXPECT_EQ(breaker.snapshot().record.successes, 2U);
  fail(breaker);
  EXPECT_EQ(breaker.peek().state, CircuitState::open);
}

TEST(LeanAccounting, ThatIsOverBeginsExactWithAnEmptyWindow) {
  const TestSegment segment = segment_of_one();
  Counting breaker = open_counting(segment.segment(), lean_config());
  fail(breaker);
  succeed(breaker, 100);
  BreakerConfig config = lean_config();
  config.accounting = Accounting::exact;
  config.failure_rate = {.percent = 50, .minimum_calls = 2};
  config.config_revision = 1;
  (void)open_counting(segment.segment(), config);
  EXPECT_EQ(breaker.snapshot().record.successes, 0U);
  succeed(breaker, 2);
  EXPECT_EQ(breaker.snapshot().record.successes, 2U);
  EXPECT_TRUE(breaker.snapshot().record.successes_at_least) << "to the end of the period";
  fail(breaker);
  EXPECT_EQ(breaker.peek().state, CircuitState::closed) << "1 of 3";
  (void)breaker.force_state(CircuitState::closed);
  EXPECT_FALSE(breaker.snapshot().record.successes_at_least);
}

// ---- random histories

/// One history, on a breaker that counts exactly and on one with lean accounting. Instants never go back.
class LeanHistory {
 public:
  LeanHistory(std::uint64_t seed, bool wide) : chance_(seed), config_(random_config(wide)) {}

  /// Empty, or what was done last and where the answers part.
  [[nodiscard]] std::string run(int operations) {
    for (int i = 0; i < operations; ++i) {
      clock_.set(now_ += advance());
      random_.set(chance_.from_to(0, rules::kDraws - 1));
      done_ = "operation " + std::to_string(i) + " at " + shown(now_) + ": ";
      const bool same = operate() && (chance_.from_to(0, 9) != 0 || look());
      if (!same) return done_;
    }
    return {};
  }

  [[nodiscard]] std::uint64_t left_out() const { return left_out_; }
  [[nodiscard]] std::uint64_t switched() const { return switched_; }
  [[nodiscard]] std::uint64_t opened() const { return opened_; }

 private:
  [[nodiscard]] BreakerConfig random_config(bool wide) {
    const std::uint32_t window = wide ? chance_.from_to(100, 1'000) : chance_.from_to(1, 20);
    const auto few = [&] { return std::min(window, chance_.from_to(1, 4)); };
    BreakerConfig config{.name = "b",
                         .failure_threshold = {.failures = few(),
                                               .window = window,
                                               .within = chance_.millis({5, 100, 1'000, kMaxDurationMs})},
                         .cooldown = {.base = chance_.millis({1, 10}), .jitter = chance_.percent(30) ? 50U : 0U},
                         .success_threshold = chance_.from_to(1, 2),
                         .probe_limit = chance_.from_to(1, 2)};
    if (chance_.percent(40)) config.consecutive_failures = {.failures = few()};
    if (config.consecutive_failures && chance_.percent(40)) config.failure_threshold.failures = 0;
    if (chance_.percent(25)) config.ramp_up = {.duration = chance_.millis({1, 7}), .start_percent = 50};
    return config;
  }

  [[nodiscard]] Micros advance() {
    if (chance_.percent(50)) return Micros{0};
    if (chance_.percent(98)) return Micros{chance_.from_to(0, 2'000)};
    return Millis{chance_.from_to(0, 200)};
  }

  /// Rows of successes between a few other things.
  [[nodiscard]] bool operate() {
    const std::uint32_t roll = chance_.from_to(0, 9'999);
    if (roll < 9'000 || calm_ > 0) {
      if (calm_ == 0 && chance_.percent(1)) calm_ = chance_.from_to(1, 3 * config_.failure_threshold.window + 40);
      calm_ -= std::min(calm_, 1U);
      const bool fails = calm_ == 0 && chance_.percent(3);
      return admit() && record(tokens_.size() - 1, fails ? Outcome::failure : Outcome::success);
    }
    if (roll < 9'500) return admit();
    if (roll < 9'920) {
      if (tokens_.empty()) return true;
      const std::uint32_t which = chance_.from_to(0, static_cast<std::uint32_t>(tokens_.size()) - 1);
      return record(which, chance_.one_of(std::array{Outcome::success, Outcome::failure, Outcome::ignored}));
    }
    if (roll < 9'950) {
      const auto to = chance_.one_of(std::array{CircuitState::closed, CircuitState::open, CircuitState::half_open});
      return same("force " + std::string{to_string(to)}, exact_.force_state(to), lean().force_state(to));
    }
    if (roll < 9'980) {
      ModeRequest request{.mode = chance_.percent(70) ? Mode::automatic
                                                      : chance_.one_of(std::array{Mode::forced_open, Mode::disabled,
                                                                                  Mode::forced_closed, Mode::observe})};
      if (request.mode != Mode::automatic) request.expires_after = chance_.millis({1, 20});
      return same("mode " + std::string{to_string(request.mode)}, exact_.set_mode(request), lean().set_mode(request));
    }
    return replace();
  }

  /// Other numbers for both; and of the lean one, now and then exact accounting.
  [[nodiscard]] bool replace() {
    BreakerConfig other = random_config(window_limit_ > 20);
    other.failure_threshold.window = std::min(other.failure_threshold.window, window_limit_);
    other.failure_threshold.failures = std::min(other.failure_threshold.failures, other.failure_threshold.window);
    if (other.consecutive_failures) other.consecutive_failures->failures = 1;
    other.config_revision = ++config_.config_revision;
    if (!Breaker::open(exact_segment_.segment(), other, OnMismatch::refuse, clock_, random_)) return false;
    if (chance_.percent(70)) other.accounting = Accounting::lean;
    return Breaker::open(lean_segment_.segment(), other, OnMismatch::refuse, clock_, random_).has_value();
  }

  [[nodiscard]] bool admit() {
    const AdmitResult exact = exact_.admit();
    const AdmitResult lean = this->lean().admit();
    if (tokens_.size() == 8) tokens_.erase(tokens_.begin());
    tokens_.emplace_back(exact.token, lean.token);
    return same("admit", exact, lean) && exact.token.admission == lean.token.admission;
  }

  [[nodiscard]] bool record(std::size_t which, Outcome outcome) {
    const auto [exact_token, lean_token] = tokens_[which];
    const std::uint64_t before = written(lean_segment_.segment());
    const RecordResult exact = exact_.record_outcome(exact_token, outcome);
    const RecordResult lean = this->lean().record_outcome(lean_token, outcome);
    const bool allowed = lean_token.admission == Admission::allowed && lean.status == RecordStatus::counted;
    if (allowed && outcome == Outcome::success) {
      const bool leaves_out = written(lean_segment_.segment()) == before;
      left_out_ += leaves_out ? 1U : 0U;
      switched_ += leaves_out != leaves_out_ ? 1U : 0U;
      leaves_out_ = leaves_out;
    }
    opened_ += exact.transition && exact.transition->to == CircuitState::open ? 1U : 0U;
    return same("record " + std::string{to_string(outcome)}, exact, lean);
  }

  [[nodiscard]] bool look() {
    CountersResult exact = exact_.counters();
    CountersResult lean = this->lean().counters();
    // What the other handle has not told yet is missing.
    const bool fewer =
        lean.counters.successes <= exact.counters.successes &&
        exact.counters.successes - lean.counters.successes == exact.counters.completed - lean.counters.completed;
    for (Counters* c : {&exact.counters, &lean.counters})
      c->successes = c->completed = 0;
    return fewer && same("snapshot", exact_.snapshot().record, this->lean().snapshot().record) &&
           same("peek", exact_.peek(), this->lean().peek()) && same("counters", exact, lean);
  }

  [[nodiscard]] Breaker& lean() { return lean_[chance_.from_to(0, 1)]; }

  /// The same but for fewer successes, where the answer says that there may be more.
  static bool without_successes(StateRecord& exact, StateRecord& lean) {
    const bool right =
        lean.successes == exact.successes || (lean.successes_at_least && lean.successes < exact.successes);
    exact.successes = lean.successes = 0;
    return right;
  }
  static bool without_successes(std::optional<CircuitTransition>& exact, std::optional<CircuitTransition>& lean) {
    return !exact || !lean || without_successes(exact->state, lean->state);
  }
  template <class Answer>
  [[nodiscard]] bool same(std::string_view what, Answer exact, Answer lean) {
    done_.append(what).append(": ").append(shown(exact)).append("\n  but lean: ").append(shown(lean));
    bool right = true;
    if constexpr (std::is_same_v<Answer, StateRecord>) {
      right = without_successes(exact, lean);
    } else if constexpr (requires { exact.transition; }) {
      right = without_successes(exact.transition, lean.transition);
    }
    right = right && shown(exact) == shown(lean);
    if (right) done_.resize(done_.find(": "));
    return right;
  }

  [[nodiscard]] static SegmentOptions options(const FakeClock& clock) {
    return {.name = unique_segment_name(), .breakers = 1, .ring_slots = 4'096, .participants = 2, .epoch = clock.now()};
  }

  Chance chance_;
  BreakerConfig config_;
  std::uint32_t window_limit_  // fits into the ring
      = config_.failure_threshold.window <= 20 ? 15 : config_.failure_threshold.window;
  Instant now_{std::chrono::hours{1}};
  FakeClock clock_{now_};
  FakeRandom random_;
  TestSegment exact_segment_{options(clock_)};
  TestSegment lean_segment_{options(clock_)};
  Breaker exact_ = Breaker::open(exact_segment_.segment(), config_, OnMismatch::refuse, clock_, random_).value();
  std::array<Breaker, 2> lean_{
      // attached twice, as two processes are
      Breaker::open(lean_segment_.segment(), made_lean(config_), OnMismatch::refuse, clock_, random_).value(),
      Breaker::open(lean_segment_.attach(), made_lean(config_), OnMismatch::refuse, clock_, random_).value()};
  std::vector<std::pair<Token, Token>> tokens_;
  std::uint32_t calm_ = 0;  // so many successes follow
  bool leaves_out_ = false;
  std::uint64_t left_out_ = 0;
  std::uint64_t switched_ = 0;
  std::uint64_t opened_ = 0;
  std::string done_;
};

TEST(LeanAccounting, AnswersRandomHistoriesAsExactAccountingDoes) {
  const std::uint64_t seed = test_seed();
  for (const bool wide : {false, true}) {
    const std::uint64_t histories = wide ? 6 : 100;  // arbitrary: some seconds
    const int operations = wide ? 60'000 : 6'000;    // arbitrary: often round the ring
    std::uint64_t left_out = 0;
    std::uint64_t switched = 0;
    std::uint64_t opened = 0;
    for (std::uint64_t i = 0; i < histories; ++i) {
      LeanHistory history{seed + i, wide};  // history i alone: SHMCB_TEST_SEED = seed + i
      const std::string parted = history.run(operations);
      ASSERT_TRUE(parted.empty()) << "SHMCB_TEST_SEED=" << seed + i << (wide ? ", wide: " : ": ") << parted;
      left_out += history.left_out();
      switched += history.switched();
      opened += history.opened();
    }
    std::printf("[ lean     ] %lu left out, switched on or off %lu times, opened %lu times\n",
                static_cast<unsigned long>(left_out), static_cast<unsigned long>(switched),
                static_cast<unsigned long>(opened));
    EXPECT_GT(left_out, 1'000U);
    EXPECT_GT(switched, 100U);
    EXPECT_GT(opened, 20U);
  }
}

}  // namespace
}  // namespace shmcb::test
