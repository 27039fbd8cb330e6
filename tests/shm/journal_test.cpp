// SPDX-License-Identifier: BSD-3-Clause
// The journal's words: what is written is what is read, or nothing; whatever happens in between, at every access.
#include "shmcb/core/journal.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "shm/futex.hpp"
#include "shmcb/segment_reader.hpp"
#include "shmcb/shm_storage.hpp"
#include "support/processes.hpp"
#include "support/test_segment.hpp"
#include "support/threads.hpp"

namespace shmcb::core {
namespace {

using test::TestSegment;

constexpr Bits kSize = 16;

/// An entry in which every word tells its number; every third one has text.
JournalEntry entry_of(std::uint64_t number) {
  JournalEntry e{.kind = EventKind::forced,
                 .from = CircuitState::open,
                 .to = CircuitState::half_open,
                 .reason = static_cast<TransitionReason>(number % kTransitionReasons),
                 .mode_from = Mode::disabled,
                 .mode_to = Mode::observe,
                 .breaker = static_cast<std::uint32_t>(number * 3),
                 .incarnation = static_cast<std::uint32_t>(number * 5),
                 .number = number,
                 .change = number * 7,
                 .at = static_cast<rules::Tick>(number * 11)};
  if (number % 3 == 0) {
    e.until = static_cast<rules::Tick>(number * 13);
    const std::string who = "who " + std::to_string(number);
    const std::string why = "why " + std::to_string(number) + std::string(60, '.');
    e.note = NoteText::of({who, why});
  }
  return e;
}

TEST(NoteText, GivesBackWhatWasPutInUpToItsLimit) {
  const auto who = [](std::string_view text) { return std::string{NoteText::text(NoteText::of({.who = text}).who)}; };
  EXPECT_EQ(who(""), "");
  EXPECT_EQ(who("abc"), "abc");
  EXPECT_EQ(who(std::string(kMaxWhoBytes, 'w')), std::string(kMaxWhoBytes, 'w'));
  EXPECT_EQ(who(std::string(kMaxWhoBytes + 1, 'w')), std::string(kMaxWhoBytes, 'w'));
  EXPECT_EQ(who({"a\0b", 3}), "a");
}

TEST(JournalEntry, ComesBackFromItsWords) {
  for (std::uint64_t number = 1; number < 100; ++number) {
    JournalEntry read;
    JournalEntry written = entry_of(number);
    written.note = {};  // it has a cell of its own
    ASSERT_TRUE(decode(encode(written, number), read));
    EXPECT_EQ(read, written);
  }
  for (int kind = 1; kind <= 6; ++kind) {
    JournalEntry read;
    const JournalEntry written{
        .kind = static_cast<EventKind>(kind), .mode_from = Mode::observe, .mode_to = Mode::forced_open, .pid = ~0U};
    ASSERT_TRUE(decode(encode(written), read));
    EXPECT_EQ(read, written);
  }
}

TEST(JournalEntry, IsRefusedWhereNoProcessWritesSuchWords) {
  JournalEntry read;
  const JournalWords good = encode(entry_of(3));
  const auto with = [&](std::size_t word, Bits bits, unsigned shift, Bits value) {
    JournalWords words = good;
    words[word] = (words[word] & ~(bits << shift)) | (value << shift);
    return words;
  };
  EXPECT_FALSE(decode(with(journal_word::what, 0xF, 42, 0), read)) << "no kind";
  EXPECT_FALSE(decode(with(journal_word::what, 0xF, 42, 7), read)) << "an unknown kind";
  EXPECT_FALSE(decode(with(journal_word::what, 3, 46, 3), read)) << "from no state";
  EXPECT_FALSE(decode(with(journal_word::what, 3, 48, 3), read)) << "to no state";
  EXPECT_FALSE(decode(with(journal_word::at, 0, 0, Bits{1} << 48U), read));
  EXPECT_FALSE(decode(with(journal_word::until, 0, 0, Bits{1} << 50U), read));
  EXPECT_TRUE(decode(good, read));
}

TEST(JournalHeader, TellsLaterPositionsFromEarlierOnesAlsoWhereTheyComeRound) {
  const auto later = [](Bits position, Bits than) { return JournalHeader::claimed(position, 1).later_than(than); };
  EXPECT_FALSE(JournalHeader{}.later_than(5)) << "zeroed memory";
  EXPECT_TRUE(later(6, 5));
  EXPECT_FALSE(later(5, 5));
  EXPECT_FALSE(later(4, 5));
  constexpr Bits kRound = Bits{1} << 46U;
  EXPECT_TRUE(later(kRound + 2, kRound - 1));
  EXPECT_FALSE(later(kRound - 1, kRound + 2));
  EXPECT_TRUE(JournalHeader::complete(kRound + 2, 0xFFFF).at(kRound + 2));
  EXPECT_FALSE(JournalHeader::complete(3, 0xFFFF).at(2));
  EXPECT_EQ(JournalHeader::complete(3, 0xFFFE).writer(), 0xFFFE);
}

/// Does something else before the k-th access.
struct Meanwhile {
  static inline std::uint64_t steps = 0;
  static inline std::uint64_t at = 0;
  static inline std::function<void()> what;
  static void step() {
    if (++steps == at) what();
  }
  static void arm(std::uint64_t k, std::function<void()> something) {
    what = std::move(something);
    steps = 0;
    at = k;
  }
};
using InterruptedEnv = AtomicEnv<Meanwhile>;

/// Counts the wake-ups.
struct CountingKernel final : Presence::Kernel {
  bool renew(Presence& presence) noexcept override {
    presence.become(3, 1);
    return true;
  }
  bool is_dead(const Presence&, std::uint16_t, std::uint32_t) noexcept override { return dead; }
  bool is_unheld(const Presence&, std::uint16_t) noexcept override { return dead; }
  void wake(const void*) noexcept override { ++wakes; }
  int wakes = 0;
  bool dead = false;
};

class TheJournal : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(presence.ensure_current()); }
  void TearDown() override { Meanwhile::at = 0; }

