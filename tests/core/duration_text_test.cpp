// SPDX-License-Identifier: BSD-3-Clause
#include "shmcb/duration_text.hpp"

#include <string>

#include <gtest/gtest.h>

namespace shmcb {
namespace {

TEST(DurationText, IsAWholeNumberAndAUnit) {
  const std::pair<const char*, std::int64_t> cases[] = {{"1ms", 1},
                                                        {"250ms", 250},
                                                        {"5s", 5'000},
                                                        {"90s", 90'000},
                                                        {"2m", 120'000},
                                                        {"1h", 3'600'000},
                                                        {"007s", 7'000},
                                                        {"305419h", 1'099'508'400'000},
                                                        {"1099511627776ms", 1'099'511'627'776}};
  for (const auto& [text, millis] : cases) {
    const Result<Millis> duration = parse_duration("within", text);
    ASSERT_TRUE(duration) << text;
    EXPECT_EQ(*duration, Millis{millis}) << text;
  }
}

TEST(DurationText, RefusesEverythingElseByFieldTextAndRule) {
  for (const std::string text : {"",
                                 "5",
                                 "s",
                                 "5 s",
                                 " 5s",
                                 "5s ",
                                 "+5s",
                                 "-5s",
                                 "0s",
                                 "1.5s",
                                 "5sec",
                                 "5S",
                                 "5us",
                                 "5d",
                                 "1m30s",
                                 "0x5s",
                                 "305420h",
                                 "1099511627777ms",
                                 "9223372036854775807h",
                                 "9223372036854775808ms"}) {
    const Result<Millis> duration = parse_duration("within", text);
    ASSERT_FALSE(duration) << text;
    EXPECT_EQ(duration.error().code, Errc::invalid_config);
    EXPECT_EQ(duration.error().message, "within is '" + text +
                                            "'; it must be a whole number and its unit, such as 250ms, 5s, 2m or 1h, "
                                            "from 1ms to 305419h (2^40 ms)");
  }
}

TEST(DurationText, IsWrittenInTheLargestExactUnit) {
  EXPECT_EQ(format_duration(Millis{1}), "1ms");
  EXPECT_EQ(format_duration(Millis{1'000}), "1s");
  EXPECT_EQ(format_duration(Millis{1'001}), "1001ms");
  EXPECT_EQ(format_duration(Millis{60'000}), "1m");
  EXPECT_EQ(format_duration(Millis{90'000}), "90s");
  EXPECT_EQ(format_duration(Millis{3'600'000}), "1h");
  EXPECT_EQ(format_duration(Millis{kMaxDurationMs}), "1099511627776ms");
}

TEST(DurationText, ComesBackAsItWasWritten) {
  for (std::int64_t millis = 1; millis <= kMaxDurationMs; millis += millis / 7 + 1) {
    const Result<Millis> duration = parse_duration("within", format_duration(Millis{millis}));
    ASSERT_TRUE(duration) << millis;
    EXPECT_EQ(*duration, Millis{millis});
  }
}

}  // namespace
}  // namespace shmcb
