#include "tutti/train/config/config_toml.h"

#include <toml++/toml.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <sstream>

#include "tutti/core/error.h"
#include "tutti/runtime/json_document.h"
#include "tutti/train/config/config_fields.h"
#include "tutti/train/config/faults.h"
#include "tutti/train/config/retired_keys.h"

namespace tutti::train {
namespace {

constexpr size_t kLargestFile = size_t{1} << 20;
constexpr int64_t kMostDots = 2000;

// The parser bounds how deeply values are nested, but recurses over the parts of a dotted key: a long one would exhaust
// the stack. No line of a config that somebody has written has so many dots.
void check_dots(std::string_view text, std::string_view source) {
  for (int64_t line = 1; !text.empty(); ++line) {
    const std::string_view here = text.substr(0, text.find('\n'));
    const int64_t dots = std::count(here.begin(), here.end(), '.');
    TUTTI_CHECK(dots <= kMostDots,
                "{}:{}: {} dots in one line, at most {} are read; write a long list in several lines", source, line,
                dots, kMostDots);
    text.remove_prefix(std::min(here.size() + 1, text.size()));
  }
}

std::string place(std::string_view source, const toml::source_region& region) {
  return fmt::format("{}:{}:{}", source, region.begin.line, region.begin.column);
}

// How a TOML value is called in messages.
std::string type_name(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "a list";
    case toml::node_type::date:
    case toml::node_type::time:
    case toml::node_type::date_time:
      return "a date or time";
    default:
      return "nothing";
  }
}

// The value of a TOML node, or what it is called when no key can hold such a thing.
template <class Item>
std::variant<FieldValue, std::string> list_from(const toml::array& array, const char* items) {
  std::vector<Item> list;
  for (const toml::node& item : array) {
    const auto* value = item.as<Item>();
    if (value == nullptr) return fmt::format("a list that holds something other than {}", items);
    list.push_back(value->get());
  }
  return FieldValue(std::move(list));
}
std::variant<FieldValue, std::string> value_from(const toml::node& node, bool holds_numbers = false) {
  if (const auto* v = node.as_boolean()) return FieldValue(v->get());
  if (const auto* v = node.as_integer()) return FieldValue(v->get());
  if (const auto* v = node.as_floating_point()) return FieldValue(v->get());
  if (const auto* v = node.as_string()) return FieldValue(v->get());
  const auto* array = node.as_array();
  if (array == nullptr) return type_name(node);
  return holds_numbers ? list_from<int64_t>(*array, "whole numbers") : list_from<std::string>(*array, "strings");
}

bool holds_numbers(const Field& field) { return std::holds_alternative<NumberList* (*)(Config&)>(field.place); }

void set_from_node(Config& config, const Field& field, const toml::node& node) {
  auto value = value_from(node, holds_numbers(field));
  if (const auto* found = std::get_if<std::string>(&value)) {
    throw UsageError(fmt::format("expected {}, found {}", type_words(field), *found));
  }
  set_value(field, config, std::get<FieldValue>(value));
}

// The value of a flag or variable: typed by the key, since the shell knows only text.
FieldValue value_from_text(const Field& field, std::string_view text) {
  const auto whole_text = [&](auto number) -> std::optional<FieldValue> {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return FieldValue(number);
  };
  std::optional<FieldValue> value;
  switch (field.place.index()) {
    case 0:
      if (text == "true" || text == "false") value = FieldValue(text == "true");
      break;
    case 1:
      value = whole_text(int64_t{});
      break;
    case 2:
      value = whole_text(double{});
      break;
    case 3:
      value = FieldValue(std::string(text));
      break;
    default: {
      if (text.starts_with('[')) {
        check_dots(text, field.name());
        const toml::table parsed = toml::parse(fmt::format("x = {}", text));
        auto list = value_from(*parsed.get("x"), holds_numbers(field));
        if (auto* found = std::get_if<FieldValue>(&list)) value = *found;
        break;
      }
      if (holds_numbers(field)) return value_from_text(field, fmt::format("[{}]", text));
      TextList texts;
      while (!text.empty()) {
        const size_t comma = text.find(',');
        texts.emplace_back(text.substr(0, comma));
        text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
      }
      value = FieldValue(std::move(texts));
    }
  }
  TUTTI_CHECK(value.has_value(), "expected {}, found '{}'", type_words(field), text);
  return *value;
}

void set_from_text(Config& config, const Field& field, std::string_view text, std::string_view where) {
  try {
    set_value(field, config, value_from_text(field, text));
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("{}: {}", where, error.what()));
  } catch (const toml::parse_error& error) {
    throw UsageError(fmt::format("{}: {}", where, error.description()));
  }
}

toml::table parse(std::string_view text, std::string_view source) {
  check_dots(text, source);
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    throw UsageError(fmt::format("{}: {}", place(source, error.source()), error.description()));
  }
}

std::string text_of(const std::filesystem::path& path) {
  TUTTI_CHECK(std::filesystem::exists(path), "config file {} does not exist", path.string());
  TUTTI_CHECK(!std::filesystem::is_directory(path), "{} is a folder; expected a TOML file", path.string());
  return read_regular_file(path.string(), kLargestFile);
}

}  // namespace

