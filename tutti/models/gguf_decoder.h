// Reads and writes the description of a decoder in the metadata of a GGUF file.
#pragma once

#include <string_view>
#include <vector>

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

// Sets the keys "<architecture>.*". Where they cannot describe the decoder they describe another one, which the caller
// finds when it reads them (decoder_difference.h).
void write_gguf_decoder(const DecoderConfig& config, const GgufArchitecture& architecture, int64_t positions,
                        ModelMetadata& metadata);
// The values of rope_freqs.weight, by which frequencies are divided; empty where there is no such tensor.
std::vector<float> gguf_divisors(const DecoderConfig& config, const GgufArchitecture& architecture);

}  // namespace tutti::models
