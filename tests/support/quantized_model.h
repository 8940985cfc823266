// GGUF files of small decoders whose matrices are quantized blocks with random codes.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tutti/io/byte_alphabet.h"
#include "tutti/io/model_file.h"
#include "tutti/models/decoder_config.h"
#include "tutti/models/decoder_parameters.h"
#include "tutti/models/family.h"
#include "tutti/models/gguf_decoder.h"
#include "tutti/models/gguf_names.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/quantized/blocks.h"

namespace tutti::testing {

// Dims of 256, so that every format fits.
inline models::DecoderConfig quantizable_decoder(bool tied, int64_t layers = 4, int64_t vocab = 262) {
  return models::decoder_of("llama", {.flavor = "quantized",
                                      .dim = 256,
                                      .layers = layers,
                                      .heads = 4,
                                      .kv_heads = 2,
                                      .ffn_dim = 512,
                                      .vocab = vocab,
                                      .tied_embeddings = tied,
                                      .head_dim = 64,
                                      .rope_theta = 1e4});
}

// The 256 bytes by value, and six words more.
inline void set_byte_vocabulary(ModelMetadata& metadata) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte)
    tokens.push_back(io::to_byte_alphabet(std::string(1, static_cast<char>(byte))));
  for (const char* word : {"th", "the", "old", "sea", "<end>", "<tool>"}) tokens.emplace_back(word);
  std::vector<int32_t> types(tokens.size(), 1);
  types[260] = types[261] = 3;
  metadata.set("tokenizer.ggml.model", std::string("gpt2"));
  metadata.set("tokenizer.ggml.pre", std::string("gpt-2"));
  metadata.set("tokenizer.ggml.tokens", tokens);
  metadata.set("tokenizer.ggml.token_type", types);
  metadata.set("tokenizer.ggml.merges", std::vector<std::string>{"t h", "th e"});
  metadata.set("tokenizer.ggml.eos_token_id", uint32_t{260});
}

// Writes the file; matrix i has the format i % formats, the first that of the embedding. Norms are f32. Texts are
// bytes where the vocabulary has 262 tokens.
inline void write_quantized(const models::DecoderConfig& config, const std::vector<BlockFormat>& formats,
                            const std::filesystem::path& path) {
  const models::GgufArchitecture& architecture = models::family_named(config.family).gguf.front();
  ModelMetadata metadata;
  metadata.set("general.architecture", std::string(architecture.name));
  models::write_gguf_decoder(config, architecture, 512, metadata);
  if (config.vocab == 262) set_byte_vocabulary(metadata);
  std::vector<ModelTensor> entries;
  size_t matrices = 0;
  for (const models::DecoderParameter& p : models::decoder_parameters(config)) {
    ModelTensor entry{.name = models::gguf_name_of(p.name).value(), .sizes = p.sizes};
    if (p.sizes.ndim() == 2) entry.blocks = formats[matrices++ % formats.size()];
    entries.push_back(std::move(entry));
  }
  const auto writer = create_model_file(path, "gguf", entries, metadata);
  uint64_t seed = 1;
  for (const ModelTensor& entry : writer->entries()) {
    const Tensor values = entry.blocks ? quantized::sample_blocks(++seed, *entry.blocks, entry.sizes[0], entry.sizes[1])
                                       : facets::sample_tensor(++seed, entry.sizes, DType::f32, 0.5, 1.5);
    writer->write_bytes(entry.name,
                        {static_cast<const std::byte*>(values.raw_data()), static_cast<size_t>(values.nbytes())});
  }
  writer->commit();
}

inline std::vector<BlockFormat> all_block_formats() {
  return {quantized::block_formats().begin(), quantized::block_formats().end()};
}

}  // namespace tutti::testing
