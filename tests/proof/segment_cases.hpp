// SPDX-License-Identifier: BSD-3-Clause
// Scenarios about what breakers share: the index of names, places and the arena, groups and their recycling, the
// journal. Each says by itself what must hold at the end.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <unordered_set>
#include <vector>

#include "proof/breaker_case.hpp"
#include "shmcb/core/group_cell.hpp"

namespace shmcb::proof {

/// Of one scenario, what is the same for all executions is made by `make`.
class SegmentCase {
 public:
  using StageType = Stage<core::StdWidths>;
  using Env = StageType::Env;

  explicit SegmentCase(const StageOptions& options) : stage_(options) {}
  virtual ~SegmentCase() = default;

  CaseResult run(const Extent& extent, const std::array<std::uint32_t, kMaxParticipants>& deaths) {
    stage_.set_scene();
    Scheduler::Plan plan{.bodies = {}, .dies_before_write = deaths};
    for (std::size_t i = 0; i < participants(); ++i)
      plan.bodies.emplace_back([this, i] { act(i); });
    const Scheduler::Hooks hooks{[this] {
                                   stage_.begin_execution();
                                   begin();
                                 },
                                 [this] { return conclude(); }};
    run_schedules(stage_.scheduler(), plan, hooks, extent, result_);
    if (!extent.schedule.empty()) {
      result_.shown = stage_.shown_steps();
      if (result_.failure.empty() && !result_.totals.failed) result_.shown += all_told();  // else the failure has it
    }
    if (result_.totals.failed && result_.failure.empty()) fail("somebody does not get to an end");
    return result_;
  }

  [[nodiscard]] virtual std::size_t participants() const = 0;

 protected:
  virtual void begin() = 0;
  virtual void act(std::size_t participant) = 0;
  /// What is wrong at the end; empty: nothing.
  [[nodiscard]] virtual std::string wrong() = 0;
  /// What participants have been answered, as a number.
  [[nodiscard]] virtual std::uint64_t answers() const = 0;
  /// What one was to do and what it was answered, for display.
  [[nodiscard]] virtual std::string told(std::size_t participant) const = 0;

  [[nodiscard]] core::Registry<Env> registry(std::size_t participant) {
    return {stage_.view(), stage_.presence(participant)};
  }
  [[nodiscard]] std::uint32_t dead() {
    std::uint32_t count = 0;
    for (std::size_t i = 0; i < participants(); ++i)
      count += stage_.scheduler().died(i) ? 1U : 0U;
    return count;
  }
  [[nodiscard]] bool lives(std::size_t participant) { return !stage_.scheduler().died(participant); }

  StageType stage_;

 private:
  bool conclude() {
    std::uint64_t key = answers() * 0x9e37'79b9'7f4a'7c15U + dead();
    stage_.scheduler().hash_changes([&key](std::uint64_t n) { key = (key ^ n) * 1099511628211U ^ (key >> 29U); });
    if (!seen_.insert(key).second) return true;
    ++result_.histories;
    const std::string what = wrong();
    if (what.empty()) return true;
    fail(what);
    return false;
  }

  void fail(const std::string& what) {
    result_.failure = what + "\n" + all_told();
    result_.schedule = stage_.scheduler().schedule_text();
  }

  [[nodiscard]] std::string all_told() {
    std::string text;
    for (std::size_t i = 0; i < participants(); ++i)
      text += "  " + std::string(i, ' ') + std::to_string(i) + ": " + told(i) + (lives(i) ? "\n" : " (died)\n");
    return text;
  }

  std::unordered_set<std::uint64_t> seen_;
  CaseResult result_{};
};

/// Participants register names at once, and use what they got.
class Registering final : public SegmentCase {
 public:
  struct Wish {
    std::string name{};
    std::uint32_t window = 4;
  };

  Registering(const StageOptions& options, std::vector<Wish> wishes)
      : SegmentCase(options), places_(options.breakers), wishes_(std::move(wishes)) {}
  [[nodiscard]] std::size_t participants() const override { return wishes_.size(); }

 private:
  struct Got {
    Errc error = Errc::busy;
    bool created = false;
    std::uint32_t place = 0;
    RecordStatus status = RecordStatus::stale;
    bool ended = false;
  };

  static Settings settings_for(const Wish& wish) {
    Settings s = family("small")[0];
    s.window = wish.window;
    return s;
  }

  void begin() override { got_.fill({}); }

