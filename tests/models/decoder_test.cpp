#include "tutti/models/decoder.h"
#include "tutti/models/families/qwen3.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/low_rank_operand.h"
#include "tests/support/message_of.h"
#include "tutti/autograd/backward.h"
#include "tutti/ops.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::models {
namespace {

DecoderSizes tiny() {
  return {.flavor = "tiny",
          .dim = 24,
          .layers = 2,
          .heads = 4,
          .kv_heads = 2,
          .ffn_dim = 40,
          .vocab = 37,
          .tied_embeddings = true,
          .head_dim = 8};
}

TokenBatch batch_of(const std::vector<int32_t>& tokens, int64_t rows) {
  const int32_t length = static_cast<int32_t>(tokens.size()) / static_cast<int32_t>(rows);
  std::vector<int32_t> positions(tokens.size()), first(tokens.size(), 0);
  for (size_t i = 0; i < tokens.size(); ++i) positions[i] = static_cast<int32_t>(i) % length;
  return {Tensor::of(tokens), Tensor::of(positions), Tensor::of(first), rows};
}

std::vector<int32_t> some_tokens(int n) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < n; ++i) tokens.push_back((i * 17 + 5) % 37);
  return tokens;
}

std::vector<float> values(const Tensor& t) { return {t.data<float>(), t.data<float>() + t.numel()}; }

struct Published {
  const char* flavor;
  int64_t parameters;
  double gflop_per_token;  // at 4096 tokens
};
class Qwen3Sizes : public testing::TestWithParam<Published> {};

TEST_P(Qwen3Sizes, MatchThePublishedTable) {
  const DecoderSizes config = qwen3_sizes(GetParam().flavor);
  EXPECT_EQ(parameter_count(qwen3(config)), GetParam().parameters);
  EXPECT_NEAR(training_flops_per_token(qwen3(config), 4096) / 1e9, GetParam().gflop_per_token, 0.0006);
}
INSTANTIATE_TEST_SUITE_P(
    , Qwen3Sizes,
    testing::Values(Published{"debugmodel", 31'987'968, 0.997}, Published{"0.6B", 596'049'920, 6.395},
                    Published{"1.7B", 1'720'574'976, 13.142}, Published{"4B", 4'022'468'096, 31.383},
                    Published{"8B", 8'190'735'360, 52.658}, Published{"14B", 14'768'307'200, 94.009},
                    Published{"32B", 32'762'123'264, 217.675}, Published{"30B-A3B", 30'532'122'624, 27.915},
                    Published{"debugmodel_moe", 315'234'560, 1.111}),
    [](const auto& info) {
      std::string name = info.param.flavor;
      for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
      return name;
    });

TEST(Qwen3, CountsTheParametersItHas) {
  for (const bool tied : {true, false}) {
    DecoderSizes config = tiny();
    config.tied_embeddings = tied;
    EXPECT_EQ(Decoder(qwen3(config), 8).parameter_count(), parameter_count(qwen3(config)));
    EXPECT_EQ(active_parameter_count(qwen3(config)), parameter_count(qwen3(config)));
    config.experts = 5, config.active_experts = 2;
    EXPECT_EQ(Decoder(qwen3(config), 8).parameter_count(), parameter_count(qwen3(config)));
    EXPECT_EQ(parameter_count(qwen3(config)) - active_parameter_count(qwen3(config)),
              config.layers * 3 * 3 * config.dim * config.ffn_dim)
        << "3 experts that a token does not take";
  }
}

