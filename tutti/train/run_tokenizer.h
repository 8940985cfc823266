// The tokenizer of a run lies in its folder: tokenizer.json and tokenizer_config.json, which names the markers; nothing
// for the byte tokenizer. A run that continues, and whoever generates text with it, uses this one and no other.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "tutti/io/tokenizer.h"
#include "tutti/train/run_inputs.h"

namespace tutti::train {

// Takes the place of what an earlier start left there.
void save_run_tokenizer(const std::filesystem::path& run, const Tokenizer& tokenizer);

// Puts the tokenizer of one run into the folder of another; nothing for the byte tokenizer. EnvironmentError when it cannot be written.
void copy_run_tokenizer(const std::filesystem::path& from, const std::filesystem::path& to);

// EnvironmentError when it is missing, or is not the one that `saved` describes: the files were changed. UsageError when
// they are no tokenizer any more.
std::unique_ptr<Tokenizer> open_run_tokenizer(const std::filesystem::path& run, const TokenizerInput& saved);

// What data.tokenizer has come to since the run began with `own`.
struct SpecChange {
  std::string forbidden;  // another kind or size of tokenizer was asked for: "data.tokenizer: old -> new"
  std::string changed;    // the file that data.tokenizer names holds another tokenizer
  std::string told;       // the file is gone, which harms nobody
};
// Reads the file when `spec` names one; learns nothing.
SpecChange compare_tokenizer_spec(const Tokenizer& own, const TokenizerInput& saved, const std::string& spec);

}  // namespace tutti::train