  TestSegment made{{.breakers = 2, .participants = 8, .journal_entries = kSize}};
  CountingKernel kernel;
  Presence presence{kernel};
  SegmentView<StdEnv> view = made->view();
  SegmentView<InterruptedEnv> interrupted_view = made->view().in_environment<InterruptedEnv>();
  Journal<StdEnv> journal{view, presence};
  Journal<InterruptedEnv> interrupted{interrupted_view, presence};

  /// The position of an entry is told by its number here.
  void write(Bits count) {
    for (Bits i = 0; i < count; ++i)
      journal.write(entry_of(journal.next()));
  }
  void expect_entry(Bits position) {
    JournalEntry read;
    ASSERT_EQ(journal.read(position, read), JournalRead::entry) << position;
    JournalEntry expected = entry_of(position);
    expected.pid = static_cast<std::uint32_t>(::getpid());
    EXPECT_EQ(read, expected);
  }
};

TEST_F(TheJournal, HoldsTheNewestEntries) {
  JournalEntry read;
  EXPECT_EQ(journal.next(), 0U);
  EXPECT_EQ(journal.size(), kSize);
  EXPECT_EQ(journal.read(0, read), JournalRead::pending);
  for (Bits count = 0; count < 3 * kSize; ++count) {
    write(1);
    EXPECT_EQ(journal.next(), count + 1);
    for (Bits position = 0; position <= count; ++position) {
      if (position + kSize > count) {
        expect_entry(position);
      } else if (position + 2 * kSize > count) {
        EXPECT_EQ(journal.read(position, read), JournalRead::overwritten);
      }
    }
    EXPECT_EQ(journal.read(count + 1, read), JournalRead::pending);
  }
}

TEST_F(TheJournal, GoesOnWhereItsPositionsComeRound) {
  const Bits round = (Bits{1} << 46U) - 8;
  StdEnv::store(view.words().journal_next, round, StdEnv::relaxed);
  for (Bits n = 0; n < 2 * kSize; ++n) {
    journal.write(entry_of(n));
    JournalEntry read;
    ASSERT_EQ(journal.read(round + n, read), JournalRead::entry);
    EXPECT_EQ(read.number, n);
  }
}

