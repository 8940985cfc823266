// Decoders under their plans: losses and all gradients have the bits of one rank.
#include "tutti/models/decoder_plan.h"

#include "tutti/models/families/qwen3.h"
#include "tutti/models/published_gemma4.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <optional>
#include <stdexcept>

#include "tests/support/message_of.h"
#include "tutti/autograd/backward.h"
#include "tutti/codegen/gemm/contraction_tree.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/cross_entropy.h"
#include "tutti/ops/random_key.h"
#include "tutti/ops/sum_to.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::models {
namespace {

// Leaves so small that the model below can be cut over four ranks.
struct SmallLeaves {
  codegen::ContractionLeafForTests contraction{4};
  ClassLeafScope classes{8};
  TokenGrainScope grain{2};
};

DecoderConfig small(bool tied) {
  return qwen3({.flavor = "small",
                .dim = 20,
                .layers = 2,
                .heads = 8,
                .kv_heads = 4,
                .ffn_dim = 42,
                .vocab = 70,
                .tied_embeddings = tied,
                .head_dim = 6});
}

// The same sizes with all that Gemma 2 and 3 have.
DecoderConfig small_gemma() {
  DecoderConfig config = small(true);
  make_gemma(config);
  config.logits_cap = 3;
  for (LayerConfig& layer : config.layers) layer.attention.scale = 0.3, layer.attention.score_cap = 2;
  config.layers[0].attention.window = 3, config.layers[0].attention.rope.theta = 1e4;
  return config;
}

// Heads of two sizes, keys that are values in the second of each two layers, shared by the last two, inputs of layers,
// or experts beside the feed-forward.
DecoderConfig small_gemma4(bool has_experts) {
  DecoderConfig config = small(true);
  config.layers.resize(4, config.layers[0]);
  make_gemma4(config);
  config.logits_cap = 3, config.per_layer_inputs = has_experts ? 0 : 3;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    AttentionConfig& a = config.layers[i].attention;
    if (i % 2 == 0) a.window = 3, a.rope = gemma4_sliding_rope();
    else a.rope = gemma4_full_rope(), a.head_dim = 10, a.keys_are_values = true;
    if (has_experts)
      config.layers[i].experts_beside = {.hidden_dim = 5,
                                         .experts = 6,
                                         .active_experts = 2,
                                         .activation = Activation::gelu_tanh,
                                         .scaled_router = true};
  }
  share_keys(has_experts ? 0 : 2, config);
  return config;
}

struct Run {
  DecoderConfig config;
  int ranks;
  bool sequence = false;
  DType dtype = DType::f32;
  ForwardOptions forward = {};
  double dropout = 0;
  int32_t length = 8;
};

using Values = std::map<std::string, std::vector<float>>;

std::vector<float> values(const Tensor& t) {
  const NoGradScope no_grad;
  const Tensor whole = to_contiguous(dist::is_dtensor(t) ? dist::full_tensor(t) : t);
  return {whole.data<float>(), whole.data<float>() + whole.numel()};
}

// Two rows, the second of which holds two documents.
Values losses_and_gradients(const Run& run, const dist::Mesh& mesh) {
  seed_all(3);
  Decoder model(run.config, ModelOptions{.max_positions = run.length, .dropout = run.dropout});
  if (run.dtype != DType::f32) model.to(run.dtype);
  if (mesh != nullptr) parallel::parallelize_module(model, mesh, decoder_plan(run.config, run.sequence));
  nn::initialize(model);
  const int32_t vocab = static_cast<int32_t>(run.config.vocab), second = run.length + run.length / 2;
  std::vector<int32_t> tokens, labels, positions, first;
  for (int32_t i = 0; i < 2 * run.length; ++i) {
    tokens.push_back((i * 29 + 5) % vocab);
    labels.push_back(i == 3 ? static_cast<int32_t>(kIgnoreLabel) : (i * 17 + 1) % vocab);
    first.push_back(i >= second ? second - run.length : 0);
    positions.push_back(i % run.length - first.back());
  }
  TokenBatch batch{Tensor::of(tokens), Tensor::of(positions), Tensor::of(first), 2};
  Tensor targets = Tensor::of(labels);
  if (mesh != nullptr) batch = replicated(batch, mesh), targets = replicated(targets, mesh);
  const DrawScope draws(1, 0);
  const Tensor losses = model.losses(batch, targets, run.forward);
  backward(losses, full_like(losses, 0.0625));
  Values result{{"losses", values(losses)}};
  for (const auto& [name, p] : model.named_parameters()) result[name] = values(p.grad());
  return result;
}

