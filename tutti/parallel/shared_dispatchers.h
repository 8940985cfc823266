// Dispatchers of ranks that share memory: rows are stored where they are needed, or read where they are (docs/moe.md).
// No rank reads a count on its way, and addresses never change, so a step compiles to one graph.
#pragma once

#include <memory>
#include <utility>

#include "tutti/nn/token_dispatcher.h"
#include "tutti/parallel/expert_memory.h"
#include "tutti/parallel/token_places.h"

namespace tutti::parallel {

// The common part of both: outputs are stored at their tokens, where they are weighted and added.
class SharedDispatcher : public nn::TokenDispatcher {
 public:
  Tensor combine(const Tensor& outputs_RD, const nn::Dispatched& dispatched, const nn::Routing& routing) const final;

 protected:
  // Layers that are divided over the same ranks share `memory`; max_tokens: see ExpertParallelOptions. `name` opens
  // messages.
  SharedDispatcher(const char* name, std::shared_ptr<ExpertMemory> memory, int64_t max_tokens);

  const std::shared_ptr<ExpertMemory> memory_;
  const TokenPlaces places_;
  const int layer_;
};

// Stores each row at its final place in the memory of the rank of its expert, and each output at its token's rank.
// Experts multiply what lies in the receive buffer.
class DirectStoreDispatcher final : public SharedDispatcher {
 public:
  DirectStoreDispatcher(std::shared_ptr<ExpertMemory> memory, int64_t max_tokens)
      : SharedDispatcher("DirectStoreDispatcher", std::move(memory), max_tokens) {}
  nn::Dispatched dispatch(const Tensor& x_TD, const nn::Routing& routing, SymInt most_tokens) const override;
};

// Leaves tokens where they are: experts read the tokens of all ranks while their products pack them. Outputs and
// gradients are stored as by DirectStoreDispatcher.
class GatherOnReadDispatcher final : public SharedDispatcher {
 public:
  GatherOnReadDispatcher(std::shared_ptr<ExpertMemory> memory, int64_t max_tokens)
      : SharedDispatcher("GatherOnReadDispatcher", std::move(memory), max_tokens) {}
  nn::Dispatched dispatch(const Tensor& x_TD, const nn::Routing& routing, SymInt most_tokens) const override;
};

}  // namespace tutti::parallel
