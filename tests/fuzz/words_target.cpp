// SPDX-License-Identifier: BSD-3-Clause
// fuzz_words: the core without a file. The words lie between pages that nobody may touch; the gaps between the parts
// are poisoned where AddressSanitizer is there. An input damages words before and between operations, and in the midst
// of one: at chosen accesses, as another process would, so that whatever is read twice is found out, the same each
// time.
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/damage.hpp"
#include "fuzz/targets.hpp"
#include "shmcb/core/group_cell.hpp"
#include "shmcb/core/groups.hpp"
#include "shmcb/core/journal.hpp"
#include "shmcb/core/registry.hpp"

#ifdef __SANITIZE_ADDRESS__
#define SHMCB_FUZZ_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SHMCB_FUZZ_ASAN 1
#endif
#endif
#ifdef SHMCB_FUZZ_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace shmcb::fuzz {
namespace {

/// Far beyond what an operation may do on rings of this size: it has not ended if it comes here.
constexpr std::uint64_t kEndless = std::uint64_t{1} << 27U;

struct Watched {
  static inline std::uint64_t steps = 0;  ///< of the operation under way
  static inline std::uint64_t most = 0;
  static inline std::uint64_t due = ~std::uint64_t{0};  ///< the step before which a word changes
  static inline void (*meanwhile)() = nullptr;
  static inline const void* last_read = nullptr;
  static void step() {
    if (++steps >= due) meanwhile();
    require(steps < kEndless, "an operation ends");
  }
};
/// Remembers which word was read last: changed right then, it shows who reads it twice.
struct Env : core::AtomicEnv<Watched> {
  static std::uint64_t load(const Word& word, Order order) noexcept {
    const std::uint64_t value = core::AtomicEnv<Watched>::load(word, order);
    Watched::last_read = &word;
    return value;
  }
};

/// Numbers that are even belong to the dead.
struct Kernel final : core::Presence::Kernel {
  bool renew(core::Presence& presence) noexcept override {
    presence.become(1, 1);
    return true;
  }
  bool is_dead(const core::Presence& presence, std::uint16_t number, std::uint32_t incarnation) noexcept override {
    if (number == presence.number()) return incarnation != presence.incarnation();
    return number % 2 == 0;
  }
  bool is_unheld(const core::Presence& presence, std::uint16_t number) noexcept override {
    return number != presence.number() && number % 2 == 0;
  }
};

constexpr core::Geometry kGeometry = core::geometry_of(8, 4, 320, 16);
constexpr std::size_t kGuard = 65'536;  // a page of every Linux machine

/// Memory for the words of a segment; what lies beside them cannot be touched.
class Area {
 public:
  Area() {
    void* area = ::mmap(nullptr, kGeometry.total_bytes + 2 * kGuard, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(area != MAP_FAILED, "there is memory");
    base_ = static_cast<std::byte*>(area) + kGuard;
    require(::mprotect(base_, kGeometry.total_bytes, PROT_READ | PROT_WRITE) == 0, "memory can be made writable");
  }
  [[nodiscard]] std::byte* base() const noexcept { return base_; }

  /// The words are those of `image`; what is between the parts of the layout is out of bounds, if `guarded`.
  void load(const std::vector<std::byte>& image, [[maybe_unused]] bool guarded) const noexcept {
#ifdef SHMCB_FUZZ_ASAN
    ASAN_UNPOISON_MEMORY_REGION(base_, kGeometry.total_bytes);
#endif
    std::memcpy(base_, image.data(), image.size());
#ifdef SHMCB_FUZZ_ASAN
    if (!guarded) return;
    constexpr core::Geometry g = kGeometry;
    const auto poison = [this](std::size_t from, std::size_t to) {
      if (from < to) ASAN_POISON_MEMORY_REGION(base_ + from, to - from);
    };
    poison(0, core::kSegmentWordsOffset);
    poison(core::kSegmentWordsOffset + sizeof(core::SegmentWords<Env>), core::kGroupsOffset);
    poison(g.participants_offset + g.participants * sizeof(core::ParticipantEntry<Env>), g.index_offset);
    poison(g.index_offset + g.index_slots * sizeof(Env::Word), g.breakers_offset);
    poison(g.breakers_offset + g.breakers * sizeof(core::BreakerCells<Env>), g.records_offset);
    poison(g.records_offset + g.records * sizeof(core::RecordCell<Env>), g.rings_offset);
    poison(g.rings_offset + g.ring_slots * sizeof(Env::Word), g.journal_offset);
    poison(g.notes_offset + core::journal_notes(g.journal_entries) * sizeof(core::NoteCell<Env>), g.total_bytes);
#endif
  }

 private:
  std::byte* base_;
};

constexpr std::array<std::string_view, 8> kNames{"plain", "rates", "open", "probing", "forced", "g:a", "g:b", "new"};
constexpr std::uint64_t kSecond = 1'000'000;
constexpr auto kDraw = []() noexcept { return 500U; };

[[nodiscard]] Settings settings_like(std::uint8_t which) {
  BreakerConfig config{.name = "b", .failure_threshold = {.failures = 2, .window = 4}, .probe_limit = 3};
  if ((which & 1U) != 0) config.failure_rate = {.percent = 50, .minimum_calls = 3};
  if ((which & 2U) != 0) config.consecutive_failures = {.failures = 2};
  if ((which & 4U) != 0) config.slow_calls = {.slower_than = Millis{1}, .percent = 40, .minimum_calls = 2};
  if ((which & 8U) != 0)
    config.cooldown = {.base = Millis{500}, .multiplier = 2, .maximum = Millis{4'000}, .jitter = 10};
  if ((which & 16U) != 0) config.ramp_up = {.duration = Millis{5'000}, .start_percent = 10};
  if ((which & 32U) != 0) config.failure_threshold.window = 40;
  config.reclaim_dead_probes = (which & 64U) != 0;
  config.config_revision = which / 128U;
  return settings_of(config);
}

/// Everything that acts on the words: a process, as it were.
class Player {
 public:
  explicit Player(std::byte* base) : view_(base, kGeometry), words_(base, kGeometry) {
    presence_.become(1, 1);
    groups_.emplace_back(core::GroupCell<Env>{});
  }

  [[nodiscard]] const Words& words() const noexcept { return words_; }
  [[nodiscard]] core::Registry<Env> registry() noexcept { return {view_, presence_}; }
  [[nodiscard]] std::uint64_t now() const noexcept { return now_us_; }

  /// Breakers in all states, a group, a journal with texts. Only the library's own steps.
  void prepare() {
    for (std::size_t i = 0; i < 5; ++i)
      add(i, static_cast<std::uint8_t>(i * 29));
    open_group(2, 10);
    for (std::size_t i = 5; i < 7; ++i)
      (void)group_cell(i).resolve(tick(), created_);
    for (int i = 0; i < 30; ++i)
      record(0, i % 9 == 0);
    for (int i = 0; i < 3; ++i)
      record(2, true);
    (void)cells_[3].force(CircuitState::half_open, now_us_, kDraw, note());
    (void)cells_[3].admit(now_us_, kDraw);
    (void)cells_[3].admit(now_us_, kDraw);
    (void)cells_[4].set_mode(Mode::forced_open, 900, note(), now_us_);
  }

  /// The handles that a process has had for a while, taken before anything is damaged.
  void look_up() {
    for (std::size_t i = 0; i < 5; ++i)
      require(registry().find(kNames[i], cells_[i]) == Errc::ok, "what was prepared is found");
    open_group(2, 10);
    for (std::size_t i = 5; i < 7; ++i)
      require(group_cell(i).resolve(tick(), created_) == Errc::ok, "what was prepared is found");
  }

  void one_operation(Bytes& in) {
    const std::uint8_t what = in.byte();
    const std::uint8_t with = in.byte();
    const std::size_t which = with % 5;
    core::BreakerCell<Env>& cell = cells_[which];
    Watched::steps = 0;
    switch (what % 24) {
      case 0: now_us_ += (std::uint64_t{1} << with % 44U) * 1'000; break;
      case 1: answer(registry().find(kNames[with % kNames.size()], cells_[with / 8U % 5])); break;
      case 2: {
        const core::Member alone{.may_wait = false};
        answer(registry().find_or_add(kNames[with % kNames.size()], settings_like(in.byte()), tick(),
                                      cells_[with / 8U % 5], created_, alone));
        break;
      }
      case 3: answer(registry().handle(with, cells_[which])); break;
      case 4: (void)registry().published(with); break;
      case 5: admit(which); break;
      case 6: answer(admit_slowly(which)); break;
      case 7: record(which, with >= 0x80); break;
      case 8: record_period(which, in); break;
      case 9: {
        const std::uint64_t probe = with >= 0x80 ? in.number<std::uint64_t>() : probe_;
        answer(cell.record_probe({.probe = probe, .outcome = static_cast<Outcome>(with / 5U % 3), .draw = 7}, now_us_));
        break;
      }
      case 10: answer(cell.force(static_cast<CircuitState>(with / 5U % 3), now_us_, kDraw, note())); break;
      case 11: {
        const core::CellMode set =
            cell.set_mode(static_cast<Mode>(with / 5U % kModes), with >= 0x80 ? tick() + in.byte() + 1 : rules::kNever,
                          note(), now_us_);
        answer(set.error);
        require(set.previous <= Mode::observe, "the previous mode is a mode");
        break;
      }
      case 12: answer(cell.replace_settings(settings_like(in.byte()), now_us_, kDraw)); break;
      case 13: look(cell); break;
      case 14: count(cell); break;
      case 15: act_in_group(in, with); break;
      case 16: act_on_groups(in, with); break;
      case 17: read_journal(with); break;
      case 18: claim_record(); break;
      case 19: words_.damage(in); break;
      case 20: arm(in, with); break;
      case 21:
        cell.count_ignored();
        cell.count_stale();
        cell.count_abandoned();
        break;
      case 22: idle(cell); break;
      default: everything(); break;
    }
    done();
    if (what % 24 != 20) again_ = {};
  }

  /// Each operation once on each breaker.
  void everything() {
    again_ = {};
    for (std::size_t which = 0; which < 5; ++which) {
      core::BreakerCell<Env>& cell = cells_[which];
      each([&] { look(cell); });
      each([&] { count(cell); });
      each([&] { admit(which); });
      each([&] { answer(admit_slowly(which)); });
      each([&] { record(which, false); });
      each([&] { record(which, true); });
      each([&] { answer(cell.record_probe({.probe = probe_, .outcome = Outcome::success}, now_us_)); });
      each([&] { answer(cell.replace_settings(settings_like(9), now_us_, kDraw)); });
      each([&] { answer(cell.set_mode(Mode::automatic, rules::kNever, note(), now_us_).error); });
      each([&] { answer(cell.force(CircuitState::open, now_us_, kDraw)); });
      each([&] { answer(registry().find(kNames[which], cell)); });
      each([&] { idle(cell); });
    }
    for (std::size_t which = 5; which < 8; ++which)
      each([&] { answer(group_cell(which).resolve(tick(), created_)); });
    each([&] {
      core::BreakerCell<Env> fresh;
      answer(registry().find_or_add("new", settings_like(1), tick(), fresh, created_, {.may_wait = false}));
    });
    for (std::uint8_t position = 0; position < 32; ++position)
      each([&] { read_journal(position); });
  }

  /// The damage that was armed strikes now.
  void strike() {
    if (armed_.empty()) armed_ = again_;
    if (armed_.empty()) {
      Watched::due = ~std::uint64_t{0};
      return;
    }
    Bytes in{armed_};
    const std::uint8_t how = in.byte();
    Watched::due = Watched::steps + 1 + how / 4U;
    if (how % 4 != 0 && Watched::last_read != nullptr) {
      words_.damage_at(static_cast<const std::byte*>(Watched::last_read), in);
    } else {
      words_.damage(in);
    }
    armed_ = in.rest();
  }

 private:
  [[nodiscard]] static core::NoteText note() { return core::NoteText::of({.who = "somebody", .why = "because"}); }
  [[nodiscard]] rules::Tick tick() const noexcept { return static_cast<rules::Tick>(now_us_ / 1'000); }

  static void done() noexcept { Watched::most = std::max(Watched::most, Watched::steps); }
  template <class Operation>
  static void each(Operation operation) {
    Watched::steps = 0;
    if (Watched::due != ~std::uint64_t{0}) Watched::due = 1;
    operation();
    done();
  }

  static void answer(Errc code) noexcept { require_documented(code); }
  static void answer(const core::CellRecord& record) noexcept {
    require_documented(record.error);
    require(record.status <= RecordStatus::rejected, "the status is one");
    if (record.transition) check(record.transition->after);
  }
  static void answer(const core::CellAdmit& admit) noexcept {
    require_documented(admit.error);
    require(admit.admission <= Admission::rejected && admit.state <= CircuitState::half_open,
            "an admit says what it may");
    if (admit.error == Errc::ok) require(admit.retry_after >= 0, "nobody is to come back before now");
  }
  static void check(const core::CellState& state) noexcept {
    require(state.state <= CircuitState::half_open && state.mode <= Mode::observe, "state and mode are ones");
    require(state.state == CircuitState::half_open || state.failures + state.successes <= core::kMaxRing,
            "no window holds more than a ring");
  }

  void add(std::size_t i, std::uint8_t which) {
    answer(registry().find_or_add(kNames[i], settings_like(which), tick(), cells_[i], created_));
  }
  void admit(std::size_t which) {
    std::uint64_t period = 0;
    CircuitState state{};
    if (!cells_[which].allowed(period) && !cells_[which].allowed_timed(period)) (void)cells_[which].stands_aside(state);
    period_ = period;
  }
  [[nodiscard]] core::CellAdmit admit_slowly(std::size_t which) {
    const core::CellAdmit admit = cells_[which].admit(now_us_, kDraw);
    if (admit.admission == Admission::probe) probe_ = admit.period;
    if (admit.admission == Admission::allowed) period_ = admit.period;
    return admit;
  }
  void record(std::size_t which, bool failure) {
    std::uint64_t period = 0;
    (void)cells_[which].allowed(period);
    answer(cells_[which].record_allowed({.period = period, .started = 1, .failure = failure, .now_us = now_us_},
                                        starts_[which], kDraw));
  }
  void record_period(std::size_t which, Bytes& in) {
    core::LocalNotes start;
    const std::uint8_t how = in.byte();
    start.start_from(how % 2 == 0 ? starts_[which].start() : in.number<std::uint64_t>());
    answer(cells_[which].record_allowed(
        {.period = how % 4 < 2 ? period_ : in.byte(), .started = in.byte(), .failure = how >= 0x80, .now_us = now_us_},
        start, kDraw));
  }
  void look(const core::BreakerCell<Env>& cell) {
    core::CellState state;
    const Errc seen = cell.snapshot(state);
    answer(seen);
    if (seen == Errc::ok) check(state);
    core::CellPeek peek;
    answer(cell.peek([this] { return now_us_; }, peek));
    Settings settings;
    answer(cell.settings(settings));
    core::BreakerCell<Env>::Control word;
    core::Record record;
    (void)cell.load(word, record);
  }
  void count(const core::BreakerCell<Env>& cell) {
    Counters counters;
    answer(cell.counters(now_us_, counters));
  }
  void idle(const core::BreakerCell<Env>& cell) {
    core::BreakerCell<Env>::Control word;
    core::BreakerCell<Env>::Position tail = 0;
    if (cell.core().idle(tick(), 1, word, tail)) (void)cell.core().retire(word, tail);
  }
  void open_group(std::uint32_t limit, std::int64_t idle_after_ms) {
    const core::Groups<Env> groups(view_);
    answer(groups.open(kGroup, entry_));
    core::GroupRules there;
    answer(groups.agree(entry_, core::GroupRules::make(limit, idle_after_ms), true, there));
    groups_.clear();
    for (const std::string_view name : kNames) {
      groups_.emplace_back(view_, presence_, name, settings_like(1),
                           core::Member{.group = kGroup, .entry = entry_, .may_wait = false});
    }
  }
  [[nodiscard]] core::GroupCell<Env>& group_cell(std::size_t which) { return groups_[which % groups_.size()]; }

  void act_in_group(Bytes& in, std::uint8_t with) {
    core::GroupCell<Env>& cell = group_cell(5U + with % 3U);
    switch (in.byte() % 8) {
      case 0: answer(cell.resolve(tick(), created_)); break;
      case 1: {
        std::uint64_t period = 0;
        if (cell.allowed(period) || cell.allowed_timed(period)) group_period_ = period;
        break;
      }
      case 2: {
        const core::CellAdmit admit = cell.admit(now_us_, kDraw);
        answer(admit);
        group_period_ = admit.period;
        break;
      }
      case 3:
        answer(cell.record_allowed({.period = group_period_, .failure = with >= 0x80, .now_us = now_us_},
                                   starts_[with % 5U], kDraw));
        break;
      case 4: answer(cell.record_probe({.probe = group_period_, .outcome = Outcome::failure}, now_us_)); break;
      case 5: answer(cell.force(static_cast<CircuitState>(with / 3U % 3U), now_us_, kDraw, note())); break;
      case 6: {
        core::CellState state;
        const Errc seen = cell.snapshot(state);
        answer(seen);
        if (seen == Errc::ok) check(state);
        Counters counters;
        answer(cell.counters(now_us_, counters));
        break;
      }
      default: answer(cell.replace_settings(settings_like(with), now_us_, kDraw)); break;
    }
  }

  void act_on_groups(Bytes& in, std::uint8_t with) {
    const core::Groups<Env> groups(view_);
    std::uint32_t entry = 0;
    core::GroupRules there;
    switch (with % 4) {
      case 0: answer(groups.open(std::uint64_t{in.byte()} + 1, entry)); break;
      case 1: {
        const std::uint32_t limit = in.byte();
        answer(groups.agree(with, core::GroupRules::make(limit, 1 + in.byte()), with >= 0x80, there));
        break;
      }
      case 2: answer(groups.has_room(with)); break;
      default: (void)groups.members(with); answer(groups.finish_all());
    }
  }

  void read_journal(std::uint8_t position) {
    const core::Journal<Env> journal(view_, presence_);
    core::JournalEntry entry;
    (void)journal.read(position, entry);
    (void)journal.read(journal.next() - position, entry);
    (void)journal.writer_is_dead(position);
    (void)journal.announce_sleep();
  }

  void claim_record() {
    core::RecordPool<Env> pool(view_, presence_);
    Errc error = Errc::ok;
    const std::uint32_t record = pool.claim(error);
    answer(error);
    require(record < kGeometry.records, "a claimed record is one");
    if (record != 0) pool.release(record);
  }

  /// Damages that strike one after the other in the midst of the next operations; or, once in an input, again and again
  /// as long as the next one goes on.
  void arm(Bytes& in, std::uint8_t with) {
    const bool again = in.byte() % 16 == 0;
    const Input rest = in.rest();
    const std::size_t bytes = std::min<std::size_t>(rest.size(), with % 64U);
    armed_ = rest.subspan(0, bytes);
    in = Bytes(rest.subspan(bytes));
    Watched::due = 1 + with / 64U * 8U;
    if (!again || has_had_again_) return;
    has_had_again_ = true;
    again_ = armed_;
  }

  static constexpr core::Bits kGroup = 77;

  core::SegmentView<Env> view_;
  Words words_;
  Kernel kernel_;
  core::Presence presence_{kernel_};
  std::array<core::BreakerCell<Env>, 5> cells_{};
  std::array<core::LocalNotes, 5> starts_{};
  std::vector<core::GroupCell<Env>> groups_;
  std::uint32_t entry_ = 0;
  std::uint64_t now_us_ = kSecond;
  std::uint64_t period_ = 0;
  std::uint64_t probe_ = 0;
  std::uint64_t group_period_ = 0;
  bool created_ = false;
  Input armed_{};
  Input again_{};
  bool has_had_again_ = false;
};

[[nodiscard]] std::vector<std::byte> prepared_image(const Area& area) {
  area.load(std::vector<std::byte>(kGeometry.total_bytes), false);
  Player(area.base()).prepare();
  return {area.base(), area.base() + kGeometry.total_bytes};
}

}  // namespace

std::uint64_t most_steps() noexcept {
  return Watched::most;
}

void fuzz_words(Input input) {
  static const Area area;
  static const std::vector<std::byte> image = prepared_image(area);
  static Player* player = nullptr;  // of the input under way
  area.load(image, true);
  Player now(area.base());
  player = &now;
  Watched::meanwhile = [] { player->strike(); };
  Watched::due = ~std::uint64_t{0};
  Watched::last_read = nullptr;
  now.look_up();

  Bytes in(input);
  for (std::uint8_t damages = in.byte() % 16; damages > 0; --damages)
    now.words().damage(in);
  constexpr int kMostOperations = 64;
  for (int i = 0; i < kMostOperations && !in.empty(); ++i)
    now.one_operation(in);
  now.everything();
  Watched::due = ~std::uint64_t{0};
}

}  // namespace shmcb::fuzz
