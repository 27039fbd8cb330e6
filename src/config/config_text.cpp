// SPDX-License-Identifier: BSD-3-Clause
// Reads configurations from TOML. toml++ is used without exceptions, so none can escape, and compiled into this file.
#include "shmcb/config_text.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "config/fields.hpp"
#include "config/plain_toml.hpp"
#include "shmcb/duration_text.hpp"

// toml++ 3.3 asserts (without NDEBUG) and lets clang assume (with it) what texts such as "[=" make untrue, right before
// it checks the same and reports an error: neither may be.
// NOLINTBEGIN(readability-identifier-naming): toml++'s names
#undef NDEBUG
#define TOML_ASSERT(condition) static_assert(true)
#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#define TOML_ENABLE_FORMATTERS 0
#define TOML_MAX_NESTED_VALUES 16  // see plain_toml.hpp
// NOLINTEND(readability-identifier-naming)
#include <toml++/toml.h>

namespace shmcb {
namespace {

using config_text::each_field;
using config_text::each_setting;
using detail::bad_field;
using detail::quoted;
using Position = toml::source_position;

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

/// What is wrong, and where.
struct Complaint {
  Position at{};
  std::string sentence{};

  [[nodiscard]] explicit operator bool() const noexcept { return !sentence.empty(); }
};

/// Where the text sets a field, by the field's path.
using Places = std::map<std::string, Position, std::less<>>;

/// What every breaker has unless it says otherwise.
struct Defaults {
  BreakerConfig config{};
  Places places{};
};

/// Read as a table of settings, without a name.
struct DefaultsTable {
  BreakerConfig& config;
};
void each_field(DefaultsTable& of, auto&& visit) {
  each_setting(of.config, visit);
}

[[nodiscard]] std::string shown(const toml::node& node) {
  if (const auto* text = node.as_string()) return quoted(text->get()) + " (a string)";
  if (const auto* number = node.as_integer()) return std::to_string(number->get()) + " (an integer)";
  if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
  if (node.is_table()) return "a table";
  if (node.is_array()) return "an array";
  return node.is_floating_point() ? "a floating-point number" : "a date or time";
}

[[nodiscard]] Complaint refused(const toml::node& node, std::string_view field, std::string_view rule) {
  return {node.source().begin, bad_field(field, shown(node), rule).message};
}

[[nodiscard]] Complaint unknown_key(const toml::key& key, const std::vector<std::string_view>& known) {
  std::string sentence = "key " + quoted(key.str()) + " is not known here; known are ";
  for (const std::string_view name : known)
    sentence.append(name == known.front() ? "" : ", ").append(name);
  return {key.source().begin, std::move(sentence)};
}

/// The first key of a table, as the text has them, that is not among `known`.
[[nodiscard]] Complaint find_unknown(const toml::table& table, const std::vector<std::string_view>& known) {
  const toml::key* first = nullptr;
  for (const auto& [key, node] : table) {
    if (std::find(known.begin(), known.end(), key.str()) != known.end()) continue;
    if (first == nullptr || key.source().begin < first->source().begin) first = &key;
  }
  return first == nullptr ? Complaint{} : unknown_key(*first, known);
}

/// The keys that are there set their fields, the others leave them as they are. `prefix` begins the fields' paths.
template <class Aggregate>
[[nodiscard]] Complaint read_table(const toml::table& table, const std::string& prefix, Aggregate& into,
                                   Places& places);

// read(node, field, into, places): the value of one field; `field` is its path.

template <std::unsigned_integral Number>
[[nodiscard]] Complaint read(const toml::node& node, const std::string& field, Number& into, Places&) {
  constexpr std::uint64_t kMost =
      std::min<std::uint64_t>(std::numeric_limits<Number>::max(), std::numeric_limits<std::int64_t>::max());
  const auto* number = node.as_integer();
  const std::string rule = "a whole number from 0 to " + std::to_string(kMost);
  if (number == nullptr) return refused(node, field, rule);
  if (number->get() < 0 || static_cast<std::uint64_t>(number->get()) > kMost) {
    return {node.source().begin, bad_field(field, std::to_string(number->get()), rule).message};
  }
  into = static_cast<Number>(number->get());
  return {};
}

[[nodiscard]] Complaint read(const toml::node& node, const std::string& field, bool& into, Places&) {
  const auto* flag = node.as_boolean();
  if (flag == nullptr) return refused(node, field, "true or false");
  into = flag->get();
  return {};
}

[[nodiscard]] Complaint read(const toml::node& node, const std::string& field, std::string& into, Places&) {
  const auto* text = node.as_string();
  if (text == nullptr) return refused(node, field, "a string");
  into = text->get();
  return {};
}

[[nodiscard]] Complaint read(const toml::node& node, const std::string& field, Millis& into, Places&) {
  const auto* text = node.as_string();
  if (text == nullptr) return refused(node, field, std::string{"a string: "}.append(detail::kDurationRule));
  const Result<Millis> duration = parse_duration(field, text->get());
  if (!duration) return {node.source().begin, duration.error().message};
  into = *duration;
  return {};
}

[[nodiscard]] Complaint read(const toml::node& node, const std::string& field, Accounting& into, Places&) {
  const auto* text = node.as_string();
  for (const Accounting accounting : {Accounting::exact, Accounting::lean}) {
    if (text == nullptr || text->get() != to_string(accounting)) continue;
    into = accounting;
    return {};
  }
  return refused(node, field, R"(one of "exact", "lean")");
}

[[nodiscard]] Complaint read(const toml::node& node, const std::string& field, std::optional<Millis>& into,
                             Places& places) {
  return read(node, field, into.emplace(), places);
}

template <class Aggregate>
  requires std::is_aggregate_v<Aggregate>
[[nodiscard]] Complaint read(const toml::node& node, const std::string& field, Aggregate& into, Places& places) {
  const auto* table = node.as_table();
  return table == nullptr ? refused(node, field, "a table") : read_table(*table, field + ".", into, places);
}

/// Also its base alone.
[[nodiscard]] Complaint read(const toml::node& node, const std::string& field, Cooldown& into, Places& places) {
  if (const auto* table = node.as_table()) return read_table(*table, field + ".", into, places);
  if (!node.is_string()) return refused(node, field, "a table, or a string such as \"30s\", its base");
  places[field + ".base"] = node.source().begin;
  return read(node, field + ".base", into.base, places);
}

/// A rule that may be left out, and taken back.
template <class Aggregate>
[[nodiscard]] Complaint read(const toml::node& node, const std::string& field, std::optional<Aggregate>& into,
                             Places& places) {
  if (const auto* flag = node.as_boolean(); flag != nullptr && !flag->get()) {
    into.reset();
    return {};
  }
  const auto* table = node.as_table();
  if (table == nullptr) return refused(node, field, "a table, or false for none");
  if (!into) into.emplace();
  return read_table(*table, field + ".", *into, places);
}

template <class Aggregate>
Complaint read_table(const toml::table& table, const std::string& prefix, Aggregate& into, Places& places) {
  std::vector<std::string_view> known;
  each_field(into, [&known](std::string_view key, auto&) { known.push_back(key); });
  Complaint complaint = find_unknown(table, known);
  each_field(into, [&](std::string_view key, auto& member) {
    const toml::node* const node = table.get(key);
    if (node == nullptr || complaint) return;
    const std::string field = prefix + std::string{key};
    places[field] = node->source().begin;
    complaint = read(*node, field, member, places);
  });
  return complaint;
}

/// toml++ cites what it met as it stands in the text.
[[nodiscard]] std::string printable(std::string_view sentence) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string out;
  for (const char c : sentence) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      out += c;
    } else {
      out.append("\\x").append({kHex[byte >> 4U], kHex[byte & 0xFU]});
    }
  }
  return out;
}