  void act(std::size_t i) override {
    Got& got = got_[i];
    core::BreakerCell<Env> cell;
    got.error = registry(i).find_or_add(wishes_[i].name, settings_for(wishes_[i]), 0, cell, got.created,
                                        {.group = 0, .entry = 0, .may_wait = false});
    if (got.error == Errc::ok) {
      got.place = cell.index();
      std::uint64_t period = 0;
      core::LocalNotes start;
      if (cell.allowed(period)) {
        got.status = cell.record_allowed({.period = period, .started = 0, .failure = false, .now_us = 0}, start,
                                         [] { return 0U; })
                         .status;
      }
    }
    got.ended = true;
  }

  [[nodiscard]] std::uint64_t answers() const override {
    std::uint64_t key = 0;
    for (const Got& got : got_)
      key = key * 1021 + static_cast<std::uint64_t>(got.error) * 64 + (got.created ? 32U : 0U) + got.place * 8 +
            static_cast<std::uint64_t>(got.status) * 2 + (got.ended ? 1U : 0U);
    return key;
  }

  [[nodiscard]] std::string told(std::size_t i) const override {
    const Got& got = got_[i];
    std::string text =
        "registers '" + wishes_[i].name + "' with a window of " + std::to_string(wishes_[i].window) + " -> ";
    if (!got.ended) return text + "(did not end)";
    if (got.error != Errc::ok) return text + "error " + std::string(to_string(got.error));
    return text + (got.created ? "created" : "found") + " at place " + std::to_string(got.place) + "; a success -> " +
           std::string(to_string(got.status));
  }

  [[nodiscard]] std::string wrong() override {
    std::vector<std::string> names;
    for (const Wish& wish : wishes_) {
      if (std::find(names.begin(), names.end(), wish.name) == names.end()) names.push_back(wish.name);
    }
    std::uint32_t there = 0;
    for (const std::string& name : names) {
      core::BreakerCell<Env> cell;
      const Errc error = registry(StageType::kEpilogue).find(name, cell);
      if (error != Errc::ok && error != Errc::breaker_not_found) return "looking for '" + name + "' fails";
      const bool found = error == Errc::ok;
      there += found ? 1U : 0U;
      std::uint32_t creators = 0;
      std::uint64_t counted = 0;
      for (std::size_t i = 0; i < wishes_.size(); ++i) {
        const Got& got = got_[i];
        if (wishes_[i].name != name || !got.ended) continue;
        if (got.error == Errc::ok) {
          if (!found) return "'" + name + "' was given out and is not there";
          if (got.place != cell.index()) return "'" + name + "' was given out at two places";
          if (got.status != RecordStatus::counted) return "an outcome of '" + name + "' was not counted";
          ++counted;
        } else if ((got.error != Errc::registry_full && got.error != Errc::ring_full) || wishes_.size() <= places_) {
          return "registering '" + name + "' answers " + std::string(to_string(got.error));
        }
        creators += got.created ? 1U : 0U;
      }
      if (creators > 1 || (found && creators == 0 && dead() == 0)) {
        return std::to_string(creators) + " created '" + name + "'";
      }
      if (!found) continue;
      core::CellState state;
      if (cell.snapshot(state) != Errc::ok) return "no snapshot of '" + name + "'";
      if (state.successes < counted || state.successes > counted + dead()) {
        return "'" + name + "' has counted " + std::to_string(state.successes) + " of " + std::to_string(counted);
      }
    }
    // Every place that is left can still be had, with what its ring needs, whoever died where.
    for (std::uint32_t n = there; n < places_; ++n) {
      core::BreakerCell<Env> cell;
      bool created = false;
      const Errc error = registry(StageType::kEpilogue)
                             .find_or_add("new-" + std::to_string(n), family("small")[0], 0, cell, created,
                                          {.group = 0, .entry = 0, .may_wait = false});
      if (error != Errc::ok) return "a place is lost: " + std::string(to_string(error));
    }
    return rings_overlap() ? "two breakers have the same slots" : stage_.wrong_with_records(3 * dead());
  }

  [[nodiscard]] bool rings_overlap() const {
    std::vector<bool> taken(stage_.view().geometry().ring_slots / core::kMinRing, false);
    for (std::uint32_t i = 0; i < places_; ++i) {
      const core::RingWord ring{Env::load(stage_.view().breaker(i)->ring, Env::acquire)};
      if (!ring.assigned()) continue;
      for (std::uint64_t unit = ring.first_unit(); unit < ring.first_unit() + ring.units(); ++unit) {
        if (unit >= taken.size() || taken[unit]) return true;
        taken[unit] = true;
      }
    }
    return false;
  }

