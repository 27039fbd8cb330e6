// SPDX-License-Identifier: BSD-3-Clause
// Damaged texts: each is read or refused, and what is read keeps its rules.
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "config/random_text.hpp"
#include "shmcb/config_text.hpp"

namespace shmcb::test {
namespace {

constexpr std::string_view kPieces[] = {"[[breaker]]\n",
                                        "[defaults]\n",
                                        "[breaker]\n",
                                        "[breaker.cooldown]\n",
                                        "name = 'a'\n",
                                        "[",
                                        "]",
                                        "[[",
                                        "]]",
                                        "{",
                                        "}",
                                        "=",
                                        ".",
                                        ",",
                                        "\"",
                                        "'",
                                        "\"\"\"",
                                        "'''",
                                        "\\",
                                        "\\u0041",
                                        "\\uD800",
                                        "\\x",
                                        "#",
                                        "\n",
                                        "\r",
                                        "\r\n",
                                        "\t",
                                        "\0",
                                        "\x7f",
                                        "\xff",
                                        "\xc3\xa4",
                                        "\xef\xbb\xbf",
                                        "\xed\xa0\x80",
                                        "-1",
                                        "0x",
                                        "0b1",
                                        "0o7",
                                        "1_000",
                                        "_",
                                        "1e99",
                                        "nan",
                                        "-inf",
                                        "9223372036854775808",
                                        "true",
                                        "false",
                                        "1979-05-27T07:32:00Z",
                                        "07:32:00",
                                        "1979-05-27",
                                        "e",
                                        "'1s'",
                                        "cooldown",
                                        "failure_rate",
                                        "base"};

std::string damaged(std::string text, std::mt19937_64& random) {
  for (std::uint64_t rounds = 1 + random() % 6; rounds > 0; --rounds) {
    const std::size_t at = random() % (text.size() + 1);
    const std::size_t other = random() % (text.size() + 1);
    const std::size_t length = random() % 30;
    switch (random() % 6) {
      case 0: text.erase(at, length); break;
      case 1: text.insert(at, kPieces[random() % std::size(kPieces)]); break;
      case 2: text.insert(at, text.substr(other, length)); break;
      case 3: text.replace(at, length % 4, kPieces[random() % std::size(kPieces)]); break;
      case 4: text.resize(at); break;
      default:
        if (at < text.size()) text[at] = static_cast<char>(random());
    }
  }
  return text;
}

TEST(ConfigMutation, NeverCrashesAndNeverAcceptsWhatBreaksItsRules) {
  const std::uint64_t seed = test_seed();
  std::mt19937_64 random{seed};
  int accepted = 0;
  int refused = 0;
  for (int i = 0; i < 10'000; ++i) {
    std::string text = "[defaults]\ncooldown.jitter = 20\nslow_calls = { percent = 70 }\n";
    for (std::uint64_t breakers = 1 + random() % 3; breakers > 0; --breakers)
      text += to_toml(random_config(random));
    text = damaged(std::move(text), random);
    SCOPED_TRACE("seed " + std::to_string(seed) + ", case " + std::to_string(i));
    const Result<Configuration> configuration = parse_config(text, "f.toml");
    if (!configuration) {
      ++refused;
      ASSERT_EQ(configuration.error().code, Errc::invalid_config);
      ASSERT_EQ(configuration.error().message.substr(0, 7), "f.toml:");
      continue;
    }
    ++accepted;
    for (const BreakerConfig& breaker : configuration->breakers) {
      ASSERT_EQ(check(breaker).message, "");
      ASSERT_EQ(configuration->find(breaker.name), &breaker);
    }
  }
  EXPECT_GT(accepted, 100);
  EXPECT_GT(refused, 1'000);
}

}  // namespace
}  // namespace shmcb::test
