#include "tutti/train/data/batch.h"

#include "tutti/ops/cross_entropy.h"

namespace tutti::train {

static Tensor to_tensor(const std::vector<int32_t>& values) {
  MemoryCategoryScope category(MemoryCategory::data);
  return Tensor::of(values);
}

models::TokenBatch to_batch(const TokenRows& rows) {
  std::vector<int32_t> first_key(rows.positions.size());
  for (size_t i = 0; i < first_key.size(); ++i)
    first_key[i] = static_cast<int32_t>(i % static_cast<size_t>(rows.sequence_length)) - rows.positions[i];
  return {to_tensor(rows.inputs), to_tensor(rows.positions), to_tensor(first_key), rows.count};
}

Tensor labels_of(const TokenRows& rows) { return to_tensor(rows.labels); }

int64_t count_valid(const TokenRows& rows) {
  int64_t valid = 0;
  for (const int32_t label : rows.labels) valid += label != kIgnoreLabel;
  return valid;
}

}  // namespace tutti::train
