// Router: the experts of each token and the weights of their outputs. Source: the token-choice router of TorchTitan,
// without dropped tokens.
//
//   scores = softmax or sigmoid of gate(x), in f32;   ids = the k best of scores + expert_bias;   weights = scores at
//   ids
//
// Dims: T tokens, D model dim, E experts, K experts of each token.
#pragma once

#include <cstdint>
#include <string_view>

#include "tutti/nn/module.h"

namespace tutti::nn {

enum class ScoreFunction : uint8_t { softmax, sigmoid };
// Parses "softmax" or "sigmoid". UsageError for another text.
ScoreFunction parse_score_function(std::string_view text);

struct RouterOptions {
  int64_t num_experts = 8;
  int64_t top_k = 1;
  ScoreFunction score_func = ScoreFunction::sigmoid;
  bool route_norm = false;  // divide the weights of a token by their sum (plus 1e-20)
  double route_scale = 1;   // by which the weights are multiplied last
  // The gate reads rms_norm(x, scale) / sqrt(D), and the weights of an expert are multiplied by its per_expert_scale:
  // two more parameters. Source: the published code of Gemma 4.
  bool scaled = false;
  double norm_eps = 1e-6;  // of that norm
  // Experts form num_expert_groups groups of equal size, at least 2. Only experts of the num_limited_groups best groups
  // are chosen, where a group is as good as its two best experts together. 0: no groups.
  int64_t num_expert_groups = 0, num_limited_groups = 0;
  // Token t takes the experts t K + k modulo E, whatever the scores are: for measurements of equal loads.
  bool force_load_balance = false;
  Init init = Init::normal(0.02);
};

struct Routing {
  Tensor weights_TK;     // f32, differentiable: the only way of gradients to the gate
  Tensor expert_ids_TK;  // i64; columns in descending order of the scores, the lower expert first among equal ones
  Tensor tokens_per_expert_E;  // i64
};

// Parameters: weight [E, D], read in the dtype of use, and where it is scaled scale [D] and per_expert_scale [E], which
// start as ones; products are in f32. Buffers: expert_bias [E] in f32, which
// moves choices and is not in the weights. It is 0 until somebody balances loads with it (optim/expert_balance.h).
class Router : public Module {
 public:
  // UsageError, naming the option, for numbers that do not fit.
  Router(int64_t dim, const RouterOptions& options);
  // The bias as this rank has it, in the same memory.
  Tensor bias() const;
  // x [T, D]; where tensor-parallel ranks divide the model, those of this rank, and the gradient of the weight is the
  // sum over ranks. The lowest expert wins among equal ones (numerics contract, N8).
  Routing forward(const Tensor& x_TD) const;

  const RouterOptions& options() const { return options_; }

  Parameter weight, scale, per_expert_scale;
  Buffer expert_bias;

 private:
  Tensor scores_of(const Tensor& x_TD) const;
  Tensor choose(const Tensor& scores_TE) const;
  Tensor limited_to_groups(const Tensor& choice_TE) const;

  RouterOptions options_;
};

}  // namespace tutti::nn
