// SPDX-License-Identifier: BSD-3-Clause
// shmcb-prove-weak: small cases of the shared-memory code, two or three threads with one to three operations each,
// under every order of steps and every outcome of weak memory that Relacy draws. docs/memory-model.md says what it
// cannot see.
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fnmatch.h>

#include "proof/relacy_env.hpp"

namespace shmcb::proof {
namespace {

using core::Bits;

constexpr Settings settings_with(std::uint64_t revision) {
  Settings settings;
  settings.failures = 2;
  settings.window = 4;
  settings.cooldown_ms = 1'000;
  settings.probe_timeout_ms = 1'000;
  settings.revision = revision;
  return settings;
}
constexpr Settings kSettings = settings_with(0);
constexpr Bits kSecond = 1'000'000;

template <class CaseOf>
void add_one(Stage<typename CaseOf::Env>& stage) {
  stage.add("a", kSettings);
}

// ---- records
// -------------------------------------------------------------------------------------------------------------

/// Publishers that use records again while others copy them. Forced states make the words of a record tell of each
/// other and of the control word.
template <class Derived, int kThreads>
struct Forced : Case<Derived, kThreads> {
  using Base = Case<Derived, kThreads>;
  void check(const typename Base::Seen& seen) {
    const auto& [word, record] = seen;
    require(record.journaled == word.generation() && record.window_generation == word.generation(),
            "a copy is of the record that the control word names");
    if (record.journaled == 0) return;
    const rules::Breaker& b = record.breaker;
    require(b.opened_at == b.since && b.opened_at == b.lease_at && b.open_until == b.since + 1'000,
            "a copy is of one record");
  }
  void force(const typename Base::Cell& cell, CircuitState to, Bits now_us) {
    const core::CellRecord r = cell.force(to, now_us, kNoChance);
    require(r.error == Errc::ok && r.status == RecordStatus::counted, "a state can be forced");
  }
};

struct RecordCopies : Forced<RecordCopies, 3> {
  static void build(Stage<Env>& stage) { add_one<RecordCopies>(stage); }
  void thread(unsigned who) {
    const Cell at = cell(who);
    if (who == 0) {
      force(at, CircuitState::open, 1 * kSecond);
      force(at, CircuitState::closed, 2 * kSecond);
    } else if (who == 1) {
      force(at, CircuitState::open, 3 * kSecond);
    } else {
      check(look(at));
      check(look(at));
    }
  }
  void end() {
    require(control().generation() == 3, "each forced state is a generation");
    check(look(cell(0)));
    check_ring();
    check_records();
  }
};

/// One record free for two breakers: the second publisher has to take over what the first one left.
struct TakeOver : Forced<TakeOver, 3> {
  static void build(Stage<Env>& stage) {
    stage.add("a", kSettings);
    stage.add("b", kSettings);
    stage.leave_free(1);
  }
  void thread(unsigned who) {
    if (who == 0) {
      try_force(cell(who, 1), CircuitState::open);
      try_force(cell(who, 1), CircuitState::closed);
    } else if (who == 1) {
      try_force(cell(who, 0), CircuitState::open);
      try_force(cell(who, 0), CircuitState::closed);
    } else {
      check(look(cell(who, 1)));
    }
  }
  void end() {
    check(look(cell(0, 0)));
    check(look(cell(1, 1)));
    check_records();
  }

 private:
  void try_force(const Cell& at, CircuitState to) {
    const core::CellRecord r = at.force(to, kSecond, kNoChance);
    require(r.error == Errc::ok || r.error == Errc::records_exhausted, "no record, or a state that can be forced");
  }
};

/// What the dead left: a record each for the two who need one.
struct DeadOwner : Forced<DeadOwner, 2> {
  static void build(Stage<Env>& stage) {
    stage.add("a", kSettings);
    stage.leave_free(1);
    for (std::uint32_t i = 1; i < stage.view().geometry().records; ++i) {
      auto& record = *stage.view().record(i);
      if (record.owner.bits != 0) continue;
      record.owner.bits = core::OwnerWord::make(kDead, 1, i).bits;  // died while it filled this one
      record.words[core::word::opened_at].bits = 77;
    }
  }
  void thread(unsigned who) {
    const core::CellRecord r =
        cell(who).force(who == 0 ? CircuitState::open : CircuitState::closed, kSecond, kNoChance);
    forced[who] = r.error == Errc::ok;
    require(forced[who] || r.error == Errc::records_exhausted, "no record, or a state that can be forced");
    check(look(cell(who)));
  }
  void end() {
    require(forced[0] || forced[1], "what a dead process held is taken back");
    check(look(cell(0)));
    check_records();
  }
  bool forced[2] = {};
};

// ---- the ring
// ------------------------------------------------------------------------------------------------------------

template <class Derived, int kThreads, class EnvOf = RelacyEnv<>>
struct Recording : Case<Derived, kThreads, EnvOf> {
  using Base = Case<Derived, kThreads, EnvOf>;
  core::CellRecord record(const typename Base::Cell& at, Bits period, bool failure, Bits now_us = kSecond) {
    core::LocalNotes start;
    const core::CellRecord r =
        at.record_allowed({.period = period, .failure = failure, .now_us = now_us}, start, kNoChance);
    require(r.error == Errc::ok, "an outcome can be recorded");
    return r;
  }
  static void record_before(Stage<EnvOf>& stage, bool failure, Bits now_us = kSecond) {
    core::LocalNotes start;
    (void)stage.cell(stage.builder(), 0)
        .record_allowed({.period = 0, .failure = failure, .now_us = now_us}, start, kNoChance);
  }
};

/// A straggler of an older Closed period beside the first entries of the new one.
struct Straggler : Recording<Straggler, 3> {
  static void build(Stage<Env>& stage) {
    add_one<Straggler>(stage);
    record_before(stage, false);
  }
  void thread(unsigned who) {
    const Cell at = cell(who);
    if (who == 0) {
      require(at.force(CircuitState::closed, kSecond, kNoChance).error == Errc::ok, "a state can be forced");
      counted[0] = record(at, 1, false).status == RecordStatus::counted;
      require(counted[0], "who saw a period begin is counted in it");
    } else if (who == 1) {
      std::uint64_t period = 0;
      if (at.allowed(period)) counted[1] = record(at, period, false).status == RecordStatus::counted && period == 1;
    } else {
      (void)record(at, 0, true);  // a failure: a success would look at the control word once more
    }
  }
  void end() {
    const Seen seen = look(cell(0));
    const auto& entries = check_ring();
    std::uint64_t of_new = 0;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].generation() != 1) continue;
      require(core::kMinRing + i >= seen.record.window_begin, "the entries of a period are behind its begin");
      ++of_new;
    }
    require(of_new == (counted[0] ? 1U : 0U) + (counted[1] ? 1U : 0U), "what was counted is in the window");
    check_records();
  }
  bool counted[2] = {};
};

