#include "tutti/models/published_config.h"

#include <fmt/ranges.h>

#include "tutti/core/error.h"

namespace tutti::models {
namespace {

namespace fs = std::filesystem;

std::string text_of(const PublishedConfig::Value& value) {
  return std::visit(
      [](const auto& v) -> std::string {
        constexpr size_t longest = 80;
        if constexpr (std::is_same_v<std::decay_t<decltype(v)>, std::string>)
          return fmt::format("\"{}\"{}", v.substr(0, longest), v.size() > longest ? "..." : "");
        else return fmt::format("{}", v);
      },
      value);
}

}  // namespace

PublishedConfig::Value PublishedConfig::value_as(const JsonValue& json, const Value& kind) {
  if (std::holds_alternative<bool>(kind)) return json.boolean();
  if (std::holds_alternative<int64_t>(kind)) return json.whole();
  if (std::holds_alternative<double>(kind)) return json.number();
  return json.string();
}

PublishedConfig::PublishedConfig(const fs::path& file)
    : PublishedConfig(file.string(), JsonDocument::read(file.string())) {}

PublishedConfig::PublishedConfig(const std::string& name, std::string_view text)
    : PublishedConfig(name, JsonDocument(text, {.name = name})) {}

PublishedConfig::PublishedConfig(std::string path, JsonDocument document)
    : path_(std::move(path)), document_(std::move(document)), text_(document_.top().find_set("text_config")) {
  if (text_ && !text_->is_object()) text_->fail("is {}, expected an object", text_->shown());
}

std::optional<JsonValue> PublishedConfig::find(std::string_view key) {
  keys_.emplace(key);
  const std::optional<JsonValue> in_text = text_ ? text_->find_set(key) : std::nullopt;
  return in_text ? in_text : document_.top().find_set(key);
}

std::optional<JsonValue> PublishedConfig::find_beside_sizes(std::string_view key) {
  keys_.emplace(key);
  return text_ ? text_->find_set(key) : document_.top().find_set(key);
}

bool PublishedConfig::is_null(std::string_view key) const {
  const std::optional<JsonValue> at_top = document_.top().find(key), in_text = text_ ? text_->find(key) : std::nullopt;
  return in_text ? in_text->is_null() : at_top && at_top->is_null();
}

void PublishedConfig::expect(std::string_view key, const Value& of_model, const Value& by_default) {
  expect_found(std::string(key), find(key), of_model, by_default);
}

void PublishedConfig::expect_found(const std::string& key, const std::optional<JsonValue>& found, const Value& of_model,
                                   const Value& by_default) {
  const Value of_file = found ? value_as(*found, of_model) : by_default;
  if (of_file == of_model) return;
  refuse(key, found ? text_of(of_file) : fmt::format("not given, which means {}", text_of(of_file)), text_of(of_model));
}

void PublishedConfig::refuse(const std::string& key, const std::string& of_file, const std::string& of_model) {
  differences_.push_back({key, of_file, of_model});
}

void PublishedConfig::check(std::string_view model) const {
  TUTTI_CHECK(differences_.empty(),
              "{} describes another model than {}, which is unchanged:{}\nload the weights into a flavor that computes "
              "what the file says (model.flavor)",
              path_, model, listed("the model has"));
}

std::string PublishedConfig::listed(std::string_view between) const {
  std::string list;
  for (const Difference& d : differences_)
    list += fmt::format("\n  {}: {}, {} {}", d.key, d.of_file, between, d.of_model);
  return list;
}

std::string joined(std::span<const std::string> texts, std::string_view between) {
  return fmt::format("{}", fmt::join(texts, between));
}

void PublishedConfig::check_supported() const {
  TUTTI_CHECK(differences_.empty(), "{} describes a model that is not computed here:{}", path_, listed("expected"));
}

std::string shown_list(const JsonValue& array) {
  constexpr size_t most = 8;
  std::vector<std::string> entries;
  size_t count = 0;
  for (const auto& [_, entry] : array) {
    if (++count <= most) entries.push_back(entry.shown());
  }
  return fmt::format("[{}{}]", fmt::join(entries, ", "),
                     count > most ? fmt::format(", and {} more", count - most) : "");
}

}  // namespace tutti::models