void expect_the_bits_of_one_rank(const Run& run) {
  const Values expected = losses_and_gradients(run, nullptr);
  comm::run_ranks(run.ranks, [&](comm::ProcessGroup&) {
    const Values seen = losses_and_gradients(run, dist::init_device_mesh("cpu", {run.ranks}, {.names = {"tp"}}));
    for (const auto& [name, one] : expected) {
      // Gradients of experts count the tokens of each rank alone.
      if (name.find(".moe.experts.") != name.npos) continue;
      const std::vector<float>& here = seen.at(name);
      if (here.size() != one.size() || std::memcmp(here.data(), one.data(), one.size() * sizeof(float)) != 0)
        throw std::logic_error(name + " has other bits than on one rank");
    }
  });
}

TEST(Qwen3Plan, HasTheLossesAndGradientsOfOneRank) {
  const SmallLeaves leaves;
  for (const int ranks : {2, 4}) {
    for (const bool sequence : {false, true}) {
      for (const DType dtype : {DType::f32, DType::bf16})
        expect_the_bits_of_one_rank({small(true), ranks, sequence, dtype});
    }
  }
}

TEST(Qwen3Plan, HasThemWithAHeadOfItsOwn) {
  const SmallLeaves leaves;
  for (const bool sequence : {false, true}) expect_the_bits_of_one_rank({small(false), 4, sequence});
}

TEST(Qwen3Plan, HasThemWithCheckpointsDropoutAndTheLossInChunks) {
  const SmallLeaves leaves;
  for (const bool sequence : {false, true}) {
    expect_the_bits_of_one_rank({small(true), 2, sequence, DType::f32, {.checkpoint_blocks = true}});
    expect_the_bits_of_one_rank(
        {small(true), 2, sequence, DType::bf16, {.checkpoint_blocks = true, .loss_max_bytes = 1 << 20}, 0.25});
    expect_the_bits_of_one_rank({small(true), 4, sequence, DType::f32, {.loss_max_bytes = 1 << 20}, 0.25});
  }
}

TEST(GemmaPlan, HasTheLossesAndGradientsOfOneRank) {
  const SmallLeaves leaves;
  for (const int ranks : {2, 4}) {
    for (const bool sequence : {false, true}) {
      expect_the_bits_of_one_rank({small_gemma(), ranks, sequence});
      expect_the_bits_of_one_rank({small_gemma(), ranks, sequence, DType::bf16, {.loss_max_bytes = 1 << 20}, 0.25});
    }
  }
}

TEST(Gemma4Plan, HasTheLossesAndGradientsOfOneRank) {
  const SmallLeaves leaves;
  for (const bool has_experts : {false, true}) {
    for (const int ranks : {2, 4}) {
      for (const bool sequence : {false, true}) {
        expect_the_bits_of_one_rank({small_gemma4(has_experts), ranks, sequence});
        expect_the_bits_of_one_rank(
            {small_gemma4(has_experts), ranks, sequence, DType::bf16, {.checkpoint_blocks = true}, 0.25});
      }
    }
  }
}

