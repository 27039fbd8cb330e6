// SPDX-License-Identifier: BSD-3-Clause
// Somebody cuts the file of a segment short while processes have it mapped: without the guard of SIGBUS they die of it,
// with it every operation answers an error from then on, and what stands in for the segment takes over.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "shmcb/breaker_group.hpp"
#include "shmcb/failure.hpp"
#include "shmcb/fallback_storage.hpp"
#include "shmcb/memory_storage.hpp"
#include "shmcb/segment_observer.hpp"
#include "shmcb/shm_storage.hpp"
#include "support/processes.hpp"
#include "support/test_segment.hpp"
#include "support/threads.hpp"

namespace shmcb::test {
namespace {

const BreakerConfig kConfig{.name = "b", .failure_threshold = {.failures = 3, .window = 10}};

class Truncated : public ::testing::Test {
 protected:
  Truncated() { made.detach(); }

  [[nodiscard]] Segment guarded() const {
    SegmentOptions options = made.options();
    options.sigbus_guard = true;
    return Segment::attach(options).value();
  }
  void cut(std::uint64_t bytes = 0) const { ASSERT_EQ(::truncate(made.path().c_str(), static_cast<off_t>(bytes)), 0); }

  TestSegment made{{.breakers = 4, .participants = 16}};
  const core::Geometry geometry = made.attach().geometry();
};

/// In a child that is to die of SIGBUS: nobody else has to do with it, and no core is written.
void die_by_sigbus() {
  const rlimit none{};
  ::setrlimit(RLIMIT_CORE, &none);
  ::signal(SIGBUS, SIG_DFL);  // not a sanitizer's
}

/// A page of a file that ends before it.
class BrokenPage {
 public:
  BrokenPage() {
    const int fd = ::memfd_create("broken", MFD_CLOEXEC);
    page_ = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ::close(fd);
    if (page_ == MAP_FAILED) throw std::runtime_error("mmap");
  }
  void touch() const { *static_cast<volatile char*>(page_) = 1; }
  /// What a handler does that wants the access to go on.
  void mend() const { ::mmap(page_, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0); }
  [[nodiscard]] void* address() const { return page_; }

