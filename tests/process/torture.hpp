// SPDX-License-Identifier: BSD-3-Clause
// A worker that does everything to a few breakers and a group at random and keeps books on what it was answered, and
// what must hold whatever it and others do: for processes that are killed, stopped and started again, and for threads
// under ThreadSanitizer. What a worker does not find right it writes into its books; nothing here is a test by itself.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "process/shared_clock.hpp"
#include "shmcb/breaker_group.hpp"
#include "shmcb/segment_observer.hpp"
#include "shmcb/shm_storage.hpp"
#include "support/processes.hpp"
#include "support/random_input.hpp"

namespace shmcb::test {

inline constexpr std::uint32_t kMaxTortured = 12;  ///< single breakers
inline constexpr std::uint32_t kMaxTorturers = 32;
inline constexpr std::uint32_t kTorturedWindow = 20;
inline constexpr std::uint32_t kTorturedGroupLimit = 3;
inline constexpr std::uint32_t kTorturedNames = 8;  ///< of the group: more than it may have at one time
inline constexpr std::uint32_t kCounted = 0;  ///< the breaker whose probes never come back by time: they are counted
inline constexpr Millis kNoLease{std::int64_t{1} << 36};

/// Each breaker has other rules. `variant` changes what may be replaced at any time.
[[nodiscard]] inline BreakerConfig tortured_config(std::uint32_t number, std::uint32_t variant = 0) {
  BreakerConfig config{
      .name = "tortured-" + std::to_string(number),
      .failure_threshold = {.failures = 6, .window = kTorturedWindow - 5 * (variant / 2 % 2), .within = Millis{5'000}},
      .cooldown = {.base = Millis{20 - 10 * (variant % 2)}},
      .success_threshold = 2,
      .probe_limit = 2,
      .probe_timeout = Millis{30}};
  const SlowCalls slow{.slower_than = Millis{3}, .percent = 50, .minimum_calls = 5, .reopen_on_slow_probe = true};
  switch (number % 6) {
    case kCounted:
      config.success_threshold = 4;
      config.probe_limit = 3;
      config.probe_timeout = kNoLease;
      break;
    case 1:
      config.failure_threshold.failures = 8;
      config.failure_rate = {.percent = 40, .minimum_calls = 10};
      config.cooldown.multiplier = 2;
      config.cooldown.maximum = Millis{80};
      config.cooldown.jitter = 50;
      config.cooldown.forget_after = Millis{200};
      break;
    case 2:
      config.failure_threshold.failures = 0;
      config.consecutive_failures = {.failures = 4};
      config.ramp_up = {.duration = Millis{20}, .start_percent = 10};
      config.reclaim_dead_probes = true;
      break;
    case 3:
      config.failure_threshold.failures = 0;
      config.slow_calls = slow;
      break;
    case 4: break;
    default:
      config.failure_rate = {.percent = 50, .minimum_calls = 8};
      config.consecutive_failures = {.failures = 5};
      config.slow_calls = slow;
      config.cooldown.multiplier = 3;
      config.ramp_up = {.duration = Millis{10}, .start_percent = 30};
      config.reclaim_dead_probes = true;
      break;
  }
  return config;
}
/// The others are never disabled, so that nothing they are told goes uncounted.
[[nodiscard]] constexpr bool is_ever_disabled(std::uint32_t number) noexcept {
  return number % 4 == 3;
}

[[nodiscard]] inline GroupConfig tortured_group() {
  return {.name = "g",
          .breaker = {.failure_threshold = {.failures = 3, .window = 10, .within = Millis{30}},
                      .cooldown = {.base = Millis{10}},
                      .probe_timeout = Millis{20}},
          .limit = kTorturedGroupLimit,
          .idle_after = Millis{40}};
}

/// The journal is large enough for whoever follows it to be off the processor for a while.
[[nodiscard]] inline SegmentOptions tortured_options(std::uint32_t breakers) {
  return {.breakers = breakers + kTorturedGroupLimit + 2,
          .ring_slots = 1'024,
          .participants = 16,
          .journal_entries = 1U << 17U,
          .epoch = SharedClock::kStart};
}

// ---- the books
// --------------------------------------------------------------------------------------------------------------------

enum class Deed : std::uint8_t {
  none,
  admit,
  record,
  abandon,
  force,
  mode,
  replace,
  look,
  open,
  group,
  attach,
  fork,
  follow
};
inline constexpr std::size_t kDeeds = 13;
inline constexpr std::array<const char*, kDeeds> kDeedNames{
    "none",  "admits", "records",          "abandons",    "forces", "modes",  "replacements",
    "looks", "opens",  "group operations", "attachments", "forks",  "follows"};

/// What one process was answered by one breaker.
enum Answer : std::size_t {
  kEntered,          ///< outcomes of Allowed attempts that were counted
  kEnteredFailures,  ///< the failures among them
  kTooLate,          ///< outcomes of Allowed attempts that were stale; some may have a slot all the same
  kUncounted,        ///< reports that were ignored or stale
  kVerdicts,         ///< of probes, that were counted
  kReports,          ///< all reports of what had been admitted
  kAbandoned,
  kProbes,      ///< admitted
  kTurnedAway,  ///< rejections
  kAside,       ///< admitted by a mode: may count as turned away
  kTransitions,
  kAnswers = kTransitions + kTransitionReasons,
};
using Answers64 = std::array<std::uint64_t, kAnswers>;

/// The books of one process. It writes them in this order: what it is about to do, then (when that is done) what it was
/// answered, then that it does nothing. So whoever reads the deed first and the answers afterwards finds each deed in
/// one of the two, and one who was killed has at most one deed that is in neither.
struct alignas(64) Books {
  using Count = std::atomic<std::uint64_t>;
  Count deed{0};  ///< {breaker 63..8, Deed 7..0}; kMaxTortured is the group
  Count steps{0};
  Count checks{0};
  std::array<Count, kDeeds> deeds{};
  std::array<std::array<Count, kAnswers>, kMaxTortured + 1> answers{};
  std::atomic<pid_t> pid{0};  ///< of a worker's own child, while it has one
  std::atomic<bool> complained{false};
  std::array<char, 240> complaint{};

  void begin(Deed what, std::uint32_t breaker) noexcept {
    deed.store((std::uint64_t{breaker} << 8U) | static_cast<std::uint64_t>(what));
  }
  void end(Deed what) noexcept {
    bump(deeds[static_cast<std::size_t>(what)]);
    deed.store(0);
  }
  static void bump(Count& count) noexcept { count.store(count.load(std::memory_order_relaxed) + 1); }  // one writer
  void complain(const std::string& what) noexcept {
    if (complained.load()) return;
    std::copy_n(what.begin(), std::min(what.size(), complaint.size() - 1), complaint.begin());
    complained.store(true);
  }
};

/// What the follower of the journal found, for the breakers that are no group's.
struct FollowerBooks {
  std::atomic<bool> ready{false};
  std::atomic<std::uint64_t> events{0};
  std::atomic<std::uint64_t> lost{0};
  std::atomic<std::uint64_t> gaps{0};
  std::atomic<std::uint64_t> overruns{0};  ///< how often it may have been overtaken by a whole journal
  std::array<std::array<std::atomic<std::uint64_t>, kTransitionReasons>, kMaxTortured> transitions{};
  std::array<std::atomic<std::uint64_t>, kMaxTortured> last{};   ///< number of the newest event
  std::array<std::atomic<std::uint64_t>, kMaxTortured> final{};  ///< not 0: the last there will be
};

struct Ledger {
  std::array<Books, 2 * kMaxTorturers + 2> books{};  ///< of each worker and of its child; then the parent's
  /// Deeds in which somebody was killed, by breaker (the last one: the group) and deed.
  std::array<std::array<std::atomic<std::uint64_t>, kDeeds>, kMaxTortured + 1> cut_short{};
  std::atomic<std::uint64_t> live_probes{0};  ///< of kCounted: {generation 63..8, how many are out at least 7..0}
  std::atomic<bool> enough{false};
  FollowerBooks follower{};

  template <class Which>
  [[nodiscard]] std::uint64_t killed_in(Which which) const noexcept {
    std::uint64_t total = 0;
    for (const auto& of_breaker : cut_short) {
      for (std::size_t deed = 0; deed < kDeeds; ++deed)
        total += which(deed) ? of_breaker.at(deed).load() : 0;
    }
    return total;
  }
  /// Somebody who was killed: what it was doing. Its books go on with its successor.
  void bury(Books& dead) noexcept {
    const std::uint64_t deed = dead.deed.load();
    if (deed == 0) return;
    cut_short.at(deed >> 8U).at(deed & 0xFFU).fetch_add(1);
    dead.deed.store(0);
  }
  [[nodiscard]] std::uint64_t killed_in_the_midst() const noexcept {
    return killed_in([](std::size_t) { return true; });
  }
  /// Of these each may have taken one entry of the journal along.
  [[nodiscard]] std::uint64_t killed_where_they_write() const noexcept {
    return killed_in([](std::size_t deed) {
      const auto what = static_cast<Deed>(deed);
      return what != Deed::look && what != Deed::fork && what != Deed::follow;
    });
  }
};

/// What all workers share.
struct TortureStage {
  SegmentOptions options{};
  std::uint32_t breakers = 4;
  SharedClock clock{};
  std::shared_ptr<SharedArea<Ledger>> area = std::make_shared<SharedArea<Ledger>>();
  [[nodiscard]] Ledger& ledger() const { return **area; }
};

// ---- the worker
// --------------------------------------------------------------------------------------------------------------------

/// Memory of this process that it shares with nobody.
[[nodiscard]] inline std::size_t private_pages() {
  std::ifstream statm("/proc/self/statm");
  std::size_t size = 0;
  std::size_t resident = 0;
  std::size_t shared = 0;
  statm >> size >> resident >> shared;
  return resident - shared;
}
inline constexpr std::size_t kSlackPages = 1'024;  // of the allocator's

/// Who else is in a worker's process.
enum class Company : std::uint8_t {
  none,      ///< it may attach again and fork, and its descriptors and memory are its own
  threads,   ///< it may attach again
  watchers,  ///< neither: the spare records of its process are to be accounted for
};

/// Performs operations one by one, and finds what must hold after each.
class TortureWorker {
 public:
  using Breaker = ShmStorage<SharedClock>;
  using Group = BreakerGroup<SharedClock>;

  TortureWorker(const TortureStage& stage, Segment segment, std::size_t books, std::uint64_t seed, Company company)
      : stage_(stage),
        segment_(std::move(segment)),
        books_(&stage.ledger().books.at(books)),
        company_(company),
        random_(static_cast<std::minstd_rand::result_type>(seed)) {
    for (std::uint32_t i = 0; i < stage_.breakers; ++i)
      breakers_.push_back(open(i, tortured_config(i), OnMismatch::adopt));
    reopen_group();
  }

  void step() {
    const std::uint32_t number = below(stage_.breakers);
    const std::uint32_t choice = below(10'000);
    if (choice < 3'800) {
      (void)admit(number, below(kHeld));
    } else if (choice < 8'400) {
      record_any();
    } else if (choice < 8'900) {
      look(number);
    } else if (choice < 9'200) {
      stage_.clock.advance(Micros{below(4'000)});
    } else if (choice < 9'240) {
      force(number, static_cast<CircuitState>(below(3)));
    } else if (choice < 9'300) {
      set_any_mode(number);
    } else if (choice < 9'340) {
      replace(number);
    } else if (choice < 9'360) {
      reopen(number);
    } else if (choice < 9'980) {
      act_in_group();
    } else if (choice < 9'990) {
      if (company_ != Company::watchers) attach_again();
    } else if (choice < 9'992) {
      if (company_ == Company::none) fork_within();
    } else {
      follow_a_moment();
    }
    Books::bump(books_->steps);
  }

  [[nodiscard]] bool complained() const { return books_->complained.load(); }
  [[nodiscard]] std::string complaint() const { return complained() ? books_->complaint.data() : ""; }
  [[nodiscard]] Breaker& breaker(std::uint32_t number) { return breakers_.at(number); }
  [[nodiscard]] const Group& group() const { return *group_; }
  [[nodiscard]] const Segment& segment() const { return segment_; }

  AdmitResult admit(std::uint32_t number, std::size_t hold) {
    const Doing doing(*books_, Deed::admit, number);
    const AdmitResult entry = breakers_[number].admit();
    if (!require(entry.error == Errc::ok, "admit", entry.error)) return entry;
    const bool aside = entry.token.admission == Admission::rejected && entry.admission == Admission::allowed;
    if (entry.admission == Admission::probe) note(number, kProbes);
    if (entry.admission == Admission::rejected) note(number, kTurnedAway);
    if (aside) note(number, kAside);
    note(number, entry.transition);
    if (entry.admission == Admission::probe && number == kCounted) one_probe_more(entry.token);
    held_.at(hold) = {.breaker = number, .token = entry.token, .known = true};
    return entry;
  }
  /// Of the attempt that is held there, on its breaker.
  RecordResult record(std::size_t hold, Outcome outcome, CompletedAt completed_at = {}) {
    return record_held(held_.at(hold), outcome, completed_at, false);
  }
  void force(std::uint32_t number, CircuitState state) {
    const Doing doing(*books_, Deed::force, number);
    const Note note_of_it{.who = below(2) == 0 ? "torture" : "", .why = "because"};
    const ForceResult forced = breakers_[number].force_state(state, note_of_it);
    if (require(forced.error == Errc::ok, "force_state", forced.error)) note(number, forced.transition);
  }
  void set_mode(std::uint32_t number, const ModeRequest& request) {
    const Doing doing(*books_, Deed::mode, number);
    const ModeResult set = breakers_[number].set_mode(request);
    require(set.error == Errc::ok, "set_mode", set.error);
  }

 private:
  struct Attempt {
    std::uint32_t breaker = 0;
    Token token{};
    bool known = false;
    bool reported = false;
  };
  /// While it lives a deed is in the books as being done.
  class Doing {
   public:
    Doing(Books& books, Deed what, std::uint32_t breaker) : books_(books), what_(what) { books.begin(what, breaker); }
    ~Doing() { books_.end(what_); }
    Doing(const Doing&) = delete;
    Doing& operator=(const Doing&) = delete;

   private:
    Books& books_;
    Deed what_;
  };

  // ---- single breakers

  [[nodiscard]] Breaker open(std::uint32_t number, const BreakerConfig& config, OnMismatch on_mismatch) {
    auto opened = Breaker::open(segment_, config, on_mismatch, stage_.clock);
    // So many changes within one Closed period are refused by design.
    if (!opened && opened.error().code == Errc::version_exhausted) return breakers_.at(number);
    if (!opened) throw std::runtime_error(opened.error().message);
    return *std::move(opened);
  }
  void reopen(std::uint32_t number) {
    const Doing doing(*books_, Deed::open, number);
    breakers_[number] = open(number, tortured_config(number), OnMismatch::adopt);
  }
  void replace(std::uint32_t number) {
    const Doing doing(*books_, Deed::replace, number);
    breakers_[number] = open(number, tortured_config(number, below(4)), OnMismatch::replace);
  }

  /// Of an attempt admitted whenever: in order, late, once more, or of something else altogether.
  void record_any() {
    const std::size_t hold = below(kHeld);
    Attempt& attempt = held_.at(hold);
    if (!attempt.known) return;
    const std::uint32_t choice = below(1'000);
    const Outcome outcome = choice < 250 ? Outcome::failure : choice < 960 ? Outcome::success : Outcome::ignored;
    if (choice % 50 == 0) return record_wrong(attempt, outcome);
    if (choice % 50 == 1) {
      (void)record_held(attempt, Outcome::ignored, {}, true);
      return;
    }
    CompletedAt completed_at;
    if (choice % 50 < 6) completed_at = stage_.clock.now() - Millis{below(60)};
    (void)record(hold, outcome, completed_at);
  }
  RecordResult record_held(Attempt& attempt, Outcome outcome, CompletedAt completed_at, bool drop) {
    if (attempt.token.admission == Admission::probe && attempt.breaker == kCounted && !attempt.reported) {
      one_probe_less(attempt.token);
    }
    attempt.reported = true;
    return record(attempt.breaker, attempt.token, outcome, completed_at, drop);
  }
  /// A token of another breaker, or of none. Only not one that could be a probe of the breaker that counts them.
  void record_wrong(const Attempt& attempt, Outcome outcome) {
    Token token = attempt.token;
    std::uint32_t number = below(stage_.breakers);
    if (below(2) == 0) {
      number = attempt.breaker;
      token.period += below(3) - 1U;
    }
    if (token.admission == Admission::probe && number == kCounted) return;
    (void)record(number, token, outcome, {}, false);
  }
  RecordResult record(std::uint32_t number, Token token, Outcome outcome, CompletedAt completed_at, bool drop) {
    const Deed what = drop ? Deed::abandon : Deed::record;
    const Doing doing(*books_, what, number);
    Breaker& breaker = breakers_[number];
    const RecordResult r = drop ? breaker.abandon(token) : breaker.record_outcome(token, outcome, completed_at);
    if (!require(r.error == Errc::ok, "record_outcome", r.error)) return r;
    require(!r.transition || r.transition->reason != TransitionReason::none, "a transition without a reason");
    note(number, r.transition);
    if (token.admission == Admission::rejected) return r;
    note(number, kReports);
    if (drop) note(number, kAbandoned);
    const bool allowed = token.admission == Admission::allowed;
    switch (r.status) {
      case RecordStatus::counted:
        note(number, allowed ? kEntered : kVerdicts);
        if (allowed && outcome == Outcome::failure) note(number, kEnteredFailures);
        break;
      case RecordStatus::stale:
        if (allowed) note(number, kTooLate);
        note(number, kUncounted);
        break;
      case RecordStatus::ignored: note(number, kUncounted); break;
      case RecordStatus::rejected: require(false, "an admitted call counted as rejected"); break;
    }
    return r;
  }

  void set_any_mode(std::uint32_t number) {
    constexpr std::array kOthers{Mode::forced_open, Mode::forced_closed, Mode::observe, Mode::disabled};
    ModeRequest request;
    if (below(2) == 0) request.mode = kOthers.at(below(is_ever_disabled(number) ? 4 : 3));
    if (request.mode != Mode::automatic && below(4) != 0) request.expires_after = Millis{1 + below(20)};
    set_mode(number, request);
  }

  void look(std::uint32_t number) {
    const Doing doing(*books_, Deed::look, number);
    const Breaker& breaker = breakers_[number];
    const SnapshotResult seen = breaker.snapshot();
    require(seen.error == Errc::ok, "snapshot", seen.error);
    const std::uint64_t in_window = seen.record.successes + seen.record.failures;
    require(seen.record.state == CircuitState::half_open || in_window <= kTorturedWindow, "too much in the window");
    require(breaker.peek().error == Errc::ok, "peek");
    require(breaker.counters().error == Errc::ok, "counters");
    core::BreakerCell<core::StdEnv> cell;
    const Errc found = core::Registry<core::StdEnv>(segment_.view(), segment_.presence()).find(breaker.name(), cell);
    if (!require(found == Errc::ok, "find", found)) return;
    core::BreakerCell<core::StdEnv>::Control control;
    core::Record record;
    if (!require(cell.load(control, record), "a record that does not decode")) return;
    require(record.breaker.probes.count <= record.settings.probe_limit, "more probes out than the limit");
  }

  // ---- probes that are out

  [[nodiscard]] static std::uint64_t generation_of(Token probe) noexcept {
    return probe.period >> core::StdWidths::version;
  }
  /// After it was admitted, so that the number is never too large; those of an earlier period are out no more.
  void one_probe_more(Token probe) {
    auto& word = stage_.ledger().live_probes;
    const std::uint64_t generation = generation_of(probe);
    for (std::uint64_t seen = word.load();;) {
      constexpr std::uint64_t kHalf = std::uint64_t{1} << (core::StdWidths::generation - 1);
      const std::uint64_t ahead = (generation - (seen >> 8U)) & (2 * kHalf - 1);
      if (seen != 0 && ahead >= kHalf) return;  // a later period has begun
      const std::uint64_t count = ahead == 0 ? (seen & 0xFFU) + 1 : 1;
      if (!word.compare_exchange_weak(seen, (generation << 8U) | count)) continue;
      require(count <= tortured_config(kCounted).probe_limit, "more probes out over all processes than the limit");
      return;
    }
  }
  /// Before its outcome is recorded, for the same reason.
  void one_probe_less(Token probe) {
    auto& word = stage_.ledger().live_probes;
    for (std::uint64_t seen = word.load(); seen >> 8U == generation_of(probe) && (seen & 0xFFU) != 0;) {
      if (word.compare_exchange_weak(seen, seen - 1)) return;
    }
  }

  // ---- the group

  void reopen_group() {
    auto opened = Group::open(segment_, tortured_group(), stage_.clock);
    if (!opened) throw std::runtime_error(opened.error().message);
    group_ = *std::move(opened);
  }
  /// A group without room may say so, and a name that is recycled over and over that it is busy.
  bool allowed_in_group(Errc error, const char* what) {
    const bool full = error == Errc::group_full || error == Errc::busy || error == Errc::registry_full;
    return require(error == Errc::ok || full, what, error) && error == Errc::ok;
  }
  void act_in_group() {
    const Doing doing(*books_, Deed::group, kMaxTortured);
    const std::size_t at = below(kMembers);
    std::optional<Group::Member>& member = members_.at(at);
    Token& token = tokens_.at(at);
    const std::uint32_t choice = below(100);
    if (!member || choice < 10) {
      auto found = group_->breaker("m" + std::to_string(below(kTorturedNames)));
      if (allowed_in_group(found ? Errc::ok : found.error().code, "breaker of a group"))
        member.emplace(*std::move(found));
    } else if (choice < 50) {
      const AdmitResult entry = member->admit();
      if (allowed_in_group(entry.error, "admit in a group")) token = entry.token;
    } else if (choice < 90) {
      const Outcome outcome = choice < 60 ? Outcome::failure : Outcome::success;
      allowed_in_group(member->record_outcome(tokens_.at(below(kMembers)), outcome).error, "record in a group");
    } else if (choice < 92) {
      allowed_in_group(member->abandon(token).error, "abandon in a group");
    } else if (choice < 97) {
      const SnapshotResult seen = member->snapshot();
      allowed_in_group(seen.error, "snapshot in a group");
      allowed_in_group(member->peek().error, "peek in a group");
      allowed_in_group(member->counters().error, "counters in a group");
    } else if (choice < 99) {
      // An Open one keeps its place until somebody comes: mostly they are let go.
      const auto state = below(4) == 0 ? static_cast<CircuitState>(below(3)) : CircuitState::closed;
      allowed_in_group(member->force_state(state).error, "force in a group");
    } else {
      const ModeRequest request{.mode = static_cast<Mode>(1 + below(kModes - 1)),
                                .expires_after = Millis{1 + below(20)}};
      allowed_in_group(member->set_mode(request).error, "mode in a group");
    }
    require(group_->places() <= kTorturedGroupLimit, "a group with more places than its limit");
  }

  // ---- processes

  void attach_again() {
    const Doing doing(*books_, Deed::attach, kMaxTortured);
    auto attached = below(2) == 0 ? Segment::attach(stage_.options) : Segment::open(stage_.options);
    if (!require(attached.has_value(), "attach", attached ? Errc::ok : attached.error().code)) return;
    members_ = {};
    segment_ = *std::move(attached);
    for (std::uint32_t i = 0; i < stage_.breakers; ++i)
      breakers_[i] = open(i, tortured_config(i), OnMismatch::adopt);
    reopen_group();
    if (company_ == Company::none) find_nothing_grown();
  }
  /// After the attachment of the beginning has gone, each further one finds as much open and in use as the one before.
  void find_nothing_grown() {
    constexpr int kWarmUp = 2;
    if (attached_ == kWarmUp) {
      descriptors_ = open_descriptors();
      pages_ = private_pages();
    }
    if (++attached_ <= kWarmUp) return;
    require(open_descriptors() == descriptors_, "descriptors have been left open");
    require(private_pages() <= pages_ + kSlackPages, "memory grows");
  }

  /// A child that goes on with what its parent had, and ends in order or is killed.
  void fork_within() {
    const Doing doing(*books_, Deed::fork, kMaxTortured);
    Ledger& ledger = stage_.ledger();
    Books& of_child = *(books_ + 1);
    const std::uint64_t steps = of_child.steps.load();
    const std::uint32_t few = 1 + below(200);
    Child child = fork_child([this, &of_child, few, seed = random_()] {
      books_ = &of_child;
      books_->pid.store(::getpid());
      company_ = Company::threads;
      random_.seed(static_cast<std::minstd_rand::result_type>(seed));
      for (std::uint32_t i = 0; i < few && !complained(); ++i)
        step();
      return complained() ? 1 : 0;
    });
    const bool kills = below(2) == 0;
    const std::uint64_t until = steps + below(few);
    if (kills) {
      (void)wait_until([&] { return of_child.steps.load() >= until; });
      child.kill();
    }
    const Ended ended = child.wait();
    ledger.bury(of_child);
    of_child.pid.store(0);
    require(ended == exited(0) || (kills && ended == killed_by(SIGKILL)), "a child within did not end well");
  }

  /// A follower that comes and goes, and may be killed in its sleep.
  void follow_a_moment() {
    const Doing doing(*books_, Deed::follow, kMaxTortured);
    auto follower = SegmentObserver::open(segment_, {.patience = Millis{below(2)}});
    if (!require(follower.has_value(), "follow")) return;
    std::array<std::uint64_t, 2 * kMaxTortured> last{};
    const auto hear = [&](const SegmentEvent& event) {
      if (event.place >= stage_.breakers) return;
      require(event.number > last.at(event.place), "an event twice, or out of order");
      last.at(event.place) = event.number;
    };
    (void)follower->poll(hear);
    (void)follower->wait(Millis{1}, hear);
  }

  // ---- books

  void note(std::uint32_t number, std::size_t answer) { Books::bump(books_->answers[number][answer]); }
  void note(std::uint32_t number, const std::optional<CircuitTransition>& transition) {
    if (transition) note(number, kTransitions + static_cast<std::size_t>(transition->reason));
  }
  bool require(bool holds, const char* what, Errc error = Errc::ok) {
    Books::bump(books_->checks);
    if (!holds) {
      std::string text{what};
      if (error != Errc::ok) text.append(": ").append(to_string(error));
      books_->complain(text);
    }
    return holds;
  }
  [[nodiscard]] std::uint32_t below(std::uint32_t end) { return static_cast<std::uint32_t>((random_() >> 8U) % end); }

  static constexpr std::uint32_t kHeld = 8;
  static constexpr std::uint32_t kMembers = 3;
  TortureStage stage_;
  Segment segment_;
  Books* books_;
  Company company_;
  std::minstd_rand random_;
  std::vector<Breaker> breakers_;
  std::optional<Group> group_;
  std::array<std::optional<Group::Member>, kMembers> members_{};
  std::array<Token, kMembers> tokens_{};
  std::array<Attempt, kHeld> held_{};
  int attached_ = 0;
  std::size_t descriptors_ = 0;
  std::size_t pages_ = 0;
};

// ---- what must hold
// --------------------------------------------------------------------------------------------------------------------

/// Hears what does not hold.
using Report = std::function<void(bool holds, const std::string& what)>;

/// The books against the breaker's own counters, at any moment: what was answered before the look is in them, and they
/// hold no more than what was answered, is being done, or was being done by somebody when it was killed.
inline void check_conservation(const TortureStage& stage, std::uint32_t number, const TortureWorker::Breaker& breaker,
                               const Report& report) {
  const Ledger& ledger = stage.ledger();
  const auto answered = [&] {
    Answers64 sums{};
    for (const Books& books : ledger.books) {
      for (std::size_t i = 0; i < kAnswers; ++i)
        sums.at(i) += books.answers.at(number).at(i).load();
    }
    return sums;
  };
  const Answers64 least = answered();
  const CountersResult result = breaker.counters();
  std::array<std::uint64_t, kDeeds> open{};  // deeds whose answer is not in the books
  for (const Books& books : ledger.books) {
    const std::uint64_t deed = books.deed.load();
    if (deed != 0 && deed >> 8U == number) ++open.at(deed & 0xFFU);
  }
  const Answers64 most = answered();
  std::uint64_t any = 0;
  for (std::size_t i = 0; i < kDeeds; ++i) {
    open.at(i) += ledger.cut_short.at(number).at(i).load();
    any += open.at(i);
  }
  const std::uint64_t admits = open[static_cast<std::size_t>(Deed::admit)];
  const std::uint64_t abandons = open[static_cast<std::size_t>(Deed::abandon)];
  const std::uint64_t reports = open[static_cast<std::size_t>(Deed::record)] + abandons;
  const auto within = [&](const char* what, std::uint64_t low, std::uint64_t value, std::uint64_t high) {
    report(low <= value && value <= high, "breaker " + std::to_string(number) + ": " + what + " is " +
                                              std::to_string(value) + ", not from " + std::to_string(low) + " to " +
                                              std::to_string(high));
  };
  report(result.error == Errc::ok, "counters of breaker " + std::to_string(number));
  const Counters& c = result.counters;
  const std::uint64_t outcomes = c.successes + c.failures;
  within("the ring's progress", least[kEntered], outcomes, most[kEntered] + most[kTooLate] + reports);
  within("the number of failures", least[kEnteredFailures], c.failures,
         most[kEnteredFailures] + most[kTooLate] + reports);
  within("the number of verdicts", least[kVerdicts], c.probe_verdicts, most[kVerdicts] + reports);
  within("the number of probes", least[kProbes], c.probes, most[kProbes] + admits);
  within("the number of rejections", 0, c.rejected + c.ramp_rejected, most[kTurnedAway] + most[kAside] + admits);
  const bool all = !is_ever_disabled(number);  // disabled ones count nothing that is ignored
  within("the number of reports", all ? least[kReports] : least[kReports] - least[kUncounted], c.completed,
         most[kReports] + reports);
  within("the number of the abandoned", all ? least[kAbandoned] : 0, c.abandoned, most[kAbandoned] + abandons);
  std::uint64_t reported = 0;
  std::uint64_t made = 0;
  for (std::size_t i = 0; i < kTransitionReasons; ++i) {
    const std::string what =
        "the number of transitions for " + std::string{to_string(static_cast<TransitionReason>(i))};
    within(what.c_str(), least.at(kTransitions + i), c.transitions.at(i), most.at(kTransitions + i) + any);
    reported += most.at(kTransitions + i);
    made += c.transitions.at(i);
  }
  within("the number of transitions", 0, made, reported + any);
}

/// Leads a breaker through its states, whatever state it is in, while nobody else moves.
inline void lead_through_states(TortureWorker& worker, const SharedClock& clock, std::uint32_t number,
                                const Report& report) {
  const TortureWorker::Breaker& breaker = worker.breaker(number);
  worker.set_mode(number, {.mode = Mode::automatic});
  const Settings settings = breaker.settings();
  const bool leased = settings.probe_timeout_ms < kNoLease.count();
  const std::string which = "breaker " + std::to_string(number) + ": ";
  const auto close = [&] {
    if (!leased) worker.force(number, CircuitState::half_open);  // else the probes of the dead are never given up
    for (std::uint32_t round = 0; round < settings.success_threshold + 4; ++round) {
      if (breaker.peek().state == CircuitState::closed) break;
      clock.advance(Millis{std::max(settings.cooldown_ms, settings.cooldown_maximum_ms)});
      if (leased) clock.advance(Millis{settings.probe_timeout_ms});
      const AdmitResult probe = worker.admit(number, 0);
      report(probe.admission == Admission::probe, which + "cooldown and lease are over, and no probe is admitted");
      const RecordResult verdict = worker.record(0, Outcome::success);
      report(verdict.status == RecordStatus::counted, which + "a probe's success does not count");
    }
    report(breaker.peek().state == CircuitState::closed, which + "successful probes do not close it");
    clock.advance(Millis{settings.ramp_ms});
  };
  const auto open = [&] {
    for (std::uint32_t i = 0; i <= settings.window && breaker.peek().state == CircuitState::closed; ++i) {
      const AdmitResult allowed = worker.admit(number, 0);
      report(allowed.admission == Admission::allowed, which + "Closed, and does not admit");
      clock.advance(Millis{settings.times_calls() ? settings.slower_than_ms + 1 : 0});
      (void)worker.record(0, Outcome::failure);
    }
    report(breaker.peek().state == CircuitState::open, which + "failures do not open it");
    const std::uint64_t rejected = breaker.snapshot().record.rejected;
    report(worker.admit(number, 0).admission == Admission::rejected, which + "Open, and does not reject");
    report(breaker.snapshot().record.rejected == rejected + 1, which + "a rejection at rest is not counted");
  };
  // An opening that was decided by who died before carrying it out takes effect with the next outcome, as of the time
  // it was decided: its cooldown may be over by now.
  (void)worker.admit(number, 0);
  (void)worker.record(0, Outcome::success);
  close();
  open();
  close();
  open();
}

}  // namespace shmcb::test
