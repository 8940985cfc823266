// Writes the vocabulary of a tokenizer.json into the metadata of a GGUF file.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "tutti/io/model_metadata.h"
#include "tutti/models/published_writer.h"

namespace tutti::models {

// Sets the keys "tokenizer.*" from the tokenizer of a folder: byte-level BPE whose pattern of splitting llama.cpp knows
// by name, or BPE of characters with byte fallback whose merges are those of scores. Ids up to `vocab` without a token
// get one that text never becomes. Returns why there is no vocabulary, as the rest of a sentence, and then marks the
// model as one of token ids.
std::optional<std::string> write_gguf_vocabulary(const std::filesystem::path& folder, int64_t vocab,
                                                 const PublishedFacts& facts, ModelMetadata& metadata);

}  // namespace tutti::models
