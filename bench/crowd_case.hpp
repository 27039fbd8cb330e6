// SPDX-License-Identifier: BSD-3-Clause
// The cases of cases.hpp behind an interface, chosen at run time: a launch of a crowd makes a scene, each member joins
// it. A virtual call starts a batch of operations, none is made within.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "cases.hpp"
#include "histogram.hpp"

namespace shmcb::bench {

/// What one process or thread works with. On lines of its own.
class alignas(64) Worker {
 public:
  Worker() = default;
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  virtual ~Worker() = default;

  virtual void tight(int times) = 0;
  virtual void paced(int times) = 0;
  /// Adds what passes from the end of one operation to the end of the next: one reading of the clock is in it.
  virtual void timed(int times, Histogram& latencies) = 0;
  /// Whether the breaker is still in the state that the operation is measured in.
  [[nodiscard]] virtual bool as_prepared() = 0;
};

/// The breakers of one launch.
class Scene {
 public:
  Scene() = default;
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;
  virtual ~Scene() = default;

  /// Called in the process that will work, or by the one whose threads will.
  [[nodiscard]] virtual std::unique_ptr<Worker> join(unsigned breaker, unsigned company) const = 0;
  /// Operations that left a trace in all breakers, where a floor counts them.
  [[nodiscard]] virtual std::optional<std::uint64_t> counted() const = 0;
};

template <class C>
class WorkerOf final : public Worker {
 public:
  WorkerOf(const typename C::Place& place, unsigned breaker, unsigned company) : act_(place, breaker, company) {}

  void tight(int times) override {
    for (int i = 0; i < times; ++i)
      act_();
  }
  void paced(int times) override {
    for (int i = 0; i < times; ++i) {
      pace(x_);
      act_();
    }
  }
  void timed(int times, Histogram& latencies) override {
    std::uint64_t before = clock_ns();
    for (int i = 0; i < times; ++i) {
      act_();
      const std::uint64_t after = clock_ns();
      latencies.add(after - before);
      before = after;
    }
  }
  [[nodiscard]] bool as_prepared() override { return act_.as_prepared(); }

 private:
  C act_;
  std::uint64_t x_ = 1;
};

template <class C>
class SceneOf final : public Scene {
 public:
  explicit SceneOf(unsigned breakers) : place_(breakers), breakers_(breakers) {}

  [[nodiscard]] std::unique_ptr<Worker> join(unsigned breaker, unsigned company) const override {
    return std::make_unique<WorkerOf<C>>(place_, breaker, company);
  }
  [[nodiscard]] std::optional<std::uint64_t> counted() const override {
    if constexpr (requires { C::counted(place_, 0U); }) {
      std::uint64_t sum = 0;
      for (unsigned i = 0; i < breakers_; ++i)
        sum += C::counted(place_, i);
      return sum;
    }
    return std::nullopt;
  }

 private:
  typename C::Place place_;
  unsigned breakers_;
};

struct CrowdCase {
  std::string operation;  ///< "floor" for a floor, which is then named by `contender`
  std::string contender;
  std::string floor;   ///< of the operation
  bool shared = true;  ///< also between processes
  unsigned max_company = 0;
  std::unique_ptr<Scene> (*scene)(unsigned breakers) = nullptr;
};

template <Clock C>
[[nodiscard]] std::vector<CrowdCase> crowd_cases() {
  using CrowdFloors = Types<NothingFloor, LoadFloor, LockedAddFloor, ClockFloor<C>, RecordFloor<C>, RingFloor<C>,
                            RejectFloor<C>, FailureFloor<10, C>, FailureFloor<1000, C>>;
  using CrowdOperations =
      Types<Admit, RecordSuccess, AdmitAndRecord, Call, Reject, RecordFailure<10>, RecordFailure<1000>>;
  using CrowdContenders = Types<InMemory<C>, InSharedMemory<C>, InSharedMemory<C, Lean>, UnderMutex<RobustMutex, C>,
                                UnderMutex<BoostMutex, C>, UnderMutex<SpinMutex, C>, UnderMutex<StdMutex, C>>;
  std::vector<CrowdCase> cases;
  const auto make = []<class T>(std::type_identity<T>) {
    return [](unsigned breakers) -> std::unique_ptr<Scene> { return std::make_unique<SceneOf<T>>(breakers); };
  };
  CrowdFloors::for_each([&]<class F>(std::type_identity<F> floor) {
    cases.push_back({F::kGroup, F::kName, {}, true, SharedWords::kOwnLines, make(floor)});
  });
  CrowdOperations::for_each([&]<class O>(std::type_identity<O>) {
    CrowdContenders::for_each([&]<class P>(std::type_identity<P>) {
      cases.push_back(
          {O::kName, P::kName, O::kFloor, P::kShared, O::kMaxCompany, make(std::type_identity<Case<O, P>>{})});
    });
  });
  return cases;
}

}  // namespace shmcb::bench
