// A small transformer between an embedding and the head, which is the embedding again, whose losses and gradients ranks
// compute under a plan: what the tests of parallelize_module() compare.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/comm/support/forked_ranks.h"
#include "tutti/autograd/backward.h"
#include "tutti/codegen/gemm/contraction_tree.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/comm/transports.h"
#include "tutti/nn/embedding.h"
#include "tutti/nn/linear.h"
#include "tutti/nn/multi_linear.h"
#include "tutti/nn/norm.h"
#include "tutti/ops.h"
#include "tutti/parallel/tensor_parallel.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::parallel {

constexpr int64_t kVocabulary = 64, kDim = 12, kHeads = 8, kKeyHeads = 4, kHeadDim = 6, kHidden = 34, kRows = 2,
                  kLength = 8;

// Leaves so small that this model can be cut over four ranks.
struct SmallLeaves {
  codegen::ContractionLeafForTests contraction{4};
  ClassLeafScope classes{8};
  TokenGrainScope grain{2};
};

// The gradient of its input is one contraction; that of SmallMlp's is a sum of two.
struct SmallAttention final : nn::Module {
  Tensor forward(const Tensor& x_TD) const {
    const auto heads = [](const Tensor& t, int64_t count) { return reshape(t, {kRows, kLength, count, kHeadDim}); };
    const auto [q, k, v] = nn::multi_linear(x_TD, q_proj, k_proj, v_proj);
    const Tensor attended = sdpa(heads(q, kHeads), heads(k, kKeyHeads), heads(v, kKeyHeads), {.causal = true});
    return o_proj(reshape(attended, {kRows * kLength, kHeads * kHeadDim}));
  }
  nn::Child<nn::Linear> q_proj{this, "q_proj", kDim, kHeads* kHeadDim},
      k_proj{this, "k_proj", kDim, kKeyHeads* kHeadDim}, v_proj{this, "v_proj", kDim, kKeyHeads* kHeadDim},
      o_proj{this, "o_proj", kHeads* kHeadDim, kDim};
};

struct SmallMlp final : nn::Module {
  Tensor forward(const Tensor& x) const {
    const Tensor gate_TF = gate(x);
    const Tensor up_TF = up(x);
    return down(swiglu(gate_TF, up_TF));
  }
  nn::Child<nn::Linear> gate{this, "gate", kDim, kHidden}, up{this, "up", kDim, kHidden},
      down{this, "down", kHidden, kDim};
};

struct SmallModel final : nn::Module {
  Tensor forward(const Tensor& tokens) const {
    const Tensor x = embed(tokens);
    const Tensor h = add(x, attention(norm1(x)));
    return final_norm(add(h, mlp(norm2(h))));
  }
  nn::Child<nn::Embedding> embed{this, "embed", kVocabulary, kDim};
  nn::Child<nn::RMSNorm> norm1{this, "norm1", kDim};
  nn::Child<nn::LayerNorm> norm2{this, "norm2", kDim};
  nn::Child<nn::RMSNorm> final_norm{this, "final_norm", kDim};
  nn::Child<SmallAttention> attention{this, "attention"};
  nn::Child<SmallMlp> mlp{this, "mlp"};
};

// The plan as a user writes it; with `sequence`, tokens are cut between the products.
inline ParallelPlan small_plan(bool sequence) {
  const Placement between = sequence ? dist::shard(0) : dist::replicate();
  ParallelPlan plan{{"embed", RowwiseParallel{.output_layouts = between}},
                    {"attention.q_proj", ColwiseParallel{}},
                    {"attention.k_proj", ColwiseParallel{}},
                    {"attention.v_proj", ColwiseParallel{}},
                    {"attention.o_proj", RowwiseParallel{.output_layouts = between}},
                    {"mlp.gate", ColwiseParallel{}},
                    {"mlp.up", ColwiseParallel{}},
                    {"mlp.down", RowwiseParallel{.output_layouts = between}}};
  if (!sequence) return plan;
  for (const char* norm : {"norm1", "norm2", "final_norm"}) plan.push_back({norm, SequenceParallel{.sequence_dim = 0}});
  for (const char* module : {"attention", "mlp"})
    plan.push_back({module, PrepareModuleInput{.desired_input_layouts = {dist::replicate()}}});
  plan.push_back({"", PrepareModuleOutput{}});
  return plan;
}

