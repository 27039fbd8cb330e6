// SPDX-License-Identifier: BSD-3-Clause
#include "shmcb/segment_reader.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <map>
#include <set>
#include <unordered_map>

#include "events.hpp"
#include "participants.hpp"
#include "segment_files.hpp"
#include "segment_image.hpp"
#include "shmcb/core/journal.hpp"
#include "shmcb/core/presence.hpp"
#include "shmcb/core/registry.hpp"

namespace shmcb {

struct SegmentReader::State {
  shm::Fd fd;
  core::Header header{};
  core::Geometry geometry;
  std::string name;
  std::string path;
  std::string creation_id;

  /// `error` of this segment.
  [[nodiscard]] Error refuse(const Error& error) const {
    return {error.code, "segment '" + name + "': " + error.message};
  }
};

namespace {

using Env = core::StdEnv;
using View = core::SegmentView<Env>;
using Cells = core::BreakerCells<Env>;
using Control = core::ControlWord<Env::Widths>;
using Registry = core::Registry<Env>;
using shm::SegmentImage;

// How patiently a breaker that keeps changing is read again: a reading takes microseconds, and one in which nothing
// moved is enough.
constexpr int kReadings = 64;  // arbitrary
constexpr int kScans = 8;      // arbitrary: of the index, which fits together unless places are being recycled
constexpr std::uint64_t kReadAgainBytes = std::uint64_t{1}
                                          << 30U;  // of all breakers in one call: a fraction of a second

// relaxed wherever a word is loaded in this file: what is loaded lies in memory of this thread, where `pread` has put
// it.
[[nodiscard]] std::uint64_t get(const Env::Word& word) noexcept {
  return Env::load(word, Env::relaxed);
}

template <class T, class F>
Result<T> without_exceptions(F function) noexcept {
  try {
    return function();
  } catch (const std::exception& e) {
    return Error{Errc::system, std::string{"reading the segment: "} + e.what()};
  }
}

[[nodiscard]] std::string hex(const std::array<std::uint8_t, 16>& bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (const std::uint8_t byte : bytes) {
    out += kDigits[byte >> 4U];
    out += kDigits[byte & 0xFU];
  }
  return out;
}

/// Nobody to be, nobody to ask: reading needs neither.
struct NoKernel final : core::Presence::Kernel {
  bool renew(core::Presence&) noexcept override { return false; }
  bool is_dead(const core::Presence&, std::uint16_t, std::uint32_t) noexcept override { return false; }
  bool is_unheld(const core::Presence&, std::uint16_t) noexcept override { return false; }
};

// ---- reading what is used -----------------------------------------------------------------------

/// A run of places, records or units of the arena.
struct Run {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};

/// Reads the runs in as few calls as makes sense: what lies between two of them is read along where it is little.
template <class Read>
[[nodiscard]] Error read_runs(std::vector<Run> runs, std::uint64_t gap, Read read) {
  std::sort(runs.begin(), runs.end(), [](Run a, Run b) { return a.first < b.first; });
  for (std::size_t i = 0; i < runs.size();) {
    const std::uint64_t first = runs[i].first;
    std::uint64_t end = first;
    for (; i < runs.size() && (end == first || runs[i].first <= end + gap); ++i) {
      end = std::max(end, runs[i].first + runs[i].count);
    }
    if (Error error = read(first, end - first)) return error;
  }
  return {};
}

[[nodiscard]] Error read_places(SegmentImage& image, const std::vector<std::uint32_t>& places) {
  std::vector<Run> runs;
  runs.reserve(places.size());
  for (const std::uint32_t place : places)
    runs.push_back({place, 1});
  return read_runs(std::move(runs), 64, [&image](std::uint64_t first, std::uint64_t count) {
    return image.read_breakers(static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(count));
  });
}

/// The record that a place's control word names, where there can be one.
[[nodiscard]] std::uint32_t record_of(const View& view, const Cells& cells) noexcept {
  const Control word{get(cells.control)};
  return (word.valid() || word.retiring()) && view.record(word.record()) != nullptr ? word.record() : core::kNoRecord;
}

[[nodiscard]] Error read_records_of(SegmentImage& image, const std::vector<std::uint32_t>& places) {
  std::vector<Run> runs;
  runs.reserve(places.size());
  for (const std::uint32_t place : places) {
    const std::uint32_t record = record_of(image.view(), *image.view().breaker(place));
    if (record != core::kNoRecord) runs.push_back({record, 1});
  }
  return read_runs(std::move(runs), 64, [&image](std::uint64_t first, std::uint64_t count) {
    return image.read_records(static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(count));
  });
}

/// The piece of the arena that a place has; empty where its word makes no sense.
[[nodiscard]] Run ring_of(const View& view, const Cells& cells) noexcept {
  const core::RingWord ring{get(cells.ring)};
  return view.ring(ring) != nullptr ? Run{ring.first_unit(), ring.units()} : Run{};
}

/// What the index says.
struct Index {
  std::vector<bool> named;            ///< by place
  std::vector<std::uint32_t> places;  ///< the same, ascending
  std::uint32_t bad_entries = 0;
};

[[nodiscard]] Control control_of(const Cells& cells) noexcept {
  return {get(cells.control)};
}

/// Whether a link of the bucket may lead there. (One that does not belong there has been recycled since the link was
/// read, or no correct process wrote it.)
[[nodiscard]] bool belongs(const View& view, std::uint32_t place, std::uint64_t bucket) noexcept {
  return (get(view.breaker(place)->name_hash) & (view.geometry().index_slots - 1)) == bucket;
}

/// One pass over all buckets, link by link: the places that are read in one round are those that the round before
/// found. The link of each place is followed once, so that a circle ends, also one of places that name nothing.
[[nodiscard]] Error scan_once(SegmentImage& image, Index& index) {
  struct Link {
    std::uint64_t bucket;
    core::LinkWord word;
  };
  const View& view = image.view();
  if (Error error = image.read_index()) return error;
  index = {};
  index.named.resize(view.geometry().breakers);
  std::vector<bool> followed(view.geometry().breakers);
  std::vector<Link> links;
  for (std::uint64_t n = 0; n < view.geometry().index_slots; ++n)
    links.push_back({n, {get(view.index_slot(n))}});
  while (true) {
    std::vector<std::uint32_t> round;
    std::vector<Link> reached;
    for (const Link& link : links) {
      if (link.word.end()) continue;
      if (link.word.place() >= followed.size() || followed[link.word.place()]) {
        ++index.bad_entries;
        continue;
      }
      followed[link.word.place()] = true;
      round.push_back(link.word.place());
      reached.push_back(link);
    }
    if (round.empty()) break;
    if (Error error = read_places(image, round)) return error;
    links.clear();
    for (const Link& link : reached) {
      const Cells& cells = *view.breaker(link.word.place());
      if (!belongs(view, link.word.place(), link.bucket)) {
        ++index.bad_entries;
        followed[link.word.place()] = false;  // its own bucket may lead there later
        continue;
      }
      const core::LinkWord next{get(cells.next)};
      links.push_back({link.bucket, next});
      index.named[link.word.place()] = !next.unlinked() && !control_of(cells).gone();
    }
  }
  for (std::uint32_t place = 0; place < index.named.size(); ++place) {
    if (index.named[place]) index.places.push_back(place);
  }
  return {};
}

/// The index. What does not fit together because places were recycled meanwhile does so when it is read again.
[[nodiscard]] Error scan_index(SegmentImage& image, Index& index) {
  for (int scan = 0; scan < kScans; ++scan) {
    if (Error error = scan_once(image, index)) return error;
    if (index.bad_entries == 0) break;
  }
  return {};
}

/// Places whose rings overlap, which those of correct processes never do. (They are not decoded: every breaker could
/// name the largest ring there is, and together they would take hours.)
[[nodiscard]] std::vector<bool> overlapping(const View& view, const std::vector<std::uint32_t>& places) {
  struct Piece {
    Run ring;
    std::uint32_t place;
  };
  std::vector<Piece> pieces;
  pieces.reserve(places.size());
  for (const std::uint32_t place : places) {
    const Run ring = ring_of(view, *view.breaker(place));
    if (ring.count != 0) pieces.push_back({ring, place});
  }
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.ring.first < b.ring.first; });
  std::vector<bool> bad(view.geometry().breakers);
  const Piece* widest = nullptr;
  for (const Piece& piece : pieces) {
    if (widest != nullptr && piece.ring.first < widest->ring.first + widest->ring.count) {
      bad[piece.place] = bad[widest->place] = true;
    }
    if (widest == nullptr || piece.ring.first + piece.ring.count > widest->ring.first + widest->ring.count)
      widest = &piece;
  }
  return bad;
}

