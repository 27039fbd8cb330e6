// SPDX-License-Identifier: BSD-3-Clause
// The registry: name to breaker. A new breaker is prepared completely in private and published by ONE compare-and-swap
// in the index; a process killed before that leaves a place and a record that the next one in need takes back, never a
// name. Entries of the index are never removed, so a probe sequence ends at the first empty slot.
#pragma once

#include <sched.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "shmcb/core/breaker_cell.hpp"
#include "shmcb/core/layout.hpp"
#include "shmcb/core/record_pool.hpp"
#include "shmcb/time.hpp"

namespace shmcb::core {

/// {tag of the name's hash 63..24, breaker + 1 23..0}: a slot of the index; zero is empty.
struct IndexWord {
  Bits bits = 0;
  [[nodiscard]] static constexpr IndexWord make(std::uint64_t hash, std::uint32_t breaker) noexcept {
    return {(hash & ~low_bits(24)) | (Bits{breaker} + 1)};
  }
  [[nodiscard]] constexpr bool empty() const noexcept { return bits == 0; }
  [[nodiscard]] constexpr bool same_tag(std::uint64_t hash) const noexcept { return ((bits ^ hash) >> 24U) == 0; }
  [[nodiscard]] constexpr std::uint32_t breaker() const noexcept {
    return static_cast<std::uint32_t>((bits & low_bits(24)) - 1);
  }
};

struct HashName {
  [[nodiscard]] constexpr std::uint64_t operator()(std::string_view name) const noexcept {
    // FNV-1a's low bits choose the slot, its high bits are the tag; folded, because FNV mixes downwards badly.
    const std::uint64_t hash = fnv1a(name);
    return hash ^ (hash >> 32U);
  }
};

template <class Env, class Hash = HashName>
class Registry {
 public:
  Registry(const SegmentView<Env>& view, Presence& presence) noexcept : view_(&view), presence_(&presence) {}

  /// Looks a name up: breaker_not_found, or corrupt, or `breaker` is set.
  [[nodiscard]] Errc find(std::string_view name, BreakerCell<Env>& breaker) const noexcept {
    Work work;
    const Found found = look_up(name, Hash{}(name), work);
    if (found.error != Errc::ok) return found.error;
    if (found.empty_slot != nullptr) return Errc::breaker_not_found;
    return handle(found.breaker, breaker);
  }

  /// Finds the breaker `name` or registers it with `settings` at `now`; `created` tells which. Requires a checked name
  /// and settings.
  [[nodiscard]] Errc find_or_add(std::string_view name, const Settings& settings, rules::Tick now,
                                 BreakerCell<Env>& breaker, bool& created) noexcept {
    created = false;
    const std::uint64_t hash = Hash{}(name);
    for (int attempt = 0;; ++attempt) {
      Work work;
      const Found found = look_up(name, hash, work);
      if (found.error != Errc::ok) return found.error;
      if (found.empty_slot == nullptr) return handle(found.breaker, breaker);
      Prepared prepared;
      const Errc error = prepare(name, hash, settings, now, prepared, work);
      if (error == Errc::ok) return publish(name, hash, prepared, breaker, created, work);
      if (error != Errc::registry_full && error != Errc::ring_full) return error;
      // Who got the last place, or the last piece of the arena, may have registered this very name, or be about to:
      // many processes start at once.
      if (attempt == kAttempts || !let_finish(prepared)) {
        const Found again = look_up(name, hash, work);
        return again.error == Errc::ok && again.empty_slot == nullptr ? handle(again.breaker, breaker) : error;
      }
    }
  }

