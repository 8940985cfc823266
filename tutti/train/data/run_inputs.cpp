#include "tutti/train/data/run_inputs.h"

#include <fmt/format.h>

#include <charconv>

#include "tutti/train/config/config_fields.h"
#include "tutti/train/report/report.h"
#include "tutti/train/step/lr_schedule.h"

namespace tutti::train {

Config settled(Config config, const Settings& begun) {
  int64_t& warmup = config.lr_scheduler.warmup_steps;
  if (warmup >= 0) return config;
  warmup = usual_warmup(config.training.steps);
  if (const auto saved = begun.find("lr_scheduler.warmup_steps"); saved != begun.end()) {
    int64_t number = -1;
    const std::string& text = saved->second;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool is_number = error == std::errc() && end == text.data() + text.size();
    if (is_number && number >= 0 && number <= config.training.steps) warmup = number;
  }
  return config;
}

Settings settings_of(const Config& config) {
  Settings settings;
  for (const Field& field : config_fields()) {
    if (field.resuming != Resuming::free && is_of_model(field, config))
      settings[field.name()] = displayable(to_toml(value_of(field, config)));
  }
  return settings;
}

TokenizerInput describe(const Tokenizer& tokenizer, const std::string& spec) {
  return {displayable(spec), tokenizer.name(), tokenizer.bos_id(), tokenizer.eos_id(), tokenizer.fingerprint()};
}

CorpusInput describe(const TokenCorpus& corpus) {
  return {
      .documents = corpus.document_count(), .tokens = corpus.token_count(), .hash = corpus.content_hash(), .files = {}};
}

std::vector<FileFingerprint> describe_files(const std::vector<std::string>& paths) {
  std::vector<FileFingerprint> files = fingerprint_files(paths);
  for (FileFingerprint& file : files) file.path = displayable(file.path);  // JSON holds nothing but text
  return files;
}

SettingChanges compare_settings(const Settings& saved, const Settings& now) {
  SettingChanges changes;
  for (const Field& field : config_fields()) {
    if (field.resuming == Resuming::free || !now.contains(field.name())) continue;
    const auto found = saved.find(field.name());
    const std::string before = found == saved.end() ? displayable(to_toml(default_of(field))) : found->second;
    const std::string& after = now.at(field.name());
    if (before == after) continue;
    (field.resuming == Resuming::fixed ? changes.forbidden : changes.told)
        .push_back(fmt::format("{}: {} -> {}", field.name(), before, after));
  }
  return changes;
}

std::string corpus_change(const CorpusInput& saved, const CorpusInput& now) {
  if (saved.documents == now.documents && saved.tokens == now.tokens && saved.hash == now.hash) return "";
  const std::string files = first_difference(saved.files, now.files);
  if (!files.empty()) return files;
  return fmt::format(
      "the files are the same, but this version makes other documents or tokens of them: {} documents with {} tokens "
      "then, "
      "{} with {} now",
      saved.documents, saved.tokens, now.documents, now.tokens);
}

}  // namespace tutti::train
