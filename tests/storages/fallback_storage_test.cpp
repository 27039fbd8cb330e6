// SPDX-License-Identifier: BSD-3-Clause
#include "shmcb/fallback_storage.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "conformance_suite.hpp"
#include "shmcb/failure.hpp"
#include "shmcb/memory_storage.hpp"
#include "support/threads.hpp"

namespace shmcb::test {
namespace {

using Memory = MemoryStorage<FakeClock, FakeRandom>;

Memory open_memory(const FakeClock& clock = FakeClock{}) {
  return Memory::open(conformance_config(), clock).value();
}

/// A working storage until it is told to fail. Copies share the switch.
class Switchable {
 public:
  explicit Switchable(Memory memory) : memory_(std::move(memory)) {}

  void fail_with(Errc error) noexcept { *error_ = error; }
  void work() noexcept { *error_ = Errc::ok; }

  AdmitResult admit() noexcept {
    return unless_failing<AdmitResult>([&] { return memory_.admit(); });
  }
  RecordResult record_outcome(Token token, Outcome outcome, CompletedAt completed_at = {}) noexcept {
    return unless_failing<RecordResult>([&] { return memory_.record_outcome(token, outcome, completed_at); });
  }
  RecordResult abandon(Token token) noexcept {
    return unless_failing<RecordResult>([&] { return memory_.abandon(token); });
  }
  ForceResult force_state(CircuitState state, const Note& note = {}) noexcept {
    return unless_failing<ForceResult>([&] { return memory_.force_state(state, note); });
  }
  ModeResult set_mode(const ModeRequest& request) noexcept {
    return unless_failing<ModeResult>([&] { return memory_.set_mode(request); });
  }
  CountersResult counters() const noexcept {
    return unless_failing<CountersResult>([&] { return memory_.counters(); });
  }
  SnapshotResult snapshot() const noexcept {
    return unless_failing<SnapshotResult>([&] { return memory_.snapshot(); });
  }
  PeekResult peek() const noexcept {
    return unless_failing<PeekResult>([&] { return memory_.peek(); });
  }
  [[nodiscard]] Instant now() const noexcept { return memory_.now(); }
  std::string_view name() const noexcept { return memory_.name(); }
  Settings settings() const noexcept { return memory_.settings(); }
  bool degraded() const noexcept { return false; }

 private:
  /// The switch is read once: another thread may turn it at any time.
  template <class R, class Operation>
  R unless_failing(Operation operation) const noexcept {
    const Errc error = *error_;
    return error == Errc::ok ? operation() : R{.error = error};
  }

