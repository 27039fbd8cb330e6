// SPDX-License-Identifier: BSD-3-Clause
// The registry: name to breaker. A new breaker is prepared completely in private and published by ONE compare-and-swap
// in the index; a process killed before that leaves a place and a record that the next one in need takes back, never a
// name. A place that belongs to a group is given to another name once its breaker is idle; any other keeps its name.
#pragma once

#include <sched.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "shmcb/core/breaker_cell.hpp"
#include "shmcb/core/groups.hpp"
#include "shmcb/core/layout.hpp"
#include "shmcb/core/name_index.hpp"
#include "shmcb/core/record_pool.hpp"
#include "shmcb/time.hpp"

namespace shmcb::core {

struct HashName {
  [[nodiscard]] constexpr std::uint64_t operator()(std::string_view name) const noexcept {
    // The low bits choose the bucket; folded, because FNV-1a mixes downwards badly.
    const std::uint64_t hash = fnv1a(name);
    return hash ^ (hash >> 32U);
  }
};

/// As what a breaker is looked up or registered.
struct Member {
  Bits group = 0;           ///< id of its group; 0: of none
  std::uint32_t entry = 0;  ///< of the group in the segment's table
  bool may_wait = true;     ///< a little, for others who are just registering
};

template <class Env, class Hash = HashName>
class Registry {
 public:
  Registry(const SegmentView<Env>& view, Presence& presence) noexcept
      : view_(&view), presence_(&presence), index_(view), groups_(view) {}

  /// Looks a name up: breaker_not_found, or corrupt, or `breaker` is set.
  [[nodiscard]] Errc find(std::string_view name, BreakerCell<Env>& breaker) const noexcept {
    Work work;
    const Found found = index_.find(name, Hash{}(name), work);
    if (found.error != Errc::ok) return found.error;
    if (!found.found) return Errc::breaker_not_found;
    return handle(found.place, breaker);
  }

  /// The same as one of a group, or of none; wrong_group where the name is another's.
  [[nodiscard]] Errc find(std::string_view name, BreakerCell<Env>& breaker, const Member& member) const noexcept {
    Work work;
    const Found found = index_.find(name, Hash{}(name), work);
    if (found.error != Errc::ok) return found.error;
    return found.found ? handle_of(found, member, breaker) : Errc::breaker_not_found;
  }

  /// Finds the breaker `name` or registers it with `settings` at `now`; `created` tells which. Requires a checked name
  /// and settings. `member`: as one of a group, or of none; wrong_group where the name is another's. The handle of a
  /// group's breaker is bound to this life of its place.
  [[nodiscard]] Errc find_or_add(std::string_view name, const Settings& settings, rules::Tick now,
                                 BreakerCell<Env>& breaker, bool& created, const Member& member = {}) noexcept {
    created = false;
    const std::uint64_t hash = Hash{}(name);
    for (int attempt = 0;; ++attempt) {
      Work work;
      const Found found = index_.find(name, hash, work);
      if (found.error != Errc::ok) return found.error;
      if (found.found) return handle_of(found, member, breaker);
      Prepared prepared;
      const Errc error = prepare(name, hash, settings, now, member, prepared, work);
      if (error == Errc::ok) return publish(name, hash, member, prepared, breaker, created, work);
      if (error != Errc::registry_full && error != Errc::ring_full && error != Errc::group_full) return error;
      // Who got the last place, or the last piece of the arena, may have registered this very name, or be about to:
      // many processes start at once.
      if (attempt == kAttempts || !member.may_wait || !let_finish(prepared)) {
        const Found again = index_.find(name, hash, work);
        return again.error == Errc::ok && again.found ? handle_of(again, member, breaker) : error;
      }
    }
  }

  /// Whether a breaker lives at a place.
  [[nodiscard]] bool published(std::uint32_t index) const noexcept {
    const auto* cells = view_->breaker(index);
    if (cells == nullptr || control_of(*cells).gone()) return false;
    Work work;
    return OwnerWord{Env::load(cells->owner, Env::acquire)}.published() ||  // sync: place-owner
           in_index(index, *cells, work).value_or(true);
  }

