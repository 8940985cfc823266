// Modules against the formulas they stand for, in f64.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/message_of.h"
#include "tutti/autograd/backward.h"
#include "tutti/autograd/checkpoint.h"
#include "tutti/graph/compile.h"
#include "tutti/nn/activation.h"
#include "tutti/nn/attention.h"
#include "tutti/nn/containers.h"
#include "tutti/nn/dropout.h"
#include "tutti/nn/linear.h"
#include "tutti/nn/norm.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/slice.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::nn {
namespace {

std::vector<float> values(const Tensor& t) {
  const Tensor dense = to_contiguous(detach(t));
  return {dense.data<float>(), dense.data<float>() + dense.numel()};
}

TEST(Linear, IsAnAffineMapOfTheLastDim) {
  Linear layer(3, 2);
  initialize(layer);
  const Tensor x = facets::sample_tensor(1, {4, 5, 3});
  const std::vector<float> y = values(layer.forward(x)), w = values(layer.weight), b = values(layer.bias);
  for (size_t t = 0; t < 20; ++t) {
    for (size_t o = 0; o < 2; ++o) {
      double sum = b[o];
      for (size_t i = 0; i < 3; ++i) sum += static_cast<double>(x.data<float>()[3 * t + i]) * w[3 * o + i];
      EXPECT_NEAR(y[2 * t + o], sum, 1e-6);
    }
  }
  EXPECT_FALSE(Linear(3, 2, {.bias = false}).bias.defined());
  EXPECT_EQ(Linear(0, 2).weight.sizes(), (Extents{2, 0}));
  EXPECT_EQ(message_of([] { Linear(-1, 2); }), "Linear: -1 inputs and 2 outputs; expected 0 or more of each");
}

TEST(Norms, AZeroCenteredWeightStartsAsZeros) {
  RMSNorm centered(6, {.form = NormWeight::zero_centered}), plain(6);
  initialize(centered), initialize(plain);
  const Tensor x = facets::sample_tensor(3, {5, 6});
  EXPECT_EQ(values(centered.forward(x)), values(plain.forward(x)));
  centered.weight.assign(full({6}, 1.0)), plain.weight.assign(full({6}, 2.0));
  EXPECT_EQ(values(centered.forward(x)), values(plain.forward(x)));
  const RMSNorm bare(6, {.elementwise_affine = false, .form = NormWeight::zero_centered});
  EXPECT_EQ(values(bare.forward(x)), values(RMSNorm(6, {.elementwise_affine = false}).forward(x)));
}

TEST(Norms, NormalizeRows) {
  LayerNorm layer(6);
  RMSNorm rms(6);
  initialize(layer), initialize(rms);
  layer.bias.assign(full({6}, 0.5));
  rms.weight.assign(full({6}, 2.0));
  const Tensor x = facets::sample_tensor(3, {5, 6});
  const std::vector<float> a = values(layer.forward(x)), b = values(rms.forward(x));
  for (size_t r = 0; r < 5; ++r) {
    const float* row = x.data<float>() + 6 * r;
    double mean = 0, square = 0, variance = 0;
    for (int i = 0; i < 6; ++i) mean += row[i] / 6.0, square += row[i] * static_cast<double>(row[i]) / 6.0;
    for (int i = 0; i < 6; ++i) variance += (row[i] - mean) * (row[i] - mean) / 6.0;
    for (size_t i = 0; i < 6; ++i) {
      EXPECT_NEAR(a[6 * r + i], (row[i] - mean) / std::sqrt(variance + 1e-5) + 0.5, 1e-5);
      EXPECT_NEAR(b[6 * r + i], 2.0 * row[i] / std::sqrt(square + 1e-6), 1e-5);
    }
  }
  EXPECT_TRUE(LayerNorm(6, {.elementwise_affine = false}).named_parameters().empty());
}

TEST(Dropout, DropsInTrainingOnly) {
  Dropout half;
  const Tensor x = ones({1000});
  int zeros_seen = 0;
  for (const float v : values(half.forward(x))) {
    EXPECT_TRUE(v == 0.0f || v == 2.0f) << v;
    zeros_seen += v == 0.0f;
  }
  EXPECT_NEAR(zeros_seen, 500, 100);
  half.eval();
  EXPECT_TRUE(half.forward(x).is_same(x));
  EXPECT_EQ(message_of([] { Dropout(1.5); }), "Dropout: p is 1.5; expected a probability");
}

TEST(Dropout, ACompiledFunctionFollowsTheMode) {
  Dropout half;
  const auto f = compile([&half](const Tensor& x) { return add(half.forward(x), 0.0); }, {.name = "dropping"});
  const Tensor x = ones({1000});
  const auto drops = [&] {
    const std::vector<float> y = values(f(x));
    return std::count(y.begin(), y.end(), 0.0f) > 0;
  };
  for (int i = 0; i < 20; ++i) {
    const bool training = i % 3 != 1;
    half.train(training);
    EXPECT_EQ(drops(), training) << i;
  }
}

TEST(Sequential, RunsItsModulesInOrderUnderNumbers) {
  Sequential net;
  net.add<Linear>(3, 4)
      .add<ReLU>()
      .add<Linear>(4, 2, LinearOptions{.bias = false})
      .add<GELU>(GeluForm::tanh)
      .add<Identity>();
  std::vector<std::string> names;
  for (const NamedParameter& p : net.named_parameters()) names.push_back(p.name);
  EXPECT_EQ(names, (std::vector<std::string>{"0.weight", "0.bias", "2.weight"}));
  initialize(net);
  const Tensor x = facets::sample_tensor(1, {5, 3});
  const auto p = net.named_parameters();
  const Tensor hidden = relu(add(linear(x, p[0].parameter), p[1].parameter));
  EXPECT_EQ(values(net.forward(x)), values(gelu(linear(hidden, p[2].parameter), GeluForm::tanh)));
  EXPECT_EQ(net.size(), 5);
}

TEST(ModuleList, NamesItsModulesByPositionAndTheirCallsByListAndPosition) {
  struct Net final : Module {
    Net() { layers->add(2, 2), layers->add(2, 2); }
    Tensor forward(Tensor x) const {
      for (const Child<Linear>& layer : *layers) x = layer(x);
      return x;
    }
    Child<ModuleList<Linear>> layers{this, "layers"};
  };
  Net net;
  EXPECT_EQ(net.named_parameters()[2].name, "layers.1.weight");
  EXPECT_EQ((*net.layers)[1]->call_name(), "layers.1");
  EXPECT_EQ(message_of([&] { (*net.layers)[2]; }), "ModuleList: index 2 of a list of 2 modules");
}

TEST(ModuleDict, FindsModulesByName) {
  ModuleDict<Linear> heads;
  heads.add("value", 2, 1), heads.add("policy", 2, 5);
  EXPECT_EQ(heads.names(), (std::vector<std::string>{"value", "policy"}));
  EXPECT_EQ(heads["policy"]->weight.sizes(), (Extents{5, 2}));
  EXPECT_TRUE(heads.contains("value"));
  EXPECT_NE(message_of([&] { heads["polcy"]; }).find("did you mean 'policy'"), std::string::npos);
  EXPECT_NE(message_of([&] { heads.add("value", 2, 1); }).find("already has"), std::string::npos);
}

// One query head after another, in f64.
std::vector<double> attention_in_f64(const MultiheadAttention& m, const Tensor& x, int64_t heads, int64_t kv_heads,
                                     int64_t dim, bool causal) {
  const int64_t B = x.extent(0), S = x.extent(1), D = x.extent(2);
  const auto project = [&](const Child<Linear>& layer, const std::vector<double>& in, int64_t width) {
    const std::vector<float> w = values(layer->weight), b = values(layer->bias);
    const int64_t rows = static_cast<int64_t>(in.size()) / width, out = layer->weight.sizes()[0];
    std::vector<double> y(static_cast<size_t>(rows * out));
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t o = 0; o < out; ++o) {
        double sum = b[static_cast<size_t>(o)];
        for (int64_t i = 0; i < width; ++i)
          sum += in[static_cast<size_t>(r * width + i)] * w[static_cast<size_t>(o * width + i)];
        y[static_cast<size_t>(r * out + o)] = sum;
      }
    }
    return y;
  };
  const std::vector<float> xf = values(x);
  const std::vector<double> in(xf.begin(), xf.end());
  const std::vector<double> q = project(m.q_proj, in, D), k = project(m.k_proj, in, D), v = project(m.v_proj, in, D);
  std::vector<double> attended(static_cast<size_t>(B * S * heads * dim));
  for (int64_t b = 0; b < B; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t g = h / (heads / kv_heads);
      for (int64_t i = 0; i < S; ++i) {
        std::vector<double> weight;
        double total = 0;
        for (int64_t j = 0; j < (causal ? i + 1 : S); ++j) {
          double score = 0;
          for (int64_t e = 0; e < dim; ++e)
            score += q[static_cast<size_t>(((b * S + i) * heads + h) * dim + e)] *
                     k[static_cast<size_t>(((b * S + j) * kv_heads + g) * dim + e)];
          weight.push_back(std::exp(score / std::sqrt(static_cast<double>(dim))));
          total += weight.back();
        }
        for (size_t j = 0; j < weight.size(); ++j) {
          for (int64_t e = 0; e < dim; ++e)
            attended[static_cast<size_t>(((b * S + i) * heads + h) * dim + e)] +=
                weight[j] / total *
                v[static_cast<size_t>(((b * S + static_cast<int64_t>(j)) * kv_heads + g) * dim + e)];
        }
      }
    }
  }
  return project(m.out_proj, attended, heads * dim);
}