  Memory memory_;
  std::shared_ptr<std::atomic<Errc>> error_ = std::make_shared<std::atomic<Errc>>(Errc::ok);
};

using Fallback = FallbackStorage<Switchable, Memory, FakeClock>;

/// The whole suite holds while the primary decides ...
struct PrimaryFactory {
  Result<Fallback> open(const BreakerConfig& config, FakeClock clock, FakeRandom random) {
    auto primary = Memory::open(config, clock, random);
    if (!primary) return primary.error();
    return Fallback{Switchable{*primary}, *Memory::open(config, clock, random), OnUnusable::error, clock};
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(FallbackToNothing, StorageConformance, PrimaryFactory);

/// ... and while the local storage stands in for a missing one.
struct LocalFactory {
  Result<Fallback> open(const BreakerConfig& config, FakeClock clock, FakeRandom random) {
    auto local = Memory::open(config, clock, random);
    if (!local) return local.error();
    return Fallback{Error{Errc::no_space, "full"}, *local, OnUnusable::local, clock};
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(FallbackToLocal, StorageConformance, LocalFactory);

/// A fallback with handles on all of its parts.
struct Parts {
  explicit Parts(OnUnusable choice) : storage(primary, local, choice, clock) {}

  FakeClock clock{};
  Switchable primary{open_memory(clock)};
  Memory local = open_memory(clock);
  Fallback storage;
};

constexpr std::array kChoices{OnUnusable::error, OnUnusable::local, OnUnusable::let_through, OnUnusable::turn_away};

TEST(FallbackStorage, AsksOnlyThePrimaryWhileThatWorks) {
  for (const OnUnusable choice : kChoices) {
    Parts parts{choice};
    for (int i = 0; i < 2; ++i) {
      const Token token = parts.storage.admit().token;
      EXPECT_EQ(parts.storage.record_outcome(token, Outcome::failure).status, RecordStatus::counted);
    }
    EXPECT_EQ(parts.storage.snapshot().record.state, CircuitState::open);
    EXPECT_EQ(parts.storage.peek().state, CircuitState::open);
    EXPECT_EQ(parts.primary.snapshot().record.state, CircuitState::open);
    EXPECT_EQ(parts.local.snapshot().record.failures, 0U);
    EXPECT_FALSE(parts.storage.degraded());
    EXPECT_EQ(parts.storage.unusable_operations(), 0U);
    EXPECT_EQ(parts.storage.primary_error().code, Errc::ok);
  }
}

TEST(FallbackStorage, AnswersTheErrorOfEveryOperationByDefault) {
  FakeClock clock;
  Switchable primary{open_memory(clock)};
  FallbackStorage<Switchable, Memory> storage{primary, open_memory(clock)};
  const Token token = storage.admit().token;
  primary.fail_with(Errc::corrupt);
  EXPECT_EQ(storage.admit().error, Errc::corrupt);
  EXPECT_EQ(storage.record_outcome(token, Outcome::success).error, Errc::corrupt);
  EXPECT_EQ(storage.force_state(CircuitState::open).error, Errc::corrupt);
  EXPECT_EQ(storage.snapshot().error, Errc::corrupt);
  EXPECT_EQ(storage.peek().error, Errc::corrupt);
  EXPECT_EQ(storage.unusable_operations(), 5U);
  EXPECT_TRUE(storage.degraded());
}

TEST(FallbackStorage, AnswersUnusableForAMissingPrimaryAndSaysWhyThereIsNone) {
  Fallback storage{Error{Errc::no_space, "no room for the segment"}, open_memory()};
  EXPECT_TRUE(storage.degraded());
  EXPECT_EQ(storage.unusable_operations(), 0U);
  EXPECT_EQ(storage.admit().error, Errc::unusable);
  EXPECT_EQ(storage.snapshot().error, Errc::unusable);
  EXPECT_EQ(storage.unusable_operations(), 2U);
  EXPECT_EQ(storage.primary_error().code, Errc::no_space);
  EXPECT_EQ(storage.primary_error().message, "no room for the segment");
  EXPECT_EQ(storage.name(), "conformance");
  EXPECT_EQ(storage.settings(), settings_of(conformance_config()));
}

TEST(FallbackStorage, LetsTheLocalStorageDecideAndShowsIt) {
  Parts parts{OnUnusable::local};
  parts.primary.fail_with(Errc::records_exhausted);
  for (int i = 0; i < 2; ++i) {
    const AdmitResult result = parts.storage.admit();
    EXPECT_EQ(result.error, Errc::ok);
    EXPECT_EQ(result.admission, Admission::allowed);
    EXPECT_EQ(parts.storage.record_outcome(result.token, Outcome::failure).status, RecordStatus::counted);
  }
  EXPECT_EQ(parts.storage.admit().admission, Admission::rejected);
  EXPECT_EQ(parts.storage.peek().state, CircuitState::open);
  EXPECT_EQ(parts.storage.snapshot().record.failures, 2U);
  EXPECT_EQ(parts.local.snapshot().record.rejected, 1U);
  EXPECT_EQ(parts.storage.unusable_operations(), 3U);  // the admits; the rest was local by then
  EXPECT_EQ(parts.storage.force_state(CircuitState::closed).transition->reason, TransitionReason::forced_closed);
  EXPECT_EQ(parts.local.snapshot().record.state, CircuitState::closed);
}

TEST(FallbackStorage, ReturnsToThePrimaryAsSoonAsThatWorks) {
  for (const OnUnusable choice : kChoices) {
    Parts parts{choice};
    parts.primary.fail_with(Errc::corrupt);
    (void)parts.storage.admit();
    EXPECT_TRUE(parts.storage.degraded());
    parts.primary.work();
    EXPECT_EQ(parts.storage.admit().admission, Admission::allowed);
    EXPECT_FALSE(parts.storage.degraded());
    EXPECT_EQ(parts.storage.unusable_operations(), 1U);
  }
}

TEST(FallbackStorage, RecordsWithThePartThatAdmitted) {
  Parts parts{OnUnusable::local};
  const Token of_primary = parts.storage.admit().token;
  parts.primary.fail_with(Errc::corrupt);
  const Token of_local = parts.storage.admit().token;
  EXPECT_EQ(parts.storage.record_outcome(of_primary, Outcome::failure).error, Errc::corrupt);
  EXPECT_EQ(parts.local.snapshot().record.failures, 0U);  // it did not admit that attempt
  parts.primary.work();
  (void)parts.storage.admit();
  EXPECT_EQ(parts.storage.record_outcome(of_local, Outcome::failure).status, RecordStatus::counted);
  EXPECT_EQ(parts.local.snapshot().record.failures, 1U);
  EXPECT_EQ(parts.primary.snapshot().record.failures, 0U);
  EXPECT_EQ(parts.storage.record_outcome(of_primary, Outcome::failure).status, RecordStatus::counted);
  EXPECT_EQ(parts.primary.snapshot().record.failures, 1U);
}

TEST(FallbackStorage, AnswersTheErrorWhereTheIssuerCannotRecordWhateverWasChosen) {
  for (const OnUnusable choice : kChoices) {
    Parts parts{choice};
    const Token token = parts.storage.admit().token;
    parts.primary.fail_with(Errc::corrupt);
    EXPECT_EQ(parts.storage.record_outcome(token, Outcome::failure).error, Errc::corrupt);
    EXPECT_TRUE(parts.storage.degraded());
  }
}

TEST(FallbackStorage, LetsCallsThroughWithoutCountingThem) {
  Parts parts{OnUnusable::let_through};
  (void)parts.primary.force_state(CircuitState::open);
  parts.primary.fail_with(Errc::corrupt);
  for (int i = 0; i < 5; ++i) {
    const AdmitResult result = parts.storage.admit();
    EXPECT_EQ(result.error, Errc::ok);
    EXPECT_EQ(result.admission, Admission::allowed);
    EXPECT_EQ(result.state, CircuitState::closed);
    const RecordResult recorded = parts.storage.record_outcome(result.token, Outcome::failure);
    EXPECT_EQ(recorded.error, Errc::ok);
    EXPECT_EQ(recorded.status, RecordStatus::ignored);
  }
  EXPECT_EQ(parts.storage.peek().state, CircuitState::closed);
  EXPECT_EQ(parts.storage.snapshot().error, Errc::corrupt);
  EXPECT_EQ(parts.storage.force_state(CircuitState::open).error, Errc::corrupt);
  EXPECT_EQ(parts.local.snapshot().record.failures, 0U);
}

TEST(FallbackStorage, IgnoresAnOutcomeOfACallLetThroughAfterThePrimaryIsBack) {
  Parts parts{OnUnusable::let_through};
  parts.primary.fail_with(Errc::corrupt);
  const Token token = parts.storage.admit().token;
  parts.primary.work();
  EXPECT_EQ(parts.storage.record_outcome(token, Outcome::failure).status, RecordStatus::ignored);
  EXPECT_EQ(parts.primary.snapshot().record.failures, 0U);
}

TEST(FallbackStorage, TurnsCallsAwayForOneCooldown) {
  Parts parts{OnUnusable::turn_away};
  parts.primary.fail_with(Errc::corrupt);
  parts.clock.advance(Micros{1'500});
  const AdmitResult result = parts.storage.admit();
  EXPECT_EQ(result.error, Errc::ok);
  EXPECT_EQ(result.admission, Admission::rejected);
  EXPECT_EQ(result.state, CircuitState::open);
  EXPECT_EQ(result.retry_after, Millis{50});
  EXPECT_EQ(result.retry_at, Instant{std::chrono::hours{1}} + Millis{51});
  EXPECT_EQ(parts.storage.record_outcome(result.token, Outcome::failure).status, RecordStatus::rejected);
  EXPECT_EQ(parts.storage.peek().state, CircuitState::open);
  EXPECT_EQ(parts.storage.peek().cooldown_left, Millis{50});
  EXPECT_EQ(parts.storage.snapshot().error, Errc::corrupt);
}

TEST(FallbackStorage, ShowsTheLocalStorageWhenTheFirstUnusableOperationIsALook) {
  Parts parts{OnUnusable::local};
  (void)parts.local.force_state(CircuitState::half_open);
  parts.primary.fail_with(Errc::corrupt);
  EXPECT_EQ(parts.storage.snapshot().record.state, CircuitState::half_open);
  EXPECT_TRUE(parts.storage.degraded());
  EXPECT_EQ(parts.storage.peek().state, CircuitState::half_open);
}

TEST(FallbackStorage, NestsWithoutMixingUpItsTokens) {
  FakeClock clock;
  Switchable first{open_memory(clock)};
  Switchable second{open_memory(clock)};
  Memory third = open_memory(clock);
  FallbackStorage outer{Result<Switchable>{first},
                        FallbackStorage{Result<Switchable>{second}, third, OnUnusable::local}, OnUnusable::local};
  static_assert(Storage<decltype(outer)>);
  std::array<Token, 3> tokens{};
  tokens[0] = outer.admit().token;
  first.fail_with(Errc::corrupt);
  tokens[1] = outer.admit().token;
  second.fail_with(Errc::corrupt);
  tokens[2] = outer.admit().token;
  first.work();
  second.work();
  for (const Token token : tokens) {
    EXPECT_EQ(outer.record_outcome(token, Outcome::failure).status, RecordStatus::counted);
  }
  EXPECT_EQ(first.snapshot().record.failures, 1U);
  EXPECT_EQ(second.snapshot().record.failures, 1U);
  EXPECT_EQ(third.snapshot().record.failures, 1U);
}

TEST(FallbackStorage, IsDegradedWhenItsPrimaryIs) {
  FakeClock clock;
  Fallback inner{Error{Errc::no_space, "full"}, open_memory(clock), OnUnusable::local};
  FallbackStorage outer{Result<Fallback>{inner}, open_memory(clock)};
  EXPECT_EQ(outer.admit().error, Errc::ok);
  EXPECT_TRUE(outer.degraded());
}

TEST(FallbackStorage, TakesATypeErasedPrimary) {
  FallbackStorage<AnyStorage, Memory> storage{AnyStorage{open_memory()}, open_memory()};
  EXPECT_EQ(storage.admit().admission, Admission::allowed);
  FallbackStorage<AnyStorage, Memory> empty{AnyStorage{}, open_memory(), OnUnusable::let_through};
  EXPECT_EQ(empty.admit().admission, Admission::allowed);
  EXPECT_TRUE(empty.degraded());
}

TEST(FallbackStorage, TakesATokenThatIsNotItsOwnWithoutHarm) {
  Fallback storage{Error{Errc::no_space, "full"}, open_memory(), OnUnusable::local};
  EXPECT_EQ(storage.record_outcome({.admission = Admission::allowed, .origin = 0}, Outcome::success).error,
            Errc::unusable);
  EXPECT_EQ(storage.record_outcome({.admission = Admission::allowed, .origin = 3}, Outcome::success).status,
            RecordStatus::ignored);
}

TEST(FallbackStorage, CountsUnusableOperationsOfAllThreads) {
  constexpr int kEach = 1'000;
  Parts parts{OnUnusable::let_through};
  run_threads(kThreads, [&](std::size_t index) {
    for (int i = 0; i < kEach; ++i) {
      if (index == 0) parts.primary.work();
      EXPECT_EQ(parts.storage.admit().admission, Admission::allowed);
      if (index == 0) parts.primary.fail_with(Errc::corrupt);
    }
  });
  EXPECT_LE(parts.storage.unusable_operations(), kThreads * kEach);
  const auto before = parts.storage.unusable_operations();
  run_threads(kThreads, [&](std::size_t) {
    for (int i = 0; i < kEach; ++i)
      (void)parts.storage.admit();
  });
  EXPECT_EQ(parts.storage.unusable_operations(), before + kThreads * kEach);
}

}  // namespace
}  // namespace shmcb::test