/// The same where the hint leads right to the tail, so that the straggler sees no entry but the predecessor.
struct StragglerAtHint : Recording<StragglerAtHint, 2> {
  static void build(Stage<Env>& stage) {
    add_one<StragglerAtHint>(stage);
    for (int i = 0; i < 7; ++i)
      record_before(stage, false);
  }
  void thread(unsigned who) {
    const Cell at = cell(who);
    if (who == 0) {
      require(at.force(CircuitState::closed, kSecond, kNoChance).error == Errc::ok, "a state can be forced");
      for (int i = 0; i < 2; ++i)
        require(record(at, 1, false).status == RecordStatus::counted, "who saw a period begin is counted in it");
    } else {
      (void)record(at, 0, true);
    }
  }
  void end() {
    check_ring();
    check_records();
  }
};

/// One bit of a slot says of which period it is, so that a straggler of two periods ago looks like one of ours: the
/// touch of the free slot has to keep it out.
struct OneBit : core::StdWidths {
  static constexpr unsigned slot_generation = 1;  // NOLINT(readability-identifier-naming): as in core/env.hpp
};
struct Touch : Recording<Touch, 2, RelacyEnv<OneBit>> {
  static void build(Stage<Env>& stage) { add_one<Touch>(stage); }
  void thread(unsigned who) {
    const Cell at = cell(who);
    if (who == 0) {
      require(at.force(CircuitState::closed, kSecond, kNoChance).error == Errc::ok, "a state can be forced");
      require(at.force(CircuitState::closed, kSecond, kNoChance).error == Errc::ok, "a state can be forced");
    } else {
      (void)record(at, 0, false);
    }
  }
  void end() {
    core::CellState state;
    require(cell(0).snapshot(state) == Errc::ok, "a snapshot can be taken");
    require(state.successes == 0, "a straggler of two periods ago is not in the window");
    check_records();
  }
};

/// Two failures open: of three that come together exactly two are counted, and one of their callers reports it.
struct Trip : Recording<Trip, 3> {
  static void build(Stage<Env>& stage) {
    add_one<Trip>(stage);
    record_before(stage, false);
  }
  void thread(unsigned who) { answers[who] = record(cell(who), 0, true); }
  void end() {
    std::uint32_t counted = 0;
    std::uint32_t opened = 0;
    for (const core::CellRecord& r : answers) {
      counted += r.status == RecordStatus::counted ? 1U : 0U;
      if (!r.transition) continue;
      ++opened;
      require(r.transition->reason == TransitionReason::failure_threshold_reached, "the reason is reported");
      require(r.transition->after.failures == 2 && r.transition->after.successes == 1, "with the right counts");
    }
    require(counted == 2 && opened == 1, "two of three failures are counted, one opens");
    const auto& entries = check_ring();
    require(entries.size() == 3 && entries[2].trip() && !entries[1].trip(), "the last entry of the period is flagged");
    const Seen seen = look(cell(0));
    require(seen.word.state() == CircuitState::open && seen.record.window_end == core::kMinRing + 2, "it is open");
    check_records();
  }
  core::CellRecord answers[3];
};

