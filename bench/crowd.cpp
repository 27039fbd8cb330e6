// SPDX-License-Identifier: BSD-3-Clause
// What Google Benchmark cannot do: the operations under 1 to 64 processes or threads, on one breaker or a breaker each,
// beside the mutexes and the floors; and, with --tails, the latency of every operation while processes are stopped or
// killed. Every launch has fresh breakers and fresh processes; launches of all cases take turns in random order.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <random>
#include <regex>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "crowd_case.hpp"
#include "crowd_launch.hpp"
#include "crowd_report.hpp"
#include "machine.hpp"

namespace {

using namespace shmcb::bench;

struct Options {
  bool tails = false;
  unsigned launches = 15;
  std::vector<std::string> forms{"processes", "threads"};
  std::vector<unsigned> members{};  ///< empty: 1, 2, 4, 16, 64; of the tails 16
  std::vector<std::string> breakers{"one", "each"};
  std::vector<std::string> pacings{"tight", "paced"};
  unsigned patience = 3'000;  ///< milliseconds without any progress: the longest stall of the living was half a second
  unsigned milliseconds = 0;  ///< 0: 20, where members wait for each other 100, of the tails 300
  std::string only{};
  std::uint64_t seed = std::random_device{}();
  std::string json{};
};

bool has(const std::vector<std::string>& list, const char* name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

std::string check_regex(const std::string& text) {
  try {
    (void)std::regex(text);
    return {};
  } catch (const std::regex_error& error) {
    return "'" + text + "' is no regular expression: " + error.what();
  }
}

/// Floors always: what they are for is chosen.
bool wanted(const CrowdCase& one, const Options& options) {
  return options.only.empty() || one.operation == Floor::kGroup ||
         std::regex_search(one.operation + "/" + one.contender, std::regex(options.only));
}

std::vector<Throughput> throughput_experiments(const std::vector<CrowdCase>& cases, const Options& options) {
  static const std::vector<unsigned> kMembers{1, 2, 4, 16, 64};
  const auto processor_count = static_cast<unsigned>(processors().size());
  std::vector<Throughput> all;
  const auto add = [&](const CrowdCase& one, Form form, unsigned members, bool each, Pacing pacing) {
    if (!wanted(one, options) || (form == Form::processes && !one.shared)) return;
    if (members > one.max_company && !each) return;
    if (members == 1 && each && has(options.breakers, "one")) return;  // the same
    // Who waits for a processor does so longer than any pacing.
    if (pacing == Pacing::paced && members > std::max(2U, processor_count)) return;
    const bool crowded = members > processor_count;
    const unsigned ms = options.milliseconds > 0 ? options.milliseconds : crowded ? 100 : 20;
    all.push_back({.plan = {.what = &one,
                            .form = form,
                            .members = members,
                            .breaker_each = each,
                            .pacing = pacing,
                            .length = std::chrono::milliseconds{ms}}});
  };
  for (const Form form : {Form::processes, Form::threads}) {
    for (const bool each : {false, true}) {
      for (const Pacing pacing : {Pacing::tight, Pacing::paced}) {
        if (!has(options.forms, name_of(form)) || !has(options.breakers, name_of_breakers(each)) ||
            !has(options.pacings, name_of(pacing)))
          continue;
        for (const CrowdCase& one : cases) {
          for (const unsigned members : options.members.empty() ? kMembers : options.members)
            add(one, form, members, each, pacing);
        }
      }
    }
  }
  return all;
}

std::vector<Tails> tails_experiments(const std::vector<CrowdCase>& cases, const Options& options) {
  std::vector<Tails> all;
  for (const Trouble trouble : {Trouble::none, Trouble::stopped, Trouble::killed}) {
    for (const CrowdCase& one : cases) {
      const bool floor =
          one.operation == Floor::kGroup && (one.contender == kRecordFloor || one.contender == kRingFloor);
      if (!floor && (one.operation != AdmitAndRecord::kName || !one.shared || !wanted(one, options))) continue;
      const unsigned ms = options.milliseconds > 0 ? options.milliseconds : 300;
      all.push_back({.plan = {.what = &one,
                              .members = options.members.empty() ? 16 : options.members.front(),
                              .pacing = Pacing::timed,
                              .trouble = trouble,
                              .length = std::chrono::milliseconds{ms},
                              .patience = std::chrono::milliseconds{options.patience}}});
    }
  }
  return all;
}

/// Every experiment once, then again, each time in another order.
template <class Experiment, class Run>
void interleave(std::vector<Experiment>& all, const Options& options, std::mt19937_64& random, Run run) {
  std::vector<Experiment*> order;
  for (Experiment& one : all)
    order.push_back(&one);
  for (unsigned round = 0; round < options.launches; ++round) {
    std::shuffle(order.begin(), order.end(), random);
    for (Experiment* one : order)
      run(*one);
  }
}

void measure(Throughput& one) {
  constexpr std::size_t kRepeats = 2;  // arbitrary: on a machine that is never quiet the launch is marked instead
  for (std::size_t i = 0;; ++i) {
    const LaunchResult result = launch(one.plan);
    const Launch sample{.ns = result.ns(one.plan.members), .waited = result.waited};
    if (i == kRepeats || !Launches::is_disturbed(sample)) {
      if (result.operations > 0) one.launches.add(sample);
      one.repeated += i;
      return;
    }
  }
}

void measure(Tails& one, std::uint64_t seed) {
  one.plan.seed = seed;
  Histogram slice;
  const LaunchResult result = launch(one.plan, &slice);
  one.add(result, slice);
}

bool write(const std::string& path, const Json& json) {
  std::ofstream file(path);
  file << json.dump(1) << '\n';
  file.close();
  if (file) return true;
  std::fprintf(stderr, "crowd: cannot write %s\n", path.c_str());
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{"Throughput under crowds of processes and threads; latencies with --tails"};
  app.add_flag("--tails", options.tails, "latency of every operation, with processes stopped or killed meanwhile");
  app.add_option("--launches", options.launches, "of each case")->check(CLI::Range(1, 10'000))->capture_default_str();
  app.add_option("--forms", options.forms)->delimiter(',')->check(CLI::IsMember({"processes", "threads"}));
  app.add_option("--members", options.members, "how many; default 1,2,4,16,64, with --tails 16")
      ->delimiter(',')
      ->check(CLI::Range(1U, kMaxMembers));
  app.add_option("--breakers", options.breakers, "one for all, or one each")
      ->delimiter(',')
      ->check(CLI::IsMember({"one", "each"}));
  app.add_option("--pacings", options.pacings,
                 "paced: 1 us of other work between operations; up to 2 members or as many as processors")
      ->delimiter(',')
      ->check(CLI::IsMember({"tight", "paced"}));
  app.add_option("--milliseconds", options.milliseconds, "length of a launch")->check(CLI::Range(1, 60'000));
  app.add_option("--patience", options.patience,
                 "milliseconds without progress of anybody, then a slice counts as hung")
      ->check(CLI::Range(1, 60'000))
      ->capture_default_str();
  app.add_option("--only", options.only, "regular expression on <operation>/<contender>; the floors always")
      ->check(&check_regex);
  app.add_option("--seed", options.seed, "of the order and of the trouble");
  app.add_option("--json", options.json, "file for the results");
  CLI11_PARSE(app, argc, argv);

  const std::vector<CrowdCase> cases = crowd_cases<shmcb::SystemClock>();
  std::mt19937_64 random(options.seed);
  Json json{{"program", "crowd"}, {"machine", Json::object()}, {"seed", options.seed}};
  for (const auto& [key, value] : machine())
    json["machine"][key] = value;
  std::printf("seed %llu\n", static_cast<unsigned long long>(options.seed));
  if (options.tails) {
    std::vector<Tails> all = tails_experiments(cases, options);
    interleave(all, options, random, [&](Tails& one) { measure(one, random()); });
    const TailsReport report(all);
    report.print();
    json["tails"] = report.json();
  } else {
    std::vector<Throughput> all = throughput_experiments(cases, options);
    interleave(all, options, random, [](Throughput& one) { measure(one); });
    const ThroughputReport report(all);
    report.print();
    json["throughput"] = report.json();
  }
  return options.json.empty() || write(options.json, json) ? 0 : 1;
}
