// Values of configuration keys: reading, checking, writing. (Declared in config_fields.h beside the table.)
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <cmath>

#include "tutti/core/error.h"
#include "tutti/train/config/config_fields.h"
#include "tutti/train/config/retired_keys.h"
#include "tutti/train/config/torchtitan_keys.h"

namespace tutti::train {
namespace {

std::string number_text(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) return fmt::format("{}", static_cast<int64_t>(value));
  return fmt::format("{}", value);
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\u{:04X}", byte);
    } else {
      out += c;
    }
  }
  return out + '"';
}

// A whole number above 0, as to_toml() would write it.
bool is_count(const std::string& text) {
  return !text.empty() && text.size() < 10 && text[0] != '0' &&
         text.find_first_not_of("0123456789") == std::string::npos;
}

void check_number(const Field& field, double value) {
  const FieldRule& rule = field.rule;
  if (rule.also && value == *rule.also) return;
  const bool in_range = (rule.min_excluded ? value > rule.min : value >= rule.min) && value <= rule.max;
  const bool is_power = !rule.power_of_two || std::has_single_bit(static_cast<uint64_t>(std::max(value, 0.0)));
  TUTTI_CHECK(std::isfinite(value) && in_range && is_power, "expected {}, found {}",
              rule_words(field).empty() ? "a finite number" : rule_words(field), number_text(value));
}

void check_rule(const Field& field, const FieldValue& value) {
  if (const auto* text = std::get_if<std::string>(&value); text && !field.rule.choices.empty()) {
    const auto& choices = field.rule.choices;
    if (field.rule.or_count && is_count(*text)) return;
    if (std::find(choices.begin(), choices.end(), *text) == choices.end()) {
      const std::string nearest = nearest_match(*text, choices);
      throw UsageError(fmt::format("expected {}, found '{}'{}", rule_words(field), *text,
                                   nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest)));
    }
  }
  if (const auto* whole = std::get_if<int64_t>(&value)) check_number(field, static_cast<double>(*whole));
  if (const auto* real = std::get_if<double>(&value)) check_number(field, *real);
  if (const auto* list = std::get_if<NumberList>(&value)) {
    for (const int64_t number : *list) check_number(field, static_cast<double>(number));
  }
  if (!field.rule.only || value == *field.rule.only) return;
  const bool is_also = field.rule.also && value == FieldValue(static_cast<int64_t>(*field.rule.also));
  TUTTI_CHECK(is_also, "{} is not supported yet by this version; expected {}", to_toml(value),
              to_toml(*field.rule.only));
}

}  // namespace

std::string Field::variable() const {
  std::string name = fmt::format("TUTTI_{}_{}", section, key);
  for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

FieldValue value_of(const Field& field, const Config& config) {
  // Places are written for setting; reading through one changes nothing.
  auto& readable = const_cast<Config&>(config);
  return std::visit([&](auto place) { return FieldValue(*place(readable)); }, field.place);
}

FieldValue default_of(const Field& field) {
  static const Config defaults;
  return value_of(field, defaults);
}

bool is_of_model(const Field& field, const Config& config) {
  return !field.only_of || *field.only_of == kind_of(config);
}

bool is_written(const Field& field, const Config& config) {
  return is_of_model(field, config) || value_of(field, config) != default_of(field);
}

void set_value(const Field& field, Config& config, const FieldValue& value) {
  std::visit(
      [&](auto place) {
        using T = std::remove_reference_t<decltype(*place(config))>;
        FieldValue converted = value;
        if constexpr (std::is_same_v<T, double>) {
          if (const auto* whole = std::get_if<int64_t>(&value)) converted = static_cast<double>(*whole);
        }
        if constexpr (std::is_same_v<T, std::string>) {
          if (const auto* whole = std::get_if<int64_t>(&value); whole != nullptr && field.rule.or_count)
            converted = std::to_string(*whole);
        }
        TUTTI_CHECK(std::holds_alternative<T>(converted), "expected {}, found {}", type_words(field), to_toml(value));
        check_rule(field, converted);
        *place(config) = std::get<T>(converted);
      },
      field.place);
}

std::string type_words(const Field& field) {
  static constexpr const char* kWords[] = {"true or false", "a whole number",    "a number",
                                           "a string",      "a list of strings", "a list of whole numbers"};
  return kWords[field.place.index()];
}

std::string rule_words(const Field& field) {
  const FieldRule& rule = field.rule;
  if (!rule.choices.empty())
    return fmt::format("one of: {}{}", fmt::join(rule.choices, ", "),
                       rule.or_count ? ", or a whole number above 0" : "");
  std::string words = rule.power_of_two ? "a power of two, " : "";
  if (std::isfinite(rule.min) && std::isfinite(rule.max)) {
    words += fmt::format("{} to {}", number_text(rule.min), number_text(rule.max));
  } else if (std::isfinite(rule.min)) {
    words += fmt::format(fmt::runtime(rule.min_excluded ? "more than {}" : "{} or more"), number_text(rule.min));
  } else if (rule.only) {
    words += to_toml(*rule.only);
  }
  if (rule.also && !words.empty()) words += fmt::format(", or {}", number_text(*rule.also));
  return words;
}

std::string to_toml(const FieldValue& value) {
  struct Writer {
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(int64_t v) const { return fmt::format("{}", v); }
    std::string operator()(double v) const {
      const std::string text = fmt::format("{}", v);  // shortest that reads back to the same number
      return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
    }
    std::string operator()(const std::string& v) const { return quoted(v); }
    std::string operator()(const TextList& v) const {
      std::string out;
      for (const std::string& text : v) out += fmt::format("{}{}", out.empty() ? "" : ", ", quoted(text));
      return fmt::format("[{}]", out);
    }
    std::string operator()(const NumberList& v) const { return fmt::format("[{}]", fmt::join(v, ", ")); }
  };
  return std::visit(Writer{}, value);
}

const Section& find_section(std::string_view name) {
  std::vector<std::string> names;
  for (const Section& section : config_sections()) {
    if (section.name == name) return section;
    names.push_back(section.name);
  }
  const std::string hint = torchtitan_hint(name, "");
  throw UsageError(hint.empty() ? unknown_name_message("section", name, names) : hint);
}

const Field& find_field(std::string_view section, std::string_view key) {
  find_section(section);
  std::vector<std::string> keys;
  for (const Field& field : config_fields()) {
    if (field.section != section) continue;
    if (field.key == key) return field;
    keys.push_back(field.key);
  }
  if (const std::string note = retired_note(section, key); !note.empty()) throw UsageError(note);
  const std::string hint = torchtitan_hint(section, key);
  throw UsageError(hint.empty() ? unknown_name_message(fmt::format("key in [{}]", section), key, keys) : hint);
}

}  // namespace tutti::train
