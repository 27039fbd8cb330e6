// SPDX-License-Identifier: BSD-3-Clause
// Histories recorded from real processes: two or three of them perform a few operations on one breaker at once, with
// invocations and responses in a global order. For the test and for shmcb-prove-torture.
#pragma once

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "proof/perform.hpp"
#include "proof/reference.hpp"
#include "shmcb/shm_storage.hpp"
#include "support/processes.hpp"
#include "support/test_segment.hpp"

namespace shmcb::test::histories {

using proof::Answer;
using proof::Event;
using proof::Op;
using proof::Tokens;
using rules::Tick;

inline constexpr Instant kStart{std::chrono::hours{1}};
inline constexpr std::size_t kProcesses = 3;
inline constexpr std::size_t kMaxOperations = 4;
inline constexpr std::size_t kPrepared = 4;  ///< attempts that were admitted before
static_assert(kPrepared + kProcesses * kMaxOperations <= proof::kTokens);

using Breaker = ShmStorage<FakeClock>;

/// Of a kind of breaker, and what may replace it.
inline constexpr std::uint32_t kKinds = 4;
inline constexpr std::uint8_t kVariants = 3;
inline BreakerConfig config_of(std::uint32_t kind, std::uint8_t variant = 0) {
  BreakerConfig config{.name = "b" + std::to_string(kind),
                       .failure_threshold = {.failures = 2, .window = 4, .within = Millis{1'000}},
                       .cooldown = {Millis{10}},
                       .success_threshold = 2,
                       .probe_limit = 2,
                       .probe_timeout = Millis{20}};
  if (kind == 1) config.failure_rate = {.percent = 50, .minimum_calls = 3};
  if (kind == 2) {
    config.failure_threshold.failures = 0;
    config.consecutive_failures = {.failures = 2};
    config.probe_limit = 1;
  }
  if (kind == 3) {
    config.failure_threshold.failures = 0;
    config.slow_calls = {.slower_than = Millis{15}, .percent = 50, .minimum_calls = 2, .reopen_on_slow_probe = true};
  }
  if (variant == 1) config.failure_threshold.window = 3;
  if (variant == 2) {
    config.failure_threshold.window = 6;
    config.cooldown = {Millis{30}};
  }
  return config;
}
inline std::vector<Settings> settings_of_kind(std::uint32_t kind) {
  std::vector<Settings> all;
  for (std::uint8_t variant = 0; variant < kVariants; ++variant)
    all.push_back(settings_of(config_of(kind, variant)));
  return all;
}

/// What the processes of a round do, and are answered.
struct Round {
  struct Part {
    std::size_t count = 0;
    std::uint32_t offset = 0;     ///< turns to wait before the first
    std::uint32_t in_pieces = 0;  ///< not 0: yields in the midst of operations, by this seed
    std::array<Event, kMaxOperations> events{};
  };
  std::uint32_t kind = 0;
  std::size_t processes = 2;
  std::array<Part, kProcesses> parts{};
  Tokens tokens{};
};
struct Arena {
  static constexpr std::uint32_t kEach = 4;
  static_assert(kProcesses < kEach);

  /// That is to be played, and by how many: one word, so that who comes late to a round does not take the next one's
  /// number of processes for its own.
  std::atomic<std::uint32_t> round{0};
  std::atomic<std::uint32_t> ready{0};
  std::atomic<std::uint32_t> done{0};
  std::atomic<std::uint64_t> order{0};
  std::atomic<bool> enough{false};
  Round play{};
};

[[nodiscard]] inline Tick tick_of(Instant instant) {
  return std::chrono::floor<Millis>(instant - kStart).count();
}

[[nodiscard]] inline Answer shown(const StateRecord& record) {
  return {.state = record.state,
          .mode = record.mode,
          .ramping = record.ramping,
          .opened_at = record.opened_at ? tick_of(*record.opened_at) : rules::kNever,
          .successes = record.successes,
          .failures = record.failures,
          .slow = record.slow,
          .rejected = record.rejected,
          .successes_at_least = record.successes_at_least};
}

/// Performs an operation as users do, on the storage.
inline void perform(const Segment& segment, Breaker& breaker, std::uint32_t kind, FakeClock& clock, const Op& op,
                    Tokens& tokens, Event& event) {
  clock.set(kStart + Millis{op.at});
  Answer& answer = event.answer;
  const auto keep = [&event](Errc error, const std::optional<CircuitTransition>& t) {
    event.answer.error = error;
    if (!t) return;
    event.transition = {t->reason, t->from, t->to, tick_of(t->occurred_at)};
    event.after = shown(t->state);
  };
  switch (op.kind) {
    case Op::Kind::admit: {
      const AdmitResult r = breaker.admit();
      tokens.at(op.token) = r.token;
      answer = {.admission = r.admission, .state = r.state};
      if (r.admission == Admission::rejected) {
        answer.retry_at = tick_of(r.retry_at);
        answer.retry_after = r.retry_after.count();
      }
      keep(r.error, r.transition);
      break;
    }
    case Op::Kind::record: {
      const RecordResult r = breaker.record_outcome(tokens.at(op.token), op.outcome);
      answer.status = r.status;
      keep(r.error, r.transition);
      break;
    }
    case Op::Kind::force: {
      const ForceResult r = breaker.force_state(op.to);
      keep(r.error, r.transition);
      break;
    }
    case Op::Kind::mode: {
      ModeRequest request{.mode = op.mode};
      if (op.lasts != rules::kNever) request.expires_after = Millis{op.lasts};
      const ModeResult r = breaker.set_mode(request);
      answer = {.error = r.error, .mode = r.previous};
      break;
    }
    case Op::Kind::replace: {
      const auto opened = Breaker::open(segment, config_of(kind, op.settings), OnMismatch::replace, clock);
      answer.error = opened ? Errc::ok : opened.error().code;
      break;
    }
    case Op::Kind::snapshot: {
      const SnapshotResult r = breaker.snapshot();
      answer = shown(r.record);
      answer.error = r.error;
      break;
    }
  }
}

/// Gives the processor away before some of the atomic accesses, so that operations fall into the midst of each other
/// however few processors there are.
struct YieldStep {
  static void step() noexcept {
    constexpr std::uint32_t kOneIn = 12;
    state_ = state_ * 1'664'525 + 1'013'904'223;
    if ((state_ >> 16U) % kOneIn == 0) ::sched_yield();
  }
  static void seed(std::uint32_t seed) noexcept { state_ = seed; }

 private:
  static inline std::uint32_t state_ = 1;
};
using YieldEnv = core::AtomicEnv<YieldStep>;

/// Yields now and then: there may be fewer processors than processes.
template <class Condition>
[[nodiscard]] bool spin_until(Condition condition) {
  constexpr int kTurns = 2'000;
  for (int i = 0; i < kTurns; ++i) {
    if (condition()) return true;
  }
  return wait_until(condition);
}

/// Where there are enough: else the scheduler may let one after the other run to its end.
inline void stay_on_a_processor_of_its_own(std::size_t p) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  std::size_t nth = p % static_cast<std::size_t>(CPU_COUNT(&allowed));
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || nth-- > 0) continue;
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET(cpu, &own);
    (void)::sched_setaffinity(0, sizeof own, &own);
    return;
  }
}

