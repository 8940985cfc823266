// GroupedExperts: gated feed-forward layers whose weights lie in common tensors, each applied to rows of its own.
#pragma once

#include <functional>

#include "tutti/nn/module.h"

namespace tutti::nn {

// Rows of several experts, those of each together and in the order of the experts.
struct ExpertRows {
  Tensor rows_ND;
  Tensor offsets_E;    // i64: where the rows of each expert end
  Tensor positions_N;  // i64: the token of each row in the canonical order of the batch, ascending within an expert
                       // (numerics contract, N3t)
  SymInt position_count = 0;  // how many tokens the batch has
  // Where rows are not in one tensor: multiplies each by the matrix of its expert in w [E, D, F]. Of rows_ND only
  // sizes, dtype and history count then.
  std::function<Tensor(const Tensor& rows_ND, const Tensor& w_EDF)> multiply = {};
};

enum class ExpertActivation : uint8_t { silu, gelu_tanh };

// y = w2 (activation(w1 x) * (w3 x)) with the weights of the row's expert. Where the parameters are distributed tensors
// that ranks divide by experts, `rows` are those of this rank's. Parameters: w1, w3 [E, F, D], w2 [E, D, F]. Their
// gradients sum over fixed ranges of token positions (numerics contract, N5), exactly 0 for an expert without rows.
// Weights that are frozen to quantized blocks are multiplied by quantized_grouped_mm(), without a gradient: UsageError
// where their rows are not in one tensor (ExpertRows::multiply).
class GroupedExperts : public Module {
 public:
  // E experts, D features, F hidden features.
  GroupedExperts(int64_t num_experts, int64_t dim, int64_t hidden_dim, const Init& init,
                 ExpertActivation activation = ExpertActivation::silu);
  // Returns the rows [N, D] in the same order.
  Tensor forward(const ExpertRows& rows) const;

  Parameter w1, w2, w3;

 private:
  ExpertActivation activation_;
};

}  // namespace tutti::nn
