// SPDX-License-Identifier: BSD-3-Clause
// What the source tree promises about itself: arrows between layers point down, and no sync tag stands alone.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace {

namespace fs = std::filesystem;

const fs::path kRoot = fs::path{SHMCB_TEST_DATA_DIR} / ".." / "..";

std::string read(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<fs::path> sources() {
  std::vector<fs::path> found;
  for (const char* folder : {"include", "src", "tools"}) {
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder)) {
      const auto extension = entry.path().extension();
      if (extension == ".hpp" || extension == ".cpp" || extension == ".h") found.push_back(entry.path());
    }
  }
  return found;
}

/// docs/design.md, "Layers", from the bottom up. A file includes its own layer and those below.
const std::vector<std::pair<std::string, std::vector<std::string>>> kLayers = {
    {"vocabulary",
     {"export.hpp", "version.hpp", "time.hpp", "error.hpp", "types.hpp", "config.hpp", "failure.hpp",
      "duration_text.hpp", "segment_event.hpp"}},
    {"rules", {"core/rules.hpp"}},
    {"encoding",
     {"core/env.hpp", "core/words.hpp", "core/layout.hpp", "core/record.hpp", "core/process_identity.hpp",
      "core/presence.hpp"}},
    {"shared cell",
     {"core/record_pool.hpp", "core/ring.hpp", "core/journal.hpp", "core/cell_core.hpp", "core/append_outcome.hpp",
      "core/breaker_cell.hpp", "core/name_index.hpp", "core/groups.hpp", "core/registry.hpp", "core/group_cell.hpp"}},
    {"segment", {"segment.hpp", "segment_reader.hpp", "segment_observer.hpp"}},
    {"storages",
     {"random.hpp", "tsc_clock.hpp", "storage.hpp", "memory_storage.hpp", "shm_storage.hpp", "breaker_group.hpp",
      "fallback_storage.hpp"}},
    {"breaker",
     {"permit.hpp", "breaker_options.hpp", "breaker_reports.hpp", "classify.hpp", "throw_nested.hpp",
      "circuit_breaker.hpp"}},
    {"configuration text", {"config_text.hpp"}},
    {"umbrella", {"shmcb.hpp"}},
};

int layer_of(const std::string& header) {
  for (std::size_t layer = 0; layer < kLayers.size(); ++layer) {
    const auto& files = kLayers[layer].second;
    if (std::find(files.begin(), files.end(), header) != files.end()) return static_cast<int>(layer);
  }
  return -1;
}

TEST(Tree, EveryPublicHeaderHasALayerAndIncludesNoHigherOne) {
  const std::regex include{R"(#include "shmcb/([^"]+)\")"};
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / "include" / "shmcb")) {
    if (!entry.is_regular_file()) continue;
    const std::string header = fs::relative(entry.path(), kRoot / "include" / "shmcb").generic_string();
    const int layer = layer_of(header);
    EXPECT_GE(layer, 0) << header << " is in no layer";
    const std::string text = read(entry.path());
    for (std::sregex_iterator it(text.begin(), text.end(), include), end; it != end; ++it) {
      EXPECT_LE(layer_of((*it)[1]), layer) << header << " includes " << (*it)[1];
    }
  }
}

TEST(Tree, OnlySegmentSourcesIncludeBoostAndNoHeaderDoes) {
  for (const fs::path& path : sources()) {
    const bool includes_boost = read(path).find("#include <boost/") != std::string::npos;
    if (includes_boost) {
      EXPECT_EQ(path.filename(), "segment.cpp") << path;
    }
  }
}

TEST(Tree, OnlyTheReaderOfConfigurationsIncludesTomlAndNoHeaderDoes) {
  for (const fs::path& path : sources()) {
    if (read(path).find("#include <toml++/") != std::string::npos) {
      EXPECT_EQ(path.filename(), "config_text.cpp") << path;
    }
  }
}

TEST(Tree, EverySyncTagHasBothEndsAndIsListed) {
  const std::regex tag{R"(sync: ([a-z-]+))"};
  std::map<std::string, int> ends;
  for (const fs::path& path : sources()) {
    const std::string text = read(path);
    for (std::sregex_iterator it(text.begin(), text.end(), tag), end; it != end; ++it)
      ++ends[(*it)[1]];
  }
  EXPECT_FALSE(ends.empty());
  std::set<std::string> listed;
  const std::regex row{R"(\n\| ([a-z-]+) \|)"};
  const std::string document = read(kRoot / "docs" / "memory-model.md");
  for (std::sregex_iterator it(document.begin(), document.end(), row), end; it != end; ++it)
    listed.insert((*it)[1]);
  for (const auto& [name, count] : ends) {
    EXPECT_GE(count, 2) << "sync: " << name << " stands alone";
    EXPECT_TRUE(listed.contains(name)) << name << " is not in docs/memory-model.md";
  }
  listed.erase("name");
  for (const std::string& name : listed)
    EXPECT_TRUE(ends.contains(name)) << name << " is listed but used nowhere";
}

TEST(Tree, NoAtomicFenceStandsAnywhere) {
  for (const fs::path& path : sources()) {
    EXPECT_EQ(read(path).find("atomic_thread_fence"), std::string::npos) << path;
  }
}

}  // namespace