TEST_F(TheJournal, LosesTheEntryOfAWriterThatWasOvertakenAndAtMostOneMoreToWhatItScribbled) {
  std::uint64_t damaged = 0;
  std::uint64_t steps = 0;
  for (const Bits number : {Bits{3}, Bits{4}}) {  // with text and without
    for (const Bits laps : {Bits{1}, Bits{2}}) {
      for (std::uint64_t k = 1; k <= steps || k == 1; ++k) {
        SCOPED_TRACE("stopped before access " + std::to_string(k));
        write((number + kSize - journal.next() % kSize) % kSize);  // the same place for each
        const Bits before = journal.next();
        Meanwhile::arm(k, [&] { write(laps * kSize); });
        interrupted.write(entry_of(before));
        steps = Meanwhile::steps;
        Meanwhile::arm(0, {});
        const Bits after = journal.next();
        EXPECT_EQ(after, before + laps * kSize + 1);
        std::uint64_t lost = 0;
        for (Bits position = after - kSize; position != after; ++position) {
          JournalEntry read;
          const JournalRead found = journal.read(position, read);
          if (found == JournalRead::entry && k > 1) expect_entry(position);
          lost += found != JournalRead::entry ? 1 : 0;
          damaged += found == JournalRead::damaged ? 1 : 0;
        }
        constexpr std::uint64_t kClaim = 3;  // before it nothing of the others' is touched
        EXPECT_LE(lost, k <= kClaim ? 0U : 1U);
        write(kSize);
        for (Bits position = after; position != after + kSize; ++position)
          expect_entry(position);
      }
    }
  }
  EXPECT_GT(damaged, 0U) << "the test does not reach what it is for";
}

TEST_F(TheJournal, ReadsAnEntryOrNoneWhateverIsWrittenMeanwhile) {
  std::uint64_t steps = 1;
  std::uint64_t overwritten = 0;
  constexpr std::uint64_t kEntryAccesses = 2 + kJournalWords;  // the header, the words, the header
  for (const Bits written : {Bits{0}, Bits{1}, kSize, 3 * kSize}) {
    for (std::uint64_t k = 1; k <= steps; ++k) {
      write(kSize);
      const Bits position = journal.next() - kSize;
      JournalEntry read;
      Meanwhile::arm(k, [&] { write(written); });
      const JournalRead found = interrupted.read(position, read);
      steps = std::max(steps, Meanwhile::steps);
      Meanwhile::arm(0, {});
      if (found == JournalRead::entry) {
        read.pid = 0;
        JournalEntry expected = entry_of(position);
        // The entry is whole; its text may have been overtaken after that.
        if (written == 3 * kSize && k > kEntryAccesses && read.note == NoteText{}) expected.note = {};
        EXPECT_EQ(read, expected) << "at access " << k;
      } else {
        EXPECT_EQ(found, JournalRead::overwritten);
        ++overwritten;
      }
    }
  }
  EXPECT_GT(steps, 8U);
  EXPECT_GT(overwritten, 20U);
}

TEST_F(TheJournal, TakesTheEntryOfADeadWriterWhenTheRingComesRound) {
  // As it leaves its entry by dying at each access.
  for (std::uint64_t k = 2; k <= 12; ++k) {
    auto& cell = view.journal(journal.next());
    const Bits position = StdEnv::fetch_add(view.words().journal_next, 1, StdEnv::relaxed);
    if (k > 2) StdEnv::store(cell.header, JournalHeader::claimed(position, 3).bits, StdEnv::relaxed);
    for (std::uint64_t word = 0; word + 3 < k && word < 7; ++word)
      StdEnv::store(cell.words[word], word, StdEnv::relaxed);
    JournalEntry read;
    EXPECT_EQ(journal.read(position, read), JournalRead::pending);
    EXPECT_FALSE(journal.writer_is_dead(position));
    kernel.dead = true;
    EXPECT_EQ(journal.writer_is_dead(position), k > 2) << "known by its claim only";
    kernel.dead = false;
    write(kSize);
    expect_entry(position + kSize);
  }
}

TEST_F(TheJournal, WakesThoseWhoSaidThatTheyAreAboutToSleepAndOnce) {
  write(5);
  EXPECT_EQ(kernel.wakes, 0) << "nobody follows";
  ASSERT_TRUE(journal.announce_sleep().has_value());
  write(1);
  EXPECT_EQ(kernel.wakes, 1);
  write(5);
  EXPECT_EQ(kernel.wakes, 1) << "a follower that does not come back costs one wake-up";
  const auto first = journal.announce_sleep();
  const auto second = journal.announce_sleep();
  EXPECT_EQ(first, second) << "two followers sleep on the same value";
  write(1);
  EXPECT_EQ(kernel.wakes, 2);
  EXPECT_NE(journal.announce_sleep(), first) << "or one that has not quite fallen asleep would sleep on";
}

