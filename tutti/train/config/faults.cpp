#include "tutti/train/config/faults.h"

#include <algorithm>
#include <string_view>

#include "tutti/train/config/config_fields.h"

namespace tutti::train {
namespace {

std::string message_of(const std::vector<std::string>& faults) {
  if (faults.size() == 1) return faults[0];
  return fmt::format("{} things are wrong with the configuration:\n  {}", faults.size(), fmt::join(faults, "\n  "));
}

// Whether the text has the key's name as a word: training.steps is no part of "training.steps_of".
bool names(std::string_view text, std::string_view key) {
  const auto is_of_word = [](char c) { return c == '_' || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  for (size_t at = text.find(key); at != std::string_view::npos; at = text.find(key, at + 1)) {
    const size_t end = at + key.size();
    if ((at == 0 || !is_of_word(text[at - 1])) && (end == text.size() || !is_of_word(text[end]))) return true;
  }
  return false;
}

}  // namespace

ConfigError::ConfigError(std::vector<std::string> faults)
    : UsageError(message_of(faults)), faults_(std::move(faults)) {}

void Faults::add(std::string fault) {
  if (std::find(texts_.begin(), texts_.end(), fault) == texts_.end()) texts_.push_back(std::move(fault));
}

void Faults::add_rules(const Faults& rules) {
  std::vector<std::string> faulty;
  for (const Field& field : config_fields()) {
    const auto is_named = [&](const std::string& text) { return names(text, field.name()); };
    if (std::any_of(texts_.begin(), texts_.end(), is_named)) faulty.push_back(field.name());
  }
  for (const std::string& rule : rules.texts_) {
    if (std::none_of(faulty.begin(), faulty.end(), [&](const std::string& key) { return names(rule, key); })) add(rule);
  }
}

void Faults::raise() const {
  if (!texts_.empty()) throw ConfigError(texts_);
}

}  // namespace tutti::train
