#include "tutti/io/model_metadata.h"

#include <cstring>

#include "tutti/core/error.h"
#include "tutti/runtime/json_writer.h"

namespace tutti {
namespace {

struct TypeRow {
  std::string_view name;
  size_t nbytes;
};
constexpr TypeRow kTypes[] = {{"u8", 1},   {"i8", 1},   {"u16", 2},   {"i16", 2}, {"u32", 4}, {"i32", 4}, {"f32", 4},
                              {"bool", 1}, {"text", 0}, {"array", 0}, {"u64", 8}, {"i64", 8}, {"f64", 8}};

constexpr size_t kShownNbytes = 60;  // of a text in a message

template <class T>
T element_at(const std::string& bytes, size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

}  // namespace

std::string_view name_of(MetadataType type) { return kTypes[static_cast<size_t>(type)].name; }
size_t metadata_nbytes(MetadataType type) { return kTypes[static_cast<size_t>(type)].nbytes; }

size_t MetadataValue::size() const {
  if (!is_array_) return 1;
  return type_ == MetadataType::text ? texts_.size() : numbers_.size() / metadata_nbytes(type_);
}

std::optional<int64_t> MetadataValue::whole(size_t i) const {
  switch (type_) {
    case MetadataType::u8:
      return element_at<uint8_t>(numbers_, i);
    case MetadataType::i8:
      return element_at<int8_t>(numbers_, i);
    case MetadataType::u16:
      return element_at<uint16_t>(numbers_, i);
    case MetadataType::i16:
      return element_at<int16_t>(numbers_, i);
    case MetadataType::u32:
      return element_at<uint32_t>(numbers_, i);
    case MetadataType::i32:
      return element_at<int32_t>(numbers_, i);
    case MetadataType::i64:
      return element_at<int64_t>(numbers_, i);
    case MetadataType::u64:
      if (const auto value = element_at<uint64_t>(numbers_, i); std::in_range<int64_t>(value))
        return static_cast<int64_t>(value);
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

std::optional<double> MetadataValue::number(size_t i) const {
  if (type_ == MetadataType::f32) return element_at<float>(numbers_, i);
  if (type_ == MetadataType::f64) return element_at<double>(numbers_, i);
  if (type_ == MetadataType::u64) return static_cast<double>(element_at<uint64_t>(numbers_, i));
  if (const auto value = whole(i)) return static_cast<double>(*value);
  return std::nullopt;
}

std::optional<bool> MetadataValue::boolean(size_t i) const {
  return type_ == MetadataType::boolean ? std::optional(numbers_[i] != 0) : std::nullopt;
}

std::string MetadataField::shown() const {
  const std::string_view name = name_of(value_->element_type());
  if (is_array()) return fmt::format("an array of {} {}", value_->size(), name);
  if (value_->element_type() == MetadataType::text) {
    const std::string& text = value_->texts()[0];
    return fmt::format("the text {}{}", json_quoted(std::string_view(text).substr(0, kShownNbytes)),
                       text.size() > kShownNbytes ? "..." : "");
  }
  if (const auto truth = value_->boolean()) return fmt::format("bool {}", *truth);
  if (value_->element_type() == MetadataType::u64)
    return fmt::format("u64 {}", element_at<uint64_t>(value_->bytes(), 0));
  if (const auto whole = value_->whole()) return fmt::format("{} {}", name, *whole);
  return fmt::format("{} {}", name, *value_->number());
}

void MetadataField::fail_with(const std::string& message) const {
  throw UsageError(fmt::format("'{}': key '{}' {}", metadata_->origin(), *key_, message));
}

void MetadataField::expect_array(bool is_expected, std::string_view what) const {
  if (is_array() != is_expected) fail("is {}, expected {}", shown(), what);
}

int64_t MetadataField::whole_at(size_t i, int64_t least, int64_t most) const {
  const std::optional<int64_t> value = value_->whole(i);
  const std::string place = is_array() ? fmt::format(" in element {}", i) : "";
  if (!value) fail("is {}, expected a whole number that int64 holds{}", shown(), place);
  if (*value < least || *value > most) fail("is {}{}, expected {} to {}", *value, place, least, most);
  return *value;
}

int64_t MetadataField::whole(int64_t least, int64_t most) const {
  expect_array(false, "a whole number");
  return whole_at(0, least, most);
}

double MetadataField::number() const {
  expect_array(false, "a number");
  const std::optional<double> value = value_->number();
  if (!value) fail("is {}, expected a number", shown());
  return *value;
}

bool MetadataField::boolean() const {
  expect_array(false, "a bool");
  const std::optional<bool> value = value_->boolean();
  if (!value) fail("is {}, expected a bool", shown());
  return *value;
}

const std::string& MetadataField::text() const {
  if (is_array() || value_->element_type() != MetadataType::text) fail("is {}, expected a text", shown());
  return value_->texts()[0];
}

std::vector<int64_t> MetadataField::wholes(int64_t least, int64_t most) const {
  expect_array(true, "an array of whole numbers");
  std::vector<int64_t> values;
  values.reserve(value_->size());
  for (size_t i = 0; i < value_->size(); ++i) values.push_back(whole_at(i, least, most));
  return values;
}

std::vector<double> MetadataField::numbers() const {
  expect_array(true, "an array of numbers");
  std::vector<double> values;
  values.reserve(value_->size());
  for (size_t i = 0; i < value_->size(); ++i) {
    const std::optional<double> value = value_->number(i);
    if (!value) fail("is {}, expected an array of numbers", shown());
    values.push_back(*value);
  }
  return values;
}

std::vector<bool> MetadataField::booleans() const {
  if (!is_array() || value_->element_type() != MetadataType::boolean)
    fail("is {}, expected an array of bools", shown());
  std::vector<bool> values;
  for (size_t i = 0; i < value_->size(); ++i) values.push_back(*value_->boolean(i));
  return values;
}

const std::vector<std::string>& MetadataField::texts() const {
  if (!is_array() || value_->element_type() != MetadataType::text) fail("is {}, expected an array of texts", shown());
  return value_->texts();
}

void ModelMetadata::set(std::string key, MetadataValue value) {
  const auto [at, is_new] = index_.emplace(key, entries_.size());
  if (is_new) entries_.emplace_back(std::move(key), std::move(value));
  else entries_[at->second].second = std::move(value);
}

std::optional<MetadataField> ModelMetadata::find(std::string_view key) const {
  const auto found = index_.find(key);
  if (found == index_.end()) return std::nullopt;
  const Entry& entry = entries_[found->second];
  return MetadataField(*this, entry.first, entry.second);
}

MetadataField ModelMetadata::at(std::string_view key) const {
  if (const auto field = find(key)) return *field;
  std::vector<std::string> keys;
  for (const Entry& entry : entries_) keys.push_back(entry.first);
  const std::string nearest = nearest_match(key, keys);
  throw UsageError(fmt::format("'{}' has no key '{}' among its {}{}", origin_, key, keys.size(),
                               nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest)));
}

}  // namespace tutti
