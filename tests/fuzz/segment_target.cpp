// SPDX-License-Identifier: BSD-3-Clause
// fuzz_segment, fuzz_header, fuzz_reader: a segment's file, as the library made it and somebody else changed it. It is
// attached to for real, between pages that nobody may touch, and given to all that the library and the inspector do.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "fuzz/damage.hpp"
#include "fuzz/targets.hpp"
#include "inspect/failure.hpp"
#include "inspect/render.hpp"
#include "shmcb/breaker_group.hpp"
#include "shmcb/segment.hpp"
#include "shmcb/segment_observer.hpp"
#include "shmcb/segment_reader.hpp"
#include "shmcb/shm_storage.hpp"

namespace shmcb::fuzz {
namespace {

using Storage = ShmStorage<FakeClock, FakeRandom>;
using Group = BreakerGroup<FakeClock, FakeRandom>;
using Image = std::vector<std::byte>;

constexpr std::array<const char*, 6> kNames{"plain", "rates", "open", "probing", "forced", "new"};
constexpr Note kNote{.who = "somebody", .why = "because of that"};

[[nodiscard]] BreakerConfig config_like(std::string name, std::uint8_t which) {
  BreakerConfig config{.name = std::move(name), .failure_threshold = {.failures = 2, .window = 4}, .probe_limit = 3};
  if ((which & 1U) != 0) config.failure_rate = {.percent = 50, .minimum_calls = 3};
  if ((which & 2U) != 0) config.slow_calls = {.slower_than = Millis{1}, .percent = 40, .minimum_calls = 2};
  if ((which & 4U) != 0) config.cooldown = {.base = Millis{500}, .multiplier = 2, .maximum = Millis{4'000}};
  if ((which & 8U) != 0) config.ramp_up = {.duration = Millis{5'000}, .start_percent = 10};
  if ((which & 16U) != 0) config.failure_threshold.window = 40;
  config.reclaim_dead_probes = (which & 32U) != 0;
  config.config_revision = which / 64U;
  return config;
}

/// The file, and the process that uses it.
class Lab {
 public:
  Lab() {
    options_.name = "fuzz-" + std::to_string(::getpid());
    options_.breakers = 12;  // not all taken: who takes the last one waits for whoever seems to be at it
    options_.ring_slots = 320;
    options_.participants = 4;
    options_.journal_entries = 16;
    options_.epoch = FakeClock{}.now();
    path_ = options_.directory + "/shmcb." + *options_.name;
    (void)Segment::remove(options_);
    prepare();
    image_ = read_all();
    ::unlink(path_.c_str());
  }

  [[nodiscard]] const Image& image() const noexcept { return image_; }
  [[nodiscard]] const core::Geometry& geometry() const noexcept { return geometry_; }

  /// Puts a file there; beyond the image it is zeros.
  void put(const Image& image, std::uint64_t size) const {
    ::unlink(path_.c_str());
    const int fd = ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    require(fd >= 0, "a file can be made");
    const std::size_t bytes = std::min<std::size_t>(image.size(), size);
    require(::pwrite(fd, image.data(), bytes, 0) == static_cast<ssize_t>(bytes) &&
                ::ftruncate(fd, static_cast<off_t>(size)) == 0,
            "a file can be written");
    ::close(fd);
  }
  void remove() const { ::unlink(path_.c_str()); }
  void cut(std::uint64_t size) const { require(::truncate(path_.c_str(), static_cast<off_t>(size)) == 0, "it is cut"); }

  [[nodiscard]] const SegmentOptions& options() const noexcept { return options_; }

 private:
  void prepare();
  [[nodiscard]] Image read_all() const;

  SegmentOptions options_;
  std::string path_;
  Image image_;
  core::Geometry geometry_;
};

void Lab::prepare() {
  const auto segment = Segment::create(options_);
  require(segment.has_value(), "a segment can be made");
  geometry_ = segment->geometry();
  FakeClock clock;
  for (std::size_t i = 0; i < 5; ++i) {
    auto storage = Storage::open(*segment, config_like(kNames[i], static_cast<std::uint8_t>(i * 13)),
                                 OnMismatch::refuse, clock, FakeRandom{500});
    require(storage.has_value(), "a breaker can be made");
    for (int n = 0; n < 30; ++n) {
      clock.advance(Millis{3});
      const bool failure = i == 2 ? n > 25 : n % 9 == 0;
      (void)storage->record_outcome(storage->admit().token, failure ? Outcome::failure : Outcome::success);
    }
    if (i == 3) {
      (void)storage->force_state(CircuitState::half_open, kNote);
      (void)storage->admit();
      (void)storage->admit();
    }
    if (i == 4) (void)storage->set_mode({.mode = Mode::forced_open, .expires_after = Millis{900'000}, .note = kNote});
  }
  const auto group =
      Group::open(*segment, {.name = "g", .breaker = config_like("", 1), .limit = 2}, clock, FakeRandom{});
  require(group.has_value(), "a group can be made");
  for (const char* member : {"a", "b"})
    require(group->breaker(member).has_value(), "a group's breaker can be made");
}

Image Lab::read_all() const {
  Image image(geometry_.total_bytes);
  const int fd = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  require(fd >= 0 && ::pread(fd, image.data(), image.size(), 0) == static_cast<ssize_t>(image.size()),
          "it can be read");
  ::close(fd);
  return image;
}

/// Pages on both sides of a mapping that nobody may touch, where nothing else lies there.
class Guards {
 public:
  Guards(std::byte* base, std::size_t bytes) : before_(guard(base - kBytes)), after_(guard(base + bytes)) {}
  ~Guards() {
    for (void* page : {before_, after_}) {
      if (page != MAP_FAILED) ::munmap(page, kBytes);
    }
  }
  Guards(const Guards&) = delete;
  Guards& operator=(const Guards&) = delete;

 private:
  static constexpr std::size_t kBytes = 4096;
  static void* guard(std::byte* at) {
    return ::mmap(at, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  }

  void* before_;
  void* after_;
};

void require_answer(const Error& error) {
  require_documented(error.code);
  require(error.code != Errc::ok && !error.message.empty(), "an error has a code and a message");
  require(inspect::exit_code_of(error.code) != 0, "an error is no success of a tool");
}

/// What one process does with one breaker.
template <class Breaker>
void use(Breaker& breaker, Bytes& in) {
  require_documented(breaker.counters().error);
  require_documented(breaker.peek().error);
  const auto snapshot = breaker.snapshot();
  require_documented(snapshot.error);
  require(snapshot.record.state <= CircuitState::half_open && snapshot.record.mode <= Mode::observe,
          "state and mode are ones");
  for (std::uint8_t n = 0; n < 6; ++n) {
    const AdmitResult admit = breaker.admit();
    require_documented(admit.error);
    require(admit.admission <= Admission::rejected && admit.state <= CircuitState::half_open, "an admit is one");
    const Token token =
        n == 5 ? Token{.period = in.number<std::uint64_t>(), .admission = Admission::allowed} : admit.token;
    const RecordResult recorded = n % 3 == 2
                                      ? breaker.abandon(token)
                                      : breaker.record_outcome(token, n % 2 == 0 ? Outcome::success : Outcome::failure);
    require_documented(recorded.error);
    require(recorded.status <= RecordStatus::rejected, "a status is one");
  }
  (void)breaker.settings();
  require_documented(breaker.set_mode({.mode = static_cast<Mode>(in.byte() % kModes), .note = kNote}).error);
  require_documented(breaker.admit().error);
  require_documented(breaker.force_state(static_cast<CircuitState>(in.byte() % 3), kNote).error);
  require_documented(breaker.set_mode({.mode = Mode::automatic}).error);
}

void require_text(const std::string& text) {
  require(std::all_of(text.begin(), text.end(), [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); }),
          "what is printed is printable");
}
void require_json(const std::string& text) {
  require(nlohmann::json::accept(text), "JSON is JSON");
  require_text(text);
}

[[nodiscard]] Lab& lab() {
  static Lab the_lab;
  return the_lab;
}

void attach_and_use(Bytes& in) {
  const auto segment = Segment::attach(lab().options());
  if (!segment) return require_answer(segment.error());
  auto* const base = reinterpret_cast<std::byte*>(&segment->view().words()) - core::kSegmentWordsOffset;
  const Guards guards(base, segment->geometry().total_bytes);
  use_segment(*segment, in.rest());
}

/// The file is cut after it was opened, where the input says so.
void open_and_read(Bytes& in) {
  const auto reader = SegmentReader::open(lab().options());
  if (!reader) return require_answer(reader.error());
  if (const auto size = in.number<std::uint16_t>(); size % 4 == 1) lab().cut(std::uint64_t{size} * 2);
  read_segment(*reader, in.rest());
}

/// A file at the lab's place, until this goes away.
class File {
 public:
  File(const Image& image, std::uint64_t size) { lab().put(image, size); }
  ~File() { lab().remove(); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
};

/// The image with the input's damages.
[[nodiscard]] Image damaged(Bytes& in) {
  Image image = lab().image();
  const Words words(image.data(), lab().geometry());
  for (std::uint8_t damages = in.byte() % 32; damages > 0; --damages)
    words.damage(in);
  return image;
}

void sign(core::Header& header) {
  std::array<char, offsetof(core::Header, checksum)> bytes{};
  std::memcpy(bytes.data(), &header, bytes.size());
  header.checksum = core::fnv1a({bytes.data(), bytes.size()});
}

/// Sizes and offsets that follow from the header's capacities, as far as a test may want such a file.
void fit(core::Header& header) {
  constexpr std::uint32_t kMost = 64;
  header.breakers = 1 + header.breakers % kMost;
  header.participants = 1 + header.participants % kMost;
  header.ring_slots = 16 + header.ring_slots % 1'024;
  const auto entries = 16U << (header.journal_bytes / 64 % 4);
  const core::Geometry g = core::geometry_of(header.breakers, header.participants, header.ring_slots, entries);
  header.records = g.records;
  header.index_slots = g.index_slots;
  header.participants_offset = g.participants_offset;
  header.index_offset = g.index_offset;
  header.breakers_offset = g.breakers_offset;
  header.records_offset = g.records_offset;
  header.rings_offset = g.rings_offset;
  header.journal_offset = g.journal_offset;
  header.journal_bytes = std::uint64_t{entries} * core::kLine;
  header.total_bytes = g.total_bytes;
}

}  // namespace

void use_segment(const Segment& segment, Input input) {
  Bytes in(input);
  auto from_oldest = SegmentObserver::open(segment, {.from = ObserverOptions::From::oldest, .patience = Millis{0}});
  auto from_now = SegmentObserver::open(segment, {.patience = Millis{0}});
  require(from_oldest.has_value() && from_now.has_value(), "an observer can be made");
  FakeClock clock;
  clock.advance(Millis{in.number<std::uint32_t>()});
  for (const char* name : kNames) {
    const auto mismatch = static_cast<OnMismatch>(in.byte() % 3);
    auto storage = Storage::open(segment, config_like(name, in.byte()), mismatch, clock, FakeRandom{500});
    if (storage) {
      use(*storage, in);
    } else {
      require_answer(storage.error());
    }
    clock.advance(Millis{in.number<std::uint16_t>()});
  }
  GroupConfig of_group{.name = "g", .breaker = config_like("", 1), .limit = 1U + in.byte() % 4U};
  of_group.on_mismatch = static_cast<OnMismatch>(in.byte() % 3);
  const auto group = Group::open(segment, of_group, clock, FakeRandom{});
  if (!group) return require_answer(group.error());
  (void)group->limit();
  (void)group->idle_after();
  (void)group->places();
  for (const char* member : {"a", "b", "c", "a"}) {
    auto storage = group->breaker(member);
    if (storage) {
      use(*storage, in);
    } else {
      require_answer(storage.error());
    }
  }
  std::size_t events = 0;
  const auto callback = [&events](const SegmentEvent&) { ++events; };
  (void)from_now->poll(callback);
  (void)from_oldest->poll(callback);
  (void)segment.status();
}

void read_segment(const SegmentReader& segment, Input input) {
  Bytes in(input);
  const auto info = segment.info();
  if (info) {
    require_text(inspect::info_text(*info));
    require_json(inspect::info_json(*info));
  } else {
    require_answer(info.error());
  }
  const auto list = segment.breakers();
  if (list) {
    require_text(inspect::list_text(*list));
    require_json(inspect::list_json(segment, *list));
  } else {
    require_answer(list.error());
  }
  std::string name = kNames[in.byte() % kNames.size()];
  if (const std::uint8_t which = in.byte(); list && which < list->size()) name = (*list)[which].name;
  const auto breaker = segment.breaker(name);
  if (!breaker) return require_answer(breaker.error());
  require(breaker->error || breaker->window.size() <= breaker->settings.window, "a window holds no more than it may");
  const auto events = segment.journal();
  if (!events) return require_answer(events.error());
  require_text(inspect::show_text(segment, *breaker, *events));
  require_json(inspect::show_json(segment, *breaker, *events));
}

void fuzz_segment(Input input) {
  Bytes in(input);
  const File file(damaged(in), lab().geometry().total_bytes);
  attach_and_use(in);
}

void fuzz_reader(Input input) {
  Bytes in(input);
  const File file(damaged(in), lab().geometry().total_bytes);
  open_and_read(in);
}

void fuzz_header(Input input) {
  Bytes in(input);
  const std::uint8_t how = in.byte();
  const auto size = in.number<std::uint16_t>();
  Image image = (how & 1U) != 0 ? lab().image() : Image(lab().geometry().total_bytes);
  core::Header header{};
  std::memcpy(&header, image.data(), sizeof header);
  for (std::uint8_t changes = in.byte() % 32; changes > 0; --changes) {
    const std::uint8_t at = in.byte();
    reinterpret_cast<std::uint8_t*>(&header)[at % sizeof header] = in.byte();
  }
  if ((how & 2U) != 0) fit(header);
  if ((how & 4U) != 0) sign(header);
  const Input rest = in.rest();
  if ((how & 8U) != 0) std::memcpy(&header, rest.data(), std::min(rest.size(), sizeof header));
  std::memcpy(image.data(), &header, sizeof header);
  constexpr std::array<std::uint64_t, 6> kSizes{0, 1, sizeof(core::Header) - 1, sizeof(core::Header), 4095, 4096};
  const auto length = [&]() -> std::uint64_t {
    switch (how / 16U % 4) {
      case 0: return image.size();
      case 1: return kSizes[size % kSizes.size()];
      case 2: return size * std::uint64_t{4};
      default: return std::min<std::uint64_t>(header.total_bytes, std::uint64_t{1} << 22U);
    }
  };
  const File file(image, length());
  attach_and_use(in);
  open_and_read(in);
}

}  // namespace shmcb::fuzz
