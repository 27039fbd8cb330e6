// SPDX-License-Identifier: BSD-3-Clause
// Runs the production templates under a deterministic scheduler: participants are fibers of one thread, every shared
// access is a point at which another may go on. Finds all schedules that can be told apart (dynamic partial-order
// reduction), or random ones, or replays one. Sequentially consistent: orders are for weak.cpp.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <boost/context/detail/fcontext.hpp>

#include "shmcb/core/env.hpp"

namespace shmcb::proof {

/// A shared word: eight bytes, as in production, so that the layout of the segment is the production layout.
struct Word {
  std::uint64_t bits = 0;
};

enum class Access : std::uint8_t {
  load,
  store,
  swap,  ///< compare-and-swap
  add,
  invoke,   ///< an operation begins ...
  respond,  ///< ... and ends: the order of these two kinds is the order of real time
  die,      ///< the participant never goes on, and others may find out
};

/// What a participant is about to do.
struct Pending {
  Word* word = nullptr;
  std::uint64_t expected = 0;
  std::uint64_t value = 0;
  Access access = Access::load;
};

/// What it did, for display.
struct Step {
  Pending what{};
  std::uint64_t before = 0;  ///< the word's value
  std::uint64_t after = 0;
  std::uint8_t participant = 0;
  bool point = false;  ///< others touch the word
};

inline constexpr std::size_t kMaxParticipants = 3;

/// Runs executions over an arena of words that is the same at the beginning of each.
class Scheduler {
 public:
  using Body = std::function<void()>;

  /// `words`: the segment; some more are kept for the scheduler's own events.
  explicit Scheduler(std::size_t words)
      : arena_(words + kOwnWords), touched_(arena_.size()), last_(arena_.size()), last_hashed_(arena_.size()) {
    for (auto& stack : stacks_)
      stack = std::make_unique<std::byte[]>(kStackBytes);
  }

  static Scheduler*& current() {
    static Scheduler* scheduler = nullptr;
    return scheduler;
  }

  [[nodiscard]] void* base() { return arena_.data(); }
  [[nodiscard]] const std::vector<Word>& arena() const { return arena_; }
  /// The word that says that a participant is dead.
  [[nodiscard]] Word& death_of(std::size_t participant) { return arena_[arena_.size() - 1 - participant]; }

  /// Accesses to these words are no points at which others go on: for words that decide nothing for anybody.
  void make_quiet(std::size_t first, std::size_t count) {
    if (quiet_.empty()) quiet_.resize(arena_.size(), false);
    std::fill_n(quiet_.begin() + static_cast<std::ptrdiff_t>(first), count, true);
  }

  // ---- the environment's side

  std::uint64_t access(Access access, const Word& word, std::uint64_t expected, std::uint64_t value) {
    Pending pending{const_cast<Word*>(&word), expected, value, access};
    if (self_ == kOutside) {
      note(pending, would_write(pending));
      return perform(pending, false);
    }
    if (++steps_[self_] > kMaxSteps) stuck();
    if (!is_point(pending)) {
      const bool writes = would_write(pending);
      note(pending, writes);
      if (writes && dies_at_write(pending)) die();
      return perform(pending, false);
    }
    pending_[self_] = pending;
    yield();
    if (mode_ == Mode::replay) {
      if (std::exchange(dies_now_, false)) die();
    } else if (would_write(pending) && dies_at_write(pending)) {
      if (mode_ == Mode::search) note_event(pending, false);  // it has looked at the word, no more
      die();
    }
    note(pending, would_write(pending));
    return finish_event(pending, true);
  }

  /// For those who mark the begin and the end of an operation: the position in real time.
  std::uint64_t mark(Access access) {
    if (self_ == kOutside) return ++clock_;
    pending_[self_] = {&arena_[arena_.size() - kOwnWords], 0, 0, access};
    yield();
    finish_event(pending_[self_], false);
    if (keeps_steps_) shown_.push_back({.what = pending_[self_], .participant = static_cast<std::uint8_t>(self_)});
    return ++clock_;
  }

