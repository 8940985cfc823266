// The tokenizer of a run is stored in its folder as tokenizer.json and tokenizer_config.json, which names BOS and EOS;
// the byte tokenizer needs no files. Resuming the run and generating text with it always use this tokenizer.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "tutti/io/tokenizer.h"
#include "tutti/train/data/run_inputs.h"

namespace tutti::train {

// Writes the tokenizer, replacing that of an earlier start.
void save_run_tokenizer(const std::filesystem::path& run, const Tokenizer& tokenizer);

// Puts the tokenizer of one run into the folder of another; nothing for the byte tokenizer. EnvironmentError when it
// cannot be written.
void copy_run_tokenizer(const std::filesystem::path& from, const std::filesystem::path& to);

// EnvironmentError when it is missing, or is not the one that `saved` describes because the files were changed.
// UsageError when the files are not a valid tokenizer.
std::unique_ptr<Tokenizer> open_run_tokenizer(const std::filesystem::path& run, const TokenizerInput& saved);

// The tokenizer of a packaged run (package_text.h), whose checkpoint, which describes it, is not there. spec: the run's
// data.tokenizer. EnvironmentError when that names a file and the folder has none.
std::unique_ptr<Tokenizer> open_packaged_run_tokenizer(const std::filesystem::path& folder, const std::string& spec);

// How data.tokenizer has changed since the run began with `own`.
struct SpecChange {
  std::string forbidden;  // another kind or size of tokenizer is requested: "data.tokenizer: old -> new"
  std::string changed;    // the file that data.tokenizer names holds another tokenizer
  std::string told;       // the file is missing, which does no harm
};
// Reads the file if `spec` names one; never learns a tokenizer.
SpecChange compare_tokenizer_spec(const Tokenizer& own, const TokenizerInput& saved, const std::string& spec);

}  // namespace tutti::train
