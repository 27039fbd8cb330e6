// SPDX-License-Identifier: BSD-3-Clause
// shmcb-replay: runs recorded traces on a storage and prints every answer that deviates.
#include <cstdio>
#include <exception>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "common/arguments.hpp"
#include "common/trace.hpp"
#include "storages.hpp"

namespace {

using namespace shmcb;
using namespace shmcb::replay;

[[nodiscard]] std::vector<Trace> read_all(const std::vector<std::string>& files) {
  std::vector<Trace> traces;
  for (const std::string& file : files) {
    std::vector<Trace> more = file == "-" ? read_traces(std::cin, "standard input") : read_trace_file(file);
    traces.insert(traces.end(), std::move_iterator{more.begin()}, std::move_iterator{more.end()});
  }
  return traces;
}

/// The number of deviations, each printed. Throws UnusableInput where the storage refuses a trace's configuration.
[[nodiscard]] std::size_t replay_all(const StorageEntry& storage, const std::vector<Trace>& traces) {
  std::size_t steps = 0;
  std::size_t deviations = 0;
  for (const Trace& trace : traces) {
    const auto result = storage.run(trace);
    if (!result)
      throw UnusableInput(trace.place + ": no storage for trace " + trace.id + ": " + result.error().message);
    for (const Deviation& deviation : *result)
      std::puts(to_string(deviation).c_str());
    deviations += result->size();
    steps += trace.steps.size();
  }
  std::printf("%zu traces, %zu steps, %zu deviations\n", traces.size(), steps, deviations);
  return deviations;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "Runs recorded traces on a fresh breaker each and prints every answer that deviates.\n"
      "Exit code: 0 none deviates, 1 some do, 2 unusable input, 64 wrong usage, 74 output lost.",
      "shmcb-replay"};
  std::vector<std::string> names;
  for (const StorageEntry& entry : storages())
    names.emplace_back(entry.name);
  std::string storage_name = names.front();
  std::vector<std::string> files;
  app.add_option("--storage", storage_name, "what to run on")->check(CLI::IsMember(names))->capture_default_str();
  app.add_option("FILE", files, "traces, a JSON object a line; - is standard input")->required();
  if (const auto code = tools::parse_arguments(app, argc, argv)) return *code;

  try {
    const std::vector<Trace> traces = read_all(files);
    std::size_t deviations = 0;
    for (const StorageEntry& entry : storages()) {
      if (entry.name == storage_name) deviations = replay_all(entry, traces);
    }
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
      std::perror("shmcb-replay: standard output");
      return tools::exit_io;
    }
    return deviations == 0 ? tools::exit_ok : tools::exit_negative;
  } catch (const UnusableInput& error) {
    std::fprintf(stderr, "shmcb-replay: %s\n", error.what());
    return tools::exit_unusable_input;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "shmcb-replay: %s\n", error.what());
    return tools::exit_software;
  }
}
