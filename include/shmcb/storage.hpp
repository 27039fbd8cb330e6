// SPDX-License-Identifier: BSD-3-Clause
// What every storage of a breaker offers, and a type-erased form of it for a choice at run time.
// A storage keeps the state of ONE breaker; all operations are atomic, `noexcept` and safe from any thread.
#pragma once

#include <concepts>
#include <memory>
#include <string_view>
#include <utility>

#include "shmcb/config.hpp"
#include "shmcb/types.hpp"

namespace shmcb {

/// The contract of a storage. `admit`, `record_outcome`, `force_state` and `set_mode` are one atomic operation each;
/// `snapshot`, `counters` and `peek` change nothing. A token goes back to the storage that issued it; `abandon` is
/// `record_outcome(token, ignored)` of a permit that was dropped. `now` is the storage's clock. A note or a mode
/// request that `check` refuses is answered with Errc::invalid_config.
template <class S>
concept Storage = requires(S& storage, const S& constant, Token token, Outcome outcome, CompletedAt completed_at,
                           CircuitState state, const Note& note, const ModeRequest& request) {
  { storage.admit() } noexcept -> std::same_as<AdmitResult>;
  { storage.record_outcome(token, outcome) } noexcept -> std::same_as<RecordResult>;
  { storage.record_outcome(token, outcome, completed_at) } noexcept -> std::same_as<RecordResult>;
  { storage.abandon(token) } noexcept -> std::same_as<RecordResult>;
  { storage.force_state(state) } noexcept -> std::same_as<ForceResult>;
  { storage.force_state(state, note) } noexcept -> std::same_as<ForceResult>;
  { storage.set_mode(request) } noexcept -> std::same_as<ModeResult>;
  { constant.snapshot() } noexcept -> std::same_as<SnapshotResult>;
  { constant.counters() } noexcept -> std::same_as<CountersResult>;
  { constant.peek() } noexcept -> std::same_as<PeekResult>;
  { constant.now() } noexcept -> std::same_as<Instant>;
  { constant.name() } noexcept -> std::same_as<std::string_view>;  // of the breaker
  { constant.settings() } noexcept -> std::same_as<Settings>;      // the numbers in force
  { constant.degraded() } noexcept -> std::same_as<bool>;          // deciding without its primary storage
} && std::move_constructible<S>;  // last: asked about a Result<AnyStorage>, it would come back here

/// Any storage, chosen at run time. Owns it; moves, does not copy. An empty one answers `Errc::unusable`.
class AnyStorage {
 public:
  AnyStorage() noexcept = default;

  template <class S>
    requires(!std::same_as<S, AnyStorage> &&
             Storage<S>)  // in this order: Storage<AnyStorage> asks for this constructor
  AnyStorage(S storage)   // NOLINT(google-explicit-constructor): the point of it
      : impl_(std::make_unique<Model<S>>(std::move(storage))) {}

  [[nodiscard]] AdmitResult admit() noexcept { return impl_ ? impl_->admit() : AdmitResult{.error = Errc::unusable}; }
  [[nodiscard]] RecordResult record_outcome(Token token, Outcome outcome, CompletedAt completed_at = {}) noexcept {
    return impl_ ? impl_->record_outcome(token, outcome, completed_at) : RecordResult{.error = Errc::unusable};
  }
  [[nodiscard]] RecordResult abandon(Token token) noexcept {
    return impl_ ? impl_->abandon(token) : RecordResult{.error = Errc::unusable};
  }
  [[nodiscard]] ForceResult force_state(CircuitState state, const Note& note = {}) noexcept {
    return impl_ ? impl_->force_state(state, note) : ForceResult{.error = Errc::unusable};
  }
  [[nodiscard]] ModeResult set_mode(const ModeRequest& request) noexcept {
    return impl_ ? impl_->set_mode(request) : ModeResult{.error = Errc::unusable};
  }
  [[nodiscard]] SnapshotResult snapshot() const noexcept {
    return impl_ ? impl_->snapshot() : SnapshotResult{.error = Errc::unusable};
  }
  [[nodiscard]] CountersResult counters() const noexcept {
    return impl_ ? impl_->counters() : CountersResult{.error = Errc::unusable};
  }
  [[nodiscard]] PeekResult peek() const noexcept { return impl_ ? impl_->peek() : PeekResult{.error = Errc::unusable}; }
  [[nodiscard]] Instant now() const noexcept { return impl_ ? impl_->now() : Instant{}; }
  [[nodiscard]] std::string_view name() const noexcept { return impl_ ? impl_->name() : std::string_view{}; }
  [[nodiscard]] Settings settings() const noexcept { return impl_ ? impl_->settings() : Settings{}; }
  [[nodiscard]] bool degraded() const noexcept { return impl_ ? impl_->degraded() : true; }

 private:
  struct Interface {
    virtual ~Interface() = default;
    virtual AdmitResult admit() noexcept = 0;
    virtual RecordResult record_outcome(Token token, Outcome outcome, CompletedAt completed_at) noexcept = 0;
    virtual RecordResult abandon(Token token) noexcept = 0;
    virtual ForceResult force_state(CircuitState state, const Note& note) noexcept = 0;
    virtual ModeResult set_mode(const ModeRequest& request) noexcept = 0;
    virtual SnapshotResult snapshot() const noexcept = 0;
    virtual CountersResult counters() const noexcept = 0;
    virtual PeekResult peek() const noexcept = 0;
    virtual Instant now() const noexcept = 0;
    virtual std::string_view name() const noexcept = 0;
    virtual Settings settings() const noexcept = 0;
    virtual bool degraded() const noexcept = 0;
  };

  template <class S>
  struct Model final : Interface {
    explicit Model(S s) : storage(std::move(s)) {}
    AdmitResult admit() noexcept override { return storage.admit(); }
    RecordResult record_outcome(Token token, Outcome outcome, CompletedAt completed_at) noexcept override {
      return storage.record_outcome(token, outcome, completed_at);
    }
    RecordResult abandon(Token token) noexcept override { return storage.abandon(token); }
    ForceResult force_state(CircuitState state, const Note& note) noexcept override {
      return storage.force_state(state, note);
    }
    ModeResult set_mode(const ModeRequest& request) noexcept override { return storage.set_mode(request); }
    SnapshotResult snapshot() const noexcept override { return storage.snapshot(); }
    CountersResult counters() const noexcept override { return storage.counters(); }
    PeekResult peek() const noexcept override { return storage.peek(); }
    Instant now() const noexcept override { return storage.now(); }
    std::string_view name() const noexcept override { return storage.name(); }
    Settings settings() const noexcept override { return storage.settings(); }
    bool degraded() const noexcept override { return storage.degraded(); }
    S storage;
  };

  std::unique_ptr<Interface> impl_;
};

static_assert(Storage<AnyStorage>);

}  // namespace shmcb