  /// The handle of a place that is known to be published; corrupt where its ring or name make no sense.
  [[nodiscard]] Errc handle(std::uint32_t index, BreakerCell<Env>& breaker) const noexcept {
    auto* cells = view_->breaker(index);
    if (cells == nullptr) return Errc::corrupt;
    const RingWord ring{Env::load(cells->ring, Env::acquire)};  // sync: arena
    auto* slots = view_->ring(ring);
    if (slots == nullptr) return Errc::corrupt;
    breaker = BreakerCell<Env>(CellCore<Env>(*view_, *presence_, index, *cells, slots, ring.capacity()));
    return Errc::ok;
  }

 private:
  using Control = ControlWord<typename Env::Widths>;
  using Found = typename NameIndex<Env>::Found;

  struct Prepared {
    std::uint32_t breaker = 0;
    OwnerWord place{};
    RingWord ring{};                 ///< of the place, checked; its word in the segment is not asked again
    bool busy = false;               ///< where all places are taken: a living process is just preparing one, ...
    std::uint32_t busy_breaker = 0;  ///< ... which is this
    OwnerWord busy_place{};          ///< ... with that owner
    std::uint32_t record = 0;
    OwnerWord record_owner{};
  };

  [[nodiscard]] static Control control_of(const BreakerCells<Env>& cells) noexcept {
    return {Env::load(cells.control, Env::acquire)};  // sync: control
  }

  [[nodiscard]] static Bits group_of(const BreakerCells<Env>& cells) noexcept {
    return Env::load(cells.group, Env::acquire);  // sync: group-members
  }

  /// The handle of a place that was found in the index, if its group is the wanted one.
  [[nodiscard]] Errc handle_of(const Found& found, const Member& member, BreakerCell<Env>& breaker) const noexcept {
    if (group_of(*view_->breaker(found.place)) != member.group) return Errc::wrong_group;
    const Errc error = handle(found.place, breaker);
    if (member.group != 0) breaker.core().bind(found.incarnation);
    return error;
  }

  /// Gives what was prepared its name by one swap, unless somebody else has registered it meanwhile.
  [[nodiscard]] Errc publish(std::string_view name, std::uint64_t hash, const Member& member, const Prepared& prepared,
                             BreakerCell<Env>& breaker, bool& created, Work& work) noexcept {
    const auto& cells = *view_->breaker(prepared.breaker);
    Found found = index_.find(name, hash, work);
    while (found.error == Errc::ok && !found.found) {
      // A process that looked dead may have lost its place. relaxed: our own word
      if (Env::load(cells.owner, Env::relaxed) != prepared.place.bits) {
        RecordPool<Env>(*view_, *presence_).release(prepared.record);
        return Errc::busy;
      }
      // relaxed: our own word, until it is published
      const Bits incarnation = Env::load(cells.incarnation, Env::relaxed);
      // A lost swap means that the bucket has changed: look again.
      if (index_.insert(prepared.breaker, hash, found.head)) {
        hand_over(prepared);
        created = true;
        const Errc error = handle(prepared.breaker, breaker);
        if (member.group != 0) breaker.core().bind(incarnation);
        return error;
      }
      found = index_.find(name, hash, work);
    }
    abandon(prepared);
    return found.error != Errc::ok ? found.error : handle_of(found, member, breaker);
  }

  /// Fills a place, its ring and its first record; nobody can see them yet.
  [[nodiscard]] Errc prepare(std::string_view name, std::uint64_t hash, const Settings& settings, rules::Tick now,
                             const Member& member, Prepared& prepared, Work& work) noexcept {
    if (!presence_->ensure_current()) return Errc::busy;
    const std::uint32_t wanted = ring_capacity(settings.window);
    const Errc claimed = member.group == 0 ? claim_place(wanted, prepared, work)
                                           : claim_member_place(wanted, hash, now, member, prepared, work);
    if (claimed != Errc::ok) return claimed;
    auto& cells = *view_->breaker(prepared.breaker);
    RecordPool<Env> pool(*view_, *presence_);
    Errc error = Errc::ok;
    prepared.record = pool.claim(error);
    if (prepared.record == 0) {
      give_up(cells, prepared.place);
      return error;
    }
    prepared.record_owner = {Env::load(view_->record(prepared.record)->owner, Env::relaxed)};  // relaxed: our own word
    Record record;
    record.settings = settings;
    record.leaves_out = record.left_out = settings.lean;
    record.breaker.since = now;
    Bits generation = 0;
    if (!begin_life(cells, prepared.ring, record, generation, work)) {
      pool.release(prepared.record);
      give_up(cells, prepared.place);
      return Errc::corrupt;
    }
    const Control control = Control::make(marks_of(record), prepared.record, generation, 0);
    pool.fill(prepared.record, prepared.breaker, record);
    write_name(cells, name, hash);
    Env::store(cells.first, record.window_begin, Env::relaxed);  // relaxed: released by sync: control
    Env::store(cells.control, control.bits, Env::release);       // sync: control
    return Errc::ok;
  }

