// SPDX-License-Identifier: BSD-3-Clause
// Histories recorded from real processes: some order of all operations has to explain every answer. And that the check
// refuses histories that nothing explains.
#include "process/histories.hpp"

#include <cstdint>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "process/torture.hpp"

namespace shmcb::test {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint32_t kRounds = 300;
#else
constexpr std::uint32_t kRounds = 2'000;
#endif

TEST(Histories, OfProcessesAtOneInstantAreExplainedByAnOrder) {
  histories::Recorder recorder(test_seed());
  for (std::uint32_t i = 0; i < kRounds && !HasFailure(); ++i)
    recorder.round(0);
  recorder.print("at one instant");
  EXPECT_GT(recorder.overlapped(), 0U) << "the test does not reach what it is for";
}

TEST(Histories, OfProcessesWhoseClocksDifferAreExplainedByAnOrder) {
  histories::Recorder recorder(test_seed());
  for (std::uint32_t i = 0; i < kRounds && !HasFailure(); ++i)
    recorder.round(40);
  recorder.print("at many instants");
  EXPECT_GT(recorder.overlapped(), 0U) << "the test does not reach what it is for";
}

// ---- the check itself
// --------------------------------------------------------------------------------------------------------------------

using histories::Answer;
using histories::Event;
using histories::Op;
using proof::Linearizer;
using proof::Reference;
using proof::Transition;

/// Two processes, one after the other: the first opens the breaker, the second is turned away and forces it closed.
std::vector<Event> sequential_history(Reference reference) {
  std::vector<Event> history{{.op = {.kind = Op::Kind::record, .token = 0, .outcome = Outcome::failure}},
                             {.op = {.kind = Op::Kind::record, .token = 0, .outcome = Outcome::failure}},
                             {.op = {.kind = Op::Kind::admit, .token = 5, .at = 1}, .participant = 1},
                             {.op = {.kind = Op::Kind::snapshot, .at = 1}, .participant = 1},
                             {.op = {.kind = Op::Kind::force, .to = CircuitState::closed, .at = 2}, .participant = 1},
                             {.op = {.kind = Op::Kind::mode, .mode = Mode::observe, .at = 2}, .participant = 1},
                             {.op = {.kind = Op::Kind::admit, .token = 6, .at = 2}, .participant = 1},
                             {.op = {.kind = Op::Kind::snapshot, .at = 2}, .participant = 1}};
  std::uint64_t order = 0;
  for (Event& event : history) {
    event.begun = order++;
    event.answer = reference.perform(event.op, event.transition);
    event.ended = order++;
  }
  return history;
}

TEST(Linearizer, ExplainsWhatHappenedAndNothingElse) {
  const std::vector<Settings> settings = histories::settings_of_kind(0);
  Reference before(settings);
  std::optional<Transition> none;
  (void)before.perform({.kind = Op::Kind::admit, .token = 0}, none);
  const std::vector<Event> good = sequential_history(before);
  const auto explained = [&](const std::vector<Event>& history) { return Linearizer(history, {}).explains(before); };
  EXPECT_TRUE(explained(good)) << text_of(good);

  const auto with = [&](std::size_t i, auto change) {
    std::vector<Event> wrong = good;
    change(wrong[i]);
    return wrong;
  };
  EXPECT_FALSE(explained(with(0, [](Event& e) { e.answer.status = RecordStatus::stale; })));
  EXPECT_FALSE(explained(with(1, [](Event& e) { e.transition.reset(); }))) << "nobody reports the opening";
  EXPECT_FALSE(explained(with(0, [&](Event& e) { e.transition = good[1].transition; }))) << "two report it";
  EXPECT_FALSE(explained(with(1, [](Event& e) { e.transition->reason = TransitionReason::probe_failed; })));
  EXPECT_FALSE(explained(with(1, [](Event& e) { e.transition->at += 1; })));
  EXPECT_FALSE(explained(with(2, [](Event& e) { e.answer.admission = Admission::allowed; })));
  EXPECT_FALSE(explained(with(2, [](Event& e) { e.answer.retry_after += 1; })));
  EXPECT_FALSE(explained(with(3, [](Event& e) { e.answer.failures += 1; })));
  EXPECT_FALSE(explained(with(3, [](Event& e) { e.answer.rejected += 1; })));
  EXPECT_FALSE(explained(with(4, [](Event& e) { e.answer.error = Errc::corrupt; })));
  EXPECT_FALSE(explained(with(5, [](Event& e) { e.answer.mode = Mode::disabled; })));
  EXPECT_FALSE(explained(with(6, [](Event& e) { e.answer.state = CircuitState::open; })));
  EXPECT_FALSE(explained(with(7, [](Event& e) { e.answer.mode = Mode::automatic; })));
  // A report by somebody who had not begun yet.
  std::vector<Event> wrong = good;
  wrong[2].transition = std::exchange(wrong[1].transition, std::nullopt);
  EXPECT_FALSE(explained(wrong));
}

TEST(Linearizer, AllowsTheOtherOrderOnlyToOperationsThatRanBesideEachOther) {
  const std::vector<Settings> settings = histories::settings_of_kind(0);
  Reference before(settings);
  // An admit that does not see a forced state which had come back before it was called.
  std::vector<Event> history{{.op = {.kind = Op::Kind::force, .to = CircuitState::open}, .begun = 0, .ended = 1},
                             {.op = {.kind = Op::Kind::admit, .token = 5}, .participant = 1, .begun = 2, .ended = 3}};
  Reference real = before;
  history[1].answer = real.perform(history[1].op, history[1].transition);
  history[0].answer = real.perform(history[0].op, history[0].transition);
  EXPECT_FALSE(Linearizer(history, {}).explains(before));
  history[0].ended = 4;
  EXPECT_TRUE(Linearizer(history, {}).explains(before));
}

TEST(Linearizer, BringsBackWhatLeftAGrowingWindowOnlyWhereTheGrowthRanBesideIt) {
  const std::vector<Settings> settings = histories::settings_of_kind(0);
  const std::uint8_t larger = 2;
  Reference before(settings);
  std::optional<Transition> none;
  for (const Outcome outcome : {Outcome::failure, Outcome::success, Outcome::success, Outcome::success}) {
    (void)before.perform({.kind = Op::Kind::admit}, none);
    (void)before.perform({.kind = Op::Kind::record, .outcome = outcome}, none);
  }
  Reference grown = before;
  (void)grown.perform({.kind = Op::Kind::replace, .settings = larger}, none);
  (void)grown.perform({.kind = Op::Kind::record, .outcome = Outcome::success}, none);
  ASSERT_EQ(grown.look().failures, 1U);
  // A success pushes the failure out, then the window grows, and it shows the failure again.
  std::vector<Event> history{
      {.op = {.kind = Op::Kind::record}, .begun = 0, .ended = 1, .answer = {.status = RecordStatus::counted}},
      {.op = {.kind = Op::Kind::snapshot}, .begun = 2, .ended = 3, .answer = before.look()},
      {.op = {.kind = Op::Kind::replace, .settings = larger}, .participant = 1, .begun = 4, .ended = 5},
      {.op = {.kind = Op::Kind::snapshot}, .begun = 6, .ended = 7, .answer = grown.look()}};
  history[1].answer.failures = 0;
  history[1].answer.successes = 4;
  EXPECT_FALSE(Linearizer(history, {}).explains(before));
  history[2].begun = 0;
  EXPECT_TRUE(Linearizer(history, {}).explains(before));
}

}  // namespace
}  // namespace shmcb::test
