// The tokens of byte pair encoding of characters in the metadata of a GGUF file, where scores mostly stand for merges.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tutti/io/model_metadata.h"
#include "tutti/io/sentence_piece_model.h"

namespace tutti::models {

// Sets tokens, types, scores and the flag of a space before texts for a vocabulary of `vocab` ids, which holds those of
// the model. Returns why the file cannot say what the model does, as a sentence; nothing is set then.
std::optional<std::string> write_gguf_pieces(const SentencePieceModel& model, const std::string& file, int64_t vocab,
                                             ModelMetadata& metadata);

// The same with the merges themselves, as files of Gemma 4 have them, whose scores say nothing.
std::optional<std::string> write_gguf_ranked_pieces(const SentencePieceModel& model, const std::string& file,
                                                    int64_t vocab, ModelMetadata& metadata);

}  // namespace tutti::models
