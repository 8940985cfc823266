// The inputs that the numbers of a run depend on besides its weights: settings, tokenizer and text, or files of clicks.
// Every checkpoint records them, and a resumed run is compared with the record, so that nothing changes unnoticed in
// between.
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
#include "tutti/train/config/config.h"

namespace tutti::train {

struct TokenizerInput {
  std::string spec;  // data.tokenizer
  std::string name;
  std::optional<int32_t> bos, eos;
  uint64_t fingerprint = 0;
};

struct CorpusInput {
  int64_t documents = 0, tokens = 0;
  uint64_t hash = 0;                   // of the tokens of all documents in order, from which the rows are made
  std::vector<FileFingerprint> files;  // in the order in which they are read; used to report what changed
};

// The files of click data, in the order in which they are read.
struct ClickInput {
  struct File {
    std::string path;
    int64_t number = 0;  // of sizes and headers (io::ClickPlace::file), which takes no reading of the whole
  };
  std::vector<File> files;  // none for rows that are generated
};

// A change that the user allowed with data.changed or numerics.changed = "continue".
struct InputChange {
  int64_t step = 0, next_row = 0;  // the position of the run at that time
  std::string what;
};

using Settings = std::map<std::string, std::string>;  // section.key -> value as TOML writes it

struct RunInputs {
  int numerics_version = kNumericsVersion;  // the version of the program that computed the numbers
  Settings settings;
  TokenizerInput tokenizer;
  CorpusInput corpus;
  std::optional<ClickInput> clicks = {};  // of a click model, which has no tokenizer and no corpus
  std::vector<InputChange> changes;
};

// The configuration with the value that it leaves to the run, a warm-up of -1: what the run began with, as `begun`
// says, or, for a run that begins, what follows from training.steps.
Config settled(Config config, const Settings& begun);

// The settings that the numbers depend on: all keys that are not Resuming::free.
Settings settings_of(const Config& config);
TokenizerInput describe(const Tokenizer& tokenizer, const std::string& spec);
// Leaves out the files, which only one rank reads; see describe_files().
CorpusInput describe(const TokenCorpus& corpus);
std::vector<FileFingerprint> describe_files(const std::vector<std::string>& paths);

// "section.key: old -> new" for every key that differs.
struct SettingChanges {
  std::vector<std::string> forbidden;  // Resuming::fixed
  std::vector<std::string> told;       // Resuming::told
};
// A key that is missing in `saved` counts as having its default there.
SettingChanges compare_settings(const Settings& saved, const Settings& now);

// One sentence about the change that makes the rows of the text differ; "" when the rows are the same.
std::string corpus_change(const CorpusInput& saved, const CorpusInput& now);

}  // namespace tutti::train
