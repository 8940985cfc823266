// A model with random weights and one virtual shard of random tokens for it.
#pragma once

#include <string>
#include <vector>

#include "tutti/models/decoder.h"

namespace tutti::bench {

struct ModelShard {
  // rows of sequence_length tokens, one document each. `dtype`: in which forward and backward compute; the masters are
  // f32.
  ModelShard(const std::string& flavor, int64_t rows, int64_t sequence_length, DType dtype = DType::f32);

  models::Decoder model;
  std::vector<Tensor> parameters;
  models::TokenBatch batch;
  Tensor labels, scale;  // of each token; its loss counts 1 / tokens
  int64_t tokens() const { return labels.numel(); }
};

}  // namespace tutti::bench
