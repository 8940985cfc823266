// Rows of tokens as a model and its loss take them.
#pragma once

#include "tutti/io/token_stream.h"
#include "tutti/models/token_batch.h"

namespace tutti::train {

// Tensors of some rows: tokens, positions and where each token's document begins in its row.
models::TokenBatch to_batch(const TokenRows& rows);
// i32 [rows * sequence_length].
Tensor labels_of(const TokenRows& rows);
int64_t count_valid(const TokenRows& rows);

}  // namespace tutti::train