TEST(MultiheadAttention, IsTheFormulaWithSharedKeyHeadsAndWithout) {
  for (const bool causal : {false, true}) {
    for (const int64_t kv_heads : {4, 2, 1}) {
      MultiheadAttention m(12, 4, {.kv_heads = kv_heads, .head_dim = 5});
      initialize(m);
      const Tensor x = facets::sample_tensor(2, {2, 7, 12});
      const std::vector<double> expected = attention_in_f64(m, x, 4, kv_heads, 5, causal);
      const std::vector<float> y = values(m.forward(x, SdpaOptions{.causal = causal}));
      ASSERT_EQ(y.size(), expected.size());
      for (size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], expected[i], 2e-6);
    }
  }
}

TEST(MultiheadAttention, AMaskHidesKeys) {
  MultiheadAttention m(8, 2);
  initialize(m);
  const Tensor x = facets::sample_tensor(2, {1, 4, 8});
  Tensor mask = Tensor::empty({1, 1, 4, 4}, DType::boolean);
  for (int i = 0; i < 16; ++i) static_cast<bool*>(mask.raw_data())[i] = i % 4 <= i / 4;
  const std::vector<float> masked = values(m.forward(x, SdpaOptions{.mask = mask})),
                           causal = values(m.forward(x, SdpaOptions{.causal = true}));
  for (size_t i = 0; i < masked.size(); ++i) EXPECT_NEAR(masked[i], causal[i], 1e-6);
}

