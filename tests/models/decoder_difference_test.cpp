// Every difference between two decoders is told, and numbers that files round are none.
#include "tutti/models/decoder_difference.h"

#include <gtest/gtest.h>

#include <functional>

#include "tests/support/message_of.h"
#include "tutti/models/family.h"

namespace tutti::models {
namespace {

std::string told(const char* family, const char* flavor, const std::function<void(DecoderConfig&)>& change) {
  const DecoderConfig config = flavor_named(family, flavor);
  DecoderConfig said = config;
  change(said);
  return message_of([&] { check_described(config, said, "a file"); });
}

TEST(DecoderDifference, IsToldByLayer) {
  const std::pair<std::function<void(DecoderConfig&)>, const char*> dense[] = {
      {[](DecoderConfig& c) { c.dim = 64; }, "model dim: 32, written as 64"},
      {[](DecoderConfig& c) { c.vocab = 1; }, "vocabulary: 320, written as 1"},
      {[](DecoderConfig& c) { c.layers.resize(1); }, "layers: 2, written as 1"},
      {[](DecoderConfig& c) { c.tied_embeddings = false; }, "tied embeddings: true, written as false"},
      {[](DecoderConfig& c) { c.norm_eps = 1e-5; }, "epsilon: 1e-06, written as 1e-05"},
      {[](DecoderConfig& c) { c.layers[1].attention.heads = 4; }, "layer 1, query heads: 2, written as 4"},
      {[](DecoderConfig& c) { c.layers[0].attention.head_dim = 8; }, "layer 0, head dim: 16, written as 8"},
      {[](DecoderConfig& c) { c.layers[1].attention.window = 5; }, "layer 1, window of keys: 0, written as 5"},
      {[](DecoderConfig& c) { c.layers[1].attention.rope.theta = 1e4; },
       "layer 1, rotary angles: base 1000000, written as base 10000"},
      {[](DecoderConfig& c) {
         c.layers[1].attention.rope.type = RopeType::linear, c.layers[1].attention.rope.factor = 2;
       },
       "layer 1, rotary angles: base 1000000, written as base 1000000, linear by 2, from 0 positions, cosines times 1"},
      {[](DecoderConfig& c) { c.layers[0].feed_forward.experts = 3; }, "layer 0, experts: 0, written as 3"},
      {[](DecoderConfig& c) { c.layers[1].attention.scale = 0.5; }, "layer 1, scale of scores: 0.25, written as 0.5"},
      {[](DecoderConfig& c) { c.layers[1].attention.score_cap = 50; }, "layer 1, cap of scores: 0, written as 50"},
      {[](DecoderConfig& c) { c.layers[0].output_norms = true; },
       "layer 0, norms of the outputs of attention and feed-forward: false, written as true"},
      {[](DecoderConfig& c) { c.layers[0].feed_forward.activation = Activation::gelu_tanh; },
       "layer 0, activation: silu, written as gelu_pytorch_tanh"},
      {[](DecoderConfig& c) { c.zero_centered_norms = true; }, "norms multiply by 1 + weight: false, written as true"},
      {[](DecoderConfig& c) { c.embedding_scale = 6; }, "scale of embeddings: 1, written as 6"},
      {[](DecoderConfig& c) { c.logits_cap = 30; }, "cap of logits: 0, written as 30"},
      {[](DecoderConfig& c) { c.per_layer_inputs = 4; }, "features of each layer's input: 0, written as 4"},
      {[](DecoderConfig& c) { c.layer_scalars = true; }, "scalars of layers: false, written as true"},
      {[](DecoderConfig& c) { c.layers[0].attention.value_norms = true; },
       "layer 0, norms of value heads: false, written as true"},
      {[](DecoderConfig& c) { c.layers[0].attention.keys_are_values = true; },
       "layer 0, keys that are the values: false, written as true"},
      {[](DecoderConfig& c) { c.layers[1].attention.shared_layer = 0; },
       "layer 1, layer whose keys and values are used: 1, written as 0"},
      {[](DecoderConfig& c) { c.layers[1].experts_beside.experts = 3; },
       "layer 1, experts beside the feed-forward: 0, written as 3"},
  };
  for (const auto& [change, line] : dense)
    EXPECT_EQ(told("llama", "tiny", change), std::string("a file does not describe llama tiny:\n  ") + line);
  EXPECT_EQ(told("qwen3", "tiny_moe",
                 [](DecoderConfig& c) {
                   c.layers[1].feed_forward.active_experts = 1, c.layers[1].feed_forward.route_norm = false;
                 }),
            "a file does not describe qwen3 tiny_moe:\n"
            "  layer 1, experts of a token: 2, written as 1\n"
            "  layer 1, weights of experts add up to 1: true, written as false");
}

TEST(DecoderDifference, IsNoneOfNumbersInF32AndOfEqualAngles) {
  EXPECT_EQ(told("llama", "3.2-1B",
                 [](DecoderConfig& c) {
                   c.norm_eps = static_cast<double>(static_cast<float>(c.norm_eps)), c.init_std = 1, c.flavor = "other";
                   for (LayerConfig& layer : c.layers) {
                     RopeConfig& rope = layer.attention.rope;
                     const auto scaled = rope_frequencies(rope, layer.attention.head_dim);
                     rope = {.theta = rope.theta};
                     const auto plain = rope_frequencies(rope, layer.attention.head_dim);
                     for (size_t i = 0; i < plain.size(); ++i)
                       rope.divisors.push_back(static_cast<double>(static_cast<float>(plain[i] / scaled[i])));
                   }
                 }),
            "no error");
}

}  // namespace
}  // namespace tutti::models
