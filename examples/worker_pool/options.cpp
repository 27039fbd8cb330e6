// SPDX-License-Identifier: BSD-3-Clause
#include "options.hpp"

#include <charconv>
#include <cstdio>
#include <optional>

namespace worker_pool {
namespace {

constexpr const char* kHelp =
    R"(Two pools of worker processes call one HTTP service on loopback, which breaks down. The workers of one pool
share a breaker in shared memory; those of the other have a breaker each. Shows what becomes of the same outages.
Exit code: 0 the shared pool opened in time and recovered, 1 it did not, 64 wrong usage.

  --workers N      of each pool, 1 to 64 [8]
  --failures N     that open a breaker, 1 to 100 [5]
  --outages LIST   of hang, slow, errors, kill [hang,errors,kill]
  --quick          shorter times and only the first outage: about three seconds
)";

[[nodiscard]] std::optional<std::uint32_t> parse_number(const std::string& text, std::uint32_t limit) {
  std::uint32_t number = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number);
  if (error != std::errc{} || end != last || number < 1 || number > limit) return std::nullopt;
  return number;
}

[[nodiscard]] std::optional<std::vector<Outage>> parse_outages(const std::string& text) {
  std::vector<Outage> outages;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    const std::size_t before = outages.size();
    for (const Outage outage : {Outage::hang, Outage::slow, Outage::errors, Outage::kill}) {
      if (text.substr(at, comma - at) == to_string(outage)) outages.push_back(outage);
    }
    if (outages.size() == before) return std::nullopt;
    at = comma + 1;
  }
  return outages;
}

template <class T>
[[nodiscard]] bool assign(T& target, const std::optional<T>& value) {
  if (value) target = *value;
  return value.has_value();
}

[[nodiscard]] bool take(const std::string& name, const std::string& value, Options& options) {
  if (name == "--workers") return assign(options.workers, parse_number(value, 64));
  if (name == "--failures") return assign(options.failures, parse_number(value, 100));
  if (name == "--outages") return assign(options.outages, parse_outages(value));
  return false;
}

void make_quick(Options& options) {
  options.timeout = milliseconds{100};
  options.pause = milliseconds{10};
  options.cooldown = milliseconds{200};
  options.healthy = milliseconds{300};
  options.outage = milliseconds{700};
  options.outages.resize(1);
}

}  // namespace

std::variant<Options, int> parse_options(const std::vector<std::string>& words) {
  Options options;
  bool quick = false;
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::string name = words[i];
    if (name == "--help" || name == "-h") {
      std::fputs(kHelp, stdout);
      return 0;
    }
    if (name == "--quick") {
      quick = true;
      continue;
    }
    std::string value;
    if (const std::size_t equals = name.find('='); equals != std::string::npos) {
      value = name.substr(equals + 1);
      name.resize(equals);
    } else if (i + 1 < words.size()) {
      value = words[++i];
    }
    if (!take(name, value, options)) {
      std::fprintf(stderr, "worker_pool: %s '%s' is not right; see --help\n", name.c_str(), value.c_str());
      return 64;
    }
  }
  if (quick) make_quick(options);
  return options;
}

}  // namespace worker_pool
