// SPDX-License-Identifier: BSD-3-Clause
// The contenders: shmcb's storages, and what one would write instead. Each is the place of `breakers` alike breakers,
// made by the first process of a launch; `open` gives the calling process its handle of one of them.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "locked_storage.hpp"
#include "measured.hpp"
#include "shmcb/memory_storage.hpp"
#include "shmcb/segment.hpp"
#include "shmcb/shm_storage.hpp"

namespace shmcb::bench {

/// In memory of one process.
template <class S>
class InOneProcess {
 public:
  static constexpr bool kShared = false;
  using Storage = S;

  [[nodiscard]] Storage open(unsigned breaker = 0) const { return storages_[breaker]; }

 protected:
  std::vector<Storage> storages_{};
};

template <Clock C>
class InMemory : public InOneProcess<MemoryStorage<C>> {
 public:
  static constexpr const char* kName = "memory";
  explicit InMemory(const BreakerConfig& config, unsigned breakers = 1) {
    for (unsigned i = 0; i < breakers; ++i)
      this->storages_.push_back(require(MemoryStorage<C>::open(config)));
  }
};

/// Under a mutex. `kShared`: whether that works between processes.
template <class Mutex, Clock C>
class UnderMutex : public InOneProcess<LockedStorage<Mutex, C>> {
 public:
  static constexpr const char* kName = Mutex::kName;
  static constexpr bool kShared = Mutex::kShared;
  explicit UnderMutex(const BreakerConfig& config, unsigned breakers = 1) {
    for (unsigned i = 0; i < breakers; ++i)
      this->storages_.emplace_back(config);
  }
};

/// The breakers' settings as they are. Another one makes a contender of its own: see InSharedMemory.
struct Exact {
  static constexpr const char* kName = "shared memory";
  static void apply(BreakerConfig& /*config*/) {}
};

struct Lean {
  static constexpr const char* kName = "shared memory, lean";
  static void apply(BreakerConfig& config) { config.accounting = Accounting::lean; }
};

template <Clock C, class Setting = Exact>
class InSharedMemory {
 public:
  static constexpr const char* kName = Setting::kName;
  static constexpr bool kShared = true;
  using Storage = ShmStorage<C>;

  explicit InSharedMemory(BreakerConfig config, unsigned breakers = 1) : config_(std::move(config)) {
    Setting::apply(config_);
    options_ = {.name = "bench-" + std::to_string(::getpid()),
                .breakers = breakers,
                .ring_slots = std::uint64_t{breakers} * core::ring_capacity(config_.failure_threshold.window),
                .participants = 256,
                .prefault = true};
    (void)require(Segment::create(options_));
  }
  InSharedMemory(const InSharedMemory&) = delete;
  InSharedMemory& operator=(const InSharedMemory&) = delete;
  ~InSharedMemory() { (void)Segment::remove(options_); }

  /// One attachment in a process, as its threads would share it.
  [[nodiscard]] Storage open(unsigned breaker = 0) const {
    if (attached_by_ != ::getpid()) {
      segment_ = require(Segment::attach(options_));
      attached_by_ = ::getpid();
    }
    BreakerConfig config = config_;
    config.name += "-" + std::to_string(breaker);
    return require(Storage::open(*segment_, config));
  }

 private:
  BreakerConfig config_;
  SegmentOptions options_{};
  mutable std::optional<Segment> segment_{};
  mutable ::pid_t attached_by_ = 0;
};

/// The same behind AnyStorage: the choice at run time.
template <Clock C>
class TypeErased : public InSharedMemory<C> {
 public:
  static constexpr const char* kName = "shared memory, type-erased";
  using Storage = AnyStorage;
  using InSharedMemory<C>::InSharedMemory;
  [[nodiscard]] Storage open(unsigned breaker = 0) const { return InSharedMemory<C>::open(breaker); }
};

template <Clock C>
using Contenders =
    Types<InMemory<C>, InSharedMemory<C>, InSharedMemory<C, Lean>, TypeErased<C>, UnderMutex<RobustMutex, C>,
          UnderMutex<BoostMutex, C>, UnderMutex<SpinMutex, C>, UnderMutex<StdMutex, C>>;

}  // namespace shmcb::bench