/// Reads one text.
class Reader {
 public:
  explicit Reader(std::string_view source_name) : source_name_(source_name) {}

  [[nodiscard]] Result<Configuration> read(std::string_view text) {
    if (text.size() > kMaxConfigTextBytes) {
      const std::string most = std::to_string(kMaxConfigTextBytes);
      return Error{Errc::invalid_config, source_name_ + ": the text is longer than " + most + " bytes"};
    }
    std::string plain{text.substr(text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0)};
    if (const auto objection = config_text::make_plain(plain)) {
      const Position at{static_cast<toml::source_index>(objection->line),
                        static_cast<toml::source_index>(objection->column)};
      return error_of({at, std::string{objection->sentence}});
    }
    const toml::parse_result parsed = toml::parse(std::string_view{plain});
    if (parsed.failed()) {
      return error_of({parsed.error().source().begin, printable(parsed.error().description())});
    }
    if (Complaint complaint = read_root(parsed.table())) return error_of(complaint);
    if (error_) return std::move(error_);
    return std::move(read_);
  }

 private:
  [[nodiscard]] Complaint read_root(const toml::table& root) {
    if (Complaint complaint = find_unknown(root, {"defaults", "breaker"})) return complaint;
    Defaults defaults;
    if (const toml::node* const node = root.get("defaults")) {
      const auto* table = node->as_table();
      if (table == nullptr) return refused(*node, "defaults", "a table");
      DefaultsTable into{defaults.config};
      if (Complaint complaint = read_table(*table, {}, into, defaults.places)) return complaint;
    }
    const toml::node* const node = root.get("breaker");
    if (node == nullptr) return {};
    const auto* array = node->as_array();
    if (array == nullptr || !array->is_homogeneous(toml::node_type::table)) {
      return refused(*node, "breaker", "tables, each begun by [[breaker]]");
    }
    for (const toml::node& element : *array) {
      if (Complaint complaint = read_breaker(*element.as_table(), defaults)) return complaint;
      if (error_) break;
    }
    return {};
  }