  // ---- what is explored

  struct Plan {
    std::vector<Body> bodies;
    /// A participant that dies before its write of this number, counted from 1 (0: none dies): only what it has
    /// written tells one death from another.
    std::array<std::uint32_t, kMaxParticipants> dies_before_write{};
  };

  struct Totals {
    std::uint64_t executions = 0;
    std::uint64_t redundant = 0;  ///< given up as equal to one before
    std::uint64_t steps = 0;
    bool complete = true;  ///< false: cut at the limit
    bool failed = false;
  };

  /// Called before each execution (not to touch words), and after each: false: what it saw is a failure.
  struct Hooks {
    std::function<void()> before;
    std::function<bool()> after;
  };

  static constexpr std::uint32_t kUnbounded = ~0U;

  /// All schedules that can be told apart; with a bound, all with at most so many preemptions instead; up to `limit`
  /// executions. Where it turns out that words are shared that were thought private, it begins anew.
  Totals explore(const Plan& plan, const Hooks& hooks, std::uint64_t limit, std::uint32_t preemptions = kUnbounded) {
    Totals totals;
    mode_ = preemptions == kUnbounded ? Mode::search : Mode::bounded;
    bound_ = preemptions;
    for (bool again = true; again;) {
      again = false;
      nodes_.clear();
      for (;;) {
        news_ = false;
        const bool whole = execute(plan, hooks, totals);
        if (whole && !conclude(hooks)) totals.failed = true;
        restore();
        if (totals.failed) return totals;
        if (news_) {
          again = true;
          break;
        }
        if (!backtrack()) break;
        if (totals.executions >= limit) {
          totals.complete = false;
          break;
        }
      }
    }
    return totals;
  }

  /// Random schedules: a participant goes on for a while, then another.
  Totals explore_randomly(const Plan& plan, const Hooks& hooks, std::uint64_t executions, std::uint64_t seed) {
    Totals totals;
    mode_ = Mode::random;
    for (std::uint64_t n = 0; n < executions && !totals.failed; ++n) {
      random_.seed(static_cast<std::minstd_rand::result_type>(seed + n));
      eagerness_ = 1U + static_cast<std::uint32_t>(random_() % 8);
      execute(plan, hooks, totals);
      if (!conclude(hooks)) totals.failed = true;
      restore();
    }
    return totals;
  }

  /// So many accesses of a participant, then perhaps its death.
  struct Run {
    std::uint8_t participant = 0;
    std::uint32_t accesses = 0;
    bool dies = false;
  };

  /// One execution by a schedule; at its end each participant goes on to its own end. Keeps the steps for display.
  Totals replay(const Plan& plan, const Hooks& hooks, std::vector<Run> schedule) {
    Totals totals;
    mode_ = Mode::replay;
    schedule_ = std::move(schedule);
    schedule_at_ = 0;
    schedule_fits_ = true;
    keeps_steps_ = true;
    execute(plan, hooks, totals);
    for (; schedule_at_ < schedule_.size(); ++schedule_at_)
      schedule_fits_ = schedule_fits_ && !schedule_[schedule_at_].dies && schedule_[schedule_at_].accesses == 0;
    keeps_steps_ = false;
    if (!conclude(hooks)) totals.failed = true;
    restore();
    return totals;
  }

  /// Whether all of the replayed schedule could be followed: else it is another scenario's, or of other code.
  [[nodiscard]] bool schedule_fits() const { return schedule_fits_; }

