// SPDX-License-Identifier: BSD-3-Clause
#include "sigbus_guard.hpp"

#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace shmcb::shm {

namespace {

/// Read by the handler: nothing of it is ever freed, and its atomics are lock-free.
std::atomic<GuardedMapping*> g_mappings{nullptr};
struct sigaction g_previous;  ///< set before the handler is installed

static_assert(std::atomic<std::uintptr_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

/// The mapping that an address lies in, and where that begins and ends; null: none of ours.
struct Hit {
  GuardedMapping* mapping = nullptr;
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
};

Hit find(std::uintptr_t address) noexcept {
  // sync: guarded-list (acquire): the mapping's own link
  for (auto* m = g_mappings.load(std::memory_order_acquire); m != nullptr; m = m->next) {
    const std::uintptr_t begin = m->begin.load(std::memory_order_acquire);  // sync: guarded-mapping
    const std::size_t bytes = m->bytes.load(std::memory_order_acquire);     // sync: guarded-mapping
    // relaxed: behind the acquire load of the size: of another mapping's size, its beginning is seen here too
    const bool same = m->begin.load(std::memory_order_relaxed) == begin;
    if (same && begin != 0 && address - begin < bytes) return {m, begin, bytes};
  }
  return {};
}

/// Only calls that are plain system calls on Linux. The replacement takes the place of the mapping in one step: another
/// thread sees the one or the other, never a page of zeros, which would be a breaker that is closed. Threads that fault
/// together all do so; nothing that the segment holds by then is worth keeping.
bool replace(const Hit& hit) noexcept {
  void* made = ::mmap(nullptr, hit.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (made == MAP_FAILED) return false;
  std::fill_n(static_cast<std::uint64_t*>(made), hit.bytes / sizeof(std::uint64_t), kLostWord);
  hit.mapping->lost.store(true, std::memory_order_relaxed);  // relaxed: see SigbusGuard::lost
  void* place = reinterpret_cast<void*>(hit.begin);          // NOLINT(performance-no-int-to-ptr): a registered mapping
  if (::mremap(made, hit.bytes, hit.bytes, MREMAP_MAYMOVE | MREMAP_FIXED, place) == place) return true;
  ::munmap(made, hit.bytes);
  return false;
}

/// What would have happened without this handler.
void pass_on(int signal, siginfo_t* info, void* context) noexcept {
  if ((g_previous.sa_flags & SA_SIGINFO) != 0) return g_previous.sa_sigaction(signal, info, context);
  const bool sent = info->si_code <= 0;  // by a process; the kernel does not let a fault be ignored
  if (g_previous.sa_handler == SIG_IGN && sent) return;
  if (g_previous.sa_handler != SIG_IGN && g_previous.sa_handler != SIG_DFL) return g_previous.sa_handler(signal);
  struct sigaction by_default {};
  by_default.sa_handler = SIG_DFL;
  ::sigaction(signal, &by_default, nullptr);
  (void)::raise(signal);  // blocked until this handler returns
}

void on_sigbus(int signal, siginfo_t* info, void* context) noexcept {
  const int error = errno;
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  // BUS_ADRERR: beyond the end of a file. A memory error of the hardware is none of ours.
  const Hit hit = info->si_code == BUS_ADRERR ? find(address) : Hit{};
  if (hit.mapping == nullptr || !replace(hit)) pass_on(signal, info, context);
  errno = error;
}

/// Once a process, and never again: a handler that was installed over this one may call it.
int install() noexcept {
  if (::sigaction(SIGBUS, nullptr, &g_previous) != 0) return errno;
  struct sigaction ours {};
  ours.sa_sigaction = on_sigbus;
  ours.sa_mask = g_previous.sa_mask;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | (g_previous.sa_flags & (SA_RESTART | SA_NODEFER));
  return ::sigaction(SIGBUS, &ours, nullptr) == 0 ? 0 : errno;
}

/// A mapping that was let go of, else a new one.
GuardedMapping& claim() {
  constexpr std::uintptr_t kClaimed = 1;  // no mapping begins there; its size is 0
  for (auto* m = g_mappings.load(std::memory_order_acquire); m != nullptr; m = m->next) {  // sync: guarded-list
    std::uintptr_t free = 0;
    // relaxed on failure: then it is another's
    if (m->begin.compare_exchange_strong(free, kClaimed, std::memory_order_acquire, std::memory_order_relaxed)) {
      return *m;  // sync: guarded-mapping
    }
  }
  auto* made = new GuardedMapping;  // NOLINT(cppcoreguidelines-owning-memory): never freed, see g_mappings
  made->begin.store(kClaimed, std::memory_order_relaxed);   // relaxed: nobody else knows it yet
  made->next = g_mappings.load(std::memory_order_relaxed);  // relaxed here and on failure: only its value is used
  while (!g_mappings.compare_exchange_weak(made->next, made, std::memory_order_release, std::memory_order_relaxed)) {
  }  // sync: guarded-list (release): the link
  return *made;
}

}  // namespace

SigbusGuard::SigbusGuard(void* begin, std::size_t bytes) {
  static const int error = install();
  if (error != 0) throw std::system_error(error, std::generic_category(), "handling SIGBUS");
  mapping_ = &claim();
  mapping_->lost.store(false, std::memory_order_relaxed);   // relaxed: ours
  mapping_->bytes.store(bytes, std::memory_order_release);  // sync: guarded-mapping (release): that it was free
  mapping_->begin.store(reinterpret_cast<std::uintptr_t>(begin), std::memory_order_release);  // sync: guarded-mapping
}

SigbusGuard::~SigbusGuard() {
  if (mapping_ == nullptr) return;
  mapping_->bytes.store(0, std::memory_order_release);  // sync: guarded-mapping
  mapping_->begin.store(0, std::memory_order_release);  // sync: guarded-mapping (release): for who claims it
}

}  // namespace shmcb::shm
