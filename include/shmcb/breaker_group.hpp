// SPDX-License-Identifier: BSD-3-Clause
// Many breakers of one kind (one per host, tenant or route) with one configuration and a limit. They come into being on
// first use; an idle one's place is given to the next name.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "shmcb/core/group_cell.hpp"
#include "shmcb/core/groups.hpp"
#include "shmcb/shm_storage.hpp"

namespace shmcb {

/// What a group is called, what its breakers are like and how many there may be. An aggregate with defaults.
struct GroupConfig {
  std::string name{};           ///< [A-Za-z0-9_.-]+; a breaker's full name is "<group>:<member>", at most 128 bytes
  BreakerConfig breaker{};      ///< of every member; its own name is ignored
  std::uint32_t limit = 1'000;  ///< breakers at one time, over all processes; 1 to 900,000
  /// A Closed, automatic breaker with nothing in its window may be recycled so long after its last outcome or change of
  /// its state (modes, the end of a ramp and other settings do not count); 1 ms to 2^40 ms. Open and HalfOpen ones, and
  /// those under a mode, keep their places until somebody calls or forces them. Calls that take longer than this and
  /// the window's `within` may find their breaker gone: their outcome is stale.
  Millis idle_after{600'000};
  /// What to do when the group, or a member, exists with other numbers.
  OnMismatch on_mismatch = OnMismatch::refuse;
};

/// The first rule that a configuration breaks, as an error that names the field, the value and the rule; or no error.
[[nodiscard]] inline Error check(const GroupConfig& config) {
  using detail::bad_field;
  BreakerConfig breaker = config.breaker;
  breaker.name = config.name;
  if (Error error = check(breaker, core::kMaxNameBytes - 2)) return error;  // a colon and a member's name follow
  if (config.name.find(':') != std::string::npos) {
    return bad_field("name", detail::quoted(config.name), "of [A-Za-z0-9_.-] only: the colon ends a group's name");
  }
  if (breaker.accounting == Accounting::lean) {
    return bad_field("accounting", "lean",
                     "exact in a group: the newest outcome says how long a breaker has been idle");
  }
  if (config.limit < 1 || config.limit > core::kMaxBreakers) {
    return bad_field("limit", std::to_string(config.limit), "from 1 to " + std::to_string(core::kMaxBreakers));
  }
  return detail::check_duration("idle_after", config.idle_after);
}

/// A group of breakers in a segment. Copies are the same group; safe from any thread, after fork in parent and child.
template <Clock C = SystemClock, Random R = SystemRandom>
class BreakerGroup {
 public:
  /// One breaker of the group: a storage. When its place is given to another name, it finds its own again by itself, as
  /// a new breaker if need be; `group_full` or `registry_full` where there is no room for it any more. Tokens of before
  /// are stale then. `admit` is one load and one compare more than a breaker's that is of no group; but one whose
  /// breaker was recycled, while the group has no room, looks through all places of the segment each time, twice or
  /// three times, and may ask the kernel whether the owners of unfinished ones are dead.
  using Member = ShmStorage<C, R, core::GroupCell<core::StdEnv>>;

  /// Finds the group by its name or makes it. Errors: invalid_config, config_mismatch (`limit`, `idle_after`),
  /// registry_full: a segment has room for 64 groups, and busy: others write these numbers all the time.
  [[nodiscard]] static Result<BreakerGroup> open(const Segment& segment, GroupConfig config, C clock = {},
                                                 R random = {}) {
    if (Error error = check(config)) return error;
    BreakerGroup group(segment, std::move(config), std::move(clock), std::move(random));
    group.config_.breaker.name = group.full_name("m");
    if (Error error = Member::check_for_shared_memory(group.config_.breaker)) return error;
    const core::Groups<core::StdEnv> groups(segment.view());
    group.member_.group = id_of(group.config_.name);
    if (const Errc code = groups.open(group.member_.group, group.member_.entry); code != Errc::ok) {
      return group.refusal(code, "the segment's " + std::to_string(core::kMaxGroups) + " groups are others");
    }
    if (Error error = group.agree(groups)) return error;
    return group;
  }

  /// The same on what `Segment::open` answered: its error where there is no segment.
  [[nodiscard]] static Result<BreakerGroup> open(const Result<Segment>& segment, GroupConfig config, C clock = {},
                                                 R random = {}) {
    if (!segment) return segment.error();
    return open(*segment, std::move(config), std::move(clock), std::move(random));
  }

