// Validation: bits per held-out byte of the model, and of an order-2 byte model on the same documents for comparison.
#pragma once

#include <memory>

#include "tutti/comm/process_group.h"
#include "tutti/io/token_dataset.h"
#include "tutti/models/token_batch.h"

namespace tutti::dist {
class DeviceMesh;
using Mesh = std::shared_ptr<const DeviceMesh>;
}  // namespace tutti::dist

namespace tutti::train {

// The most validation rows of a forward.
inline constexpr int64_t kRowsEvaluatedAtOnce = 4;

// The sum of the losses in bits over the first `rows` validation rows (or all, if there are fewer), divided by the
// number of bytes of text that their labels represent. The model is in evaluation mode meanwhile. The ranks share the
// work and all get the same value; `group` may be null. `mesh`: of the ranks that divide the model (tensor_ranks.h),
// which make the same call.
double bits_per_byte(models::LanguageModel& model, const TokenDataset& data, const Tokenizer& tokenizer, int64_t rows,
                     const models::ForwardOptions& options, comm::ProcessGroup* group, const dist::Mesh& mesh = {});

// Bits per byte of an order-2 byte model (io/byte_ngram.h) of the training documents on the documents that the first
// `rows` validation rows cover.
double order2_bits_per_byte(const TokenDataset& data, const Tokenizer& tokenizer, int64_t rows);

}  // namespace tutti::train