// ---- who is attached ----------------------------------------------------------------------------

/// The table of attached processes in an image.
class Processes {
 public:
  explicit Processes(const View& view) noexcept : view_(&view) {}

  /// None: no entry, or nobody in it.
  [[nodiscard]] std::optional<ProcessInfo> at(std::uint16_t number) const noexcept {
    const auto* entry = view_->participant(number);
    if (entry == nullptr || get(entry->process) == 0) return std::nullopt;
    const shm::ProcessSeen seen = seen_in(*entry);
    return ProcessInfo{.number = number, .pid = seen.pid, .foreign_pids = seen.pid_namespace != self_.pid_namespace};
  }

  /// Whether somebody may still act as this number: by the rule that the storage itself follows
  /// (Participants::is_dead).
  [[nodiscard]] bool alive(int fd, std::uint16_t number) {
    const auto known = alive_.find(number);
    if (known != alive_.end()) return known->second;
    bool answer = shm::is_locked(fd, number);
    if (const auto* entry = view_->participant(number); entry != nullptr && !answer) {
      const shm::ProcessSeen seen = seen_in(*entry);
      answer = seen.pid_namespace == self_.pid_namespace && shm::may_live(seen);
    }
    alive_.emplace(number, answer);
    return answer;
  }
  [[nodiscard]] bool alive(int fd, core::OwnerWord owner) {
    const auto* entry = view_->participant(owner.participant());
    return (entry == nullptr || get(entry->incarnation) == owner.incarnation()) && alive(fd, owner.participant());
  }

