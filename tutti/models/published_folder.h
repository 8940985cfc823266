// Writes published models as folders of Hugging Face's: config.json, model.safetensors, and the tokenizer's files.
#pragma once

#include <filesystem>

#include "tutti/models/published_model.h"
#include "tutti/models/written_model.h"

namespace tutti::models {

// Writes the folder, which must not exist; it appears when it is whole. Weights are written one at a time, experts one
// by one, in one file, or in several beside an index when they are larger than `shard_nbytes`. A tied head is stored
// once. Norms, biases and routers of a GGUF source, which holds them in f32, get the dtype of the matrices when that
// holds all their values. The tokenizer's files and generation_config.json of a source folder are copied,
// and the vocabulary of a GGUF source becomes tokenizer.json and tokenizer_config.json.
//
// UsageError when the folder exists, for a type that safetensors files do not hold, for weights that are not those of
// the decoder (weight_source.h), and for a decoder that config.json does not describe (published_writer.h).
WrittenModel write_published_folder(const PublishedModel& model, const std::filesystem::path& folder,
                                    const WriteOptions& options = {});

}  // namespace tutti::models
