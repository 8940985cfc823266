// A model that a test trains in milliseconds, and text for it.
#pragma once

#include <string>
#include <vector>

#include "tutti/io/byte_tokenizer.h"
#include "tutti/io/token_dataset.h"
#include "tutti/models/decoder.h"
#include "tutti/models/families/qwen3.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::train {

inline models::DecoderConfig tiny_config(int64_t layers = 1) {
  return models::qwen3({.flavor = "tiny",
                        .dim = 16,
                        .layers = layers,
                        .heads = 2,
                        .kv_heads = 1,
                        .ffn_dim = 24,
                        .vocab = 258,
                        .tied_embeddings = true,
                        .head_dim = 8});
}

struct TinyModel {
  explicit TinyModel(uint64_t seed = 1, int64_t layers = 1) : model(tiny_config(layers), 64) {
    seed_all(seed);
    nn::initialize(model);
  }
  mutable models::Decoder model;  // sampling and evaluation switch its mode
};

inline std::vector<std::string> tiny_documents(int count) {
  std::vector<std::string> documents;
  for (int i = 0; i < count; ++i)
    documents.push_back("number " + std::to_string(i * 37 % 101) + " is not " + std::to_string(i));
  return documents;
}

inline TokenDataset tiny_dataset(int documents = 40, int64_t sequence_length = 16) {
  const ByteTokenizer tokenizer;
  return {tokenize(tiny_documents(documents), tokenizer),
          tokenizer,
          {.sequence_length = sequence_length, .validation_fraction = 0.2, .seed = 1}};
}

}  // namespace tutti::train
