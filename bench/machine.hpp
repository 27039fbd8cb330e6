// SPDX-License-Identifier: BSD-3-Clause
// On what numbers were made.
#pragma once

#include <sys/utsname.h>
#include <time.h>

#include <cstddef>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace shmcb::bench {

[[nodiscard]] inline std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";  // ARM64 names none
}

[[nodiscard]] inline std::string compiler() {
#if defined(__clang__)
  return __VERSION__;
#else
  return "g++ " __VERSION__;
#endif
}

/// SHMCB_BENCH_FLAGS comes from CMakeLists.txt.
[[nodiscard]] inline std::vector<std::pair<std::string, std::string>> machine() {
  utsname system{};
  ::uname(&system);
  char date[32] = {};
  const time_t now = ::time(nullptr);
  tm parts{};
  ::gmtime_r(&now, &parts);
  ::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return {{"date", date},
          {"cpu", cpu_model()},
          {"architecture", system.machine},
          {"processors", std::to_string(std::thread::hardware_concurrency())},
          {"kernel", std::string{system.sysname} + " " + system.release},
          {"compiler", compiler()},
          {"flags", SHMCB_BENCH_FLAGS}};
}

}  // namespace shmcb::bench