 private:
  [[nodiscard]] static shm::ProcessSeen seen_in(const core::ParticipantEntry<Env>& entry) noexcept {
    const std::uint64_t pid = get(entry.pid);
    return {.pid = static_cast<std::uint32_t>(pid & core::low_bits(32)),
            .pid_namespace = static_cast<std::uint32_t>(pid >> 32U),
            .start_time = get(entry.start_time)};
  }

  const View* view_;
  shm::ProcessSeen self_ = shm::describe_self();
  std::unordered_map<std::uint16_t, bool> alive_;
};

// ---- decoding one breaker -----------------------------------------------------------------------

enum class Decoded : std::uint8_t { yes, ring_moved, corrupt };

/// Turns the words of one breaker in an image into a BreakerInfo, by the core's own code.
class Decoder {
 public:
  Decoder(const View& view, Instant epoch, Instant now) noexcept : view_(&view), processes_(view) {
    constexpr std::int64_t kLatestUs = static_cast<std::int64_t>(core::kMaxTick) * 1'000;
    now_us_ = std::clamp<std::int64_t>((now - epoch).count(), 0, kLatestUs);
  }

  /// `hint_after`: where the ring's hint stood after the ring had been copied; the copy's tail is somewhere in between.
  [[nodiscard]] Decoded decode(std::uint32_t place, std::uint64_t hint_after, bool with_window, BreakerInfo& info) {
    Cells& cells = *view_->breaker(place);
    info = {};
    identify(place, cells, info);
    std::array<char, core::kMaxNameBytes> buffer{};
    if (core::name_of<Env>(cells, buffer.data()).empty()) return corrupt(info, "its name is not one");
    core::BreakerCell<Env> cell;
    if (Registry(*view_, presence_).handle(place, cell) != Errc::ok)
      return corrupt(info, "its ring lies outside the arena");
    Control word;
    core::Record record;
    if (!cell.load(word, record)) return corrupt(info, "its control word or its record holds what no process writes");
    core::CellState state;
    if (!count_near(cells, cell, hint_after, state, info.counters)) {
      info.error = {Errc::corrupt, label(info) + "its ring holds what no process writes"};
      return Decoded::ring_moved;
    }
    fill(cells, cell, word, record, state, info);
    if (with_window) add_window(cells, record, state, info);
    return Decoded::yes;
  }

  static void identify(std::uint32_t place, const Cells& cells, BreakerInfo& info) {
    info.place = place;
    std::array<char, core::kMaxNameBytes> bytes{};
    for (std::size_t i = 0; i < bytes.size(); i += 8) {
      const std::uint64_t word = get(cells.name[i / 8]);
      std::memcpy(bytes.data() + i, &word, 8);
    }
    info.name.assign(bytes.data(), std::min<std::uint64_t>(get(cells.name_bytes), bytes.size()));
  }

  [[nodiscard]] static std::string label(const BreakerInfo& info) {
    return "breaker " + detail::quoted(info.name) + ": ";
  }

  [[nodiscard]] static Decoded corrupt(BreakerInfo& info, std::string_view why) {
    info.error = {Errc::corrupt, label(info) + std::string{why}};
    return Decoded::corrupt;
  }

 private:
  /// Snapshot and counters with the tail found by the first hint of the interval that fits the copied slots. The ring
  /// was copied from its low addresses to its high ones while others appended in the same direction, so the copy has
  /// one tail, as a ring at rest has.
  [[nodiscard]] bool count_near(Cells& cells, const core::BreakerCell<Env>& cell, std::uint64_t hint_after,
                                core::CellState& state, Counters& counters) const noexcept {
    constexpr std::uint64_t kHints = 1024;  // arbitrary: thousands of outcomes while one ring was copied
    std::uint64_t hint = get(cells.hint);
    for (std::uint64_t n = 0; n < kHints; ++n) {
      // The counters first: they look for the tail in every state, and count no window in vain.
      if (cell.counters(static_cast<core::Bits>(now_us_), counters, 1) == Errc::ok &&
          cell.snapshot(state, 1) == Errc::ok)
        return true;
      const std::uint64_t next = hint - hint % core::kHintEvery + core::kHintEvery;
      if (hint >= hint_after || next > hint_after) return false;
      hint = next;
      Env::store(cells.hint, hint, Env::relaxed);
    }
    return false;
  }