  std::uint32_t places_;
  std::vector<Wish> wishes_;
  std::array<Got, kMaxParticipants> got_{};
};

/// A group of at most `limit` places, and participants that use names of it; those that are idle at the beginning may
/// be recycled under them.
class Recycling final : public SegmentCase {
 public:
  struct Use {
    std::string name{};
    std::uint32_t failures = 0;  ///< recorded, for one admit
    std::uint32_t successes = 0;
    bool forces = false;  ///< Open, instead
  };

  Recycling(std::uint32_t limit, std::vector<std::string> idle, std::vector<Use> uses)
      : SegmentCase({.breakers = 2}), uses_(std::move(uses)), limit_(limit) {
    settings_ = family("small")[0];
    settings_.failures = 0;
    settings_.consecutive_failures = 50;  // so that nothing opens
    settings_.window = 4;
    const core::Groups<Env> groups(stage_.view());
    (void)groups.open(kGroup, entry_);
    core::GroupRules there;
    (void)groups.agree(entry_, core::GroupRules::make(limit, kIdleAfter), false, there);
    for (const std::string& name : idle) {
      bool created = false;
      core::BreakerCell<Env> cell;
      (void)registry(StageType::kSetup).find_or_add(name, settings_, 0, cell, created, member());
    }
  }
  [[nodiscard]] std::size_t participants() const override { return uses_.size(); }

 private:
  static constexpr core::Bits kGroup = 77;
  static constexpr Tick kIdleAfter = 100;
  static constexpr Tick kNow = 1'000;

  struct Got {
    Errc error = Errc::ok;
    std::uint32_t counted = 0;
    std::uint32_t stale = 0;
    bool forced = false;
    bool ended = false;
  };

  [[nodiscard]] core::Member member() const { return {.group = kGroup, .entry = entry_, .may_wait = false}; }
  [[nodiscard]] core::GroupCell<Env> cell_of(std::size_t participant, const std::string& name) {
    return {stage_.view(), stage_.presence(participant), name, settings_, member()};
  }

  void begin() override { got_.fill({}); }