/// The author of the flagged entry died before it opened the breaker: the next outcomes do, once.
struct TripHelped : Recording<TripHelped, 3> {
  static void build(Stage<Env>& stage) {
    add_one<TripHelped>(stage);
    record_before(stage, true);
    const Cell at = stage.cell(stage.builder(), 0);
    const auto& ring = at.core().ring();
    typename core::Ring<Env>::Tail tail;
    (void)ring.locate_tail(tail);
    ring.slot(tail.position).bits =
        Entry::make(ring.lap_of(tail.position), 0, {.failure = true, .trip = true}, kSecond).bits;
  }
  void thread(unsigned who) {
    if (who == 2) {
      const Seen seen = look(cell(who));
      require(seen.word.closed() || seen.record.window_end == core::kMinRing + 1, "an opening names its last entry");
    } else {
      answers[who] = record(cell(who), 0, who == 0);
    }
  }
  void end() {
    std::uint32_t opened = 0;
    for (const core::CellRecord& r : answers) {
      require(r.status == RecordStatus::stale, "what comes behind a flag is stale");
      opened += r.transition ? 1U : 0U;
      require(!r.transition || r.transition->after.failures == 2, "with the right counts");
    }
    require(opened == 1, "one of the two completed the trip");
    require(check_ring().size() == 2 && control().state() == CircuitState::open, "it is open");
    check_records();
  }
  core::CellRecord answers[2];
};

/// A stream of appends past the hint: nobody loses the tail, nothing is lost.
struct Append : Recording<Append, 3> {
  static void build(Stage<Env>& stage) {
    add_one<Append>(stage);
    for (int i = 0; i < 6; ++i)
      record_before(stage, false);
  }
  void thread(unsigned who) {
    const Cell at = cell(who);
    for (int i = 0; i < 2; ++i)
      require(record(at, 0, who == 0 && i == 0).status == RecordStatus::counted, "an outcome of the period is counted");
  }
  void end() {
    std::uint32_t failures = 0;
    for (const Entry entry : check_ring())
      failures += entry.failure() ? 1U : 0U;
    require(check_ring().size() == 12 && failures == 1, "every outcome is in the ring");
  }
};

/// Lean accounting: a failure, and a ring later a success whose thread has not heard of it but by the hint. Were it
/// left out, then at no point: in front of the second failure's leaving the window it would have pushed out the first.
struct Lean : Recording<Lean, 2> {
  static void build(Stage<Env>& stage) {
    Settings settings = kSettings;
    settings.lean = true;
    settings.failures = 3;
    settings.window = core::kMinRing - 1;
    stage.add("a", settings);
    record_before(stage, true);
    record_before(stage, false);
  }
  void thread(unsigned who) {
    const Cell at = cell(who);
    if (who == 0) {
      for (std::uint32_t i = 0; i < core::kMinRing - 1; ++i)
        require(record(at, 0, i == 0).status == RecordStatus::counted, "an outcome of the period is counted");
    } else if (!at.leaves_out_success(0)) {
      require(record(at, 0, false).status == RecordStatus::counted, "an outcome of the period is counted");
    }
  }
  void end() {
    typename core::Ring<Env>::Tail tail;
    require(cell(0).core().ring().locate_tail(tail), "the tail is where the hint says");
    require(tail.position == 2 * core::kMinRing + 2, "a success is recorded where a failure is near");
  }
};

// ---- what an admit sees
// --------------------------------------------------------------------------------------------------

/// "What a thread did before a call that committed a transition is seen by an admission that depends on it."
struct Message : Case<Message, 3> {
  static inline Bits probe = 0;
  static void build(Stage<Env>& stage) {
    add_one<Message>(stage);
    const Cell at = stage.cell(stage.builder(), 0);
    (void)at.force(CircuitState::half_open, kSecond, kNoChance);
    probe = at.admit(kSecond, kNoChance).period;
  }
  void begin() { said(info()).store(0); }
  void thread(unsigned who) {
    const Cell at = cell(who);
    if (who == 0) {
      said(info()).store(1);
      const core::CellRecord r = at.record_probe({.probe = probe, .outcome = Outcome::success}, kSecond);
      require(r.error == Errc::ok && r.transition.has_value(), "the probe closes");
    } else if (who == 1) {
      std::uint64_t period = 0;
      if (at.allowed(period)) require(said(info()).load() == 1, "who is allowed sees what the committer did");
    } else {
      const core::CellAdmit r = at.admit(kSecond, kNoChance);
      require(r.error == Errc::ok, "an admit is answered");
      if (r.admission == Admission::allowed) require(said(info()).load() == 1, "who is allowed sees what was done");
    }
  }
  void end() { check_records(); }

  rl::var<int> said;

 private:
  static rl::debug_info info() { return {"what the committer did", "", 0}; }
};

// ---- probes, rejections
// --------------------------------------------------------------------------------------------------

/// The cooldown is over: three come at once, two may.
struct ProbeLimit : Case<ProbeLimit, 3> {
  static void build(Stage<Env>& stage) {
    Settings settings = kSettings;
    settings.probe_limit = 2;
    stage.add("a", settings);
    (void)stage.cell(stage.builder(), 0).force(CircuitState::open, kSecond, kNoChance);
  }
  void thread(unsigned who) {
    answers[who] = cell(who).admit(5 * kSecond, kNoChance);
    require(answers[who].error == Errc::ok, "an admit is answered");
  }
  void end() {
    std::uint32_t probes = 0;
    std::uint32_t transitions = 0;
    std::set<Bits, std::less<>, rl::raw_allocator<Bits>> ids;
    for (const core::CellAdmit& r : answers) {
      transitions += r.transition ? 1U : 0U;
      if (r.admission != Admission::probe) continue;
      ++probes;
      ids.insert(r.period);
    }
    require(probes == 2 && ids.size() == 2 && transitions == 1, "two probes, told apart, and one transition");
    require(look(cell(0)).record.breaker.probes.count == 2, "both are out");
    check_records();
  }
  core::CellAdmit answers[3];
};

