// Steps of a layer of experts in any division of shards, tokens and experts over ranks, which have the bits of one
// rank.
#pragma once

#include <cstring>
#include <map>
#include <stdexcept>

#include "tutti/autograd/backward.h"
#include "tutti/autograd/checkpoint.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/dist/dtensor.h"
#include "tutti/nn/moe.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/reduction.h"
#include "tutti/optim/grad_norm.h"
#include "tutti/parallel/expert_parallel.h"
#include "tutti/parallel/shards.h"
#include "tutti/parallel/tensor_parallel.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::parallel::expert_steps {

constexpr int64_t kTokens = 12, kDim = 10, kHidden = 6, kExperts = 8, kShards = 8;

inline nn::MoEOptions options() {
  return {.dim = kDim,
          .hidden_dim = kHidden,
          .router = {.num_experts = kExperts,
                     .top_k = 3,
                     .score_func = nn::ScoreFunction::softmax,
                     .route_norm = true,
                     .init = nn::Init::normal(0.7)},
          .init = nn::Init::normal(0.5)};
}

inline Tensor tokens_of(int64_t shard, DType dtype, int64_t tokens = kTokens) {
  return cast(facets::sample_tensor(static_cast<uint64_t>(shard) + 3, {tokens, kDim}), dtype);
}

using Values = std::map<std::string, std::vector<float>>;

inline std::vector<float> values_of(const Tensor& t) {
  const NoGradScope no_grad;
  const Tensor whole = to_contiguous(cast(dist::is_dtensor(t) ? dist::full_tensor(t) : t, DType::f32));
  return {whole.data<float>(), whole.data<float>() + whole.numel()};
}

inline bool have_same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

// The first of the values that a rank has seen which is not as expected; "" if all are. It runs some of the shards
// only.
inline std::string difference(const Values& seen, const Values& expected) {
  for (const auto& [name, values] : seen) {
    if (!have_same_bits(values, expected.at(name))) return name + " has other bits";
  }
  return "";
}

// The virtual shards of a step, and their division.
struct Case {
  const char* name;
  int ranks, experts;
  DType dtype = DType::f32;
  int tensor = 1;  // ranks that divide the tokens of a shard
  ExpertExchange exchange = ExpertExchange::standard;
  bool recomputes = false;
  std::vector<int64_t> tokens = {kTokens};  // of the shards, in turns
  int64_t max_tokens = 0;
};

// A step of virtual shards whose loss is the sum of the squares of the outputs.
inline Values step_of(const Case& c, comm::ProcessGroup& world) {
  seed_all(11);
  nn::MoE layer(options());
  if (c.dtype != DType::f32) layer.to(c.dtype);
  ExpertRanks ranks{.all = c.ranks > 1 ? &world : nullptr, .tensor = c.tensor};
  std::shared_ptr<comm::ProcessGroup> replicas, data;
  dist::Mesh tensor;
  if (c.experts > 1 || c.tensor > 1) {
    const dist::Mesh all = dist::init_device_mesh("cpu", {c.ranks / c.experts, c.experts}, {.names = {"efsdp", "ep"}});
    ranks.experts = all->slice({"ep"});
    replicas = all->group("efsdp");
    ranks.replicas = replicas.get();
    expert_parallel(layer, ranks.experts, {.max_tokens = c.max_tokens, .exchange = c.exchange});
  }
  if (c.tensor > 1) {
    const dist::Mesh all = dist::init_device_mesh("cpu", {c.ranks / c.tensor, c.tensor}, {.names = {"dp", "tp"}});
    tensor = all->slice({"tp"});
    data = all->group("dp");
    ranks.all = data.get();
    parallelize_module(layer, tensor, ParallelPlan{});
  }
  nn::initialize(layer);
  std::vector<Tensor> leaves;
  for (const auto& [name, p] : layer.named_parameters()) leaves.push_back(p.leaf());
  Shards shards(kShards, ranks.all, leaves, Schedule::every_round, Overlap::none,
                expert_classes(leaves, kShards, ranks));
  Values result;
  for (const int64_t s : shards.local_shards()) {
    const Tensor tokens = tokens_of(s, c.dtype, c.tokens[static_cast<size_t>(s) % c.tokens.size()]);
    const Tensor x = requires_grad_(
        tensor == nullptr ? tokens : dist::distribute_tensor(tokens, tensor, {dist::shard(0)}, {.src_data_rank = -1}));
    const Tensor value = mul(x, 1.0);  // a value as inside a model: uses of a leaf are added in f32
    const auto forward = [&](std::span<const Tensor> in) { return layer.forward(in[0]); };
    const Tensor y = c.recomputes ? checkpoint(forward, std::span(&value, 1)) : layer.forward(value);
    const Tensor losses = sum(mul(cast(y, DType::f32), cast(y, DType::f32)), {.dims = {1}});
    backward(losses, full_like(losses, 0.5), {.sink = shards.sink()});
    shards.add(tensor == nullptr ? detach(losses) : dist::full_tensor(detach(losses)));
    result[fmt::format("output {}", s)] = values_of(y);
    result[fmt::format("gradient of tokens {}", s)] = values_of(grad_of(x));
  }
  const ShardSums sums = shards.finish();
  result["loss"] = {static_cast<float>(sums.loss)};
  result["norm"] = {optim::norm_of(sums.squares)};
  for (size_t p = 0; p < leaves.size(); ++p) result[fmt::format("gradient {}", p)] = values_of(sums.gradients[p]);
  return result;
}

inline Values step_of_one_rank(const Case& c) {
  Values result;
  comm::run_ranks(1, [&](comm::ProcessGroup& world) {
    result = step_of({.name = "one", .ranks = 1, .experts = 1, .dtype = c.dtype, .tokens = c.tokens}, world);
  });
  return result;
}

// All ranks of a case, as threads, see what one rank does.
inline void expect_one_rank(const Case& c) {
  const Values expected = step_of_one_rank(c);
  comm::run_ranks(c.ranks, [&](comm::ProcessGroup& world) {
    const std::string found = difference(step_of(c, world), expected);
    if (!found.empty()) throw std::logic_error(found);
  });
}

}  // namespace tutti::parallel::expert_steps
