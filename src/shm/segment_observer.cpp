// SPDX-License-Identifier: BSD-3-Clause
#include "shmcb/segment_observer.hpp"

#include <sched.h>

#include <algorithm>
#include <deque>
#include <exception>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "events.hpp"
#include "futex.hpp"
#include "shmcb/core/journal.hpp"
#include "shmcb/core/registry.hpp"

namespace shmcb {

namespace {

using Env = core::StdEnv;

constexpr Millis kLongestSleep{1'000};            // a writer that is killed before it wakes anybody costs so much
constexpr Millis kLongestWait{86'400'000};        // arbitrary: a day; the caller asks again
constexpr Millis kLongestPatience{kLongestWait};  // arbitrary
constexpr int kLooks = 8;                         // arbitrary: each one in vain means that the place was recycled

/// How far a position is ahead of another one; negative: behind.
[[nodiscard]] std::int64_t ahead(core::Bits position, core::Bits of) noexcept {
  return static_cast<std::int64_t>(position - of);
}

/// An entry that was read before the one that was committed before it.
struct Held {
  core::JournalEntry entry;
  Instant until;  ///< then it waits no longer
};

/// One breaker's life at its place.
struct Life {
  std::uint32_t incarnation = 0;
  std::uint64_t begin = 0;     ///< number of its first event that is to be delivered; 0: not known yet
  std::uint64_t expected = 1;  ///< number of the next; those before it are delivered, or counted as missing
};

/// What has been seen of one place.
struct Followed {
  Life life{};
  std::optional<Life> ended{};           ///< the one before
  std::map<std::uint64_t, Held> held{};  ///< of this life, by number
};

}  // namespace

struct SegmentObserver::State {
  State(Segment of, const ObserverOptions& how)
      : segment(std::move(of)), options(how), journal(segment.view(), segment.presence()), cursor(journal.next()) {
    if (options.from == ObserverOptions::From::oldest) {
      cursor -= std::min(cursor, journal.size());
    } else {
      look_at_all_breakers();
    }
  }

  // ---- beginning

  /// How many events each has had: the later ones are this observer's. After the cursor was chosen, so that everything
  /// before it is among them.
  void look_at_all_breakers() {
    for (std::uint32_t place = 0; place < segment.geometry().breakers; ++place) {
      // Of a life that began after the cursor was chosen all events are this observer's, with nothing to remember.
      for (int looks = 0; looks < kLooks && !look_at(place); ++looks) {
      }
    }
  }

  /// False: the place was given to another name meanwhile.
  [[nodiscard]] bool look_at(std::uint32_t place) {
    // sync: name-words (acquire). BEFORE the record: one of a later life is not taken for this one's
    const core::Bits incarnation = Env::load(segment.view().breaker(place)->incarnation, Env::acquire);
    core::BreakerCell<Env> cell;
    if (core::Registry<Env>(segment.view(), segment.presence()).handle(place, cell) != Errc::ok) return true;
    cell.core().bind(incarnation);
    core::BreakerCell<Env>::Control word;
    core::Record record;
    if (!cell.load(word, record)) return !cell.core().elsewhere();
    if (record.journaled != 0) {
      followed.emplace(place, Followed{.life = {.incarnation = static_cast<std::uint32_t>(incarnation),
                                                .begin = record.journaled + 1,
                                                .expected = record.journaled + 1}});
    }
    return true;
  }

  /// Of one that had no events yet; or of which nothing is known, where the journal is read from the middle.
  [[nodiscard]] Life newcomer(std::uint32_t incarnation) const {
    const bool from_now = options.from == ObserverOptions::From::now;
    return {.incarnation = incarnation, .begin = from_now ? 1U : 0U};
  }

  // ---- reading, in the order of positions

  /// At most as many entries as there is room for: what is told of a longer way has been overwritten, or was never
  /// written.
  void read_on(Instant now) {
    const core::Bits next = journal.next();
    if (ahead(cursor, next) > 0) begin_at(next);  // somebody has set it back: nothing that this library does
    if (next - cursor > journal.size()) skip_to(next - journal.size());
    while (ahead(next, cursor) > 0) {
      core::JournalEntry entry;
      core::JournalRead found = journal.read(cursor, entry);
      if (found == core::JournalRead::pending) {
        if (!given_up(next, now)) return;
        found = journal.read(cursor, entry);  // it may have been completed just before its writer died
      }
      if (found == core::JournalRead::entry) {
        accept(entry, now);
        ++cursor;
        continue;
      }
      const core::Bits oldest = journal.next() - journal.size();
      const bool lapped = found == core::JournalRead::overwritten && ahead(oldest, cursor) > 0;
      skip_to(lapped ? oldest : cursor + 1);
    }
  }