/// Two probes have to succeed; one of the verdicts comes twice.
struct ProbeVerdicts : Case<ProbeVerdicts, 3> {
  static inline Bits probes[2] = {};
  static void build(Stage<Env>& stage) {
    Settings settings = kSettings;
    settings.probe_limit = 2;
    settings.success_threshold = 2;
    stage.add("a", settings);
    const Cell at = stage.cell(stage.builder(), 0);
    (void)at.force(CircuitState::half_open, kSecond, kNoChance);
    for (Bits& probe : probes)
      probe = at.admit(kSecond, kNoChance).period;
  }
  void thread(unsigned who) {
    answers[who] = cell(who).record_probe({.probe = probes[who == 1 ? 1 : 0], .outcome = Outcome::success}, kSecond);
    require(answers[who].error == Errc::ok, "a verdict is taken");
  }
  void end() {
    const auto counted = [this](std::size_t i) { return answers[i].status == RecordStatus::counted; };
    require(counted(1) && counted(0) != counted(2), "each probe counts once");
    std::uint32_t closed = 0;
    for (const core::CellRecord& r : answers)
      closed += r.transition ? 1U : 0U;
    require(closed == 1 && control().closed(), "one verdict closes");
    check_records();
  }
  core::CellRecord answers[3];
};

/// Rejections of one outage, all in one lane.
struct Rejections : Case<Rejections, 2> {
  static void build(Stage<Env>& stage) {
    add_one<Rejections>(stage);
    (void)stage.cell(stage.builder(), 0).force(CircuitState::open, kSecond, kNoChance);
  }
  void begin() { presence(1).become(4, 1); }  // the lane of number 0
  void thread(unsigned who) {
    for (int i = 0; i < 2; ++i)
      require(cell(who).admit(kSecond, kNoChance).admission == Admission::rejected, "an open breaker turns away");
  }
  void end() { require(cell(0).core().rejections(control().generation()) == 4, "every rejection is counted"); }
};

// ---- names
// ---------------------------------------------------------------------------------------------------------------

template <class Derived, int kThreads>
struct Naming : Case<Derived, kThreads> {
  using Base = Case<Derived, kThreads>;
  struct Answer {
    Errc error = Errc::ok;
    bool created = false;
    typename Base::Cell cell{};
  };
  Answer find_or_add(unsigned who, std::string_view name, std::uint64_t revision, rules::Tick now = 0,
                     core::Member member = {}) {
    member.may_wait = false;
    Answer a;
    a.error = this->registry(who).find_or_add(name, settings_with(revision), now, a.cell, a.created, member);
    return a;
  }
  void check(const Answer& a, std::uint64_t revision) {
    require(a.error == Errc::ok, "a name can be registered, or found");
    require(this->look(a.cell).record.settings.revision == revision, "a name leads to its own breaker");
  }
};

/// Two register one name, a third another one of the same bucket.
struct Names : Naming<Names, 3> {
  static void build(Stage<Env>& /*stage*/) {}
  void thread(unsigned who) {
    answers[who] = find_or_add(who, who == 2 ? "y" : "x", who == 2 ? 2 : 1);
    check(answers[who], who == 2 ? 2 : 1);
  }
  void end() {
    require(answers[0].created != answers[1].created && answers[2].created, "each name is registered once");
    require(answers[0].cell.index() == answers[1].cell.index(), "two registrations of a name give one breaker");
    require(answers[0].cell.index() != answers[2].cell.index(), "two names are two breakers");
    const Bits x = Env::load(view().breaker(answers[0].cell.index())->ring, Env::relaxed);
    const Bits y = Env::load(view().breaker(answers[2].cell.index())->ring, Env::relaxed);
    require(x != y && view().ring({x}) != nullptr && view().ring({y}) != nullptr, "each breaker has a ring of its own");
    check_records();
  }
  Answer answers[3];
};

/// Who finds a name while it is registered finds all of it, and uses it.
struct Find : Naming<Find, 2> {
  static void build(Stage<Env>& stage) { add_one<Find>(stage); }
  void thread(unsigned who) {
    if (who == 0) {
      check(find_or_add(who, "x", 1), 1);
      return;
    }
    for (int i = 0; i < 2; ++i) {
      Answer a;
      a.error = registry(who).find("x", a.cell);
      if (a.error == Errc::breaker_not_found) continue;
      check(a, 1);
      core::LocalNotes start;
      const core::CellRecord r = a.cell.record_allowed({.period = 0, .now_us = kSecond}, start, kNoChance);
      require(r.error == Errc::ok && r.status == RecordStatus::counted, "a breaker that was found can be used");
    }
  }
  void end() { check_records(); }
};

