// SPDX-License-Identifier: BSD-3-Clause
#include "config_file.hpp"

#include <cstdio>

#include <fmt/format.h>

#ifdef SHMCB_HAS_CONFIG_TEXT
#include "shmcb/config_text.hpp"
#endif

namespace shmcb::run {

#ifdef SHMCB_HAS_CONFIG_TEXT

Result<std::vector<BreakerConfig>> breakers_in(const std::string& path, const std::optional<std::string>& name) {
  Result<Configuration> read = read_config(path);
  if (!read) return read.error();
  if (!name) return std::move(read->breakers);
  if (const BreakerConfig* found = read->find(*name)) return std::vector{*found};
  std::string message = path + " has no breaker " + detail::quoted(*name) + "; it has ";
  if (read->breakers.empty()) message += "none";
  for (const BreakerConfig& other : read->breakers)
    message.append(&other == &read->breakers.front() ? "" : ", ").append(other.name);
  return Error{Errc::invalid_config, std::move(message)};
}

Error print_as_text(const std::vector<BreakerConfig>& breakers) {
  std::string text;
  for (const BreakerConfig& breaker : breakers) {
    text.append(text.empty() ? "" : "\n").append(to_toml(breaker));
    for (const std::string& warning : warnings(breaker))
      fmt::print(stderr, "shmcb-run: warning: breaker '{}': {}\n", breaker.name, warning);
  }
  std::fputs(text.c_str(), stdout);
  const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  return written ? Error{} : Error{Errc::system, "cannot write to standard output"};
}

#else

Result<std::vector<BreakerConfig>> breakers_in(const std::string&, const std::optional<std::string>&) {
  return Error{Errc::invalid_config, "--config is not there: this shmcb-run was built without toml++"};
}

Error print_as_text(const std::vector<BreakerConfig>&) {
  return {Errc::invalid_config, "--check-config is not there: this shmcb-run was built without toml++"};
}

#endif

}  // namespace shmcb::run
