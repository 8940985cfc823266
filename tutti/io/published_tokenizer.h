// Opens the tokenizer of a published model, of whichever kind its tokenizer.json is.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "tutti/io/tokenizer.h"

namespace tutti {

// Reads tokenizer.json and, if it is in the same folder, tokenizer_config.json, which names the BOS and EOS tokens.
// BPE (bpe_model.h) and WordPiece (word_piece_model.h) are supported. UsageError for a file with other contents,
// EnvironmentError for one that cannot be read.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path);

// The same from memory; `config` is the text of tokenizer_config.json, or empty. Messages use `name` in place of the
// path.
std::unique_ptr<Tokenizer> parse_tokenizer(std::string_view json, std::string_view config, std::string_view name);

}  // namespace tutti