/// The processes and the breakers that they act on.
class Recorder {
 public:
  explicit Recorder(std::uint64_t seed) : random_(seed) {
    for (std::uint32_t kind = 0; kind < kKinds; ++kind) {
      auto opened = Breaker::open(test_.segment(), config_of(kind), OnMismatch::refuse, clock_);
      if (!opened) throw std::runtime_error(opened.error().message);
      breakers_.push_back(*std::move(opened));
      settings_.push_back(settings_of_kind(kind));
    }
    for (std::size_t p = 0; p < kProcesses; ++p)
      children_.push_back(fork_child([this, p] { return play(p); }));
  }
  ~Recorder() { arena_->enough.store(true); }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// Records a history and checks it. `spread`: how far apart the instants of operations may be.
  void round(Tick spread) {
    Round& r = arena_->play;
    r = {};
    r.kind = below(kKinds);
    r.processes = 2 + below(kProcesses - 1);
    time_ += 1'000'000;  // whatever was before has left the window, and no lease or cooldown is left
    proof::Reference reference(settings_[r.kind]);
    prepare(reference, spread);
    if (::testing::Test::HasFailure()) return;
    for (std::size_t p = 0; p < r.processes; ++p)
      plan(r.parts.at(p), p, spread);
    ++number_;
    arena_->ready.store(0);
    arena_->done.store(0);
    arena_->order.store(0);
    arena_->round.store(number_ * Arena::kEach + static_cast<std::uint32_t>(r.processes));
    ASSERT_TRUE(wait_until([&] { return arena_->done.load() == r.processes; })) << "a process is stuck";
    std::vector<Event> history;
    for (std::size_t p = 0; p < r.processes; ++p) {
      const Round::Part& part = r.parts.at(p);
      history.insert(history.end(), part.events.begin(), part.events.begin() + static_cast<std::ptrdiff_t>(part.count));
    }
    operations_ += history.size();
    overlapped_ += std::any_of(history.begin(), history.end(), [](const Event& e) { return e.ended != e.begun + 1; });
    Event after{.op = {.at = time_ + 10 * spread}, .participant = kProcesses, .begun = kAfterwards};
    perform(test_.segment(), breakers_[r.kind], r.kind, clock_, after.op, r.tokens, after);
    after.ended = kAfterwards + 1;
    history.push_back(after);
    ASSERT_TRUE(proof::Linearizer(history, {}).explains(reference))
        << "breaker of kind " << r.kind << ", prepared " << prepared_ << "\n"
        << text_of(history);
  }

