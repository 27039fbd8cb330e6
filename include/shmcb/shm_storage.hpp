// SPDX-License-Identifier: BSD-3-Clause
// The shared-memory storage: one breaker of a segment, the same for all processes that open it by its name. An Allowed
// admit is one load; no lock, no allocation after `open`; docs/design.md says when a system call is made.
#pragma once

#include <algorithm>
#include <concepts>
#include <string>
#include <string_view>
#include <utility>

#include "shmcb/config.hpp"
#include "shmcb/core/registry.hpp"
#include "shmcb/random.hpp"
#include "shmcb/segment.hpp"
#include "shmcb/storage.hpp"

namespace shmcb {

template <Clock C, Random R>
class BreakerGroup;

/// A breaker in shared memory. Copies act on the same breaker; safe from any thread, after fork in parent and child.
/// `Cell`: how its words are found; another one for the breakers of groups (see breaker_group.hpp).
template <Clock C = SystemClock, Random R = SystemRandom, class Cell = core::BreakerCell<core::StdEnv>>
class ShmStorage {
 public:
  /// Finds the breaker by its name or registers it. If it exists with other numbers: of two `config_revision`s the
  /// higher one wins, of equal ones `on_mismatch` decides. Errors: invalid_config, config_mismatch, registry_full,
  /// ring_full, corrupt, ...
  [[nodiscard]] static Result<ShmStorage> open(const Segment& segment, const BreakerConfig& config,
                                               OnMismatch on_mismatch = OnMismatch::refuse, C clock = {}, R random = {})
    requires std::same_as<Cell, core::BreakerCell<core::StdEnv>>
  {
    if (Error error = check_for_shared_memory(config)) return error;
    ShmStorage storage(segment, config.name, std::move(clock), std::move(random));
    core::Registry<core::StdEnv> registry(segment.view(), segment.presence());
    bool created = false;
    const Errc found =
        registry.find_or_add(config.name, settings_of(config), storage.tick_now(), storage.cell_, created);
    if (found != Errc::ok) return refusal(found, segment, config);
    if (!created) {
      if (Error error = storage.agree(settings_of(config), on_mismatch)) return error;
    }
    return storage;
  }

  /// The same on what `Segment::open` answered: its error where there is no segment.
  [[nodiscard]] static Result<ShmStorage> open(const Result<Segment>& segment, const BreakerConfig& config,
                                               OnMismatch on_mismatch = OnMismatch::refuse, C clock = {}, R random = {})
    requires std::same_as<Cell, core::BreakerCell<core::StdEnv>>
  {
    if (!segment) return segment.error();
    return open(*segment, config, on_mismatch, std::move(clock), std::move(random));
  }

  ShmStorage(const ShmStorage&) = default;
  ShmStorage& operator=(const ShmStorage& other) {
    if (this == &other) return *this;
    end_handle();
    cell_ = other.cell_;
    clock_ = other.clock_;
    random_ = other.random_;
    epoch_ = other.epoch_;
    segment_ = other.segment_;
    name_ = other.name_;
    notes_ = other.notes_;
    return *this;
  }
  ~ShmStorage() { end_handle(); }

  [[nodiscard, gnu::always_inline]] AdmitResult admit() noexcept {
    Token token;
    if (allows(token)) [[likely]] {
      return {.admission = Admission::allowed, .state = CircuitState::closed, .token = token};
    }
    return admit_slowly();
  }
  /// The whole of a plain Closed admit; false: ask `admit`. For breakers that have no use for the rest of its answer.
  [[nodiscard, gnu::always_inline]] bool allows(Token& token) const noexcept {
    std::uint64_t period = 0;
    if (!cell_.allowed(period)) return false;
    token = {.period = period, .admission = Admission::allowed};
    return true;
  }

  [[nodiscard, gnu::always_inline]] RecordResult record_outcome(Token token, Outcome outcome,
                                                                CompletedAt completed_at = {}) noexcept {
    if (token.admission == Admission::allowed && outcome == Outcome::success) [[likely]] {
      if (cell_.leaves_out_success(token.period)) {
        if (notes_.leave_one_out()) [[unlikely]] {
          tell_left_out();
        }
        return {.status = RecordStatus::counted};
      }
      const std::uint64_t now_us = time_us(completed_at);
      if (cell_.template count_plainly<false>(token.period, now_us, notes_)) [[likely]] {
        return {.status = RecordStatus::counted};
      }
      return record_allowed(token.period, token.started, false, now_us);
    }
    if (token.admission == Admission::allowed && outcome == Outcome::failure) {
      return record_failure(token.period, token.started, completed_at);
    }
    return record_otherwise(token, outcome, completed_at);
  }

