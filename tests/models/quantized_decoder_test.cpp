// A decoder whose weights stay the quantized blocks of its file.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "tests/support/message_of.h"
#include "tests/support/quantized_model.h"
#include "tests/support/same_bits.h"
#include "tests/support/temporary_folder.h"
#include "tutti/autograd/tape.h"
#include "tutti/models/decoder.h"
#include "tutti/models/published_model.h"
#include "tutti/nn/state_dict.h"
#include "tutti/ops.h"

namespace tutti::models {
namespace {

using tutti::testing::all_block_formats;
using tutti::testing::quantizable_decoder;
using tutti::testing::TemporaryFolder;
using tutti::testing::write_quantized;

TokenBatch some_tokens(int64_t count) {
  std::vector<int32_t> tokens, positions;
  for (int64_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<int32_t>(i * 37 % 251)), positions.push_back(static_cast<int32_t>(i));
  return {Tensor::of(tokens), Tensor::of(positions), Tensor::of(std::vector<int32_t>(tokens.size(), 0)), 1};
}

std::unique_ptr<Decoder> open(const std::string& path, bool keeps_blocks, DType dtype = DType::f32) {
  const PublishedModel published(path);
  auto model = std::make_unique<Decoder>(published.config(), 512);
  model->to(dtype);
  published.load(*model, {.freeze = true, .keep_blocks = keeps_blocks});
  return model;
}

double relative_difference(const Tensor& a, const Tensor& b) {
  double difference = 0, size = 0;
  for (int64_t i = 0; i < a.numel(); ++i) {
    difference += std::pow(static_cast<double>(a.data<float>()[i] - b.data<float>()[i]), 2);
    size += std::pow(static_cast<double>(b.data<float>()[i]), 2);
  }
  return std::sqrt(difference / size);
}

class QuantizedDecoder : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(, QuantizedDecoder, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "TiedHead" : "OwnHead"; });

TEST_P(QuantizedDecoder, ComputesWithTheBlocksOfItsFile) {
  const NoGradScope no_grad;
  const TemporaryFolder folder;
  const std::string path = folder / "model.gguf";
  write_quantized(quantizable_decoder(GetParam()), all_block_formats(), path);
  const auto kept = open(path, true), decoded = open(path, false);
  EXPECT_EQ(kept->config().tied_embeddings, GetParam());
  int64_t matrices = 0;
  for (const nn::NamedParameter& p : kept->named_parameters()) {
    EXPECT_FALSE(p.parameter.requires_grad());
    ASSERT_EQ(p.parameter.holds_blocks(), p.parameter.sizes().ndim() == 2) << p.name;
    if (!p.parameter.holds_blocks()) continue;
    ++matrices;
    // Rows of queries and keys of this architecture are in another order in its files.
    const bool is_turned = p.name.find("q_proj") != std::string::npos || p.name.find("k_proj") != std::string::npos;
    EXPECT_EQ(p.parameter.blocks().storage()->is_read_only(), !is_turned) << p.name;
  }
  EXPECT_EQ(matrices, GetParam() ? 29 : 30);
  // The rows of W are those of the decoded model, so only the rounding of activations differs.
  for (size_t i = 0; i < kept->named_parameters().size(); ++i) {
    const nn::Parameter p = kept->named_parameters()[i].parameter;
    if (!p.holds_blocks()) continue;
    expect_same_bits(dequantize(p.blocks(), p.block_format()), decoded->named_parameters()[i].parameter.master(),
                     kept->named_parameters()[i].name);
  }
  const TokenBatch batch = some_tokens(33);
  const Tensor logits = kept->forward(batch), exact = decoded->forward(batch);
  const double error = relative_difference(logits, exact);
  EXPECT_LT(error, 0.05);
  EXPECT_GT(error, 1e-4);
}

TEST_P(QuantizedDecoder, ItsStateDictHoldsBlocksAndLoadsAgain) {
  const NoGradScope no_grad;
  const TemporaryFolder folder;
  write_quantized(quantizable_decoder(GetParam()), all_block_formats(), folder / "model.gguf");
  const auto model = open(folder / "model.gguf", true);
  const nn::StateDict state = model->state_dict();
  EXPECT_EQ(state[0].first, "model.embed_tokens.weight.Q4_0");
  EXPECT_EQ(state[0].second.dtype(), DType::u8);
  EXPECT_EQ(state[0].second.extents(), (Extents{262, 256 / 32 * 18}));
  EXPECT_EQ(state[1].first, "model.layers.0.self_attn.q_proj.weight.Q4_1");
  const Tensor expected = model->forward(some_tokens(9));
  Decoder copied(model->config(), 512), from_file(model->config(), 512);
  copied.load_state_dict(state);
  expect_same_bits(copied.forward(some_tokens(9)), expected);
  nn::save(*model, folder / "model.safetensors");
  nn::load(from_file, folder / "model.safetensors", {.freeze = true});
  expect_same_bits(from_file.forward(some_tokens(9)), expected);
  // Numbers take the place of blocks again, and are trained.
  const nn::StateDict numbers = open(folder / "model.gguf", false)->state_dict();
  copied.load_state_dict(numbers);
  for (const nn::NamedParameter& p : copied.named_parameters()) EXPECT_FALSE(p.parameter.holds_blocks());
  EXPECT_TRUE(copied.named_parameters()[0].parameter.requires_grad());
}

TEST(QuantizedWeights, ComputesInBfloat16) {
  const NoGradScope no_grad;
  const TemporaryFolder folder;
  write_quantized(quantizable_decoder(true), all_block_formats(), folder / "model.gguf");
  const auto logits = [&](bool keeps_blocks, DType dtype) {
    return open(folder / "model.gguf", keeps_blocks, dtype)->forward(some_tokens(20));
  };
  const Tensor wide = logits(true, DType::f32), exact = logits(false, DType::f32);
  // Activations that bf16 has moved are rounded to other codes, so that both roundings add up.
  const double of_bf16 = relative_difference(logits(false, DType::bf16), exact);
  const double of_codes = relative_difference(wide, exact);
  const double error = relative_difference(logits(true, DType::bf16), wide);
  EXPECT_LT(error, 2 * (of_bf16 + of_codes));
  EXPECT_GT(error, 1e-4);
}

TEST(QuantizedWeights, AreThoseOfLayersTablesAndExperts) {
  const NoGradScope no_grad;
  const TemporaryFolder folder;
  DecoderConfig config = quantizable_decoder(false, 1);
  config.layers[0].feed_forward = {.hidden_dim = 256, .experts = 2, .active_experts = 1};
  config.family = "qwen3_moe";
  config.layers[0].attention.query_key_norms = true;
  Decoder model(config, 8);
  for (const nn::NamedParameter& p : model.named_parameters())
    EXPECT_EQ(p.parameter.can_hold_blocks(),
              p.parameter.sizes().ndim() >= 2 && p.name.find("gate.weight") == std::string::npos)
        << p.name;
}

// Anonymous memory of this process, in bytes: pages of files do not count.
int64_t anonymous_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("RssAnon:")) return std::stoll(line.substr(8)) * 1024;
  return 0;
}

