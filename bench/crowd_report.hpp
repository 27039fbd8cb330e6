// SPDX-License-Identifier: BSD-3-Clause
// What a crowd was asked to do and what came of it, as tables and as JSON.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "crowd_launch.hpp"
#include "tables.hpp"

namespace shmcb::bench {

using Json = nlohmann::ordered_json;

[[nodiscard]] inline const char* name_of(Form form) {
  return form == Form::processes ? "processes" : "threads";
}
[[nodiscard]] inline const char* name_of(Pacing pacing) {
  switch (pacing) {
    case Pacing::tight: return "tight";
    case Pacing::paced: return "paced";
    case Pacing::timed: return "timed";
  }
  return "";
}
[[nodiscard]] inline const char* name_of(Trouble trouble) {
  switch (trouble) {
    case Trouble::none: return "undisturbed";
    case Trouble::stopped: return "one stopped every few milliseconds";
    case Trouble::killed: return "one killed every few milliseconds";
  }
  return "";
}
[[nodiscard]] inline const char* name_of_breakers(bool each) {
  return each ? "each" : "one";
}

[[nodiscard]] inline double rounded(double value) {
  return std::round(value * 1000) / 1000;
}

// ---- throughput
// ------------------------------------------------------------------------------------------------------

struct Throughput {
  LaunchPlan plan{};
  Launches launches{};
  std::size_t repeated = 0;  ///< launches that were disturbed and made again
};

class ThroughputReport {
 public:
  explicit ThroughputReport(const std::vector<Throughput>& all) : all_(all) {}

  /// A table for each form, breakers and pacing: the cases, by the number of members.
  void print() const {
    std::vector<const Throughput*> heads;
    for (const Throughput& one : all_) {
      if (std::none_of(heads.begin(), heads.end(), [&](const Throughput* head) { return same_table(*head, one); }))
        heads.push_back(&one);
    }
    for (const Throughput* head : heads)
      print_table(*head);
  }

  [[nodiscard]] Json json() const {
    Json list = Json::array();
    for (const Throughput& one : all_) {
      const LaunchPlan& plan = one.plan;
      const double minus = pacing_of(one);
      const std::vector<double> ns = one.launches.sorted(minus);
      if (ns.empty()) continue;
      Json samples = Json::array();
      for (const double sample : ns)
        samples.push_back(rounded(sample));
      list.push_back({{"operation", plan.what->operation},
                      {"contender", plan.what->contender},
                      {"form", name_of(plan.form)},
                      {"members", plan.members},
                      {"breakers", name_of_breakers(plan.breaker_each)},
                      {"pacing", name_of(plan.pacing)},
                      {"launches", one.launches.count()},
                      {"disturbed", one.launches.disturbed()},
                      {"repeated", one.repeated},
                      {"trusted", one.launches.trusted()},
                      {"subtracted_ns", rounded(minus)},
                      {"ns", spread(one.launches.median(minus), ns.front(), ns.back())},
                      {"operations_per_second", std::round(per_second(one))},
                      {"floor", plan.what->floor},
                      {"of_floor", of_floor(one) > 0 ? Json(rounded(of_floor(one))) : Json(nullptr)},
                      {"ns_of_launches", std::move(samples)}});
    }
    return list;
  }

 private:
  static Json spread(double median, double min, double max) {
    return {{"median", rounded(median)}, {"min", rounded(min)}, {"max", rounded(max)}};
  }
  static bool same_table(const Throughput& a, const Throughput& b) {
    return a.plan.form == b.plan.form && a.plan.breaker_each == b.plan.breaker_each && a.plan.pacing == b.plan.pacing;
  }
  [[nodiscard]] const Throughput* find(const Throughput& like, const std::string& operation,
                                       const std::string& contender, unsigned members) const {
    for (const Throughput& one : all_) {
      if (same_table(one, like) && one.plan.members == members && one.plan.what->operation == operation &&
          one.plan.what->contender == contender)
        return &one;
    }
    return nullptr;
  }
  /// What is to be subtracted: the work between two operations, as this number of members sees it.
  [[nodiscard]] double pacing_of(const Throughput& one) const {
    if (one.plan.pacing != Pacing::paced || one.plan.what->contender == NothingFloor::kName) return 0;
    const Throughput* nothing = find(one, Floor::kGroup, NothingFloor::kName, one.plan.members);
    return nothing == nullptr ? 0 : nothing->launches.median();
  }
  [[nodiscard]] double of_floor(const Throughput& one) const {
    const Throughput* floor = find(one, Floor::kGroup, one.plan.what->floor, one.plan.members);
    const double of = floor == nullptr ? 0 : floor->launches.median(pacing_of(*floor));
    return of > 0 ? one.launches.median(pacing_of(one)) / of : 0;
  }
  /// Of all members together.
  static double per_second(const Throughput& one) {
    const double ns = one.launches.median();
    return ns > 0 ? one.plan.members * 1e9 / ns : 0;
  }

