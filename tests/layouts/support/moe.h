// Pieces of the mixture of experts that every layout computes on the tokens it holds.
#pragma once

#include <span>
#include <vector>

#include "tests/layouts/support/config.h"
#include "tutti/tensor/tensor.h"

namespace tutti::layouts {

// Which experts take the tokens of one rank. A slot is token * active_experts + k.
struct Routing {
  Tensor weights_TK;             // f32, differentiable
  std::vector<int64_t> experts;  // per slot
};
// Scores and weights in f32; ties go to the lowest expert.
Routing route(const ModelConfig& config, const Tensor& x_TD, const Tensor& router_ED);

// The rows x[slot / active] in the order of `slots`. The cotangents of a token's slots are added in f32 in slot order
// and rounded once.
Tensor rows_of_slots(const Tensor& x_TD, int64_t active, const std::vector<int64_t>& slots);
// Row i of the result is row order[i] of x, `order` being a permutation.
Tensor permuted_rows(const Tensor& x, const std::vector<int64_t>& order);
// sum over k of weight[t, k] * y[t * active + k], in f32 in slot order, rounded once to the dtype of y.
Tensor combine_slots(const Tensor& y_slots, const Tensor& weights_TK, int64_t active);

// [shard][range]: how many rows come from a range of token positions of a virtual shard.
using TokenRanges = std::vector<std::vector<int32_t>>;
int64_t rows_in(const TokenRanges& counts);

// x w^T for the rows of one expert. The gradient of w sums over the rows of a range in a chain and over the ranges of a
// shard by halving (N5). Several shards give one gradient each, stacked in front: they are added when the ranks that
// share a shard's tokens have added theirs.
Tensor ragged_linear(const Tensor& x_RD, const Tensor& w_FD, const TokenRanges& counts);

// Down(silu(gate x) * up x) of one expert.
struct ExpertWeights {
  Tensor gate, up, down;
};
Tensor expert_forward(const Tensor& x_RD, const ExpertWeights& weights, const TokenRanges& counts);

// i64 tensor of the numbers.
Tensor index_tensor(std::span<const int64_t> values);

}  // namespace tutti::layouts
