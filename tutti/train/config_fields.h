// The one list of all configuration keys. Whatever walks over keys (parser, writer, help, docs) walks over this.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tutti/train/config.h"

namespace tutti::train {

using TextList = std::vector<std::string>;
// A value of a key; its type is the key's type.
using FieldValue = std::variant<bool, int64_t, double, std::string, TextList>;
// Where the value stands in a Config.
using FieldPlace = std::variant<bool* (*)(Config&), int64_t* (*)(Config&), double* (*)(Config&),
                                std::string* (*)(Config&), TextList* (*)(Config&)>;

// What a key accepts. Values of `also` are legal besides the range.
struct FieldRule {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool min_excluded = false;
  std::optional<double> also = std::nullopt;
  bool power_of_two = false;
  std::vector<std::string> choices = {};
  // Legal in the file format, but this version cannot do anything but `only`.
  std::optional<FieldValue> only = std::nullopt;
};

// What becomes of a run that continues with another value than it had.
enum class Resuming {
  free,   // nothing: the numbers are the same
  told,   // the numbers may change from here on, and the run says so
  fixed,  // it is refused
};

struct Field {
  std::string section;
  std::string key;
  FieldPlace place;
  std::string doc;
  std::string unit;
  FieldRule rule = {};
  Resuming resuming = Resuming::free;

  std::string name() const { return section + "." + key; }
  // The environment variable that sets it, e.g. TUTTI_TRAINING_STEPS.
  std::string variable() const;
};

struct Section {
  std::string name;
  std::string doc;
};

std::span<const Section> config_sections();
// In the order of config_sections().
std::span<const Field> config_fields();

FieldValue value_of(const Field& field, const Config& config);
FieldValue default_of(const Field& field);
// UsageError without a place ("expected ..., found ...") when the value breaks the rule; the caller adds key and place.
void set_value(const Field& field, Config& config, const FieldValue& value);

// "true or false", "a whole number", "a number", "a text", "a list of texts".
std::string type_words(const Field& field);
// "1 or more, or -1", "one of: strict, fast", "" when everything goes.
std::string rule_words(const Field& field);
// As TOML writes it: 5, 0.5, true, "text", ["a", "b"].
std::string to_toml(const FieldValue& value);

// The section of that name; UsageError naming the nearest.
const Section& find_section(std::string_view name);
// The row of section.key; UsageError naming the nearest section or key that exists.
const Field& find_field(std::string_view section, std::string_view key);

}  // namespace tutti::train