  void begin_at(core::Bits position) {
    cursor = position;
    stuck.reset();
  }

  void skip_to(core::Bits position) {
    skipped += position - cursor;
    cursor = position;
  }

  /// Whether the entry at the cursor, which is not there yet, will not be waited for any longer. Positions that were
  /// out already when the waiting began have waited as long: writers that were killed together cost one patience.
  [[nodiscard]] bool given_up(core::Bits next, Instant now) {
    if (!stuck || ahead(stuck->next, cursor) <= 0) stuck = {.next = next, .until = now + options.patience};
    stuck->position = cursor;
    return now >= stuck->until || journal.writer_is_dead(cursor);
  }

  // ---- delivering, in the order of each breaker

  void accept(const core::JournalEntry& entry, Instant now) {
    if (entry.breaker >= segment.geometry().breakers) {
      ++skipped;
      return;
    }
    // Correct processes never come near: what is held lies in the ring, or did so a moment ago. Before the entry is
    // judged, because what is expected changes.
    if (held >= 2 * journal.size()) release(now, true);
    Followed& breaker = followed.try_emplace(entry.breaker, Followed{newcomer(entry.incarnation)}).first->second;
    const Life& life = breaker.life;
    if (life.incarnation != entry.incarnation && !begin_life(breaker, entry.incarnation)) {
      drop_of_earlier_life(breaker, entry);
    } else if (entry.number < life.expected) {
      // Its successor is out, and it was counted then, unless that was the first one.
      if (precedes_first(life, entry)) ++missing;
    } else if (entry.number == life.expected) {
      deliver(breaker, entry);
      deliver_successors(breaker);
    } else {
      hold(breaker, entry, now);
    }
  }

  /// Whether no gap was counted for it, because it comes before the first that was delivered. (Where the observer
  /// begins now, what comes before its first event is none of its own.)
  [[nodiscard]] bool precedes_first(const Life& life, const core::JournalEntry& entry) const {
    return entry.number < life.begin && options.from == ObserverOptions::From::oldest;
  }

  /// The place has another name. False: the entry is of a name before.
  [[nodiscard]] bool begin_life(Followed& breaker, std::uint32_t incarnation) {
    if (static_cast<std::int32_t>(incarnation - breaker.life.incarnation) < 0) return false;
    deliver_through(breaker, ~std::uint64_t{0});
    breaker.ended = breaker.life;
    breaker.life = newcomer(incarnation);
    return true;
  }

  /// Too late to be delivered, and missing, unless it was counted as a gap. Of the life before this one that is known;
  /// where several were over while the writer stood still, it counts in any case.
  void drop_of_earlier_life(Followed& breaker, const core::JournalEntry& entry) {
    const bool known = breaker.ended && breaker.ended->incarnation == entry.incarnation;
    if (!known || precedes_first(*breaker.ended, entry)) {
      ++missing;
    } else if (entry.number >= breaker.ended->expected) {
      missing += entry.number - breaker.ended->expected + 1;
      breaker.ended->expected = entry.number + 1;
    }
  }

  void hold(Followed& breaker, const core::JournalEntry& entry, Instant now) {
    if (!breaker.held.emplace(entry.number, Held{entry, now + options.patience}).second) return;
    ++held;
    holding.insert(entry.breaker);
  }

  void deliver(Followed& breaker, const core::JournalEntry& entry) {
    Life& life = breaker.life;
    if (life.begin == 0) life.begin = life.expected = entry.number;
    missing += entry.number - life.expected;
    life.expected = entry.number + 1;
    ready.push_back(entry);
  }

  /// The lowest of those held.
  void deliver_held(Followed& breaker) {
    const auto lowest = breaker.held.begin();
    deliver(breaker, lowest->second.entry);
    breaker.held.erase(lowest);
    --held;
  }
  void deliver_successors(Followed& breaker) {
    while (!breaker.held.empty() && breaker.held.begin()->first == breaker.life.expected)
      deliver_held(breaker);
  }
  void deliver_through(Followed& breaker, std::uint64_t number) {
    while (!breaker.held.empty() && breaker.held.begin()->first <= number)
      deliver_held(breaker);
    deliver_successors(breaker);
  }

