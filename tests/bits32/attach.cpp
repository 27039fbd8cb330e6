// SPDX-License-Identifier: BSD-3-Clause
// Attaches to the segment that it is told and prints why it cannot; see run.sh.
#include <cstdio>

#include "shmcb/segment.hpp"

int main(int count, char** arguments) {
  if (count != 2) return 64;
  const auto segment = shmcb::Segment::attach({.name = arguments[1]});
  std::puts(segment ? "attached" : segment.error().message.c_str());
  return segment ? 0 : 1;
}