  void print(const char* what) const {
    std::printf("[ histories] %s: %u histories of %lu operations, %u with operations beside each other\n", what,
                number_, static_cast<unsigned long>(operations_), overlapped_);
  }
  [[nodiscard]] std::uint32_t overlapped() const { return overlapped_; }

 private:
  static constexpr std::uint64_t kAfterwards = 1'000'000;

  int play(std::size_t p) {
    stay_on_a_processor_of_its_own(p);
    if (!test_->presence().ensure_current()) return 1;
    const auto view = test_->view().in_environment<YieldEnv>();
    const core::Registry<YieldEnv> registry(view, test_->presence());
    std::array<core::BreakerCell<YieldEnv>, kKinds> cells;
    for (std::uint32_t kind = 0; kind < kKinds; ++kind) {
      if (registry.find(breakers_[kind].name(), cells.at(kind)) != Errc::ok) return 1;
    }
    for (std::uint32_t last = 0;;) {
      if (!wait_until([&] { return arena_->enough.load() || arena_->round.load() != last; })) return 2;
      if (arena_->enough.load()) return 0;
      last = arena_->round.load();
      const std::uint32_t processes = last % Arena::kEach;
      if (p >= processes) continue;
      Round& r = arena_->play;
      Round::Part& part = r.parts.at(p);
      YieldStep::seed(part.in_pieces);
      core::LocalNotes start;
      const proof::Performer in_pieces{.settings = &settings_[r.kind], .notes = &start};
      arena_->ready.fetch_add(1);
      if (!spin_until([&] { return arena_->ready.load() >= processes; })) return 3;
      for (std::uint32_t i = 0; i < part.offset; ++i)
        std::atomic_signal_fence(std::memory_order_seq_cst);  // so that it takes its time
      for (std::size_t i = 0; i < part.count; ++i) {
        Event& event = part.events.at(i);
        event.begun = arena_->order.fetch_add(1, std::memory_order_seq_cst);
        if (part.in_pieces != 0) {
          proof::perform(cells.at(r.kind), event.op, in_pieces, r.tokens, event);
        } else {
          perform(test_.segment(), breakers_[r.kind], r.kind, clock_, event.op, r.tokens, event);
        }
        event.ended = arena_->order.fetch_add(1, std::memory_order_seq_cst);
      }
      arena_->done.fetch_add(1);
    }
  }