  /// A place that was in use before goes on where it was: its generations, so that every token and every straggler of
  /// an earlier life is stale, and its ring.
  /// `piece` is the ring that the place has, checked; one from an earlier taker may be larger than what was asked for.
  [[nodiscard]] bool begin_life(BreakerCells<Env>& cells, RingWord piece, Record& record, Bits& generation,
                                Work& work) noexcept {
    const Control before{Env::load(cells.control, Env::relaxed)};  // relaxed: our own word
    record.window_begin = piece.capacity();
    if (before.bits == 0) {
      generation = 0;
      Env::store(cells.hint, record.window_begin, Env::relaxed);  // relaxed: nobody reads it before sync: control
      return true;
    }
    for (auto& lane : cells.lanes) {  // relaxed: as above
      for (auto* counter : {&lane.rejected, &lane.rejected_before, &lane.ramp_rejected, &lane.failures, &lane.ignored,
                            &lane.stale, &lane.abandoned, &lane.left_out})
        Env::store(*counter, 0, Env::relaxed);
    }
    generation = before.left().generation();
    record.window_generation = record.rejected_generation = generation;
    // relaxed to read: our own word. sync: name-words (release): a handle or a walker that is still here notices
    Env::store(cells.incarnation, Env::load(cells.incarnation, Env::relaxed) + 1, Env::release);
    return Ring<Env>(view_->ring(piece), piece.capacity(), &cells.hint).touch_tail(work, record.window_begin);
  }

  /// sync: name-words (release): whoever walks a bucket and sees a word of this also sees that the place had been
  /// unlinked there.
  static void write_name(BreakerCells<Env>& cells, std::string_view name, std::uint64_t hash) noexcept {
    Env::store(cells.name_bytes, name.size(), Env::release);
    Env::store(cells.name_hash, hash, Env::release);
    for (std::size_t i = 0; i * 8 < name.size(); ++i) {
      std::uint64_t word = 0;
      std::memcpy(&word, name.data() + i * 8, name.size() - i * 8 < 8 ? name.size() - i * 8 : 8);
      Env::store(cells.name[i], word, Env::release);
    }
  }

  void hand_over(const Prepared& prepared) noexcept {
    RecordPool<Env>::hand_over(view_->record(prepared.record)->owner, prepared.record_owner);
    RecordPool<Env>::hand_over(view_->breaker(prepared.breaker)->owner, prepared.place);
  }

  /// Somebody else registered the name first.
  void abandon(const Prepared& prepared) noexcept {
    auto& cells = *view_->breaker(prepared.breaker);
    forget_record(cells);  // so that it is nobody's but ours again
    RecordPool<Env>(*view_, *presence_).release(prepared.record);
    give_up(cells, prepared.place);
  }

  /// The control word of a place of ours names no record any more, and goes on from what it was.
  static void forget_record(BreakerCells<Env>& cells) noexcept {
    const Control before{Env::load(cells.control, Env::relaxed)};                       // relaxed: our own word
    if (before.bits != 0) Env::store(cells.control, before.left().bits, Env::release);  // sync: control
  }

  void give_up(BreakerCells<Env>& cells, OwnerWord mine) noexcept {
    Env::cas(cells.owner, mine.bits, 0, Env::acq_rel);  // sync: place-owner
  }

  // ---- places
  // --------------------------------------------------------------------------------------------------------------

