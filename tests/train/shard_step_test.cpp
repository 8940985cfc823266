// One shard of the model, eager and compiled: equal bits, and kernels that know their line of the model's source.
#include "tutti/train/step/shard_step.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <limits>
#include <optional>

#include "tutti/codegen/gemm/contraction_tree.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/models/decoder_plan.h"
#include "tutti/models/families/qwen3.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/cross_entropy.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/parallel/gradient_tree.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/runtime/trace/profiler.h"

namespace tutti::train {
namespace {

struct ShardGradients {
  Tensor losses;
  parallel::UseGradients uses;
};

struct SmallModel {
  explicit SmallModel(DType compute = DType::f32, bool checkpoint = false)
      : SmallModel(sizes(), compute, checkpoint, nullptr) {}
  SmallModel(const models::DecoderSizes& sizes, DType compute, bool checkpoint, const dist::Mesh& mesh)
      : model(models::qwen3(sizes), 16), mesh(mesh) {
    model.to(compute);
    if (mesh != nullptr) parallel::parallelize_module(model, mesh, models::decoder_plan(model.config(), true));
    nn::initialize(model);
    parameters = nn::leaves_of(model.named_parameters());
    tree.emplace(parameters);
    forward = {.checkpoint_blocks = checkpoint};
  }
  static models::DecoderSizes sizes() {
    models::DecoderSizes c = models::qwen3_sizes("quickstart");
    c.layers = 2, c.dim = 48, c.heads = 2, c.kv_heads = 1, c.head_dim = 24, c.ffn_dim = 80, c.vocab = 131;
    return c;
  }
  ShardStep step(bool compiled, double activation_memory_budget = 1.0) {
    return ShardStep(model, *tree, forward, compiled, activation_memory_budget, mesh);
  }
  ShardGradients run(const ShardStep& step, int seed = 1) {
    const int64_t tokens = 3 * 16;
    std::vector<int32_t> ids, labels, positions;
    for (int64_t i = 0; i < tokens; ++i) {
      ids.push_back(static_cast<int32_t>((i * 37 + seed) % 131));
      labels.push_back(i % 7 == 0 ? -100 : static_cast<int32_t>((i * 11 + seed) % 131));
      positions.push_back(static_cast<int32_t>(i % 16));
    }
    tree->begin(0);
    const Tensor losses = step.run({Tensor::of(ids), Tensor::of(positions), zeros({tokens}, DType::i32), 3},
                                   Tensor::of(labels), full({tokens}, 0.03125));
    tree->end();
    ShardGradients result{losses, tree->take().at(0).uses};
    tree->clear();
    return result;
  }
  models::Decoder model;
  dist::Mesh mesh;  // null: one rank has all of it
  std::vector<Tensor> parameters;
  std::optional<parallel::GradientTree> tree;
  models::ForwardOptions forward;
};

void expect_same(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.extents(), b.extents());
  ASSERT_EQ(a.dtype(), b.dtype());
  const Tensor x = to_contiguous(a), y = to_contiguous(b);
  EXPECT_EQ(std::memcmp(x.raw_data(), y.raw_data(), static_cast<size_t>(x.nbytes())), 0);
}

TEST(ShardStep, CompiledHasTheBitsOfEager) {
  for (const DType compute : {DType::f32, DType::bf16}) {
    for (const bool checkpoint : {false, true}) {
      SmallModel setup(compute, checkpoint);
      const ShardStep eager = setup.step(false), compiled = setup.step(true);
      for (int seed = 1; seed < 4; ++seed) {
        const ShardGradients a = setup.run(eager, seed), b = setup.run(compiled, seed);
        expect_same(a.losses, b.losses);
        ASSERT_EQ(a.uses.size(), b.uses.size());
        for (size_t p = 0; p < a.uses.size(); ++p) {
          ASSERT_EQ(a.uses[p].size(), b.uses[p].size());
          for (size_t u = 0; u < a.uses[p].size(); ++u) expect_same(a.uses[p][u], b.uses[p][u]);
        }
      }
      EXPECT_EQ(compiled.statistics().compiles, 1);
    }
  }
}

TEST(ShardStep, ALossFromChunksHasTheBitsOfWholeLogits) {
  for (const DType compute : {DType::f32, DType::bf16}) {
    SmallModel setup(compute);
    const ShardGradients expected = setup.run(setup.step(false));
    setup.forward.loss_max_bytes = 60'000;
    for (const bool compiled : {false, true}) {
      const ShardGradients got = setup.run(setup.step(compiled));
      expect_same(got.losses, expected.losses);
      for (size_t p = 0; p < got.uses.size(); ++p) {
        ASSERT_EQ(got.uses[p].size(), expected.uses[p].size());
        for (size_t u = 0; u < got.uses[p].size(); ++u) expect_same(got.uses[p][u], expected.uses[p][u]);
      }
    }
  }
}

TEST(ShardStep, EveryMemoryBudgetHasTheBitsOfEager) {
  SmallModel setup(DType::bf16, false);
  const ShardGradients expected = setup.run(setup.step(false));
  int64_t kept = std::numeric_limits<int64_t>::max();
  for (const double budget : {1.0, 0.6, 0.3, 0.0}) {
    const ShardStep step = setup.step(true, budget);
    const ShardGradients got = setup.run(step);
    expect_same(got.losses, expected.losses);
    for (size_t p = 0; p < got.uses.size(); ++p) {
      for (size_t u = 0; u < got.uses[p].size(); ++u) expect_same(got.uses[p][u], expected.uses[p][u]);
    }
    EXPECT_LT(step.statistics().partition.kept_bytes, kept) << "budget " << budget;
    kept = step.statistics().partition.kept_bytes;
  }
}

// The step of a rank that has a part of the model is one graph, collectives included.
TEST(ShardStep, CompiledHasTheBitsOfEagerWhereRanksDivideTheModel) {
  const codegen::ContractionLeafForTests contraction(4);
  const ClassLeafScope classes(8);
  const TokenGrainScope grain(4);
  models::DecoderSizes sizes = SmallModel::sizes();
  sizes.heads = 4, sizes.kv_heads = 2, sizes.vocab = 136;
  for (const DType compute : {DType::f32, DType::bf16}) {
    comm::run_ranks(2, [&](comm::ProcessGroup&) {
      seed_all(5);
      SmallModel setup(sizes, compute, compute == DType::bf16, dist::init_device_mesh("cpu", {2}, {.names = {"tp"}}));
      const ShardStep eager = setup.step(false), compiled = setup.step(true);
      for (int seed = 1; seed < 4; ++seed) {
        const ShardGradients a = setup.run(eager, seed), b = setup.run(compiled, seed);
        expect_same(a.losses, b.losses);
        for (size_t p = 0; p < a.uses.size(); ++p) {
          for (size_t u = 0; u < a.uses[p].size(); ++u) expect_same(a.uses[p][u], b.uses[p][u]);
        }
      }
      EXPECT_EQ(compiled.statistics().compiles, 1);
      EXPECT_EQ(compiled.statistics().eager_calls, 0);
      EXPECT_NE(compiled.explain().find("reduce_scatter"), std::string::npos) << compiled.explain();
    });
  }
}

// "file.cpp:12 (function)" -> the text of that line, of the sources of models and trainer.
std::string text_of(const std::string& where) {
  const size_t colon = where.find(':');
  for (const char* room : {"models", "train/step"}) {
    std::ifstream file(std::string(TUTTI_SOURCE_DIR "/tutti/") + room + "/" + where.substr(0, colon));
    std::string text;
    int number = std::stoi(where.substr(colon + 1));
    while (number-- > 0 && std::getline(file, text)) {
    }
    if (file) return text;
  }
  return "";
}

// The words by which the model may call an op: its own name, or that of the function or module that is made of it.
bool calls(const std::string& text, const std::string& op) {
  const auto has = [&](const char* word) { return text.find(word) != std::string::npos; };
  if (op.starts_with("deliver_")) return has("backward(");
  if (op.starts_with("matmul")) return has("matmul(") || has("_proj(") || has("multi_linear(") || has("product(");
  if (op == "rms_norm") return has("norm(");
  if (op == "embedding") return has("embed_tokens(");
  for (const char* word : {"rope", "sdpa"}) {
    if (op.starts_with(word)) return has(word);
  }
  if (op == "full") return has("sdpa(") || has("cross_entropy(");
  return has(op.c_str());
}

TEST(ShardStep, EveryKernelNamesALineOfTheModelThatCallsItsOp) {
  SmallModel setup;
  const ShardStep step = setup.step(true);
  setup.run(step);
  Profiler profiler;
  ASSERT_TRUE(profiler.start({.filter = TraceFilter::this_thread, .memory = false}).ok());
  setup.run(step);
  profiler.stop();
  int forward = 0, backward = 0;
  for (const TraceHarvest::Thread& thread : profiler.trace().threads) {
    for (int64_t i = 0; i < thread.size; ++i) {
      const TraceEvent& event = (*thread.log)[i];
      if (event.kernel == nullptr || event.context.graph_key == nullptr) continue;
      const KernelInfo& info = event.kernel->info;
      const std::vector<std::string> stack = !info.stack.empty()   ? info.stack
                                             : event.context.place ? event.context.place->stack
                                                                   : info.stack;
      ASSERT_FALSE(stack.empty()) << info.kernel_id;
      bool found = false;
      std::string seen;
      for (const std::string& line : stack) {
        const std::string text = text_of(line);
        seen += "\n  " + line + ": " + text;
        for (const KernelOp& op : info.ops) {
          std::string name = op.name.substr(0, op.name.find("_backward"));
          if (name == "rms_norm_weight") name = "rms_norm";
          found = found || calls(text, name);
        }
      }
      EXPECT_TRUE(found) << info.kernel_id << " names" << seen;
      ++(event.context.phase == TracePhase::backward || info.phase == TracePhase::backward ? backward : forward);
    }
  }
  EXPECT_GT(forward, 20);
  EXPECT_GT(backward, 30);
}

}  // namespace
}  // namespace tutti::train
