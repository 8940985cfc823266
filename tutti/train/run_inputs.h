// What the numbers of a run depend on besides its weights: settings, tokenizer and text. Every checkpoint carries it, and
// a run that continues is compared with it, so that nothing changes unnoticed in between.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tutti/core/numerics_version.h"
#include "tutti/io/file_fingerprint.h"
#include "tutti/io/token_corpus.h"
#include "tutti/io/tokenizer.h"
#include "tutti/train/config.h"

namespace tutti::train {

struct TokenizerInput {
  std::string spec;  // data.tokenizer
  std::string name;
  std::optional<int32_t> bos, eos;
  uint64_t fingerprint = 0;
};

struct CorpusInput {
  int64_t documents = 0, tokens = 0;
  uint64_t hash = 0;  // of the documents' tokens in their order: what rows are made of
  std::vector<FileFingerprint> files;  // in the order in which they are read; for saying what changed
};

// A change that the user let pass (data.changed or numerics.changed = "continue").
struct InputChange {
  int64_t step = 0, next_row = 0;  // where the run stood
  std::string what;
};

using Settings = std::map<std::string, std::string>;  // section.key -> value as TOML writes it

struct RunInputs {
  int numerics_version = kNumericsVersion;  // of the program that computed the numbers
  Settings settings;
  TokenizerInput tokenizer;
  CorpusInput corpus;
  std::vector<InputChange> changes;
};

// The keys that the numbers depend on: those that are not Resuming::free.
Settings settings_of(const Config& config);
TokenizerInput describe(const Tokenizer& tokenizer, const std::string& spec);
// Without the files, which only one rank reads: describe_files().
CorpusInput describe(const TokenCorpus& corpus);
std::vector<FileFingerprint> describe_files(const std::vector<std::string>& paths);

// "section.key: old -> new" for every key that differs.
struct SettingChanges {
  std::vector<std::string> forbidden;  // Resuming::fixed
  std::vector<std::string> told;       // Resuming::told
};
// A key that `saved` lacks had its default then.
SettingChanges compare_settings(const Settings& saved, const Settings& now);

// One sentence about what makes other rows of the text than before; "" when the rows are the same.
std::string corpus_change(const CorpusInput& saved, const CorpusInput& now);

}  // namespace tutti::train
