// SPDX-License-Identifier: BSD-3-Clause
// Histories recorded from real processes: some order of all operations has to explain every answer. And that the check
// refuses histories that nothing explains.
#include "process/linearizable.hpp"

#include <cstdint>

#include <gtest/gtest.h>

#include "process/histories.hpp"
#include "process/torture.hpp"

namespace shmcb::test {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint32_t kRounds = 300;
#else
constexpr std::uint32_t kRounds = 2'000;
#endif

TEST(Histories, OfProcessesAtOneInstantAreExplainedByAnOrder) {
  histories::Recorder recorder(torture_seed());
  for (std::uint32_t i = 0; i < kRounds && !HasFailure(); ++i)
    recorder.round(0);
  recorder.print("at one instant");
  EXPECT_GT(recorder.overlapped(), 0U) << "the test does not reach what it is for";
}

TEST(Histories, OfProcessesWhoseClocksDifferAreExplainedByAnOrder) {
  histories::Recorder recorder(torture_seed());
  for (std::uint32_t i = 0; i < kRounds && !HasFailure(); ++i)
    recorder.round(40);
  recorder.print("at many instants");
  EXPECT_GT(recorder.overlapped(), 0U) << "the test does not reach what it is for";
}

// ---- the check itself
// --------------------------------------------------------------------------------------------------------------------

/// Two processes, one after the other: the first opens the breaker, the second is turned away and forces it closed.
History sequential_history(SequentialBreaker& reference) {
  (void)reference.apply({.kind = Event::Kind::admit, .attempt = 0});
  History history{.processes = {{{.kind = Event::Kind::record, .attempt = 0, .outcome = Outcome::failure},
                                 {.kind = Event::Kind::record, .attempt = 0, .outcome = Outcome::failure}},
                                {{.kind = Event::Kind::admit, .attempt = 5, .now = 1},
                                 {.kind = Event::Kind::force, .to = CircuitState::closed, .now = 2},
                                 {.kind = Event::Kind::admit, .attempt = 6, .now = 2}}}};
  SequentialBreaker real = reference;
  std::uint64_t order = 0;
  for (auto& process : history.processes) {
    for (Event& event : process) {
      event.invoked = order++;
      event.answer = real.apply(event);
      event.responded = order++;
    }
  }
  history.after = real.seen();
  return history;
}

TEST(LinearizabilityCheck, ExplainsWhatHappenedAndNothingElse) {
  SequentialBreaker before(histories::config_of(0));
  const History good = sequential_history(before);
  const auto explained = [&](const History& history) { return LinearizabilityCheck(before, history).explained(); };
  EXPECT_TRUE(explained(good)) << text_of(good);

  const auto with = [&](std::size_t p, std::size_t i, auto change) {
    History wrong = good;
    change(wrong.processes[p][i]);
    return wrong;
  };
  EXPECT_FALSE(explained(with(0, 0, [](Event& e) { e.answer.status = RecordStatus::stale; })));
  EXPECT_FALSE(explained(with(0, 1, [](Event& e) { e.answer.change.reset(); }))) << "nobody reports the opening";
  EXPECT_FALSE(explained(with(0, 0, [&](Event& e) { e.answer.change = good.processes[0][1].answer.change; })))
      << "two report it";
  EXPECT_FALSE(explained(with(1, 0, [](Event& e) { e.answer.admission = Admission::allowed; })));
  EXPECT_FALSE(explained(with(1, 0, [](Event& e) { e.answer.retry_after += 1; })));
  EXPECT_FALSE(explained(with(1, 1, [](Event& e) { e.answer.error = Errc::corrupt; })));
  EXPECT_FALSE(explained(with(1, 2, [](Event& e) { e.answer.state = CircuitState::open; })));
  History wrong = good;
  wrong.after.failures += 1;
  EXPECT_FALSE(explained(wrong));
  wrong = good;
  wrong.after.rejected += 1;
  EXPECT_FALSE(explained(wrong));
}

TEST(LinearizabilityCheck, AllowsTheOtherOrderOnlyToOperationsThatRanBesideEachOther) {
  SequentialBreaker before(histories::config_of(0));
  (void)before.apply({.kind = Event::Kind::admit, .attempt = 0});
  // An admit that does not see a forced state which had come back before it was called.
  History history{.processes = {{{.kind = Event::Kind::force, .to = CircuitState::open, .invoked = 0, .responded = 1}},
                                {{.kind = Event::Kind::admit, .attempt = 5, .invoked = 2, .responded = 3}}}};
  SequentialBreaker real = before;
  history.processes[1][0].answer = real.apply(history.processes[1][0]);
  history.processes[0][0].answer = real.apply(history.processes[0][0]);
  history.after = real.seen();
  EXPECT_FALSE(LinearizabilityCheck(before, history).explained());
  history.processes[0][0].responded = 4;
  EXPECT_TRUE(LinearizabilityCheck(before, history).explained());
}

}  // namespace
}  // namespace shmcb::test
