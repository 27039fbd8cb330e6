// SPDX-License-Identifier: BSD-3-Clause
// The breaker of a group by its name: a BreakerCell that notices when its place has been given to another name, and
// looks its own up again. What it did not do before it noticed, it has not done to the newcomer.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "shmcb/core/registry.hpp"

namespace shmcb::core {

/// Has the operations of a BreakerCell. A handle: what `name` points to, the view and the presence must outlive it.
/// Safe from any thread. A token says which place issued it: within a place, generations never come back, so that one
/// of an earlier life is stale there, and one of another place is stale everywhere else.
template <class Env>
class GroupCell {
 public:
  using Cell = BreakerCell<Env>;
  using Control = ControlWord<typename Env::Widths>;

  GroupCell() = default;
  GroupCell(const SegmentView<Env>& view, Presence& presence, std::string_view name, const Settings& settings,
            const Member& member) noexcept
      : view_(&view), presence_(&presence), name_(name), settings_(settings), member_(member) {}
  GroupCell(const GroupCell& other) noexcept { *this = other; }
  GroupCell& operator=(const GroupCell& other) noexcept {
    if (this == &other) return *this;
    view_ = other.view_;
    presence_ = other.presence_;
    name_ = other.name_;
    settings_ = other.settings_;
    member_ = other.member_;
    where_.store(other.where_.load(std::memory_order_acquire), std::memory_order_release);  // sync: member-place
    return *this;
  }
  ~GroupCell() = default;

  /// Finds or registers the name. Makes no one wait; may ask the kernel who is dead.
  [[nodiscard]] Errc resolve(rules::Tick now, bool& created) const noexcept {
    Cell cell;
    return resolve(now, member_, cell, created);
  }
  /// The same, waiting a little for others who are just registering.
  [[nodiscard]] Errc resolve_patiently(rules::Tick now, bool& created) const noexcept {
    Member patient = member_;
    patient.may_wait = true;
    Cell cell;
    return resolve(now, patient, cell, created);
  }

  /// The whole of a plain Closed admit: the control word, THEN the incarnation (see CellCore::elsewhere).
  [[nodiscard]] bool allowed(std::uint64_t& period) const noexcept {
    return allowed_by(period, [](Control word) { return word.plainly_closed(); });
  }
  [[nodiscard]] bool allowed_timed(std::uint64_t& period) const noexcept {
    return allowed_by(period, [](Control word) { return word.closed_and_timed(); });
  }
  [[nodiscard]] bool stands_aside(CircuitState& state) const noexcept {
    Cell cell;
    return here(cell) && cell.stands_aside(state) && !cell.core().gone();
  }

  template <class Draw>
  [[nodiscard]] CellAdmit admit(Bits now_us, Draw draw) const noexcept {
    return act(CellCore<Env>::tick(now_us), [&](const Cell& cell) {
      CellAdmit result = cell.admit(now_us, draw);
      result.period = tagged(cell.index(), result.period);
      return result;
    });
  }

  /// No success of theirs is left out: the newest outcome says how long a breaker has been idle.
  [[nodiscard]] static bool leaves_out_success(Bits /*period*/) noexcept { return false; }
  [[nodiscard]] static Errc begin_leaving_out() noexcept { return Errc::ok; }
  static void count_left_out(std::uint64_t /*successes*/) noexcept {}
  template <bool kFailure>
  [[nodiscard]] static bool count_plainly(Bits /*period*/, Bits /*now_us*/, LocalNotes& /*notes*/) noexcept {
    return false;
  }
  [[nodiscard]] static bool turned_away(Bits /*now_us*/, TurnedAway& /*away*/) noexcept { return false; }

  template <class Draw>
  [[nodiscard]] CellRecord record_allowed(CompletedCall call, LocalNotes& notes, Draw draw) const noexcept {
    return record(call.period, [&](const Cell& cell, Bits period) {
      call.period = period;
      return cell.record_allowed(call, notes, draw);
    });
  }
  [[nodiscard]] CellRecord record_probe(rules::Verdict verdict, Bits now_us) const noexcept {
    return record(verdict.probe, [&](const Cell& cell, Bits probe) {
      verdict.probe = probe;
      return cell.record_probe(verdict, now_us);
    });
  }

  template <class Draw>
  [[nodiscard]] CellRecord force(CircuitState to, Bits now_us, Draw draw, const NoteText& note = {}) const noexcept {
    return act(CellCore<Env>::tick(now_us), [&](const Cell& cell) { return cell.force(to, now_us, draw, note); });
  }
  [[nodiscard]] CellMode set_mode(Mode mode, rules::Tick until, const NoteText& note, Bits now_us) const noexcept {
    return act(CellCore<Env>::tick(now_us), [&](const Cell& cell) { return cell.set_mode(mode, until, note, now_us); });
  }
  template <class Draw>
  [[nodiscard]] Errc replace_settings(const Settings& settings, Bits now_us, Draw draw) const noexcept {
    return act(CellCore<Env>::tick(now_us),
               [&](const Cell& cell) { return Answer{cell.replace_settings(settings, now_us, draw)}; })
        .error;
  }

  // A look at a name that has no breaker shows what a new one would be.
  [[nodiscard]] Errc settings(Settings& settings) const noexcept {
    return look([&](const Cell& cell) { return cell.settings(settings); }, [&] { settings = settings_; });
  }
  template <class NowUs>
  [[nodiscard]] Errc peek(NowUs now_us, CellPeek& peek) const noexcept {
    return look([&](const Cell& cell) { return cell.peek(now_us, peek); }, [&] { peek = {}; });
  }
  [[nodiscard]] Errc snapshot(CellState& state) const noexcept {
    return look([&](const Cell& cell) { return cell.snapshot(state); }, [&] { state = {}; });
  }
  [[nodiscard]] Errc counters(Bits now_us, Counters& counters) const noexcept {
    return look([&](const Cell& cell) { return cell.counters(now_us, counters); }, [&] { counters = {}; });
  }

