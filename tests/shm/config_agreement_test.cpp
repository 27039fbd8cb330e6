// SPDX-License-Identifier: BSD-3-Clause
// Processes that come to one breaker with different numbers: refused by field, adopted, or replaced with state and
// window kept.
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shmcb/core/registry.hpp"
#include "shmcb/shm_storage.hpp"
#include "support/processes.hpp"
#include "support/test_segment.hpp"

namespace shmcb::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Storage = ShmStorage<FakeClock>;

class Agreement : public ::testing::Test {
 protected:
  FakeClock clock;
  const TestSegment made{{.breakers = 4, .ring_slots = 256, .participants = 8, .epoch = clock.now()}};
  const BreakerConfig base{.name = "b",
                           .failure_threshold = {.failures = 3, .window = 10, .within = Millis{10'000}},
                           .cooldown = {Millis{500}},
                           .success_threshold = 2,
                           .probe_limit = 2,
                           .probe_timeout = Millis{700},
                           .config_revision = 5};

  [[nodiscard]] Result<Storage> try_open(const BreakerConfig& config,
                                         OnMismatch on_mismatch = OnMismatch::refuse) const {
    return Storage::open(made.segment(), config, on_mismatch, clock);
  }
  [[nodiscard]] Storage open(const BreakerConfig& config, OnMismatch on_mismatch = OnMismatch::refuse) const {
    auto storage = try_open(config, on_mismatch);
    if (!storage) throw std::runtime_error(storage.error().message);
    return *std::move(storage);
  }
  static RecordResult record(Storage& storage, Outcome outcome) {
    return storage.record_outcome(storage.admit().token, outcome);
  }
  static void record(Storage& storage, std::string_view outcomes) {
    for (const char c : outcomes) {
      const RecordResult recorded = record(storage, c == 'f' ? Outcome::failure : Outcome::success);
      ASSERT_EQ(recorded.error, Errc::ok);
      ASSERT_EQ(recorded.status, RecordStatus::counted);
    }
  }
  static void expect_window(const Storage& storage, std::uint64_t successes, std::uint64_t failures) {
    const SnapshotResult snapshot = storage.snapshot();
    ASSERT_EQ(snapshot.error, Errc::ok);
    EXPECT_EQ(snapshot.record.successes, successes);
    EXPECT_EQ(snapshot.record.failures, failures);
  }
};

struct Change {
  const char* field;
  std::function<void(BreakerConfig&)> apply;
  const char* numbers;
};

[[nodiscard]] std::vector<Change> every_change() {
  return {
      {"failure_threshold.failures", [](auto& c) { c.failure_threshold.failures = 4; }, "(3 there, 4 here)"},
      {"failure_threshold.window", [](auto& c) { c.failure_threshold.window = 12; }, "(10 there, 12 here)"},
      {"failure_threshold.within", [](auto& c) { c.failure_threshold.within = Millis{9}; },
       "(10000 ms there, 9 ms here)"},
      {"cooldown.base", [](auto& c) { c.cooldown.base = Millis{501}; }, "(500 ms there, 501 ms here)"},
      {"probe_timeout", [](auto& c) { c.probe_timeout = Millis{1}; }, "(700 ms there, 1 ms here)"},
      {"success_threshold", [](auto& c) { c.success_threshold = 9; }, "(2 there, 9 here)"},
      {"probe_limit", [](auto& c) { c.probe_limit = 32; }, "(2 there, 32 here)"},
  };
}

// ---- equal
// ---------------------------------------------------------------------------------------------------------------

TEST_F(Agreement, OnTheSameNumbersIsSilentWhateverTheChoice) {
  (void)open(base);
  for (const OnMismatch choice : {OnMismatch::refuse, OnMismatch::adopt, OnMismatch::replace}) {
    EXPECT_EQ(open(base, choice).settings(), settings_of(base));
  }
}

TEST_F(Agreement, OnAProbeTimeoutLeftOutMeansTheCooldown) {
  BreakerConfig left_out = base;
  left_out.probe_timeout.reset();
  (void)open(left_out);
  BreakerConfig said = base;
  said.probe_timeout = base.cooldown.base;
  EXPECT_TRUE(try_open(said));
}

// ---- refuse
// --------------------------------------------------------------------------------------------------------------

TEST_F(Agreement, RefusedNamesTheFieldThatDiffersAndNoOther) {
  (void)open(base);
  for (const Change& change : every_change()) {
    SCOPED_TRACE(change.field);
    BreakerConfig other = base;
    change.apply(other);
    const auto refused = try_open(other);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Errc::config_mismatch);
    EXPECT_THAT(refused.error().message, HasSubstr("breaker 'b' exists with another configuration: " +
                                                   std::string{change.field} + " " + change.numbers));
    for (const Change& another : every_change()) {
      if (another.field != change.field) {
        EXPECT_THAT(refused.error().message, Not(HasSubstr(std::string{another.field} + " (")));
      }
    }
    EXPECT_EQ(open(base).settings(), settings_of(base)) << "nothing was written";
  }
}

TEST_F(Agreement, RefusedNamesAllFieldsThatDiffer) {
  (void)open(base);
  BreakerConfig other = base;
  for (const Change& change : every_change())
    change.apply(other);
  const auto refused = try_open(other);
  ASSERT_FALSE(refused);
  for (const Change& change : every_change()) {
    EXPECT_THAT(refused.error().message, HasSubstr(std::string{change.field} + " " + change.numbers));
  }
}

// ---- adopt and replace
// -----------------------------------------------------------------------------------------------------

TEST_F(Agreement, AdoptedUsesWhatIsThere) {
  (void)open(base);
  for (const Change& change : every_change()) {
    BreakerConfig other = base;
    change.apply(other);
    EXPECT_EQ(open(other, OnMismatch::adopt).settings(), settings_of(base)) << change.field;
  }
}

TEST_F(Agreement, ReplacedWritesWhatWasBroughtForAll) {
  const Storage first = open(base);
  BreakerConfig other = base;
  for (const Change& change : every_change()) {
    change.apply(other);
    const Storage second = open(other, OnMismatch::replace);
    EXPECT_EQ(second.settings(), settings_of(other)) << change.field;
    EXPECT_EQ(first.settings(), settings_of(other)) << change.field;
  }
}

TEST_F(Agreement, ReplacedKeepsTheWindow) {
  Storage storage = open(base);
  record(storage, "sfsf");
  BreakerConfig other = base;
  other.failure_threshold.within = Millis{20'000};
  other.cooldown.base = Millis{900};
  Storage second = open(other, OnMismatch::replace);
  expect_window(second, 2, 2);
  const RecordResult third = record(storage, Outcome::failure);
  ASSERT_TRUE(third.transition) << "the third of three";
  EXPECT_EQ(third.transition->reason, TransitionReason::failure_threshold_reached);
}

TEST_F(Agreement, ReplacedKeepsOpenAndItsInstantAndCountsTheCooldownFromThere) {
  Storage storage = open(base);
  record(storage, "fff");
  ASSERT_EQ(storage.peek().state, CircuitState::open);
  const auto opened_at = storage.snapshot().record.opened_at;
  EXPECT_EQ(storage.admit().admission, Admission::rejected);
  clock.advance(Millis{100});
  BreakerConfig other = base;
  other.cooldown.base = Millis{150};
  Storage second = open(other, OnMismatch::replace);
  EXPECT_EQ(second.snapshot().record.opened_at, opened_at);
  EXPECT_EQ(second.snapshot().record.rejected, 1U);
  EXPECT_EQ(second.admit().retry_after, Millis{50});
  clock.advance(Millis{50});
  EXPECT_EQ(storage.admit().admission, Admission::probe);
}

TEST_F(Agreement, ReplacedKeepsTheProbesThatAreOut) {
  Storage storage = open(base);
  record(storage, "fff");
  clock.advance(Millis{500});
  const AdmitResult first = storage.admit();
  ASSERT_EQ(first.admission, Admission::probe);
  ASSERT_EQ(storage.admit().admission, Admission::probe);
  ASSERT_EQ(storage.admit().admission, Admission::rejected);
  BreakerConfig other = base;
  other.probe_limit = 3;
  other.success_threshold = 1;
  Storage second = open(other, OnMismatch::replace);
  EXPECT_EQ(second.admit().admission, Admission::probe) << "one more than before";
  EXPECT_EQ(second.admit().admission, Admission::rejected);
  const RecordResult closed = storage.record_outcome(first.token, Outcome::success);
  ASSERT_TRUE(closed.transition);
  EXPECT_EQ(closed.transition->to, CircuitState::closed);
}

TEST_F(Agreement, ReplacedDoesNotOpenByItselfButTheNextFailureDoes) {
  Storage storage = open(base);
  record(storage, "ff");
  BreakerConfig other = base;
  other.failure_threshold.failures = 1;
  (void)open(other, OnMismatch::replace);
  EXPECT_EQ(storage.peek().state, CircuitState::closed);
  record(storage, "s");
  EXPECT_EQ(storage.peek().state, CircuitState::closed);
  EXPECT_TRUE(record(storage, Outcome::failure).transition);
}

// ---- windows that change
// -----------------------------------------------------------------------------------------------------

TEST_F(Agreement, ReplacedByALargerWindowDoesNotBringBackWhatHadLeftTheOldOne) {
  BreakerConfig narrow = base;
  narrow.failure_threshold.window = 4;
  Storage storage = open(narrow);
  record(storage, "ffssss");
  expect_window(storage, 4, 0);
  BreakerConfig wide = base;
  wide.failure_threshold.window = 15;
  Storage second = open(wide, OnMismatch::replace);
  expect_window(second, 4, 0);
  record(second, "ff");
  EXPECT_EQ(second.peek().state, CircuitState::closed) << "two of three: the first two are gone";
  expect_window(second, 4, 2);
  EXPECT_TRUE(record(second, Outcome::failure).transition);
}

TEST_F(Agreement, ReplacedByALongerAgeDoesNotBringBackWhatWasTooOld) {
  BreakerConfig brief = base;
  brief.failure_threshold.within = Millis{100};
  Storage storage = open(brief);
  record(storage, "ff");
  clock.advance(Millis{200});
  record(storage, "s");
  expect_window(storage, 1, 0);
  Storage second = open(base, OnMismatch::replace);
  expect_window(second, 1, 0);
  record(second, "f");
  EXPECT_EQ(second.peek().state, CircuitState::closed);
  expect_window(second, 1, 1);
}

TEST_F(Agreement, ReplacedByALargerWindowWhileOpenShowsTheWindowThatOpenedIt) {
  BreakerConfig narrow = base;
  narrow.failure_threshold.window = 4;
  Storage storage = open(narrow);
  record(storage, "sssssfff");
  ASSERT_EQ(storage.peek().state, CircuitState::open);
  expect_window(storage, 1, 3);
  BreakerConfig wide = base;
  wide.failure_threshold.window = 15;
  Storage second = open(wide, OnMismatch::replace);
  expect_window(second, 1, 3);
}

TEST_F(Agreement, ReplacedByASmallerWindowCountsThatMany) {
  Storage storage = open(base);
  record(storage, "ffsss");
  BreakerConfig narrow = base;
  narrow.failure_threshold.window = 3;
  Storage second = open(narrow, OnMismatch::replace);
  expect_window(second, 3, 0);
  record(second, "ff");
  EXPECT_EQ(second.peek().state, CircuitState::closed);
}

TEST_F(Agreement, ReplacedByAWindowThatTheRingDoesNotHoldIsRefusedAndChangesNothing) {
  Storage storage = open(base);
  record(storage, "sf");
  BreakerConfig wide = base;
  wide.failure_threshold.window = 15;
  EXPECT_TRUE(try_open(wide, OnMismatch::replace)) << "the ring of 16 that a window of 10 got";
  wide.failure_threshold.window = 16;
  const auto refused = try_open(wide, OnMismatch::replace);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::ring_full);
  EXPECT_THAT(refused.error().message,
              HasSubstr("the configuration of breaker 'b' cannot be replaced: failure_threshold.window is 16"));
  EXPECT_EQ(storage.settings().window, 15U);
  expect_window(storage, 1, 1);
  record(storage, "ss");
}

// ---- revisions
// ---------------------------------------------------------------------------------------------------------------

TEST_F(Agreement, OfTwoRevisionsTheHigherReplacesWhateverTheChoice) {
  std::uint64_t revision = base.config_revision;
  const Storage first = open(base);
  for (const OnMismatch choice : {OnMismatch::refuse, OnMismatch::adopt, OnMismatch::replace}) {
    BreakerConfig newer = base;
    newer.config_revision = ++revision;
    newer.cooldown.base = Millis{500 + static_cast<std::int64_t>(revision)};
    (void)open(newer, choice);
    EXPECT_EQ(first.settings(), settings_of(newer));
  }
}

TEST_F(Agreement, OfTwoRevisionsTheLowerAdoptsWhateverTheChoice) {
  const Storage first = open(base);
  for (const OnMismatch choice : {OnMismatch::refuse, OnMismatch::adopt, OnMismatch::replace}) {
    BreakerConfig older = base;
    older.config_revision = 4;
    older.cooldown.base = Millis{1};
    EXPECT_EQ(open(older, choice).settings(), settings_of(base));
    EXPECT_EQ(first.settings(), settings_of(base));
  }
}

TEST_F(Agreement, OfEqualRevisionsWithDifferentNumbersIsRefused) {
  (void)open(base);
  BreakerConfig other = base;
  other.cooldown.base = Millis{1};
  const auto refused = try_open(other);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::config_mismatch);
}

