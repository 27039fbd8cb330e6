// SPDX-License-Identifier: BSD-3-Clause
// The fields of a configuration by the names that they have in text, which are those of the C++ aggregates. What reads
// and what writes text both go by this, so that neither can forget a field: the bindings name all members of each
// aggregate, and do not compile when one is added.
#pragma once

#include <concepts>
#include <type_traits>

#include "shmcb/config.hpp"

namespace shmcb::config_text {

template <class T, class Of>
concept MaybeConst = std::same_as<std::remove_const_t<T>, Of>;

// each_field(aggregate, visit) calls visit(name, member) for each member in order.

template <MaybeConst<Ratio> T>
void each_field(T& of, auto&& visit) {
  auto& [failures, window, within] = of;
  visit("failures", failures);
  visit("window", window);
  visit("within", within);
}

template <MaybeConst<FailureRate> T>
void each_field(T& of, auto&& visit) {
  auto& [percent, minimum_calls] = of;
  visit("percent", percent);
  visit("minimum_calls", minimum_calls);
}

template <MaybeConst<ConsecutiveFailures> T>
void each_field(T& of, auto&& visit) {
  auto& [failures] = of;
  visit("failures", failures);
}

template <MaybeConst<SlowCalls> T>
void each_field(T& of, auto&& visit) {
  auto& [slower_than, percent, minimum_calls, reopen_on_slow_probe] = of;
  visit("slower_than", slower_than);
  visit("percent", percent);
  visit("minimum_calls", minimum_calls);
  visit("reopen_on_slow_probe", reopen_on_slow_probe);
}

template <MaybeConst<Cooldown> T>
void each_field(T& of, auto&& visit) {
  auto& [base, multiplier, maximum, jitter, forget_after] = of;
  visit("base", base);
  visit("multiplier", multiplier);
  visit("maximum", maximum);
  visit("jitter", jitter);
  visit("forget_after", forget_after);
}

template <MaybeConst<RampUp> T>
void each_field(T& of, auto&& visit) {
  auto& [duration, start_percent] = of;
  visit("duration", duration);
  visit("start_percent", start_percent);
}

/// All but the name: what breakers can have in common.
template <MaybeConst<BreakerConfig> T>
void each_setting(T& of, auto&& visit) {
  auto& [name, failure_threshold, failure_rate, consecutive_failures, slow_calls, cooldown, success_threshold,
         probe_limit, probe_timeout, reclaim_dead_probes, ramp_up, accounting, config_revision] = of;
  visit("failure_threshold", failure_threshold);
  visit("failure_rate", failure_rate);
  visit("consecutive_failures", consecutive_failures);
  visit("slow_calls", slow_calls);
  visit("cooldown", cooldown);
  visit("success_threshold", success_threshold);
  visit("probe_limit", probe_limit);
  visit("probe_timeout", probe_timeout);
  visit("reclaim_dead_probes", reclaim_dead_probes);
  visit("ramp_up", ramp_up);
  visit("accounting", accounting);
  visit("config_revision", config_revision);
}

template <MaybeConst<BreakerConfig> T>
void each_field(T& of, auto&& visit) {
  visit("name", of.name);
  each_setting(of, visit);
}

}  // namespace shmcb::config_text
