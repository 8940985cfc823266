#include "tutti/nn/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <thread>

#include "tests/support/message_of.h"
#include "tests/support/same_bits.h"
#include "tutti/autograd/tape.h"
#include "tutti/graph/compile.h"
#include "tutti/nn/input_recorder.h"
#include "tutti/nn/linear.h"
#include "tutti/nn/linear_operand.h"
#include "tutti/nn/multi_linear.h"
#include "tutti/nn/weight_codes.h"
#include "tutti/ops.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/runtime/rank_context.h"

namespace tutti {
namespace {

using facets::sample_tensor;
using nn::Quantization;

constexpr Quantization kKinds[] = {Quantization::int8,
                                   Quantization::fp8,
                                   Quantization::int8_static,
                                   Quantization::fp8_static,
                                   Quantization::int8_weight_only,
                                   Quantization::int4_weight_only};

struct Network final : nn::Module {
  Network() : a(this, "a", 32, 48), b(this, "b", 32, 16), c(this, "c", 16, 8) {
    seed_all(7);
    nn::initialize(*this);
    eval();
  }
  Tensor forward(const Tensor& x) const {
    const auto [left, right] = nn::multi_linear(x, a, b);
    return add(c(tanh(right)), sum(left, -1, true));
  }
  nn::Child<nn::Linear> a, b, c;
};

std::vector<nn::QuantizedLayer> quantize(Network& network, Quantization kind) {
  nn::InputRecorder inputs(network);
  const NoGradScope no_grad;
  network.forward(sample_tensor(3, {100, 32}));
  inputs.stop();
  return nn::quantize_(network, {.kind = kind, .group = 16, .inputs = &inputs});
}

double distance(const Tensor& a, const Tensor& b) {
  double of_difference = 0, of_all = 0;
  for (int64_t i = 0; i < a.numel(); ++i) {
    const double x = a.data<float>()[i], y = b.data<float>()[i];
    of_difference += (x - y) * (x - y), of_all += y * y;
  }
  return std::sqrt(of_difference / of_all);
}

TEST(Quantize, EveryKindComputesNearlyTheSame) {
  const NoGradScope no_grad;
  for (const Quantization kind : kKinds) {
    Network network;
    const Tensor x = sample_tensor(3, {20, 32}), exact = network.forward(x);
    const std::vector<nn::QuantizedLayer> layers = quantize(network, kind);
    const bool is_int4 = kind == Quantization::int4_weight_only;
    ASSERT_EQ(layers.size(), 3U);
    EXPECT_EQ(layers[0].name, "a");
    EXPECT_EQ(layers[2].name, "c");
    for (const nn::QuantizedLayer& layer : layers) {
      EXPECT_EQ(layer.nbytes_before, 4 * layer.sizes[0] * layer.sizes[1]);
      EXPECT_EQ(layer.nbytes_after, is_int4 ? layer.sizes[0] * (layer.sizes[1] / 2 + layer.sizes[1] / 16 * 8)
                                            : layer.sizes[0] * (layer.sizes[1] + 4));
      EXPECT_GT(layer.weight_error, 0);
      EXPECT_LT(layer.weight_error, is_int4                                                         ? 0.06
                                    : kind == Quantization::fp8 || kind == Quantization::fp8_static ? 0.04
                                                                                                    : 0.01);
      EXPECT_LT(layer.result_error.value(), is_int4 ? 0.1 : 0.06);
    }
    EXPECT_LT(distance(network.forward(x), exact), is_int4 ? 0.1 : 0.06) << name_of(kind);
  }
}

// The codes are those of rows of x, so a product is one of two equally rounded matrices.
TEST(Quantize, CodesAreThoseOfTheDefinition) {
  const Tensor w = sample_tensor(1, {5, 24}, DType::f32, -3, 2);
  std::fill_n(w.data<float>() + 48, 24, 0.0F);
  const ScaledWeight rows = nn::coded_rows(w, DType::i8, "w");
  for (int64_t j = 0; j < 5; ++j) {
    float largest = 0;
    for (int64_t p = 0; p < 24; ++p) largest = std::max(largest, std::abs(w.data<float>()[j * 24 + p]));
    EXPECT_EQ(rows.scale.data<float>()[j], j == 2 ? 1 : largest / 127.0F);
    for (int64_t p = 0; p < 24; ++p)
      EXPECT_EQ(rows.codes.data<int8_t>()[j * 24 + p],
                j == 2 ? 0 : std::nearbyint(w.data<float>()[j * 24 + p] * (1.0F / (largest / 127.0F))));
  }
  const CodedWeight groups = nn::coded_groups(w, 8, "w");
  const Tensor back = nn::decoded(groups);
  for (int64_t g = 0; g < 15; ++g) {
    const float* from = w.data<float>() + 8 * g;
    const auto [least, most] = std::minmax_element(from, from + 8);
    EXPECT_EQ(groups.minimum.data<float>()[g], *least);
    for (int64_t i = 0; i < 8; ++i)
      EXPECT_NEAR(back.data<float>()[8 * g + i], from[i], (*most - *least) / 30 * 1.0001F + 1e-7F);
  }
}

TEST(Quantize, CompiledThreadsAndRowsHaveTheSameBits) {
  const NoGradScope no_grad;
  for (const Quantization kind : kKinds) {
    Network network;
    quantize(network, kind);
    const Tensor x = sample_tensor(5, {17, 32}), y = network.forward(x);
    const auto f = compile([&](const Tensor& v) { return network.forward(v); });
    expect_same_bits(f(x), y, std::string(name_of(kind)));
    expect_same_bits(f(x), y);
    EXPECT_EQ(f.statistics().last.siblings, kind == Quantization::int8 || kind == Quantization::fp8 ? 1 : 0)
        << f.explain();
    for (const int threads : {1, 2, 4}) {
      RankContext::current().set_threads(threads);
      expect_same_bits(network.forward(x), y);
    }
    RankContext::current().set_threads(0);
    for (int64_t i = 0; i < 17; ++i)
      expect_same_bits(network.forward(narrow(x, 0, i, 1)), contiguous(narrow(y, 0, i, 1)));
    std::vector<Tensor> found(2);
    std::vector<std::thread> threads;
    for (Tensor& one : found)
      threads.emplace_back([&] {
        const NoGradScope of_thread;
        for (int round = 0; round < 20; ++round) one = network.forward(x);
      });
    for (std::thread& thread : threads) thread.join();
    for (const Tensor& one : found) expect_same_bits(one, y);
  }
}

// A function that was compiled before reads the weight that is gone.
TEST(Quantize, FunctionsThatWereCompiledBeforeSaySo) {
  const NoGradScope no_grad;
  Network network;
  const Tensor x = sample_tensor(5, {4, 32});
  const auto f = compile([&](const Tensor& v) { return network.forward(v); });
  expect_same_bits(f(x), network.forward(x));
  quantize(network, Quantization::int8);
  EXPECT_NE(message_of([&] { f(x); }).find("codes have replaced it (int8)"), std::string::npos) << "compile it anew";
}

// Two ranks of a process share the model, and a function that one of them compiled.
TEST(Quantize, RanksComputeWithOneModel) {
  const NoGradScope no_grad;
  for (const Quantization kind : kKinds) {
    Network network;
    quantize(network, kind);
    const Tensor x = sample_tensor(5, {9, 32}), y = network.forward(x);
    const auto f = compile([&](const Tensor& v) { return network.forward(v); });
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i)
      threads.emplace_back([&, i] {
        RankContext rank({.threads = 1 + i});
        const RankContext::Scope scope(rank);
        const NoGradScope of_thread;
        for (int64_t rows = 9; rows > 0; rows -= 2) {
          const Tensor part = contiguous(narrow(x, 0, 0, rows)), expected = contiguous(narrow(y, 0, 0, rows));
          expect_same_bits(network.forward(part), expected, std::string(name_of(kind)));
          expect_same_bits(f(part), expected, "compiled");
        }
      });
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(Quantize, LayersAreQuantizedInSeveralCalls) {
  const NoGradScope no_grad;
  Network network;
  const Tensor x = sample_tensor(5, {4, 32});
  const auto of_numbers = compile([&](const Tensor& v) { return network.forward(v); });
  of_numbers(x);
  const auto is_a = [](const std::string& name, const nn::Linear&) { return name == "a"; };
  EXPECT_EQ(nn::quantize_(network, {.filter = is_a}).size(), 1U);
  const Tensor first = network.forward(x);
  const auto of_first = compile([&](const Tensor& v) { return network.forward(v); });
  expect_same_bits(of_first(x), first);
  EXPECT_EQ(nn::quantize_(network, {.kind = Quantization::int4_weight_only, .group = 8}).size(), 2U);
  EXPECT_EQ(network.a->operand().kind(), "int8");
  EXPECT_EQ(network.c->operand().kind(), "int4_weight_only");
  EXPECT_NE(message_of([&] { of_numbers(x); }).find("codes have replaced it (int8)"), std::string::npos);
  EXPECT_NE(message_of([&] { of_first(x); }).find("codes have replaced it (int4_weight_only)"), std::string::npos);
  expect_same_bits(compile([&](const Tensor& v) { return network.forward(v); })(x), network.forward(x));
  EXPECT_TRUE(nn::quantize_(network).empty());
  EXPECT_NE(message_of([&] { nn::quantize_(network, {.filter = is_a}); }).find("its operand is another one (int8)"),
            std::string::npos);
  Network mixed;
  for (const nn::NamedParameter& p : mixed.named_parameters()) p.parameter.initialize("other");
  mixed.load_state_dict(network.state_dict());
  expect_same_bits(mixed.forward(x), network.forward(x));
}

TEST(Quantize, TheWeightIsGivenUp) {
  const NoGradScope no_grad;
  Network network;
  const nn::StateDict before = network.state_dict();
  quantize(network, Quantization::int8_weight_only);
  EXPECT_FALSE(network.a->weight.is_materialized());
  EXPECT_FALSE(network.a->weight.requires_grad());
  EXPECT_TRUE(network.a->bias.is_materialized());
  EXPECT_EQ(message_of([&] { network.a->weight.use(); }),
            "parameter 'weight' [48, 32] has no values: codes have replaced it (int8_weight_only)");
  EXPECT_EQ(network.state_dict()[0].first, "a.weight.int8_weight_only");
  EXPECT_TRUE(nn::quantize_(network).empty()) << "there is nothing left";
  EXPECT_NE(message_of([&] {
              network.load_state_dict(before);
            }).find("a.weight: the source holds [48, 32] f32 cpu, and the module is held as codes (int8_weight_only)"),
            std::string::npos);
}

// A layer that computes with another matrix than its own weight, and weights that two modules read, stay as they are.
TEST(Quantize, LeavesSharedAndForeignOperandsAlone) {
  const NoGradScope no_grad;
  Network network;
  network.b->set_operand(std::make_shared<nn::DenseOperand>(nn::Parameter("other", {16, 32}, nn::Init::zeros())));
  for (const nn::NamedParameter& p : network.named_parameters())
    if (!p.parameter.is_materialized()) p.parameter.initialize(p.name);
  const std::vector<nn::QuantizedLayer> layers = nn::quantize_(network);
  ASSERT_EQ(layers.size(), 2U);
  EXPECT_EQ(layers[0].name, "a");
  EXPECT_EQ(layers[1].name, "c");
  EXPECT_NE(message_of([&] {
              nn::quantize_(network, {.filter = [](const auto& name, const auto&) { return name == "b"; }});
            }).find("its operand is another one (dense)"),
            std::string::npos);
}

TEST(Quantize, ChoosesLayersByName) {
  const NoGradScope no_grad;
  Network network;
  const auto layers =
      nn::quantize_(network, {.filter = [](const std::string& name, const nn::Linear&) { return name == "c"; }});
  ASSERT_EQ(layers.size(), 1U);
  EXPECT_EQ(layers[0].name, "c");
  EXPECT_FALSE(layers[0].result_error.has_value());
  EXPECT_EQ(network.b->operand().kind(), "dense");
  EXPECT_EQ(network.c->operand().kind(), "int8");
}

// Nothing is changed where a layer cannot be quantized.
TEST(Quantize, SaysWhatIsWrong) {
  const NoGradScope no_grad;
  Network network;
  EXPECT_EQ(
      message_of([&] { nn::quantize_(network, {.kind = Quantization::int8_static}); }),
      "quantize_: int8_static needs the inputs of 'a', and none were recorded; run the model over a data set while an "
      "nn::InputRecorder exists, or take int8");
  EXPECT_EQ(
      message_of([&] { nn::quantize_(network, {.kind = Quantization::int4_weight_only, .group = 24}); }),
      "quantize_: rows of 32 elements of 'a' are not whole groups of 24; expected a multiple of 8 that divides them");
  EXPECT_EQ(message_of([&] { nn::quantization_from_name("int3"); }),
            "'int3' is no kind of quantization; expected int8, fp8, int8_static, fp8_static, int8_weight_only or "
            "int4_weight_only");
  for (const Quantization kind : kKinds) EXPECT_EQ(nn::quantization_from_name(name_of(kind)), kind);
  network.c->weight.master().data<float>()[17] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(message_of([&] { nn::quantize_(network); }),
            "quantize_: the weight of 'c' is inf at [1, 1]; codes stand for finite numbers");
  for (const nn::NamedModule& module : network.named_modules())
    if (auto* layer = dynamic_cast<nn::Linear*>(module.module)) {
      EXPECT_EQ(layer->operand().kind(), "dense") << module.name;
    }
}

TEST(InputRecorder, KeepsRangesAndRows) {
  const NoGradScope no_grad;
  Network network;
  nn::InputRecorder inputs(network, 5);
  EXPECT_EQ(inputs.find("a"), nullptr);
  const Tensor x = sample_tensor(3, {3, 32}, DType::f32, -2, 7);
  x.data<float>()[4] = 9, x.data<float>()[5] = std::numeric_limits<float>::infinity();
  network.forward(x);
  network.forward(mul(x, -1.0));
  ASSERT_NE(inputs.find("a"), nullptr);
  EXPECT_EQ(inputs.find("a")->count, 6);
  EXPECT_EQ(inputs.find("a")->most, 9);
  EXPECT_EQ(inputs.find("a")->least, -9);
  EXPECT_EQ(inputs.find("a")->kept.size(), 4U * 32) << "the rows that are finite";
  EXPECT_EQ(inputs.find("none"), nullptr);
  inputs.stop();
  network.forward(x);
  EXPECT_EQ(inputs.find("a")->count, 6);
  EXPECT_NE(message_of([&] {
              nn::InputRecorder again(network);
              compile([&](const Tensor& v) { return network.forward(v); })(x);
            }).find("run the module on one rank and without compile()"),
            std::string::npos);
}

}  // namespace
}  // namespace tutti
