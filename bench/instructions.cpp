// SPDX-License-Identifier: BSD-3-Clause
// Runs one case of cases.hpp a given number of times, for callgrind: the difference between two runs is what the
// further times cost, to the instruction. Without arguments: lists the cases, each after the number of times to count.
// tools/bench does the sums.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>

#include "cases.hpp"
#include "shmcb/core/layout.hpp"

namespace {

using namespace shmcb::bench;

template <class C>
[[gnu::noinline]] void repeat(C& act, std::uint64_t times) {
  for (std::uint64_t i = 0; i < times; ++i)
    act();
}

/// A multiple of everything that repeats itself, so that where a count begins does not matter.
template <class C>
constexpr std::uint64_t times_to_count() {
  constexpr std::uint64_t kEnough = 2'000;  // arbitrary: what a program does but once is far below half of it
  std::uint64_t period = shmcb::core::kHintEvery;
  if constexpr (requires { C::kPeriod; }) period = std::lcm(period, std::uint64_t{C::kPeriod});
  return (kEnough + period - 1) / period * period;
}

}  // namespace

int main(int argc, char** argv) {
  bool found = argc != 3;
  for_each_case<StillClock>([&]<class C>(std::type_identity<C>) {
    const std::string name = std::string{C::kGroup} + "/" + C::kName;
    if (argc != 3) {
      std::printf("%llu %s\n", static_cast<unsigned long long>(times_to_count<C>()), name.c_str());
    } else if (name == argv[1]) {
      found = true;
      typename C::Place place;
      C act(place);
      repeat(act, std::strtoull(argv[2], nullptr, 10));
    }
  });
  return found ? 0 : 2;
}
