// SPDX-License-Identifier: BSD-3-Clause
// What a callback may return, and when fallbacks run.
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "breaker/scripted_storage.hpp"
#include "shmcb/circuit_breaker.hpp"
#include "shmcb/memory_storage.hpp"

namespace shmcb {
namespace {

using test::Script;
using test::ScriptedStorage;
using ::testing::ElementsAre;

constexpr auto kEveryException = [](std::exception_ptr) { return true; };
constexpr auto kNoException = [](std::exception_ptr) { return false; };

class Call : public ::testing::Test {
 protected:
  std::shared_ptr<Script> script = std::make_shared<Script>();
  ScriptedStorage storage{script};
  CircuitBreaker<ScriptedStorage, bool (*)(std::exception_ptr)> breaker{storage, kEveryException};

  void reject(Millis retry_after, CircuitState state = CircuitState::open) {
    script->admits.push_back(test::rejected(retry_after, state));
  }
};

TEST_F(Call, ReturnsTheValueAndRecordsOneSuccess) {
  EXPECT_EQ(breaker.call([] { return 42; }), 42);
  EXPECT_THAT(script->operations, ElementsAre("admit", "record success"));
}

TEST_F(Call, HandsTheTokenOfItsAdmissionBack) {
  script->admits.push_back(test::probe(77));
  breaker.call([] {});
  ASSERT_EQ(script->tokens.size(), 1U);
  EXPECT_EQ(script->tokens[0].period, 77U);
  EXPECT_EQ(script->tokens[0].admission, Admission::probe);
}

TEST_F(Call, RecordsAfterTheCallbackHasCompleted) {
  breaker.call([&] { EXPECT_THAT(script->operations, ElementsAre("admit")); });
  EXPECT_THAT(script->operations, ElementsAre("admit", "record success"));
}

TEST_F(Call, TakesACallbackThatReturnsNothing) {
  bool ran = false;
  breaker.call([&] { ran = true; });
  breaker.call([] {}, [](std::exception_ptr) { FAIL(); });
  static_assert(std::is_void_v<decltype(breaker.call([] {}))>);
  EXPECT_TRUE(ran);
  EXPECT_THAT(script->operations, ElementsAre("admit", "record success", "admit", "record success"));
}

TEST_F(Call, ReturnsReferencesToTheSameObject) {
  int value = 1;
  const auto lvalue = [&]() -> int& { return value; };
  const auto constant = [&]() -> const int& { return value; };
  const auto rvalue = [&]() -> int&& { return std::move(value); };
  static_assert(std::is_same_v<decltype(breaker.call(lvalue)), int&>);
  static_assert(std::is_same_v<decltype(breaker.call(constant)), const int&>);
  static_assert(std::is_same_v<decltype(breaker.call(rvalue)), int&&>);
  EXPECT_EQ(&breaker.call(lvalue), &value);
  EXPECT_EQ(&breaker.call(constant), &value);
  int&& moved = breaker.call(rvalue);
  EXPECT_EQ(&moved, &value);
}

TEST_F(Call, ReturnsAFallbacksReference) {
  int value = 1;
  reject(Millis{1});
  EXPECT_EQ(&breaker.call([&]() -> int& { return value; }, [&]() -> int& { return value; }), &value);
}

TEST_F(Call, ReturnsMoveOnlyAndConstantValues) {
  EXPECT_EQ(*breaker.call([] { return std::make_unique<int>(7); }), 7);
  EXPECT_EQ(*breaker.call([]() -> const std::unique_ptr<int> { return std::make_unique<int>(8); }), 8);
  const auto text = breaker.call([]() -> const std::string { return "constant"; });
  EXPECT_EQ(text, "constant");
}

struct [[nodiscard]] Pinned {
  explicit Pinned(int number) : value(number), self(this) {}
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  ~Pinned() = default;
  int value;
  const Pinned* self;
};

TEST_F(Call, ReturnsValuesThatCannotBeMoved) {
  const Pinned pinned = breaker.call([] { return Pinned{5}; });
  EXPECT_EQ(pinned.value, 5);
  EXPECT_EQ(pinned.self, &pinned);
  EXPECT_THAT(script->operations, ElementsAre("admit", "record success"));
}

TEST_F(Call, RecordsOneFailureOfACallbackWhoseValueCannotBeMoved) {
  const Pinned pinned = breaker.call([]() -> Pinned { throw std::runtime_error("down"); }, [] { return Pinned{6}; });
  EXPECT_EQ(pinned.self, &pinned);
  EXPECT_THROW(static_cast<void>(breaker.call([]() -> Pinned { throw std::runtime_error("down"); })),
               std::runtime_error);
  EXPECT_THAT(script->operations, ElementsAre("admit", "record failure", "admit", "record failure"));
}

TEST_F(Call, MovesAValueOnceAtMost) {
  struct Counted {
    Counted() = default;
    Counted(Counted&& other) noexcept : moves(other.moves + 1) {}
    int moves = 0;
  };
  EXPECT_LE(breaker.call([] { return Counted{}; }).moves, 1);
}

TEST_F(Call, RunsCallbacksOfEveryKind) {
  struct OnlyAsRvalue {
    std::unique_ptr<int> value;
    std::unique_ptr<int> operator()() && { return std::move(value); }
  };
  EXPECT_EQ(*breaker.call(OnlyAsRvalue{std::make_unique<int>(3)}), 3);
  int runs = 0;
  auto counting = [runs]() mutable { return ++runs; };
  EXPECT_EQ(breaker.call(counting), 1);
  EXPECT_EQ(breaker.call(counting), 2);  // the callback was not copied
  EXPECT_EQ(breaker.call(+[] { return 4; }), 4);
}

TEST_F(Call, IsNotThereForWhatCannotBeCalledWithoutArguments) {
  using Breaker = decltype(breaker);
  constexpr auto takes = []<class... A>(A...) { return requires(Breaker& b, A... a) { b.call(a...); }; };
  struct NeedsAnInt {
    void operator()(int) const {}
  };
  struct Nullary {
    void operator()() const {}
  };
  static_assert(takes(Nullary{}));
  static_assert(!takes(NeedsAnInt{}));
  static_assert(!takes(Nullary{}, NeedsAnInt{}));
}

TEST_F(Call, ThrowsWhatTheCallbackThrewAndRecordsOneFailure) {
  EXPECT_THROW(breaker.call([] { throw std::range_error("down"); }), std::range_error);
  EXPECT_THROW(breaker.call([]() -> int { throw 42; }), int);
  EXPECT_THAT(script->operations, ElementsAre("admit", "record failure", "admit", "record failure"));
}

TEST_F(Call, ThrowsTheVeryObjectThatTheCallbackThrew) {
  const auto original = std::make_exception_ptr(std::runtime_error("down"));
  try {
    breaker.call([&] { std::rethrow_exception(original); });
    FAIL();
  } catch (...) {
    EXPECT_EQ(std::current_exception(), original);
  }
}

TEST_F(Call, GivesTheFallbackWhatTheCallbackThrew) {
  const auto original = std::make_exception_ptr(std::runtime_error("down"));
  const int value = breaker.call([&]() -> int { std::rethrow_exception(original); },
                                 [&](std::exception_ptr thrown) {
                                   EXPECT_EQ(thrown, original);
                                   return 9;
                                 });
  EXPECT_EQ(value, 9);
  EXPECT_THAT(script->operations, ElementsAre("admit", "record failure"));
}

TEST_F(Call, RecordsTheFailureBeforeTheFallbackRuns) {
  breaker.call([] { throw std::runtime_error("down"); },
               [&] { EXPECT_THAT(script->operations, ElementsAre("admit", "record failure")); });
}

TEST_F(Call, RunsTheFallbackOutsideOfTheHandlerOfTheFailure) {
  breaker.call([] { throw std::runtime_error("down"); }, [] { EXPECT_EQ(std::current_exception(), nullptr); });
}

TEST_F(Call, NeverUsesTheFallbackForAnIgnoredException) {
  CircuitBreaker ignoring{storage, kNoException};
  EXPECT_THROW(ignoring.call([]() -> int { throw std::invalid_argument("caller's fault"); },
                             [] {
                               ADD_FAILURE();
                               return 0;
                             }),
               std::invalid_argument);
  EXPECT_THROW(ignoring.call([] { throw std::invalid_argument("caller's fault"); }), std::invalid_argument);
  EXPECT_THAT(script->operations, ElementsAre("admit", "record ignored", "admit", "record ignored"));
}

TEST_F(Call, LetsTheFallbacksOwnExceptionPropagate) {
  const auto fallback = []() -> int { throw std::domain_error("fallback"); };
  EXPECT_THROW(breaker.call([]() -> int { throw std::runtime_error("down"); }, fallback), std::domain_error);
  reject(Millis{1});
  EXPECT_THROW(breaker.call([] { return 1; }, fallback), std::domain_error);
  EXPECT_THAT(script->operations, ElementsAre("admit", "record failure", "admit"));
}

TEST_F(Call, ConvertsWhatTheFallbackReturns) {
  reject(Millis{1});
  const std::string text = breaker.call([] { return std::string{"value"}; }, [] { return "fallback"; });
  EXPECT_EQ(text, "fallback");
  reject(Millis{1});
  EXPECT_EQ(breaker.call([] { return std::make_unique<int>(1); }, [] { return nullptr; }), nullptr);
  reject(Millis{1});
  breaker.call([] {}, [] { return "dropped"; });
}

TEST_F(Call, PrefersTheFallbackThatTakesTheException) {
  struct Both {
    int operator()() const { return 0; }
    int operator()(std::exception_ptr thrown) const { return thrown != nullptr ? 1 : 2; }
  };
  reject(Millis{1});
  EXPECT_EQ(breaker.call([] { return 9; }, Both{}), 1);
  reject(Millis{1});
  EXPECT_EQ(breaker.call([] { return 9; }, [](const std::exception_ptr& thrown) { return thrown != nullptr ? 1 : 2; }),
            1);
}

TEST_F(Call, WhenRejectedThrowsWithoutRunningTheCallback) {
  reject(Millis{1500}, CircuitState::half_open);
  try {
    breaker.call([] { ADD_FAILURE(); });
    FAIL();
  } catch (const CircuitOpenError& error) {
    EXPECT_EQ(error.breaker_name(), "scripted");
    EXPECT_EQ(error.state(), CircuitState::half_open);
    EXPECT_EQ(error.retry_after(), Millis{1500});
  }
}

TEST_F(Call, WhenRejectedGivesTheFallbackAFreshError) {
  std::vector<std::exception_ptr> errors;
  for (const Millis retry_after : {Millis{10}, Millis{20}}) {
    reject(retry_after);
    const int value = breaker.call(
        [] {
          ADD_FAILURE();
          return 0;
        },
        [&](std::exception_ptr error) {
          EXPECT_THROW(std::rethrow_exception(error), CircuitOpenError);
          errors.push_back(error);
          return 5;
        });
    EXPECT_EQ(value, 5);
  }
  EXPECT_NE(errors[0], errors[1]);
  try {
    std::rethrow_exception(errors[1]);
  } catch (const CircuitOpenError& error) {
    EXPECT_EQ(error.retry_after(), Millis{20});
  }
}

TEST_F(Call, WhenRejectedIsOneStorageOperation) {
  reject(Millis{1});
  EXPECT_THROW(breaker.call([] {}), CircuitOpenError);
  EXPECT_THAT(script->operations, ElementsAre("admit"));
  reject(Millis{1});
  breaker.call([] {}, [] {});
  EXPECT_THAT(script->operations, ElementsAre("admit", "admit"));
}

TEST_F(Call, MayBeNested) {
  auto other_script = std::make_shared<Script>();
  CircuitBreaker other{ScriptedStorage{other_script}, kEveryException};
  EXPECT_THROW(breaker.call([&] { other.call([] { throw std::runtime_error("down"); }); }), std::runtime_error);
  EXPECT_THAT(script->operations, ElementsAre("admit", "record failure"));
  EXPECT_THAT(other_script->operations, ElementsAre("admit", "record failure"));
}

TEST_F(Call, WorksInsideAHandler) {
  try {
    throw std::logic_error("outer");
  } catch (const std::logic_error&) {
    EXPECT_EQ(breaker.call([]() -> int { throw std::runtime_error("down"); }, [] { return 1; }), 1);
  }
  EXPECT_THAT(script->operations, ElementsAre("admit", "record failure"));
}

TEST_F(Call, TakesNoexceptCallbacksWithoutIsFailure) {
  CircuitBreaker plain{storage};
  static_assert(std::is_same_v<decltype(plain), CircuitBreaker<ScriptedStorage, NoClassifier, AlwaysSuccess>>);
  EXPECT_EQ(plain.call([]() noexcept { return 1; }), 1);
  EXPECT_THAT(script->operations, ElementsAre("admit", "record success"));
}

auto made_by_a_factory(ScriptedStorage storage) {
  return CircuitBreaker{std::move(storage), kEveryException};
}

TEST_F(Call, WorksOnABreakerThatAFactoryMade) {
  auto made = made_by_a_factory(storage);
  static_assert(!std::is_move_constructible_v<decltype(made)> && !std::is_copy_constructible_v<decltype(made)>);
  EXPECT_EQ(made.call([] { return 1; }), 1);
}

TEST(CallTime, IsThatOfTheCallbacksEndAndNotOfTheFallbacks) {
  FakeClock clock;
  const Instant start = clock.now();
  CircuitBreaker breaker{
      MemoryStorage<FakeClock>::open({.name = "time", .failure_threshold = {.failures = 1, .window = 1}}, clock)
          .value(),
      kEveryException};
  breaker.call(
      [&] {
        clock.advance(Millis{5});
        throw std::runtime_error("down");
      },
      [&] { clock.advance(Millis{100}); });
  EXPECT_EQ(breaker.metrics().opened_at, start + Millis{5});
}

}  // namespace
}  // namespace shmcb