  [[nodiscard]] RecordResult abandon(Token token) noexcept {
    if (token.admission != Admission::rejected) cell_.count_abandoned();
    return record_outcome(token, Outcome::ignored);
  }

  [[nodiscard]] ForceResult force_state(CircuitState state, const Note& note = {}) noexcept {
    if (check(note)) return {.error = Errc::invalid_config};
    const core::CellRecord r = cell_.force(state, now_us(), draw(), core::NoteText::of(note));
    return {.error = named(r.error), .transition = dress(r.transition)};
  }

  /// Out of line: seldom, and g++ 12 sees an expiry that is not there where it inlines it.
  [[nodiscard, gnu::noinline]] ModeResult set_mode(const ModeRequest& request) noexcept {
    if (check(request)) return {.error = Errc::invalid_config};
    const std::uint64_t now = now_us();
    const rules::Tick until =
        request.expires_after ? static_cast<rules::Tick>(now / 1'000) + request.expires_after->count() : rules::kNever;
    const core::CellMode m = cell_.set_mode(request.mode, until, core::NoteText::of(request.note), now);
    return {.error = named(m.error), .previous = m.previous};
  }

  /// Exact where nothing runs beside it.
  [[nodiscard]] SnapshotResult snapshot() const noexcept {
    core::CellState state;
    const Errc error = cell_.snapshot(state);
    return {.error = named(error), .record = dress(state)};
  }

  [[nodiscard]] CountersResult counters() const noexcept {
    CountersResult result;
    result.error = named(cell_.counters(now_us(), result.counters));
    result.counters.successes += notes_.untold();  // those not told to the others yet
    result.counters.completed += notes_.untold();
    return result;
  }

  [[nodiscard]] PeekResult peek() const noexcept {
    core::CellPeek peek;
    const Errc error = cell_.peek([this] { return now_us(); }, peek);
    return {.error = named(error), .state = peek.state, .mode = peek.mode, .cooldown_left = Millis{peek.cooldown_left}};
  }

  [[nodiscard]] Instant now() const noexcept { return clock_.now(); }
  [[nodiscard]] std::string_view name() const noexcept { return *name_; }
  /// The numbers in force now: another process may have replaced them. Defaults if the segment is corrupt.
  [[nodiscard]] Settings settings() const noexcept {
    Settings settings;
    (void)cell_.settings(settings);
    return settings;
  }
  [[nodiscard]] bool degraded() const noexcept { return false; }

  [[nodiscard]] const Segment& segment() const noexcept { return segment_; }

 private:
  friend class BreakerGroup<C, R>;

  [[nodiscard]] static Error check_for_shared_memory(const BreakerConfig& config) {
    if (Error error = check(config, core::kMaxNameBytes)) return error;
    if (config.failure_threshold.window <= core::kMaxWindow) return {};
    return detail::bad_field("failure_threshold.window", std::to_string(config.failure_threshold.window),
                             "at most " + std::to_string(core::kMaxWindow) + " in shared memory");
  }

  ShmStorage(const Segment& segment, const std::string& name, C clock, R random)
      : clock_(std::move(clock)),
        random_(std::move(random)),
        epoch_(segment.epoch()),
        segment_(segment),
        name_(std::make_shared<const std::string>(name)) {}

  /// Neither Closed nor disabled for good: the time decides.
  [[nodiscard, gnu::noinline]] AdmitResult admit_slowly() noexcept {
    CircuitState state = CircuitState::closed;
    if (cell_.stands_aside(state)) return {.admission = Admission::allowed, .state = state, .token = void_token()};
    const std::uint64_t now = now_us();
    core::TurnedAway away;
    if (!cell_.turned_away(now, away)) return admit_at(now);
    return {.admission = Admission::rejected,
            .state = CircuitState::open,
            .retry_after = Millis{away.retry_after},
            .retry_at = instant(away.retry_at)};
  }

  [[nodiscard, gnu::noinline]] AdmitResult admit_at(std::uint64_t now) noexcept {
    const std::uint32_t started = rules::started_at(static_cast<rules::Tick>(now / 1'000));
    std::uint64_t period = 0;
    if (cell_.allowed_timed(period)) {
      return {.admission = Admission::allowed,
              .state = CircuitState::closed,
              .token = {.period = period, .started = started, .admission = Admission::allowed}};
    }
    const core::CellAdmit a = cell_.admit(now, draw());
    AdmitResult result{.error = named(a.error), .admission = a.admission, .state = a.state, .token = void_token()};
    if (a.counts) result.token = {.period = a.period, .started = started, .admission = a.admission};
    if (a.admission == Admission::rejected) {
      result.retry_after = Millis{a.retry_after};
      result.retry_at = instant(a.retry_at);
    }
    result.transition = dress(a.transition);
    return result;
  }

  [[nodiscard]] static Error refusal(Errc code, const Segment& segment, const BreakerConfig& config) {
    std::string message =
        "breaker " + detail::quoted(config.name) + " cannot be registered in segment '" + segment.name() + "': ";
    if (segment.lost()) return {Errc::truncated, message + "its file was cut short; attach to a new one"};
    if (code == Errc::registry_full) {
      message += "all " + std::to_string(segment.geometry().breakers) + " places are taken";
    } else if (code == Errc::ring_full) {
      message += "failure_threshold.window is " + std::to_string(config.failure_threshold.window) + " and needs " +
                 std::to_string(core::ring_capacity(config.failure_threshold.window)) +
                 " ring slots; too few of the segment's " + std::to_string(segment.geometry().ring_slots) + " are left";
    } else if (code == Errc::wrong_group) {
      message += "the name is that of a breaker of another group (or of a group, or of none)";
    } else if (code == Errc::corrupt) {
      message += "the segment holds what no process of ours writes; remove it and restart those that use it";
    } else {
      message += to_string(code);
    }
    return {code, std::move(message)};
  }

  /// The breaker exists: adopt its numbers, refuse or replace them.
  [[nodiscard]] Error agree(const Settings& brought, OnMismatch on_mismatch) const {
    Settings there;
    if (const Errc code = cell_.settings(there); code != Errc::ok) {
      return {named(code), "breaker '" + *name_ + "': its record is corrupt"};
    }
    if (there == brought) {
      if (!brought.lean) return {};
      const Errc code = cell_.begin_leaving_out();
      return code == Errc::ok ? Error{}
                              : Error{named(code), "breaker '" + *name_ + "': " + std::string{to_string(code)}};
    }
    const bool newer = brought.revision > there.revision;
    const bool older = brought.revision < there.revision;
    if (older || (!newer && on_mismatch == OnMismatch::adopt)) return {};
    if (!newer && on_mismatch == OnMismatch::refuse) {
      return {Errc::config_mismatch,
              "breaker '" + *name_ + "' exists with another configuration: " + differences(there, brought)};
    }
    const Errc code = cell_.replace_settings(brought, now_us(), draw());
    if (code == Errc::ok) return {};
    std::string message = "the configuration of breaker '" + *name_ + "' cannot be replaced: ";
    if (code == Errc::ring_full) {
      message +=
          "failure_threshold.window is " + std::to_string(brought.window) + " and does not fit into the ring it has";
    } else {
      message += to_string(code);
    }
    return {named(code), std::move(message)};
  }

  /// Of a call that a mode lets run although its outcome is void.
  [[nodiscard]] static Token void_token() noexcept { return {.period = kVoidPeriod, .admission = Admission::rejected}; }
  [[nodiscard]] static RecordResult nothing_to_record(const Token& token) noexcept {
    return {.status = token.period == kVoidPeriod ? RecordStatus::ignored : RecordStatus::rejected};
  }

  /// What is neither a success nor a failure of an Allowed call.
  [[nodiscard, gnu::noinline]] RecordResult record_otherwise(Token token, Outcome outcome,
                                                             CompletedAt completed_at) noexcept {
    if (token.admission == Admission::rejected) return nothing_to_record(token);
    if (token.admission == Admission::probe) return record_probe(token, outcome, completed_at);
    cell_.count_ignored();
    return {.error = segment_.lost() ? Errc::truncated : Errc::ok, .status = RecordStatus::ignored};
  }

  [[nodiscard, gnu::noinline]] RecordResult record_failure(std::uint64_t period, std::uint32_t started,
                                                           CompletedAt completed_at) noexcept {
    const std::uint64_t now_us = time_us(completed_at);
    if (cell_.template count_plainly<true>(period, now_us, notes_)) return {.status = RecordStatus::counted};
    return record_allowed(period, started, true, now_us);
  }

  [[nodiscard, gnu::noinline]] RecordResult record_allowed(std::uint64_t period, std::uint32_t started, bool failure,
                                                           std::uint64_t now_us) noexcept {
    const core::CellRecord r = cell_.record_allowed(
        {.period = period, .started = started, .failure = failure, .now_us = now_us}, notes_, draw());
    if (r.status == RecordStatus::counted && !r.transition && r.error == Errc::ok) [[likely]] {
      return {.status = RecordStatus::counted};
    }
    return finish_record(r);
  }

  void end_handle() noexcept {
    if (notes_.untold() != 0) tell_left_out();
  }
  [[gnu::noinline]] void tell_left_out() noexcept {
    if (const std::uint64_t left_out = notes_.take_untold(); left_out != 0) cell_.count_left_out(left_out);
  }

  [[nodiscard, gnu::noinline]] RecordResult record_probe(const Token& token, Outcome outcome,
                                                         CompletedAt completed_at) noexcept {
    return finish_record(cell_.record_probe(
        {.probe = token.period, .outcome = outcome, .started = token.started, .draw = random_.draw()},
        time_us(completed_at)));
  }

  /// What stands in a segment that was lost is corrupt; the cause is another one.
  [[nodiscard]] Errc named(Errc error) const noexcept {
    return error != Errc::ok && segment_.lost() ? Errc::truncated : error;
  }

  /// Out of line: an outcome that was merely counted has nothing of it.
  [[nodiscard, gnu::noinline]] RecordResult finish_record(const core::CellRecord& r) const noexcept {
    // In a segment that was lost nothing is stale: a group's breaker does not find its place there.
    const Errc error = r.status == RecordStatus::stale && segment_.lost() ? Errc::truncated : r.error;
    if (error == Errc::ok && !r.in_ring) {
      if (r.status == RecordStatus::stale) cell_.count_stale();
      if (r.status == RecordStatus::ignored) cell_.count_ignored();
    }
    return {.error = named(error), .status = r.status, .transition = dress(r.transition)};
  }

  /// Chance, where an operation turns out to need it.
  [[nodiscard]] auto draw() const noexcept {
    return [this]() noexcept { return random_.draw(); };
  }

  /// Microseconds since the segment's epoch. (An entry of the window holds 8.9 years of them; later ones count as that
  /// old.)
  [[nodiscard, gnu::always_inline]] std::uint64_t time_us(CompletedAt at) const noexcept {
    const Instant instant = at ? *at : clock_.now();
    const std::int64_t since = (instant - epoch_).count();
    if (static_cast<std::uint64_t>(since) <= kLatestUs) [[likely]] {
      return static_cast<std::uint64_t>(since);
    }
    return since < 0 ? 0 : kLatestUs;
  }
  [[nodiscard]] std::uint64_t now_us() const noexcept { return time_us({}); }
  [[nodiscard]] rules::Tick tick_now() const noexcept { return static_cast<rules::Tick>(now_us() / 1'000); }
  [[nodiscard]] Instant instant(rules::Tick tick) const noexcept { return epoch_ + Millis{tick}; }

  [[nodiscard]] StateRecord dress(const core::CellState& s) const noexcept {
    StateRecord record{.state = s.state,
                       .successes = s.successes,
                       .failures = s.failures,
                       .rejected = s.rejected,
                       .slow = s.slow,
                       .mode = s.mode,
                       .ramping = s.ramping,
                       .successes_at_least = s.successes_at_least};
    if (s.opened_at != rules::kNever) record.opened_at = instant(s.opened_at);
    return record;
  }
  [[nodiscard]] std::optional<CircuitTransition> dress(const std::optional<core::CellTransition>& t) const noexcept {
    if (!t) [[likely]]
      return std::nullopt;
    return CircuitTransition{.breaker_name = *name_,
                             .from = t->from,
                             .to = t->after.state,
                             .reason = t->reason,
                             .occurred_at = instant(t->at),
                             .state = dress(t->after)};
  }

  static constexpr std::uint64_t kLatestUs = core::kMaxTick * 1'000;

  Cell cell_;
  [[no_unique_address]] C clock_;
  [[no_unique_address]] R random_;
  Instant epoch_;
  Segment segment_;
  std::shared_ptr<const std::string> name_;
  core::LocalNotes notes_;
};

}  // namespace shmcb
