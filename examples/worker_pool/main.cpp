// SPDX-License-Identifier: BSD-3-Clause
// worker_pool: what it buys a pool of worker processes to share one circuit breaker. The code to copy is in worker.cpp.
#include <signal.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <string>
#include <variant>
#include <vector>

#include "demo.hpp"
#include "options.hpp"
#include "report.hpp"

namespace {

volatile std::sig_atomic_t caught = 0;

void end_in_order_on_signals() {
  struct sigaction action {};
  action.sa_handler = [](int signal) { caught = signal; };
  for (const int signal : {SIGINT, SIGTERM, SIGHUP})
    ::sigaction(signal, &action, nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace worker_pool;
  const auto parsed = parse_options({argv + 1, argv + argc});
  if (const int* code = std::get_if<int>(&parsed)) return *code;
  const Options& options = std::get<Options>(parsed);
  end_in_order_on_signals();
  try {
    Demo demo{options, [] { return caught != 0; }};
    const std::vector<Result> results = demo.run();
    if (caught != 0) return 128 + caught;
    print_table(results, options.cooldown);
    // When the last of the failures opens the breaker, every other worker may be in a call already.
    return print_verdict(results, options.failures + options.workers - 1) ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "worker_pool: %s\n", error.what());
    return 1;
  }
}