 private:
  void* page_;
};

void trip(ShmStorage<>& breaker) {
  for (int i = 0; i < 3; ++i)
    (void)breaker.record_outcome(breaker.admit().token, Outcome::failure);
}

TEST_F(Truncated, WithoutTheGuardEndsTheProcess) {
  EXPECT_EQ(run_in_child([&] {
              die_by_sigbus();
              const Segment segment = made.attach();
              ShmStorage<> breaker = ShmStorage<>::open(segment, kConfig).value();
              cut();
              (void)breaker.admit();
            }),
            killed_by(SIGBUS));
}

TEST_F(Truncated, WithoutTheGuardNoHandlerIsInstalled) {
  expect_success_in_child([&] {
    struct sigaction before {};
    struct sigaction after {};
    ::sigaction(SIGBUS, nullptr, &before);
    const Segment segment = made.attach();
    ShmStorage<> breaker = ShmStorage<>::open(segment, kConfig).value();
    trip(breaker);
    ::sigaction(SIGBUS, nullptr, &after);
    EXPECT_EQ(after.sa_handler, before.sa_handler);
    EXPECT_EQ(after.sa_flags, before.sa_flags);
  });
}

TEST_F(Truncated, GivesEveryOperationAnErrorFromTheFirstOn) {
  const std::vector<std::function<Errc(ShmStorage<>&, Token)>> operations{
      [](ShmStorage<>& b, Token) { return b.admit().error; },
      [](ShmStorage<>& b, Token t) { return b.record_outcome(t, Outcome::success).error; },
      [](ShmStorage<>& b, Token t) { return b.record_outcome(t, Outcome::failure).error; },
      [](ShmStorage<>& b, Token t) { return b.record_outcome(t, Outcome::ignored).error; },
      [](ShmStorage<>& b, Token t) { return b.abandon(t).error; },
      [](ShmStorage<>& b, Token) { return b.force_state(CircuitState::open).error; },
      [](ShmStorage<>& b, Token) { return b.set_mode({.mode = Mode::forced_open}).error; },
      [](ShmStorage<>& b, Token) { return b.snapshot().error; },
      [](ShmStorage<>& b, Token) { return b.counters().error; },
      [](ShmStorage<>& b, Token) { return b.peek().error; },
      [](ShmStorage<>& b, Token) { return ShmStorage<>::open(b.segment(), kConfig).error().code; },
      [](ShmStorage<>& b, Token) { return ShmStorage<>::open(b.segment(), {.name = "another"}).error().code; },
      [](ShmStorage<>& b, Token) { return BreakerGroup<>::open(b.segment(), {.name = "group"}).error().code; },
  };
  for (std::size_t first = 0; first < operations.size(); ++first) {
    TestSegment fresh{{.breakers = 4, .participants = 4}};
    fresh.detach();
    expect_success_in_child([&] {
      SegmentOptions options = fresh.options();
      options.sigbus_guard = true;
      const Segment segment = Segment::attach(options).value();
      ShmStorage<> breaker = ShmStorage<>::open(segment, kConfig).value();
      const Token token = breaker.admit().token;
      EXPECT_EQ(segment.status(), SegmentStatus::current);
      ASSERT_EQ(::truncate(fresh.path().c_str(), 0), 0);
      EXPECT_EQ(to_string(operations[first](breaker, token)), "truncated") << "operation " << first << ", the first";
      EXPECT_TRUE(segment.lost());
      EXPECT_EQ(segment.status(), SegmentStatus::lost);
      for (int round = 0; round < 2; ++round) {
        for (std::size_t i = 0; i < operations.size(); ++i)
          EXPECT_EQ(to_string(operations[i](breaker, token)), "truncated") << "operation " << i;
      }
      EXPECT_EQ(Segment::attach(options).error().code, Errc::truncated) << "the file itself is refused";
    });
  }
}

TEST_F(Truncated, AtAnySizeIsNoticedByTheNextTransitionAtTheLatest) {
  for (const std::uint64_t size : {std::uint64_t{1}, std::uint64_t{4096}, geometry.index_offset,
                                   geometry.breakers_offset, geometry.breakers_offset + 4096, geometry.records_offset,
                                   geometry.records_offset + 4096, geometry.rings_offset, geometry.journal_offset}) {
    TestSegment fresh{{.breakers = 4, .participants = 16}};
    fresh.detach();
    expect_success_in_child([&] {
      SegmentOptions options = fresh.options();
      options.sigbus_guard = true;
      const Segment segment = Segment::attach(options).value();
      ShmStorage<> breaker = ShmStorage<>::open(segment, kConfig).value();
      ASSERT_EQ(::truncate(fresh.path().c_str(), static_cast<off_t>(size)), 0);
      trip(breaker);
      EXPECT_TRUE(segment.lost()) << "cut to " << size;
      EXPECT_EQ(to_string(breaker.admit().error), "truncated") << "cut to " << size;
    });
  }
}

TEST_F(Truncated, LeavesTheDecisionToWhatStandsIn) {
  expect_success_in_child([&] {
    const Segment segment = guarded();
    FallbackStorage storage{ShmStorage<>::open(segment, kConfig), MemoryStorage<>::open(kConfig).value(),
                            OnUnusable::local};
    const Token before = storage.admit().token;
    EXPECT_FALSE(storage.degraded());
    cut();
    EXPECT_EQ(storage.record_outcome(before, Outcome::success).error, Errc::truncated) << "nobody else can count it";
    for (int i = 0; i < 3; ++i) {
      const AdmitResult entry = storage.admit();
      ASSERT_EQ(entry.error, Errc::ok);
      ASSERT_EQ(entry.admission, Admission::allowed);
      EXPECT_EQ(storage.record_outcome(entry.token, Outcome::failure).status, RecordStatus::counted);
    }
    EXPECT_EQ(storage.admit().admission, Admission::rejected) << "the local breaker has opened";
    EXPECT_TRUE(storage.degraded());
  });
}

TEST_F(Truncated, UnderManyProcessesAndThreadsKillsNone) {
  struct Shared {
    std::atomic<std::uint32_t> working{0};
    std::atomic<std::uint32_t> lost{0};
  };
  constexpr std::uint32_t kProcesses = 4;
  constexpr std::uint32_t kThreads = 3;
  for (const std::uint64_t size : {std::uint64_t{0}, geometry.breakers_offset, geometry.rings_offset}) {
    TestSegment fresh{{.breakers = 4, .participants = 16}};
    fresh.detach();
    const SharedArea<Shared> shared;
    std::vector<Child> children;
    for (std::uint32_t i = 0; i < kProcesses; ++i) {
      children.push_back(fork_child([&] {
        SegmentOptions options = fresh.options();
        options.sigbus_guard = true;
        const Segment segment = Segment::attach(options).value();
        std::atomic<bool> failed{false};
        run_threads(kThreads, [&](std::size_t thread) {
          FallbackStorage storage{ShmStorage<>::open(segment, kConfig), MemoryStorage<>::open(kConfig).value(),
                                  OnUnusable::local};
          shared->working.fetch_add(1);
          const bool noticed = wait_until([&] {
            const AdmitResult entry = storage.admit();
            if (entry.error != Errc::ok) failed = true;
            const RecordResult recorded =
                storage.record_outcome(entry.token, thread == 0 ? Outcome::failure : Outcome::success);
            if (recorded.error != Errc::ok && recorded.error != Errc::truncated && !segment.lost()) failed = true;
            if (thread == 1) (void)storage.force_state(CircuitState::closed);
            return segment.lost() && storage.degraded();
          });
          if (!noticed) failed = true;
        });
        EXPECT_FALSE(failed);
        shared->lost.fetch_add(segment.lost() ? 1U : 0U);
      }));
    }
    ASSERT_TRUE(wait_until([&] { return shared->working.load() == kProcesses * kThreads; }));
    ASSERT_EQ(::truncate(fresh.path().c_str(), static_cast<off_t>(size)), 0);
    for (Child& child : children)
      EXPECT_EQ(child.wait(), exited(0)) << "cut to " << size;
    EXPECT_EQ(shared->lost.load(), kProcesses);
  }
}

TEST_F(Truncated, IsTheErrorOfTheSegmentThatItHappensToAndOfNoOther) {
  expect_success_in_child([&] {
    TestSegment other;
    other.detach();
    SegmentOptions options = other.options();
    options.sigbus_guard = true;
    const Segment segment = guarded();
    const Segment unhurt = Segment::attach(options).value();
    ShmStorage<> breaker = ShmStorage<>::open(segment, kConfig).value();
    ShmStorage<> unhurt_breaker = ShmStorage<>::open(unhurt, kConfig).value();
    cut();
    EXPECT_EQ(breaker.admit().error, Errc::truncated);
    EXPECT_EQ(unhurt_breaker.admit().error, Errc::ok);
    trip(unhurt_breaker);
    EXPECT_EQ(unhurt_breaker.peek().state, CircuitState::open);
    EXPECT_FALSE(unhurt.lost());
    ASSERT_EQ(::truncate(other.path().c_str(), 0), 0);
    EXPECT_EQ(unhurt_breaker.admit().error, Errc::truncated);
  });
}

TEST_F(Truncated, IsSurvivedByForkedChildrenAndBySegmentsThatComeAfterwards) {
  expect_success_in_child([&] {
    const Segment segment = guarded();
    ShmStorage<> breaker = ShmStorage<>::open(segment, kConfig).value();
    Child before = fork_child([&] {
      EXPECT_TRUE(wait_until([&] { return breaker.admit().error == Errc::truncated; }));
      EXPECT_EQ(breaker.force_state(CircuitState::open).error, Errc::truncated);
    });
    cut();
    EXPECT_EQ(before.wait(), exited(0));
    EXPECT_EQ(breaker.admit().error, Errc::truncated);
    expect_success_in_child([&] { EXPECT_EQ(breaker.force_state(CircuitState::open).error, Errc::truncated); });

    ASSERT_FALSE(Segment::remove(made.options()));
    SegmentOptions options = made.options();
    options.sigbus_guard = true;
    const Segment next = Segment::open(options).value();
    ShmStorage<> replacing = ShmStorage<>::open(next, kConfig).value();
    trip(replacing);
    EXPECT_EQ(replacing.peek().state, CircuitState::open);
    EXPECT_EQ(next.status(), SegmentStatus::current);
    EXPECT_EQ(segment.status(), SegmentStatus::lost);
    cut();
    EXPECT_EQ(replacing.admit().error, Errc::truncated);
  });
}

TEST_F(Truncated, IsTheErrorOfGroupsToo) {
  expect_success_in_child([&] {
    const Segment segment = guarded();
    auto group = BreakerGroup<>::open(segment, {.name = "g", .breaker = kConfig, .limit = 3}).value();
    auto member = group.breaker("m").value();
    const Token token = member.admit().token;
    cut();
    EXPECT_EQ(member.record_outcome(token, Outcome::success).error, Errc::truncated);
    EXPECT_EQ(member.admit().error, Errc::truncated);
    EXPECT_EQ(member.force_state(CircuitState::open).error, Errc::truncated);
    EXPECT_EQ(member.snapshot().error, Errc::truncated);
    EXPECT_EQ(member.peek().error, Errc::truncated);
    EXPECT_EQ(group.breaker("n").error().code, Errc::truncated);
    EXPECT_FALSE((BreakerGroup<>::open(segment, {.name = "h", .breaker = kConfig, .limit = 3})));
  });
}

TEST_F(Truncated, EndsNoFollowerOfTheJournal) {
  expect_success_in_child([&] {
    const Segment segment = guarded();
    auto follower = SegmentObserver::open(segment).value();
    ShmStorage<> breaker = ShmStorage<>::open(segment, kConfig).value();
    trip(breaker);
    int seen = 0;
    EXPECT_EQ(follower.poll([&](const SegmentEvent&) { ++seen; }), 1U);
    cut();
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(follower.wait(Millis{20}, [&](const SegmentEvent&) { ++seen; }), 0U);
    EXPECT_EQ(seen, 1);
    EXPECT_TRUE(segment.lost()) << "which is how it can be told";
  });
}

// ---- the signals of others ------------------------------------------------------------------------------------------

struct Caught {
  const BrokenPage* page = nullptr;
  int times = 0;
  void* address = nullptr;
};
Caught g_caught;

void catch_with_information(int, siginfo_t* info, void* context) {
  if (context == nullptr) return;
  ++g_caught.times;
  g_caught.address = info->si_addr;
  if (info->si_code > 0) g_caught.page->mend();
}
void catch_plainly(int) {
  ++g_caught.times;
  g_caught.page->mend();
}

class ForeignSigbus : public Truncated {
 protected:
  /// In a child with a guarded segment, after `prepare`: the guard chains to what that has set.
  template <class Prepare, class Work>
  [[nodiscard]] Ended in_guarded_child(Prepare prepare, Work work) {
    TestSegment fresh;
    fresh.detach();
    return run_in_child([&] {
      die_by_sigbus();
      const BrokenPage page;
      g_caught = {.page = &page};
      prepare();
      SegmentOptions options = fresh.options();
      options.sigbus_guard = true;
      const Segment segment = Segment::attach(options).value();
      ShmStorage<> breaker = ShmStorage<>::open(segment, kConfig).value();
      work(page, breaker);
      EXPECT_FALSE(segment.lost());
      ASSERT_EQ(::truncate(fresh.path().c_str(), 0), 0);
      EXPECT_EQ(breaker.admit().error, Errc::truncated) << "the guard is still there";
    });
  }
  static void handle(void (*handler)(int, siginfo_t*, void*)) {
    struct sigaction action {};
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO;
    ASSERT_EQ(::sigaction(SIGBUS, &action, nullptr), 0);
  }
};

TEST_F(ForeignSigbus, KillsAsBeforeWhereNobodyHandlesIt) {
  EXPECT_EQ(in_guarded_child([] {}, [](const BrokenPage& page, ShmStorage<>&) { page.touch(); }), killed_by(SIGBUS));
  EXPECT_EQ(in_guarded_child([] {}, [](const BrokenPage&, ShmStorage<>&) { ::raise(SIGBUS); }), killed_by(SIGBUS));
}

TEST_F(ForeignSigbus, ReachesTheHandlerThatWasThereBefore) {
  EXPECT_EQ(in_guarded_child([] { handle(catch_with_information); },
                             [](const BrokenPage& page, ShmStorage<>&) {
                               page.touch();
                               EXPECT_EQ(g_caught.times, 1);
                               EXPECT_EQ(g_caught.address, page.address());
                               ::raise(SIGBUS);
                               EXPECT_EQ(g_caught.times, 2);
                             }),
            exited(0));
  EXPECT_EQ(in_guarded_child([] { ::signal(SIGBUS, catch_plainly); },
                             [](const BrokenPage& page, ShmStorage<>&) {
                               page.touch();
                               EXPECT_EQ(g_caught.times, 1);
                             }),
            exited(0));
}

TEST_F(ForeignSigbus, IsIgnoredWhereItWasIfAProcessSentIt) {
  const auto ignore = [] { ::signal(SIGBUS, SIG_IGN); };
  EXPECT_EQ(in_guarded_child(ignore, [](const BrokenPage&, ShmStorage<>&) { ::raise(SIGBUS); }), exited(0));
  EXPECT_EQ(in_guarded_child(ignore, [](const BrokenPage& page, ShmStorage<>&) { page.touch(); }), killed_by(SIGBUS))
      << "the kernel lets nobody ignore a fault";
}

TEST_F(ForeignSigbus, IsForeignWhereASegmentWasThatIsGone) {
  EXPECT_EQ(run_in_child([&] {
              die_by_sigbus();
              void* place = nullptr;
              {
                const Segment segment = guarded();
                place = &segment.view().words();
              }
              // The same addresses, as another's.
              place = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(place) & ~std::uintptr_t{4095});
              const int fd = ::memfd_create("broken", MFD_CLOEXEC);
              if (::mmap(place, 4096, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) return 1;
              return static_cast<int>(*static_cast<volatile char*>(place));
            }),
            killed_by(SIGBUS));
}

TEST_F(ForeignSigbus, OnAStackOfItsOwnWorksToo) {
  expect_success_in_child([&] {
    std::vector<char> memory(64 * 1024);
    const stack_t stack{.ss_sp = memory.data(), .ss_flags = 0, .ss_size = memory.size()};
    ASSERT_EQ(::sigaltstack(&stack, nullptr), 0);
    const Segment segment = guarded();
    ShmStorage<> breaker = ShmStorage<>::open(segment, kConfig).value();
    std::fill(memory.begin(), memory.end(), 'x');
    cut();
    EXPECT_EQ(breaker.admit().error, Errc::truncated);
    EXPECT_TRUE(std::any_of(memory.begin(), memory.end(), [](char c) { return c != 'x'; })) << "the handler ran there";
  });
}

}  // namespace
}  // namespace shmcb::test