  void act(std::size_t i) override {
    const Use& use = uses_[i];
    Got& got = got_[i];
    const auto cell = cell_of(i, use.name);
    const auto no_chance = []() noexcept { return 0U; };
    if (use.forces) {
      const core::CellRecord r = cell.force(CircuitState::open, kNow * 1'000, no_chance);
      got.error = r.error;
      got.forced = r.error == Errc::ok;
      got.ended = true;
      return;
    }
    std::uint64_t period = 0;
    bool admits = true;
    if (!cell.allowed(period)) {
      const core::CellAdmit admitted = cell.admit(kNow * 1'000, no_chance);
      got.error = admitted.error;
      period = admitted.period;
      admits = admitted.admission == Admission::allowed;
    }
    core::LocalNotes start;
    for (std::uint32_t n = 0; admits && got.error == Errc::ok && n < use.failures + use.successes; ++n) {
      const core::CellRecord r = cell.record_allowed(
          {.period = period, .started = 0, .failure = n < use.failures, .now_us = kNow * 1'000}, start, no_chance);
      got.error = r.error;
      if (r.status == RecordStatus::counted) ++got.counted;
      if (r.status == RecordStatus::stale) ++got.stale;
    }
    got.ended = true;
  }

  [[nodiscard]] std::uint64_t answers() const override {
    std::uint64_t key = 0;
    for (const Got& got : got_)
      key = key * 1021 + static_cast<std::uint64_t>(got.error) * 64 + got.counted * 16 + got.stale * 4 +
            (got.forced ? 2U : 0U) + (got.ended ? 1U : 0U);
    return key;
  }

  [[nodiscard]] std::string told(std::size_t i) const override {
    const Use& use = uses_[i];
    const Got& got = got_[i];
    std::string text = "'" + use.name + "': ";
    text += use.forces ? "force open"
                       : "admit, " + std::to_string(use.failures) + " failures, " + std::to_string(use.successes) +
                             " successes";
    text += " -> ";
    if (!got.ended) text += "(did not end) ";
    if (got.error != Errc::ok) text += "error " + std::string(to_string(got.error)) + " ";
    if (use.forces) return text + (got.forced ? "done" : "not done");
    return text + std::to_string(got.counted) + " counted, " + std::to_string(got.stale) + " stale";
  }

  [[nodiscard]] std::string wrong() override {
    const core::Groups<Env> groups(stage_.view());
    if (groups.members(entry_) > limit_) return "the group has more places than it may";
    std::vector<std::string> names;
    for (const Use& use : uses_) {
      if (std::find(names.begin(), names.end(), use.name) == names.end()) names.push_back(use.name);
    }
    for (const std::string& name : names) {
      std::uint32_t counted = 0;
      bool forced = false;
      for (std::size_t i = 0; i < uses_.size(); ++i) {
        if (uses_[i].name != name) continue;
        const Got& got = got_[i];
        counted += got.counted;
        forced = forced || got.forced;
        if (got.error != Errc::ok && got.error != Errc::group_full && got.error != Errc::busy) {
          return "using '" + name + "' answers " + std::string(to_string(got.error));
        }
      }
      core::BreakerCell<Env> cell;
      const Errc error = registry(StageType::kEpilogue).find(name, cell, member());
      if (error != Errc::ok && error != Errc::breaker_not_found) return "looking for '" + name + "' fails";
      if (error == Errc::breaker_not_found) {
        if (counted != 0)
          return "'" + name + "' is gone with " + std::to_string(counted) + " outcomes that were counted";
        if (forced) return "'" + name + "' is gone although somebody has opened it";
        continue;
      }
      core::CellState state;
      if (cell.snapshot(state) != Errc::ok) return "no snapshot of '" + name + "'";
      if (forced && state.state != CircuitState::open) return "'" + name + "' was opened and is not open";
      const std::uint64_t seen = state.successes + state.failures;
      const std::uint32_t by_dead = dead_users_of(name);
      // One who died forcing it may have done so.
      const bool may_be_forced = forced || dead_forcer_of(name);
      if (!may_be_forced && (seen < counted || seen > counted + by_dead)) {
        return "'" + name + "' has " + std::to_string(seen) + " outcomes, where " + std::to_string(counted) +
               " were counted";
      }
      if (std::string ring = stage_.wrong_with_ring(cell.index()); !ring.empty()) return ring;
    }
    return every_place_can_be_had();
  }

  /// Once all are idle again, as many new names find room as the group may have.
  [[nodiscard]] std::string every_place_can_be_had() {
    for (std::uint32_t n = 0; n < limit_; ++n) {
      core::BreakerCell<Env> cell;
      bool created = false;
      const Errc error =
          registry(StageType::kEpilogue)
              .find_or_add("new-" + std::to_string(n), settings_, 1'000'000 + n, cell, created, member());
      const bool open =
          std::any_of(got_.begin(), got_.end(), [](const Got& got) { return got.forced; }) ||
          (dead() > 0 && std::any_of(uses_.begin(), uses_.end(), [](const Use& use) { return use.forces; }));
      if (error != Errc::ok && !(open && error == Errc::group_full)) {
        return "a place of the group is lost: " + std::string(to_string(error));
      }
    }
    // The record of a life that is over stays handed over until somebody needs one.
    return stage_.wrong_with_records(3 * dead() + 2 * static_cast<std::uint32_t>(uses_.size()));
  }

  [[nodiscard]] std::uint32_t dead_users_of(const std::string& name) {
    std::uint32_t count = 0;
    for (std::size_t i = 0; i < uses_.size(); ++i)
      count += uses_[i].name == name && !lives(i) ? 1U : 0U;
    return count;
  }

  [[nodiscard]] bool dead_forcer_of(const std::string& name) {
    for (std::size_t i = 0; i < uses_.size(); ++i) {
      if (uses_[i].forces && uses_[i].name == name && !lives(i)) return true;
    }
    return false;
  }

  std::vector<Use> uses_;
  std::uint32_t limit_;
  std::uint32_t entry_ = 0;
  Settings settings_{};
  std::array<Got, kMaxParticipants> got_{};
};

/// Writers of the journal beside a reader: an entry is seen whole, at its position, or not at all.
class Journaling final : public SegmentCase {
 public:
  /// `writes`: of each writer. `overtaken`: so many entries are there already.
  Journaling(std::vector<std::uint32_t> writes, std::uint32_t before, bool texts)
      : SegmentCase({.breakers = 1}), writes_(std::move(writes)), before_(before), texts_(texts) {
    core::Journal<Env> journal(stage_.view(), stage_.presence(StageType::kSetup));
    for (std::uint32_t n = 0; n < before_; ++n)
      journal.write(entry_of(9, n));
  }
  [[nodiscard]] std::size_t participants() const override { return writes_.size() + 1; }

 private:
  [[nodiscard]] core::JournalEntry entry_of(std::uint32_t writer, std::uint32_t n) const {
    core::JournalEntry entry{.kind = EventKind::forced,
                             .breaker = writer,
                             .incarnation = n,
                             .number = n + 1,
                             .change = writer * 1'000 + n,
                             .at = static_cast<Tick>(writer) * 100 + n};
    if (texts_) entry.note.why.fill(static_cast<char>('a' + writer));
    return entry;
  }
  [[nodiscard]] bool is_whole(const core::JournalEntry& entry) const {
    core::JournalEntry expected = entry_of(entry.breaker, entry.incarnation);
    expected.pid = entry.pid;
    if (texts_ && entry.note == core::NoteText{}) expected.note = {};  // its text has been overtaken, or never was
    return entry == expected;
  }

  void begin() override {
    torn_ = false;
    seen_.fill(0);
  }

  void act(std::size_t i) override {
    core::Journal<Env> journal(stage_.view(), stage_.presence(i));
    if (i < writes_.size()) {
      for (std::uint32_t n = 0; n < writes_[i]; ++n)
        journal.write(entry_of(static_cast<std::uint32_t>(i), n));
      return;
    }
    for (std::size_t k = 0; k < seen_.size(); ++k) {
      core::JournalEntry entry;
      if (journal.read(before_ + k, entry) == core::JournalRead::entry) {
        torn_ = torn_ || !is_whole(entry);
        seen_[k] = entry.breaker * 100 + entry.incarnation + 1;
      }
    }
  }

  [[nodiscard]] std::uint64_t answers() const override { return seen_[0] * 65'536 + seen_[1] * 2 + (torn_ ? 1U : 0U); }

  [[nodiscard]] std::string told(std::size_t i) const override {
    if (i < writes_.size()) return "writes " + std::to_string(writes_[i]) + " entries";
    std::string text = "reads";
    for (std::size_t k = 0; k < seen_.size(); ++k) {
      text += " position " + std::to_string(before_ + k) + " -> ";
      text += seen_[k] == 0 ? "nothing;"
                            : "entry " + std::to_string((seen_[k] - 1) % 100) + " of writer " +
                                  std::to_string((seen_[k] - 1) / 100) + ";";
    }
    return text + (torn_ ? " one of them torn" : " whole");
  }

  [[nodiscard]] std::string wrong() override {
    if (torn_) return "a reader saw a torn entry";
    const core::Journal<Env> journal(stage_.view(), stage_.presence(StageType::kEpilogue));
    std::uint32_t all = before_;
    for (const std::uint32_t n : writes_)
      all += n;
    if (dead() == 0 && journal.next() != all) return "a position was given out twice";
    std::uint32_t whole = 0;
    const std::uint64_t first = journal.next() > journal.size() ? journal.next() - journal.size() : 0;
    for (std::uint64_t p = first; p < journal.next(); ++p) {
      core::JournalEntry entry;
      const core::JournalRead read = journal.read(p, entry);
      if (read == core::JournalRead::entry) {
        if (!is_whole(entry)) return "a torn entry at " + std::to_string(p);
        ++whole;
      }
      if (read == core::JournalRead::damaged && all <= journal.size()) return "a damaged entry and no lap";
      if (read == core::JournalRead::pending && dead() == 0) return "position " + std::to_string(p) + " stays empty";
    }
    // Without a lap each writer's entries are all there. With one, an overtaken writer costs its own entry and the one
    // it has written into.
    const auto there = static_cast<std::uint32_t>(journal.next() - first);
    const std::uint32_t may_miss = dead() + (all > journal.size() ? 2 * static_cast<std::uint32_t>(writes_.size()) : 0);
    if (whole + may_miss < there) return std::to_string(there - whole) + " entries are missing";
    return {};
  }

  std::vector<std::uint32_t> writes_;
  std::uint32_t before_;
  bool texts_;
  bool torn_ = false;
  std::array<std::uint32_t, 2> seen_{};
};

}  // namespace shmcb::proof
