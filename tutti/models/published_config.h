// PublishedConfig: the config.json of a published model, read key by key, and compared with the model that its weights
// are loaded into where there is one.
//
// Weights do not say what is computed with them: a model with another base of its rotary angles, or another epsilon of
// its norms, takes them without complaint and computes other logits. So a family reads every key that changes the maths
// (ModelFamily::read), and every key that says otherwise than the model, or that asks for what is not computed here, is
// an error before a weight is read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tutti/runtime/json_document.h"

namespace tutti::models {

class PublishedConfig {
 public:
  using Value = std::variant<bool, int64_t, double, std::string>;

  // Reads the file. UsageError and EnvironmentError as JsonDocument::read().
  explicit PublishedConfig(const std::filesystem::path& file);
  // Reads the text; `name` stands for the file in messages.
  PublishedConfig(const std::string& name, std::string_view text);

  // The key's value: that in `text_config`, where files of models with several parts have it, else that at the top.
  // Nothing when the key is missing or null.
  std::optional<JsonValue> find(std::string_view key);
  // The value that stands beside the sizes: in `text_config` where the file has one.
  std::optional<JsonValue> find_beside_sizes(std::string_view key);
  // Whether the key is there and null.
  bool is_null(std::string_view key) const;

  // The key's value, or `by_default` where it is missing or null: the default of the class that published files are
  // read by. Notes a difference where `of_model` is given and another. T is bool, int64_t, double or std::string.
  template <class T>
  T take(std::string_view key, const T& by_default, const T* of_model = nullptr) {
    const std::optional<JsonValue> found = find(key);
    const T of_file = found ? std::get<T>(value_as(*found, by_default)) : by_default;
    if (of_model != nullptr) expect_found(std::string(key), found, *of_model, by_default);
    return of_file;
  }
  // Notes a difference unless the key's value is `of_model`. A key that is missing or null means `by_default`, the
  // default of the class that published files are read by.
  void expect(std::string_view key, const Value& of_model, const Value& by_default);
  // The same of a value that was found elsewhere, such as in an object under the key; nothing found means the default.
  void expect_found(const std::string& key, const std::optional<JsonValue>& found, const Value& of_model,
                    const Value& by_default);
  // Notes that the file says something that the model does not do, or that nothing here does.
  void refuse(const std::string& key, const std::string& of_file, const std::string& of_model);

  // UsageError, listing all differences with both values, when there are any. `model` is named as in "qwen3 0.6B".
  void check(std::string_view model) const;
  // UsageError, listing them, when something was refused: for a file that is not compared with a model.
  void check_supported() const;
  const std::string& path() const { return path_; }
  // The keys that find() was asked for.
  const std::set<std::string>& keys() const { return keys_; }

  // The JSON value as one of the kind of `kind`. UsageError, naming the key, when it is none.
  static Value value_as(const JsonValue& json, const Value& kind);

 private:
  PublishedConfig(std::string path, JsonDocument document);

  std::string path_;
  JsonDocument document_;
  std::optional<JsonValue> text_;  // the value of text_config
  std::set<std::string> keys_;
  struct Difference {
    std::string key, of_file, of_model;
  };
  // One line each, with `between` between what the file and the model have.
  std::string listed(std::string_view between) const;
  std::vector<Difference> differences_;
};

// How a list of texts or numbers looks in a message: ["a", "b"].
std::string shown_list(const JsonValue& array);
// The texts with `between` between them.
std::string joined(std::span<const std::string> texts, std::string_view between);

}  // namespace tutti::models
