// The keys "<architecture>.<name>" in the metadata of a GGUF file.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/io/model_file.h"

namespace tutti::models {

class GgufKeys {
 public:
  // `file` must outlive this.
  GgufKeys(const ModelFile& file, std::string_view architecture)
      : file_(file), metadata_(file.metadata()), prefix_(architecture) {}

  const ModelFile& file() const { return file_; }

  std::optional<MetadataField> find(std::string_view name) const { return metadata_.find(full(name)); }
  // UsageError, naming file and key, when the key is missing and nothing stands for it, and for values of another kind.
  int64_t whole(std::string_view name) const { return metadata_.at(full(name)).whole(1, kMost); }
  int64_t whole(std::string_view name, int64_t by_default) const {
    const std::optional<MetadataField> field = find(name);
    return field ? field->whole(0, kMost) : by_default;
  }
  double number(std::string_view name) const { return metadata_.at(full(name)).number(); }
  double number(std::string_view name, double by_default) const {
    const std::optional<MetadataField> field = find(name);
    return field ? field->number() : by_default;
  }
  // UsageError for numbers that are not positive, such as a base or a factor of rotary angles.
  double positive(std::string_view name, std::optional<double> by_default = {}) const {
    const double value = by_default ? number(name, *by_default) : number(name);
    if (!(value > 0 && std::isfinite(value))) find(name)->fail("is {}; expected a positive number", value);
    return value;
  }
  // UsageError unless the key is missing or has this value.
  void expect(std::string_view name, double value) const {
    const std::optional<MetadataField> field = find(name);
    if (field && field->number() != value)
      field->fail("is {}, which is not computed here; expected {}", field->shown(), value);
  }
  // The number of each of so many layers: one for all, or a list.
  std::vector<int64_t> of_layers(std::string_view name, size_t layers, std::optional<int64_t> by_default = {}) const;
  // Which of so many layers have a window by attention.sliding_window_pattern, a list of booleans or the number P of a
  // period whose last layer sees all keys; `period` stands for a missing key.
  std::vector<bool> sliding_layers(size_t layers, int64_t period) const;

 private:
  static constexpr int64_t kMost = int64_t{1} << 31;
  std::string full(std::string_view name) const { return fmt::format("{}.{}", prefix_, name); }

  const ModelFile& file_;
  const ModelMetadata& metadata_;
  std::string prefix_;
};

// Sets the keys in the types that llama.cpp reads.
class GgufKeyWriter {
 public:
  GgufKeyWriter(std::string_view architecture, ModelMetadata& metadata) : metadata_(metadata), prefix_(architecture) {}
  void whole(std::string_view name, int64_t value) { metadata_.set(full(name), static_cast<uint32_t>(value)); }
  // A list, or one number where all are equal.
  void of_layers(std::string_view name, const std::vector<int64_t>& values);
  void number(std::string_view name, double value) { metadata_.set(full(name), static_cast<float>(value)); }
  void flags(std::string_view name, std::vector<bool> values) { metadata_.set(full(name), std::move(values)); }
  void text(std::string_view name, std::string value) { metadata_.set(full(name), std::move(value)); }

 private:
  std::string full(std::string_view name) const { return fmt::format("{}.{}", prefix_, name); }

  ModelMetadata& metadata_;
  std::string prefix_;
};

}  // namespace tutti::models
