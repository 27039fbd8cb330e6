// SPDX-License-Identifier: BSD-3-Clause
// The fuzz targets without a fuzzer: on every input that is kept, and on some random ones of each run.
// SHMCB_TEST_ROUNDS sets how many, SHMCB_TEST_SEED which.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fuzz/rounds.hpp"
#include "fuzz/targets.hpp"
#include "support/processes.hpp"

namespace shmcb::fuzz {
namespace {

namespace fs = std::filesystem;
using test::SharedArea;

using Bytestring = std::vector<std::byte>;

[[nodiscard]] std::vector<fs::path> kept_for(const Target& target) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(fs::path{SHMCB_TEST_DATA_DIR} / "fuzz" / target.name))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

[[nodiscard]] Bytestring content_of(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  const auto bytes = std::as_bytes(std::span{text});
  return {bytes.begin(), bytes.end()};
}

/// A kept input with some bytes changed, inserted, removed or taken from another one; or bytes of no origin.
[[nodiscard]] Bytestring random_input(const Target& target, const std::vector<Bytestring>& kept,
                                      std::mt19937_64& random) {
  const auto any = [&random](std::size_t below) { return static_cast<std::size_t>(random() % below); };
  const auto byte = [&random] { return static_cast<std::byte>(random()); };
  Bytestring input;
  if (kept.empty() || any(4) == 0) {
    input.resize(any(target.most_bytes));
    std::generate(input.begin(), input.end(), byte);
    return input;
  }
  input = kept[any(kept.size())];
  for (std::size_t changes = 1 + any(8); changes > 0; --changes) {
    const auto at = static_cast<std::ptrdiff_t>(any(input.size() + 1));
    const Bytestring& other = kept[any(kept.size())];
    const auto from = static_cast<std::ptrdiff_t>(any(other.size() + 1));
    switch (any(4)) {
      case 0: input.insert(input.begin() + at, other.begin() + from, other.end()); break;
      case 1: input.insert(input.begin() + at, byte()); break;
      case 2: input.resize(static_cast<std::size_t>(at)); break;
      default:
        if (!input.empty()) input[any(input.size())] = byte();
    }
  }
  input.resize(std::min(input.size(), target.most_bytes));
  return input;
}

/// Runs `one(n)` for n below `count` in a child, which tells where it has come to.
template <class One>
void survives(std::uint64_t count, One one) {
  const SharedArea<std::uint64_t> round;
  const test::Ended ended = test::run_in_child(
      [&] {
        for (; *round < count; ++*round)
          one(*round);
      },
      watchdog_for(count));
  EXPECT_EQ(ended, test::exited(0)) << "in round " << *round;
}

class AnyBytes : public ::testing::TestWithParam<Target> {};

TEST_P(AnyBytes, ThatAreKeptDoNoHarm) {
  const std::vector<fs::path> files = kept_for(GetParam());
  ASSERT_FALSE(files.empty());
  const SharedArea<std::size_t> at;
  survives(files.size(), [&](std::uint64_t n) {
    *at = n;
    GetParam().run(content_of(files[n]));
  });
  if (HasFailure()) ADD_FAILURE() << files[*at];
}

TEST_P(AnyBytes, ThatAreRandomDoNoHarm) {
  std::vector<Bytestring> kept;
  for (const fs::path& file : kept_for(GetParam()))
    kept.push_back(content_of(file));
  const std::uint64_t seed = test::test_seed();
  const std::uint64_t count = test::test_rounds(200);
  survives(count, [&](std::uint64_t n) {
    std::mt19937_64 random(seed + n);
    GetParam().run(random_input(GetParam(), kept, random));
    if (n + 1 == count && most_steps() != 0) std::printf("at most %lu accesses in one operation\n", most_steps());
  });
}

INSTANTIATE_TEST_SUITE_P(Fuzz, AnyBytes, ::testing::ValuesIn(kTargets),
                         [](const auto& one) { return std::string{one.param.name}; });

}  // namespace
}  // namespace shmcb::fuzz
