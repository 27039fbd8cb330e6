// SPDX-License-Identifier: BSD-3-Clause
// Uses the header-only part alone: linked to shmcb::core, so a header that needs libshmcb fails here.
#include <cstdio>

#include <shmcb/version.hpp>

int main() {
  std::printf("shmcb %s, headers only\n", shmcb::kVersion);
  return 0;
}