  void count_ignored() const noexcept {
    if (Cell cell; here(cell)) cell.count_ignored();
  }
  void count_stale() const noexcept {
    if (Cell cell; here(cell)) cell.count_stale();
  }
  void count_abandoned() const noexcept {
    if (Cell cell; here(cell)) cell.count_abandoned();
  }

 private:
  /// {incarnation 63..24, place + 1 23..0}: where this handle has found its name; 0: nowhere yet.
  struct Where {
    Bits bits = 0;
    [[nodiscard]] static Where make(std::uint32_t place, Bits incarnation) noexcept {
      return {(incarnation << 24U) | (Bits{place} + 1)};
    }
    [[nodiscard]] bool known() const noexcept { return bits != 0; }
    [[nodiscard]] std::uint32_t place() const noexcept { return static_cast<std::uint32_t>((bits & low_bits(24)) - 1); }
    [[nodiscard]] Bits incarnation() const noexcept { return bits >> 24U; }
  };
  struct Answer {
    Errc error = Errc::ok;
  };

  static constexpr int kResolves = 8;  // arbitrary: each time somebody had to find the breaker idle in between
  static constexpr unsigned kPlaceShift = 40;
  static_assert(Control::kGenerationShift + Env::Widths::generation <= kPlaceShift);

  [[nodiscard]] static Bits tagged(std::uint32_t place, Bits period) noexcept {
    return (Bits{place} << kPlaceShift) | period;
  }

  [[nodiscard]] Where where() const noexcept { return {where_.load(std::memory_order_acquire)}; }  // sync: member-place

  template <class Plain>
  [[nodiscard]] bool allowed_by(std::uint64_t& period, Plain plain) const noexcept {
    const Where at = where();
    if (!at.known()) return false;
    const auto& cells = *view_->breaker(at.place());
    const Control word{Env::load(cells.control, Env::acquire)};  // sync: control
    period = tagged(at.place(), word.generation());
    // relaxed: brought by the control word
    return plain(word) && Env::load(cells.incarnation, Env::relaxed) == at.incarnation();
  }

  /// A handle of where the name was found last; it may be gone from there.
  [[nodiscard]] bool here(Cell& cell) const noexcept {
    const Where at = where();
    if (!at.known() || registry().handle(at.place(), cell) != Errc::ok) return false;
    cell.core().bind(at.incarnation());
    return !cell.core().gone();
  }

  [[nodiscard]] Registry<Env> registry() const noexcept { return {*view_, *presence_}; }

  [[nodiscard]] Errc resolve(rules::Tick now, const Member& member, Cell& cell, bool& created) const noexcept {
    const Errc error = registry().find_or_add(name_, settings_, now, cell, created, member);
    if (error == Errc::ok) found_at(cell);
    return error;
  }

  void found_at(const Cell& cell) const noexcept {
    // sync: member-place (release): what this thread saw when it found the name
    where_.store(Where::make(cell.index(), cell.core().incarnation()).bits, std::memory_order_release);
  }

  /// Acts on the breaker of the name, which is looked up again, and registered, as often as it is gone.
  template <class Operation>
  [[nodiscard]] auto act(rules::Tick now, Operation operation) const noexcept {
    using Result = decltype(operation(Cell{}));
    Result result;
    for (int attempt = 0; attempt < kResolves; ++attempt) {
      Cell cell;
      bool created = false;
      result.error = here(cell) ? Errc::ok : resolve(now, member_, cell, created);
      if (result.error != Errc::ok) return result;
      result = operation(cell);
      // Where it is gone, nothing was done: every change is a swap of a control word of OUR life.
      if (result.error != Errc::corrupt || !cell.core().gone()) return result;
    }
    result = {};
    result.error = Errc::busy;
    return result;
  }

  /// Looks at the breaker of the name; where there is none, `as_new` answers.
  template <class Look, class AsNew>
  [[nodiscard]] Errc look(Look look_at, AsNew as_new) const noexcept {
    for (int attempt = 0; attempt < kResolves; ++attempt) {
      Cell cell;
      if (!here(cell)) {
        const Errc error = registry().find(name_, cell, member_);
        if (error == Errc::breaker_not_found) {
          as_new();
          return Errc::ok;
        }
        if (error != Errc::ok) return error;
        found_at(cell);
      }
      const Errc error = look_at(cell);
      if (!cell.core().gone()) return error;  // else it may have looked at a newcomer
    }
    return Errc::busy;
  }

  /// Records for a token of this place; the period says of which life.
  template <class Operation>
  [[nodiscard]] CellRecord record(Bits token, Operation operation) const noexcept {
    Cell cell;
    if (!here(cell) || cell.index() != token >> kPlaceShift) return {.status = RecordStatus::stale};
    const CellRecord result = operation(cell, token & low_bits(kPlaceShift));
    if (result.error == Errc::corrupt && cell.core().gone()) return {.status = RecordStatus::stale};
    return result;
  }

  const SegmentView<Env>* view_ = nullptr;
  Presence* presence_ = nullptr;
  std::string_view name_{};
  Settings settings_{};
  Member member_{};
  mutable std::atomic<std::uint64_t> where_{0};
};

}  // namespace shmcb::core