TEST(MultiheadAttention, WithACacheHasTheBitsOfOneForward) {
  MultiheadAttention m(16, 4, {.kv_heads = 2});
  initialize(m);
  NoGradScope no_grad;
  const Tensor x = facets::sample_tensor(4, {2, 70, 16});
  const std::vector<float> whole = values(m.forward(x, SdpaOptions{.causal = true}));
  KvCache cache = m.make_cache(2, 70);
  std::vector<std::vector<float>> parts;
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (int64_t begin = 0, tokens = 1; begin < 70; begin += tokens, tokens = std::min<int64_t>(tokens * 3, 70 - begin))
    ranges.emplace_back(begin, std::min<int64_t>(tokens, 70 - begin));
  for (const auto& [begin, tokens] : ranges) {
    const std::vector<float> y = values(m.forward(narrow(x, 1, begin, tokens), cache));
    for (int64_t b = 0; b < 2; ++b) {
      for (int64_t i = 0; i < tokens * 16; ++i)
        EXPECT_EQ(y[static_cast<size_t>(b * tokens * 16 + i)], whole[static_cast<size_t>((b * 70 + begin) * 16 + i)])
            << begin;
    }
  }
  EXPECT_EQ(cache.length, 70);
  const std::string message = message_of([&] { m.forward(narrow(x, 1, 0, 1), cache); });
  EXPECT_EQ(
      message,
      "MultiheadAttention: 2 sequences of 1 more tokens do not fit a cache for 2 sequences of 70 tokens that holds 70");
}

TEST(MultiheadAttention, RefusesACacheInCompiledFunctionsAndOfAnotherDtype) {
  MultiheadAttention m(8, 2);
  initialize(m);
  KvCache cache = m.make_cache(1, 4), narrow_cache = m.make_cache(1, 4, DType::bf16);
  const Tensor x = ones({1, 1, 8});
  const auto f = compile([&](const Tensor& t) { return m.forward(t, cache); }, {.name = "next token"});
  EXPECT_NE(message_of([&] { f(x); }).find("a forward with a cache counts its tokens on the host"), std::string::npos);
  EXPECT_EQ(cache.length, 0);
  EXPECT_NE(
      message_of([&] { m.forward(x, narrow_cache); }).find("the cache holds bf16 and bf16; the module computes in f32"),
      std::string::npos);
}

// The mask of the forward belongs to the forward's mode.
TEST(Dropout, AModeThatChangesBeforeACheckpointedBackwardIsRefused) {
  Dropout half;
  const Tensor x = requires_grad_(ones({10}));
  const Tensor loss =
      sum(checkpoint([&](std::span<const Tensor> in) { return half.forward(in[0]); }, std::span(&x, 1)));
  half.eval();
  EXPECT_NE(message_of([&] {
              backward(loss, {}, {.retain_graph = true});
            }).find("the mode of a module (train() or eval()) changed after the forward"),
            std::string::npos);
  half.train();
  backward(loss);
  EXPECT_TRUE(grad_of(x).defined());
}

TEST(MultiheadAttention, RefusesHeadsThatDoNotDivide) {
  EXPECT_NE(message_of([] {
              MultiheadAttention(8, 3, {.kv_heads = 2});
            }).find("3 query heads cannot share 2 key/value heads evenly"),
            std::string::npos);
  EXPECT_NE(message_of([] { MultiheadAttention(8, 3); }).find("dim 8 is not a multiple of 3 heads"), std::string::npos);
}

}  // namespace
}  // namespace tutti::nn
