// SPDX-License-Identifier: BSD-3-Clause
// What a stranger's first program does with shmcb, however it came by it: each consumer here builds and runs this file.
#include <cstdio>

#include <shmcb/version.hpp>

int main() {
  std::printf("shmcb %s\n", shmcb::kVersion);
  return 0;
}
