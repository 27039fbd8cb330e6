// SPDX-License-Identifier: BSD-3-Clause
// The fields of a breaker's configuration as flags.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "shmcb/config.hpp"

namespace shmcb::run {

/// What the flags of one command line say about a breaker, to be laid over the defaults or what a file says.
class BreakerFlags {
 public:
  /// Must outlive `app`'s parsing.
  void add_to(CLI::App& app);

  /// The fields that have been given; a flag of a rule that is not set sets the rule.
  void apply(BreakerConfig& config) const;

 private:
  template <class Value, class Set>
  CLI::Option* add(CLI::App& app, const std::string& flag, Set set, const std::string& help);
  template <class Set>
  CLI::Option* add_duration(CLI::App& app, const std::string& flag, Set set, const std::string& help);
  template <class Set>
  void add_switch(CLI::App& app, const std::string& name, Set set, const std::string& help);

  void add_opening_rules(CLI::App& app);
  void add_cooldown(CLI::App& app);
  void add_recovery(CLI::App& app);

  std::vector<std::function<void(BreakerConfig&)>> given_;
};

/// A message about the configuration, with the flags in place of its fields.
[[nodiscard]] std::string in_terms_of_flags(std::string message);

}  // namespace shmcb::run
