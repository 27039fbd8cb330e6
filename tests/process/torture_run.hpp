// SPDX-License-Identifier: BSD-3-Clause
// A run of torture: processes of TortureWorker that are killed, stopped, continued and started again at random, a
// follower of the journal, and a parent that finds what must hold throughout and in between. For a test as long as a
// second and for shmcb-prove-torture as long as wanted.
#pragma once

#include <dirent.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest-spi.h>

#include "process/census.hpp"
#include "process/torture.hpp"
#include "support/test_segment.hpp"

namespace shmcb::test {

/// How long the follower waits for who stands still. Much longer than anyone is off the processor.
inline constexpr Millis kFollowersPatience{1'000};

struct TortureOptions {
  std::uint32_t workers = 6;
  std::uint32_t breakers = 4;
  std::uint64_t seed = 0;
  std::string directory = "/dev/shm";
  std::optional<std::string> name{};
};

struct TortureTotals {
  std::uint64_t kills = 0;
  std::uint64_t kills_of_all = 0;  ///< times that all were killed at once
  std::uint64_t zombies = 0;
  std::uint64_t stops = 0;
  std::uint64_t starts = 0;
  std::uint64_t quiet = 0;  ///< times that all stood still and each breaker was led through its states
  std::uint64_t recycled = 0;
  std::uint64_t checks = 0;
};

/// The process that follows the journal from the beginning to the end: each event of a single breaker once, in order
/// and where the last one left it.
class TortureFollower {
 public:
  TortureFollower(const TortureStage& stage, Books& books) : stage_(stage), books_(&books) {}

  int operator()() {
    const auto segment = Segment::attach(stage_.options);
    auto follower = SegmentObserver::open(segment, {.patience = kFollowersPatience});
    if (!follower) return 1;
    FollowerBooks& found = stage_.ledger().follower;
    found.ready.store(true);
    const core::Journal<core::StdEnv> journal(segment->view(), segment->presence());
    const core::Bits begin = journal.next();
    const auto hear_it = [this](const SegmentEvent& event) { hear(event); };
    while (!all_heard() && !books_->complained.load()) {
      // Where it lags by most of the journal (it was off the processor, or waited for one who stood still), what is
      // lost says nothing of the dead.
      const std::uint64_t known = found.events.load() + found.lost.load();
      const std::uint64_t there = journal.next() - begin;
      if (there > known + segment->geometry().journal_entries / 4 * 3) found.overruns.fetch_add(1);
      (void)follower->wait(Millis{20}, hear_it);
      found.lost.store(follower->lost());
    }
    return books_->complained.load() ? 1 : 0;
  }

 private:
  struct Last {
    std::uint64_t number = 0;
    CircuitState state = CircuitState::closed;
    Mode mode = Mode::automatic;
  };

  [[nodiscard]] bool all_heard() const {
    const FollowerBooks& found = stage_.ledger().follower;
    for (std::uint32_t i = 0; i < stage_.breakers; ++i) {
      const std::uint64_t final = found.final.at(i).load();
      if (final == 0 || last_.at(i).number != final) return false;
    }
    return true;
  }
  void hear(const SegmentEvent& event) {
    FollowerBooks& found = stage_.ledger().follower;
    found.events.fetch_add(1);
    if (event.place >= stage_.breakers) return;
    Last& last = last_.at(event.place);
    require(event.number > last.number, "the follower heard an event twice, or out of order");
    if (event.number == last.number + 1) {
      require(event.from == last.state, "an event begins in another state than the one before it ended in");
      require(event.mode_from == last.mode, "an event begins in another mode than the one before it ended in");
    } else {
      found.gaps.fetch_add(event.number - last.number - 1);
    }
    last = {.number = event.number, .state = event.to, .mode = event.mode_to};
    if (event.reason != TransitionReason::none) {
      found.transitions.at(event.place).at(static_cast<std::size_t>(event.reason)).fetch_add(1);
    }
    found.last.at(event.place).store(event.number);
  }
  void require(bool holds, const char* what) {
    Books::bump(books_->checks);
    if (!holds) books_->complain(what);
  }

  TortureStage stage_;
  Books* books_;
  std::array<Last, kMaxTortured> last_{};
};

/// Requires that this is the main thread and has no children but those that it starts through this.
class TortureRun {
 public:
  explicit TortureRun(const TortureOptions& options)
      : options_(options), random_(options.seed), stage_(stage_of(options)), segment_(stage_.options) {
    // Whoever outlives a killed worker becomes our child, and is reaped.
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    // Registered in this order, so that the place of a breaker is its number.
    observer_ =
        std::make_unique<TortureWorker>(stage_, segment_.segment(), parent_books(), random_(), Company::watchers);
    follower_ = fork_child(TortureFollower(stage_, ledger().books.at(parent_books() + 1)));
    require(wait_until([this] { return ledger().follower.ready.load(); }), "the follower does not begin");
    incarnations_ = incarnations();
    for (std::uint32_t i = 0; i < options_.workers; ++i)
      workers_.push_back(start_worker(i));
  }
  TortureRun(const TortureRun&) = delete;
  TortureRun& operator=(const TortureRun&) = delete;
  ~TortureRun() {
    for (Worker& worker : workers_)
      signal(worker, SIGKILL);
    workers_.clear();
    zombies_.clear();
    ::prctl(PR_SET_CHILD_SUBREAPER, 0);
  }

  /// One thing that happens to the processes, and the checks that belong to it.
  void act() {
    ++acts_;
    await_progress();
    for (std::uint32_t i = 0; i < options_.workers; ++i) {
      if (workers_[i].stopped && workers_[i].stopped_until <= acts_) go_on(workers_[i]);
    }
    const auto number = static_cast<std::uint32_t>(random_() % options_.workers);
    const std::uint64_t choice = random_() % 100;
    if (acts_ % 64 == 0) {
      kill_all();
    } else if (acts_ % 32 == 16) {
      look_at_all_in_quiet();
    } else if (choice < 35) {
      kill(number, choice < 8);
      workers_[number] = start_worker(number);
    } else if (choice < 60 && !workers_[number].stopped) {
      // Most for a moment, some until everything has come round many times.
      const std::uint64_t acts = choice < 37 ? 300 : 1 + random_() % 40;
      if (stopped() + 2 < options_.workers) stop(workers_[number], acts);
    }
    for (int i = 0; i < 10; ++i)
      observer_->step();
    check_books(static_cast<std::uint32_t>(random_() % stage_.breakers));
    check_complaints();
  }

  /// The end: all workers come to an end in order, and the last checks are made.
  void finish() {
    ledger().enough.store(true);
    for (Worker& worker : workers_) {
      if (worker.stopped) go_on(worker);
      const Ended ended = worker.child.wait();
      require(ended == exited(0) && !worker.zombie, "a worker did not come to its end in order");
    }
    reap_zombies(0);
    check_complaints();
    look_at_all();
    check_follower();
    look_at_the_whole_segment();
    totals_.recycled = incarnations() - incarnations_;
    for (const Books& books : ledger().books)
      totals_.checks += books.checks.load();
  }

  [[nodiscard]] const std::vector<std::string>& failures() const { return failures_; }
  [[nodiscard]] const TortureTotals& totals() const { return totals_; }
  [[nodiscard]] std::uint64_t checks() const { return totals_.checks; }
  [[nodiscard]] std::uint64_t acts() const { return acts_; }
  [[nodiscard]] const Ledger& books() const { return ledger(); }

  /// The words of the breakers, to be read where something does not hold.
  void dump(std::FILE* out) const {
    using Env = core::StdEnv;
    const auto& view = segment_->view();
    for (std::uint32_t i = 0; i < stage_.breakers; ++i) {
      const auto& cells = *view.breaker(i);
      const core::ControlWord<Env::Widths> control{Env::load(cells.control, Env::acquire)};
      const core::RingWord word{Env::load(cells.ring, Env::acquire)};
      std::fprintf(out, "breaker %u: control %016lx, ring %016lx, hint %lu, first %lu, lives %lu\n", i, control.bits,
                   word.bits, Env::load(cells.hint, Env::relaxed), Env::load(cells.first, Env::relaxed),
                   Env::load(cells.incarnation, Env::relaxed));
      if (const auto* record = view.record(control.record())) {
        std::fprintf(out, "  record %u, owner %016lx:", control.record(), Env::load(record->owner, Env::relaxed));
        for (const auto& w : record->words)
          std::fprintf(out, " %lx", Env::load(w, Env::relaxed));
      }
      if (const auto* slots = view.ring(word)) {
        std::fprintf(out, "\n  slots:");
        for (std::uint32_t n = 0; n < word.capacity(); ++n)
          std::fprintf(out, " %016lx", Env::load(slots[n], Env::relaxed));
      }
      std::fprintf(out, "\n");
    }
    for (std::uint32_t i = 1; i < segment_->geometry().records; ++i) {
      const core::OwnerWord owner{Env::load(view.record(i)->owner, Env::acquire)};
      if (owner.free() || owner.published()) continue;
      std::fprintf(out, "record %u is owned by incarnation %u of number %u%s\n", i, owner.incarnation(),
                   owner.participant(),
                   segment_->presence().owns(owner)      ? ", the parent"
                   : segment_->presence().is_dead(owner) ? ", who is dead"
                                                         : "");
    }
  }

 private:
  using SteadyTime = std::chrono::steady_clock::time_point;
  struct Worker {
    Child child{};
    bool stopped = false;
    bool zombie = false;
    SteadyTime stopped_at{};
    std::uint64_t stopped_until = 0;  ///< in acts
    std::uint64_t steps = 0;          ///< when it was last seen to get further
    SteadyTime seen = std::chrono::steady_clock::now();
  };

  static TortureStage stage_of(const TortureOptions& options) {
    TortureStage stage{.options = tortured_options(options.breakers), .breakers = options.breakers};
    stage.options.directory = options.directory;
    stage.options.name = options.name ? options.name : unique_segment_name();
    return stage;
  }
  [[nodiscard]] Ledger& ledger() const { return stage_.ledger(); }
  [[nodiscard]] std::size_t parent_books() const { return ledger().books.size() - 2; }
  [[nodiscard]] Books& books_of(std::uint32_t number) const { return ledger().books.at(2 * number); }
  [[nodiscard]] Books& books_of_child(std::uint32_t number) const { return ledger().books.at(2 * number + 1); }

  void require(bool holds, const std::string& what) {
    ++totals_.checks;
    if (!holds) failures_.push_back("act " + std::to_string(acts_) + ": " + what);
  }
  [[nodiscard]] Report report() {
    return [this](bool holds, const std::string& what) { require(holds, what); };
  }
  /// What a check of the tests' own finds.
  template <class Check>
  void require_sound(const std::string& what, Check check) {
    ::testing::TestPartResultArray found;
    {
      const ::testing::ScopedFakeTestPartResultReporter intercept(
          ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &found);
      check();
    }
    std::string text = what;
    for (int i = 0; i < found.size(); ++i)
      text.append("\n  ").append(found.GetTestPartResult(i).message());
    require(found.size() == 0, text);
  }

  // ---- what happens to the processes

  Worker start_worker(std::uint32_t number) {
    ++totals_.starts;
    // As a fork that inherits the mapping, or as a new process would attach.
    Child child = fork_child([this, number, seed = random_(), inherit = random_() % 2 == 0] {
      ::setpgid(0, 0);
      Books& books = books_of(number);
      auto segment = inherit ? Result<Segment>(segment_.segment()) : Segment::attach(stage_.options);
      if (!segment) return 1;
      TortureWorker worker(stage_, *std::move(segment), 2 * std::size_t{number}, seed, Company::none);
      while (!ledger().enough.load(std::memory_order_relaxed) && !books.complained.load(std::memory_order_relaxed))
        worker.step();
      return books.complained.load() ? 1 : 0;
    });
    ::setpgid(child.pid(), child.pid());
    return {.child = std::move(child), .steps = steps_of(number)};
  }

  /// With all that it has forked. `leaves_zombie`: nobody reaps it for a while.
  void kill(std::uint32_t number, bool leaves_zombie) {
    ++totals_.kills;
    Worker& worker = workers_[number];
    signal(worker, SIGKILL);
    bury(number, leaves_zombie);
  }
  void bury(std::uint32_t number, bool leaves_zombie) {
    Worker& worker = workers_[number];
    require(worker.child.ends_within(), "a killed worker does not end");
    // Its own child has to be reaped, or it might be on its way out still when we look who is alive.
    const bool forking = (books_of(number).deed.load() & 0xFFU) == static_cast<std::uint64_t>(Deed::fork);
    if (leaves_zombie && !forking) {
      ++totals_.zombies;
      zombies_.push_back(std::move(worker.child));
      reap_zombies(3);
    } else {
      reap(worker.child);
    }
    books_of_child(number).pid.store(0);
    ledger().bury(books_of_child(number));
    ledger().bury(books_of(number));
  }
  void reap(Child& child) {
    const pid_t group = child.pid();
    const Ended ended = child.wait();
    require(ended == killed_by(SIGKILL), "a worker had ended by itself");
    require(wait_until([group] { return ::waitpid(-group, nullptr, WNOHANG) < 0; }), "a killed child does not end");
  }
  void reap_zombies(std::size_t keep) {
    while (zombies_.size() > keep) {
      reap(zombies_.front());
      zombies_.erase(zombies_.begin());
    }
  }

  /// To it and all that it has forked; to nobody where it has been reaped (0 would be this process's own group).
  static void signal(const Worker& worker, int signal) {
    if (worker.child.pid() > 0) ::kill(-worker.child.pid(), signal);
  }
  void stop(Worker& worker, std::uint64_t acts) {
    ++totals_.stops;
    signal(worker, SIGSTOP);
    worker.stopped = true;
    worker.stopped_at = std::chrono::steady_clock::now();
    worker.stopped_until = acts_ + acts;
  }
  void go_on(Worker& worker) {
    signal(worker, SIGCONT);
    const SteadyTime now = std::chrono::steady_clock::now();
    if (now - worker.stopped_at > kFollowersPatience / 2) ++long_stops_;
    worker.stopped = false;
    worker.seen = now;
  }
  [[nodiscard]] std::uint32_t stopped() const {
    std::uint32_t count = 0;
    for (const Worker& worker : workers_)
      count += worker.stopped ? 1U : 0U;
    return count;
  }

  /// As a machine without memory does it, and a service manager afterwards.
  void kill_all() {
    ++totals_.kills_of_all;
    for (Worker& worker : workers_)
      signal(worker, SIGKILL);
    for (std::uint32_t i = 0; i < options_.workers; ++i) {
      ++totals_.kills;
      bury(i, i == 0);
    }
    check_complaints();
    look_at_all();
    look_at_the_whole_segment();
    for (std::uint32_t i = 0; i < options_.workers; ++i)
      workers_[i] = start_worker(i);
  }

  /// Everybody stands still wherever they were, some for a long time already.
  void look_at_all_in_quiet() {
    ++totals_.quiet;
    for (Worker& worker : workers_) {
      signal(worker, SIGSTOP);
      if (!worker.stopped) worker.stopped_at = std::chrono::steady_clock::now();
    }
    for (std::uint32_t i = 0; i < options_.workers; ++i) {
      if (!workers_[i].stopped) ++totals_.stops;
      require(wait_until(
                  [&] { return stands_still(workers_[i].child.pid()) && stands_still(books_of_child(i).pid.load()); }),
              "a stopped worker does not stop");
    }
    look_at_all();
    for (Worker& worker : workers_) {
      if (!worker.stopped) go_on(worker);
    }
  }
  /// Stopped, or there is none (any more).
  [[nodiscard]] static bool stands_still(pid_t pid) {
    if (pid == 0) return true;
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const std::size_t name_end = text.rfind(')');
    if (name_end == std::string::npos || name_end + 2 >= text.size()) return true;
    return std::string_view("TtZX").find(text[name_end + 2]) != std::string_view::npos;
  }

  // ---- what must hold

  /// Somebody gets further, so that what is done falls into the midst of operations; and so does each that runs.
  void await_progress() {
    const std::uint64_t more = 100 + random_() % 2'000;
    std::uint64_t before = 0;
    for (std::uint32_t i = 0; i < options_.workers; ++i)
      before += steps_of(i);
    require(wait_until([&] {
              std::uint64_t now = 0;
              for (std::uint32_t i = 0; i < options_.workers; ++i)
                now += steps_of(i);
              return now >= before + more || any_complaint();
            }),
            "nobody gets anywhere");
    const SteadyTime now = std::chrono::steady_clock::now();
    for (std::uint32_t i = 0; i < options_.workers; ++i) {
      Worker& worker = workers_[i];
      const std::uint64_t steps = steps_of(i);
      if (steps != worker.steps || worker.stopped) worker.seen = now;
      worker.steps = steps;
      require(now - worker.seen < kWatchdog,
              "worker " + std::to_string(i) + " is stuck at deed " + std::to_string(books_of(i).deed.load()));
    }
  }
  [[nodiscard]] std::uint64_t steps_of(std::uint32_t number) const {
    return books_of(number).steps.load() + books_of_child(number).steps.load();
  }
  [[nodiscard]] bool any_complaint() const {
    return std::any_of(ledger().books.begin(), ledger().books.end(),
                       [](const Books& books) { return books.complained.load(); });
  }
  void check_complaints() {
    for (Books& books : ledger().books) {
      if (books.complained.load()) require(false, books.complaint.data());
    }
  }
  void check_books(std::uint32_t number) { check_conservation(stage_, number, observer_->breaker(number), report()); }

  void look_at_all() {
    for (std::uint32_t i = 0; i < stage_.breakers; ++i) {
      check_books(i);
      const std::string which = "the ring of breaker " + std::to_string(i);
      require_sound(which, [&] { expect_ring_unbroken(segment_.segment(), i); });
      lead_through_states(*observer_, stage_.clock, i, report());
      require_sound(which, [&] { expect_ring_unbroken(segment_.segment(), i); });
      check_books(i);
    }
  }

  /// When nobody else is alive: no place and no record is lost, and nothing has grown.
  void look_at_the_whole_segment() {
    look_at_the_group();
    require_sound("the records",
                  [this] { expect_records_accounted(segment_.segment(), segment_->geometry().records); });
    const std::size_t descriptors = open_descriptors();
    const std::uint64_t bytes = memory_of_segment();
    const std::size_t pages = private_pages();
    if (descriptors_ == 0) {
      descriptors_ = descriptors;
      bytes_ = bytes;
      pages_ = pages;
    }
    require(pages <= pages_ + kSlackPages, "the parent's memory grows");
    require(descriptors == descriptors_,
            "the parent has " + std::to_string(descriptors) + " descriptors open, not " + std::to_string(descriptors_));
    require(bytes == bytes_, "the segment and what lies beside it takes " + std::to_string(bytes) + " bytes, not " +
                                 std::to_string(bytes_));
  }
  /// Every place that the group may have can be had.
  void look_at_the_group() {
    const auto& group = observer_->group();
    for (std::uint32_t i = 0; i < kTorturedNames; ++i) {
      let_go("m" + std::to_string(i));
      let_go("fresh-" + std::to_string(i));
    }
    stage_.clock.advance(Millis{100});
    ++fresh_;
    for (std::uint32_t i = 0; i < kTorturedGroupLimit; ++i) {
      const std::string name = "fresh-" + std::to_string((fresh_ * kTorturedGroupLimit + i) % kTorturedNames);
      auto member = group.breaker(name);
      const std::string error = member ? "" : member.error().message;
      require(member.has_value(), "a group of idle breakers has no room: " + error);
      if (!member) return;
      const AdmitResult entry = member->admit();
      require(member->record_outcome(entry.token, Outcome::success).status == RecordStatus::counted,
              "an outcome of a new breaker of the group does not count");
    }
    require(group.places() == kTorturedGroupLimit, "the group has lost a place");
    const auto beyond = group.breaker("beyond");
    require(!beyond && beyond.error().code == Errc::group_full, "the group has more than its limit");
  }
  /// The breaker of that name, if there is one: Closed and automatic from now on, so that it becomes idle.
  void let_go(const std::string& name) {
    core::BreakerCell<core::StdEnv> cell;
    const core::Registry<core::StdEnv> registry(segment_->view(), segment_->presence());
    if (registry.find("g:" + name, cell) != Errc::ok) return;
    auto member = observer_->group().breaker(name);
    if (!member) return;
    require(member->set_mode({}).error == Errc::ok, "a mode in the group cannot be set");
    require(member->force_state(CircuitState::closed).error == Errc::ok, "a state in the group cannot be forced");
  }

  [[nodiscard]] std::uint64_t memory_of_segment() const {
    std::uint64_t bytes = 0;
    DIR* directory = ::opendir(stage_.options.directory.c_str());
    if (directory == nullptr) return 0;
    while (const dirent* entry = ::readdir(directory)) {  // NOLINT(concurrency-mt-unsafe): a stream of our own
      if (std::string_view(entry->d_name).find(*stage_.options.name) == std::string_view::npos) continue;
      struct stat status {};
      if (::stat((stage_.options.directory + "/" + entry->d_name).c_str(), &status) == 0) {
        bytes += static_cast<std::uint64_t>(status.st_blocks) * 512;
      }
    }
    ::closedir(directory);
    return bytes;
  }
  /// Over all places: how many lives have begun in them.
  [[nodiscard]] std::uint64_t incarnations() const {
    std::uint64_t total = 0;
    for (std::uint32_t i = 0; i < segment_->geometry().breakers; ++i)
      total += core::StdEnv::load(segment_->view().breaker(i)->incarnation, core::StdEnv::relaxed);
    return total;
  }

  /// One last event of each breaker, so that the follower knows of all it has missed.
  void check_follower() {
    FollowerBooks& found = ledger().follower;
    std::vector<Counters> made;
    for (std::uint32_t i = 0; i < stage_.breakers; ++i) {
      observer_->force(i, CircuitState::closed);
      const core::BreakerCell<core::StdEnv> cell = cell_of(i);
      core::BreakerCell<core::StdEnv>::Control control;
      core::Record record;
      require(cell.load(control, record), "a record that does not decode");
      made.push_back(observer_->breaker(i).counters().counters);
      found.final.at(i).store(record.journaled);
    }
    const Ended ended = follower_.wait();
    require(ended == exited(0), "the follower did not hear the last event of each breaker");
    check_complaints();
    const std::uint64_t lost = found.lost.load();
    require(found.gaps.load() <= lost, "the follower has missed " + std::to_string(found.gaps.load()) +
                                           " and counted only " + std::to_string(lost));
    if (found.overruns.load() == 0) {
      // Who was killed: one. Who stood still for so long that nobody waited: one, and the one that took its place.
      const std::uint64_t explained = ledger().killed_where_they_write() + 2 * long_stops_;
      require(lost <= explained, "lost " + std::to_string(lost) + " events, and the dead and the stopped explain " +
                                     std::to_string(explained));
    }
    for (std::uint32_t i = 0; i < stage_.breakers; ++i) {
      std::uint64_t missing = 0;
      for (std::size_t reason = 0; reason < kTransitionReasons; ++reason) {
        const std::uint64_t heard = found.transitions.at(i).at(reason).load();
        require(heard <= made[i].transitions.at(reason), "more transitions were heard of than made");
        missing += made[i].transitions.at(reason) - std::min(heard, made[i].transitions.at(reason));
      }
      require(missing <= found.gaps.load(), "transitions of breaker " + std::to_string(i) + " went unheard");
    }
  }
  [[nodiscard]] core::BreakerCell<core::StdEnv> cell_of(std::uint32_t number) {
    core::BreakerCell<core::StdEnv> cell;
    const core::Registry<core::StdEnv> registry(segment_->view(), segment_->presence());
    require(registry.find(tortured_config(number).name, cell) == Errc::ok, "a breaker is not found");
    return cell;
  }

  TortureOptions options_;
  std::mt19937_64 random_;
  TortureStage stage_;
  TestSegment segment_;
  std::unique_ptr<TortureWorker> observer_;
  Child follower_{};
  std::vector<Worker> workers_;
  std::vector<Child> zombies_;
  std::vector<std::string> failures_;
  TortureTotals totals_{};
  std::uint64_t acts_ = 0;
  std::uint64_t incarnations_ = 0;
  std::uint64_t fresh_ = 0;
  std::uint64_t long_stops_ = 0;
  std::size_t descriptors_ = 0;
  std::uint64_t bytes_ = 0;
  std::size_t pages_ = 0;
};

}  // namespace shmcb::test
