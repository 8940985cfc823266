// The logits of committed tiny checkpoints, dense and with experts, against an independent float64 forward
// (forward_float64.py).
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tutti/autograd/tape.h"
#include "tutti/io/safetensors.h"
#include "tutti/models/decoder.h"
#include "tutti/models/families/qwen3.h"
#include "tutti/nn/published_experts.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::models {
namespace {

struct Checkpoint {
  const char *name, *folder;
  DecoderSizes config;
  double bf16;  // the difference that is accepted in bf16, where a token may take another expert
  std::string path(const char* file) const { return std::string(folder) + file; }
};
void PrintTo(const Checkpoint& c, std::ostream* out) { *out << c.name; }

DecoderSizes tiny() {
  return {.flavor = "tiny",
          .dim = 24,
          .layers = 2,
          .heads = 4,
          .kv_heads = 2,
          .ffn_dim = 40,
          .vocab = 37,
          .tied_embeddings = true,
          .head_dim = 8,
          .init_std = 0.3};
}

DecoderSizes tiny_moe() {
  DecoderSizes config = tiny();
  config.ffn_dim = 10, config.experts = 6, config.active_experts = 2;
  return config;
}

class ForwardFloat64 : public testing::TestWithParam<Checkpoint> {};
INSTANTIATE_TEST_SUITE_P(
    Of, ForwardFloat64,
    testing::Values(Checkpoint{"dense", TUTTI_SOURCE_DIR "/tests/golden/tiny_qwen3/", tiny(), 0.05},
                    Checkpoint{"experts", TUTTI_SOURCE_DIR "/tests/golden/tiny_qwen3_moe/", tiny_moe(), 0.1}),
    [](const auto& info) { return std::string(info.param.name); });

// Weights are large enough that attention is not flat, and no norm has weight 1.
void make_checkpoint(const Checkpoint& at) {
  seed_all(2026);
  Decoder model(qwen3(at.config), 16);
  nn::initialize(model);
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const nn::NamedParameter& p : model.named_parameters()) {
    const Tensor master = p.parameter.master();
    if (master.ndim() == 1) {
      for (int64_t i = 0; i < master.numel(); ++i)
        master.data<float>()[i] = 1.0f + 0.5f * static_cast<float>(std::sin(3.0 * static_cast<double>(i) + 1));
    }
    tensors.emplace_back(p.name, detach(master));
  }
  const DecoderSizes& c = at.config;
  std::map<std::string, std::string> metadata{{"layers", std::to_string(c.layers)},
                                              {"heads", std::to_string(c.heads)},
                                              {"kv_heads", std::to_string(c.kv_heads)},
                                              {"head_dim", std::to_string(c.head_dim)},
                                              {"rope_theta", fmt::format("{}", c.rope_theta)},
                                              {"norm_eps", fmt::format("{}", c.norm_eps)}};
  if (c.experts > 0)
    metadata.insert({{"experts", std::to_string(c.experts)}, {"active_experts", std::to_string(c.active_experts)}});
  write_safetensors(at.path("model.safetensors"), nn::published(tensors), metadata);
}

struct Golden {
  TokenBatch batch;
  std::vector<std::vector<double>> logits;  // per token
};

Golden read_golden(const Checkpoint& at) {
  std::ifstream file(at.path("logits.txt"));
  Golden golden;
  std::vector<int32_t> tokens, positions, first;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    int32_t row = 0;
    words >> row >> tokens.emplace_back() >> positions.emplace_back() >> first.emplace_back();
    golden.batch.rows = row + 1;
    std::vector<double>& logits = golden.logits.emplace_back();
    for (double v = 0; words >> v;) logits.push_back(v);
  }
  golden.batch.tokens = Tensor::of(tokens);
  golden.batch.positions = Tensor::of(positions);
  golden.batch.first_key = Tensor::of(first);
  return golden;
}

// The largest |difference| of a token's logits over its largest |logit|.
double worst_difference(const Checkpoint& at, DType compute_dtype) {
  Decoder model(qwen3(at.config), 16);
  model.to(compute_dtype);
  nn::load(model, at.path("model.safetensors"));
  NoGradScope no_grad;
  const Golden golden = read_golden(at);
  EXPECT_EQ(golden.logits.size(), 20u);
  const Tensor logits = model.forward(golden.batch);
  double worst = 0;
  for (size_t t = 0; t < golden.logits.size(); ++t) {
    const std::vector<double>& expected = golden.logits[t];
    EXPECT_EQ(expected.size(), 37u);
    double largest = 0, difference = 0;
    for (size_t v = 0; v < expected.size(); ++v) {
      largest = std::max(largest, std::fabs(expected[v]));
      difference = std::max(difference, std::fabs(static_cast<double>(logits.data<float>()[t * 37 + v]) - expected[v]));
    }
    worst = std::max(worst, difference / largest);
  }
  return worst;
}

// To make the folders anew: TUTTI_RENEW_GOLDEN=1 ctest -R ForwardFloat64, then forward_float64.py FOLDER --write.
TEST_P(ForwardFloat64, LogitsOfTheCommittedCheckpointAgree) {
  if (std::getenv("TUTTI_RENEW_GOLDEN")) make_checkpoint(GetParam());
  const double worst = worst_difference(GetParam(), DType::f32);
  RecordProperty("worst", fmt::format("{:.1e}", worst));
  EXPECT_LT(worst, 1e-5);
}

// bf16 keeps 8 bits and every activation is rounded.
TEST_P(ForwardFloat64, LogitsInBf16AreNear) {
  const double worst = worst_difference(GetParam(), DType::bf16);
  EXPECT_LT(worst, GetParam().bf16);
  EXPECT_GT(worst, 1e-5);
}

}  // namespace
}  // namespace tutti::models
