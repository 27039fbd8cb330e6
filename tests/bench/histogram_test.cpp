// SPDX-License-Identifier: BSD-3-Clause
// The histogram of the tails, against sorted values.
#include "bench/histogram.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "support/random_input.hpp"

namespace shmcb::bench {
namespace {

TEST(Histogram, IsEmptyAsZeros) {
  const Histogram none;
  EXPECT_EQ(none.count(), 0U);
  EXPECT_EQ(none.max(), 0U);
  EXPECT_EQ(none.quantile(0.5), 0);
}

TEST(Histogram, KnowsEveryValueToASixtyFourth) {
  for (std::uint64_t value = 0; value < std::uint64_t{1} << 40U; value += 1 + value / 97) {
    Histogram one;
    one.add(value);
    one.add(~std::uint64_t{0});  // else the maximum would be the answer
    EXPECT_NEAR(one.quantile(0.5), static_cast<double>(value), static_cast<double>(value) / 64);
  }
}

TEST(Histogram, FindsTheQuantilesOfRandomLatencies) {
  std::mt19937_64 random(test::test_seed());
  std::lognormal_distribution<double> latency(4, 3);
  const auto halves = std::make_unique<Histogram[]>(2);
  std::vector<std::uint64_t> values;
  for (std::size_t i = 0; i < 100'001; ++i) {
    values.push_back(static_cast<std::uint64_t>(latency(random)));
    halves[i % 2].add(values.back());
  }
  std::sort(values.begin(), values.end());
  Histogram all = halves[0];
  all += halves[1];
  EXPECT_EQ(all.count(), values.size());
  EXPECT_EQ(all.max(), values.back());
  for (const double share : {0.001, 0.25, 0.5, 0.99, 0.999, 0.9999, 1.0}) {
    const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(values.size()))) - 1;
    const auto exact = static_cast<double>(values[rank]);
    EXPECT_NEAR(all.quantile(share), exact, exact / 64) << share;
  }
}

}  // namespace
}  // namespace shmcb::bench