  void print_table(const Throughput& head) const {
    std::vector<unsigned> counts;
    std::vector<const CrowdCase*> cases;
    for (const Throughput& one : all_) {
      if (!same_table(one, head)) continue;
      if (std::find(counts.begin(), counts.end(), one.plan.members) == counts.end()) counts.push_back(one.plan.members);
      if (std::find(cases.begin(), cases.end(), one.plan.what) == cases.end()) cases.push_back(one.plan.what);
    }
    std::printf("\n### %s, %s, %s: ns [min, max] x floor; millions of operations a second of all together\n\n|",
                name_of(head.plan.form), head.plan.breaker_each ? "a breaker each" : "one breaker",
                name_of(head.plan.pacing));
    std::string rule = "|---|---|";
    std::printf(" operation | contender |");
    for (const unsigned count : counts) {
      std::printf(" %u |", count);
      rule += "---|";
    }
    std::printf("\n%s\n", rule.c_str());
    for (const CrowdCase* what : cases) {
      std::printf("| %s | %s |", what->operation.c_str(), what->contender.c_str());
      for (const unsigned count : counts) {
        const Throughput* one = find(head, what->operation, what->contender, count);
        std::printf(" %s |", one != nullptr ? cell(*one).c_str() : "");
      }
      std::printf("\n");
    }
  }

  [[nodiscard]] std::string cell(const Throughput& one) const {
    const double minus = pacing_of(one);
    const std::vector<double> ns = one.launches.sorted(minus);
    if (ns.empty()) return "";
    std::string text = short_number(one.launches.median(minus)) + " [" + short_number(ns.front()) + ", " +
                       short_number(ns.back()) + "]";
    if (of_floor(one) > 0) text += " x" + short_number(of_floor(one));
    text += "; " + short_number(per_second(one) / 1e6);
    return text + (one.launches.trusted() ? "" : " (!)");
  }

  const std::vector<Throughput>& all_;
};

// ---- tails
// -----------------------------------------------------------------------------------------------------------

struct Tails {
  LaunchPlan plan{};
  Histogram latencies{};
  std::vector<double> p999{};  ///< of each slice
  std::vector<double> max{};   ///< of each slice
  unsigned troubles = 0;
  unsigned hung = 0;  ///< slices

  void add(const LaunchResult& result, const Histogram& slice) {
    latencies += slice;
    p999.push_back(slice.quantile(0.999));
    max.push_back(static_cast<double>(slice.max()));
    troubles += result.troubles;
    hung += result.hung ? 1 : 0;
  }
};

class TailsReport {
 public:
  explicit TailsReport(const std::vector<Tails>& all) : all_(all) {}

  void print() const {
    const Tails* head = nullptr;
    for (const Tails& one : all_) {
      if (head == nullptr || head->plan.trouble != one.plan.trouble) {
        head = &one;
        std::printf(
            "\n### %u processes, one breaker, %s: ns of every operation\n\n"
            "| contender | operations | p50 | p99 | p99.9 | p99.99 | max | median of the slices' max | hung |\n"
            "|---|---|---|---|---|---|---|---|---|\n",
            one.plan.members, name_of(one.plan.trouble));
      }
      std::printf("| %s | %llu |", one.plan.what->contender.c_str(),
                  static_cast<unsigned long long>(one.latencies.count()));
      for (const double share : {0.5, 0.99, 0.999, 0.9999})
        std::printf(" %.0f |", one.latencies.quantile(share));
      std::printf(" %llu | %.0f | %s |\n", static_cast<unsigned long long>(one.latencies.max()), median(one.max),
                  one.hung > 0 ? (std::to_string(one.hung) + " of " + std::to_string(one.max.size())).c_str() : "");
    }
  }

  [[nodiscard]] Json json() const {
    Json list = Json::array();
    for (const Tails& one : all_) {
      list.push_back({{"operation", one.plan.what->operation},
                      {"contender", one.plan.what->contender},
                      {"situation", name_of(one.plan.trouble)},
                      {"members", one.plan.members},
                      {"operations", one.latencies.count()},
                      {"p50", one.latencies.quantile(0.5)},
                      {"p99", one.latencies.quantile(0.99)},
                      {"p99.9", one.latencies.quantile(0.999)},
                      {"p99.99", one.latencies.quantile(0.9999)},
                      {"max", one.latencies.max()},
                      {"slices", one.max.size()},
                      {"signals", one.troubles},
                      {"hung_slices", one.hung},
                      {"p99.9_of_slices", one.p999},
                      {"max_of_slices", one.max}});
    }
    return list;
  }

 private:
  static double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values.empty() ? 0 : values[values.size() / 2];
  }

  const std::vector<Tails>& all_;
};

}  // namespace shmcb::bench
