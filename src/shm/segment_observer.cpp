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

/// How far a position is ahead of another one; negative: behind.
[[nodiscard]] std::int64_t ahead(core::Bits position, core::Bits of) noexcept {
  return static_cast<std::int64_t>(position - of);
}

/// An entry that was read before the one that was committed before it.
struct Held {
  core::JournalEntry entry;
  Instant until;  ///< then it waits no longer
};

/// What has been seen of one breaker.
struct Followed {
  std::uint32_t incarnation = 0;
  std::uint64_t begin = 0;               ///< number of its first event that is to be delivered; 0: not known yet
  std::uint64_t expected = 1;            ///< number of the next
  std::map<std::uint64_t, Held> held{};  ///< by number
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
    const core::Registry<Env> registry(segment.view(), segment.presence());
    for (std::uint32_t place = 0; place < segment.geometry().breakers; ++place) {
      core::BreakerCell<Env> cell;
      core::BreakerCell<Env>::Control word;
      core::Record record;
      if (registry.handle(place, cell) != Errc::ok || !cell.load(word, record) || record.journaled == 0) continue;
      // relaxed: if the place is being given away, the first event of its new name brings the same number
      const std::uint64_t incarnation = Env::load(segment.view().breaker(place)->incarnation, Env::relaxed);
      followed.emplace(place, Followed{.incarnation = static_cast<std::uint32_t>(incarnation),
                                       .begin = record.journaled + 1,
                                       .expected = record.journaled + 1});
    }
  }

  /// Of one that had no events yet; or of which nothing is known, where the journal is read from the middle.
  [[nodiscard]] Followed newcomer(std::uint32_t incarnation) const {
    const bool from_now = options.from == ObserverOptions::From::now;
    return {.incarnation = incarnation, .begin = from_now ? 1U : 0U};
  }

  // ---- reading, in the order of positions

  void read_on(Instant now) {
    const core::Bits next = journal.next();
    if (ahead(cursor, next) > 0) cursor = next;  // somebody has set it back: nothing that this library does
    while (ahead(next, cursor) > 0) {
      core::JournalEntry entry;
      core::JournalRead found = journal.read(cursor, entry);
      if (found == core::JournalRead::pending) {
        if (!given_up(now)) return;
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

  void skip_to(core::Bits position) {
    skipped += position - cursor;
    cursor = position;
  }

  /// Whether the entry at the cursor, which is not there yet, will not be waited for any longer.
  [[nodiscard]] bool given_up(Instant now) {
    if (!stuck || stuck->position != cursor) stuck = {cursor, now + options.patience};
    return now >= stuck->until || journal.writer_is_dead(cursor);
  }

  // ---- delivering, in the order of each breaker

  void accept(const core::JournalEntry& entry, Instant now) {
    if (entry.breaker >= segment.geometry().breakers) {
      ++skipped;
      return;
    }
    Followed& breaker = followed.try_emplace(entry.breaker, newcomer(entry.incarnation)).first->second;
    if (breaker.incarnation != entry.incarnation && !begin_incarnation(breaker, entry.incarnation)) {
      ++missing;
    } else if (entry.number < breaker.expected) {
      // Its successor is out, and it was counted then, unless that was the first one. (Or it was committed before this
      // observer began.)
      if (entry.number < breaker.begin && options.from == ObserverOptions::From::oldest) ++missing;
    } else if (entry.number == breaker.expected) {
      deliver(breaker, entry);
      deliver_successors(breaker);
    } else {
      hold(breaker, entry, now);
    }
  }

  /// The place has another name. False: the entry is of a name before.
  [[nodiscard]] bool begin_incarnation(Followed& breaker, std::uint32_t incarnation) {
    if (static_cast<std::int32_t>(incarnation - breaker.incarnation) < 0) return false;
    deliver_through(breaker, ~std::uint64_t{0});
    breaker = newcomer(incarnation);
    return true;
  }

  void hold(Followed& breaker, const core::JournalEntry& entry, Instant now) {
    // Correct processes never come near: what is held lies in the ring, or did so a moment ago.
    if (held == 2 * journal.size()) release(now, true);
    const std::uint32_t place = entry.breaker;
    if (!breaker.held.emplace(entry.number, Held{entry, now + options.patience}).second) return;
    ++held;
    holding.insert(place);
  }

  void deliver(Followed& breaker, const core::JournalEntry& entry) {
    if (breaker.begin == 0) breaker.begin = breaker.expected = entry.number;
    missing += entry.number - breaker.expected;
    breaker.expected = entry.number + 1;
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
    while (!breaker.held.empty() && breaker.held.begin()->first == breaker.expected)
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
      if (breaker.begin == 0 && caught_up && !breaker.held.empty())
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
    read_on(now);
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
    core::Bits position;
    Instant until;
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