  /// Lets go of what has waited long enough, and of what only waits because nothing is known of its breaker yet.
  void release(Instant now, bool all = false) {
    const bool caught_up = cursor == journal.next();
    for (auto place = holding.begin(); place != holding.end();) {
      Followed& breaker = followed[*place];
      if (breaker.life.begin == 0 && caught_up && !breaker.held.empty())
        deliver_through(breaker, breaker.held.begin()->first);
      std::uint64_t through = 0;
      for (const auto& [number, waiting] : breaker.held) {
        if (all || now >= waiting.until) through = number;
      }
      deliver_through(breaker, through);
      place = breaker.held.empty() ? holding.erase(place) : std::next(place);
    }
  }

  std::size_t poll(const Callback& callback) {
    const Instant now = SystemClock{}.now();
    // Where a callback throws again and again, what it has not been told yet does not grow without bound.
    if (ready.size() <= journal.size()) read_on(now);
    release(now);
    const shm::Events events(segment.view(), segment.epoch());
    std::size_t delivered = 0;
    for (; !ready.empty(); ++delivered) {
      const SegmentEvent event = events.of(ready.front());
      ready.pop_front();  // before the callback sees it: one that throws does not get it again
      callback(event);
    }
    return delivered;
  }

  /// Until when it may sleep without being late for something that waits.
  [[nodiscard]] Instant next_deadline(Instant latest) const {
    if (stuck && stuck->position == cursor) latest = std::min(latest, stuck->until);
    for (const std::uint32_t place : holding) {
      for (const auto& [number, waiting] : followed.at(place).held)
        latest = std::min(latest, waiting.until);
    }
    return latest;
  }

  struct Stuck {
    core::Bits position = 0;  ///< that was waited for last
    core::Bits next = 0;      ///< the journal's, when the waiting began
    Instant until{};
  };

  Segment segment;
  ObserverOptions options;
  core::Journal<Env> journal;
  core::Bits cursor = 0;  ///< the position to be read next
  std::optional<Stuck> stuck{};
  std::unordered_map<std::uint32_t, Followed> followed{};  ///< by place
  std::set<std::uint32_t> holding{};                       ///< places of which something is held
  std::size_t held = 0;
  std::deque<core::JournalEntry> ready{};
  // Both are parts of what is lost, from two sides: the positions that had nothing to read, and the numbers that the
  // breakers' events lack. (Who is killed between its commit and its position leaves no gap in the positions; whose
  // breaker has no later event yet, none in the numbers.)
  std::uint64_t skipped = 0;
  std::uint64_t missing = 0;
};

SegmentObserver::SegmentObserver(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
SegmentObserver::SegmentObserver(SegmentObserver&& other) noexcept = default;
SegmentObserver& SegmentObserver::operator=(SegmentObserver&& other) noexcept = default;
SegmentObserver::~SegmentObserver() = default;

Result<SegmentObserver> SegmentObserver::open(const Segment& segment, ObserverOptions options) noexcept {
  try {
    options.patience = std::clamp(options.patience, Millis{0}, kLongestPatience);
    return SegmentObserver(std::make_unique<State>(segment, options));
  } catch (const std::exception& e) {
    return Error{Errc::system, "segment '" + segment.name() + "': " + e.what()};
  }
}

std::size_t SegmentObserver::poll(const Callback& callback) {
  return state_->poll(callback);
}

std::size_t SegmentObserver::wait(Millis timeout, const Callback& callback) {
  State& s = *state_;
  const Instant end = SystemClock{}.now() + std::clamp(timeout, Millis{0}, kLongestWait);
  for (;;) {
    if (const std::size_t delivered = s.poll(callback)) return delivered;
    const Instant now = SystemClock{}.now();
    if (now >= end) return 0;
    const std::optional<std::uint32_t> expected = s.journal.announce_sleep();
    if (const std::size_t delivered = s.poll(callback)) return delivered;
    if (expected) {
      const Instant until = s.next_deadline(std::min(end, now + kLongestSleep));
      shm::sleep_on(&s.segment.view().words().journal_wake, *expected, until - SystemClock{}.now());
    } else {
      ::sched_yield();
    }
  }
}

std::uint64_t SegmentObserver::lost() const noexcept {
  return std::max(state_->skipped, state_->missing);
}

}  // namespace shmcb
