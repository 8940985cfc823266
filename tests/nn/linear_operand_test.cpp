// Layers ask the operand for their products: a second kind takes the place of the dense one everywhere.
#include "tutti/nn/linear_operand.h"

#include <gtest/gtest.h>

#include "tests/support/low_rank_operand.h"
#include "tests/support/message_of.h"
#include "tests/support/same_bits.h"
#include "tutti/autograd/backward.h"
#include "tutti/autograd/tape.h"
#include "tutti/graph/compile.h"
#include "tutti/nn/multi_linear.h"
#include "tutti/nn/packed_operand.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/inplace.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reduction.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::nn {
namespace {

using facets::sample_tensor;

std::vector<std::string> names_of(const Module& module) {
  std::vector<std::string> names;
  for (const NamedParameter& p : module.named_parameters()) names.push_back(p.name);
  return names;
}

struct Projections final : Module {
  Projections() : q(this, "q", 5, 12), k(this, "k", 5, 8), v(this, "v", 5, 7) {}
  Tensor forward(const Tensor& x) const {
    const auto [a, b, c] = multi_linear(x, q, k, v);
    return add(sum(mul(a, a)), add(sum(mul(b, 3.0)), sum(mul(c, c))));
  }
  Tensor apart(const Tensor& x) const {
    const Tensor a = q(x), b = k(x), c = v(x);
    return add(sum(mul(a, a)), add(sum(mul(b, 3.0)), sum(mul(c, c))));
  }
  Child<Linear> q, k, v;
};

TEST(LinearOperand, OfALayerIsItsWeight) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    seed_all(1);
    Linear layer(5, 7, {.bias = false});
    layer.to(dtype);
    initialize(layer);
    const LinearOperand& w = layer.operand();
    EXPECT_EQ(w.in_features(), 5);
    EXPECT_EQ(w.out_features(), 7);
    EXPECT_EQ(w.kind(), "dense");
    ASSERT_EQ(w.parameters().size(), 1U);
    EXPECT_TRUE(w.parameters()[0].is_same(layer.weight));
    EXPECT_TRUE(w.matrix().is_same(layer.weight.use()));
    const Tensor x = sample_tensor(1, {3, 5}, dtype);
    expect_same_bits(layer.forward(x), linear(x, layer.weight), "product");
    expect_same_bits(w.product(x, DType::f32), matmul(x, transpose(layer.weight, 0, 1), {.out_dtype = DType::f32}),
                     "unrounded");
  }
}

TEST(LinearOperand, OfAnotherKindBringsItsParametersIntoTheLayer) {
  seed_all(2);
  Linear layer(5, 7);
  const auto operand = make_low_rank(layer, 2);
  EXPECT_EQ(names_of(layer), (std::vector<std::string>{"weight", "bias", "low_rank_a", "low_rank_b"}));
  EXPECT_EQ(layer.operand().kind(), "low-rank");
  initialize(layer);
  const Tensor x = sample_tensor(1, {4, 5}), product = layer.forward(x);
  const Tensor merged = add(linear(x, operand->merged()), layer.bias);
  for (int64_t i = 0; i < product.numel(); ++i) EXPECT_NEAR(product.data<float>()[i], merged.data<float>()[i], 1e-5);
  backward(sum(mul(product, product)));
  for (const NamedParameter& p : layer.named_parameters()) EXPECT_TRUE(p.parameter.grad().defined()) << p.name;
  layer.set_operand(operand);  // whose parameters are there
  EXPECT_EQ(names_of(layer).size(), 4U);
}