  /// What led to the newest execution's end, e.g. "0*12 1*30 0! 1*4": `!` is a death.
  [[nodiscard]] std::string schedule_text() const {
    std::string text;
    for (const Run& run : runs_) {
      if (!text.empty()) text += ' ';
      text += std::to_string(run.participant);
      text += run.dies ? "!" : "*" + std::to_string(run.accesses);
    }
    return text;
  }
  /// The reverse; empty: not one.
  [[nodiscard]] static std::vector<Run> schedule_of(const std::string& text) {
    std::vector<Run> runs;
    const char* at = text.c_str();
    while (*at != '\0') {
      char* end = nullptr;
      const unsigned long participant = std::strtoul(at, &end, 10);
      if (end == at || participant >= kMaxParticipants || (*end != '*' && *end != '!')) return {};
      Run run{.participant = static_cast<std::uint8_t>(participant), .dies = *end == '!'};
      at = end + 1;
      if (!run.dies) {
        constexpr unsigned long kMost = 10'000'000;
        const unsigned long accesses = *at >= '0' && *at <= '9' ? std::strtoul(at, &end, 10) : 0;
        if (accesses == 0 || accesses > kMost) return {};
        run.accesses = static_cast<std::uint32_t>(accesses);
        at = end;
      }
      while (*at == ' ')
        ++at;
      runs.push_back(run);
    }
    return runs;
  }
  [[nodiscard]] const std::vector<Step>& steps() const { return shown_; }
  /// Whether anyone else ever looks at a word that somebody changes, be it in the epilogue.
  [[nodiscard]] bool is_shared(const Word* word) const {
    return touched_[static_cast<std::size_t>(word - arena_.data())].visible();
  }
  /// The words that differ from the beginning of the execution, each with its value.
  template <class Mix>
  void hash_changes(Mix mix) {
    std::uint64_t sum = 0;  // whatever the order in which they were changed
    for (const auto& [index, before] : undo_) {
      if (last_hashed_[index] == execution_) continue;
      last_hashed_[index] = execution_;
      std::uint64_t hash = (index + 1) * 0x9e37'79b9'7f4a'7c15U ^ arena_[index].bits;
      hash = (hash ^ (hash >> 30U)) * 0xbf58'476d'1ce4'e5b9U;
      sum += hash ^ (hash >> 27U);
    }
    mix(sum);
  }
  [[nodiscard]] bool died(std::size_t participant) const { return (dead_ >> participant & 1U) != 0; }
  /// Of one that died: when, in real time. Its order with the begin of others' operations is that of this execution; it
  /// is not explored for its own sake.
  [[nodiscard]] std::uint64_t died_at(std::size_t participant) const { return died_at_[participant]; }
  /// Whether a planned death came about in any execution since the plan began.
  [[nodiscard]] bool death_happened() const { return death_happened_; }
  [[nodiscard]] bool anyone_stuck() const { return stuck_; }

  /// What was learnt of who touches what is another scenario's no more. The words stay as they are now at the
  /// beginning of each execution.
  void begin_scenario() {
    std::fill(touched_.begin(), touched_.end(), Touched{});
    undo_.clear();
    logs_ = true;
  }
  void begin_plan() { death_happened_ = false; }
  /// Takes back everything since `begin_scenario`, and lets it be changed for good again.
  void end_scenario() {
    restore();
    logs_ = false;
  }

 private:
  enum class Mode : std::uint8_t { search, bounded, random, replay };

  static constexpr std::size_t kOwnWords = 1 + kMaxParticipants;
  static constexpr std::size_t kStackBytes = 256 * 1024;
  static constexpr std::uint32_t kOutside = kMaxParticipants;
  static constexpr std::uint32_t kMaxSteps = 2'000'000;  // of one participant in one execution

  using Clock = std::array<std::uint32_t, kMaxParticipants>;  // of each participant, how many events are known

  /// Who touches a word in any execution of the scenario, as bits; kOutside is the epilogue.
  struct Touched {
    std::uint8_t by = 0;
    std::uint8_t written_by = 0;
    [[nodiscard]] bool shared() const {
      constexpr std::uint8_t inside = (1U << kMaxParticipants) - 1;
      const unsigned all = by & inside;
      const unsigned writers = written_by & inside;
      return writers != 0 && std::popcount(all) > 1;
    }
    /// Some writes to it are seen by somebody else, be it in the epilogue.
    [[nodiscard]] bool visible() const { return written_by != 0 && std::popcount(unsigned{by}) > 1; }
  };

