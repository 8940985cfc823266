// Reads the description of a decoder from the metadata of a GGUF file.
#pragma once

#include <string_view>

#include "tutti/io/model_file.h"
#include "tutti/models/decoder_config.h"
#include "tutti/models/family.h"

namespace tutti::models {

// The value of general.architecture. UsageError, naming the file, when there is none.
std::string gguf_architecture(const ModelFile& file);

// The decoder that a file of this architecture describes, with `family` and the file's name as its flavor. Biases,
// norms of heads and ties are those whose tensors the file has, as llama.cpp reads it. UsageError, naming file and key,
// for missing keys, and for what is not computed here: windows, experts beside others, angles that turn heads in part
// or by other scalings than linear and yarn.
DecoderConfig read_gguf_decoder(const ModelFile& file, std::string_view family, const GgufArchitecture& architecture);

}  // namespace tutti::models
