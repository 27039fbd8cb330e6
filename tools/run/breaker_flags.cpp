// SPDX-License-Identifier: BSD-3-Clause
#include "breaker_flags.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "parsed_option.hpp"
#include "shmcb/duration_text.hpp"

namespace shmcb::run {
namespace {

struct FieldFlag {
  std::string_view field;
  std::string_view flag;
};

/// By what flag a field of the configuration is given here. A field comes before those that its path begins with.
constexpr std::array kFlags{
    FieldFlag{"failure_threshold.failures", "--failures"},
    FieldFlag{"failure_threshold.window", "--window"},
    FieldFlag{"failure_threshold.within", "--within"},
    FieldFlag{"failure_rate.percent", "--failure-rate"},
    FieldFlag{"failure_rate.minimum_calls", "--failure-rate-minimum-calls"},
    FieldFlag{"failure_rate", "--failure-rate"},
    FieldFlag{"consecutive_failures.failures", "--consecutive-failures"},
    FieldFlag{"consecutive_failures", "--consecutive-failures"},
    FieldFlag{"slow_calls.slower_than", "--slower-than"},
    FieldFlag{"slow_calls.percent", "--slow-percent"},
    FieldFlag{"slow_calls.minimum_calls", "--slow-minimum-calls"},
    FieldFlag{"slow_calls.reopen_on_slow_probe", "--reopen-on-slow-probe"},
    FieldFlag{"slow_calls", "--slower-than"},
    FieldFlag{"cooldown.base", "--cooldown"},
    FieldFlag{"cooldown.multiplier", "--cooldown-multiplier"},
    FieldFlag{"cooldown.maximum", "--cooldown-maximum"},
    FieldFlag{"cooldown.jitter", "--cooldown-jitter"},
    FieldFlag{"cooldown.forget_after", "--cooldown-forget-after"},
    FieldFlag{"success_threshold", "--success-threshold"},
    FieldFlag{"probe_limit", "--probe-limit"},
    FieldFlag{"probe_timeout", "--probe-timeout"},
    FieldFlag{"reclaim_dead_probes", "--reclaim-dead-probes"},
    FieldFlag{"accounting", "--accounting"},
    FieldFlag{"ramp_up.duration", "--ramp-up"},
    FieldFlag{"ramp_up.start_percent", "--ramp-up-start-percent"},
    FieldFlag{"name is", "--breaker is"},
};

/// The rule, set to its defaults if it was not set.
template <class Rule>
[[nodiscard]] Rule& rule(std::optional<Rule>& maybe) {
  return maybe ? *maybe : maybe.emplace();
}

}  // namespace

template <class Value, class Set>
CLI::Option* BreakerFlags::add(CLI::App& app, const std::string& flag, Set set, const std::string& help) {
  const auto note = [this, set](const Value& value) {
    given_.push_back([set, value](BreakerConfig& config) { set(config, value); });
  };
  return app.add_option_function<Value>(flag, note, help)->type_name("UINT");
}

template <class Set>
CLI::Option* BreakerFlags::add_duration(CLI::App& app, const std::string& flag, Set set, const std::string& help) {
  const auto note = [this, set](Millis value) {
    given_.push_back([set, value](BreakerConfig& config) { set(config, value); });
  };
  return add_parsed(app, flag, note, &parse_duration, help)->type_name("DURATION");
}

template <class Set>
void BreakerFlags::add_switch(CLI::App& app, const std::string& name, Set set, const std::string& help) {
  const auto note = [this, set](std::int64_t times) {
    given_.push_back([set, on = times > 0](BreakerConfig& config) { set(config, on); });
  };
  app.add_flag_function("--" + name + ",!--no-" + name, note, help);
}

void BreakerFlags::add_opening_rules(CLI::App& app) {
  using Number = std::uint32_t;
  add<Number>(
      app, "--failures", [](auto& c, Number n) { c.failure_threshold.failures = n; }, "failures that open it ...")
      ->default_str("5");
  add<Number>(
      app, "--window", [](auto& c, Number n) { c.failure_threshold.window = n; },
      "... among this many newest outcomes ...")
      ->default_str("10");
  add_duration(
      app, "--within", [](auto& c, Millis d) { c.failure_threshold.within = d; }, "... none older than this")
      ->default_str("1m");
  add<Number>(
      app, "--failure-rate", [](auto& c, Number n) { rule(c.failure_rate).percent = n; },
      "opens it too: this percentage of failures in the window [not set]")
      ->type_name("PERCENT");
  add<Number>(
      app, "--failure-rate-minimum-calls", [](auto& c, Number n) { rule(c.failure_rate).minimum_calls = n; },
      "... once this many outcomes are in it [10]");
  add<Number>(
      app, "--consecutive-failures", [](auto& c, Number n) { rule(c.consecutive_failures).failures = n; },
      "opens it too: this many failures in a row [not set]");
  add_duration(
      app, "--slower-than", [](auto& c, Millis d) { rule(c.slow_calls).slower_than = d; },
      "a command that runs longer than this is slow [not set]");
  add<Number>(
      app, "--slow-percent", [](auto& c, Number n) { rule(c.slow_calls).percent = n; },
      "opens it too: this percentage of slow commands in the window [50]")
      ->type_name("PERCENT");
  add<Number>(
      app, "--slow-minimum-calls", [](auto& c, Number n) { rule(c.slow_calls).minimum_calls = n; },
      "... once this many outcomes are in it [10]");
  add_switch(
      app, "reopen-on-slow-probe", [](auto& c, bool on) { rule(c.slow_calls).reopen_on_slow_probe = on; },
      "a probe that succeeds slowly opens it again");
}

void BreakerFlags::add_cooldown(CLI::App& app) {
  using Number = std::uint32_t;
  add_duration(
      app, "--cooldown", [](auto& c, Millis d) { c.cooldown.base = d; },
      "how long it stays open before a probe is let through")
      ->default_str("30s");
  add<Number>(
      app, "--cooldown-multiplier", [](auto& c, Number n) { c.cooldown.multiplier = n; },
      "and so many times longer after each failed recovery ...")
      ->default_str("1");
  add_duration(
      app, "--cooldown-maximum", [](auto& c, Millis d) { c.cooldown.maximum = d; },
      "... up to this [ten times the cooldown]");
  add<Number>(
      app, "--cooldown-jitter", [](auto& c, Number n) { c.cooldown.jitter = n; },
      "draws it from the last so many percent of its length")
      ->type_name("PERCENT")
      ->default_str("0");
  add_duration(
      app, "--cooldown-forget-after", [](auto& c, Millis d) { c.cooldown.forget_after = d; },
      "healthy time that takes back one step of its growth [its maximum]");
}

void BreakerFlags::add_recovery(CLI::App& app) {
  using Number = std::uint32_t;
  add<Number>(
      app, "--success-threshold", [](auto& c, Number n) { c.success_threshold = n; }, "successful probes that close it")
      ->default_str("1");
  add<Number>(
      app, "--probe-limit", [](auto& c, Number n) { c.probe_limit = n; }, "probes at one time, on the whole host")
      ->default_str("1");
  add_duration(
      app, "--probe-timeout", [](auto& c, Millis d) { c.probe_timeout = d; },
      "after this a probe is given up [the cooldown]");
  add_switch(
      app, "reclaim-dead-probes", [](auto& c, bool on) { c.reclaim_dead_probes = on; },
      "a probe whose shmcb-run was killed is given up at once");
  add_duration(
      app, "--ramp-up", [](auto& c, Millis d) { rule(c.ramp_up).duration = d; },
      "after it closes, a share that grows for so long is run; the rest exits with 75 [not set]");
  add<Number>(
      app, "--ramp-up-start-percent", [](auto& c, Number n) { rule(c.ramp_up).start_percent = n; },
      "... beginning with this share [10]")
      ->type_name("PERCENT");
}

void BreakerFlags::add_to(CLI::App& app) {
  add_opening_rules(app);
  add_cooldown(app);
  add_recovery(app);
  add<std::string>(
      app, "--accounting",
      [](auto& c, const std::string& how) { c.accounting = how == "lean" ? Accounting::lean : Accounting::exact; },
      "lean: successes leave no trace while no failure is near")
      ->check(CLI::IsMember({"exact", "lean"}))
      ->default_str("exact");
  add<std::uint64_t>(
      app, "--config-revision", [](auto& c, std::uint64_t n) { c.config_revision = n; },
      "of two different configurations the higher one wins")
      ->default_str("0");
}

void BreakerFlags::apply(BreakerConfig& config) const {
  for (const auto& set : given_)
    set(config);
}

std::string in_terms_of_flags(std::string message) {
  for (const FieldFlag& entry : kFlags) {
    for (std::size_t at = 0; (at = message.find(entry.field, at)) != std::string::npos; at += entry.flag.size()) {
      message.replace(at, entry.field.size(), entry.flag);
    }
  }
  return message;
}

}  // namespace shmcb::run