/// Two places for three: who loses a name gives its place back, and the next one goes on from its numbers.
struct GivenBack : Naming<GivenBack, 3> {
  static void build(Stage<Env>& /*stage*/) {}
  void thread(unsigned who) {
    answers[who] = find_or_add(who, who == 2 ? "y" : "x", who == 2 ? 2 : 1);
    if (answers[who].error == Errc::ok) check(answers[who], who == 2 ? 2 : 1);
    require(answers[who].error == Errc::ok || answers[who].error == Errc::registry_full, "full, or a breaker");
  }
  void end() {
    const unsigned loser = answers[0].created ? 1U : 0U;
    const std::uint32_t spare =
        presence(loser).take_spare();  // it had prepared all of a place, and then found the name
    const bool gave_back = spare != 0 && presence(loser).keep_spare(spare);
    if (gave_back && answers[2].created) {
      require(control(answers[2].cell.index()).generation() >= 1, "a place goes on from its numbers");
    }
    for (std::uint32_t b = 0; b < 2; ++b)
      require(core::OwnerWord{Env::load(view().breaker(b)->owner, Env::relaxed)}.published() || control(b).gone() ||
                  control(b).bits == 0,
              "a place is a breaker's, or free");
    check_records();
  }
  Answer answers[3];
};

// ---- groups, lives
// ---------------------------------------------------------------------------------------------------------------

constexpr core::Member kMember{.group = 7, .entry = 7, .may_wait = false};
constexpr rules::Tick kLater = 100'000;

template <class EnvOf>
void add_group(Stage<EnvOf>& stage, std::uint32_t limit) {
  core::Groups<EnvOf> groups(stage.view());
  std::uint32_t entry = 0;
  core::GroupRules there;
  (void)groups.open(kMember.group, entry);
  (void)groups.agree(entry, core::GroupRules::make(limit, 10), false, there);
}

/// A group of one place, and two that want it.
struct GroupLimit : Naming<GroupLimit, 2> {
  static void build(Stage<Env>& stage) { add_group(stage, 1); }
  void thread(unsigned who) {
    answers[who] = find_or_add(who, who == 0 ? "x" : "y", 1 + who, 0, kMember);
    if (answers[who].error == Errc::ok) check(answers[who], 1 + who);
  }
  void end() {
    require(answers[0].created != answers[1].created, "one gets the place");
    const core::Groups<Env> groups(view());
    require(groups.finish_all() == Errc::ok && groups.members(kMember.entry) == 1, "the group has one place");
    std::uint32_t of_group = 0;
    for (std::uint32_t b = 0; b < 2; ++b)
      of_group += Env::load(view().breaker(b)->group, Env::relaxed) == kMember.group ? 1U : 0U;
    require(of_group == 1, "one place is the group's");
    check_records();
  }
  Answer answers[2];
};

template <class Derived, int kThreads>
struct Recycling : Naming<Derived, kThreads> {
  using Base = Naming<Derived, kThreads>;
  static void build(Stage<typename Base::Env>& stage) {
    add_group(stage, 1);
    stage.add("old", settings_with(1), kMember);
  }
  [[nodiscard]] core::GroupCell<typename Base::Env> handle(unsigned who) {
    return {this->view(), this->presence(who), "old", settings_with(1), kMember};
  }
};

