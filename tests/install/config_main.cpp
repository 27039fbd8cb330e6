// SPDX-License-Identifier: BSD-3-Clause
// Uses configuration as text: linked to shmcb::config, and nothing of toml++ is needed.
#include <cstdio>

#include <shmcb/config_text.hpp>
#include <shmcb/memory_storage.hpp>
#include <shmcb/version.hpp>

int main() {
  std::printf("shmcb %s, configuration as text\n", shmcb::kVersion);
  const auto configuration = shmcb::parse_config("[[breaker]]\nname = 'downstream'\ncooldown = '5s'\n", "text");
  if (!configuration) return 1;
  const auto storage = shmcb::MemoryStorage<>::open(*configuration->find("downstream"));
  return storage && shmcb::parse_config(shmcb::to_toml(configuration->breakers[0]), "text") ? 0 : 2;
}
