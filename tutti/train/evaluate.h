// Validation: how many bits a held-out byte costs the model, beside an order-2 byte model on the same documents.
#pragma once

#include "tutti/comm/process_group.h"
#include "tutti/io/token_dataset.h"
#include "tutti/models/qwen3.h"

namespace tutti::train {

// Mean over the first `rows` validation rows (all when larger): sum of the losses in bits over the bytes of text that
// the labels stand for. Ranks share the rows and all get the same value; `group` may be null.
double bits_per_byte(const models::Qwen3& model, const TokenDataset& data, const Tokenizer& tokenizer, int64_t rows,
                     const models::ForwardOptions& options, comm::ProcessGroup* group);

// Bits per byte of the order-2 byte model (io/byte_ngram.h), counted over the training documents, on the documents that
// the first `rows` validation rows show.
double order2_bits_per_byte(const TokenDataset& data, const Tokenizer& tokenizer, int64_t rows);

}  // namespace tutti::train