  /// The newest events on a word in this execution, as their number + 1.
  struct Last {
    std::uint32_t write = 0;
    Clock reads{};   // since that write
    Clock writes{};  // for marks
    std::uint32_t execution = 0;
  };

  /// A point of the present execution.
  struct Node {
    std::array<Pending, kMaxParticipants> pending{};
    std::uint8_t writes = 0;  // which of these would change the word now
    std::uint8_t enabled = 0;
    std::uint8_t chosen = 0;
    std::uint8_t wanted = 0;  // to be tried here
    std::uint8_t done = 0;
    std::uint8_t asleep = 0;  // what these would do has been seen already
    // with a bound:
    bool running = false;  // `runs_on` could have gone on, so that another choice is a preemption
    std::uint8_t runs_on = 0;
    std::uint32_t preemptions = 0;
    // the event that `chosen` made:
    bool wrote = false;
    Clock clock{};
  };

  // ---- one execution

  bool execute(const Plan& plan, const Hooks& hooks, Totals& totals) {
    ++execution_;
    plan_ = &plan;
    count_ = plan.bodies.size();
    clock_ = 0;
    depth_ = 0;
    dead_ = 0;
    stuck_ = false;
    redundant_ = false;
    steps_ = {};
    writes_ = {};
    known_ = {};
    runs_.clear();
    shown_.clear();
    hooks.before();
    enabled_ = static_cast<std::uint8_t>((1U << count_) - 1);
    for (std::size_t i = 0; i < count_; ++i) {
      contexts_[i] = boost::context::detail::make_fcontext(stacks_[i].get() + kStackBytes, kStackBytes, &enter);
    }
    // Each up to its first point; what it does before it is its own business.
    for (std::uint32_t i = 0; i < count_; ++i)
      switch_to(i);
    starting_ = false;
    if (enabled_ != 0) {
      const std::uint32_t first = choose();
      if (first != kOutside) switch_to(first);
    }
    starting_ = true;
    self_ = kOutside;
    ++totals.executions;
    if (redundant_) ++totals.redundant;
    for (std::size_t i = 0; i < count_; ++i)
      totals.steps += steps_[i];
    return !redundant_;
  }

  bool conclude(const Hooks& hooks) { return !stuck_ && hooks.after(); }

  static void enter(boost::context::detail::transfer_t from) {
    Scheduler& s = *current();
    s.arrived(from);
    const std::uint32_t me = s.self_;
    s.plan_->bodies[me]();
    s.leave();
  }

  void arrived(boost::context::detail::transfer_t from) { contexts_[left_] = from.fctx; }

  void switch_to(std::uint32_t target) {
    left_ = self_;
    self_ = target;
    const std::uint32_t me = left_;
    const auto from = boost::context::detail::jump_fcontext(contexts_[target], nullptr);
    arrived(from);
    self_ = me;
  }

  /// The present participant is not to go on for now: somebody else, or itself after all.
  void yield() {
    if (starting_) return switch_to(kOutside);
    const std::uint32_t next = choose();
    if (next == self_) return;
    switch_to(next);
  }

  /// The present participant has ended, one way or another.
  [[noreturn]] void leave() {
    enabled_ = static_cast<std::uint8_t>(enabled_ & ~(1U << self_));
    if (starting_) {
      switch_to(kOutside);
    } else {
      switch_to(enabled_ == 0 ? kOutside : choose());
    }
    std::abort();  // nobody resumes it
  }

  [[noreturn]] void die() {
    const Pending death{&death_of(self_), 0, 1, Access::die};
    pending_[self_] = death;
    if (mode_ != Mode::replay) yield();
    note(death, true);
    if (mode_ == Mode::search) note_event(death, true);
    perform(death, true);
    dead_ = static_cast<std::uint8_t>(dead_ | (1U << self_));
    died_at_[self_] = ++clock_;
    death_happened_ = true;
    leave();
  }

