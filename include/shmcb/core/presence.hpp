// SPDX-License-Identifier: BSD-3-Clause
// What one process is in one segment: its number, the ownerships it hands out, the spare records it keeps.
// Process-local memory; safe from any thread. A forked child is somebody else: `current` says so and `renew` makes it
// so.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "shmcb/core/process_identity.hpp"
#include "shmcb/core/words.hpp"

namespace shmcb::core {

class Presence {
 public:
  /// The number of a process that cannot be given one of its own: nobody ever proves it dead.
  static constexpr std::uint16_t kUnproven = 0xFFFF;

  /// How the process proves itself and asks about others. Both may make system calls; neither is called by admit or
  /// record unless this process has just been forked or what a dead process held has to be taken back.
  struct Kernel {
    virtual ~Kernel() = default;
    /// Gets this process (a forked child) a number of its own. False: not now.
    virtual bool renew(Presence& presence) noexcept = 0;
    /// Whether nobody can act any more as this incarnation of this number. In doubt no.
    virtual bool is_dead(const Presence& presence, std::uint16_t number, std::uint32_t incarnation) noexcept = 0;
    /// Whether nobody can act any more as any incarnation of this number. In doubt no.
    virtual bool is_unheld(const Presence& presence, std::uint16_t number) noexcept = 0;
    /// Wakes all processes that sleep on the futex `word`, the low half of a shared word. Only where somebody follows
    /// the journal.
    virtual void wake(const void* /*word*/) noexcept {}
  };

  explicit Presence(Kernel& kernel) noexcept : kernel_(&kernel) {}
  Presence(const Presence&) = delete;
  Presence& operator=(const Presence&) = delete;
  ~Presence() = default;

  /// Called at attach and by `Kernel::renew`, by one thread: from now on this process is `number`.
  void become(std::uint16_t number, std::uint32_t incarnation) noexcept {
    for (auto& spare : spares_)
      spare.store(0, std::memory_order_relaxed);  // a parent's spares stay the parent's
    identity_.store(OwnerWord::make(number, incarnation, 0).bits, std::memory_order_relaxed);
    pid_.store(static_cast<std::uint32_t>(::getpid()), std::memory_order_relaxed);
    // From a place of its own, so that processes that start together do not fight over the same records.
    next_record_.store(number * 2U, std::memory_order_relaxed);  // relaxed: any will do
    // sync: presence: who sees itself current sees its number and no spare of the parent's
    process_.store(current_process(), std::memory_order_release);
  }

  /// Whether the identity is this process's own; renews it after a fork. False: it could not be renewed now.
  [[nodiscard]] bool ensure_current() noexcept {
    // sync: presence (acquire)
    return process_.load(std::memory_order_acquire) == current_process() || kernel_->renew(*this);
  }

  /// Whether it needs no renewal. For display and tests.
  [[nodiscard]] bool current() const noexcept {
    return process_.load(std::memory_order_acquire) == current_process();  // sync: presence (acquire)
  }

  /// Relaxed here and below: ordered by the presence pair above.
  [[nodiscard]] std::uint16_t number() const noexcept {
    return OwnerWord{identity_.load(std::memory_order_relaxed)}.participant();
  }
  [[nodiscard]] std::uint32_t incarnation() const noexcept {
    return OwnerWord{identity_.load(std::memory_order_relaxed)}.incarnation();
  }

  [[nodiscard]] std::uint32_t pid() const noexcept { return pid_.load(std::memory_order_relaxed); }

  /// Whether an owner word is an ownership of this process's.
  [[nodiscard]] bool owns(OwnerWord owner) const noexcept {
    return !owner.free() && !owner.published() && owner.participant() == number() &&
           owner.incarnation() == incarnation();
  }

  /// A new ownership: no two of one process are the same value (until 2^23 later).
  [[nodiscard]] OwnerWord own() noexcept {
    // relaxed: only the counter itself matters
    return OwnerWord::make(number(), incarnation(), sequence_.fetch_add(1, std::memory_order_relaxed));
  }

  [[nodiscard]] bool is_dead(OwnerWord owner) noexcept {
    return kernel_->is_dead(*this, owner.participant(), owner.incarnation());
  }

  /// Whether whoever once had this number is dead, as far as can be told without knowing its incarnation.
  [[nodiscard]] bool is_unheld(std::uint16_t number) noexcept { return kernel_->is_unheld(*this, number); }
  void wake(const void* word) noexcept { kernel_->wake(word); }

  /// A spare record of this process, taken out; 0: none.
  [[nodiscard]] std::uint32_t take_spare() noexcept {
    for (auto& spare : spares_) {
      // sync: spare (acquire): who takes it sees what the thread that kept it did to it before
      if (const std::uint32_t record = spare.exchange(0, std::memory_order_acquire)) return record;
    }
    return 0;
  }

  /// Keeps a record that this process owns. False: there are enough already.
  [[nodiscard]] bool keep_spare(std::uint32_t record) noexcept {
    for (auto& spare : spares_) {
      std::uint32_t none = 0;
      // sync: spare (release)
      if (spare.compare_exchange_strong(none, record, std::memory_order_release, std::memory_order_relaxed))
        return true;
    }
    return false;
  }

  /// Where this process looks for a free record next: rotates, so that a claim does not walk over all that are taken.
  [[nodiscard]] std::uint32_t next_record() const noexcept {
    return next_record_.load(std::memory_order_relaxed);
  }  // relaxed: any will do
  void set_next_record(std::uint32_t index) noexcept { next_record_.store(index, std::memory_order_relaxed); }

  /// Where this process's counters go.
  [[nodiscard]] std::uint32_t lane(std::uint32_t lanes) const noexcept { return number() % lanes; }

 private:
  Kernel* kernel_;
  std::atomic<std::uint64_t> process_{0};
  std::atomic<std::uint64_t> identity_{0};
  std::atomic<std::uint32_t> pid_{0};
  std::atomic<std::uint32_t> sequence_{1};
  std::atomic<std::uint32_t> next_record_{0};
  std::atomic<std::uint32_t> spares_[2]{};
};

}  // namespace shmcb::core
