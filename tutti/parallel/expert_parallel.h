// Expert parallelism: the experts of MoE layers are divided over ranks, and tokens travel to them (docs/moe.md).
//
//   const dist::Mesh mesh = dist::init_device_mesh("cpu", {2, 4}, {.names = {"efsdp", "ep"}});
//   parallel::expert_parallel(model, mesh->slice({"ep"}));
//   nn::initialize(model);   // each rank draws the experts that it has
//
// Every rank has its own tokens and all other parameters; or tensor-parallel ranks divide those (parallelize_module after expert_parallel), and have tokens of one batch
// each. In strict mode outputs and gradients have the bits of a rank that has all experts: the gradient of an
// expert is that of the tokens of all ranks of the mesh, in their order, so it is a node of as many virtual shards as the mesh has ranks (parallel/expert_shards.h).
#pragma once

#include <cstdint>

#include "tutti/dist/device_mesh.h"
#include "tutti/nn/module.h"
#include "tutti/nn/token_dispatcher.h"

namespace tutti::parallel {

struct ExpertParallelOptions {
  // The most tokens of a rank in a forward; 0: all ranks have as many as this one.
  int64_t max_tokens = 0;
};

// Divides the experts of all MoE layers of the module over the ranks of a mesh of one dim, equally and in their order: their weights become distributed tensors
// [S(0)]. A mesh of one rank leaves it all experts, for the tokens that tensor-parallel ranks leave it. Parameters without values get memory for this rank's experts only; those that have values must have those of all ranks. Call it before gradients and
// optimizers are set up, and make the same calls of forward and backward on all ranks.
//
// UsageError, before anything changes: for a mesh of several dims or without this rank, ranks that do not divide the experts, and in strict mode a number of
// ranks that is no power of two.
void expert_parallel(nn::Module& module, const dist::Mesh& mesh, const ExpertParallelOptions& options = {});

// Rows travel by all_to_all with room for the worst case, so that no count is read on the way, and a step can be compiled. Rows are sorted by
// expert, rank and token.
class ExchangeDispatcher final : public nn::TokenDispatcher {
 public:
  // `experts` in all, which the ranks of `group` divide.
  ExchangeDispatcher(std::shared_ptr<comm::ProcessGroup> group, int64_t experts, const ExpertParallelOptions& options);
  // UsageError on all ranks when they have other sizes, without max_tokens also other numbers of tokens; in strict mode for a batch whose tokens are no multiple of the token grain: the tokens of several ranks would be summed in another order.
  nn::Dispatched dispatch(const Tensor& x_TD, const nn::Routing& routing, SymInt most_tokens) const override;
  Tensor combine(const Tensor& outputs_RD, const nn::Dispatched& dispatched, const nn::Routing& routing) const override;

 private:
  const std::shared_ptr<comm::ProcessGroup> group_;
  const int64_t experts_;
  void agree(int64_t most, int64_t slots_per_token) const;

  const ExpertParallelOptions options_;
  mutable uint64_t agreed_ = 0;  // what the ranks have said last of the sizes that they must share
};

}  // namespace tutti::parallel