// 30.5 billion parameters, of which a token meets 3.3 billion.
TEST(Qwen3, HasThePublishedActiveParameters) {
  EXPECT_EQ(active_parameter_count(qwen3(qwen3_sizes("30B-A3B"))), 3'353'032'704);
}

TEST(Qwen3, NamesParametersAsPublishedWeightsDo) {
  std::vector<std::string> names;
  for (const auto& p : Decoder(qwen3(tiny()), 8).named_parameters()) names.push_back(p.name);
  for (const char* name :
       {"model.embed_tokens.weight", "model.layers.1.self_attn.q_proj.weight", "model.layers.0.self_attn.k_norm.weight",
        "model.layers.0.mlp.gate_proj.weight", "model.layers.0.post_attention_layernorm.weight", "model.norm.weight"})
    EXPECT_NE(std::find(names.begin(), names.end(), name), names.end()) << name;
}

// Built without memory, counted, and one parameter of it made real: its bits depend on seed, name and position only.
TEST(Qwen3, OfAnySizeIsBuiltWithoutMemory) {
  seed_all(5);
  Allocator& allocator = RankContext::current().allocator();
  const int64_t before = allocator.statistics().current_bytes;
  allocator.reset_peak();
  const auto model = make_model("qwen3", "32B", {.max_positions = 40960});
  const auto parameters = model->named_parameters();
  EXPECT_EQ(model->parameter_count(), parameter_count(qwen3(qwen3_sizes("32B"))));
  EXPECT_LT(allocator.statistics().peak_bytes - before, 1 << 20);
  for (const nn::NamedParameter& p : parameters) {
    if (p.name != "model.layers.63.self_attn.k_proj.weight") continue;
    p.parameter.initialize(p.name);
    const Tensor drawn = normal({1024, 5120}, random_key("model.layers.63.self_attn.k_proj.weight"), 0.0, 0.02);
    EXPECT_EQ(std::memcmp(p.parameter.master().raw_data(), drawn.raw_data(), static_cast<size_t>(drawn.nbytes())), 0);
    EXPECT_LT(allocator.statistics().peak_bytes - before, 100 << 20);
    return;
  }
  FAIL() << "no such parameter";
}

TEST(Models, UnknownFamilyNamesTheOnesThereAre) {
  EXPECT_NE(message_of([] { make_model("qwen33", "tiny", {}); }).find("did you mean 'qwen3'"), std::string::npos);
}

TEST(Qwen3, DropoutActsInTrainingOnly) {
  seed_all(1);
  Decoder model(qwen3(tiny()), ModelOptions{.max_positions = 32, .dropout = 0.5}), plain(qwen3(tiny()), 32);
  nn::initialize(model), nn::initialize(plain);
  NoGradScope no_grad;
  const auto logits = [](const Decoder& m) { return values(m.forward(batch_of(some_tokens(20), 1))); };
  EXPECT_NE(logits(model), logits(plain));
  const nn::EvalScope evaluating(model);
  EXPECT_EQ(logits(model), logits(plain));
}

TEST(Qwen3, UnknownFlavorNamesTheNearest) {
  try {
    qwen3_sizes("debugmodl");
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("did you mean 'debugmodel'"), std::string::npos) << e.what();
  }
}

TEST(Qwen3, LaterTokensDoNotChangeEarlierLogits) {
  seed_all(1);
  Decoder model(qwen3(tiny()), 32);
  nn::initialize(model);
  NoGradScope no_grad;
  std::vector<int32_t> tokens = some_tokens(20);
  const std::vector<float> before = values(model.forward(batch_of(tokens, 1)));
  tokens[19] = 3;
  const std::vector<float> after = values(model.forward(batch_of(tokens, 1)));
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + 19 * 37, after.begin()));
  EXPECT_FALSE(std::equal(before.begin() + 19 * 37, before.end(), after.begin() + 19 * 37));
}

TEST(Qwen3, ARowsLogitsDoNotDependOnTheBatch) {
  seed_all(1);
  Decoder model(qwen3(tiny()), 32);
  nn::initialize(model);
  NoGradScope no_grad;
  const std::vector<int32_t> tokens = some_tokens(24);
  const std::vector<float> both = values(model.forward(batch_of(tokens, 2)));
  const std::vector<float> second = values(model.forward(batch_of({tokens.begin() + 12, tokens.end()}, 1)));
  EXPECT_TRUE(std::equal(second.begin(), second.end(), both.begin() + 12 * 37));
}

TEST(Qwen3, InitialisesByNameAndSeedOnly) {
  const auto first_values = [](uint64_t seed) {
    seed_all(seed);
    Decoder model(qwen3(tiny()), 8);
    nn::initialize(model);
    return values(model.named_parameters()[3].parameter.master());
  };
  EXPECT_EQ(first_values(1), first_values(1));
  EXPECT_NE(first_values(1), first_values(2));
}