  /// Takes a place with a ring of at least `capacity` slots: a fresh one, else one that was given up or whose taker is
  /// dead.
  [[nodiscard]] Errc claim_place(std::uint32_t capacity, Prepared& prepared, Work& work) noexcept {
    const std::uint32_t places = view_->geometry().breakers;
    Errc error = Errc::registry_full;
    auto& cursor = view_->words().breaker_cursor;
    const std::uint64_t start = Env::load(cursor, Env::relaxed);  // relaxed: only saves scanning
    for (const bool take_back : {false, true}) {
      for (std::uint64_t n = take_back ? 0 : start; n < places && work.charge(); ++n) {
        const auto index = static_cast<std::uint32_t>(n);
        const Errc taken = try_claim_place(index, capacity, take_back, 0, prepared, work);
        if (taken == Errc::ok) {
          prepared.breaker = index;
          if (!take_back) Env::cas(cursor, start, n + 1, Env::relaxed);  // relaxed: as above
          return Errc::ok;
        }
        if (taken == Errc::ring_full || taken == Errc::corrupt) error = taken;
        if (taken == Errc::ring_full && !take_back) break;  // no fresh place will do better
      }
    }
    return error;
  }

  /// Takes a place for a group's breaker: one more, while the group may have more, else one that it has and does not
  /// use, else one whose breaker is idle.
  [[nodiscard]] Errc claim_member_place(std::uint32_t capacity, std::uint64_t hash, rules::Tick now,
                                        const Member& member, Prepared& prepared, Work& work) noexcept {
    Errc error = groups_.has_room(member.entry);
    if (error == Errc::ok) {
      error = claim_place(capacity, prepared, work);
      if (error == Errc::ok) {
        error = groups_.admit(member.entry, prepared.breaker);
        if (error == Errc::ok) return Errc::ok;
        give_up(*view_->breaker(prepared.breaker), prepared.place);
      }
    }
    if (error == Errc::corrupt || error == Errc::busy) return error;
    const auto try_unused = [&](std::uint32_t index, BreakerCells<Env>& /*cells*/) {
      return try_claim_place(index, capacity, true, member.group, prepared, work);
    };
    const auto try_idle = [&](std::uint32_t index, BreakerCells<Env>& cells) {
      return try_recycle(index, cells, capacity, now, member, prepared, work);
    };
    Errc taken = try_members(hash, member, try_unused, prepared, work);
    if (taken == Errc::group_full) taken = try_members(hash, member, try_idle, prepared, work);
    // Once more: what was lost may be idle again, or other places may have become so.
    if (taken == Errc::busy) taken = try_members(hash, member, try_idle, prepared, work);
    return taken == Errc::ok || taken == Errc::corrupt ? taken : error;
  }

  /// Tries each place of a group until one is got: ok, or corrupt. Else busy, if one was lost to a race, or group_full.
  template <class TryPlace>
  [[nodiscard]] Errc try_members(std::uint64_t hash, const Member& member, TryPlace try_place, Prepared& prepared,
                                 Work& work) noexcept {
    const std::uint32_t places = view_->geometry().breakers;
    Errc none = Errc::group_full;
    for (std::uint64_t n = 0; n < places && work.charge(); ++n) {
      const auto index = static_cast<std::uint32_t>((hash + n) % places);  // not all from the same place on
      auto& cells = *view_->breaker(index);
      if (group_of(cells) != member.group) continue;
      const Errc taken = try_place(index, cells);
      if (taken == Errc::ok) prepared.breaker = index;
      if (taken == Errc::ok || taken == Errc::corrupt) return taken;
      if (taken == Errc::busy) none = taken;
    }
    return none;
  }

