// SPDX-License-Identifier: BSD-3-Clause
#include "participants.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

#include "futex.hpp"

namespace shmcb::shm {

namespace {

using Env = core::StdEnv;

constexpr std::uint32_t kHighestNumber = 0xFFFE;

struct flock lock_of(std::uint16_t number, short type) noexcept {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = core::kLockBase + number;
  lock.l_len = 1;
  return lock;
}

/// Attached tables of this process, for the fork handlers only.
struct ForkList {
  std::mutex mutex;
  std::vector<Participants*> tables;
};

ForkList& fork_list() {
  // Never destroyed: a fork handler may run while the process is ending.
  static auto* list = [] {
    auto* made = new ForkList;  // NOLINT(cppcoreguidelines-owning-memory)
    ::pthread_atfork([] { fork_list().mutex.lock(); }, [] { fork_list().mutex.unlock(); },
                     [] {
                       for (Participants* table : fork_list().tables)
                         table->reopen_in_child();
                       fork_list().mutex.unlock();
                     });
    return made;
  }();
  return *list;
}

/// State and start time of a process, from its /proc/PID/stat; false: it is not there.
bool read_stat(const char* path, char& state, std::uint64_t& start_time) noexcept {
  const Fd fd{::open(path, O_RDONLY | O_CLOEXEC)};
  std::array<char, 1024> text{};
  if (!fd) return false;
  const ssize_t bytes = ::read(fd.get(), text.data(), text.size() - 1);
  if (bytes <= 0) return false;
  // The command in parentheses may hold anything, so what follows is counted from the last one: state is the first
  // field.
  const char* field = std::strrchr(text.data(), ')');
  if (field == nullptr || field[1] != ' ') return false;
  field += 2;
  state = *field;
  constexpr int kFieldsToStartTime = 19;  // proc(5): state is field 3, starttime field 22
  for (int i = 0; i < kFieldsToStartTime; ++i) {
    field = std::strchr(field, ' ');
    if (field == nullptr) return false;
    ++field;
  }
  start_time = std::strtoull(field, nullptr, 10);
  return true;
}

ProcessSeen read_entry(const core::ParticipantEntry<Env>& entry) noexcept {
  // relaxed: display and a comparison that errs towards "alive"
  const std::uint64_t pid = Env::load(entry.pid, Env::relaxed);
  return {.pid = static_cast<std::uint32_t>(pid & core::low_bits(32)),
          .pid_namespace = static_cast<std::uint32_t>(pid >> 32U),
          .start_time = Env::load(entry.start_time, Env::relaxed)};
}

}  // namespace

ProcessSeen describe_self() noexcept {
  // Asked once in a thread of a process: none of it changes while the process lives. A forked child is somebody else.
  thread_local ProcessSeen self;
  thread_local std::uint64_t asked_by = 0;
  if (asked_by == core::current_process()) return self;
  ProcessSeen seen{.pid = static_cast<std::uint32_t>(::getpid())};
  seen.pid_namespace = static_cast<std::uint32_t>(namespace_of("/proc/self/ns/pid"));
  char state = 0;
  // Not by the pid: where /proc is another pid namespace's, that is a stranger.
  if (read_stat("/proc/self/stat", state, seen.start_time) && seen.pid_namespace != 0) {  // else /proc may come later
    self = seen;
    asked_by = core::current_process();
  }
  return seen;
}

bool may_live(const ProcessSeen& seen) noexcept {
  // Where /proc hides the processes of others, or is not there, a pid that exists is taken for that process.
  if (seen.pid == 0 || (::kill(static_cast<pid_t>(seen.pid), 0) != 0 && errno == ESRCH)) return false;
  char state = 0;
  std::uint64_t start_time = 0;
  std::array<char, 64> path{};
  (void)std::snprintf(path.data(), path.size(), "/proc/%u/stat", seen.pid);
  if (!read_stat(path.data(), state, start_time)) return true;
  return state != 'Z' && state != 'X' && start_time == seen.start_time;
}

bool is_locked(int fd, std::uint16_t number) noexcept {
  struct flock lock = lock_of(number, F_WRLCK);
  // When the question cannot be asked, nobody is declared dead.
  return ::fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

Participants::Participants(Fd fd, FileIdentity identity, std::string path, const View& view)
    : fd_(fd.release()),
      fd_process_(core::current_process()),
      identity_(identity),
      path_(std::move(path)),
      view_(&view) {
  ForkList& list = fork_list();
  const std::lock_guard guard(list.mutex);  // no fork until the descriptor is known to the handlers
  list.tables.push_back(this);
  // The segment is mapped from the descriptor that came in, and a mapping keeps its open file and the locks of it, in
  // forked children too: a dead parent would count as alive as long as they live. So the lock gets an open file of its
  // own.
  const int mapped = fd_.load(std::memory_order_relaxed);  // relaxed: nobody else has this object yet
  int fresh = open_by_name();
  led_here_ = fresh >= 0 || shm::identity_of(path_) == identity_;
  if (fresh < 0) fresh = open_through(mapped);
  if (fresh < 0) return;  // neither /proc nor the name: better that lock than none
  ::close(mapped);
  fd_.store(fresh, std::memory_order_relaxed);  // relaxed: as above
}

Participants::~Participants() {
  {
    ForkList& list = fork_list();
    const std::lock_guard guard(list.mutex);
    std::erase(list.tables, this);
  }
  // A program that closes all descriptors may have given the number to a file of its own.
  const int fd = fd_.load(std::memory_order_relaxed);  // relaxed: the last user of this object
  if (fd >= 0 && is_ours(fd)) ::close(fd);
}

// relaxed throughout: the descriptor is changed by the thread that renews, under `renewing_`, or in a child with one
// thread.
void Participants::reopen_in_child() noexcept {
  (void)reopen();
  fd_process_.store(core::current_process(), std::memory_order_relaxed);
}

/// The same file under a descriptor above 2, if it is this segment; else closes it: -1.
int Participants::checked(int opened) const noexcept {
  const int fresh = above_standard_streams(opened);
  if (fresh < 0 || identity_of(fresh) == identity_) return fresh;
  ::close(fresh);
  return -1;
}

/// Another open file of the segment, if the name still leads there. Cheaper than through /proc, which may not be there.
int Participants::open_by_name() const noexcept {
  return checked(::open(path_.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
}

/// Another open file of the segment, from a descriptor of it.
int Participants::open_through(int ours) const noexcept {
  std::array<char, 64> link{};
  (void)std::snprintf(link.data(), link.size(), "/proc/self/fd/%d", ours);
  return checked(::open(link.data(), O_RDWR | O_CLOEXEC));
}

/// Replaces the descriptor by one with an open file of its own. The old one is closed in any case.
bool Participants::reopen() noexcept {
  int old = fd_.load(std::memory_order_relaxed);
  if (old >= 0 && !(identity_of(old) == identity_)) old = -1;  // closed, and perhaps somebody else's by now
  int fresh = open_by_name();
  if (fresh < 0 && old >= 0) fresh = open_through(old);
  if (old >= 0) ::close(old);
  fd_.store(fresh, std::memory_order_relaxed);
  return fresh >= 0;
}

bool Participants::own_descriptor() noexcept {
  const int fd = fd_.load(std::memory_order_relaxed);
  return fd >= 0 && fd_process_.load(std::memory_order_relaxed) == core::current_process() && is_ours(fd);
}

bool Participants::is_ours(int fd) noexcept {
  // relaxed: set and taken by the thread that attaches, or by the one that lets go last
  return just_seen_.exchange(false, std::memory_order_relaxed) || identity_of(fd) == identity_;
}

bool Participants::renew(core::Presence& presence) noexcept {
  constexpr int kPatience =
      10'000;  // arbitrary: an acquire takes microseconds; a signal handler that interrupted it waits in vain
  const std::uint64_t self = core::current_process();
  std::uint64_t found = 0;
  // sync: renewing. What a parent was doing when it forked this child is not going on here.
  for (int i = 0;
       !renewing_.compare_exchange_strong(found, self, std::memory_order_acquire, std::memory_order_relaxed);) {
    if (found != self) continue;
    if (++i == kPatience) return false;
    found = 0;
    ::sched_yield();
  }
  if (!presence.current() && !acquire(presence)) {
    // No lock is to be had (the file cannot be opened again, no descriptor is free): nobody will ever prove this
    // process dead, so what a thread of it is just filling when it dies stays lost.
    presence.become(core::Presence::kUnproven, static_cast<std::uint32_t>(core::IdentitySystem::random() >> 40U) | 1U);
  }
  renewing_.store(0, std::memory_order_release);  // sync: renewing
  return true;
}

bool Participants::acquire(core::Presence& presence) noexcept {
  if (!own_descriptor()) {  // a raw clone ran no fork handler, or somebody closed it
    if (!reopen()) return false;
    fd_process_.store(core::current_process(), std::memory_order_relaxed);
  }
  const std::uint32_t entries = view_->geometry().participants;
  for (const bool never_left_in_order : {false, true}) {
    for (std::uint32_t n = 0; n < entries; ++n) {
      const auto number = static_cast<std::uint16_t>(n);
      const bool in_use = Env::load(view_->participant(n)->process, Env::relaxed) != 0;  // relaxed: the lock decides
      if (in_use == never_left_in_order && take_entry(presence, number)) return true;
    }
  }
  return take_number_beyond_table(presence);
}

bool Participants::take_entry(core::Presence& presence, std::uint16_t number) noexcept {
  if (!lock(number)) return false;
  auto& entry = *view_->participant(number);
  const ProcessSeen self = describe_self();
  if (Env::load(entry.process, Env::relaxed) !=
      0) {  // relaxed: written before its owner's lock was released by the kernel
    const ProcessSeen last = read_entry(entry);
    // Its lock is gone, but a process that closed all its descriptors is still alive.
    if (last.pid_namespace == self.pid_namespace && may_live(last)) {
      unlock(number);
      return false;
    }
  }
  const std::uint64_t old = Env::load(entry.incarnation, Env::relaxed);  // relaxed: the lock orders those who hold it
  const std::uint64_t incarnation = std::max<std::uint64_t>((old + 1) & core::low_bits(24), 1);
  // sync: incarnation (release): who sees it knows that the owner before is dead
  Env::store(entry.incarnation, incarnation, Env::release);
  Env::store(entry.pid, (std::uint64_t{self.pid_namespace} << 32U) | self.pid,
             Env::relaxed);  // relaxed: see read_entry
  Env::store(entry.start_time, self.start_time, Env::relaxed);
  Env::store(entry.process, core::current_process(), Env::relaxed);
  presence.become(number, static_cast<std::uint32_t>(incarnation));
  return true;
}

bool Participants::take_number_beyond_table(core::Presence& presence) noexcept {
  constexpr int kTries = 256;  // arbitrary: of more than 32,000 numbers, so a failure means that nearly all are taken
  const std::uint32_t first = view_->geometry().participants;
  for (int i = 0; i < kTries; ++i) {
    const std::uint64_t random = core::IdentitySystem::random();
    const auto number = static_cast<std::uint16_t>(first + random % (kHighestNumber - first + 1));
    if (!lock(number)) continue;
    presence.become(number, static_cast<std::uint32_t>(random >> 40U) | 1U);
    return true;
  }
  return false;
}

bool Participants::lock(std::uint16_t number) noexcept {
  struct flock lock = lock_of(number, F_WRLCK);
  return ::fcntl(fd_.load(std::memory_order_relaxed), F_OFD_SETLK, &lock) == 0;
}

void Participants::unlock(std::uint16_t number) noexcept {
  struct flock lock = lock_of(number, F_UNLCK);
  (void)::fcntl(fd_.load(std::memory_order_relaxed), F_OFD_SETLK, &lock);
}

bool Participants::is_dead(const core::Presence& presence, std::uint16_t number, std::uint32_t incarnation) noexcept {
  if (number > kHighestNumber || !presence.current() || !own_descriptor()) return false;
  if (number == presence.number()) return incarnation != presence.incarnation();
  const auto* entry = view_->participant(number);
  if (entry != nullptr && Env::load(entry->incarnation, Env::acquire) != incarnation) return true;  // sync: incarnation
  return is_unheld(presence, number);
}

bool Participants::is_unheld(const core::Presence& presence, std::uint16_t number) noexcept {
  if (number > kHighestNumber || number == presence.number() || !presence.current() || !own_descriptor()) return false;
  const auto* entry = view_->participant(number);
  if (entry == nullptr) return !is_locked(fd_.load(std::memory_order_relaxed), number);
  if (is_locked(fd_.load(std::memory_order_relaxed), number)) return false;
  if (Env::load(entry->process, Env::relaxed) == 0)
    return true;  // relaxed: left in order, before it let go of the lock
  const ProcessSeen last = read_entry(*entry);
  return last.pid_namespace != describe_self().pid_namespace || !may_live(last);
}

void Participants::wake(const void* word) noexcept {
  wake_sleepers(word);
}

void Participants::leave(core::Presence& presence) noexcept {
  if (!presence.current() || !own_descriptor()) return;
  while (const std::uint32_t spare = presence.take_spare()) {
    auto* record = view_->record(spare);
    if (record == nullptr) continue;
    const core::OwnerWord mine{Env::load(record->owner, Env::relaxed)};            // relaxed: our own word
    if (presence.owns(mine)) Env::cas(record->owner, mine.bits, 0, Env::acq_rel);  // sync: record-owner
  }
  if (auto* entry = view_->participant(presence.number()))
    Env::store(entry->process, 0, Env::relaxed);  // relaxed: a hint
  unlock(presence.number());
  just_seen_.store(true, std::memory_order_relaxed);  // relaxed: for the destructor
}

}  // namespace shmcb::shm
