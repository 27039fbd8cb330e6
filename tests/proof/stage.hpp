// SPDX-License-Identifier: BSD-3-Clause
// A segment in plain memory whose every access is scheduled: the production registry, breaker, pool and journal over
// it, participants that act on it, and what must hold of it when all is over.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "proof/perform.hpp"
#include "proof/scheduler.hpp"
#include "shmcb/core/registry.hpp"

namespace shmcb::proof {

/// Shrunk: what tells laps and periods of slots apart differs in one bit only, and comes round with every second one.
struct TinyWidths {
  static constexpr unsigned lap = 1;
  static constexpr unsigned slot_generation = 1;
  static constexpr unsigned generation = 24;
  static constexpr unsigned version = 6;  // a version short of 32 more is what a Closed period needs
};

struct StageOptions {
  std::uint32_t breakers = 2;
  std::uint32_t participants = 8;
  std::uint32_t records = 0;   ///< 0: as many as production has
  std::uint32_t rings = 0;     ///< slots for all; 0: enough for each breaker
  bool quiet_journal = false;  ///< no points in the journal: nothing that a breaker does depends on it
  std::uint32_t fresh = 0;     ///< bits: the participants whose handles have not appended yet; the others know the tail
  bool spares = true;          ///< each participant has a record in hand, as one has that has published before
};

template <class WidthsOf>
class Stage {
 public:
  using Env = ScheduledEnv<WidthsOf>;
  using Cell = core::BreakerCell<Env>;
  using View = core::SegmentView<Env>;

  static constexpr std::size_t kEpilogue = kMaxParticipants;
  static constexpr std::size_t kSetup = kMaxParticipants + 1;

  explicit Stage(const StageOptions& options)
      : options_(options), geometry_(geometry(options)), scheduler_(geometry_.total_bytes / 8) {
    Scheduler::current() = &scheduler_;
    view_ = View(scheduler_.base(), geometry_);
    for (std::size_t i = 0; i < kPresences; ++i)
      revive(i);
    if (!options.quiet_journal) return;
    scheduler_.make_quiet(geometry_.journal_offset / 8, (geometry_.total_bytes - geometry_.journal_offset) / 8);
    scheduler_.make_quiet(core::kSegmentWordsOffset / 8 + 3, 3);  // its three words among the segment's
  }
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;
  ~Stage() { Scheduler::current() = nullptr; }

  [[nodiscard]] Scheduler& scheduler() { return scheduler_; }
  [[nodiscard]] const Scheduler& scheduler() const { return scheduler_; }
  [[nodiscard]] const View& view() const { return view_; }
  [[nodiscard]] core::Presence& presence(std::size_t i) { return *presences_[i]; }

  /// Registers a breaker, as the setup.
  [[nodiscard]] bool add(const std::string& name, const Settings& settings) {
    Cell cell;
    bool created = false;
    return core::Registry<Env>(view_, presence(kSetup)).find_or_add(name, settings, 0, cell, created) == Errc::ok;
  }
  [[nodiscard]] Cell cell(std::size_t participant, std::uint32_t place = 0) {
    Cell cell;
    (void)core::Registry<Env>(view_, presence(participant)).handle(place, cell);
    return cell;
  }

  /// From now on all executions begin with the segment as it is.
  void set_scene() {
    for (std::size_t i = 0; i < kMaxParticipants; ++i) {
      const std::uint32_t kept = presence(i).take_spare();  // of one that has acted in the preparation
      spare_[i] = 0;
      revive(i);
      if (kept != 0) (void)presence(i).keep_spare(kept);
      if (!options_.spares) continue;
      Errc error = Errc::ok;
      spare_[i] = core::RecordPool<Env>(view_, presence(i)).claim(error);
    }
    tail_ = 0;
    auto& cells = *view_.breaker(0);
    const core::RingWord word{Env::load(cells.ring, Env::acquire)};
    if (auto* slots = view_.ring(word); slots != nullptr) {  // else the place is free
      typename core::Ring<Env>::Tail tail;
      const core::Ring<Env> ring(slots, word.capacity(), &cells.hint);
      if (ring.locate_tail(tail) && tail.position > ring.capacity()) tail_ = tail.position;
    }
    scheduler_.begin_scenario();
  }
  /// What belongs to the processes, as at the beginning of an execution.
  void begin_execution() {
    for (std::size_t i = 0; i < kEpilogue + 1; ++i) {
      revive(i);
      starts_[i] = core::LocalNotes{};
      if (i < kMaxParticipants && (options_.fresh >> i & 1U) == 0) starts_[i].start_from(tail_);
    }
  }

