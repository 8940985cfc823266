// Mixtures of experts whose weights stay the quantized blocks of their file.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/models/support/family_cases.h"
#include "tests/models/support/first_weights.h"
#include "tests/support/same_bits.h"
#include "tests/support/temporary_folder.h"
#include "tutti/autograd/tape.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/core/block_format.h"
#include "tutti/graph/compile.h"
#include "tutti/models/decoder_plan.h"
#include "tutti/models/published_gguf.h"
#include "tutti/nn/moe.h"
#include "tutti/ops.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/parallel/expert_parallel.h"
#include "tutti/parallel/tensor_parallel.h"

namespace tutti::models {
namespace {

using tutti::testing::TemporaryFolder;

// Sizes that are whole blocks of every format.
DecoderConfig config_of(const std::string& family) {
  if (family != "gemma4") {
    DecoderConfig config = decoder_of(family, {.flavor = "quantized",
                                               .dim = 256,
                                               .layers = 2,
                                               .heads = 4,
                                               .kv_heads = 2,
                                               .ffn_dim = 256,
                                               .vocab = 262,
                                               .tied_embeddings = false,
                                               .head_dim = 64,
                                               .rope_theta = 1e4,
                                               .experts = 6,
                                               .active_experts = 2});
    for (LayerConfig& layer : config.layers) layer.attention.query_key_norms = family == "qwen3";
    return config;
  }
  DecoderConfig config = published_description(families_folder() / "gemma4-experts");
  config.dim = 256, config.vocab = 262;
  config.embedding_scale = 16;
  for (LayerConfig& layer : config.layers) {
    layer.attention.heads = 4, layer.attention.kv_heads = 2, layer.attention.head_dim = 64;
    layer.feed_forward.hidden_dim = 512;
    layer.experts_beside.experts = 6, layer.experts_beside.hidden_dim = 256;
  }
  return config;
}

std::unique_ptr<Decoder> open(const std::filesystem::path& path, bool keeps_blocks, DType dtype = DType::f32) {
  const PublishedModel published(path);
  auto model = std::make_unique<Decoder>(published.config(), 512);
  model->to(dtype);
  model->eval();
  published.load(*model, {.freeze = true, .keep_blocks = keeps_blocks});
  return model;
}

TokenBatch some_tokens(int64_t count) {
  std::vector<int32_t> tokens, positions;
  for (int64_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<int32_t>(i * 37 % 251)), positions.push_back(static_cast<int32_t>(i));
  return {Tensor::of(tokens), Tensor::of(positions), Tensor::of(std::vector<int32_t>(tokens.size(), 0)), 1};
}

struct QuantizedExperts : ::testing::TestWithParam<std::string> {
  void SetUp() override { write_first_weights(config_of(GetParam()), DType::f32, work / "source"); }
  std::filesystem::path written(FileType type) const {
    const std::filesystem::path path = work / fmt::format("{}.gguf", static_cast<int>(type));
    write_published_gguf(PublishedModel(work / "source"), path, {.type = type});
    return path;
  }
  const NoGradScope no_grad;
  const TemporaryFolder work;
};
INSTANTIATE_TEST_SUITE_P(, QuantizedExperts, ::testing::Values("mixtral", "qwen3", "gemma4"), name_of_case);

TEST_P(QuantizedExperts, AreComputedWithInTheirFile) {
  for (const FileType type : {FileType::q4_0, FileType::q8_0, FileType::q4_k_m, FileType::q6_k}) {
    const std::filesystem::path path = written(type);
    const auto kept = open(path, true), decoded = open(path, false);
    const std::vector<nn::NamedParameter> blocks = kept->named_parameters(), all = decoded->named_parameters();
    int64_t experts = 0;
    for (size_t i = 0; i < blocks.size(); ++i) {
      const auto& [name, p] = blocks[i];
      const nn::Parameter& numbers = all[i].parameter;
      EXPECT_FALSE(p.holds_blocks() && name.ends_with("gate.weight")) << "the router stays f32";
      if (p.sizes().ndim() < 3) continue;
      ++experts;
      ASSERT_TRUE(p.holds_blocks()) << name;
      EXPECT_TRUE(p.blocks().storage()->is_read_only()) << name << " is not in the pages of the file";
      expect_same_bits(dequantize(p.blocks(), p.block_format()), numbers.master(), name);
    }
    EXPECT_EQ(experts, 3 * std::ssize(kept->config().layers));
    for (const int64_t tokens : {1, 19}) {
      const Tensor got = kept->forward(some_tokens(tokens)), expected = decoded->forward(some_tokens(tokens));
      EXPECT_GT(difference(got, expected), 1e-4) << "activations are rounded to 8 bits";
      // A token for which two experts are nearly as good may take the other one, as many do in models with random
      // weights whose norms make every difference large. The next test compares bits.
      int64_t near = 0;
      for (int64_t t = 0; t < tokens; ++t)
        near += difference(narrow(got, 0, t, 1), narrow(expected, 0, t, 1)) < 0.08 ? 1 : 0;
      EXPECT_GE(near, tokens / 4) << static_cast<int>(type);
    }
  }
}

// Each row is that of three products with the matrices of its expert.
TEST_P(QuantizedExperts, HaveTheBitsOfTheProductsOfEachExpert) {
  const auto model = open(written(FileType::q4_k_m), true);
  for (const nn::NamedMoE& moe : nn::moe_layers(*model)) {
    const nn::GroupedExperts& experts = *moe.layer->experts;
    const Tensor rows = facets::sample_tensor(3, {11, 256});
    const std::vector<int64_t> ends{2, 2, 3, 9, 11, 11};
    const Tensor got = experts.forward({.rows_ND = rows, .offsets_E = Tensor::of(ends)});
    int64_t begin = 0;
    for (size_t e = 0; e < ends.size(); ++e) {
      const auto product = [&](const Tensor& x, const nn::Parameter& w) {
        return quantized_linear(x, contiguous(select(w.blocks(), 0, static_cast<int64_t>(e))), w.block_format());
      };
      const Tensor x = narrow(rows, 0, begin, ends[e] - begin), gate = product(x, experts.w1);
      const Tensor active = moe.layer->options().activation == nn::ExpertActivation::silu
                                ? swiglu(gate, product(x, experts.w3))
                                : mul(gelu(gate, GeluForm::tanh), product(x, experts.w3));
      expect_same_bits(contiguous(narrow(got, 0, begin, ends[e] - begin)), product(active, experts.w2),
                       fmt::format("{} expert {}", moe.name, e));
      begin = ends[e];
    }
  }
}

TEST_P(QuantizedExperts, AreEntriesOfStateDicts) {
  const auto model = open(written(FileType::q4_k_m), true);
  const Tensor expected = model->forward(some_tokens(9));
  Decoder copied(model->config(), 512), from_file(model->config(), 512);
  copied.eval(), from_file.eval();
  copied.load_state_dict(model->state_dict());
  expect_same_bits(copied.forward(some_tokens(9)), expected);
  nn::save(*model, work / "blocks.safetensors");
  nn::load(from_file, work / "blocks.safetensors", {.freeze = true});
  expect_same_bits(from_file.forward(some_tokens(9)), expected);
}

// Ranks divide experts, products or both; each of them has its part of the bytes.
TEST_P(QuantizedExperts, HaveTheBitsOfOneRankOnSeveral) {
  const std::filesystem::path path = written(FileType::q4_0);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto whole = open(path, true, dtype);
    const Tensor expected = whole->forward(some_tokens(21)), of_one = whole->forward(some_tokens(1));
    for (const auto& [products, experts, compiles] :
         {std::tuple{false, true, false}, {true, false, false}, {true, true, false}, {false, true, true}}) {
      comm::run_ranks(2, [&, products = products, experts = experts, compiles = compiles](comm::ProcessGroup&) {
        const NoGradScope also_here;
        const auto model = open(path, true, dtype);
        const dist::Mesh mesh = dist::init_device_mesh("cpu", {2}, {.names = {"tp"}});
        const dist::Mesh of_experts =
            dist::init_device_mesh("cpu", experts ? std::vector<int64_t>{1, 2} : std::vector<int64_t>{2, 1},
                                   {.names = {"edp", "ep"}})
                ->slice({"ep"});
        parallel::expert_parallel(*model, of_experts);
        if (products) parallel::parallelize_module(*model, mesh, model->tensor_parallel_plan(false));
        for (const nn::NamedParameter& p : model->named_parameters()) {
          if (p.parameter.sizes().ndim() != 3) continue;
          const Tensor part = dist::to_local(p.parameter.blocks());
          EXPECT_EQ(part.nbytes() * (experts ? 2 : 1), p.parameter.blocks().nbytes()) << p.name;
          EXPECT_TRUE(part.storage()->is_read_only()) << p.name;
        }
        std::function<Tensor(const TokenBatch&)> f = [&](const TokenBatch& batch) {
          return products ? dist::full_tensor(model->forward(replicated(batch, mesh))) : model->forward(batch);
        };
        if (compiles) {
          const auto by_tokens = compile([&](const Tensor& tokens, const Tensor& positions, const Tensor& first) {
            return model->forward({tokens, positions, first, 1});
          });
          f = [by_tokens](const TokenBatch& b) { return by_tokens(b.tokens, b.positions, b.first_key); };
        }
        const std::string what = fmt::format("{} {} {} {}", name_of(dtype), products, experts, compiles);
        expect_same_bits(f(some_tokens(21)), expected, what);
        expect_same_bits(f(some_tokens(1)), of_one, what);
      });
    }
  }
}

}  // namespace
}  // namespace tutti::models
