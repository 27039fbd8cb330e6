// SPDX-License-Identifier: BSD-3-Clause
#include "report.hpp"

#include <cstdio>
#include <string>

namespace worker_pool {
namespace {

[[nodiscard]] double seconds(std::chrono::duration<double> duration) {
  return duration.count();
}

[[nodiscard]] std::string recovery(const Tally& tally) {
  if (!tally.recovered_at || !tally.service_back_at) return "not";
  char text[32];
  std::snprintf(text, sizeof text, "%.2f s", seconds(*tally.recovered_at - *tally.service_back_at));
  return text;
}

void print_row(const std::string& outage, Pool pool, const Tally& tally) {
  const std::string until_all = tally.protected_at ? std::to_string(tally.failures_before_protection) : "never";
  std::printf("%-7s  %-11s  %15s  %12llu  %12.2f s  %11llu  %15s\n", outage.c_str(), to_string(pool), until_all.c_str(),
              static_cast<unsigned long long>(tally.failures), seconds(tally.blocked),
              static_cast<unsigned long long>(tally.turned_away), recovery(tally).c_str());
}

}  // namespace

void print_table(const std::vector<Result>& results, std::chrono::milliseconds cooldown) {
  std::printf("\n%-7s  %-11s  %15s  %12s  %14s  %11s  %15s\n", "", "", "failures before", "calls wasted", "blocked in",
              "calls", "pool back after");
  std::printf("%-7s  %-11s  %15s  %12s  %14s  %11s  %15s\n", "outage", "breaker", "all protected", "in all",
              "failing calls", "turned away", "the service");
  Tally shared;
  Tally per_process;
  for (const Result& result : results) {
    print_row(std::string{to_string(result.outage)}, Pool::shared, result.shared);
    print_row("", Pool::per_process, result.per_process);
    shared.failures += result.shared.failures;
    shared.blocked += result.shared.blocked;
    per_process.failures += result.per_process.failures;
    per_process.blocked += result.per_process.blocked;
  }
  const auto line = [](const char* text, const Tally& tally) {
    std::printf("%s: %llu calls wasted, workers blocked for %.2f s.\n", text,
                static_cast<unsigned long long>(tally.failures), seconds(tally.blocked));
  };
  std::printf(
      "(The last column depends on where in its cooldown of %lld ms a breaker is when the service returns.)\n\n",
      static_cast<long long>(cooldown.count()));
  line("One breaker for the pool    ", shared);
  line("A breaker for every process ", per_process);
}

bool print_verdict(const std::vector<Result>& results, std::uint64_t allowed) {
  bool good = true;
  const auto complain = [&good](Outage outage, const std::string& what) {
    good = false;
    std::printf("FAILED (%s): the shared pool %s\n", std::string{to_string(outage)}.c_str(), what.c_str());
  };
  for (const auto& [outage, shared, per_process] : results) {
    if (!shared.protected_at) {
      complain(outage, "did not open");
    } else if (shared.failures_before_protection > allowed) {
      complain(outage, "opened after " + std::to_string(shared.failures_before_protection) + " failures; at most " +
                           std::to_string(allowed) + " are right");
    }
    if (!shared.recovered_at) complain(outage, "did not recover");
  }
  if (good) std::puts("OK: the shared pool opened in time and recovered, in every outage.");
  return good;
}

}  // namespace worker_pool