  [[noreturn]] void stuck() {
    stuck_ = true;
    switch_to(kOutside);
    std::abort();
  }

  /// Whether this write is the one before which the present participant dies. Counted are the writes that anyone else
  /// ever looks at.
  bool dies_at_write(const Pending& pending) {
    const Touched& touched = touched_[index_of(pending)];
    if ((touched.by & ~(1U << self_)) == 0) return false;
    return ++writes_[self_] == plan_->dies_before_write[self_];
  }

  [[nodiscard]] std::size_t index_of(const Pending& pending) const {
    return static_cast<std::size_t>(pending.word - arena_.data());
  }

  [[nodiscard]] bool is_point(const Pending& pending) const {
    if (mode_ == Mode::replay) return true;
    return touched_[index_of(pending)].shared() && (quiet_.empty() || !quiet_[index_of(pending)]);
  }

  [[nodiscard]] static bool would_write(const Pending& pending) {
    switch (pending.access) {
      case Access::load:
      case Access::invoke: return false;
      case Access::swap: return pending.word->bits == pending.expected;
      case Access::store:
      case Access::add:
      case Access::respond:
      case Access::die: break;
    }
    return true;
  }

  /// Learns who touches what.
  void note(const Pending& pending, bool writes) {
    Touched& touched = touched_[index_of(pending)];
    const bool was_shared = touched.shared();
    const bool was_visible = touched.visible();
    touched.by = static_cast<std::uint8_t>(touched.by | (1U << self_));
    if (writes) touched.written_by = static_cast<std::uint8_t>(touched.written_by | (1U << self_));
    // Accesses to it were not points, or writes to it not counted, up to now.
    if (touched.shared() != was_shared || touched.visible() != was_visible) news_ = true;
  }

  std::uint64_t perform(const Pending& pending, bool point) {
    Word& word = *pending.word;
    const std::uint64_t before = word.bits;
    std::uint64_t answer = before;
    if (would_write(pending)) {
      if (logs_) undo_.emplace_back(index_of(pending), before);
      word.bits = pending.access == Access::add ? before + pending.value : pending.value;
      if (pending.access == Access::swap) answer = 1;
    } else if (pending.access == Access::swap) {
      answer = 0;
    }
    if (keeps_steps_ && self_ != kOutside) {
      shown_.push_back({pending, before, word.bits, static_cast<std::uint8_t>(self_), point});
    }
    if (self_ != kOutside) count_run(pending.access == Access::die);
    return answer;
  }

  void count_run(bool dies) {
    const auto self = static_cast<std::uint8_t>(self_);
    if (dies) {
      runs_.push_back({.participant = self, .dies = true});
      return;
    }
    if (runs_.empty() || runs_.back().participant != self || runs_.back().dies) runs_.push_back({.participant = self});
    ++runs_.back().accesses;
  }

  void restore() {
    for (auto at = undo_.rbegin(); at != undo_.rend(); ++at)
      arena_[at->first].bits = at->second;
    undo_.clear();
  }

  // ---- choosing

  std::uint32_t choose() {
    switch (mode_) {
      case Mode::search: return choose_next_untried();
      case Mode::bounded: return choose_within_bound();
      case Mode::random: return choose_randomly();
      case Mode::replay: break;
    }
    return choose_by_schedule();
  }

  std::uint32_t any_of(std::uint8_t set) const {
    if (self_ < kOutside && (set >> self_ & 1U) != 0) return self_;
    return static_cast<std::uint32_t>(std::countr_zero(set));
  }