  /// The breaker of `member`, made if it is not there. Looks the name up in the segment (no lock; memory for the handle
  /// is allocated): keep what it answers where that matters. Errors: invalid_config (the name), config_mismatch,
  /// group_full, registry_full, ring_full, wrong_group, ...
  [[nodiscard]] Result<Member> breaker(std::string_view member) const {
    BreakerConfig config = config_.breaker;
    config.name = full_name(member);
    if (member.empty()) return detail::bad_field("member", "empty", "at least one of [A-Za-z0-9_.:-]");
    if (Error error = check(config, core::kMaxNameBytes)) return error;
    Member storage(segment_, config.name, clock_, random_);
    const Settings settings = settings_of(config);
    storage.cell_ = {segment_.view(), segment_.presence(), *storage.name_, settings, member_};
    bool created = false;
    const Errc found = storage.cell_.resolve_patiently(storage.tick_now(), created);
    if (found == Errc::group_full) {
      return refusal(found, "it has the " + std::to_string(limit()) +
                                " breakers that it may have, none of them idle; " + detail::quoted(member) +
                                " is one more");
    }
    if (found != Errc::ok) return Member::refusal(found, segment_, config);
    if (!created) {
      if (Error error = storage.agree(settings, config_.on_mismatch)) return error;
    }
    return storage;
  }

  [[nodiscard]] const std::string& name() const noexcept { return config_.name; }
  /// The numbers in force: another process may have replaced them.
  [[nodiscard]] std::uint32_t limit() const noexcept { return rules().limit(); }
  [[nodiscard]] Millis idle_after() const noexcept { return Millis{rules().idle_after_ms()}; }
  /// Places the group has: those of its breakers, idle ones among them. Never more than the largest limit it had.
  /// 0 where the segment is lost.
  [[nodiscard]] std::uint64_t places() const noexcept {
    const std::uint64_t places = groups().members(member_.entry);
    return segment_.lost() ? 0 : places;
  }

 private:
  BreakerGroup(Segment segment, GroupConfig config, C clock, R random)
      : segment_(std::move(segment)), config_(std::move(config)), clock_(std::move(clock)), random_(std::move(random)) {
    member_.may_wait = false;  // a handle that looks its name up again
  }

  [[nodiscard]] static core::Bits id_of(std::string_view name) noexcept {
    const core::Bits hash = core::HashName{}(name);
    return hash != 0 ? hash : 1;
  }

  [[nodiscard]] std::string full_name(std::string_view member) const {
    return std::string{config_.name}.append(":").append(member);
  }

  [[nodiscard]] core::Groups<core::StdEnv> groups() const noexcept {
    return core::Groups<core::StdEnv>(segment_.view());
  }
  [[nodiscard]] core::GroupRules rules() const noexcept { return groups().rules(member_.entry); }

  [[nodiscard]] Error refusal(Errc code, const std::string& why) const {
    return {segment_.lost() ? Errc::truncated : code,
            "group '" + config_.name + "' in segment '" + segment_.name() + "': " + why};
  }

  /// The group exists, or not: its numbers and ours.
  [[nodiscard]] Error agree(const core::Groups<core::StdEnv>& groups) const {
    const auto brought = core::GroupRules::make(config_.limit, config_.idle_after.count());
    core::GroupRules there;
    const Errc code = groups.agree(member_.entry, brought, config_.on_mismatch == OnMismatch::replace, there);
    if (code == Errc::busy) return refusal(code, "its numbers are being written all the time");
    if (code == Errc::config_mismatch && config_.on_mismatch == OnMismatch::refuse) return mismatch(there);
    return {};
  }

  [[nodiscard]] Error mismatch(core::GroupRules there) const {
    std::string differences;
    const auto field = [&differences](std::string_view name, auto theirs, auto ours, std::string_view unit) {
      if (theirs == ours) return;
      differences.append(differences.empty() ? "" : ", ").append(name).append(" (").append(std::to_string(theirs));
      differences.append(unit).append(" there, ").append(std::to_string(ours)).append(unit).append(" here)");
    };
    field("limit", there.limit(), config_.limit, "");
    field("idle_after", there.idle_after_ms(), config_.idle_after.count(), " ms");
    return refusal(Errc::config_mismatch, "it exists with another configuration: " + differences);
  }

  Segment segment_;
  GroupConfig config_;
  C clock_;
  R random_;
  core::Member member_;
};

}  // namespace shmcb
