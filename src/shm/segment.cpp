// SPDX-License-Identifier: BSD-3-Clause
#include "shmcb/segment.hpp"

#include <cstdlib>
#include <exception>
#include <utility>

#include <boost/interprocess/exceptions.hpp>
#include <boost/interprocess/mapped_region.hpp>

#include "mapped_memory.hpp"
#include "participants.hpp"
#include "segment_files.hpp"
#include "sigbus_guard.hpp"

namespace shmcb {

namespace {

namespace bip = boost::interprocess;

/// What mapped_region maps: a descriptor that was opened and checked by segment_files.
struct Mappable {
  int fd;
  [[nodiscard]] bip::mapping_handle_t get_mapping_handle() const noexcept { return {.handle = fd, .is_xsi = false}; }
};

/// Turns what a function throws (bad_alloc, interprocess_exception) into an error: nothing leaves the library as an
/// exception.
template <class T, class F>
Result<T> without_exceptions(F function) noexcept {
  try {
    return function();
  } catch (const std::exception& e) {
    return Error{Errc::system, std::string{"segment: "} + e.what()};
  }
}

}  // namespace

struct Segment::State {
  State(const SegmentOptions& options, shm::OpenedSegment opened)
      : name(segment_name_or_default(options.name)),
        path(shm::path_of(options)),
        identity(opened.identity),
        epoch(Micros{opened.header.epoch_us}),
        region(Mappable{opened.fd.get()}, bip::read_write, 0, opened.geometry.total_bytes),
        guard(options.sigbus_guard ? shm::SigbusGuard(region.get_address(), region.get_size()) : shm::SigbusGuard()),
        view(region.get_address(), opened.geometry),
        participants(std::move(opened.fd), opened.identity, path, view),
        presence(participants) {}
  ~State() { participants.leave(presence); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void keep_in_memory(const SegmentOptions& options) {
    if (options.huge_pages) shm::ask_for_huge_pages(region.get_address(), region.get_size());
    if (options.lock_memory) {
      lock_error = shm::lock(region.get_address(), region.get_size());
      if (lock_error) lock_error.message.insert(0, "segment '" + name + "': ");
    }
    if (options.prefault || lock_error) shm::bring_in(region.get_address(), region.get_size());
  }

  std::string name;
  std::string path;
  shm::FileIdentity identity;
  Instant epoch;
  bip::mapped_region region;
  shm::SigbusGuard guard;
  core::SegmentView<core::StdEnv> view;
  shm::Participants participants;
  core::Presence presence;
  Error lock_error{};
};

Result<Segment> Segment::create(const SegmentOptions& options) noexcept {
  return without_exceptions<Segment>([&]() -> Result<Segment> {
    if (Error error = shm::check_segment_name(segment_name_or_default(options.name))) return error;
    if (Error error = shm::create_file(options)) return error;
    return attach(options);
  });
}

Result<Segment> Segment::attach(const SegmentOptions& options) noexcept {
  return without_exceptions<Segment>([&]() -> Result<Segment> {
    if (Error error = shm::check_segment_name(segment_name_or_default(options.name))) return error;
    for (int attempt = 0; attempt < shm::kAttempts; ++attempt) {
      Result<shm::OpenedSegment> opened = shm::open_file(options, shm::Access::read_write);
      if (!opened) return opened.error();
      auto state = std::make_shared<State>(options, *std::move(opened));
      if (!state->participants.name_led_here()) continue;  // removed or replaced since: then what is there now
      state->keep_in_memory(options);
      if (!state->presence.ensure_current()) {
        return Error{Errc::system, "segment '" + state->name + "': no number is left for another attached process"};
      }
      if (state->guard.lost()) {
        return Error{Errc::truncated, "segment '" + state->name + "' was cut short while it was being attached to"};
      }
      return Segment(std::move(state));
    }
    return shm::replaced_too_often(options);
  });
}

Result<Segment> Segment::open(const SegmentOptions& options) noexcept {
  return without_exceptions<Segment>([&]() -> Result<Segment> {
    constexpr int kAttempts = 100;  // arbitrary: how often others may remove it in between
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      Result<Segment> attached = attach(options);
      if (attached || attached.error().code != Errc::segment_not_found) return attached;
      if (Error error = shm::create_file(options); error && error.code != Errc::segment_exists) return error;
    }
    return Error{Errc::system,
                 "segment '" + segment_name_or_default(options.name) + "' is being created and removed all the time"};
  });
}

Error Segment::remove(const SegmentOptions& options) noexcept {
  const Result<bool> removed = without_exceptions<bool>([&]() -> Result<bool> {
    if (Error error = shm::check_segment_name(segment_name_or_default(options.name))) return error;
    if (Error error = shm::remove_file(options)) return error;
    return true;
  });
  return removed ? Error{} : removed.error();
}

const std::string& Segment::name() const noexcept {
  return state_->name;
}
const core::Geometry& Segment::geometry() const noexcept {
  return state_->view.geometry();
}
Instant Segment::epoch() const noexcept {
  return state_->epoch;
}
const core::SegmentView<core::StdEnv>& Segment::view() const noexcept {
  return state_->view;
}
core::Presence& Segment::presence() const noexcept {
  return state_->presence;
}

SegmentStatus Segment::status() const noexcept {
  if (lost()) return SegmentStatus::lost;
  const shm::FileIdentity now = shm::identity_of(state_->path);
  if (now == state_->identity) return SegmentStatus::current;
  return now == shm::FileIdentity{} ? SegmentStatus::removed : SegmentStatus::replaced;
}

Result<SegmentMemory> Segment::memory() const noexcept {
  return without_exceptions<SegmentMemory>(
      [this] { return shm::memory_of(state_->region.get_address(), state_->region.get_size()); });
}

const Error& Segment::lock_error() const noexcept {
  return state_->lock_error;
}

bool Segment::lost() const noexcept {
  return state_->guard.lost();
}

bool Segment::has_entry() const noexcept {
  return state_->presence.number() < geometry().participants;
}

std::string segment_name_or_default(const std::optional<std::string>& name) {
  if (name) return *name;
  const char* from_environment = std::getenv("SHMCB_SEGMENT");  // NOLINT(concurrency-mt-unsafe): read once at attach
  return from_environment != nullptr && *from_environment != '\0' ? from_environment : "default";
}

}  // namespace shmcb
