// The metadata of a model file: keys and typed values in the order of the file.
//
// The types are those of GGUF; formats that only hold texts use that one type.
#pragma once

#include <fmt/core.h>

#include <concepts>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti {

// The values are the type ids of GGUF.
enum class MetadataType : uint8_t { u8, i8, u16, i16, u32, i32, f32, boolean, text, array, u64, i64, f64 };
std::string_view name_of(MetadataType type);
// The bytes of a number or a bool; 0 for texts and arrays.
size_t metadata_nbytes(MetadataType type);

template <class T>
concept MetadataNumber =
    std::same_as<T, uint8_t> || std::same_as<T, int8_t> || std::same_as<T, uint16_t> || std::same_as<T, int16_t> ||
    std::same_as<T, uint32_t> || std::same_as<T, int32_t> || std::same_as<T, float> || std::same_as<T, bool> ||
    std::same_as<T, uint64_t> || std::same_as<T, int64_t> || std::same_as<T, double>;

// A number, a bool, a text, or an array of one of these types. Immutable; keeps the exact type and all bits.
class MetadataValue {
 public:
  template <MetadataNumber T>
  MetadataValue(T value) : MetadataValue(type_for<T>(), bytes_of(&value, 1), false) {}     // NOLINT: a value is one
  MetadataValue(std::string text) : type_(MetadataType::text), texts_{std::move(text)} {}  // NOLINT: a text is one
  MetadataValue(const char* text) : MetadataValue(std::string(text)) {}                    // NOLINT: a text is one
  MetadataValue(std::vector<std::string> texts)                                            // NOLINT: a list is one
      : type_(MetadataType::text), is_array_(true), texts_(std::move(texts)) {}
  template <MetadataNumber T>
  MetadataValue(const std::vector<T>& values) : type_(type_for<T>()), is_array_(true) {  // NOLINT: a list is one
    for (const T value : values) numbers_ += bytes_of(&value, 1);
  }
  // A number or an array of numbers or bools from its little-endian bytes, whose count the caller has checked.
  MetadataValue(MetadataType element, std::string bytes, bool is_array)
      : type_(element), is_array_(is_array), numbers_(std::move(bytes)) {}

  bool is_array() const { return is_array_; }
  MetadataType type() const { return is_array_ ? MetadataType::array : type_; }
  MetadataType element_type() const { return type_; }  // the type of the elements of an array, else type()
  size_t size() const;                                 // elements of an array; 1 otherwise

  // Element `i`, 0 unless this is an array. Nothing when the type is another one, or int64 does not hold the number.
  std::optional<int64_t> whole(size_t i = 0) const;
  std::optional<double> number(size_t i = 0) const;  // any number but bools, rounded once
  std::optional<bool> boolean(size_t i = 0) const;
  const std::vector<std::string>& texts() const { return texts_; }  // one of a text; none of numbers
  const std::string& bytes() const { return numbers_; }             // numbers and bools, little-endian; "" for texts

  bool operator==(const MetadataValue&) const = default;  // same types and bits

 private:
  template <class T>
  static constexpr MetadataType type_for() {
    if constexpr (std::same_as<T, bool>) return MetadataType::boolean;
    else if constexpr (std::same_as<T, float>) return MetadataType::f32;
    else if constexpr (std::same_as<T, double>) return MetadataType::f64;
    else if constexpr (sizeof(T) == 8) return std::signed_integral<T> ? MetadataType::i64 : MetadataType::u64;
    else if constexpr (sizeof(T) == 4) return std::signed_integral<T> ? MetadataType::i32 : MetadataType::u32;
    else if constexpr (sizeof(T) == 2) return std::signed_integral<T> ? MetadataType::i16 : MetadataType::u16;
    else return std::signed_integral<T> ? MetadataType::i8 : MetadataType::u8;
  }
  template <class T>
  static std::string bytes_of(const T* value, size_t count) {
    return {reinterpret_cast<const char*>(value), sizeof(T) * count};
  }

  MetadataType type_;  // of the value, or of the elements of an array
  bool is_array_ = false;
  std::string numbers_;
  std::vector<std::string> texts_;
};

class ModelMetadata;

// A key and its value, for reading: every failure is a UsageError that names the file, the key and what it holds.
// Cheap to copy; the metadata must outlive it.
class MetadataField {
 public:
  MetadataField(const ModelMetadata& metadata, const std::string& key, const MetadataValue& value)
      : metadata_(&metadata), key_(&key), value_(&value) {}

  const std::string& key() const { return *key_; }
  const MetadataValue& value() const { return *value_; }
  bool is_array() const { return value_->is_array(); }

  // The value, where it is no array.
  int64_t whole(int64_t least = std::numeric_limits<int64_t>::min(),
                int64_t most = std::numeric_limits<int64_t>::max()) const;
  double number() const;
  bool boolean() const;
  const std::string& text() const;
  // The elements of an array.
  std::vector<int64_t> wholes(int64_t least = std::numeric_limits<int64_t>::min(),
                              int64_t most = std::numeric_limits<int64_t>::max()) const;
  std::vector<double> numbers() const;
  std::vector<bool> booleans() const;
  const std::vector<std::string>& texts() const;

  std::string shown() const;  // for messages: "u32 7", "an array of 3 f32", "the text "llama""
  [[noreturn]] void fail_with(const std::string& message) const;
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> message, Args&&... args) const {
    fail_with(fmt::format(message, std::forward<Args>(args)...));
  }

 private:
  int64_t whole_at(size_t i, int64_t least, int64_t most) const;
  void expect_array(bool is_expected, std::string_view what) const;

  const ModelMetadata* metadata_;
  const std::string* key_;
  const MetadataValue* value_;
};

// Keys in order with their values: a value type. Reading from several threads is safe.
class ModelMetadata {
 public:
  using Entry = std::pair<std::string, MetadataValue>;

  ModelMetadata() = default;
  // `origin` names the file in errors.
  explicit ModelMetadata(std::string origin) : origin_(std::move(origin)) {}

  // Appends a key, or replaces its value in place.
  void set(std::string key, MetadataValue value);

  const std::string& origin() const { return origin_; }
  size_t size() const { return entries_.size(); }
  const std::vector<Entry>& entries() const { return entries_; }
  bool contains(std::string_view key) const { return index_.find(key) != index_.end(); }
  std::optional<MetadataField> find(std::string_view key) const;
  // UsageError, suggesting the nearest key, when there is none.
  MetadataField at(std::string_view key) const;

 private:
  std::string origin_ = "the metadata";
  std::vector<Entry> entries_;
  std::map<std::string, size_t, std::less<>> index_;
};

}  // namespace tutti
