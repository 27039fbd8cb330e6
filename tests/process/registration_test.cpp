// SPDX-License-Identifier: BSD-3-Clause
// Registering breakers while processes die, stand still and race: a name is there or not and never twice, nobody waits,
// a place and a record are never lost for good.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "process/victim.hpp"

namespace shmcb::test {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kStride = 17;  // a fork costs many times as much
#else
constexpr std::uint64_t kStride = 1;
#endif

constexpr std::uint32_t kPlaces = 3;

BreakerConfig named(std::string name) {
  return {.name = std::move(name), .failure_threshold = {.failures = 3, .window = 10}, .cooldown = {Millis{100}}};
}

/// Room for exactly kPlaces breakers with the rings they need.
TestSegment make_segment() {
  return TestSegment({.breakers = kPlaces, .participants = 16, .epoch = kScriptStart});
}

constexpr int kFull = 10 + static_cast<int>(Errc::registry_full);  ///< exit code

/// In a child that gets `signal` at its k-th access.
Child register_in_child(const TestSegment& test, const std::string& name, std::uint64_t k, std::uint64_t& steps,
                        int signal = SIGKILL) {
  return fork_child([&, name, k, signal] {
    core::Presence& presence = test->presence();
    const auto view = test->view().in_environment<KillEnv>();
    core::Registry<KillEnv> registry(view, presence);
    core::BreakerCell<KillEnv> cell;
    bool created = false;
    if (!presence.ensure_current()) return 1;
    KillStep::arm(k, signal);
    const Errc error = registry.find_or_add(name, settings_of(named(name)), 0, cell, created);
    steps = KillStep::steps();
    KillStep::disarm();
    return error == Errc::ok ? 0 : 10 + static_cast<int>(error);
  });
}

ScriptRunner<ShmStorage<FakeClock>> open(const Segment& segment, const std::string& name) {
  FakeClock clock{kScriptStart};
  auto opened = ShmStorage<FakeClock>::open(segment, named(name), OnMismatch::refuse, clock);
  if (!opened) throw std::runtime_error(opened.error().message);
  return {*std::move(opened), clock};
}

/// One breaker of each of these names, in which one failure of each of the `old` ones is counted, and no room for more.
void expect_exactly(const TestSegment& test, const std::vector<std::string>& names,
                    const std::vector<std::string>& old) {
  for (const std::string& name : names) {
    auto breaker = open(test.segment(), name);
    const Segment other = test.attach();
    auto same = open(other, name);
    const std::uint64_t before = same.storage().snapshot().record.failures;
    const bool fresh = std::find(old.begin(), old.end(), name) == old.end();
    EXPECT_EQ(before, fresh ? 0U : 1U) << name;
    breaker.run(Script{admit_as(0), failure_of(0)});
    EXPECT_EQ(same.storage().snapshot().record.failures, before + 1) << "two breakers are called " << name;
  }
  const auto beyond =
      ShmStorage<FakeClock>::open(test.segment(), named("one-too-many"), OnMismatch::refuse, FakeClock{kScriptStart});
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.error().code, Errc::registry_full);
  for (std::uint32_t i = 0; i < kPlaces; ++i)
    expect_ring_unbroken(test.segment(), i);
  for (const std::string& name : names) {
    auto breaker = open(test.segment(), name);
    expect_every_state_can_be_left(breaker);
  }
  expect_records_accounted(test.segment(), test->geometry().records);
}

struct Preparation {
  std::string what;
  std::vector<std::string> names;     ///< registered before
  std::vector<std::uint64_t> deaths;  ///< accesses at which processes have died before while they registered "lost"
  std::string victim = "victim";
  int full = 0;  ///< exit code of a victim that completes
};

void explore(const Preparation& p) {
  const SharedArea<std::uint64_t> steps;
  std::uint64_t k = 1;
  for (bool completed = false; !completed; k += kStride) {
    SCOPED_TRACE(p.what + ", killed at access " + std::to_string(k));
    const TestSegment test = make_segment();
    for (const std::string& name : p.names)
      open(test.segment(), name).run(Script{admit_as(0), failure_of(0), success_of(0)});
    for (const std::uint64_t death : p.deaths) {
      ASSERT_EQ(register_in_child(test, "lost", death, *steps).wait(), killed_by(SIGKILL));
    }
    std::vector<std::string> there = p.names;
    core::BreakerCell<core::StdEnv> lost;
    if (core::Registry<core::StdEnv>(test->view(), test->presence()).find("lost", lost) == Errc::ok)
      there.emplace_back("lost");
    const Ended end = register_in_child(test, p.victim, k, *steps).wait();
    completed = end == exited(p.full);
    ASSERT_TRUE(completed || end == killed_by(SIGKILL)) << end;
    KillPoints::count(completed ? 0 : 1);
    EXPECT_LE(take_census(test.segment()).left_behind, 1 + p.deaths.size());

    // The same name, and as many further ones as there are places, whoever died holding one.
    std::vector<std::string> names = there;
    const bool known = std::find(names.begin(), names.end(), p.victim) != names.end();
    if (!known && names.size() < kPlaces) names.push_back(p.victim);
    for (int i = 0; names.size() < kPlaces; ++i)
      names.push_back("further-" + std::to_string(i));
    expect_exactly(test, names, p.names);
    if (::testing::Test::HasFailure()) return;
  }
  std::printf("[ kills    ] %s: %lu kill points%s\n", p.what.c_str(), static_cast<unsigned long>(*steps),
              kStride == 1 ? "" : " (a sample of them)");
}

TEST(KilledRegistration, OfANewNameLeavesItRegisteredOrNot) {
  explore({.what = "register a new name", .names = {"a"}, .deaths = {}});
}

