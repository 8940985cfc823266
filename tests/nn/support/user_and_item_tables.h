// A module of two tables that three features look up, and batches for it.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "tutti/nn/table_batched_embedding.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/reduction.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::nn {

inline constexpr int64_t kBags = 6;

inline std::vector<TableConfig> configs() { return {{"user", 30, 8}, {"item", 20, 5}}; }
inline TableBatchedOptions options_of(std::optional<TableStep> optimizer, DType dtype = DType::f32) {
  return {.features = {0, 1, 0}, .dtype = dtype, .optimizer = optimizer};
}

inline TableBatch drawn(uint64_t seed, int64_t bags = kBags) {
  const Tensor lengths = facets::sample_tensor(seed, {3 * bags}, DType::i64, 0, 5);
  std::vector<int64_t> offsets = {0};
  for (int64_t k = 0; k < 3 * bags; ++k) offsets.push_back(offsets.back() + lengths.data<int64_t>()[k]);
  return {.indices = facets::sample_tensor(seed + 1, {offsets.back()}, DType::i64, 0, 20),
          .offsets = Tensor::of<int64_t>(offsets)};
}

inline std::unique_ptr<TableBatchedEmbeddingBags> filled(const TableBatchedOptions& options) {
  seed_all(3);
  auto module = std::make_unique<TableBatchedEmbeddingBags>(configs(), options);
  initialize(*module);
  return module;
}

inline Tensor loss_of(const Tensor& y) { return sum(mul(y, y)); }

}  // namespace tutti::nn