inline Tensor small_tokens(int32_t step) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < kRows * kLength; ++i) tokens.push_back((i * 13 + step) % static_cast<int32_t>(kVocabulary));
  return Tensor::of(tokens);
}

using Values = std::map<std::string, std::vector<float>>;

inline std::vector<float> values_of(const Tensor& t) {
  const NoGradScope no_grad;
  const Tensor whole = to_contiguous(cast(dist::is_dtensor(t) ? dist::full_tensor(t) : t, DType::f32));
  return {whole.data<float>(), whole.data<float>() + whole.numel()};
}

// Losses and all gradients; on a mesh unless that is null.
inline Values losses_and_gradients(const dist::Mesh& mesh, const ParallelPlan& plan, DType dtype,
                                   bool fused_loss = false) {
  seed_all(7);
  SmallModel model;
  if (dtype != DType::f32) model.to(dtype);
  if (mesh != nullptr) parallelize_module(model, mesh, plan);
  nn::initialize(model);
  const auto placed = [&](const Tensor& t) {
    return mesh == nullptr ? t : dist::distribute_tensor(t, mesh, {}, {.src_data_rank = -1});
  };
  const Tensor x = nn::call(model, placed(small_tokens(0))), labels = placed(small_tokens(5));
  const Tensor losses =
      fused_loss ? linear_cross_entropy(x, model.embed->weight, labels, {.reduction = LossReduction::none})
                 : cross_entropy(matmul(x, transpose(model.embed->weight, 0, 1), {.out_dtype = DType::f32}), labels);
  backward(losses, full_like(losses, 0.25));
  Values result{{"losses", values_of(losses)}};
  for (const auto& [name, p] : model.named_parameters()) result[name] = values_of(p.grad());
  return result;
}

inline std::string difference(const Values& seen, const Values& expected) {
  for (const auto& [name, values] : expected) {
    const auto it = seen.find(name);
    if (it == seen.end() || it->second.size() != values.size()) return name + " is missing, or of another size";
    for (size_t i = 0; i < values.size(); ++i) {
      if (std::memcmp(&values[i], &it->second[i], sizeof(float)) != 0)
        return fmt::format("{}[{}] is {:a} and not {:a}", name, i, it->second[i], values[i]);
    }
  }
  return "";
}

// On ranks that are threads, or forked processes that share memory. A rank that differs fails the test.
inline void run_on_ranks(const std::string& transport, int ranks, const std::function<void(const dist::Mesh&)>& fn) {
  const auto on_rank = [&](comm::ProcessGroup&) { fn(dist::init_device_mesh("cpu", {ranks}, {.names = {"tp"}})); };
  if (transport == "threads") return comm::run_ranks(ranks, on_rank);
  std::fflush(stdout);
  RankContext::current().set_threads(0);  // ends the pool: processes are forked from one without other threads
  for (const comm::ForkedResult& rank :
       comm::run_world(ranks, on_rank, {.slot_bytes = 1 << 16, .transport = transport}))
    EXPECT_TRUE(rank.succeeded()) << rank.error;
}

// The values that one rank computes, in a thread of its own: processes are forked from one without others.
inline Values of_one_rank(DType dtype, bool fused_loss = false) {
  Values expected;
  comm::run_ranks(1, [&](comm::ProcessGroup&) { expected = losses_and_gradients(nullptr, {}, dtype, fused_loss); });
  return expected;
}

}  // namespace tutti::parallel
