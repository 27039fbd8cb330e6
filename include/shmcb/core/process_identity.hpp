// SPDX-License-Identifier: BSD-3-Clause
// Which process this is, as a random number that a forked child does not share. No locks; system calls at the first use
// in a process only. Works without exceptions and without RTTI.
#pragma once

#include <pthread.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

namespace shmcb::core {

/// The system calls behind a process identity; a parameter so that tests can make them fail.
struct IdentitySystem {
  /// A private page of zeros, or null.
  [[nodiscard]] static void* map_page() noexcept {
    void* page = ::mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return page == MAP_FAILED ? nullptr : page;
  }
  static void unmap_page(void* page) noexcept { ::munmap(page, kPageBytes); }
  /// Whether a child made by fork or raw clone will find the page zeroed (Linux 4.14).
  [[nodiscard]] static bool wipe_on_fork(void* page) noexcept {
    return ::madvise(page, kPageBytes, MADV_WIPEONFORK) == 0;
  }
  static void run_in_forked_child(void (*handler)()) noexcept { ::pthread_atfork(nullptr, nullptr, handler); }

  /// Never waits: in an early boot phase without entropy the time and the pid have to do.
  [[nodiscard]] static std::uint64_t random() noexcept {
    std::uint64_t bits = 0;
    if (::getrandom(&bits, sizeof bits, GRND_NONBLOCK) == ssize_t{sizeof bits}) return bits;
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    bits = (static_cast<std::uint64_t>(now.tv_sec) << 32U) ^ static_cast<std::uint64_t>(now.tv_nsec);
    bits ^= static_cast<std::uint64_t>(::getpid()) << 40U;
    bits = (bits ^ (bits >> 30U)) * 0xbf58476d1ce4e5b9U;  // the finalizer of splitmix64
    bits = (bits ^ (bits >> 27U)) * 0x94d049bb133111ebU;
    return bits ^ (bits >> 31U);
  }

 private:
  static constexpr std::size_t kPageBytes = 4096;  // rounded up by the kernel where pages are larger
};

/// The identity lives in a word that a fork sets to zero: by the kernel (a wiped page), else by a fork handler, which a
/// raw clone does not run. Visible from every shared object of the process: two copies of the word would be two
/// processes.
template <class System>
class __attribute__((visibility("default"))) ProcessIdentity {
 public:
  [[nodiscard, gnu::always_inline]] static std::uint64_t current() noexcept {
    // sync: identity-word: the word that is pointed to has been constructed.
    const Word& word = *published_word.load(std::memory_order_acquire);
    const std::uint64_t id = word.load(std::memory_order_relaxed);  // relaxed: the number is all there is
    if (id != 0) [[likely]] {
      return id;
    }
    return establish();
  }

 private:
  using Word = std::atomic<std::uint64_t>;
  static_assert(Word::is_always_lock_free, "a lock could be held by another thread at the moment of a fork");

  [[gnu::noinline]] static std::uint64_t establish() noexcept {
    // sync: identity-word: the word that is pointed to has been constructed.
    Word* word = published_word.load(std::memory_order_acquire);
    if (word == &unset_word) word = publish_word();
    std::uint64_t fresh = System::random();
    if (fresh == 0) fresh = 1;
    std::uint64_t found = 0;
    // relaxed: of the threads that race here one wins, and all use its number; nothing is published with it.
    const bool won = word->compare_exchange_strong(found, fresh, std::memory_order_relaxed, std::memory_order_relaxed);
    return won ? fresh : found;
  }

  static Word* publish_word() noexcept {
    void* page = System::map_page();
    Word* mine = page != nullptr ? ::new (page) Word{0} : &unmapped_word;
    // Before the word is published: no identity may be in it that a fork would leave there.
    if (page == nullptr || !System::wipe_on_fork(page)) System::run_in_forked_child(&forget);
    Word* found = &unset_word;
    // sync: identity-word: whoever loads the pointer finds the word constructed, and so does the loser of this race.
    if (published_word.compare_exchange_strong(found, mine, std::memory_order_acq_rel, std::memory_order_acquire))
      return mine;
    if (page != nullptr) System::unmap_page(page);  // nobody else has seen it
    return found;
  }

  static void forget() noexcept {
    // sync: identity-word: the word that is pointed to has been constructed.
    Word* word = published_word.load(std::memory_order_acquire);
    word->store(0, std::memory_order_relaxed);  // relaxed: a forked child has one thread
  }

  static inline constinit Word unset_word{0};     // always zero: leads the first caller to `establish`
  static inline constinit Word unmapped_word{0};  // used where no page is to be had
  static inline constinit std::atomic<Word*> published_word{&unset_word};
};

/// A nonzero random number that names this process: the same for all its threads until it ends, another one in a forked
/// child. Two loads and a branch; safe from any thread.
[[nodiscard, gnu::always_inline]] inline std::uint64_t current_process() noexcept {
  return ProcessIdentity<IdentitySystem>::current();
}

}  // namespace shmcb::core