  /// Afterwards error_ tells of what its fields break together.
  [[nodiscard]] Complaint read_breaker(const toml::table& table, Defaults fields) {
    if (Complaint complaint = read_table(table, {}, fields.config, fields.places)) return complaint;
    const std::uint32_t line = table.source().begin.line;
    std::string& name = fields.config.name;
    if (Error error = check(fields.config)) {
      error_ = {error.code, about(name, line, fields.places, error.message)};
    } else if (const auto [other, added] = lines_.try_emplace(name, line); !added) {
      const std::string rule = "unlike that of the breaker in line " + std::to_string(other->second);
      error_ = {Errc::invalid_config, about(name, line, fields.places, bad_field("name", quoted(name), rule).message)};
    }
    for (const std::string& warning : shmcb::warnings(fields.config))
      read_.warnings.push_back(about(name, line, fields.places, warning));
    read_.breakers.push_back(std::move(fields.config));
    return {};
  }

  /// A sentence about a breaker with where the field that begins the sentence is set; else, where the breaker begins.
  [[nodiscard]] std::string about(std::string_view name, std::uint32_t line, const Places& places,
                                  std::string_view sentence) const {
    const auto place = places.find(sentence.substr(0, sentence.find(' ')));
    if (place != places.end()) line = place->second.line;
    std::string out = source_name_ + ":" + std::to_string(line) + ": breaker " + quoted(name) + ": ";
    return out.append(sentence);
  }

  [[nodiscard]] Error error_of(const Complaint& complaint) const {
    return {Errc::invalid_config, source_name_ + ":" + std::to_string(complaint.at.line) + ":" +
                                      std::to_string(complaint.at.column) + ": " + complaint.sentence};
  }

  std::string source_name_;
  Configuration read_;
  Error error_;
  std::map<std::string, std::uint32_t, std::less<>> lines_;  // where the breaker of a name begins
};

[[nodiscard]] Error cannot_read(const std::string& path, int error) {
  return {Errc::system, "cannot read " + path + ": " + std::generic_category().message(error)};
}

/// The bytes of a file, one more than the limit at most.
[[nodiscard]] Result<std::string> bytes_of(const std::string& path) {
  int fd = -1;
  do {
    fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) return cannot_read(path, errno);
  std::string text(kMaxConfigTextBytes + 1, '\0');
  std::size_t size = 0;
  int error = 0;
  while (size < text.size()) {
    const ssize_t got = ::read(fd, text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) error = errno;
    if (got <= 0) break;
    size += static_cast<std::size_t>(got);
  }
  ::close(fd);
  if (error != 0) return cannot_read(path, error);
  text.resize(size);
  return text;
}

}  // namespace

const BreakerConfig* Configuration::find(std::string_view name) const noexcept {
  const auto found = std::find_if(breakers.begin(), breakers.end(),
                                  [name](const BreakerConfig& breaker) { return breaker.name == name; });
  return found == breakers.end() ? nullptr : &*found;
}

Result<Configuration> parse_config(std::string_view text, std::string_view source_name) {
  return Reader{source_name}.read(text);
}

Result<Configuration> read_config(const std::string& path) {
  const Result<std::string> text = bytes_of(path);
  if (!text) return text.error();
  return parse_config(*text, path);
}

}  // namespace shmcb