  /// The breaker at a place, if a published one is there.
  [[nodiscard]] bool published(std::uint32_t index) const noexcept {
    const auto* cells = view_->breaker(index);
    Work work;
    return cells != nullptr && (OwnerWord{Env::load(cells->owner, Env::acquire)}.published() ||
                                in_index(index, *cells, work).value_or(true));  // sync: place-owner
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

  /// A place's name, copied into `buffer` of kMaxNameBytes; empty where its length or a character is not one.
  [[nodiscard]] static std::string_view name_of(const BreakerCells<Env>& cells, char* buffer) noexcept {
    const std::uint64_t bytes = Env::load(cells.name_bytes, Env::relaxed);  // relaxed: published by sync: index
    if (bytes == 0 || bytes > kMaxNameBytes) return {};
    for (std::size_t i = 0; i * 8 < bytes; ++i) {
      const std::uint64_t word = Env::load(cells.name[i], Env::relaxed);  // relaxed: as above
      std::memcpy(buffer + i * 8, &word, 8);
    }
    const std::string_view name{buffer, bytes};
    for (const char c : name) {
      if (!detail::is_name_char(c)) return {};
    }
    return name;
  }

 private:
  struct Found {
    Errc error = Errc::ok;
    std::uint32_t breaker = 0;
    typename Env::Word* empty_slot = nullptr;  ///< not null: the name is not registered, and would go here
  };

  struct Prepared {
    std::uint32_t breaker = 0;
    OwnerWord place{};
    bool busy = false;               ///< where all places are taken: a living process is just preparing one, ...
    std::uint32_t busy_breaker = 0;  ///< ... which is this
    OwnerWord busy_place{};          ///< ... with that owner
    std::uint32_t record = 0;
    OwnerWord record_owner{};
  };

  [[nodiscard]] Found look_up(std::string_view name, std::uint64_t hash, Work& work) const noexcept {
    for (std::uint64_t n = 0; n < view_->geometry().index_slots && work.charge(); ++n) {
      auto& slot = view_->index_slot(hash + n);
      const IndexWord entry{Env::load(slot, Env::acquire)};  // sync: index
      if (entry.empty()) return {.empty_slot = &slot};
      if (!entry.same_tag(hash)) continue;
      const auto* cells = view_->breaker(entry.breaker());
      if (cells == nullptr) return {.error = Errc::corrupt};
      char buffer[kMaxNameBytes];
      if (name_of(*cells, buffer) == name) return {.breaker = entry.breaker()};
    }
    return {.error = Errc::corrupt};  // half of the slots are empty, always
  }

  /// Gives what was prepared its name by one swap, unless somebody else has registered it meanwhile.
  [[nodiscard]] Errc publish(std::string_view name, std::uint64_t hash, const Prepared& prepared,
                             BreakerCell<Env>& breaker, bool& created, Work& work) noexcept {
    Found found = look_up(name, hash, work);
    while (found.error == Errc::ok && found.empty_slot != nullptr) {
      // A process that looked dead may have lost its place. relaxed: our own word
      if (Env::load(view_->breaker(prepared.breaker)->owner, Env::relaxed) != prepared.place.bits) {
        RecordPool<Env>(*view_, *presence_).release(prepared.record);
        return Errc::busy;
      }
      // sync: index (release): everything that was prepared. A lost swap means that somebody registered a name here:
      // look again.
      if (Env::cas(*found.empty_slot, 0, IndexWord::make(hash, prepared.breaker).bits, Env::acq_rel)) {
        hand_over(prepared);
        created = true;
        return handle(prepared.breaker, breaker);
      }
      found = look_up(name, hash, work);
    }
    abandon(prepared);
    return found.error != Errc::ok ? found.error : handle(found.breaker, breaker);
  }

  /// Fills a place, its ring and its first record; nobody can see them yet.
  [[nodiscard]] Errc prepare(std::string_view name, std::uint64_t hash, const Settings& settings, rules::Tick now,
                             Prepared& prepared, Work& work) noexcept {
    if (!presence_->ensure_current()) return Errc::busy;
    if (const Errc error = claim_place(ring_capacity(settings.window), prepared, work); error != Errc::ok) return error;
    auto& cells = *view_->breaker(prepared.breaker);
    // Of the ring that the place has: a piece from an earlier taker may be larger than what was asked for.
    const std::uint32_t capacity = RingWord{Env::load(cells.ring, Env::acquire)}.capacity();  // sync: arena
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
    record.breaker.since = now;
    record.window_begin = capacity;
    pool.fill(prepared.record, prepared.breaker, record);

    // relaxed to the end: nobody reads them before the index or a place-owner word has released them
    Env::store(cells.name_bytes, name.size(), Env::relaxed);
    Env::store(cells.name_hash, hash, Env::relaxed);
    for (std::size_t i = 0; i * 8 < name.size(); ++i) {
      std::uint64_t word = 0;
      std::memcpy(&word, name.data() + i * 8, name.size() - i * 8 < 8 ? name.size() - i * 8 : 8);
      Env::store(cells.name[i], word, Env::relaxed);
    }
    Env::store(cells.hint, capacity, Env::relaxed);
    Env::store(cells.control, ControlWord<typename Env::Widths>::make(marks_of(record), prepared.record, 0, 0).bits,
               Env::release);  // sync: control
    return Errc::ok;
  }

  void hand_over(const Prepared& prepared) noexcept {
    RecordPool<Env>::hand_over(view_->record(prepared.record)->owner, prepared.record_owner);
    RecordPool<Env>::hand_over(view_->breaker(prepared.breaker)->owner, prepared.place);
  }

  /// Somebody else registered the name first.
  void abandon(const Prepared& prepared) noexcept {
    auto& cells = *view_->breaker(prepared.breaker);
    Env::store(cells.control, 0,
               Env::release);  // sync: control: names no record, so the record is nobody's but ours again
    RecordPool<Env>(*view_, *presence_).release(prepared.record);
    give_up(cells, prepared.place);
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
        const Errc taken = try_claim_place(index, capacity, take_back, prepared, work);
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

  [[nodiscard]] Errc try_claim_place(std::uint32_t index, std::uint32_t capacity, bool take_back, Prepared& prepared,
                                     Work& work) noexcept {
    auto& cells = *view_->breaker(index);
    const OwnerWord owner{Env::load(cells.owner, Env::acquire)};  // sync: place-owner
    if (owner.published()) return Errc::registry_full;
    if (!owner.free()) {
      if (!take_back || !presence_->is_dead(owner)) {
        prepared.busy = true;
        prepared.busy_breaker = index;
        prepared.busy_place = owner;
        return Errc::registry_full;
      }
      const std::optional<bool> named = in_index(index, cells, work);
      if (!named) return Errc::registry_full;  // cannot be told: it is left as it is
      if (*named) {                            // it died between publishing and saying so
        Env::cas(cells.owner, owner.bits, owner.handed_over().bits, Env::acq_rel);  // sync: place-owner
        return Errc::registry_full;
      }
    }
    if (!has_room(cells, capacity)) return Errc::ring_full;  // before anything is written
    prepared.place = presence_->own();
    if (!Env::cas(cells.owner, owner.bits, prepared.place.bits, Env::acq_rel)) {  // sync: place-owner
      prepared.busy = true;
      prepared.busy_breaker = index;
      prepared.busy_place = owner;
      return Errc::registry_full;
    }
    Env::store(cells.control, 0, Env::release);  // sync: control: a dead taker's record is named no longer
    const Errc ring = take_ring(index, cells, capacity);
    if (ring != Errc::ok) give_up(cells, prepared.place);
    return ring;
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
    const std::uint64_t hash = Env::load(cells.name_hash, Env::relaxed);  // relaxed: read after an acquired owner word
    for (std::uint64_t n = 0; n < view_->geometry().index_slots; ++n) {
      if (!work.charge()) return std::nullopt;
      const IndexWord entry{Env::load(view_->index_slot(hash + n), Env::acquire)};  // sync: index
      if (entry.empty()) return false;
      if (entry.breaker() == index) return true;
    }
    return std::nullopt;
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

  /// Gets this process's place a piece of the arena; a piece that the place has from an earlier taker stays with it.
  [[nodiscard]] Errc take_ring(std::uint32_t index, BreakerCells<Env>& cells, std::uint32_t capacity) noexcept {
    auto& arena = view_->words().arena;
    for (Work work; work.charge();) {
      const ArenaWord seen{Env::load(arena, Env::acquire)};  // sync: arena
      if (const Errc error = finish_taking(seen); error != Errc::ok) return error;
      const RingWord has{Env::load(cells.ring, Env::acquire)};  // sync: arena
      if (has.assigned()) {
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
};

}  // namespace shmcb::core
