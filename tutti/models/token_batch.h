// Rows of tokens as a language model takes them, and options of its forward.
#pragma once

#include <cstdint>

#include "tutti/tensor/tensor.h"

namespace tutti::models {

class AttentionCache;
class LanguageModel;

// B rows of S tokens; every tensor is [B * S] in row-major order.
struct TokenBatch {
  Tensor tokens;     // i32
  Tensor positions;  // i32: the position of each token in its document
  Tensor first_key;  // i32: the position within the row of the first token of the token's document
  int64_t rows = 0;
  // Keys and values of earlier tokens (attention_cache.h), by whose order first_key and rows then mean nothing to
  // attention; null: a row attends to itself.
  AttentionCache* cache = nullptr;
};

struct ForwardOptions {
  bool checkpoint_blocks = false;  // recompute each block in backward
  int64_t loss_max_bytes = 0;  // losses() computes logits in chunks of at most this many bytes; 0: all logits at once
};

}  // namespace tutti::models
