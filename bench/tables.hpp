// SPDX-License-Identifier: BSD-3-Clause
// Gathers the launches of a case, and prints those of breaker_bench as the tables of docs/performance.md: medians with
// minimum and maximum, and what they are of the floor and of shared memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace shmcb::bench {

/// Three digits that count.
[[nodiscard]] inline std::string short_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", value < 10 ? 2 : value < 100 ? 1 : 0, value);
  return text;
}

struct Launch {
  double ns = 0;
  double waited = 0;  ///< the share of the time in which a process was ready and did not get a processor
};

/// The launches of one case. What counts are those that were not disturbed; if too few were not, all, and it is marked.
class Launches {
 public:
  [[nodiscard]] static bool is_disturbed(const Launch& launch) noexcept { return launch.waited > 0.02; }  // arbitrary

  void add(Launch launch) { all_.push_back(launch); }

  [[nodiscard]] std::size_t count() const noexcept { return all_.size(); }
  [[nodiscard]] std::size_t disturbed() const noexcept {
    return static_cast<std::size_t>(std::count_if(all_.begin(), all_.end(), &is_disturbed));
  }
  [[nodiscard]] bool trusted() const noexcept { return disturbed() == 0 || count() - disturbed() >= kEnough; }

  [[nodiscard]] std::vector<double> sorted(double minus) const {
    std::vector<double> ns;
    for (const Launch& launch : all_) {
      if (!trusted() || !is_disturbed(launch)) ns.push_back(launch.ns - minus);
    }
    std::sort(ns.begin(), ns.end());
    return ns;
  }
  [[nodiscard]] double median(double minus = 0) const {
    const std::vector<double> ns = sorted(minus);
    if (ns.empty()) return 0;
    const std::size_t middle = ns.size() / 2;
    return ns.size() % 2 == 1 ? ns[middle] : (ns[middle - 1] + ns[middle]) / 2;
  }

 private:
  static constexpr std::size_t kEnough = 5;  // arbitrary
  std::vector<Launch> all_;
};

class Tables {
 public:
  explicit Tables(std::vector<std::string> contenders) : contenders_(std::move(contenders)) {}

  /// The order of rows is that of the first mention.
  void expect(const std::string& mode, const std::string& group, const std::string& name) {
    (void)launches_of(mode, group, name);
  }
  void add(const std::string& mode, const std::string& group, const std::string& name, Launch launch) {
    launches_of(mode, group, name).add(launch);
  }

  /// `floor_of`: the name of an operation's floor.
  template <class FloorOf>
  void print(FloorOf floor_of) const {
    for (const Table& table : tables_) {
      if (any(table)) print(table, floor_of);
    }
  }

 private:
  struct Case {
    std::string name;
    Launches launches{};
  };
  struct Group {
    std::string name;
    std::vector<Case> cases{};
  };
  struct Table {
    std::string name;
    std::vector<Group> groups{};
  };

  template <class T>
  static T& find_or_add(std::vector<T>& list, const std::string& name) {
    for (T& entry : list) {
      if (entry.name == name) return entry;
    }
    return list.emplace_back(T{name});
  }
  template <class T>
  static const T* find(const std::vector<T>& list, const std::string& name) {
    for (const T& entry : list) {
      if (entry.name == name) return &entry;
    }
    return nullptr;
  }
  Launches& launches_of(const std::string& mode, const std::string& group, const std::string& name) {
    return find_or_add(find_or_add(find_or_add(tables_, mode).groups, group).cases, name).launches;
  }

  static const Launches* launches(const Table& table, const std::string& group, const std::string& name) {
    const Group* rows = find(table.groups, group);
    const Case* found = rows != nullptr ? find(rows->cases, name) : nullptr;
    return found != nullptr ? &found->launches : nullptr;
  }

  static bool any(const Group& group) {
    return std::any_of(group.cases.begin(), group.cases.end(),
                       [](const Case& one) { return one.launches.count() > 0; });
  }
  static bool any(const Table& table) {
    return std::any_of(table.groups.begin(), table.groups.end(), [](const Group& group) { return any(group); });
  }

  static std::string spread(const Launches& launches, double minus) {
    const std::vector<double> ns = launches.sorted(minus);
    if (ns.empty()) return "";
    return short_number(launches.median(minus)) + " [" + short_number(ns.front()) + ", " + short_number(ns.back()) +
           "]" + (launches.trusted() ? "" : " (!)");
  }
  static std::string times(double value) { return value > 0 ? " x" + short_number(value) : ""; }

  template <class FloorOf>
  void print(const Table& table, FloorOf floor_of) const {
    const Launches* pacing =
        table.name.find("paced") != std::string::npos ? launches(table, "floor", "nothing") : nullptr;
    const double minus = pacing != nullptr ? pacing->median() : 0;
    std::printf("\n### %s\n\n", table.name.c_str());
    std::size_t count = 0;
    std::size_t disturbed = 0;
    for (const Group& group : table.groups) {
      for (const Case& one : group.cases) {
        count += one.launches.count();
        disturbed += one.launches.disturbed();
      }
    }
    std::printf("%zu launches; %zu were disturbed and do not count.", count, disturbed);
    if (pacing != nullptr) std::printf(" %s ns of other work subtracted.", spread(*pacing, 0).c_str());
    std::printf("\n\n| floor | ns |\n|---|---|\n");
    if (const Group* floors = find(table.groups, "floor")) {
      for (const Case& one : floors->cases) {
        if (&one.launches != pacing && one.launches.count() > 0)
          std::printf("| %s | %s |\n", one.name.c_str(), spread(one.launches, minus).c_str());
      }
    }
    print_operations(table, floor_of, minus);
  }

  template <class FloorOf>
  void print_operations(const Table& table, FloorOf floor_of, double minus) const {
    std::string head = "\n| operation |";
    std::string rule = "|---|";
    for (const std::string& contender : contenders_) {
      head += " " + contender + " |";
      rule += "---|";
    }
    std::printf("%s\n%s\n", head.c_str(), rule.c_str());
    for (const Group& group : table.groups) {
      if (group.name == "floor" || !any(group)) continue;
      std::string row = "| " + group.name + " |";
      const Launches* floor = launches(table, "floor", floor_of(group.name));
      const Launches* shared = launches(table, group.name, "shared memory");
      for (const std::string& contender : contenders_) {
        const Launches* own = launches(table, group.name, contender);
        const Launches* against = own == shared ? floor : shared;
        row += " ";
        if (own != nullptr) row += spread(*own, minus);
        if (own != nullptr && against != nullptr && own->count() > 0 && against->count() > 0)
          row += times(own->median(minus) / against->median(minus));
        row += " |";
      }
      std::printf("%s\n", row.c_str());
    }
  }

  std::vector<std::string> contenders_;
  std::vector<Table> tables_{};
};

}  // namespace shmcb::bench
