// SPDX-License-Identifier: BSD-3-Clause
// The index of names: buckets of places, each a singly linked list through the places themselves. A place enters at the
// head by ONE compare-and-swap and can leave from anywhere: its own link is marked first, so that nothing is hung
// behind it any more, then the link that leads to it is swapped past it. Every link carries a version, so that no value
// of one comes back (after M. Michael, "High performance dynamic lock-free hash tables and list-based sets", SPAA
// 2002).
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "shmcb/core/layout.hpp"
#include "shmcb/core/ring.hpp"

namespace shmcb::core {

/// A place's name, copied into `buffer` of kMaxNameBytes; empty where its length or a character is not one.
template <class Env>
[[nodiscard]] std::string_view name_of(const BreakerCells<Env>& cells, char* buffer) noexcept {
  // sync: name-words (acquire, all of them): who sees one of a later life sees that the place was unlinked before it
  const std::uint64_t bytes = Env::load(cells.name_bytes, Env::acquire);
  if (bytes == 0 || bytes > kMaxNameBytes) return {};
  for (std::size_t i = 0; i * 8 < bytes; ++i) {
    const std::uint64_t word = Env::load(cells.name[i], Env::acquire);
    std::memcpy(buffer + i * 8, &word, 8);
  }
  const std::string_view name{buffer, bytes};
  for (const char c : name) {
    if (!detail::is_name_char(c)) return {};
  }
  return name;
}

template <class Env>
class NameIndex {
 public:
  using Word = typename Env::Word;

  struct Found {
    Errc error = Errc::ok;
    bool found = false;
    std::uint32_t place = 0;
    Bits incarnation = 0;  ///< of the place, while the name was linked
    LinkWord next{};       ///< the place's own link
    LinkWord head{};       ///< not found: the bucket's head, before which the name may be linked
  };

  explicit NameIndex(const SegmentView<Env>& view) noexcept : view_(&view) {}

  /// The place that lives under a name.
  [[nodiscard]] Found find(std::string_view name, std::uint64_t hash, Work& work) const noexcept {
    for (;;) {
      const Found found = walk(hash, work, [&](const BreakerCells<Env>& cells, Found& at) {
        if (Env::load(cells.name_hash, Env::acquire) != hash) return false;  // sync: name-words
        at.incarnation = Env::load(cells.incarnation, Env::acquire);         // sync: name-words
        char buffer[kMaxNameBytes];
        return name_of<Env>(cells, buffer) == name;
      });
      if (found.error != Errc::ok || !found.found) return found;
      auto& cells = *view_->breaker(found.place);
      if (!ControlWord<typename Env::Widths>{Env::load(cells.control, Env::acquire)}.gone())
        return found;  // sync: control
      // Its recycler has not got further, or is dead. Marked from the link of THIS life.
      Env::cas(cells.next, found.next.bits, found.next.unlink().bits, Env::acq_rel);  // sync: index
    }
  }

  /// Whether a place is in the bucket. None: not found out.
  [[nodiscard]] std::optional<bool> links(std::uint32_t place, std::uint64_t hash, Work& work) const noexcept {
    const Found found =
        walk(hash, work, [place](const BreakerCells<Env>&, const Found& at) { return at.place == place; });
    if (found.error != Errc::ok) return std::nullopt;
    return found.found;
  }

  /// Links a place of ours whose name was not found. False: the bucket's head has changed since; look again.
  [[nodiscard]] bool insert(std::uint32_t place, std::uint64_t hash, LinkWord head) const noexcept {
    auto& cells = *view_->breaker(place);
    const LinkWord own{Env::load(cells.next, Env::relaxed)};  // relaxed: our own word; it keeps its version for good
    // sync: index (release): who reads it on an old way through sees that the place was unlinked there
    Env::store(cells.next, own.to_where(head).bits, Env::release);
    // sync: index (release): everything that was prepared
    return Env::cas(view_->index_slot(hash), head.bits, head.to_place(place).bits, Env::acq_rel);
  }

  /// Unlinks a place of ours, if it is linked. False: corrupt.
  [[nodiscard]] bool unlink(std::uint32_t place, std::uint64_t hash, Work& work) const noexcept {
    auto& next = view_->breaker(place)->next;
    while (work.charge()) {
      const LinkWord seen{Env::load(next, Env::acquire)};  // sync: index
      // Lost: the place behind it was unlinked.
      if (!seen.unlinked() && !Env::cas(next, seen.bits, seen.unlink().bits, Env::acq_rel)) continue;  // sync: index
      // Who walks the bucket to its end has met it, and unlinked it.
      return walk(hash, work, [](const BreakerCells<Env>&, const Found&) { return false; }).error == Errc::ok;
    }
    return false;
  }

 private:
  enum class Step : std::uint8_t { on, found, changed, corrupt };

  struct Walk {
    Word* head;
    Word* link;  ///< that we came by
    LinkWord at;
    Found found{};
    std::uint32_t hops = 0;
  };

  /// Walks a bucket until `matches(cells, found)`. What was looked at was linked all the while: the link that leads to
  /// a place is read again afterwards.
  template <class Matches>
  [[nodiscard]] Found walk(std::uint64_t hash, Work& work, Matches matches) const noexcept {
    while (work.charge()) {
      Word& head = view_->index_slot(hash);
      const LinkWord first{Env::load(head, Env::acquire)};  // sync: index
      Walk walk{&head, &head, first};
      walk.found.head = first;
      Step step = Step::on;
      while (step == Step::on && !walk.at.end())
        step = take_step(walk, work, matches);
      if (step == Step::on || step == Step::found) return walk.found;
      if (step == Step::corrupt) break;
    }
    return {.error = Errc::corrupt};
  }

  template <class Matches>
  [[nodiscard]] Step take_step(Walk& walk, Work& work, Matches& matches) const noexcept {
    auto* cells = view_->breaker(walk.at.place());
    // No place is met twice on one way: who is unlinked enters again at the head. More of them is a circle.
    if (cells == nullptr || ++walk.hops > view_->geometry().breakers || !work.charge()) return Step::corrupt;
    const LinkWord next{Env::load(cells->next, Env::acquire)};  // sync: index
    if (next.unlinked()) {
      const LinkWord past = walk.at.to_where(next);
      if (!Env::cas(*walk.link, walk.at.bits, past.bits, Env::acq_rel)) return Step::changed;  // sync: index
      if (walk.link == walk.head) walk.found.head = past;
      walk.at = past;
      return Step::on;
    }
    walk.found.place = walk.at.place();
    walk.found.next = next;
    walk.found.found = matches(*cells, walk.found);
    // relaxed: behind acquire loads of what the next owner of the place wrote after it had been unlinked here
    if (Env::load(*walk.link, Env::relaxed) != walk.at.bits) return Step::changed;
    walk.link = &cells->next;
    walk.at = next;
    return walk.found.found ? Step::found : Step::on;
  }

  const SegmentView<Env>* view_;
};

}  // namespace shmcb::core
