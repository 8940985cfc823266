// MoE: a feed-forward layer of several experts, of which each token takes a few.
//
//   nn::MoE layer({.dim = 64, .hidden_dim = 128, .router = {.num_experts = 8, .top_k = 2}});
//   y_TD = layer.forward(x_TD);
//
// No token is dropped, and no row is padded. Experts without tokens take part with gradients that are exactly 0.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tutti/nn/grouped_experts.h"
#include "tutti/nn/moe_router.h"

namespace tutti::nn {

class TokenDispatcher;

struct MoEOptions {
  int64_t dim = 0;         // features of a token
  int64_t hidden_dim = 0;  // of each expert
  RouterOptions router = {};
  // A gated feed-forward layer of so many hidden features that all tokens take besides; 0: none.
  int64_t shared_hidden_dim = 0;
  Init init = Init::normal(0.02);  // of the experts
  ExpertActivation activation = ExpertActivation::silu;
};

// Submodules: gate (Router), experts (GroupedExperts), shared_experts (where there are any).
// Buffers: tokens_per_expert [E] i64, which counts the tokens of forwards in training mode since it was last set to 0.
// A forward that runs again in backward (checkpoint()) does not count, nor one in evaluation mode. It is not part of
// the state dict.
class MoE : public Module {
 public:
  explicit MoE(const MoEOptions& options);
  ~MoE() override;
  // x [T, D] -> [T, D]. Where tensor-parallel ranks divide the model, x is a distributed tensor that they divide by
  // tokens, [S(0)], and so is the result; each of them routes its own tokens. The gradient of experts that each rank
  // has whole is then that of the rank's own tokens, to be added over the ranks as parallel::Shards does. UsageError in
  // strict mode, where gradients are recorded, when a rank's tokens are no node of the tree over ranges of
  // token_grain() tokens.
  Tensor forward(const Tensor& x_TD) const;
  // From now on rows come to the experts and back by `dispatcher` (token_dispatcher.h); at first they stay on this
  // rank. UsageError for null.
  void set_dispatcher(std::unique_ptr<TokenDispatcher> dispatcher);

  // tokens_per_expert as this rank counts it, in the same memory: of its own tokens, where ranks divide them.
  Tensor counts() const;

  const MoEOptions& options() const { return options_; }

 protected:
  // What the experts take of tokens x, which the router reads as they are. Runs where x is the part of this rank.
  virtual Tensor expert_input(const Tensor& x_TD) const { return x_TD; }

 private:
  struct SharedExperts;
  Tensor divided(const Tensor& x_TD) const;
  Tensor routed(const Tensor& x_TD, SymInt most_tokens) const;

  MoEOptions options_;

 public:
  Child<Router> gate;
  Child<GroupedExperts> experts;
  Buffer tokens_per_expert;

 private:
  std::unique_ptr<Child<SharedExperts>> shared_experts_;
  std::unique_ptr<TokenDispatcher> dispatcher_;
};

// The layers of a model, under their names, in order.
struct NamedMoE {
  std::string name;
  MoE* layer;
};
std::vector<NamedMoE> moe_layers(Module& model);

}  // namespace tutti::nn