TEST_F(TheJournal, WakesAFollowerThatComesAtAnyMomentUnlessItSeesTheEntry) {
  std::uint64_t steps = 1;
  for (std::uint64_t k = 1; k <= steps; ++k) {
    write(1);  // nobody has announced anything
    const Bits position = journal.next();
    const int wakes = kernel.wakes;
    bool came = false;
    bool sees_it = false;
    Meanwhile::arm(k, [&] {
      came = true;
      ASSERT_TRUE(journal.announce_sleep().has_value());
      JournalEntry read;
      sees_it = journal.read(position, read) == JournalRead::entry;
    });
    interrupted.write(entry_of(1));
    steps = Meanwhile::steps;
    Meanwhile::arm(0, {});
    EXPECT_TRUE(came || k == steps + 1) << "where the last follower was seen there was one access more";
    EXPECT_TRUE(!came || sees_it || kernel.wakes == wakes + 1) << "at access " << k;
  }
  EXPECT_GT(steps, 8U);
}

TEST_F(TheJournal, ReadsOnlyWholeEntriesWhileThreadsWriteThem) {
  constexpr std::uint64_t kEach = 5'000;
  std::atomic<std::uint64_t> read_whole{0};
  test::run_threads(4, [&](std::size_t thread) {
    if (thread < 3) {
      for (std::uint64_t i = 0; i < kEach; ++i)
        journal.write(entry_of(thread * kEach + i));
      return;
    }
    for (Bits position = 0; position < 3 * kEach;) {
      JournalEntry read;
      const JournalRead found = journal.read(position, read);
      if (found == JournalRead::entry) {
        read.pid = 0;
        JournalEntry expected = entry_of(read.number);
        if (read.note == NoteText{}) expected.note = {};  // overtaken by newer texts
        ASSERT_EQ(read, expected);
        read_whole.fetch_add(1);
      }
      if (found != JournalRead::pending || journal.next() > position + kSize || journal.next() == 3 * kEach) ++position;
    }
  });
  EXPECT_EQ(journal.next(), 3 * kEach);
  EXPECT_GT(read_whole.load(), 0U);
}

TEST_F(TheJournal, AnswersSomethingWhateverStandsInTheSegment) {
  std::uint64_t random = 1;
  const auto next = [&random] { return random = random * 6'364'136'223'846'793'005U + 1'442'695'040'888'963'407U; };
  for (int round = 0; round < 2'000; ++round) {
    for (Bits position = 0; position < kSize; ++position) {
      auto& cell = view.journal(position);
      StdEnv::store(cell.header, round % 2 == 0 ? JournalHeader::complete(position, 1).bits : next(), StdEnv::relaxed);
      for (auto& word : cell.words)
        StdEnv::store(word, next(), StdEnv::relaxed);
    }
    StdEnv::store(view.words().journal_next, round % 3 == 0 ? next() : kSize, StdEnv::relaxed);
    JournalEntry read;
    for (Bits position = 0; position < kSize; ++position)
      EXPECT_NE(journal.read(position, read), JournalRead::entry);
    journal.write(entry_of(1));
  }
}

