// Writes published models as GGUF files, which llama.cpp reads.
#pragma once

#include <filesystem>

#include "tutti/models/published_model.h"
#include "tutti/models/written_model.h"

namespace tutti::models {

// Writes the file, which must not exist; it appears when it is whole. Weights are written one at a time. Norms, biases
// and routers are F32; blocks of a GGUF source stay as they are unless a type is asked for. With a quantized type, each
// matrix has the format that llama.cpp chooses for it (gguf_formats.h), and the bytes of its reference functions; notes
// name those whose rows need another format. The vocabulary of a GGUF source is copied, and that of a
// BPE tokenizer.json written (gguf_vocabulary_writer.h); without one the model is marked as one of token ids.
//
// UsageError when the file exists, for a family whose GGUF files are not known here, for weights that are not those of
// the decoder (weight_source.h), and for a decoder that the keys of its architecture do not describe, such as one with
// windows.
WrittenModel write_published_gguf(const PublishedModel& model, const std::filesystem::path& file,
                                  const WriteOptions& options = {});

}  // namespace tutti::models
