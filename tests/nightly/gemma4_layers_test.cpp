// Two layers of the real sizes of Gemma 4 31B, one of each kind, forward and backward: about 8 GiB.
#include <gtest/gtest.h>

#include <cmath>

#include "tutti/autograd/backward.h"
#include "tutti/models/decoder.h"
#include "tutti/models/family.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/reduction.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::models {
namespace {

// The last layer of each six sees all keys. The vocabulary is a small one.
TEST(Gemma4Layers, OfTheDense31BRunForwardAndBackward) {
  DecoderConfig config = flavor_named("gemma4", "31B");
  config.layers = {config.layers[4], config.layers[5]};
  config.vocab = 512;
  ASSERT_EQ(config.layers[0].attention.head_dim, 256);
  ASSERT_EQ(config.layers[1].attention.head_dim, 512);
  ASSERT_TRUE(config.layers[1].attention.keys_are_values);
  EXPECT_EQ(parameter_count(config), 1'015'726'848);
  seed_all(5);
  Decoder model(config, 32);
  nn::initialize(model);
  std::vector<int32_t> tokens, positions;
  for (int32_t i = 0; i < 24; ++i) tokens.push_back(i * 37 % 512), positions.push_back(i);
  const TokenBatch batch{Tensor::of(tokens), Tensor::of(positions), Tensor::of(std::vector<int32_t>(24, 0)), 1};
  const Tensor losses = model.losses(batch, Tensor::of(std::vector<int32_t>(24, 3)));
  const Tensor loss = sum(losses);
  EXPECT_TRUE(std::isfinite(loss.data<float>()[0]));
  backward(loss);
  for (const nn::NamedParameter& p : model.named_parameters()) {
    const float square = sum(mul(p.parameter.grad(), p.parameter.grad())).data<float>()[0];
    EXPECT_TRUE(std::isfinite(square) && square > 0) << p.name;
  }
}

}  // namespace
}  // namespace tutti::models
