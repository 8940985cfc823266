#include "tutti/models/published_rope.h"

#include <algorithm>
#include <cmath>

#include "tutti/models/published_writer.h"

namespace tutti::models {
namespace {

constexpr const char* kKinds[] = {"full_attention", "sliding_attention"};

// The object, or the first of its objects for kinds of layers.
JsonValue inner(const JsonValue& angles) {
  for (const char* kind : kKinds) {
    if (const std::optional<JsonValue> of_kind = angles.find_set(kind)) return *of_kind;
  }
  return angles;
}

std::optional<JsonValue> type_in(const JsonValue& angles) {
  const std::optional<JsonValue> type = angles.find_set("rope_type");
  return type ? type : angles.find_set("type");
}

double number_in(const JsonValue& angles, const char* key, double by_default) {
  const std::optional<JsonValue> found = angles.find_set(key);
  return found ? found->number() : by_default;
}

// YaRN's factor of cosines and sines, given itself or by the two scales whose ratio it is.
std::optional<double> attention_factor_in(const JsonValue& angles, double factor) {
  if (const std::optional<JsonValue> found = angles.find_set("attention_factor")) return found->number();
  const double mscale = number_in(angles, "mscale", 0), all = number_in(angles, "mscale_all_dim", 0);
  if (mscale == 0 || all == 0) return std::nullopt;
  const auto scale = [&](double m) { return factor <= 1 ? 1.0 : 0.1 * m * std::log(factor) + 1; };
  return scale(mscale) / scale(all);
}

bool is_positive(double value) { return std::isfinite(value) && value > 0; }

bool needs_original_positions(const RopeConfig& rope) {
  return rope.type == RopeType::llama3 || rope.type == RopeType::yarn;
}

void refuse_base(const std::string& key, const std::optional<JsonValue>& found, PublishedConfig& file) {
  if (found && !is_positive(found->number())) file.refuse(key, found->shown(), "a positive number");
}

// Notes the numbers of the scaling under `key` that no angles can be computed with.
void refuse_numbers(const std::string& key, const RopeConfig& rope, PublishedConfig& file) {
  const auto expect = [&](bool is_so, const char* of_key, auto value, const char* expected) {
    if (!is_so) file.refuse(fmt::format("{}.{}", key, of_key), fmt::format("{}", value), expected);
  };
  expect(is_positive(rope.factor), "factor", rope.factor, "a positive number");
  expect(rope.rotary_factor >= 0 && rope.rotary_factor <= 1, "partial_rotary_factor", rope.rotary_factor,
         "a number from 0 to 1");
  expect(!needs_original_positions(rope) || rope.original_positions > 0, "original_max_position_embeddings",
         rope.original_positions, "at least 1");
}

// What refuse_numbers() notes is replaced, as descriptions are compared by their angles before they are refused.
RopeConfig with_numbers(RopeConfig rope, double theta) {
  if (!is_positive(rope.theta)) rope.theta = theta;
  if (!is_positive(rope.factor)) rope.factor = 1;
  rope.rotary_factor = std::clamp(rope.rotary_factor, 0.0, 1.0);
  if (needs_original_positions(rope)) rope.original_positions = std::max<int64_t>(rope.original_positions, 1);
  return rope;
}

bool is_stretched(const JsonValue& angles) {
  const std::optional<JsonValue> type = type_in(angles);
  return type && type->text() != name_of(RopeType::plain);
}

// What stands beside the object: the positions that the model was made for, and those before they were stretched.
struct Lengths {
  std::optional<int64_t> positions, original;
};

// The scaling that an object asks for.
RopeConfig scaling_in(const JsonValue& angles, const Lengths& lengths) {
  const std::optional<JsonValue> type = type_in(angles);
  RopeConfig rope;
  rope.type = (type ? rope_type_named(type->text()) : std::nullopt).value_or(RopeType::plain);
  if (rope.type == RopeType::plain) return rope;
  const std::optional<JsonValue> original = angles.find_set("original_max_position_embeddings");
  const int64_t positions = lengths.positions.value_or(0);
  rope.original_positions = lengths.original ? *lengths.original : original ? original->whole() : positions;
  // YaRN without a factor stretches to the positions that the model was made for.
  const bool is_ratio = rope.type == RopeType::yarn && rope.original_positions > 0;
  rope.factor = number_in(angles, "factor",
                          is_ratio ? static_cast<double>(positions) / static_cast<double>(rope.original_positions) : 1);
  if (rope.type == RopeType::linear) return rope.original_positions = 0, rope;
  if (rope.type == RopeType::proportional) {
    rope.rotary_factor = number_in(angles, "partial_rotary_factor", 1);
    return rope.original_positions = 0, rope;
  }
  if (rope.type == RopeType::llama3) {
    rope.low_freq_factor = number_in(angles, "low_freq_factor", rope.low_freq_factor);
    rope.high_freq_factor = number_in(angles, "high_freq_factor", rope.high_freq_factor);
    return rope;
  }
  rope.beta_fast = number_in(angles, "beta_fast", rope.beta_fast);
  rope.beta_slow = number_in(angles, "beta_slow", rope.beta_slow);
  if (const std::optional<JsonValue> truncate = angles.find_set("truncate")) rope.truncate = truncate->boolean();
  rope.attention_factor = attention_factor_in(angles, rope.factor);
  return rope;
}

// Notes each key of an object, or of one for each kind of layer, that says otherwise than `rope`, which is that of the
// file itself where it `is_alone`, without a model.
void compare_angles(const std::string& key, const JsonValue& angles, const RopeConfig& rope, double theta,
                    const Lengths& lengths, bool is_alone, PublishedConfig& file) {
  for (const char* kind : kKinds) {
    const std::optional<JsonValue> of_kind = angles.find_set(kind);
    if (of_kind) compare_angles(fmt::format("{}.{}", key, kind), *of_kind, rope, theta, lengths, is_alone, file);
  }
  const auto name = [&](const char* of_key) { return fmt::format("{}.{}", key, of_key); };
  for (const char* type : {"rope_type", "type"}) {
    const std::optional<JsonValue> found = angles.find_set(type);
    if (found && is_alone && !rope_type_named(found->text()))
      file.refuse(name(type), found->shown(), "\"default\", \"linear\", \"llama3\", \"yarn\" or \"proportional\"");
    else file.expect_found(name(type), found, name_of(rope.type), name_of(rope.type));
  }
  const std::optional<JsonValue> base = angles.find_set("rope_theta");
  if (base) file.expect_found(name("rope_theta"), base, rope.theta, theta);
  if (is_alone) refuse_base(name("rope_theta"), base, file);
  if (const auto found = angles.find_set("partial_rotary_factor"))
    file.expect_found(name("partial_rotary_factor"), found, rope.rotary_factor, 1.0);
  const RopeConfig of_file = scaling_in(angles, lengths);
  if (!type_in(angles) || of_file.type != rope.type || rope.type == RopeType::plain) return;
  if (is_alone) refuse_numbers(key, of_file, file);
  const auto number = [&](const char* of_key, double of_object, double of_model) {
    if (of_object != of_model) file.refuse(name(of_key), fmt::format("{}", of_object), fmt::format("{}", of_model));
  };
  number("factor", of_file.factor, rope.factor);
  number("original_max_position_embeddings", static_cast<double>(of_file.original_positions),
         static_cast<double>(rope.original_positions));
  number("low_freq_factor", of_file.low_freq_factor, rope.low_freq_factor);
  number("high_freq_factor", of_file.high_freq_factor, rope.high_freq_factor);
  number("beta_fast", of_file.beta_fast, rope.beta_fast);
  number("beta_slow", of_file.beta_slow, rope.beta_slow);
  number("truncate", of_file.truncate, rope.truncate);
  number("attention_factor", rope_attention_factor(of_file), rope_attention_factor(rope));
}

// Whether an object, or one of a kind of layer in it, says the base.
bool says_theta(const std::optional<JsonValue>& angles) {
  return angles && (angles->find_set("rope_theta") || says_theta(angles->find_set("full_attention")));
}

// The llama3 scaling that divides frequencies by these numbers, which files hold in f32.
std::optional<RopeConfig> llama3_of(const RopeConfig& divided, int64_t head_dim) {
  const std::vector<double> expected = rope_frequencies(divided, head_dim);
  RopeConfig rope{.type = RopeType::llama3, .theta = divided.theta};
  rope.factor = *std::max_element(divided.divisors.begin(), divided.divisors.end());
  // All published models have the first; small heads fit several.
  constexpr int64_t published = 8192, most = int64_t{1} << 30;
  std::vector<int64_t> lengths{published};
  for (int64_t length = 1; length <= most; length *= 2) lengths.push_back(length);
  for (const int64_t length : lengths) {
    rope.original_positions = length;
    const std::vector<double> got = rope_frequencies(rope, head_dim);
    if (std::equal(got.begin(), got.end(), expected.begin(), expected.end(),
                   [](double a, double b) { return std::abs(a - b) <= 1e-6 * std::abs(b); }))
      return rope;
  }
  return std::nullopt;
}

}  // namespace

RopeConfig read_rope(double theta, PublishedConfig& file, const RopeConfig* model) {
  const std::optional<JsonValue> parameters = file.find("rope_parameters"), scaling = file.find("rope_scaling"),
                                 base = file.find("rope_theta");
  for (const auto& angles : {parameters, scaling}) {
    if (angles && !angles->is_object()) angles->fail("is {}, expected an object", angles->shown());
  }
  // An object under the older key is read in the place of one under the newer.
  const std::optional<JsonValue>& read = scaling && scaling->size() > 0 ? scaling : parameters;
  Lengths lengths;
  if (read && is_stretched(inner(*read))) {
    if (const auto found = file.find("max_position_embeddings")) lengths.positions = found->whole();
    if (const auto found = file.find("original_max_position_embeddings")) lengths.original = found->whole();
  }
  RopeConfig rope = read ? scaling_in(inner(*read), lengths) : RopeConfig{};
  rope.theta = base ? base->number() : theta;
  if (says_theta(read)) rope.theta = number_in(inner(*read), "rope_theta", number_in(*read, "rope_theta", theta));
  const RopeConfig& expected = model != nullptr ? *model : rope;
  if (base || !says_theta(read)) file.expect_found("rope_theta", base, expected.theta, theta);
  if (model == nullptr) refuse_base("rope_theta", base, file);
  if (parameters) compare_angles("rope_parameters", *parameters, expected, theta, lengths, model == nullptr, file);
  if (scaling) compare_angles("rope_scaling", *scaling, expected, theta, lengths, model == nullptr, file);
  if (model != nullptr && model->type != RopeType::plain && !(read && type_in(inner(*read))))
    file.refuse("rope_scaling", "not given", name_of(model->type));
  file.expect("partial_rotary_factor", 1.0, 1.0);
  return with_numbers(rope, theta);
}

RopeConfig read_rope_of_kind(const RopeOfKind& of, PublishedConfig& file) {
  const std::optional<JsonValue> parameters = file.find("rope_parameters"),
                                 scaling = of.takes_scaling ? file.find("rope_scaling") : std::nullopt;
  for (const auto& angles : {parameters, scaling}) {
    if (angles && !angles->is_object()) angles->fail("is {}, expected an object", angles->shown());
  }
  const bool has_kinds =
      parameters && (parameters->find_set("full_attention") || parameters->find_set("sliding_attention"));
  if (of.takes_scaling && parameters && parameters->size() > 0 && !has_kinds)
    file.refuse("rope_parameters", "an object for all layers", "an object for each kind of layer");
  const std::optional<JsonValue> of_kind = has_kinds ? parameters->find_set(of.kind) : std::nullopt;
  if (of_kind && !of_kind->is_object()) of_kind->fail("is {}, expected an object", of_kind->shown());
  const std::optional<JsonValue>& read = scaling && scaling->size() > 0 ? scaling : of_kind;
  Lengths lengths;
  if (read && is_stretched(*read)) {
    if (const auto found = file.find("max_position_embeddings")) lengths.positions = found->whole();
    if (const auto found = file.find("original_max_position_embeddings")) lengths.original = found->whole();
  }
  RopeConfig rope = read ? scaling_in(*read, lengths) : RopeConfig{};
  const std::optional<JsonValue> theta = of_kind ? of_kind->find_set("rope_theta") : std::nullopt;
  rope.theta = theta ? theta->number() : file.take(of.theta_key, of.theta);
  file.expect_found(of.theta_key, file.find(of.theta_key), rope.theta, rope.theta);
  refuse_base(of.theta_key, file.find(of.theta_key), file);
  const std::string under_kind = fmt::format("rope_parameters.{}", of.kind);
  if (of_kind) compare_angles(under_kind, *of_kind, rope, rope.theta, lengths, true, file);
  if (scaling) compare_angles("rope_scaling", *scaling, rope, rope.theta, lengths, true, file);
  if (of.takes_scaling) file.expect("partial_rotary_factor", 1.0, 1.0);
  return with_numbers(rope, of.theta);
}

PublishedKeys rope_keys(const RopeConfig& rope) {
  PublishedKeys angles;
  angles.set("rope_type", name_of(rope.type));
  if (rope.type == RopeType::proportional) {
    angles.set("partial_rotary_factor", rope.rotary_factor);
    if (rope.factor != 1) angles.set("factor", rope.factor);
    return angles;
  }
  if (rope.type != RopeType::plain) angles.set("factor", rope.factor);
  if (rope.type == RopeType::llama3 || rope.type == RopeType::yarn)
    angles.set("original_max_position_embeddings", rope.original_positions);
  if (rope.type == RopeType::llama3) {
    angles.set("low_freq_factor", rope.low_freq_factor);
    angles.set("high_freq_factor", rope.high_freq_factor);
  }
  if (rope.type == RopeType::yarn) {
    angles.set("beta_fast", rope.beta_fast);
    angles.set("beta_slow", rope.beta_slow);
    angles.set("truncate", rope.truncate);
    if (rope.attention_factor) angles.set("attention_factor", *rope.attention_factor);
  }
  return angles;
}

void write_rope(const RopeConfig& of_model, int64_t head_dim, PublishedKeys& keys) {
  const bool is_divided = of_model.type == RopeType::plain && !of_model.divisors.empty();
  const RopeConfig rope = is_divided ? llama3_of(of_model, head_dim).value_or(of_model) : of_model;
  PublishedKeys angles = rope_keys(rope);
  if (rope.type == RopeType::plain) keys.set_null("rope_scaling");
  else keys.set("rope_scaling", angles);
  keys.set("rope_theta", rope.theta);
  angles.set("rope_theta", rope.theta);
  keys.set("rope_parameters", angles);
  if (rope.original_positions > 0)
    keys.set("max_position_embeddings",
             static_cast<int64_t>(std::llround(rope.factor * static_cast<double>(rope.original_positions))));
}

}  // namespace tutti::models
