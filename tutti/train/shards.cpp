#include "tutti/train/shards.h"

#include <bit>
#include <cstring>

#include "tutti/ops/binary.h"
#include "tutti/ops/cross_entropy.h"

namespace tutti::train {

ShardRange shards_of_rank(int64_t shards, int rank, int ranks) {
  TUTTI_CHECK(ranks >= 1 && std::has_single_bit(static_cast<unsigned>(ranks)) && ranks <= shards,
              "{} data-parallel ranks cannot hold equal subtrees of {} virtual shards; strict mode takes 1, 2, 4, ... up to "
              "{} ranks (numerics.virtual_shards)", ranks, shards, shards);
  const int64_t each = shards / ranks;
  return {rank * each, (rank + 1) * each};
}

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

void GradientTree::push(std::vector<std::vector<Tensor>> uses) {
  MemoryCategoryScope category(MemoryCategory::gradients);
  stack_.push_back({1, std::move(uses)});
  while (stack_.size() >= 2 && stack_[stack_.size() - 2].shards == stack_.back().shards) {
    const Level right = std::move(stack_.back());
    stack_.pop_back();
    Level& left = stack_.back();
    // Not in place: one cotangent may serve two parameters.
    for (size_t p = 0; p < left.uses.size(); ++p) {
      for (size_t u = 0; u < left.uses[p].size(); ++u) left.uses[p][u] = add(left.uses[p][u], right.uses[p][u]);
    }
    left.shards += right.shards;
  }
}

// All gradients travel as one buffer: two meetings of the ranks instead of two per parameter.
static void reduce_over_ranks(std::vector<std::vector<Tensor>>& parameters, comm::ProcessGroup& group) {
  int64_t total = 0;
  for (const auto& uses : parameters) {
    for (const Tensor& g : uses) total += g.numel();
  }
  const Tensor flat = Tensor::empty({total});
  float* out = flat.data<float>();
  for (auto& uses : parameters) {
    for (Tensor& g : uses) {
      const Tensor dense = to_contiguous(g);
      std::memcpy(out, dense.data<float>(), static_cast<size_t>(g.nbytes()));
      g = flat.view_as(g.extents(), contiguous_strides(g.extents()), out - flat.data<float>());
      out += g.numel();
    }
  }
  group.all_reduce(flat);
}

std::vector<Tensor> GradientTree::finish(comm::ProcessGroup* group) {
  MemoryCategoryScope category(MemoryCategory::gradients);
  TUTTI_ASSERT(stack_.size() == 1, "{} partial sums are left: the number of shards is no power of two", stack_.size());
  std::vector<std::vector<Tensor>> parameters = std::move(stack_.back().uses);
  stack_.clear();
  if (group != nullptr && group->size() > 1) reduce_over_ranks(parameters, *group);
  std::vector<Tensor> grads;
  for (const auto& uses : parameters) {
    Tensor sum = uses.empty() ? Tensor{} : uses[0];
    for (size_t u = 1; u < uses.size(); ++u) sum = add(sum, uses[u]);
    grads.push_back(sum);
  }
  return grads;
}

}  // namespace tutti::train