// q is no single matrix, so it multiplies on its own; results and gradients of parameters are those of the layers.
TEST(LinearOperand, StandsBesideDenseOnesInMultiLinear) {
  for (const int others : {1, 3}) {
    seed_all(3);
    Projections m;
    make_low_rank(*m.q, 2);
    if (others == 3) make_low_rank(*m.k, 3), make_low_rank(*m.v, 1);
    initialize(m);
    const Tensor x = sample_tensor(2, {6, 5});
    const auto gradients_of = [&](const std::function<Tensor(const Tensor&)>& forward) {
      const Tensor input = detach(x);
      requires_grad_(input, true);
      for (const NamedParameter& p : m.named_parameters()) p.parameter.set_grad({});
      const Tensor value = forward(input);
      backward(value);
      std::vector<Tensor> all{value};
      for (const NamedParameter& p : m.named_parameters()) all.push_back(p.parameter.grad());
      all.push_back(grad_of(input));
      return all;
    };
    const std::vector<Tensor> together = gradients_of([&](const Tensor& t) { return m.forward(t); }),
                              apart = gradients_of([&](const Tensor& t) { return m.apart(t); }),
                              compiled = gradients_of(compile([&](const Tensor& t) { return m.forward(t); }));
    ASSERT_EQ(together.size(), 7U + 2 * static_cast<size_t>(others) + 1);
    for (size_t i = 0; i < together.size(); ++i) {
      expect_same_bits(compiled[i], together[i], "compiled");
      if (i + 1 < together.size()) expect_same_bits(together[i], apart[i], fmt::format("{} others, {}", others, i));
    }
    const Tensor a = together.back(), b = apart.back();
    for (int64_t i = 0; i < a.numel(); ++i) EXPECT_NEAR(a.data<float>()[i], b.data<float>()[i], 1e-4);
  }
}

TEST(LinearOperand, OfOtherSizesIsRefused) {
  Linear layer(5, 7), other(7, 5);
  EXPECT_EQ(message_of([&] { layer.set_operand(nullptr); }),
            "Linear::set_operand: the operand of '' is null; give one of sizes [7, 5]");
  EXPECT_EQ(message_of([&] { layer.set_operand(std::make_shared<DenseOperand>(other.weight)); }),
            "Linear::set_operand: the dense operand for '' is [5, 7], and the layer [7, 5]");
}

// Two linear layers, of which one has a bias.
struct Packable final : Module {
  Packable() : up(this, "up", 40, 100), down(this, "down", 100, 49, LinearOptions{.bias = false}) {}
  Tensor forward(const Tensor& x) const { return down(up(x)); }
  Child<Linear> up, down;
};

TEST(PackedLinears, HaveTheBitsOfDenseOnesAndGiveThemBack) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    seed_all(1);
    Packable module;
    module.to(dtype);
    initialize(module);
    const std::vector<std::string> names = names_of(module);
    for (const Extents& rows : {Extents{}, Extents{1}, Extents{0}, Extents{17}, Extents{2, 3}}) {
      Extents sizes = rows;
      sizes.push_back(40);
      const Tensor x = sample_tensor(1, sizes, dtype);
      const Tensor y = module.forward(x), unrounded = module.up->operand().product(x, DType::f32);
      {
        const PackedLinears packed(module);
        EXPECT_EQ(packed.count(), 2U);
        EXPECT_EQ(module.up->operand().kind(), "packed");
        EXPECT_FALSE(module.up->operand().matrix().defined());
        expect_same_bits(module.forward(x), y, "packed");
        expect_same_bits(module.up->operand().product(x, DType::f32), unrounded, "unrounded");
        const PackedLinears again(module);  // finds nothing that is dense
        EXPECT_EQ(again.count(), 0U);
      }
      EXPECT_EQ(module.up->operand().kind(), "dense");
      EXPECT_EQ(names_of(module), names);
      expect_same_bits(module.forward(x), y, "dense again");
    }
  }
}

TEST(PackedLinears, PackTheValuesOfTheirTime) {
  seed_all(1);
  Packable module;
  initialize(module);
  const Tensor x = sample_tensor(1, {3, 40});
  const PackedLinears packed(module);
  const Tensor y = module.forward(x);
  {
    const NoGradScope no_grad;
    mul_(module.up->weight.master(), 2.0);
  }
  expect_same_bits(module.forward(x), y, "after a change");
  const std::string error = message_of([&] { PackedOperand(module.up->operand_ptr()); });
  EXPECT_NE(error.find("PackedOperand: the packed operand has no matrix to pack"), std::string::npos) << error;
}

}  // namespace
}  // namespace tutti::nn
