// Dispatchers of ranks that share memory: rows are stored where they are needed, or read where they are (docs/moe.md). No rank reads a count on its way, and addresses
// never change, so a step compiles to one graph.
#pragma once

#include <memory>

#include "tutti/nn/token_dispatcher.h"
#include "tutti/parallel/expert_memory.h"
#include "tutti/parallel/token_places.h"

namespace tutti::parallel {

// Stores each row at its final place in the memory of the rank of its expert, and each output at its token's rank. Experts multiply what lies in the receive buffer.
class DirectStoreDispatcher final : public nn::TokenDispatcher {
 public:
  // Layers that are divided over the same ranks share `memory`; max_tokens: see ExpertParallelOptions.
  DirectStoreDispatcher(std::shared_ptr<ExpertMemory> memory, int64_t max_tokens);
  nn::Dispatched dispatch(const Tensor& x_TD, const nn::Routing& routing, SymInt most_tokens) const override;
  Tensor combine(const Tensor& outputs_RD, const nn::Dispatched& dispatched, const nn::Routing& routing) const override;

 private:
  const std::shared_ptr<ExpertMemory> memory_;
  const TokenPlaces places_;
  const int layer_;
};

// Leaves tokens where they are: experts read the tokens of all ranks while their products pack them. Outputs and gradients are stored as by DirectStoreDispatcher.
class GatherOnReadDispatcher final : public nn::TokenDispatcher {
 public:
  GatherOnReadDispatcher(std::shared_ptr<ExpertMemory> memory, int64_t max_tokens);
  nn::Dispatched dispatch(const Tensor& x_TD, const nn::Routing& routing, SymInt most_tokens) const override;
  Tensor combine(const Tensor& outputs_RD, const nn::Dispatched& dispatched, const nn::Routing& routing) const override;

 private:
  const std::shared_ptr<ExpertMemory> memory_;
  const TokenPlaces places_;
  const int layer_;
};

}  // namespace tutti::parallel