  /// A place that is free, or whose taker is dead, of a group or of none.
  [[nodiscard]] Errc try_claim_place(std::uint32_t index, std::uint32_t capacity, bool take_back, Bits group,
                                     Prepared& prepared, Work& work) noexcept {
    auto& cells = *view_->breaker(index);
    const OwnerWord owner{Env::load(cells.owner, Env::acquire)};  // sync: place-owner
    if (owner.published() || group_of(cells) != group) return Errc::registry_full;
    if (!owner.free()) {
      if (!take_back || !presence_->is_dead(owner)) return being_prepared(index, owner, prepared);
      // It may have been admitted to a group and not have got to say so.
      if (const Errc error = groups_.finish_all(); error != Errc::ok) return error;
      if (group_of(cells) != group) return Errc::registry_full;
      if (!control_of(cells).gone()) {
        const std::optional<bool> named = in_index(index, cells, work);
        if (!named) return Errc::registry_full;  // cannot be told: it is left as it is
        if (*named) {                            // it died between publishing and saying so, or recycling it
          const Control word = control_of(cells);
          if (word.retiring())
            Env::cas(cells.control, word.bits, word.taken_back().bits, Env::acq_rel);  // sync: control
          Env::cas(cells.owner, owner.bits, owner.handed_over().bits, Env::acq_rel);   // sync: place-owner
          return Errc::registry_full;
        }
      }
    }
    if (!has_room(cells, capacity)) return Errc::ring_full;  // before anything is written
    prepared.place = presence_->own();
    if (!Env::cas(cells.owner, owner.bits, prepared.place.bits, Env::acq_rel)) {  // sync: place-owner
      return being_prepared(index, owner, prepared);
    }
    const Errc error = make_private(index, cells, capacity, group, prepared.ring, work);
    if (error != Errc::ok) give_up(cells, prepared.place);
    return error;
  }

  [[nodiscard]] static Errc being_prepared(std::uint32_t index, OwnerWord owner, Prepared& prepared) noexcept {
    prepared.busy = true;
    prepared.busy_breaker = index;
    prepared.busy_place = owner;
    return Errc::registry_full;
  }

  /// What a place of ours still has of its last owner, who may have died anywhere.
  [[nodiscard]] Errc make_private(std::uint32_t index, BreakerCells<Env>& cells, std::uint32_t capacity, Bits group,
                                  RingWord& ring, Work& work) noexcept {
    if (group_of(cells) != group) return Errc::registry_full;  // it was admitted to one since we looked
    // A dead recycler may have left it in the index. Only now that it is ours: only its owner unlinks a place.
    // relaxed: written by whoever owned it before
    const std::uint64_t hash = Env::load(cells.name_hash, Env::relaxed);
    if (control_of(cells).gone() && !index_.unlink(index, hash, work)) return Errc::corrupt;
    forget_record(cells);  // a dead taker's
    return take_ring(index, cells, capacity, ring);
  }

  /// A place of a group whose breaker is idle: its life ends, and the place is ours. group_full: it is not idle; busy:
  /// it was, until somebody used it or took the place. (docs/design.md, "Recycling")
  [[nodiscard]] Errc try_recycle(std::uint32_t index, BreakerCells<Env>& cells, std::uint32_t capacity, rules::Tick now,
                                 const Member& member, Prepared& prepared, Work& work) noexcept {
    const OwnerWord owner{Env::load(cells.owner, Env::acquire)};  // sync: place-owner
    BreakerCell<Env> cell;
    if (!owner.published() || handle(index, cell) != Errc::ok || !has_room(cells, capacity)) return Errc::group_full;
    Control word;
    typename Ring<Env>::Position tail = 0;
    if (!cell.core().idle(now, groups_.rules(member.entry).idle_after_ms(), word, tail)) return Errc::group_full;
    prepared.place = presence_->own();
    if (!Env::cas(cells.owner, owner.bits, prepared.place.bits, Env::acq_rel)) return Errc::busy;  // sync: place-owner
    if (!cell.core().retire(word, tail)) {
      Env::cas(cells.owner, prepared.place.bits, prepared.place.handed_over().bits, Env::acq_rel);  // sync: place-owner
      return Errc::busy;
    }
    const Errc error = make_private(index, cells, capacity, member.group, prepared.ring, work);
    if (error != Errc::ok) give_up(cells, prepared.place);
    return error;
  }

  /// Waits a little for whoever is preparing the last place: it may give it back, or register the very name that is
  /// wanted here. False: there is nobody, or it takes too long (it may be stopped).
  [[nodiscard]] bool let_finish(const Prepared& prepared) const noexcept {
    if (!prepared.busy) return false;
    const auto& owner = view_->breaker(prepared.busy_breaker)->owner;
    const Instant until = SystemClock{}.now() + kPatience;
    while (Env::load(owner, Env::relaxed) == prepared.busy_place.bits) {  // relaxed: looked at again if it changed
      if (SystemClock{}.now() >= until) return false;
      ::sched_yield();
    }
    return true;
  }