TEST(JournalOfBreakers, TellsEachTransitionAndForcedStateWithItsNumber) {
  const TestSegment made({.breakers = 2, .participants = 8, .journal_entries = kSize, .epoch = Instant{}});
  FakeClock clock{Instant{Millis{5'000}}};
  auto opened = ShmStorage<FakeClock>::open(
      made.segment(), {.name = "b", .failure_threshold = {.failures = 1, .window = 1}}, OnMismatch::refuse, clock);
  ASSERT_TRUE(opened.has_value());
  const Token token = opened->admit().token;
  ASSERT_TRUE(opened->record_outcome(token, Outcome::failure).transition.has_value());
  ASSERT_TRUE(opened->force_state(CircuitState::closed).transition.has_value());
  ASSERT_FALSE(opened->force_state(CircuitState::closed).transition.has_value()) << "it was in effect already";
  const Journal<StdEnv> journal(made->view(), made->presence());
  ASSERT_EQ(journal.next(), 3U);
  const auto read = [&](Bits position) {
    JournalEntry entry;
    EXPECT_EQ(journal.read(position, entry), JournalRead::entry);
    EXPECT_EQ(entry.number, position + 1);
    EXPECT_EQ(entry.at, 5'000);
    EXPECT_EQ(entry.pid, static_cast<std::uint32_t>(::getpid()));
    return entry;
  };
  EXPECT_EQ(read(0).kind, EventKind::transition);
  EXPECT_EQ(read(0).reason, TransitionReason::failure_threshold_reached);
  EXPECT_EQ(read(0).to, CircuitState::open);
  EXPECT_EQ(read(1).kind, EventKind::forced);
  EXPECT_EQ(read(1).from, CircuitState::open);
  EXPECT_EQ(read(2).kind, EventKind::forced);
  EXPECT_EQ(read(2).from, CircuitState::closed);
  EXPECT_EQ(read(2).reason, TransitionReason::none) << "it was in effect already";
}

/// The word does not change, so only a wake-up can end the sleep.
TEST(Futex, WakesASleeperOfAnotherProcess) {
  const TestSegment made;
  auto& word = made->view().words().journal_wake;
  StdEnv::store(word, (Bits{7} << 32U) | 5, StdEnv::relaxed);
  test::Child sleeper = test::fork_child([&] { shm::sleep_on(&word, 5, Micros{std::chrono::hours{1}}); });
  EXPECT_TRUE(test::wait_until([&] {
    made->presence().wake(&word);
    return sleeper.ends_within(test::Watchdog{1});
  }));
  EXPECT_EQ(sleeper.wait(), test::exited(0));
}

TEST(Futex, DoesNotSleepOnAWordThatHasChangedNorLongerThanIsAllowed) {
  const TestSegment made;
  auto& word = made->view().words().journal_wake;
  StdEnv::store(word, 6, StdEnv::relaxed);
  test::expect_success_in_child([&] {
    shm::sleep_on(&word, 5, Micros{std::chrono::hours{1}});
    shm::sleep_on(&word, 6, Micros{10});
    shm::sleep_on(&word, 6, Micros{-10});
  });
}

TEST(JournalOfAReader, HoldsWhatTheRingHoldsInTheOrderOfEachBreaker) {
  const TestSegment made({.breakers = 4, .participants = 8, .journal_entries = kSize});
  const auto reader = SegmentReader::open(made.options());
  ASSERT_TRUE(reader.has_value());
  ASSERT_EQ(reader->journal()->size(), 0U);
  for (const char* name : {"a", "b"})
    ASSERT_TRUE(ShmStorage<>::open(made.segment(), {.name = name}).has_value());
  Journal<StdEnv> journal(made->view(), made->presence());
  for (std::uint64_t n = 1; n <= 10; ++n)
    journal.write({.breaker = 0, .number = n});
  for (const std::uint64_t n : {2U, 1U, 4U, 3U})
    journal.write({.breaker = 1, .number = n});
  for (const std::uint64_t n : {11U, 13U, 12U})
    journal.write({.breaker = 0, .number = n});
  journal.write({.breaker = 9, .number = 1});  // no such place
  const auto shown = [&](std::optional<std::uint32_t> place) {
    std::string text;
    const auto events = reader->journal(place);
    EXPECT_TRUE(events.has_value());
    for (const SegmentEvent& event : *events)
      text += event.breaker + std::to_string(event.number) + " ";
    return text;
  };
  EXPECT_EQ(shown(std::nullopt), "a3 a4 a5 a6 a7 a8 a9 a10 b1 b2 b3 b4 a11 a12 a13 ");
  EXPECT_EQ(shown(1), "b1 b2 b3 b4 ");
  EXPECT_EQ(shown(3), "");
  EXPECT_EQ(reader->info()->journal_next, 18U);
  // One whose writer has not got to its end, and one that somebody else has written into.
  auto& cell = made->view().journal(17);
  StdEnv::store(cell.header, JournalHeader::claimed(17, 2).bits, StdEnv::relaxed);
  auto& words = made->view().journal(16).words;
  StdEnv::store(words[journal_word::number], 99, StdEnv::relaxed);
  EXPECT_EQ(shown(0), "a3 a4 a5 a6 a7 a8 a9 a10 a11 a13 ");
}

TEST(JournalOfAReader, IsReadWhateverStandsThere) {
  const TestSegment made({.breakers = 4, .participants = 8, .journal_entries = kSize});
  const auto reader = SegmentReader::open(made.options());
  ASSERT_TRUE(reader.has_value());
  Journal<StdEnv> journal(made->view(), made->presence());
  for (std::uint64_t n = 1; n <= kSize; ++n)
    journal.write({.breaker = 0, .number = n});
  for (const Bits next : {Bits{0}, Bits{1}, ~Bits{0}, Bits{1} << 63U}) {
    StdEnv::store(made->view().words().journal_next, next, StdEnv::relaxed);
    EXPECT_TRUE(reader->journal().has_value());
  }
}

}  // namespace
}  // namespace shmcb::core