  std::uint32_t choose_randomly() {
    if (self_ < kOutside && (enabled_ >> self_ & 1U) != 0 && random_() % eagerness_ != 0) return self_;
    std::uint32_t nth = static_cast<std::uint32_t>(random_() % static_cast<unsigned>(std::popcount(enabled_)));
    std::uint8_t set = enabled_;
    for (; nth > 0; --nth)
      set = static_cast<std::uint8_t>(set & (set - 1));
    return static_cast<std::uint32_t>(std::countr_zero(set));
  }

  std::uint32_t choose_by_schedule() {
    for (; schedule_at_ < schedule_.size(); ++schedule_at_) {
      Run& run = schedule_[schedule_at_];
      if ((enabled_ >> run.participant & 1U) == 0) {
        schedule_fits_ = false;
        continue;
      }
      if (run.dies) {
        ++schedule_at_;
        dies_now_ = true;
        return run.participant;
      }
      if (run.accesses == 0) continue;
      --run.accesses;
      return run.participant;
    }
    return any_of(enabled_);
  }

  std::uint32_t choose_within_bound() {
    const std::uint32_t depth = depth_++;
    if (depth < nodes_.size()) return nodes_[depth].chosen;
    Node node;
    node.enabled = enabled_;
    const std::uint32_t next = any_of(enabled_);
    node.running = self_ < kOutside && next == self_;
    node.chosen = node.runs_on = static_cast<std::uint8_t>(next);
    if (depth > 0) {
      const Node& parent = nodes_[depth - 1];
      node.preemptions = parent.preemptions + (parent.running && parent.chosen != parent.runs_on ? 1U : 0U);
    }
    node.wanted = node.running && node.preemptions >= bound_ ? static_cast<std::uint8_t>(1U << next) : enabled_;
    nodes_.push_back(node);
    return next;
  }

  std::uint32_t choose_next_untried() {
    if (depth_ < nodes_.size()) return nodes_[depth_].chosen;
    Node node;
    node.pending = pending_;
    node.enabled = enabled_;
    for (std::uint32_t i = 0; i < count_; ++i) {
      if ((enabled_ >> i & 1U) != 0 && would_write(pending_[i]))
        node.writes = static_cast<std::uint8_t>(node.writes | (1U << i));
    }
    if (depth_ > 0) node.asleep = still_asleep(nodes_[depth_ - 1]);
    const auto awake = static_cast<std::uint8_t>(enabled_ & ~node.asleep);
    if (awake == 0) {
      redundant_ = true;
      return kOutside;
    }
    const std::uint32_t next = any_of(awake);
    node.chosen = static_cast<std::uint8_t>(next);
    node.wanted = static_cast<std::uint8_t>(1U << next);
    nodes_.push_back(node);
    return next;
  }

  /// Those whose next access has been seen in this place already and does not depend on what the parent's choice did.
  [[nodiscard]] static std::uint8_t still_asleep(const Node& parent) {
    const auto sleepers = static_cast<std::uint8_t>((parent.asleep | parent.done) & ~(1U << parent.chosen));
    std::uint8_t still = 0;
    const Pending& made = parent.pending[parent.chosen];
    for (std::uint32_t i = 0; i < kMaxParticipants; ++i) {
      if ((sleepers >> i & 1U) == 0) continue;
      const bool writes = (parent.writes >> i & 1U) != 0;
      if (!depends(parent.pending[i], writes, made, parent.wrote)) still = static_cast<std::uint8_t>(still | (1U << i));
    }
    return still;
  }

  [[nodiscard]] static bool is_mark(Access access) { return access == Access::invoke || access == Access::respond; }
  [[nodiscard]] static bool depends(const Pending& a, bool a_writes, const Pending& b, bool b_wrote) {
    if (a.word != b.word) return false;
    return is_mark(a.access) ? a.access != b.access : a_writes || b_wrote;
  }

  /// Performs a chosen access and, while searching, notes with which earlier ones it could have been exchanged.
  std::uint64_t finish_event(const Pending& pending, bool performs) {
    const bool writes = is_mark(pending.access) ? pending.access == Access::respond : performs && would_write(pending);
    if (mode_ == Mode::search) note_event(pending, writes);
    if (performs) return perform(pending, true);
    count_run(false);
    return 0;
  }

