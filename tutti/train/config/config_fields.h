// The list of all configuration keys, which parser, writer, help and docs iterate over. Their rows are in
// tutti/train/config/sections.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tutti/train/config/config.h"
#include "tutti/train/config/model_kind.h"

namespace tutti::train {

using TextList = std::vector<std::string>;
using NumberList = std::vector<int64_t>;
// A value of a key; its type is the key's type.
using FieldValue = std::variant<bool, int64_t, double, std::string, TextList, NumberList>;
// The location of the value in a Config.
using FieldPlace = std::variant<bool* (*)(Config&), int64_t* (*)(Config&), double* (*)(Config&),
                                std::string* (*)(Config&), TextList* (*)(Config&), NumberList* (*)(Config&)>;

// The legal values of a key, or of each number of a list. `also` is legal in addition to the range.
struct FieldRule {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool min_excluded = false;
  std::optional<double> also = std::nullopt;
  bool power_of_two = false;
  std::vector<std::string> choices = {};
  bool or_count = false;  // beside the choices a whole number above 0 is legal, as a number or as text
  // The only value that this version supports, for keys that are reserved for later.
  std::optional<FieldValue> only = std::nullopt;
};

// The effect of resuming a run with another value.
enum class Resuming {
  free,   // nothing: the numbers do not depend on it
  told,   // the numbers may change from then on, which the run reports
  fixed,  // the run is refused
};

struct Field {
  std::string section;
  std::string key;
  FieldPlace place;
  std::string doc;
  std::string unit;
  FieldRule rule = {};
  Resuming resuming = Resuming::free;
  std::optional<ModelKind> only_of = std::nullopt;  // the models that the key says something about; none: all

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
// Whether the key says something about the model of the configuration.
bool is_of_model(const Field& field, const Config& config);
// Whether a configuration is written with the key: it is of the model, or somebody has set it.
bool is_written(const Field& field, const Config& config);
// UsageError ("expected ..., found ...") when the value violates the rule; the caller adds key and place to the
// message.
void set_value(const Field& field, Config& config, const FieldValue& value);

// "true or false", "a whole number", "a number", "a string", "a list of strings", "a list of whole numbers".
std::string type_words(const Field& field);
// "1 or more, or -1", "one of: strict, fast", "" when every value is legal.
std::string rule_words(const Field& field);
// As TOML writes it: 5, 0.5, true, "text", ["a", "b"], [1, 2].
std::string to_toml(const FieldValue& value);

// The section with that name. UsageError, suggesting the nearest name, when there is none.
const Section& find_section(std::string_view name);
// The entry for section.key. UsageError, suggesting the nearest section or key, when there is none.
const Field& find_field(std::string_view section, std::string_view key);

}  // namespace tutti::train