  /// Performs an operation on the breaker of `cell`, as the storage does.
  void perform(const Cell& cell, const Op& op, std::size_t participant, Tokens& tokens, Event& event) {
    proof::perform(cell, op, {.settings = settings_, .notes = &starts_[participant], .chance = draws_[participant]},
                   tokens, event);
  }
  void use_settings(const std::vector<Settings>& settings) { settings_ = &settings; }
  /// What chance gives to each participant and to the epilogue; the setup gets 0.
  void use_draws(const std::array<std::uint32_t, kMaxParticipants + 1>& draws) {
    std::copy(draws.begin(), draws.end(), draws_.begin());
  }

  /// Whether somebody in need of a record should get one, now that nothing runs.
  [[nodiscard]] bool has_record_to_take() {
    std::vector<bool> named(geometry_.records, false);
    for (std::uint32_t i = 0; i < geometry_.breakers; ++i)
      named[core::ControlWord<WidthsOf>{Env::load(view_.breaker(i)->control, Env::acquire)}.record()] = true;
    for (std::uint32_t i = 1; i < geometry_.records; ++i) {
      const core::OwnerWord owner{Env::load(view_.record(i)->owner, Env::acquire)};
      const bool of_dead = owner.participant() < kMaxParticipants && scheduler_.died(owner.participant());
      if (!named[i] && (owner.free() || owner.published() || of_dead)) return true;
    }
    return false;
  }

  [[nodiscard]] std::array<std::uint32_t, 2> spares_of(std::size_t participant) {
    core::Presence& presence = *presences_[participant];
    const std::array<std::uint32_t, 2> kept{presence.take_spare(), presence.take_spare()};
    for (const std::uint32_t spare : kept) {
      if (spare != 0) (void)presence.keep_spare(spare);
    }
    return kept;
  }

  /// What is wrong with the records at the end; `may_leave`: how many the dead may have left behind.
  [[nodiscard]] std::string wrong_with_records(std::uint32_t may_leave) {
    std::vector<bool> named(geometry_.records, false);
    for (std::uint32_t i = 0; i < geometry_.breakers; ++i) {
      const core::ControlWord<WidthsOf> word{Env::load(view_.breaker(i)->control, Env::acquire)};
      if (word.record() == 0) continue;
      if (word.record() >= geometry_.records) return "a breaker names a record that does not exist";
      if (named[word.record()]) return "two breakers name record " + std::to_string(word.record());
      named[word.record()] = true;
    }
    std::uint32_t left = 0;
    for (std::uint32_t i = 1; i < geometry_.records; ++i) {
      const core::OwnerWord owner{Env::load(view_.record(i)->owner, Env::acquire)};
      if (named[i]) {
        if (owner.free()) return "record " + std::to_string(i) + " is in use and free";
        continue;
      }
      if (owner.free()) continue;
      const bool of_dead = owner.participant() < kMaxParticipants && scheduler_.died(owner.participant());
      if (owner.published() || of_dead) {
        ++left;
      } else if (!is_spare(i, owner.participant())) {
        return "record " + std::to_string(i) + " belongs to the living participant " +
               std::to_string(owner.participant()) + " that does not know of it";
      }
    }
    if (left > may_leave) {
      return std::to_string(left) + " records are left behind, where " + std::to_string(may_leave) + " may be";
    }
    return {};
  }

  /// What is wrong with the ring of a breaker at the end.
  [[nodiscard]] std::string wrong_with_ring(std::uint32_t place) {
    auto& cells = *view_.breaker(place);
    const core::RingWord word{Env::load(cells.ring, Env::acquire)};
    auto* slots = view_.ring(word);
    if (slots == nullptr) return "no ring";
    const core::Ring<Env> ring(slots, word.capacity(), &cells.hint);
    typename core::Ring<Env>::Tail tail;
    if (!ring.locate_tail(tail)) return "no tail within reach of the hint";
    core::Record record;
    typename Cell::Control control;
    if (!cell(kEpilogue, place).load(control, record)) return "a record that does not decode";
    if (record.window_begin > tail.position || record.window_end >= tail.position) return "a window beyond the tail";
    if (record.breaker.probes.count > record.settings.probe_limit) return "more probes than the limit";
    for (std::uint64_t p = tail.position - ring.capacity(); p < tail.position; ++p) {
      if (!ring.holds(p, ring.at(p))) return "a gap at position " + std::to_string(p);
      // The first is the free slot at the tail: whoever touched it has changed its time.
      if (p <= tail.position - ring.capacity() + 1 || p - 1 < record.window_begin) continue;
      // A straggler of the period before may have got in at the begin of this one: it does not count.
      if (ring.at(p - 1).generation() != ring.at(p).generation()) continue;
      if (ring.at(p - 1).time_us() > ring.at(p).time_us()) return "times decrease at " + std::to_string(p);
      if (ring.at(p - 1).trip()) return "an outcome behind a flagged one at " + std::to_string(p);
    }
    return {};
  }