class Qwen3Blocks : public testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(WithExperts, Qwen3Blocks, testing::Values(0, 5));

TEST_P(Qwen3Blocks, CheckpointedGiveTheSameGradients) {
  seed_all(1);
  DecoderSizes config = tiny();
  config.experts = GetParam(), config.active_experts = 2;
  Decoder model(qwen3(config), 32);
  nn::initialize(model);
  const auto gradients = [&](bool checkpointed) {
    const Tensor logits = model.forward(batch_of(some_tokens(20), 2), {.checkpoint_blocks = checkpointed});
    const Tensor losses = cross_entropy(logits, Tensor::of(some_tokens(20)));
    backward(losses, full_like(losses, 0.05), {.per_use = true});
    std::vector<std::vector<float>> all;
    for (const auto& p : model.named_parameters()) {
      for (const Tensor& use : take_uses(p.parameter.leaf())) all.push_back(values(to_contiguous(use)));
    }
    return all;
  };
  EXPECT_EQ(gradients(false), gradients(true));
}

TEST_P(Qwen3Blocks, ComputeInBf16WithF32Gradients) {
  seed_all(1);
  DecoderSizes config = tiny();
  config.experts = GetParam(), config.active_experts = 2;
  Decoder model(qwen3(config), 32);
  model.to(DType::bf16);
  nn::initialize(model);
  const Tensor losses = cross_entropy(model.forward(batch_of(some_tokens(12), 1)), Tensor::of(some_tokens(12)));
  backward(losses, full_like(losses, 0.1));
  for (const auto& p : model.named_parameters()) EXPECT_EQ(p.parameter.grad().dtype(), DType::f32) << p.name;
}

// Another kind of operand in every linear layer, the head included: no line of the decoder knows it.
TEST(Decoder, RunsWithLowRankOperands) {
  DecoderSizes sizes = tiny();
  sizes.tied_embeddings = false;
  const TokenBatch batch = batch_of(some_tokens(12), 2);
  const Tensor labels = Tensor::of(some_tokens(12));
  const auto run = [&](const nn::Init& b, bool is_low_rank, bool is_merged) {
    seed_all(4);
    Decoder model(qwen3(sizes), 16);
    std::vector<std::pair<nn::Linear*, std::shared_ptr<const nn::LowRankOperand>>> replaced;
    for (const nn::NamedModule& m : model.named_modules()) {
      auto* layer = dynamic_cast<nn::Linear*>(m.module);
      if (layer != nullptr && is_low_rank) replaced.emplace_back(layer, nn::make_low_rank(*layer, 3, b));
    }
    nn::initialize(model);
    if (is_merged) {
      for (auto& [layer, operand] : replaced) {
        layer->weight.assign(detach(operand->merged()));
        layer->set_operand(std::make_shared<nn::DenseOperand>(layer->weight));
      }
    }
    std::vector<Tensor> results{model.forward(batch)};
    for (const int64_t most : {0, 4096}) results.push_back(model.losses(batch, labels, {.loss_max_bytes = most}));
    backward(sum(results.back()));
    if (is_low_rank && !is_merged) {
      EXPECT_EQ(replaced.size(), 15U);
      for (const nn::NamedParameter& p : model.named_parameters()) EXPECT_TRUE(p.parameter.grad().defined()) << p.name;
    }
    return results;
  };
  const std::vector<Tensor> dense = run(nn::Init::zeros(), false, false), zero = run(nn::Init::zeros(), true, false),
                            low_rank = run(nn::Init::normal(0.1), true, false),
                            merged = run(nn::Init::normal(0.1), true, true);
  EXPECT_EQ(values(zero[0]), values(dense[0])) << "a term of zeros adds nothing";
  for (size_t i = 0; i < dense.size(); ++i) {
    EXPECT_NE(values(low_rank[i]), values(dense[i]));
    const std::vector<float> got = values(low_rank[i]), expected = values(merged[i]);
    for (size_t k = 0; k < got.size(); ++k) ASSERT_NEAR(got[k], expected[k], 1e-4);
  }
}

}  // namespace
}  // namespace tutti::models