  /// Whether the index names this place: then it is published, whatever its owner word says. None: not found out.
  [[nodiscard]] std::optional<bool> in_index(std::uint32_t index, const BreakerCells<Env>& cells,
                                             Work& work) const noexcept {
    // relaxed: read after an acquired owner word
    return index_.links(index, Env::load(cells.name_hash, Env::relaxed), work);
  }

  // ---- the arena
  // -------------------------------------------------------------------------------------------------------------

  /// Whether a place has a large enough piece, or the arena can give it one as things stand.
  [[nodiscard]] bool has_room(const BreakerCells<Env>& cells, std::uint32_t capacity) noexcept {
    const ArenaWord arena{Env::load(view_->words().arena, Env::acquire)};  // sync: arena
    // The newest piece may be this place's already: its taker died before it was written down.
    if (finish_taking(arena) != Errc::ok) return true;        // take_ring will say so
    const RingWord has{Env::load(cells.ring, Env::acquire)};  // sync: arena
    if (has.assigned()) return view_->ring(has) != nullptr && has.capacity() >= capacity;
    const std::uint64_t units = view_->geometry().ring_slots / kMinRing;
    return arena.units() <= units && RingWord::request(capacity).units() <= units - arena.units();
  }

  /// Gets this process's place a piece of the arena, `ring`; one that the place has from an earlier taker stays its
  /// own.
  [[nodiscard]] Errc take_ring(std::uint32_t index, BreakerCells<Env>& cells, std::uint32_t capacity,
                               RingWord& ring) noexcept {
    auto& arena = view_->words().arena;
    for (Work work; work.charge();) {
      const ArenaWord seen{Env::load(arena, Env::acquire)};  // sync: arena
      if (const Errc error = finish_taking(seen); error != Errc::ok) return error;
      const RingWord has{Env::load(cells.ring, Env::acquire)};  // sync: arena
      if (has.assigned()) {
        ring = has;
        return view_->ring(has) != nullptr && has.capacity() >= capacity ? Errc::ok : Errc::ring_full;
      }
      const RingWord wanted = RingWord::request(capacity);
      if (has.bits != wanted.bits) Env::cas(cells.ring, has.bits, wanted.bits, Env::release);  // sync: arena
      const std::uint64_t units = view_->geometry().ring_slots / kMinRing;
      if (seen.units() > units || wanted.units() > units - seen.units()) return Errc::ring_full;
      // sync: arena (release): the request; whoever sees us as the taker can finish it
      Env::cas(arena, seen.bits, ArenaWord::make(index, seen.units() + wanted.units()).bits, Env::acq_rel);
      // Won or lost: the next round finds out, and finishes the taking in either case.
    }
    return Errc::corrupt;
  }

  /// Writes the newest piece of the arena into its taker's place, unless that is done.
  [[nodiscard]] Errc finish_taking(ArenaWord arena) noexcept {
    if (!arena.has_taker()) return Errc::ok;
    auto* cells = view_->breaker(arena.taker());
    if (cells == nullptr) return Errc::corrupt;
    const RingWord wanted{Env::load(cells->ring, Env::acquire)};  // sync: arena
    if (wanted.assigned()) return Errc::ok;
    if (!wanted.valid() || wanted.units() > arena.units()) return Errc::corrupt;
    // A lost swap means that another has done it.
    Env::cas(cells->ring, wanted.bits, wanted.assigned_at(arena.units() - wanted.units()).bits,
             Env::acq_rel);  // sync: arena
    return Errc::ok;
  }

  static constexpr int kAttempts = 256;  // arbitrary: how many others may take the last place and give it back
  // Arbitrary: preparing takes microseconds, but whoever does it may have lost its processor. Who is stopped in it must
  // not hold up the others for long.
  static constexpr Millis kPatience{2'000};

  const SegmentView<Env>* view_;
  Presence* presence_;
  NameIndex<Env> index_;
  Groups<Env> groups_;
};

}  // namespace shmcb::core