// 50 MB of blocks are 350 MB of f32.
TEST(QuantizedWeights, TakesTheMemoryOfItsFile) {
  const NoGradScope no_grad;
  const TemporaryFolder folder;
  write_quantized(quantizable_decoder(true, 2, 340'000), {BlockFormat::q4_k}, folder / "model.gguf");
  const int64_t nbytes = static_cast<int64_t>(std::filesystem::file_size(folder / "model.gguf"));
  ASSERT_GT(nbytes, 45 << 20);
  const int64_t before = anonymous_bytes();
  const auto model = open(folder / "model.gguf", true);
  const Tensor logits = model->forward(some_tokens(1));
  EXPECT_EQ(logits.extent(1), 340'000);
  // The logits, the projections whose rows are turned, and what a first forward brings.
  EXPECT_LT(anonymous_bytes() - before, nbytes / 3);
}

TEST(QuantizedWeights, ItsParametersSayThatTheyAreNoNumbers) {
  const TemporaryFolder folder;
  write_quantized(quantizable_decoder(true, 1), {BlockFormat::q5_k}, folder / "model.gguf");
  const auto model = open(folder / "model.gguf", true);
  const nn::Parameter weight = model->named_parameters()[0].parameter;
  const std::string expected =
      "parameter 'weight' [262, 256] is held as Q5_K blocks, which are no numbers; dequantize(parameter.blocks(), "
      "parameter.block_format()) gives them";
  EXPECT_EQ(message_of([&] { weight.use(); }), expected);
  EXPECT_EQ(message_of([&] { weight.master(); }), expected);
  EXPECT_EQ(message_of([&] { weight.leaf(); }), expected);
  EXPECT_EQ(weight.dtype(), DType::f32);
  EXPECT_TRUE(weight.is_frozen());
  EXPECT_EQ(weight.block_format(), BlockFormat::q5_k);
  EXPECT_EQ(
      message_of([&] { weight.requires_grad_(true); }),
      "parameter 'weight' is frozen: its values are not its own; load the model, or assign() values, to train it");
  const nn::Parameter norm("norm", {32}, nn::Init::ones());
  EXPECT_EQ(message_of([&] { norm.freeze(zeros({1, 34}, DType::u8), BlockFormat::q8_0); }),
            "parameter 'norm' [32] cannot be held as Q8_0 blocks: only weights of Linear, Embedding and experts can; "
            "assign dequantize(blocks, format) to it");
  EXPECT_EQ(message_of([&] { weight.freeze(zeros({262, 34}, DType::u8), BlockFormat::q8_0); }),
            "parameter 'weight' is [262, 256]; it cannot be frozen to Q8_0 blocks of [262, 32]");
  EXPECT_EQ(message_of([&] { norm.blocks(); }),
            "parameter 'norm' [32] is not held as quantized blocks; use() gives its numbers");
}

}  // namespace
}  // namespace tutti::models