/// An idle place is given to another name beside a handle of the old one, which either keeps it or never acts on the
/// new.
struct LateHandle : Recycling<LateHandle, 2> {
  void begin() {
    old.emplace(handle(1));
    bool created = false;
    require(old->resolve(0, created) == Errc::ok && !created, "the old breaker is there");
  }
  void thread(unsigned who) {
    if (who == 0) {
      answer = find_or_add(who, "new", 2, kLater, kMember);
      require(answer.error == Errc::ok || answer.error == Errc::group_full || answer.error == Errc::busy,
              "a new breaker, or none");
      if (answer.error == Errc::ok) check(answer, 2);
      return;
    }
    std::uint64_t period = 0;
    if (!old->allowed(period)) return;
    require(period == 0, "a handle is never allowed in another life");
    core::LocalNotes start;
    const core::CellRecord r = old->record_allowed({.period = period, .now_us = kLater * 1'000}, start, kNoChance);
    require(r.error == Errc::ok, "an outcome is recorded, or stale");
    counted = r.status == RecordStatus::counted;
  }
  void end() {
    require(!(counted && answer.created), "a breaker that was used is not given away");
    if (answer.created) {
      core::CellState state;
      require(cell(0).snapshot(state) == Errc::ok && state.successes == 0, "a new breaker begins empty");
    } else {
      require(look(cell(0)).record.settings.revision == 1 && !control().leaving(), "the old one lives on");
    }
    check_ring();
    check_records(true);
    old.reset();
  }
  std::optional<core::GroupCell<Env>> old;
  Answer answer;
  bool counted = false;
};

/// The same beside one that looks both names up.
struct LateWalk : Recycling<LateWalk, 3> {
  void thread(unsigned who) {
    if (who == 0) {
      answer = find_or_add(who, "new", 2, kLater, kMember);
      if (answer.error == Errc::ok) check(answer, 2);
    } else {
      find(who, who == 1 ? "old" : "new", who == 1 ? 1 : 2);
    }
  }
  void end() {
    Answer again;
    again.error = registry(0).find("new", again.cell, kMember);
    require((again.error == Errc::ok) == answer.created, "a name is there from its registration on");
    check_records(true);
  }
  Answer answer;

 private:
  void find(unsigned who, std::string_view name, std::uint64_t revision) {
    Answer a;
    a.error = registry(who).find(name, a.cell, kMember);
    if (a.error == Errc::breaker_not_found) return;
    require(a.error == Errc::ok, "a name is found, or not");
    Control word;
    core::Record record;
    if (!a.cell.load(word, record)) {
      require(a.cell.core().gone(), "a copy of a record can be decoded");
      return;
    }
    require(record.settings.revision == revision, "a name leads to its own breaker");
  }
};

/// The name of the place that an event tells of, looked up as a follower of the journal does (src/shm/events.cpp).
struct LateEvent : Recycling<LateEvent, 2> {
  void thread(unsigned who) {
    if (who == 0) {
      (void)find_or_add(who, "new", 2, kLater, kMember);
      return;
    }
    const auto& cells = *view().breaker(0);
    const auto holds = [&cells] { return Env::load(cells.incarnation, Env::relaxed) == 0; };
    if (!holds()) return;
    std::array<char, core::kMaxNameBytes> buffer{};
    const std::string_view name = core::name_of<Env>(cells, buffer.data());
    if (holds()) require(name == "old", "a name is of the life that the event tells of");
  }
  void end() { check_records(true); }
};

/// A breaker is given away beside an outcome that arrives by a handle without a life: it takes the place back, or is
/// stale.
struct TakeBack : Recycling<TakeBack, 2> {
  void thread(unsigned who) {
    if (who == 0) {
      answer = find_or_add(who, "new", 2, kLater, kMember);
      return;
    }
    core::LocalNotes start;
    const core::CellRecord r =
        cell(who).record_allowed({.period = 0, .failure = true, .now_us = kLater * 1'000}, start, kNoChance);
    counted = r.error == Errc::ok && r.status == RecordStatus::counted;
  }
  void end() {
    require(!(counted && answer.created), "an outcome that was counted keeps the place");
    require(counted || answer.created, "it was counted, or the place was given away");
    check_ring();
    check_records(true);
  }
  Answer answer;
  bool counted = false;
};

// ---- the journal
// ---------------------------------------------------------------------------------------------------------

template <class Derived, int kThreads>
struct Writing : Case<Derived, kThreads> {
  using Base = Case<Derived, kThreads>;
  [[nodiscard]] core::Journal<typename Base::Env> journal(unsigned who) { return {this->view(), this->presence(who)}; }
  void write(unsigned who, std::uint64_t number) {
    journal(who).write({.breaker = static_cast<std::uint32_t>(number),
                        .number = number,
                        .change = number,
                        .at = static_cast<rules::Tick>(number)});
  }
  static bool whole(const core::JournalEntry& e) {
    return e.number != 0 && e.breaker == e.number && e.change == e.number && e.at == static_cast<rules::Tick>(e.number);
  }
};

/// A reader beside one writer that comes round the ring of two entries: an entry, whole, or none.
struct JournalCopies : Writing<JournalCopies, 2> {
  static void build(Stage<Env>& /*stage*/) {}
  void thread(unsigned who) {
    if (who == 0) {
      for (std::uint64_t n = 1; n <= 3; ++n)
        write(who, n);
      return;
    }
    for (const Bits position : {0U, 2U, 0U}) {
      core::JournalEntry entry;
      const core::JournalRead r = journal(who).read(position, entry);
      require(r != core::JournalRead::damaged, "nobody was overtaken, so no entry is damaged");
      require(r != core::JournalRead::entry || (whole(entry) && entry.number == position + 1), "an entry is whole");
    }
  }
  void end() {
    core::JournalEntry entry;
    require(journal(0).read(2, entry) == core::JournalRead::entry && entry.number == 3, "the newest entry is there");
    require(journal(0).read(0, entry) == core::JournalRead::overwritten, "the oldest is not");
  }
};

/// Two writers that overtake each other: what is read as an entry is one.
struct JournalOvertaken : Writing<JournalOvertaken, 3> {
  static void build(Stage<Env>& /*stage*/) {}
  void thread(unsigned who) {
    if (who < 2) {
      write(who, 1 + 10 * who);
      write(who, 2 + 10 * who);
      return;
    }
    for (const Bits position : {0U, 2U}) {
      core::JournalEntry entry;
      require(journal(who).read(position, entry) != core::JournalRead::entry || whole(entry), "an entry is whole");
    }
  }
  void end() {
    require(journal(0).next() == 4, "each entry has a position");
    for (Bits position = 2; position < 4; ++position) {
      core::JournalEntry entry;
      require(journal(0).read(position, entry) != core::JournalRead::entry || whole(entry), "an entry is whole");
    }
  }
};

/// A follower that finds nothing and goes to sleep beside two writers: no entry stands while it sleeps.
struct JournalSleep : Writing<JournalSleep, 3> {
  static void build(Stage<Env>& /*stage*/) {}
  void begin() {
    for (auto& person : people)
      person.wakes = &woken;
  }
  void thread(unsigned who) {
    if (who < 2) {
      write(who, 1 + who);
      return;
    }
    const core::Journal<Env> j = journal(who);
    if (complete(j) != 0) return;
    const std::optional<std::uint32_t> word = j.announce_sleep();
    if (!word) return;
    if (j.next() != 0) return;  // it goes on reading: these are pending, and it waits for them
    if (complete(j) != 0) return;
    woken = false;  // from here on in one step, as the kernel does: compare, then sleep
    asleep = static_cast<std::uint32_t>(Env::newest(view().words().journal_wake)) == *word;
  }
  void end() {
    require(complete(journal(0)) == 2, "both entries are there");
    require(!asleep || woken, "a follower does not sleep beside an entry");
  }
  bool woken = false;
  bool asleep = false;

 private:
  static int complete(const core::Journal<Env>& j) {
    int entries = 0;
    for (Bits position = 0; position < 2; ++position) {
      core::JournalEntry entry;
      if (j.read(position, entry) == core::JournalRead::entry) ++entries;
    }
    return entries;
  }
};

// ---- running
// -------------------------------------------------------------------------------------------------------------

struct Options {
  std::uint64_t iterations = 0;  ///< 0: as many as the case asks for
  std::uint64_t seed = 1;
  bool whole_history = false;
};

struct Verdict {
  bool holds = true;
  std::uint64_t executions = 0;
  std::uint64_t failed_at = 0;
  std::string finding;
  std::string history;
};

/// Relacy's history, one line a step, without what it did to set up and without its second, sorted form.
std::string shorten(const std::string& text, bool whole) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  bool in_history = false;
  bool in_setup = false;
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("execution history", 0) == 0) in_history = true;
    if (line.rfind("thread 0:", 0) == 0) break;
    if (!in_history) continue;
    if (line.find("[CTOR BEGIN]") != std::string::npos) in_setup = true;
    if (!in_setup) {
      if (const auto at = line.find("<0x"); at != std::string::npos) line.erase(at, line.find("> ", at) + 2 - at);
      if (line.ends_with(", (0)")) line.resize(line.size() - 5);
      if (line.ends_with(", in ")) line.resize(line.size() - 5);
      lines.push_back("  " + line);
    }
    if (line.find("[BEFORE END]") != std::string::npos) in_setup = false;
  }
  constexpr std::size_t kTail = 120;
  std::string result;
  const std::size_t from = whole || lines.size() <= kTail ? 0 : lines.size() - kTail;
  if (from != 0) result += fmt::format("  ({} earlier steps; --history prints them)\n", from);
  for (std::size_t i = from; i < lines.size(); ++i)
    result += lines[i] + "\n";
  return result;
}

/// As rl::simulate, for one kind of search: a violation is gone through once more, for its history.
template <class CaseOf, class Scheduler>
void search(rl::test_params& params) {
  rl::ostringstream state;
  if (rl::run_test<CaseOf, Scheduler>(params, state, false) == rl::test_result_success) return;
  params.initial_state = state.str();
  params.collect_history = true;
  rl::run_test<CaseOf, Scheduler>(params, state, true);
}

template <class CaseOf>
Verdict run(const Options& options, std::uint64_t iterations) {
  constexpr std::uint32_t kPlaces = std::is_base_of_v<Recycling<CaseOf, CaseOf::params::static_thread_count>, CaseOf>
                                        ? 1
                                    : std::is_same_v<CaseOf, TakeOver> || std::is_same_v<CaseOf, GivenBack> ||
                                            std::is_same_v<CaseOf, GroupLimit> || std::is_same_v<CaseOf, Find>
                                        ? 2
                                    : std::is_same_v<CaseOf, Names> ? 3
                                                                    : 1;
  Stage<typename CaseOf::Env> stage(kPlaces, CaseOf::kThreads);
  CaseOf::build(stage);
  stage.freeze();
  CaseOf::stage = &stage;
  CaseOf::executions = 0;

  rl::ostringstream out;  // Relacy's: it does not ask the operator new that Relacy replaces
  rl::test_params params;
  params.output_stream = &out;
  params.progress_stream = &out;
  params.execution_depth_limit = 20'000;
  params.search_type = rl::random_scheduler_type;
  params.initial_state = rl::string(std::to_string(options.seed).c_str());
  params.iteration_count = options.seed + iterations - 1;
  search<CaseOf, rl::random_scheduler<CaseOf::params::thread_count>>(params);
  running = nullptr;

  Verdict verdict;
  verdict.executions = CaseOf::executions;
  verdict.holds = params.test_result == rl::test_result_success;
  if (verdict.holds) return verdict;
  verdict.failed_at = params.stop_iteration;
  ++verdict.executions;  // the one that did not get to its end
  const std::string text(out.str().c_str());
  std::istringstream lines(text);
  std::getline(lines, verdict.finding);
  verdict.history = shorten(text, options.whole_history);
  return verdict;
}

struct Entry {
  std::string_view name;
  std::string_view what;
  std::uint64_t iterations;
  Verdict (*run)(const Options&, std::uint64_t);  ///< null: not compiled in
};

// tests/proof/mutants.sh compiles one case at a time: all of them take a minute.
#ifndef SHMCB_WEAK_CASE
#define SHMCB_WEAK_CASE ""
#endif
constexpr std::string_view kOnly = SHMCB_WEAK_CASE;

struct Name {
  std::array<char, 32> text{};
  template <std::size_t kSize>
  constexpr Name(const char (&name)[kSize]) {  // NOLINT(google-explicit-constructor): a template argument
    std::copy_n(name, kSize, text.begin());
  }
  [[nodiscard]] constexpr std::string_view view() const { return text.data(); }
};

template <class CaseOf, Name kName>
constexpr Entry entry(std::string_view what, std::uint64_t iterations) {
  if constexpr (kOnly.empty() || kOnly == kName.view()) {
    return {kName.view(), what, iterations, &run<CaseOf>};
  } else {
    return {kName.view(), what, iterations, nullptr};
  }
}

constexpr Entry kCases[] = {
    entry<RecordCopies, "record-copies">("copies of records beside two publishers that use them again", 100'000),
    entry<TakeOver, "take-over">("one free record for the publishers of two breakers", 100'000),
    entry<DeadOwner, "dead-owner">("records of a dead process, taken back by two", 50'000),
    entry<Straggler, "straggler">("an outcome of an older period beside those of the new one", 200'000),
    entry<StragglerAtHint, "straggler-at-hint">("the same where the hint leads right to the tail", 100'000),
    entry<Touch, "touch">("a straggler of two periods ago whose tag looks like ours", 200'000),
    entry<Trip, "trip">("three failures where two open", 50'000),
    entry<TripHelped, "trip-helped">("a flagged entry whose author is dead, and two that come by", 50'000),
    entry<Append, "append">("three appenders, across a position where the hint is raised", 100'000),
    entry<Lean, "lean">("a success that may be left out, a ring behind a failure", 20'000),
    entry<Message, "message">("what a committer did before, read by whoever is admitted after", 100'000),
    entry<ProbeLimit, "probe-limit">("three admits after the cooldown, two probes allowed", 50'000),
    entry<ProbeVerdicts, "probe-verdicts">("verdicts of two probes, one of them twice", 50'000),
    entry<Rejections, "rejections">("rejections of two processes in one lane", 50'000),
    entry<Names, "names">("a name registered twice, beside another one", 50'000),
    entry<Find, "find">("a name looked up while it is registered", 100'000),
    entry<GivenBack, "given-back">("a place given back by who lost its name, taken by another", 50'000),
    entry<GroupLimit, "group-limit">("a group of one place, and two that want it", 50'000),
    entry<LateHandle, "late-handle">("a place recycled beside a handle of its old name", 100'000),
    entry<LateWalk, "late-walk">("a place recycled beside look-ups of both names", 50'000),
    entry<LateEvent, "late-event">("a place recycled beside a follower that looks up its name", 100'000),
    entry<TakeBack, "take-back">("a place recycled beside an outcome", 100'000),
    entry<JournalCopies, "journal-copies">("a reader of the journal beside a writer that comes round", 200'000),
    entry<JournalOvertaken, "journal-overtaken">("a reader beside two writers that overtake each other", 100'000),
    entry<JournalSleep, "journal-sleep">("a follower going to sleep beside two writers", 200'000),
};

int prove(const std::vector<std::string>& patterns, const Options& options) {
  const auto match = [](const std::string& pattern, const Entry& entry) {
    return ::fnmatch(pattern.c_str(), std::string(entry.name).c_str(), 0) == 0;
  };
  for (const std::string& pattern : patterns) {
    if (std::any_of(std::begin(kCases), std::end(kCases), [&](const Entry& e) { return match(pattern, e); })) continue;
    fmt::print(stderr, "--case is '{}', must be one of these names, or a pattern that matches one:", pattern);
    for (const Entry& entry : kCases)
      fmt::print(stderr, " {}", entry.name);
    fmt::print(stderr, "\n");
    return 2;
  }
  int passed = 0;
  int failed = 0;
  for (const Entry& entry : kCases) {
    if (entry.run == nullptr) continue;
    const auto matches = [&](const std::string& pattern) { return match(pattern, entry); };
    if (!patterns.empty() && std::none_of(patterns.begin(), patterns.end(), matches)) continue;
    const auto begin = std::chrono::steady_clock::now();
    const Verdict v = entry.run(options, options.iterations != 0 ? options.iterations : entry.iterations);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    const char* const verdict = v.holds ? "holds" : "VIOLATED";
    fmt::print("{:<18} {:>9} executions  {:<12} {:6.1f} s\n", entry.name, v.executions, verdict, seconds.count());
    if (v.holds) {
      ++passed;
    } else {
      ++failed;
      fmt::print("  {}\n{}  again: --case {} --seed {} --iterations 1\n", v.finding, v.history, entry.name,
                 v.failed_at);
    }
    std::fflush(stdout);
  }
  if (passed + failed == 0) {
    fmt::print(stderr, "none of these cases is compiled in\n");
    return 2;
  }
  fmt::print("{} hold, {} violated\n", passed, failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace shmcb::proof

int main(int argc, char** argv) {
  using namespace shmcb::proof;
  CLI::App app{"Runs the shared-memory code under Relacy, case by case. Exit: 0 all hold, 1 a violation, 2 usage"};
  bool list = false;
  std::vector<std::string> cases;
  Options options;
  app.add_flag("--list", list, "Name the cases and end");
  app.add_option("--case", cases, "Only cases of this name, or pattern as of a shell; repeatable");
  app.add_option("--iterations", options.iterations, "Executions of each case (default: the case's own number)")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 40U));
  app.add_option("--seed", options.seed, "Number of the first execution: everything that is drawn follows from it")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 62U));
  app.add_flag("--history", options.whole_history, "Print the whole history of a violation");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    if (!list) return prove(cases, options);
    for (const Entry& entry : kCases)
      fmt::print("{:<18} {}\n", entry.name, entry.what);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
}