TEST_F(Agreement, OnEqualNumbersTakesTheHigherRevision) {
  const Storage first = open(base);
  BreakerConfig newer = base;
  newer.config_revision = 9;
  (void)open(newer);
  EXPECT_EQ(first.settings().revision, 9U);
  (void)open(base);
  EXPECT_EQ(first.settings().revision, 9U);
}

struct OvertakingStep {
  static inline int left = 0;
  static inline std::function<void()> overtaker{};
  static void step() {
    if (left > 0 && --left == 0) overtaker();
  }
};
using OvertakingEnv = core::AtomicEnv<OvertakingStep>;

TEST_F(Agreement, OfTwoRevisionsAtOnceTheHigherStaysWhicheverComesLast) {
  bool overtaken = true;
  for (int step = 1; overtaken; ++step) {
    ASSERT_LT(step, 2'000);
    BreakerConfig config = base;
    config.name = "b" + std::to_string(step % 3);
    config.config_revision = static_cast<std::uint64_t>(step) * 10;
    const Storage observer = open(config);
    Settings lower = settings_of(config);
    lower.revision += 1;
    lower.cooldown_ms = 111;
    BreakerConfig higher = config;
    higher.config_revision += 2;
    higher.cooldown.base = Millis{222};

    const auto view = made->view().in_environment<OvertakingEnv>();
    const core::Registry<OvertakingEnv> registry(view, made->presence());
    core::BreakerCell<OvertakingEnv> cell;
    ASSERT_EQ(registry.find(config.name, cell), Errc::ok);
    overtaken = false;
    OvertakingStep::overtaker = [&] {
      overtaken = true;
      (void)open(higher);
    };
    OvertakingStep::left = step;
    EXPECT_EQ(cell.replace_settings(lower, 0, [] { return 0U; }), Errc::ok);
    OvertakingStep::left = 0;
    if (!overtaken) break;
    ASSERT_EQ(observer.settings(), settings_of(higher)) << "overtaken at step " << step;
  }
}

// ---- other handles
// -----------------------------------------------------------------------------------------------------------

TEST_F(Agreement, IsNoticedByOtherProcessesAtTheirNextSlowStep) {
  Storage storage = open(base);
  SharedArea<std::atomic<int>> stage;
  Child other = fork_child([&] {
    Storage mine = storage;
    record(mine, "s");
    *stage = 1;
    ASSERT_TRUE(wait_until([&] { return *stage == 2; }));
    // What was admitted under the old numbers is decided under the new ones.
    EXPECT_TRUE(record(mine, Outcome::failure).transition);
    EXPECT_EQ(mine.admit().retry_after, Millis{77});
  });
  ASSERT_TRUE(wait_until([&] { return *stage == 1; }));
  BreakerConfig strict = base;
  strict.failure_threshold.failures = 1;
  strict.cooldown.base = Millis{77};
  (void)open(strict, OnMismatch::replace);
  *stage = 2;
  EXPECT_EQ(other.wait(), exited(0));
  EXPECT_EQ(storage.peek().state, CircuitState::open);
}

// ---- too many
// ----------------------------------------------------------------------------------------------------------------

TEST_F(Agreement, ReplacedTooOftenInOneClosedPeriodIsRefusedAndEverythingElseGoesOn) {
  Storage storage = open(base);
  record(storage, "f");
  const AdmitResult in_flight = storage.admit();
  BreakerConfig changing = base;
  std::optional<Error> refused;
  int replaced = 0;
  for (; replaced < 5'000 && !refused; ++replaced) {
    changing.cooldown.base = Millis{500 + replaced % 2 + 1};
    const auto result = try_open(changing, OnMismatch::replace);
    if (!result) refused = result.error();
  }
  ASSERT_TRUE(refused);
  EXPECT_LT(replaced, 4096);
  EXPECT_GT(replaced, 4000) << "it is worth having";
  EXPECT_EQ(refused->code, Errc::version_exhausted);
  EXPECT_THAT(refused->message, HasSubstr("version_exhausted"));

  const Settings left = storage.settings();
  EXPECT_TRUE(try_open(changing, OnMismatch::adopt));
  EXPECT_EQ(storage.settings(), left);
  EXPECT_EQ(storage.record_outcome(in_flight.token, Outcome::failure).status, RecordStatus::counted)
      << "its period goes on";
  expect_window(storage, 0, 2);
  ASSERT_TRUE(record(storage, Outcome::failure).transition);
  EXPECT_EQ(storage.peek().state, CircuitState::open);
  EXPECT_TRUE(try_open(changing, OnMismatch::replace)) << "outside Closed";
  EXPECT_EQ(storage.force_state(CircuitState::closed).error, Errc::ok);
  changing.cooldown.base = Millis{900};
  EXPECT_TRUE(try_open(changing, OnMismatch::replace)) << "in the next Closed period";
  EXPECT_EQ(storage.settings(), settings_of(changing));
}

TEST_F(Agreement, ReplacedTooOftenStillLetsEverySiblingOfAClosingProbeHaveItsSay) {
  BreakerConfig wide = base;
  wide.probe_limit = 32;
  wide.success_threshold = 1;
  Storage storage = open(wide);
  (void)storage.force_state(CircuitState::half_open);
  std::vector<Token> probes;
  for (int i = 0; i < 32; ++i) {
    const AdmitResult admitted = storage.admit();
    ASSERT_EQ(admitted.admission, Admission::probe);
    probes.push_back(admitted.token);
  }
  ASSERT_TRUE(storage.record_outcome(probes[0], Outcome::success).transition);
  Errc refused = Errc::ok;
  for (int i = 0; i < 5'000 && refused == Errc::ok; ++i) {
    wide.cooldown.base = Millis{500 + i % 2 + 1};
    const auto result = try_open(wide, OnMismatch::replace);
    if (!result) refused = result.error().code;
  }
  EXPECT_EQ(refused, Errc::version_exhausted);
  for (std::size_t i = 1; i < probes.size(); ++i) {
    const Outcome outcome = i + 1 < probes.size() ? Outcome::success : Outcome::failure;
    EXPECT_EQ(storage.record_outcome(probes[i], outcome).error, Errc::ok) << i;
  }
}

TEST_F(Agreement, ReplacedOverAndOverOutsideClosedIsNeverExhausted) {
  Storage storage = open(base);
  (void)storage.force_state(CircuitState::open);
  BreakerConfig changing = base;
  for (int i = 0; i < 9'000; ++i) {
    changing.cooldown.base = Millis{500 + i % 2 + 1};
    ASSERT_TRUE(try_open(changing, OnMismatch::replace)) << i;
  }
  EXPECT_EQ(storage.peek().state, CircuitState::open);
  clock.advance(Millis{1'000});
  EXPECT_EQ(storage.admit().admission, Admission::probe);
}

}  // namespace
}  // namespace shmcb::test
