// SPDX-License-Identifier: BSD-3-Clause
// The scheduler checked against itself: small random programs, explored with the reduction and without. Both must see
// the same answers, the same order in real time and the same memory at the end.
#pragma once

#include <array>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "proof/scheduler.hpp"

namespace shmcb::proof {

class SchedulerCheck {
 public:
  explicit SchedulerCheck(std::uint64_t seed) : random_(seed) {
    Scheduler::current() = &scheduler_;
    const std::size_t participants = 2 + below(2);
    const std::size_t length = 2 + below(participants == 2 ? 4 : 2);
    words_ = 1 + below(3);
    marks_ = below(2) == 0;
    looks_ = below(2) == 0;
    programs_.resize(participants);
    const std::size_t longer = below(participants);
    for (std::size_t i = 0; i < participants; ++i) {
      // Three with marks: more than one longer program could not be searched exhaustively.
      const std::size_t instructions = participants == 2 || !marks_ ? length : i == longer ? 2 : 1;
      for (std::size_t n = 0; n < instructions; ++n)
        programs_[i].push_back({kKinds[below(4)], below(words_), below(3), 1 + below(3), below(2) == 0});
    }
    if (below(3) == 0) plan_.dies_before_write[below(participants)] = 1 + static_cast<std::uint32_t>(below(2));
    for (std::size_t i = 0; i < participants; ++i)
      plan_.bodies.emplace_back([this, i] { act(i); });
    answers_.resize(participants);
  }
  SchedulerCheck(const SchedulerCheck&) = delete;
  SchedulerCheck& operator=(const SchedulerCheck&) = delete;
  ~SchedulerCheck() { Scheduler::current() = nullptr; }

  /// Empty: the same. `totals`: of the reduced exploration.
  [[nodiscard]] std::string difference(Scheduler::Totals& totals) {
    const std::set<std::string> reduced = all_ends(Scheduler::kUnbounded, totals);
    Scheduler::Totals exhaustive;
    const std::set<std::string> all = all_ends(1'000, exhaustive);
    if (!exhaustive.complete) return "nothing is compared: the exhaustive search exceeds its limit";
    for (const std::string& end : all) {
      if (reduced.count(end) == 0) return "the reduction misses " + end;
    }
    return reduced.size() == all.size() ? "" : "the reduction sees what cannot be";
  }

 private:
  struct Instruction {
    Access access;
    std::size_t word;
    std::uint64_t expected;
    std::uint64_t value;
    bool depends;  ///< on what the one before answered
  };
  static constexpr Access kKinds[] = {Access::load, Access::store, Access::swap, Access::add};

  static constexpr std::uint64_t kLimit = 300'000;

  [[nodiscard]] bool dies() const { return plan_.dies_before_write != decltype(plan_.dies_before_write){}; }
  std::size_t below(std::size_t end) { return static_cast<std::size_t>(random_() % end); }
  [[nodiscard]] Word& word(std::size_t index) { return static_cast<Word*>(scheduler_.base())[index]; }

  void act(std::size_t i) {
    std::uint64_t last = 0;
    mark(i, Access::invoke);
    for (std::size_t n = 0; n < programs_[i].size(); ++n) {
      const Instruction& x = programs_[i][n];
      const std::size_t at = x.depends && (last & 1U) != 0 ? (x.word + 1) % words_ : x.word;
      const std::uint64_t value = x.value + (x.depends && x.access == Access::store ? last : 0);
      last = scheduler_.access(x.access, word(at), x.expected, value);
      answers_[i].push_back(last);
      if (n != 1) continue;
      if (looks_ && i != 0) answers_[i].push_back(scheduler_.access(Access::load, scheduler_.death_of(0), 0, 0));
      mark(i, Access::respond);
      mark(i, Access::invoke);
    }
    mark(i, Access::respond);
  }

  void mark(std::size_t i, Access access) {
    if (!marks_) return;
    const std::uint64_t at = scheduler_.mark(access);
    (access == Access::invoke ? begun_ : ended_).push_back({i, at});
  }

  std::set<std::string> all_ends(std::uint32_t preemptions, Scheduler::Totals& totals) {
    std::set<std::string> ends;
    for (std::size_t i = 0; i < words_; ++i)
      word(i).bits = 0;
    scheduler_.begin_scenario();
    scheduler_.begin_plan();
    const Scheduler::Hooks hooks{[this] {
                                   for (auto& answers : answers_)
                                     answers.clear();
                                   begun_.clear();
                                   ended_.clear();
                                 },
                                 [this, &ends] {
                                   ends.insert(end());
                                   return true;
                                 }};
    totals = scheduler_.explore(plan_, hooks, kLimit, preemptions);
    if (dies()) {
      // Which write is the one before which somebody dies depends on what is known of who looks at it: anew, now that
      // all is known.
      ends.clear();
      totals = scheduler_.explore(plan_, hooks, kLimit, preemptions);
    }
    scheduler_.end_scenario();
    return ends;
  }

  [[nodiscard]] std::string end() {
    std::string text;
    for (std::size_t i = 0; i < answers_.size(); ++i) {
      text += scheduler_.died(i) ? " dead:" : " alive:";
      for (const std::uint64_t answer : answers_[i])
        text += std::to_string(answer) + ",";
    }
    // Whose n-th end came before whose m-th begin.
    for (std::size_t i = 0; i < answers_.size(); ++i) {
      for (std::size_t k = 0; k < answers_.size(); ++k) {
        for (const auto& [who, ended] : ended_) {
          for (const auto& [whom, begun] : begun_)
            if (who == i && whom == k) text += ended < begun ? '1' : '0';
        }
      }
    }
    for (std::size_t i = 0; i < words_; ++i)
      text += " w" + std::to_string(word(i).bits);
    return text;
  }

  std::mt19937_64 random_;
  Scheduler scheduler_{8};
  Scheduler::Plan plan_{};
  std::size_t words_ = 1;
  bool marks_ = false;
  bool looks_ = false;
  std::vector<std::vector<Instruction>> programs_;
  std::vector<std::vector<std::uint64_t>> answers_;
  std::vector<std::pair<std::size_t, std::uint64_t>> begun_;
  std::vector<std::pair<std::size_t, std::uint64_t>> ended_;
};

}  // namespace shmcb::proof