  void note_event(const Pending& pending, bool writes) {
    const std::uint32_t number = depth_++;
    Node& node = nodes_[number];
    node.wrote = writes;
    Last& last = last_[index_of(pending)];
    if (last.execution != execution_) last = {.execution = execution_};
    Clock clock = known_[self_];
    std::array<std::uint32_t, 2 * kMaxParticipants> met{};
    std::size_t meetings = 0;
    const auto meets = [&](std::uint32_t event) {  // event + 1; 0: none
      if (event == 0) return;
      const Node& other = nodes_[event - 1];
      if (other.chosen == self_) return;
      met[meetings++] = event;
      for (std::size_t i = 0; i < kMaxParticipants; ++i)
        clock[i] = std::max(clock[i], other.clock[i]);
    };
    if (is_mark(pending.access)) {
      for (const std::uint32_t event : writes ? last.reads : last.writes)
        meets(event);
    } else if (!writes) {
      meets(last.write);
    } else {
      bool read_by_others = false;
      for (std::uint32_t i = 0; i < kMaxParticipants; ++i) {
        if (i == self_ || last.reads[i] == 0) continue;
        read_by_others = true;
      }
      if (!read_by_others) meets(last.write);
      for (std::uint32_t i = 0; i < kMaxParticipants; ++i)
        meets(last.reads[i]);
    }
    for (std::size_t a = 0; a < meetings; ++a) {
      const std::uint32_t event = met[a];
      const std::uint8_t other = nodes_[event - 1].chosen;
      if (event <= known_[self_][other]) continue;
      // Without `event` this access still comes after the others that it meets and that do not come after `event`.
      Clock without = known_[self_];
      for (std::size_t b = 0; b < meetings; ++b) {
        const Node& node_met = nodes_[met[b] - 1];
        if (met[b] <= event || node_met.clock[other] >= event) continue;
        for (std::size_t i = 0; i < kMaxParticipants; ++i)
          without[i] = std::max(without[i], node_met.clock[i]);
      }
      found_race(event - 1, number, without);
    }
    clock[self_] = number + 1;
    node.clock = clock;
    known_[self_] = clock;
    if (is_mark(pending.access)) {
      (writes ? last.writes : last.reads)[self_] = number + 1;
    } else if (writes) {
      last.write = number + 1;
      last.reads = {};
    } else {
      last.reads[self_] = number + 1;
    }
  }

  /// Events `first` and `second` (which is being made) could come in the other order: some participant that can begin
  /// that has to be tried at `first`. (Source sets: P. Abdulla, S. Aronis, B. Jonsson, K. Sagonas, "Optimal dynamic
  /// partial order reduction", POPL 2014.)
  void found_race(std::uint32_t first, std::uint32_t second, const Clock& second_clock) {
    const std::uint8_t by = nodes_[first].chosen;
    Clock begins{};  // of each participant, its first event that does not come after `first`, + 1
    std::uint8_t initials = 0;
    for (std::uint32_t n = first + 1; n <= second; ++n) {
      const std::uint8_t who = n == second ? static_cast<std::uint8_t>(self_) : nodes_[n].chosen;
      const Clock& clock = n == second ? second_clock : nodes_[n].clock;
      if (n != second && clock[by] >= first + 1) continue;
      if (begins[who] != 0) continue;
      begins[who] = n + 1;
      bool initial = true;
      for (std::uint32_t i = 0; i < kMaxParticipants; ++i) {
        if (i != who && begins[i] != 0 && clock[i] >= begins[i]) initial = false;
      }
      if (initial) initials = static_cast<std::uint8_t>(initials | (1U << who));
    }
    Node& node = nodes_[first];
    initials = static_cast<std::uint8_t>(initials & node.enabled);
    if (initials == 0) initials = static_cast<std::uint8_t>(node.enabled & ~(1U << by));
    if ((initials & node.wanted) != 0) return;
    node.wanted = static_cast<std::uint8_t>(node.wanted | (initials & (0U - initials)));
  }

