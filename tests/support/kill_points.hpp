// SPDX-License-Identifier: BSD-3-Clause
// How many processes the tests of a program have killed, each at a step of its own.
#pragma once

#include <cstdint>
#include <cstdio>

#include <gtest/gtest.h>

namespace shmcb::test {

/// Printed at the end of the program; tools/prove adds them up.
class KillPoints : public ::testing::Environment {
 public:
  static void count(std::uint64_t kills = 1) { all() += kills; }
  void TearDown() override {
    if (all() != 0) std::printf("[ kills    ] in all %lu kill points\n", static_cast<unsigned long>(all()));
  }

 private:
  static std::uint64_t& all() {
    static std::uint64_t count = 0;
    return count;
  }
};
inline const ::testing::Environment* const kKillPoints = ::testing::AddGlobalTestEnvironment(new KillPoints);

}  // namespace shmcb::test
