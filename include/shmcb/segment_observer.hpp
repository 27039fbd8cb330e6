// SPDX-License-Identifier: BSD-3-Clause
// Follows the journal of a segment: all transitions, forced states and mode changes of all its breakers, whichever
// process made them. Each is delivered once, in order for each breaker; those that could not be had are counted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "shmcb/error.hpp"
#include "shmcb/export.hpp"
#include "shmcb/segment.hpp"
#include "shmcb/segment_event.hpp"
#include "shmcb/time.hpp"

namespace shmcb {

/// An aggregate with defaults.
struct ObserverOptions {
  enum class From : std::uint8_t {
    now,     ///< what is committed from now on
    oldest,  ///< first what the journal still holds
  };
  From from = From::now;
  /// How long an event waits for one that was committed before it and is not there yet: its writer stands still, or has
  /// been killed unnoticed. On the system's clock. 0: not at all, which takes moments between two steps for losses.
  Millis patience{100};
};

/// A follower of one segment. Costs whoever commits a transition one system call if it sleeps at that moment, else
/// none. Hears nothing more where the segment is lost (`Segment::lost`). For one thread at a time; after `fork` parent
/// and child each follow on their own.
class SHMCB_EXPORT SegmentObserver {
 public:
  /// Called in the thread that called `poll` or `wait`. May throw: the event counts as delivered.
  using Callback = std::function<void(const SegmentEvent&)>;

  /// From now on: looks at every breaker once. Errors: system (no memory).
  [[nodiscard]] static Result<SegmentObserver> open(const Segment& segment, ObserverOptions options = {}) noexcept;
  [[nodiscard]] static Result<SegmentObserver> open(const Result<Segment>& segment,
                                                    ObserverOptions options = {}) noexcept {
    if (!segment) return segment.error();
    return open(*segment, options);
  }

  SegmentObserver(SegmentObserver&& other) noexcept;
  SegmentObserver& operator=(SegmentObserver&& other) noexcept;
  SegmentObserver(const SegmentObserver&) = delete;
  SegmentObserver& operator=(const SegmentObserver&) = delete;
  ~SegmentObserver();

  /// Delivers what is there, without waiting; how many that was. Throws what the callback throws, or std::bad_alloc.
  std::size_t poll(const Callback& callback);

  /// Sleeps until something can be delivered, for `timeout` at most. A killed writer can delay it by a second.
  std::size_t wait(Millis timeout, const Callback& callback);

  /// How many events were committed since the observer began and will never be delivered: their writer was killed or
  /// stood still for longer than the patience, or the journal came round before they were read. Exact as soon as a
  /// later event of each breaker has been delivered; before that not all may be known. Begun with the oldest, it does
  /// not know of those that a breaker had before the first that was delivered of it.
  [[nodiscard]] std::uint64_t lost() const noexcept;

 private:
  struct State;
  explicit SegmentObserver(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

}  // namespace shmcb