void read_toml(Config& config, std::string_view text, std::string_view source, std::vector<std::string>* notes) {
  const toml::table root = parse(text, source);
  std::vector<std::pair<toml::source_position, std::string>> faults;  // tables have their keys in the order of names
  const auto at = [&](const toml::source_region& region, const auto& action) {
    try {
      action();
    } catch (const UsageError& error) {
      faults.emplace_back(region.begin, fmt::format("{}: {}", place(source, region), error.what()));
    }
  };
  for (const auto& [section, content] : root) {
    const toml::table* keys = content.as_table();
    const size_t before = faults.size();
    at(keys != nullptr && !keys->empty() ? keys->begin()->first.source() : section.source(), [&, &name = section] {
      TUTTI_CHECK(keys != nullptr, "'{}' stands outside of any [section]", name.str());
      find_section(name.str());
    });
    if (faults.size() > before) continue;
    for (const auto& [key, node] : *keys) {
      if (const std::string note = retired_note(section.str(), key.str()); !note.empty()) {
        if (notes != nullptr) notes->push_back(fmt::format("{}: {}", place(source, key.source()), note));
        continue;
      }
      const Field* field = nullptr;
      at(key.source(), [&, &name = section, &word = key] { field = &find_field(name.str(), word.str()); });
      if (field == nullptr) continue;
      at(node.source(), [&, &value = node] {
        try {
          set_from_node(config, *field, value);
        } catch (const UsageError& error) {
          throw UsageError(fmt::format("{}: {}", field->name(), error.what()));
        }
      });
    }
  }
  std::stable_sort(faults.begin(), faults.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  Faults sorted;
  for (auto& [where, text_of_fault] : faults) sorted.add(std::move(text_of_fault));
  sorted.raise();
}

void read_config(Config& config, const std::filesystem::path& path, std::vector<std::string>* notes) {
  read_toml(config, text_of(path), path.string(), notes);
}

Config load_config(const std::filesystem::path& path, std::vector<std::string>* notes) {
  Config config;
  read_config(config, path, notes);
  return config;
}

namespace {

// Any value on one line, also what no key of this version can hold.
std::string text_of(const toml::node& node) {
  const auto value = value_from(node);
  if (const auto* known = std::get_if<FieldValue>(&value)) return to_toml(*known);
  if (const toml::array* list = node.as_array()) {
    std::string items;
    for (const toml::node& item : *list) items += fmt::format("{}{}", items.empty() ? "" : ", ", text_of(item));
    return fmt::format("[{}]", items);
  }
  std::ostringstream lines;
  lines << toml::toml_formatter(node);
  std::string text;
  for (const char c : lines.str()) {
    const bool is_space = c == '\n' || c == ' ';
    if (!is_space || (!text.empty() && text.back() != ' ')) text += is_space ? ' ' : c;
  }
  return text;
}

}  // namespace

std::map<std::string, std::string> load_settings(const std::filesystem::path& path) {
  std::map<std::string, std::string> settings;
  for (const auto& [section, content] : parse(text_of(path), path.string())) {
    const toml::table* keys = content.as_table();
    TUTTI_CHECK(keys != nullptr, "{}: '{}' stands outside of any [section]", place(path.string(), section.source()),
                section.str());
    for (const auto& [key, node] : *keys) {
      settings[fmt::format("{}.{}", section.str(), key.str())] = text_of(node);
    }
  }
  return settings;
}

void apply_override(Config& config, std::string_view flag) {
  const size_t equals = flag.find('=');
  const size_t dot = flag.substr(0, equals).find('.');
  TUTTI_CHECK(flag.starts_with("--") && equals != std::string_view::npos && dot != std::string_view::npos,
              "'{}': expected --section.key=value", flag);
  const std::string_view name = flag.substr(0, equals);
  const Field* field = nullptr;
  try {
    field = &find_field(name.substr(2, dot - 2), name.substr(dot + 1));
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("{}: {}", name, error.what()));
  }
  set_from_text(config, *field, flag.substr(equals + 1), name);
}

namespace {

void apply_variable(Config& config, std::string_view variable) {
  const std::string name(variable.substr(0, variable.find('=')));
  const auto variable_of = [](std::string_view section, std::string_view key) {
    return Field{.section = std::string(section), .key = std::string(key), .place = {}, .doc = {}, .unit = {}}
        .variable();
  };
  std::vector<std::string> names_of_section;
  const Field* match = nullptr;
  for (const Section& section : config_sections()) {
    // Compared whole below: TUTTI_DATA_X belongs to [data] whether or not x exists.
    if (!name.starts_with(variable_of(section.name, ""))) continue;
    for (const Field& field : config_fields()) {
      if (field.section != section.name) continue;
      names_of_section.push_back(field.variable());
      if (field.variable() == name) match = &field;
    }
  }
  if (names_of_section.empty()) return;
  for (const RetiredKey& k : retired_keys())
    TUTTI_CHECK(variable_of(k.section, k.key) != name, "{}: {}", name, retired_note(k.section, k.key));
  TUTTI_CHECK(match != nullptr, "{}", unknown_name_message("environment variable", name, names_of_section));
  set_from_text(config, *match, variable.substr(name.size() + 1), name);
}

}  // namespace

void apply_environment(Config& config, std::span<const std::string> environment) {
  Faults faults;
  for (const std::string& variable : environment) faults.collect([&] { apply_variable(config, variable); });
  faults.raise();
}

void apply_environment(Config& config) {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) variables.emplace_back(*variable);
  apply_environment(config, variables);
}

std::string to_toml(const Config& config) {
  std::string text;
  for (const Section& section : config_sections()) {
    std::string keys;
    for (const Field& field : config_fields()) {
      if (field.section == section.name && is_written(field, config))
        keys += fmt::format("{} = {}\n", field.key, to_toml(value_of(field, config)));
    }
    if (!keys.empty()) text += fmt::format("{}[{}]\n{}", text.empty() ? "" : "\n", section.name, keys);
  }
  return text;
}

}  // namespace tutti::train