  /// To the deepest point at which something is still to be tried. False: nowhere.
  bool backtrack() {
    while (!nodes_.empty()) {
      Node& node = nodes_.back();
      node.done = static_cast<std::uint8_t>(node.done | (1U << node.chosen));
      const auto left = static_cast<std::uint8_t>(node.wanted & ~node.done & ~node.asleep);
      if (left != 0) {
        node.chosen = static_cast<std::uint8_t>(std::countr_zero(left));
        return true;
      }
      nodes_.pop_back();
    }
    return false;
  }

  std::vector<Word> arena_;
  std::vector<bool> quiet_;
  std::vector<Touched> touched_;
  std::vector<Last> last_;
  std::vector<std::uint32_t> last_hashed_;
  std::vector<std::pair<std::size_t, std::uint64_t>> undo_;
  bool logs_ = false;

  std::array<std::unique_ptr<std::byte[]>, kMaxParticipants> stacks_;
  std::array<boost::context::detail::fcontext_t, kMaxParticipants + 1> contexts_{};
  std::uint32_t self_ = kOutside;
  std::uint32_t left_ = kOutside;
  bool starting_ = true;

  const Plan* plan_ = nullptr;
  std::size_t count_ = 0;
  Mode mode_ = Mode::search;
  std::uint32_t bound_ = kUnbounded;
  std::uint8_t enabled_ = 0;
  std::uint8_t dead_ = 0;
  bool stuck_ = false;
  bool redundant_ = false;
  bool news_ = false;
  bool death_happened_ = false;
  std::uint32_t execution_ = 0;
  std::uint32_t depth_ = 0;
  std::uint64_t clock_ = 0;
  std::array<std::uint64_t, kMaxParticipants> died_at_{};
  std::array<Pending, kMaxParticipants> pending_{};
  std::array<std::uint32_t, kMaxParticipants> steps_{};
  std::array<std::uint32_t, kMaxParticipants> writes_{};
  std::array<Clock, kMaxParticipants> known_{};
  std::vector<Node> nodes_;

  std::minstd_rand random_;
  std::uint32_t eagerness_ = 4;
  std::vector<Run> schedule_;
  std::size_t schedule_at_ = 0;
  bool schedule_fits_ = true;
  bool dies_now_ = false;
  std::vector<Run> runs_;
  bool keeps_steps_ = false;
  std::vector<Step> shown_;
};

/// The environment of the production templates: every access goes through the scheduler.
template <class WidthsOf>
struct ScheduledEnv {
  using Word = proof::Word;
  using Widths = WidthsOf;
  enum class Order : std::uint8_t { relaxed, acquire, release, acq_rel };
  // NOLINTBEGIN(readability-identifier-naming): named as in core/env.hpp
  static constexpr Order relaxed = Order::relaxed;
  static constexpr Order acquire = Order::acquire;
  static constexpr Order release = Order::release;
  static constexpr Order acq_rel = Order::acq_rel;
  // NOLINTEND(readability-identifier-naming)

  static std::uint64_t load(const Word& word, Order /*order*/) noexcept {
    return Scheduler::current()->access(Access::load, word, 0, 0);
  }
  static void store(Word& word, std::uint64_t value, Order /*order*/) noexcept {
    Scheduler::current()->access(Access::store, word, 0, value);
  }
  static bool cas(Word& word, std::uint64_t expected, std::uint64_t desired, Order /*order*/) noexcept {
    return Scheduler::current()->access(Access::swap, word, expected, desired) != 0;
  }
  static std::uint64_t fetch_add(Word& word, std::uint64_t amount, Order /*order*/) noexcept {
    return Scheduler::current()->access(Access::add, word, 0, amount);
  }
};

}  // namespace shmcb::proof