  /// What is wrong with the journal at the end: every committed change is told of once and in order, but for one of
  /// each of the dead.
  [[nodiscard]] std::string wrong_with_journal(std::uint32_t place, std::uint32_t may_miss) {
    core::Record record;
    typename Cell::Control control;
    if (!cell(kEpilogue, place).load(control, record)) return "a record that does not decode";
    const core::Journal<Env> journal(view_, presence(kEpilogue));
    const std::uint64_t next = journal.next();
    const std::uint64_t first = next > journal.size() ? next - journal.size() : 0;
    std::uint64_t pending = 0;
    std::vector<bool> told(record.journaled + 1, false);
    std::uint64_t count = 0;
    for (std::uint64_t p = first; p < next; ++p) {
      core::JournalEntry entry;
      switch (journal.read(p, entry)) {
        case core::JournalRead::entry: break;
        case core::JournalRead::pending: ++pending; continue;
        case core::JournalRead::overwritten: return "an entry of a later lap at " + std::to_string(p);
        case core::JournalRead::damaged: return "a damaged entry at " + std::to_string(p);
      }
      if (entry.breaker != place) continue;
      if (entry.number == 0 || entry.number > record.journaled) return "an entry that nothing was committed for";
      if (told[entry.number]) return "entry " + std::to_string(entry.number) + " is told twice";
      told[entry.number] = true;
      ++count;
    }
    if (pending > may_miss) return std::to_string(pending) + " entries of the journal stay empty";
    const std::uint64_t missing = record.journaled - count;
    if (first == 0 && missing > may_miss) return std::to_string(missing) + " changes are missing in the journal";
    return {};
  }

  /// What a word of the segment is, for display.
  [[nodiscard]] std::string name_of(const Word* word) const {
    const auto offset = static_cast<std::uint64_t>(word - scheduler_.arena().data()) * 8;
    const auto in = [offset](std::uint64_t begin, std::uint64_t bytes) {
      return offset >= begin && offset < begin + bytes;
    };
    const auto text = [](const char* what, std::uint64_t index, std::uint64_t part) {
      return std::string(what) + std::to_string(index) + "." + std::to_string(part);
    };
    const core::Geometry& g = geometry_;
    if (in(core::kSegmentWordsOffset, sizeof(core::SegmentWords<Env>))) {
      static constexpr const char* kNames[] = {"breaker-cursor", "arena",        "retired",
                                               "journal-next",   "journal-wake", "note-next"};
      return kNames[std::min<std::uint64_t>(5, (offset - core::kSegmentWordsOffset) / 8)];
    }
    if (in(core::kGroupsOffset, core::kMaxGroups * sizeof(core::GroupCells<Env>))) {
      return text("group", (offset - core::kGroupsOffset) / 32, (offset - core::kGroupsOffset) % 32 / 8);
    }
    if (in(g.index_offset, g.index_slots * 8)) return "bucket" + std::to_string((offset - g.index_offset) / 8);
    if (in(g.breakers_offset, g.breakers * sizeof(core::BreakerCells<Env>))) {
      return name_in_breaker(offset - g.breakers_offset);
    }
    if (in(g.records_offset, g.records * sizeof(core::RecordCell<Env>))) {
      const std::uint64_t at = offset - g.records_offset;
      const std::uint64_t part = at % sizeof(core::RecordCell<Env>) / 8;
      const std::string record = "record" + std::to_string(at / sizeof(core::RecordCell<Env>));
      return part == 0   ? record + ".owner"
             : part == 1 ? record + ".breaker"
                         : record + "[" + std::to_string(part - 2) + "]";
    }
    if (in(g.rings_offset, g.ring_slots * 8)) return "slot" + std::to_string((offset - g.rings_offset) / 8);
    if (in(g.journal_offset, g.journal_entries * 64)) {
      return text("journal", (offset - g.journal_offset) / 64, (offset - g.journal_offset) % 64 / 8);
    }
    if (offset >= g.total_bytes) return "-";
    return "note-words";
  }