  /// One after the other, in both: the state in which the history begins.
  void prepare(proof::Reference& reference, Tick spread) {
    Round& r = arena_->play;
    prepared_.clear();
    const auto both = [&](const Op& op) {
      Event event{.op = op, .ended = 0};
      perform(test_.segment(), breakers_[r.kind], r.kind, clock_, op, r.tokens, event);
      std::optional<proof::Transition> transition;
      const Answer answer = reference.perform(op, transition);
      prepared_ += "\n  " + text_of(event);
      if (!begun_) return;
      EXPECT_EQ(event.answer, answer) << prepared_;
      EXPECT_EQ(event.transition, transition) << prepared_;
    };
    // From whatever the breaker was in before: what these answer says nothing.
    begun_ = false;
    both({.kind = Op::Kind::mode, .mode = Mode::automatic, .at = time_});
    both({.kind = Op::Kind::replace, .settings = 0, .at = time_});
    both({.kind = Op::Kind::force, .to = CircuitState::open, .at = time_});
    begun_ = true;
    both({.kind = Op::Kind::force, .to = CircuitState::closed, .at = time_});
    if (below(4) == 0) both({.kind = Op::Kind::force, .to = static_cast<CircuitState>(below(3)), .at = time_});
    for (std::uint8_t i = 0; i < kPrepared; ++i)
      both({.kind = Op::Kind::admit, .token = i, .at = time_});
    for (std::uint32_t i = below(4); i > 0; --i)
      both({.kind = Op::Kind::record, .token = any_prepared(), .outcome = any_outcome(), .at = time_});
    if (below(8) == 0) both(any_mode(time_));
    if (below(2) == 0) time_ += 10;  // the cooldown is over
    if (below(3) == 0) {
      for (std::uint8_t i = 0; i < 2; ++i)
        both({.kind = Op::Kind::admit, .token = i, .at = time_});
    }
    if (spread != 0 && below(4) == 0) time_ += 20;  // the lease is over
    both({.kind = Op::Kind::snapshot, .at = time_});
  }

  void plan(Round::Part& part, std::size_t p, Tick spread) {
    part.count = 2 + below(kMaxOperations - 1);
    part.offset = below(3) == 0 ? below(2'000) : below(50);
    part.in_pieces = below(2) * (1 + below(1'000'000));
    const std::size_t own = kPrepared + p * kMaxOperations;
    std::uint32_t admitted = 0;
    for (std::size_t i = 0; i < part.count; ++i) {
      Op op{.at = time_ + (spread == 0 ? 0 : static_cast<Tick>(below(static_cast<std::uint32_t>(spread))))};
      const std::uint32_t choice = below(100);
      if (choice < 30) {
        op.kind = Op::Kind::admit;
        op.token = static_cast<std::uint8_t>(own + admitted++);
      } else if (choice < 78) {
        op.kind = Op::Kind::record;
        // Its own, or one that others may report too.
        op.token = admitted > 0 && below(3) != 0 ? static_cast<std::uint8_t>(own + below(admitted)) : any_prepared();
        op.outcome = any_outcome();
      } else if (choice < 86) {
        op.kind = Op::Kind::force;
        op.to = static_cast<CircuitState>(below(3));
      } else if (choice < 91) {
        op = any_mode(op.at);
      } else if (choice < 95) {
        op.kind = Op::Kind::replace;
        op.settings = static_cast<std::uint8_t>(below(kVariants));
      }  // else a snapshot
      part.events.at(i) = {.op = op, .participant = static_cast<std::uint8_t>(p)};
    }
  }

  [[nodiscard]] Op any_mode(Tick at) {
    constexpr std::array kModes{Mode::automatic, Mode::forced_open, Mode::forced_closed, Mode::observe, Mode::disabled};
    const Mode mode = kModes.at(below(kModes.size()));
    const bool ends = mode != Mode::automatic && below(3) == 0;
    return {.kind = Op::Kind::mode, .mode = mode, .lasts = ends ? 1 + Tick{below(30)} : rules::kNever, .at = at};
  }
  [[nodiscard]] std::uint8_t any_prepared() { return static_cast<std::uint8_t>(below(kPrepared)); }
  [[nodiscard]] Outcome any_outcome() {
    const std::uint32_t choice = below(10);
    return choice < 5 ? Outcome::failure : choice < 9 ? Outcome::success : Outcome::ignored;
  }
  [[nodiscard]] std::uint32_t below(std::size_t end) { return static_cast<std::uint32_t>(random_() % end); }

  std::mt19937_64 random_;
  FakeClock clock_{kStart};  // each process has one of its own from the fork on
  TestSegment test_{{.breakers = kKinds, .participants = 16, .epoch = kStart}};
  std::vector<Breaker> breakers_;
  std::vector<std::vector<Settings>> settings_;  // of each kind
  SharedArea<Arena> arena_;
  std::vector<Child> children_;
  Tick time_ = 0;
  std::string prepared_;
  bool begun_ = false;  // the preparation: from here on both have the same state
  std::uint32_t number_ = 0;
  std::uint64_t operations_ = 0;
  std::uint32_t overlapped_ = 0;
};

}  // namespace shmcb::test::histories