// With the leaves of the contract.
TEST(Qwen3Plan, HasThemInAFlavorThatIsLegalForFourRanks) {
  const TokenGrainScope grain(16);
  for (const bool sequence : {false, true})
    expect_the_bits_of_one_rank({qwen3(qwen3_sizes("tiny-tp4")), 4, sequence, DType::f32, {}, 0, 32});
}

TEST(Qwen3Plan, KnowsTheLargestDegreeOfEveryFlavor) {
  const std::pair<const char*, int64_t> rows[] = {
      {"tiny", 1},       {"tiny-tp4", 4}, {"quickstart", 1}, {"quickstart-tp4", 4},
      {"debugmodel", 4}, {"0.6B", 8},     {"32B", 8}};
  for (const auto& [flavor, largest] : rows) {
    EXPECT_EQ(largest_tensor_parallel_degree(qwen3(qwen3_sizes(flavor))), largest) << flavor;
    EXPECT_NO_THROW(check_tensor_parallel(qwen3(qwen3_sizes(flavor)), largest));
    EXPECT_THROW(check_tensor_parallel(qwen3(qwen3_sizes(flavor)), 2 * largest), UsageError) << flavor;
    Decoder model(qwen3(qwen3_sizes(flavor)), 8);
    EXPECT_GE(parallel::largest_parallel_degree(model, decoder_plan(qwen3(qwen3_sizes(flavor)))), largest) << flavor;
  }
  EXPECT_LT(parameter_count(qwen3(qwen3_sizes("quickstart-tp4"))), 3'000'000);
}

TEST(Qwen3Plan, RefusesDegreesThatWouldHaveOtherBits) {
  const auto says = [](const char* flavor, int64_t degree, int64_t tokens) {
    return message_of([&] { check_tensor_parallel(qwen3(qwen3_sizes(flavor)), degree, tokens); });
  };
  EXPECT_EQ(says("debugmodel", 8, 0),
            "qwen3 debugmodel: tensor parallelism over 8 ranks would not have the bits of one rank; expected a power "
            "of two up to 4, for degrees are bounded by the sum over 2048 classes of "
            "the vocabulary, whose leaves have 512 (4)");
  EXPECT_EQ(says("debugmodel", 3, 0),
            "qwen3 debugmodel: tensor parallelism over 3 ranks would not have the bits of one rank; expected a power "
            "of two up to 4");
  EXPECT_NE(says("quickstart", 2, 0).find("up to 1, for degrees are bounded by 3 key/value heads (1)"),
            std::string::npos)
      << says("quickstart", 2, 0);
  EXPECT_NE(says("debugmodel", 4, 256)
                .find("the sum over 256 tokens of a batch, which sequence parallelism cuts, whose leaves have 128 (2)"),
            std::string::npos)
      << says("debugmodel", 4, 256);
}

TEST(Qwen3Plan, DividesTheTokensOfExpertsNotTheirFeatures) {
  const Decoder model(qwen3(qwen3_sizes("tiny_moe-tp4")), 8);
  EXPECT_EQ(message_of([&] { model.check_tensor_parallel(4, 512, 128); }), "no error");
  EXPECT_EQ(message_of([&] { model.check_tensor_parallel(4, 256, 128); }),
            "qwen3 tiny_moe-tp4: tensor parallelism over 4 ranks would not have the bits of one rank; expected a power "
            "of two up to 2, for degrees are bounded by the 256 tokens of a "
            "batch, which a mixture of experts cuts between ranges of numerics.token_grain = 128 (2)");
  EXPECT_NE(message_of([&] {
              model.check_tensor_parallel(2, 384, 128);
            }).find("expected a power of two up to 1, for degrees are bounded by the 384 tokens"),
            std::string::npos);
  for (const bool sequence_parallel : {false, true}) {
    for (const parallel::PlanEntry& entry : model.tensor_parallel_plan(sequence_parallel))
      EXPECT_EQ(entry.pattern.find("mlp."), std::string::npos) << entry.pattern;
  }
}

}  // namespace
}  // namespace tutti::models
