// Classes of parameters: which ranks add the gradients of which parameters, for Shards (shards.h).
//
// Most parameters are of one class: every rank that shares the batch has them, and each virtual shard is a leaf of the
// tree of their gradients. Experts that ranks divide (expert_parallel.h) are another one: the ranks of a line of the
// mesh run neighbouring shards, whose tokens all of them send to the owner of an expert, so that what it has of the
// expert's gradient after a round is the node of those shards. Only the ranks that have the same experts go on adding.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/comm/process_group.h"
#include "tutti/dist/device_mesh.h"
#include "tutti/tensor/tensor.h"

namespace tutti::parallel {

struct ParameterClass {
  std::string name;                       // for errors
  std::vector<Tensor> parameters = {};    // leaves
  comm::ProcessGroup* holders = nullptr;  // the ranks that add their gradients; must outlive the Shards; null: one rank
  // The leaves of the tree of their gradients, which is a power of two. Each shard of a rank is one of them, as if the
  // holders shared out so many shards.
  int64_t nodes = 1;
};

// The ranks of a model whose experts are divided.
struct ExpertRanks {
  comm::ProcessGroup* all = nullptr;  // that share the batch; null: one rank
  dist::Mesh experts = {};            // that divide the experts; null: none do
  // That divide the tokens of each shard, with `experts` only: each of them is a shard of its own for the experts,
  // since neighbouring parts of a shard's tokens are nodes of the tree over them.
  int64_t tensor = 1;
  comm::ProcessGroup* replicas = nullptr;  // that have the same experts, in the order of their lines
};
// The class of those of `parameters` that are distributed tensors over ranks.experts, for a batch of `shards` virtual
// shards; none where no ranks divide experts. UsageError, naming the numbers, when those ranks do not divide the shards
// and the ranks that share the batch, those of ranks.tensor counted.
std::vector<ParameterClass> expert_classes(const std::vector<Tensor>& parameters, int64_t shards,
                                           const ExpertRanks& ranks);

}  // namespace tutti::parallel