  /// One column a participant; runs of accesses to words that nobody else touches are summed up.
  [[nodiscard]] std::string shown_steps() {
    constexpr std::size_t kColumn = 44;
    std::string text;
    std::size_t quiet = 0;
    std::uint8_t quiet_of = 0;
    const auto end_quiet = [&] {
      if (quiet > 0) text += std::string(kColumn * quiet_of, ' ') + "... " + std::to_string(quiet) + " of its own\n";
      quiet = 0;
    };
    for (const Step& step : scheduler_.steps()) {
      const Access access = step.what.access;
      const bool always = access == Access::die || access == Access::invoke || access == Access::respond;
      if (!always && !scheduler_.is_shared(step.what.word)) {
        if (quiet > 0 && quiet_of != step.participant) end_quiet();
        quiet_of = step.participant;
        ++quiet;
        continue;
      }
      end_quiet();
      text += std::string(kColumn * step.participant, ' ');
      const auto hex = [](std::uint64_t bits) {
        char buffer[20];
        std::snprintf(buffer, sizeof buffer, "%llx", static_cast<unsigned long long>(bits));
        return std::string(buffer);
      };
      const std::string word = name_of(step.what.word);
      switch (step.what.access) {
        case Access::load: text += word + " is " + hex(step.before); break;
        case Access::store: text += word + " := " + hex(step.after); break;
        case Access::swap:
          text += word + " " + hex(step.what.expected) + " => " + hex(step.what.value) +
                  (step.before == step.what.expected ? "" : " LOST, is " + hex(step.before));
          break;
        case Access::add: text += word + " += " + hex(step.what.value); break;
        case Access::invoke: text += "[ begins"; break;
        case Access::respond: text += "] ends"; break;
        case Access::die: text += "DIES"; break;
      }
      text += '\n';
    }
    end_quiet();
    return text;
  }

 private:
  static constexpr std::size_t kPresences = kMaxParticipants + 2;

  static core::Geometry geometry(const StageOptions& options) {
    core::Geometry g = core::geometry_of(
        options.breakers, options.participants,
        options.rings != 0 ? options.rings : std::uint64_t{options.breakers} * 2 * core::kMinRing, core::kMinJournal);
    if (options.records != 0) g.records = options.records;
    return g;
  }

  /// Dead is who died here. Asking is an access like any other.
  struct Kernel final : core::Presence::Kernel {
    bool renew(core::Presence& /*presence*/) noexcept override { return true; }
    bool is_dead(const core::Presence& presence, std::uint16_t number,
                 std::uint32_t /*incarnation*/) noexcept override {
      return is_unheld(presence, number);
    }
    bool is_unheld(const core::Presence& /*presence*/, std::uint16_t number) noexcept override {
      if (number >= kMaxParticipants) return false;
      return Scheduler::current()->access(Access::load, Scheduler::current()->death_of(number), 0, 0) != 0;
    }
  };

  void revive(std::size_t i) {
    auto& presence = presences_[i].emplace(kernel_);
    presence.become(static_cast<std::uint16_t>(i), 1);
    // Beyond the ownerships of the setup: no two may be the same value.
    for (int n = 0; n < (i < kMaxParticipants && spare_[i] != 0 ? 8 : 4); ++n)
      (void)presence.own();
    if (i < kMaxParticipants && spare_[i] != 0) (void)presence.keep_spare(spare_[i]);
  }

  [[nodiscard]] bool is_spare(std::uint32_t record, std::uint32_t participant) {
    if (participant >= kPresences) return false;
    const auto kept = spares_of(participant);
    return kept[0] == record || kept[1] == record;
  }

  [[nodiscard]] static std::string name_in_breaker(std::uint64_t at) {
    const std::string breaker = "b" + std::to_string(at / sizeof(core::BreakerCells<Env>)) + ".";
    const std::uint64_t part = at % sizeof(core::BreakerCells<Env>) / 8;
    static constexpr const char* kFirst[] = {"control", "incarnation", "owner", "ring",
                                             "bytes",   "hash",        "next",  "group"};
    static constexpr const char* kLane[] = {"rejected", "rejected-before", "ramp-rejected", "failures",
                                            "ignored",  "stale",           "abandoned",     "left-out"};
    if (part < 8) return breaker + kFirst[part];
    if (part < 24) return breaker + "name";
    if (part < 32) return breaker + (part == 24 ? "hint" : part == 25 ? "lean-mark" : "first");
    return breaker + "lane" + std::to_string((part - 32) / 8) + "." + kLane[(part - 32) % 8];
  }

  StageOptions options_;
  core::Geometry geometry_;
  Scheduler scheduler_;
  View view_;
  Kernel kernel_;
  std::array<std::optional<core::Presence>, kPresences> presences_;
  std::array<std::uint32_t, kMaxParticipants> spare_{};
  std::array<core::LocalNotes, kPresences> starts_{};
  std::uint64_t tail_ = 0;  // as the executions begin; 0: nothing appended yet
  std::array<std::uint32_t, kPresences> draws_{};
  const std::vector<Settings>* settings_ = nullptr;
};

}  // namespace shmcb::proof
