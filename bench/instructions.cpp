// SPDX-License-Identifier: BSD-3-Clause
// Runs one case of cases.hpp a given number of times, for callgrind: the difference between two runs is what the
// further times cost, to the instruction. Without arguments: lists the cases. tools/bench does the sums.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "cases.hpp"

namespace {

using namespace shmcb::bench;

template <class C>
[[gnu::noinline]] void repeat(C& act, std::uint64_t times) {
  for (std::uint64_t i = 0; i < times; ++i)
    act();
}

}  // namespace

int main(int argc, char** argv) {
  bool found = argc != 3;
  for_each_case<StillClock>([&]<class C>(std::type_identity<C>) {
    const std::string name = std::string{C::kGroup} + "/" + C::kName;
    if (name.find("4096") != std::string::npos) return;  // 1,000 tells what an entry costs, in an eighth of the time
    if (argc != 3) {
      std::printf("%s\n", name.c_str());
    } else if (name == argv[1]) {
      found = true;
      typename C::Place place;
      C act(place);
      repeat(act, std::strtoull(argv[2], nullptr, 10));
    }
  });
  return found ? 0 : 2;
}