  void fill(const Cells& cells, const core::BreakerCell<Env>& cell, Control word, const core::Record& record,
            const core::CellState& state, BreakerInfo& info) const {
    info.state = state.state;
    info.generation = word.generation();
    info.successes = state.successes;
    info.failures = state.failures;
    info.rejected = state.rejected;
    info.slow = state.slow;
    info.ramping = state.ramping;
    info.settings = record.settings;
    if (state.opened_at != rules::kNever) info.opened_age = age(state.opened_at * 1'000);
    if (record.breaker.since != rules::kNever) info.state_age = age(record.breaker.since * 1'000);
    if (state.state == CircuitState::half_open) info.lease_age = age(record.breaker.lease_at * 1'000);
    core::CellPeek peek;
    // The record was just decoded, so this does not fail.
    (void)cell.peek([this] { return static_cast<core::Bits>(now_us_); }, peek);
    info.cooldown_left = Millis{peek.cooldown_left};
    fill_mode(peek.mode, record, info);
    const rules::Probes& probes = record.breaker.probes;
    for (std::uint32_t i = 0; i < probes.count; ++i) {
      ProbeInfo probe{.id = probes.id[i], .owner = probes.owner[i]};
      if (const auto process = processes_.at(probe.owner)) {
        probe.pid = process->pid;
        probe.foreign_pids = process->foreign_pids;
      }
      info.probes.push_back(probe);
    }
    info.ring_capacity = core::RingWord{get(cells.ring)}.capacity();
    info.memory_bytes =
        sizeof(Cells) + sizeof(core::RecordCell<Env>) + std::uint64_t{info.ring_capacity} * sizeof(Env::Word);
  }

  void fill_mode(Mode mode, const core::Record& record, BreakerInfo& info) const {
    info.mode = mode;
    if (mode == Mode::automatic) return;
    const rules::Tick until = record.breaker.mode_until;
    if (until != rules::kNever) info.mode_left = Millis{std::max<rules::Tick>(0, until - now_us_ / 1'000)};
    info.mode_who = core::NoteText::text(record.note.who);
    info.mode_why = core::NoteText::text(record.note.why);
  }

  /// The entries that `state` has counted; see BreakerCell::snapshot for where they end.
  void add_window(Cells& cells, const core::Record& record, const core::CellState& state, BreakerInfo& info) const {
    if (state.state == CircuitState::half_open) return;
    const core::Ring<Env> ring(view_->ring({get(cells.ring)}), info.ring_capacity, &cells.hint);
    std::uint64_t end = record.window_end + 1;
    if (record.window_end == 0) {
      core::Ring<Env>::Tail tail;
      if (!ring.locate_tail(tail)) return;
      end = tail.position;
      const auto tag = core::Slot<Env::Widths>::generation_tag(record.window_generation);
      if (end > record.window_begin && tail.previous.trip() && tail.previous.generation() == tag) --end;
    }
    const std::uint64_t entries = state.successes + state.failures;
    for (std::uint64_t position = end - entries; position != end; ++position) {
      const auto entry = ring.at(position);
      info.window.push_back({entry.failure(), entry.slow(), age(static_cast<std::int64_t>(entry.time_us()))});
    }
  }

  /// Clocks of processes differ a little, and the breaker may have changed since `now`: never negative.
  [[nodiscard]] Micros age(std::int64_t since_us) const noexcept {
    return Micros{std::max<std::int64_t>(0, now_us_ - since_us)};
  }

  const View* view_;
  NoKernel kernel_;
  core::Presence presence_{kernel_};
  Processes processes_;
  std::int64_t now_us_ = 0;
};

// ---- reading breakers ---------------------------------------------------------------------------

/// Reads and decodes breakers of one segment. A reading counts when the control word was the same before the record and
/// the ring were copied and after: it never repeats a value, so the record was the breaker's all the while.
class BreakersReading {
 public:
  BreakersReading(int fd, const core::Geometry& geometry, Instant epoch, Instant now, bool with_window)
      : fd_(fd), image_(fd, geometry), decoder_(image_.view(), epoch, now), with_window_(with_window) {}

  /// All of a segment's, in a few large reads; those that changed meanwhile once more, one by one.
  [[nodiscard]] Error all(std::vector<BreakerInfo>& infos) {
    if (Error error = image_.read_participants()) return error;
    Index index;
    if (Error error = scan_index(image_, index)) return error;
    const std::vector<std::uint32_t>& places = index.places;
    if (Error error = read_places(image_, places)) return error;
    const std::vector<bool> bad = overlapping(image_.view(), places);
    if (Error error = read_records_of(image_, places)) return error;
    if (Error error = read_rings(places, bad)) return error;
    SegmentImage after(fd_, image_.geometry());
    if (Error error = read_places(after, places)) return error;

    infos.resize(places.size());
    std::vector<std::size_t> again;
    for (std::size_t i = 0; i < places.size(); ++i) {
      const Cells& cells = *image_.view().breaker(places[i]);
      const Cells& cells_after = *after.view().breaker(places[i]);
      if (bad[places[i]]) {
        Decoder::identify(places[i], cells, infos[i]);
        (void)Decoder::corrupt(infos[i], "its ring overlaps another's");
      } else if (get(cells.control) != get(cells_after.control) ||
                 decoder_.decode(places[i], get(cells_after.hint), with_window_, infos[i]) == Decoded::ring_moved) {
        again.push_back(i);
      }
    }
    // Not before all the others are decoded: a record that another breaker had may be this one's by now.
    for (const std::size_t i : again) {
      if (Error error = one(places[i], infos[i])) return error;
    }
    std::erase_if(infos,
                  [this](const BreakerInfo& info) { return control_of(*image_.view().breaker(info.place)).gone(); });
    return {};
  }

  /// The place that the name is registered at, into `place`.
  [[nodiscard]] Error find(std::string_view name, std::uint32_t& place) {
    if (Error error = image_.read_participants()) return error;
    Found found = Found::changed;
    for (int scan = 0; scan < kScans && found == Found::changed; ++scan) {
      if (Error error = look_through_bucket(name, place, found)) return error;
    }
    if (found == Found::yes) return {};
    return not_found(name);
  }

  [[nodiscard]] static Error not_found(std::string_view name) {
    return {Errc::breaker_not_found, "breaker " + detail::quoted(name) + " does not exist"};
  }

  /// Reads one place until nothing moves, and decodes it.
  [[nodiscard]] Error one(std::uint32_t place, BreakerInfo& info) {
    if (Error error = image_.read_breakers(place, 1)) return error;
    const Cells& cells = *image_.view().breaker(place);
    std::uint64_t slots_before = 0;
    for (int reading = 0; reading < kReadings && may_read_again_; ++reading) {
      const Control word{get(cells.control)};
      const std::uint64_t hint = get(cells.hint);
      const core::RingWord ring{get(cells.ring)};
      if (Error error = read_record_and_ring(cells)) return error;
      if (Error error = image_.read_breakers(place, 1)) return error;
      if (get(cells.control) != word.bits || get(cells.ring) != ring.bits) continue;
      const std::uint64_t hint_after = get(cells.hint);
      Env::store(image_.view().breaker(place)->hint, hint, Env::relaxed);
      const Decoded decoded = decoder_.decode(place, hint_after, with_window_, info);
      if (decoded != Decoded::ring_moved) return {};
      // Nothing fits together. If nothing has changed since the last time either, nothing is going to.
      const std::uint64_t slots = hash_of_ring(ring);
      if (hint == hint_after && slots == slots_before) return {};
      slots_before = slots;
      Env::store(image_.view().breaker(place)->hint, hint_after, Env::relaxed);
    }
    info = {};
    Decoder::identify(place, cells, info);
    info.error = {Errc::busy, Decoder::label(info) + "it changed each time it was read; try again"};
    return {};
  }

 private:
  enum class Found : std::uint8_t { yes, no, changed };

  [[nodiscard]] Error look_through_bucket(std::string_view name, std::uint32_t& place, Found& found) {
    if (Error error = image_.read_index()) return error;
    const std::uint64_t bucket = core::HashName{}(name) & (image_.geometry().index_slots - 1);
    found = Found::no;
    core::LinkWord at{get(image_.view().index_slot(bucket))};
    for (std::uint32_t hops = 0; !at.end() && hops < image_.geometry().breakers; ++hops) {
      place = at.place();
      found = Found::changed;
      if (place >= image_.geometry().breakers) break;
      if (Error error = image_.read_breakers(place, 1)) return error;
      if (!belongs(image_.view(), place, bucket)) break;
      const Cells& cells = *image_.view().breaker(place);
      std::array<char, core::kMaxNameBytes> buffer{};
      at = {get(cells.next)};
      found = Found::yes;
      if (!at.unlinked() && !control_of(cells).gone() && core::name_of<Env>(cells, buffer.data()) == name) break;
      found = Found::no;
    }
    return {};
  }

  [[nodiscard]] Error read_rings(const std::vector<std::uint32_t>& places, const std::vector<bool>& bad) {
    std::vector<Run> runs;
    runs.reserve(places.size());
    for (const std::uint32_t place : places) {
      const Run ring = ring_of(image_.view(), *image_.view().breaker(place));
      if (ring.count != 0 && !bad[place]) runs.push_back(ring);
    }
    return read_runs(std::move(runs), 64,
                     [this](std::uint64_t first, std::uint64_t count) { return image_.read_units(first, count); });
  }

  [[nodiscard]] Error read_record_and_ring(const Cells& cells) {
    if (const std::uint32_t record = record_of(image_.view(), cells); record != core::kNoRecord) {
      if (Error error = image_.read_records(record, 1)) return error;
    }
    const Run ring = ring_of(image_.view(), cells);
    const std::uint64_t bytes = ring.count * core::kMinRing * sizeof(Env::Word) + sizeof(Cells);
    may_read_again_ = bytes <= budget_;
    budget_ -= std::min(bytes, budget_);
    return ring.count != 0 ? image_.read_units(ring.first, ring.count) : Error{};
  }

  [[nodiscard]] std::uint64_t hash_of_ring(core::RingWord ring) const noexcept {
    const auto* slots = image_.view().ring(ring);
    std::uint64_t hash = 0;
    for (std::uint32_t i = 0; slots != nullptr && i < ring.capacity(); ++i) {
      hash = (hash ^ get(slots[i])) * 0x9e37'79b9'7f4a'7c15;  // 2^64 / the golden ratio
      hash ^= hash >> 29U;
    }
    return hash;
  }

  int fd_;
  SegmentImage image_;
  Decoder decoder_;
  bool with_window_;
  std::uint64_t budget_ = kReadAgainBytes;
  bool may_read_again_ = true;
};

// ---- the journal --------------------------------------------------------------------------------

/// Reads and decodes the journal. One copy is enough: an entry that was being written while it was made does not add
/// up.
class JournalReading {
 public:
  JournalReading(int fd, const core::Geometry& geometry, Instant epoch)
      : fd_(fd), image_(fd, geometry), epoch_(epoch) {}

  [[nodiscard]] Error all(std::optional<std::uint32_t> place, std::vector<SegmentEvent>& events) {
    if (Error error = image_.read_journal()) return error;
    std::vector<core::JournalEntry> entries;
    if (Error error = image_.read_words()) return error;  // afterwards: what was copied is not beyond it
    const std::uint64_t next = get(image_.view().words().journal_next);
    const std::uint64_t size = image_.geometry().journal_entries;
    // Of an entry that was taken up while the copy was made, the one that it replaced may have been copied.
    for (std::uint64_t position = next - std::min(next, 2 * size); position != next; ++position) {
      core::JournalEntry entry;
      if (journal_.read(position, entry) != core::JournalRead::entry) continue;
      if (entry.breaker < image_.geometry().breakers && (!place || entry.breaker == *place)) entries.push_back(entry);
    }
    order_each_breaker(entries);
    if (Error error = read_places_of(entries)) return error;
    const shm::Events to(image_.view(), epoch_);
    events.reserve(entries.size());
    for (const core::JournalEntry& entry : entries)
      events.push_back(to.of(entry));
    return {};
  }

 private:
  /// Entries of one breaker trade places until they stand in its order; those of others stay where they are.
  static void order_each_breaker(std::vector<core::JournalEntry>& entries) {
    std::map<std::uint64_t, std::vector<std::size_t>> places_of;
    for (std::size_t i = 0; i < entries.size(); ++i)
      places_of[(std::uint64_t{entries[i].breaker} << 32U) | entries[i].incarnation].push_back(i);
    const std::vector<core::JournalEntry> as_read = entries;
    for (const auto& [breaker, at] : places_of) {
      std::vector<std::size_t> sorted = at;
      std::sort(sorted.begin(), sorted.end(),
                [&](std::size_t a, std::size_t b) { return as_read[a].number < as_read[b].number; });
      for (std::size_t i = 0; i < at.size(); ++i)
        entries[at[i]] = as_read[sorted[i]];
    }
  }

  [[nodiscard]] Error read_places_of(const std::vector<core::JournalEntry>& entries) {
    std::set<std::uint32_t> places;
    for (const core::JournalEntry& entry : entries)
      places.insert(entry.breaker);
    const std::vector<std::uint32_t> each{places.begin(), places.end()};
    if (Error error = read_places(image_, each)) return error;
    SegmentImage after(fd_, image_.geometry());
    if (Error error = read_places(after, each)) return error;
    for (const std::uint32_t place : each)
      forget_name_unless_same(*image_.view().breaker(place), *after.view().breaker(place));
    return {};
  }

  /// A place is given away by raising its incarnation, then its name is written: where the incarnation is still the
  /// same afterwards, the name that was copied before is that one's. Else it has none, rather than the next one's.
  static void forget_name_unless_same(Cells& cells, const Cells& after) noexcept {
    if (get(cells.incarnation) != get(after.incarnation)) Env::store(cells.name_bytes, 0, Env::relaxed);
  }

  int fd_;
  SegmentImage image_;
  Instant epoch_;
  NoKernel kernel_;
  core::Presence presence_{kernel_};
  core::Journal<Env> journal_{image_.view(), presence_};
};

// ---- the segment as a whole ---------------------------------------------------------------------

/// Calls `use(index, cell)` for each of `count` cells from `offset` on, reading some at a time.
template <class Cell, class Use>
[[nodiscard]] Error for_each_cell(int fd, std::uint64_t offset, std::uint32_t count, Use use) {
  constexpr std::uint32_t kAtOnce = 1024;  // arbitrary: half a megabyte
  std::vector<Cell> cells(std::min(count, kAtOnce));
  for (std::uint32_t first = 0; first < count; first += kAtOnce) {
    const std::uint32_t some = std::min(kAtOnce, count - first);
    if (Error error =
            shm::read_exactly(fd, offset + std::uint64_t{first} * sizeof(Cell), cells.data(), some * sizeof(Cell)))
      return error;
    for (std::uint32_t i = 0; i < some; ++i)
      use(first + i, cells[i]);
  }
  return {};
}

/// Counts places and records by what they are used for.
class Census {
 public:
  Census(int fd, const core::Geometry& geometry) : fd_(fd), image_(fd, geometry), processes_(image_.view()) {}

  [[nodiscard]] Error take(SegmentInfo& info) {
    if (Error error = image_.read_words()) return error;
    if (Error error = image_.read_participants()) return error;
    Index index;
    if (Error error = scan_index(image_, index)) return error;
    const core::Geometry& g = image_.geometry();
    const std::uint64_t units = core::ArenaWord{get(image_.view().words().arena)}.units();
    info.journal_next = get(image_.view().words().journal_next);
    info.ring_slots_used = std::min(units * core::kMinRing, g.ring_slots);
    for (std::uint32_t n = 0; n < g.participants; ++n) {
      const auto number = static_cast<std::uint16_t>(n);
      if (auto process = processes_.at(number)) {
        process->alive = processes_.alive(fd_, number);
        info.processes.push_back(*process);
      }
    }
    info.breakers = static_cast<std::uint32_t>(index.places.size());
    info.bad_index_entries = index.bad_entries;
    if (Error error = count_places(index, info)) return error;
    return count_records(info);
  }

 private:
  [[nodiscard]] Error count_places(const Index& index, SegmentInfo& info) {
    controls_.resize(image_.geometry().breakers);
    return for_each_cell<Cells>(fd_, image_.geometry().breakers_offset, image_.geometry().breakers,
                                [&](std::uint32_t place, const Cells& cells) {
                                  if (index.named[place]) controls_[place] = {get(cells.control)};
                                  if (index.named[place] || !core::OwnerWord{get(cells.owner)}.free())
                                    ++info.places_used;
                                });
  }

  [[nodiscard]] Error count_records(SegmentInfo& info) {
    const core::Geometry& g = image_.geometry();
    std::vector<std::uint32_t> doubtful;
    Error error = for_each_cell<core::RecordCell<Env>>(
        fd_, g.records_offset, g.records, [&](std::uint32_t record, const core::RecordCell<Env>& cell) {
          if (record != core::kNoRecord &&
              !count_record(record, get(cell.owner), get(cell.breaker), false, info.records)) {
            doubtful.push_back(record);
          }
        });
    // Published, but not the current one of its breaker when that was read: look again, at the breaker last.
    for (const std::uint32_t record : doubtful) {
      if (!error) error = look_again(record, info.records);
    }
    return error;
  }

  [[nodiscard]] Error look_again(std::uint32_t record, RecordCounts& counts) {
    const core::Geometry& g = image_.geometry();
    std::array<std::uint64_t, 2> head{};  // owner, breaker
    if (Error error = shm::read_exactly(fd_, g.records_offset + record * sizeof(core::RecordCell<Env>), head.data(),
                                        sizeof head)) {
      return error;
    }
    if (head[1] < g.breakers && controls_[head[1]].bits != 0) {
      std::uint64_t control = 0;
      if (Error error = shm::read_exactly(fd_, g.breakers_offset + head[1] * sizeof(Cells), &control, sizeof control))
        return error;
      controls_[head[1]] = {control};
    }
    (void)count_record(record, head[0], head[1], true, counts);
    return {};
  }

  /// False: in doubt, and not counted, unless it `must`.
  [[nodiscard]] bool count_record(std::uint32_t record, std::uint64_t owner_bits, std::uint64_t breaker, bool must,
                                  RecordCounts& counts) {
    const core::OwnerWord owner{owner_bits};
    if (breaker < controls_.size() && controls_[breaker].record() == record) {
      ++counts.current;
    } else if (owner.free()) {
      ++counts.free;
    } else if (owner.published()) {
      if (!must) return false;
      ++counts.left_behind;
    } else {
      ++(processes_.alive(fd_, owner) ? counts.held : counts.left_behind);
    }
    return true;
  }

  int fd_;
  SegmentImage image_;
  Processes processes_;
  std::vector<Control> controls_;  ///< of registered breakers; zero names no record
};

}  // namespace

Result<SegmentReader> SegmentReader::open(const SegmentOptions& options) noexcept {
  return without_exceptions<SegmentReader>([&]() -> Result<SegmentReader> {
    if (Error error = shm::check_segment_name(segment_name_or_default(options.name))) return error;
    SegmentOptions any_mode = options;
    any_mode.mode = 0666;
    Result<shm::OpenedSegment> opened = shm::open_file(any_mode, shm::Access::read_only);
    if (!opened) return opened.error();
    auto state = std::make_shared<State>();
    state->fd = std::move(opened->fd);
    state->header = opened->header;
    state->geometry = opened->geometry;
    state->name = segment_name_or_default(options.name);
    state->path = shm::path_of(options);
    state->creation_id = hex(opened->header.creation_id);
    return SegmentReader(std::move(state));
  });
}

Result<SegmentInfo> SegmentReader::info() const noexcept {
  return without_exceptions<SegmentInfo>([&]() -> Result<SegmentInfo> {
    const core::Header& header = state_->header;
    struct stat file {};
    if (::fstat(state_->fd.get(), &file) != 0) return state_->refuse({Errc::system, "fstat failed"});
    SegmentInfo info{.name = state_->name,
                     .path = state_->path,
                     .layout_major = header.layout_major,
                     .layout_minor = header.layout_minor,
                     .creation_id = state_->creation_id,
                     .created_wall_ns = header.created_wall_ns,
                     .creator_pid = header.creator_pid,
                     .epoch = Instant{Micros{header.epoch_us}},
                     .geometry = state_->geometry,
                     .mode = file.st_mode & 07777U,
                     .owner = file.st_uid,
                     .group = file.st_gid};
    if (Error error = Census(state_->fd.get(), state_->geometry).take(info)) return state_->refuse(error);
    return info;
  });
}

Result<std::vector<BreakerInfo>> SegmentReader::breakers(Instant now) const noexcept {
  return without_exceptions<std::vector<BreakerInfo>>([&]() -> Result<std::vector<BreakerInfo>> {
    std::vector<BreakerInfo> infos;
    BreakersReading reading(state_->fd.get(), state_->geometry, Instant{Micros{state_->header.epoch_us}}, now, false);
    if (Error error = reading.all(infos)) return state_->refuse(error);
    return infos;
  });
}

Result<BreakerInfo> SegmentReader::breaker(std::string_view name, Instant now) const noexcept {
  return without_exceptions<BreakerInfo>([&]() -> Result<BreakerInfo> {
    BreakerInfo info;
    std::uint32_t place = 0;
    BreakersReading reading(state_->fd.get(), state_->geometry, Instant{Micros{state_->header.epoch_us}}, now, true);
    if (Error error = reading.find(name, place)) return state_->refuse(error);
    if (Error error = reading.one(place, info)) return state_->refuse(error);
    // Recycled, or on the way there, since it was found.
    if (!info.error && info.name != name) return state_->refuse(BreakersReading::not_found(name));
    return info;
  });
}

Result<std::vector<SegmentEvent>> SegmentReader::journal(std::optional<std::uint32_t> place) const noexcept {
  return without_exceptions<std::vector<SegmentEvent>>([&]() -> Result<std::vector<SegmentEvent>> {
    std::vector<SegmentEvent> events;
    JournalReading reading(state_->fd.get(), state_->geometry, Instant{Micros{state_->header.epoch_us}});
    if (Error error = reading.all(place, events)) return state_->refuse(error);
    return events;
  });
}

const std::string& SegmentReader::name() const noexcept {
  return state_->name;
}
const std::string& SegmentReader::creation_id() const noexcept {
  return state_->creation_id;
}

}  // namespace shmcb
