// SPDX-License-Identifier: BSD-3-Clause
// Torture for as long as wanted: processes hammer a few breakers and a group through every operation while they are
// killed, stopped, continued and started again at random. The last line says how many checks passed and failed.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <random>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "process/histories.hpp"
#include "process/torture_run.hpp"

namespace shmcb::test {
namespace {

volatile std::sig_atomic_t g_interrupted_by = 0;

/// Whoever ends us finds nobody left behind and no segment. The workers' groups do not get the signal; the others
/// inherit the handler, and are ended by us.
void end_in_order_when_told_to() {
  struct sigaction action {};
  action.sa_handler = [](int signal) { g_interrupted_by = signal; };
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP})
    ::sigaction(signal, &action, nullptr);
}

/// The last line, and the exit status.
int conclude(std::uint64_t passed, std::uint64_t failed) {
  const int signal = g_interrupted_by;
  const std::string when = signal == 0 ? "" : fmt::format("ended early by signal {}: ", signal);
  fmt::print("torture: {}{} checks passed, {} failed\n", when, passed, failed);
  if (failed != 0) return 1;
  return signal == 0 ? 0 : 128 + signal;
}

void print_totals(const TortureRun& run, double seconds) {
  const TortureTotals& totals = run.totals();
  const Ledger& ledger = run.books();
  std::uint64_t all = 0;
  std::string by_kind;
  for (std::size_t i = 1; i < kDeeds; ++i) {
    std::uint64_t count = 0;
    for (const Books& books : ledger.books)
      count += books.deeds.at(i).load();
    all += count;
    by_kind += fmt::format("{}{} {}", by_kind.empty() ? "" : ", ", count, kDeedNames.at(i));
  }
  fmt::print("operations: {} in {:.1f} s: {}\n", all, seconds, by_kind);
  fmt::print("processes: {} started, {} killed, {} times all at once; {} operations cut short; {} zombies; {} stops\n",
             totals.starts, totals.kills, totals.kills_of_all, ledger.killed_in_the_midst(), totals.zombies,
             totals.stops);
  fmt::print("breakers: led through their states {} times in the midst of it; {} lives begun in the group\n",
             totals.quiet, totals.recycled);
  fmt::print("journal: {} events followed, {} lost, of which {} of single breakers; overrun {} times\n",
             ledger.follower.events.load(), ledger.follower.lost.load(), ledger.follower.gaps.load(),
             ledger.follower.overruns.load());
}

int torture(const TortureOptions& options, double seconds) {
  constexpr double kNews = 60;
  using Clock = std::chrono::steady_clock;
  fmt::print("torture: seed {}, {} workers, {} breakers, {} s\n", options.seed, options.workers, options.breakers,
             seconds);
  std::fflush(stdout);
  const auto begin = Clock::now();
  const auto elapsed = [begin] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  TortureRun run(options);
  const TortureTotals& totals = run.totals();
  double told = 0;
  while (run.failures().empty() && g_interrupted_by == 0 &&
         (elapsed() < seconds || totals.kills == 0 || totals.stops == 0)) {
    run.act();
    if (elapsed() - told < kNews) continue;
    told = elapsed();
    fmt::print("{:.0f} s: {} kills, {} stops\n", told, totals.kills, totals.stops);
    std::fflush(stdout);
  }
  if (run.failures().empty()) run.finish();
  print_totals(run, elapsed());
  for (const std::string& failure : run.failures())
    fmt::print("FAILED with seed {}: {}\n", options.seed, failure);
  if (!run.failures().empty()) run.dump(stdout);
  const std::size_t failed = run.failures().size();
  return conclude(run.checks() - failed, failed);
}

/// Half of them at one instant, half at many.
int record_histories(std::uint64_t count, std::uint64_t seed) {
  fmt::print("torture: seed {}, {} histories\n", seed, count);
  std::uint64_t explained = 0;
  for (const rules::Tick spread : {0, 40}) {
    histories::Recorder recorder(seed);
    for (std::uint64_t i = 0; i < (count + 1) / 2 && g_interrupted_by == 0 && !::testing::Test::HasFailure(); ++i) {
      recorder.round(spread);
      if (!::testing::Test::HasFailure()) ++explained;
    }
    recorder.print(spread == 0 ? "at one instant" : "at many instants");
  }
  return conclude(explained, ::testing::Test::HasFailure() ? 1 : 0);
}

int run(int argc, char** argv) {
  CLI::App app{
      "Kills, stops and restarts processes that share breakers, and checks that nothing is lost but what they "
      "were just doing."};
  app.footer(
      "Exit status: 0 all checks passed, 1 one failed, 2 it could not be run. SIGINT, SIGTERM and SIGHUP end it early: "
      "the last checks, the totals, no process and no segment left, and 128 + the number of the signal.");
  TortureOptions options{.workers = 8, .seed = std::random_device{}()};
  double seconds = 60;
  std::uint64_t histories = 0;
  CLI::Option* const length =
      app.add_option("--seconds", seconds, "How long; longer, until it has killed and stopped somebody")
          ->capture_default_str()
          ->check(CLI::Range(0.001, 1e9));
  CLI::Option* const workers = app.add_option("--workers", options.workers, "Processes")
                                   ->capture_default_str()
                                   ->check(CLI::Range(3U, kMaxTorturers));
  CLI::Option* const breakers = app.add_option("--breakers", options.breakers, "Breakers beside those of the group")
                                    ->capture_default_str()
                                    ->check(CLI::Range(1U, kMaxTortured));
  app.add_option("--seed", options.seed, "Of what happens to whom; random if not given");
  CLI::Option* const directory =
      app.add_option("--segment-dir", options.directory, "Where the segment lies")->capture_default_str();
  app.add_option("--histories", histories,
                 "Instead: record that many histories of two or three processes, and find an order that explains each")
      ->check(CLI::Range(1U, 10'000'000U))
      ->excludes(length)
      ->excludes(workers)
      ->excludes(breakers)
      ->excludes(directory);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  if (!std::isfinite(seconds)) {
    fmt::print(stderr, "--seconds is {}, must be a number from 0.001 to 1e9\n", seconds);
    return 2;
  }
  end_in_order_when_told_to();
  options.name = "torture-" + std::to_string(::getpid());
  return histories != 0 ? record_histories(histories, options.seed) : torture(options, seconds);
}

}  // namespace
}  // namespace shmcb::test

int main(int argc, char** argv) {
  ::testing::InitGoogleTest();
  try {
    return shmcb::test::run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "shmcb-prove-torture: %s\n", e.what());
    return 2;
  }
}