TEST(KilledRegistration, OfAnExistingNameLeavesItAsItWas) {
  explore({.what = "register an existing name", .names = {"a", "b"}, .deaths = {}, .victim = "b"});
}

TEST(KilledRegistration, InAFullSegmentLeavesNothing) {
  explore({.what = "register where all places are taken", .names = {"a", "b", "c"}, .deaths = {}, .full = kFull});
}

/// Stopped at each access of a registration in the midst of which others register these names, then continued.
void explore_stopped(const std::string& what, const std::vector<std::string>& meanwhile) {
  const SharedArea<std::uint64_t> steps;
  std::uint64_t stops = 0;
  for (std::uint64_t k = 1;; k += kStride, ++stops) {
    SCOPED_TRACE(what + ", stopped at access " + std::to_string(k));
    const TestSegment test = make_segment();
    open(test.segment(), "a").run(Script{admit_as(0), failure_of(0)});
    Child child = register_in_child(test, "victim", k, *steps, SIGSTOP);
    const bool stopped = comes_to_a_stop(child);
    std::vector<std::string> names{"a"};
    for (const std::string& name : meanwhile) {
      // Without the patience that a storage has with whoever is preparing the last place.
      core::BreakerCell<core::StdEnv> cell;
      bool created = false;
      const Errc error = core::Registry<core::StdEnv>(test->view(), test->presence())
                             .find_or_add(name, settings_of(named(name)), 0, cell, created, {.may_wait = false});
      if (error == Errc::ok) {
        names.push_back(name);
      } else {
        ASSERT_EQ(to_string(error), to_string(Errc::registry_full)) << name;
        ASSERT_EQ(names.size(), kPlaces - 1) << "there is room for " << name << " beside the one in preparation";
      }
    }
    if (stopped) child.kill(SIGCONT);
    const Ended end = child.wait();
    EXPECT_LT(*steps, 2'000U) << "it looked again too often";
    const bool by_others = std::find(names.begin(), names.end(), "victim") != names.end();
    const bool full = names.size() == kPlaces && !by_others;
    ASSERT_EQ(end, exited(full ? kFull : 0));
    if (!full && !by_others) names.emplace_back("victim");
    for (int i = 0; names.size() < kPlaces; ++i)
      names.push_back("further-" + std::to_string(i));
    expect_exactly(test, names, {"a"});
    if (::testing::Test::HasFailure()) return;
    if (!stopped) break;
  }
  EXPECT_GT(stops, 100 / kStride);
  std::printf("[ stops    ] %s: %lu\n", what.c_str(), static_cast<unsigned long>(stops));
}

TEST(StoppedRegistration, FindsTheNameThatOthersRegisteredMeanwhileAndGivesItsPlaceBack) {
  explore_stopped("register a name that others register meanwhile", {"victim"});
  explore_stopped("register a name that others register meanwhile, and one more", {"victim", "b"});
}

TEST(StoppedRegistration, MakesNobodyWaitAndKeepsThePlaceItHasTaken) {
  explore_stopped("register a name while others register another", {"b"});
  explore_stopped("register a name while others take all places that are left", {"b", "c"});
}

/// How many accesses the registration of a new name makes in an empty segment. The publication is among the last few.
std::uint64_t accesses_of_a_registration() {
  const SharedArea<std::uint64_t> steps;
  const TestSegment test = make_segment();
  EXPECT_EQ(register_in_child(test, "lost", KillStep::kNever, *steps).wait(), exited(0));
  return *steps;
}

TEST(KilledRegistration, OnAPlaceOfTheDeadLeavesItToTheNext) {
  // Dead at the claim of a place and within the taking of its ring; filling its record; before the publication.
  std::vector<std::uint64_t> deaths{40, accesses_of_a_registration() - 8};
  for (std::uint64_t death = 3; death <= 18; ++death)
    deaths.push_back(death);
  for (const std::uint64_t death : deaths) {
    explore({.what = "register on the place of one who died at access " + std::to_string(death),
             .names = {"a", "b"},
             .deaths = {death}});
    if (HasFailure()) break;
  }
}

TEST(KilledRegistration, BesideOneWhoDiedAboutThePublicationTakesAnotherPlace) {
  const std::uint64_t accesses = accesses_of_a_registration();
  for (std::uint64_t death = accesses - 4; death <= accesses; ++death) {
    explore(
        {.what = "register beside one who died at access " + std::to_string(death) + " of " + std::to_string(accesses),
         .names = {"a"},
         .deaths = {death}});
    if (HasFailure()) break;
  }
}

TEST(KilledRegistration, OfSeveralProcessesTakesNoPlaceForGood) {
  explore({.what = "register after three have died at it", .names = {}, .deaths = {9, 30, 60}});
}

TEST(RacingRegistration, OfOneNameSucceedsForEveryoneWhereOnePlaceIsLeft) {
  constexpr std::uint32_t kProcesses = 6;
  for (int round = 0; round < 30; ++round) {
    const TestSegment test({.breakers = 1, .participants = 16, .epoch = kScriptStart});
    const SharedBarrier start(kProcesses);
    std::vector<Child> children;
    for (std::uint32_t i = 0; i < kProcesses; ++i) {
      children.push_back(fork_child([&] {
        const Segment attached = test.attach();
        ASSERT_TRUE(start.arrive_and_wait());
        open(attached, "b").run(Script{admit_as(0), success_of(0)});
      }));
    }
    for (Child& child : children)
      ASSERT_EQ(child.wait(), exited(0)) << "round " << round;
    EXPECT_EQ(open(test.segment(), "b").storage().snapshot().record.successes, kProcesses);
  }
}

}  // namespace
}  // namespace shmcb::test
