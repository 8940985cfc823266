// Layers that read one value together, against separate layers and formulas in f64.
#include "tutti/nn/multi_linear.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/message_of.h"
#include "tests/support/same_bits.h"
#include "tutti/autograd/backward.h"
#include "tutti/autograd/checkpoint.h"
#include "tutti/graph/compile.h"
#include "tutti/nn/module_call.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/matmul_sum.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reduction.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::nn {
namespace {

using facets::sample_tensor;

struct Projections final : Module {
  Projections(bool bias, int64_t in = 5)
      : q(this, "q", in, 300, LinearOptions{.bias = bias}),
        k(this, "k", in, 150, LinearOptions{.bias = bias}),
        v(this, "v", in, 7, LinearOptions{.bias = bias}) {}
  // Scaled so that the cotangents of the three differ.
  Tensor together(const Tensor& x) const {
    const auto [a, b, c] = multi_linear(x, q, k, v);
    return joined(a, b, c);
  }
  Tensor apart(const Tensor& x) const {
    const Tensor a = q(x), b = k(x), c = v(x);
    return joined(a, b, c);
  }
  Tensor joined(const Tensor& a, const Tensor& b, const Tensor& c) const {
    return add(sum(mul(a, a)), add(sum(mul(b, 3.0)), sum(mul(c, c))));
  }

  Child<Linear> q, k, v;
};

struct Outcome {
  Tensor value, dx;
  std::vector<Tensor> gradients;
};

Outcome run_with(const Projections& m, const Tensor& x, const std::function<Tensor(const Tensor&)>& forward) {
  const Tensor input = detach(x);
  requires_grad_(input, true);
  for (const NamedParameter& p : m.named_parameters()) p.parameter.set_grad({});
  const Tensor value = forward(input);
  backward(value);
  Outcome run{value, grad_of(input), {}};
  for (const NamedParameter& p : m.named_parameters()) run.gradients.push_back(p.parameter.grad());
  return run;
}

void expect_same(const Outcome& a, const Outcome& b, const std::string& what) {
  expect_same_bits(a.value, b.value, what);
  expect_same_bits(a.dx, b.dx, what + ": gradient of x");
  for (size_t i = 0; i < a.gradients.size(); ++i)
    expect_same_bits(a.gradients[i], b.gradients[i], fmt::format("{}: gradient {}", what, i));
}

TEST(MultiLinear, HasTheResultsAndWeightGradientsOfTheLayers) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const bool bias : {false, true}) {
      seed_all(3);
      Projections m(bias);
      if (dtype != DType::f32) m.to(dtype);
      initialize(m);
      for (const Extents& sizes : {Extents{6, 5}, Extents{2, 3, 5}, Extents{5}}) {
        const Tensor x = sample_tensor(1, sizes, dtype);
        const Outcome one = run_with(m, x, [&](const Tensor& t) { return m.together(t); }),
                      other = run_with(m, x, [&](const Tensor& t) { return m.apart(t); });
        expect_same_bits(one.value, other.value, "value");
        for (size_t i = 0; i < one.gradients.size(); ++i)
          expect_same_bits(one.gradients[i], other.gradients[i], fmt::format("gradient {}", i));
        EXPECT_EQ(one.dx.extents(), sizes);
      }
    }
  }
}

// sum over layers of g W in f64, where g is 2 y, 3 and 2 y.
TEST(MultiLinear, GradientOfTheInputIsThatOfTheFormula) {
  seed_all(4);
  Projections m(false);
  initialize(m);
  const Tensor x = sample_tensor(2, {6, 5});
  const Outcome run = run_with(m, x, [&](const Tensor& t) { return m.together(t); });
  const std::vector<NamedParameter> parameters = m.named_parameters();
  for (int64_t t = 0; t < 6; ++t) {
    for (int64_t i = 0; i < 5; ++i) {
      double expected = 0;
      for (size_t layer = 0; layer < 3; ++layer) {
        const Tensor w = parameters[layer].parameter.use();
        for (int64_t o = 0; o < w.extent(0); ++o) {
          double y = 0;
          for (int64_t j = 0; j < 5; ++j)
            y += static_cast<double>(x.data<float>()[t * 5 + j]) * w.data<float>()[o * 5 + j];
          expected += (layer == 1 ? 3.0 : 2 * y) * w.data<float>()[o * 5 + i];
        }
      }
      EXPECT_NEAR(run.dx.data<float>()[t * 5 + i], expected, 1e-4 * (1 + std::abs(expected)));
    }
  }
}

TEST(MultiLinear, CompiledAndRecomputedItHasTheSameBits) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    seed_all(5);
    Projections m(true);
    if (dtype != DType::f32) m.to(dtype);
    initialize(m);
    const Tensor x = sample_tensor(3, {9, 5}, dtype);
    const Outcome eager = run_with(m, x, [&](const Tensor& t) { return m.together(t); });
    const auto compiled = compile([&](const Tensor& t) { return m.together(t); }, {.name = "projections"});
    expect_same(run_with(m, x, [&](const Tensor& t) { return compiled(t); }), eager, "compiled");
    const auto region = [&](std::span<const Tensor> in) { return m.together(in[0]); };
    expect_same(run_with(m, x, [&](const Tensor& t) { return checkpoint(region, std::span(&t, 1)); }), eager,
                "recomputed");
  }
}

// A result that nobody uses adds nothing, and a frozen weight or input gets no gradient.
TEST(MultiLinear, ComputesGradientsThatAreWanted) {
  seed_all(6);
  Projections m(false);
  initialize(m);
  const Tensor x = sample_tensor(4, {6, 5});
  requires_grad_(x, true);
  const auto [q, k, v] = multi_linear(x, m.q, m.k, m.v);
  backward(sum(k));
  EXPECT_FALSE(m.q->weight.grad().defined());
  EXPECT_TRUE(m.k->weight.grad().defined());
  expect_same_bits(grad_of(x), matmul(ones({6, 150}), m.k->weight.use()), "of one layer");

  m.k->weight.requires_grad_(false);
  const Outcome run = run_with(m, x, [&](const Tensor& t) { return m.together(t); });
  EXPECT_FALSE(run.gradients[1].defined());
  const auto [a, b, c] = multi_linear(detach(x), m.q, m.k, m.v);
  EXPECT_TRUE(requires_grad(a));
  EXPECT_FALSE(m.k->weight.grad().defined());
}

TEST(MultiLinear, RunsTheHooksOfEveryLayer) {
  seed_all(7);
  Projections m(false);
  initialize(m);
  const Tensor x = sample_tensor(5, {2, 5});
  std::string order;
  m.q->forward_hooks().before([&](const Module& module, std::vector<Tensor>&) { order += module.call_name() + "< "; });
  m.q->forward_hooks().after([&](const Module& module, const Tensor&) { order += module.call_name() + "> "; });
  const Tensor doubled = mul(x, 2.0);
  for (Child<Linear>* layer : {&m.q, &m.k, &m.v})
    (*layer)->forward_hooks().before([=](const Module&, std::vector<Tensor>& inputs) { inputs[0] = doubled; });
  m.v->forward_hooks().after(
      [&](const Module& module, const Tensor& y) { return order += module.call_name() + "> ", mul(y, 4.0); });
  const auto [q, k, v] = multi_linear(x, m.q, m.k, m.v);
  EXPECT_EQ(order, "q< q> v> ");
  expect_same_bits(detach(q), detach(linear(doubled, m.q->weight)), "q");
  expect_same_bits(detach(k), detach(linear(doubled, m.k->weight)), "k");
  expect_same_bits(detach(v), detach(mul(linear(doubled, m.v->weight), 4.0)), "v");
  m.k->forward_hooks().before([](const Module&, std::vector<Tensor>& inputs) { inputs[0] = mul(inputs[0], 2.0); });
  EXPECT_EQ(message_of([&] { multi_linear(x, m.q, m.k, m.v); }),
            "multi_linear: hooks of 'q' and 'k' give them different inputs, [2, 5] f32 cpu and [2, 5] f32 cpu, and the "
            "gradient of the input is one sum over all layers; prepare the "
            "input once, before the call (PrepareModuleInput of the module around), or call the layers one by one");
}

TEST(MultiLinear, GradientsOfGradients) {
  seed_all(8);
  Projections m(false);
  m.to(DType::f64);
  initialize(m);
  const Tensor x = sample_tensor(6, {3, 5}, DType::f64);
  const auto slope = [&](const std::function<Tensor(const Tensor&)>& f) {
    const Tensor input = detach(x);
    requires_grad_(input, true);
    const Tensor inputs[] = {input}, outputs[] = {f(input)};
    const Tensor first = grad(outputs, inputs, {}, {.create_graph = true})[0];
    const Tensor squares[] = {sum(mul(first, first))};
    return grad(squares, inputs)[0];
  };
  const Tensor one = slope([&](const Tensor& t) { return m.together(t); });
  const Tensor other = slope([&](const Tensor& t) { return m.apart(t); });
  for (int64_t i = 0; i < 15; ++i)
    EXPECT_NEAR(one.data<double>()[i], other.data<double>()[i], 1e-9 * (1 + std::abs(other.data<double>()[i])));
}

TEST(MultiLinear, WrongUsesAreNamed) {
  Projections m(false);
  initialize(m);
  EXPECT_EQ(
      message_of([&] { multi_linear(ones({2, 4}), m.q, m.k); }),
      "multi_linear: x is [2, 4] f32 cpu, the weight of layer 0 has sizes [300, 5]; expected [out, in] with in == 4");
  Linear fresh(4, 2, {.bias = false});
  const Linear* const list[] = {&fresh};
  const std::vector<const Linear*> many(13, &fresh);
  EXPECT_EQ(message_of([&] { multi_linear(ones({2, 4}), many); }), "multi_linear: 13 layers; expected 1 to 12");
  EXPECT_NE(message_of([&] { multi_linear(ones({2, 4}), list); }).find("initialize"), std::string::npos);
  const Tensor a[] = {ones({2, 3}), ones({2, 4})}, b[] = {ones({3, 5}), ones({5, 5})};
  EXPECT_EQ(
      message_of([&] { matmul_sum(a, b); }),
      "matmul_sum: a[1] is [2, 4] f32 cpu, b[1] is [5, 5] f32 cpu; expected [2, k] and [k, 5], as of the first pair");
  EXPECT_EQ(message_of([&] { matmul_sum_into(zeros({2, 4}), std::span(a, 1), std::span(b, 1)); }),
            "matmul_sum_into: the result is [2, 4] f32 cpu; expected a dense [2, 5]");
  EXPECT_EQ(message_of([&] { matmul_sum(a, std::span(b, 1)); }),
            "matmul_sum: 2 left and 1 right operands; expected as many of each, from 1 to 12");
}

}  // namespace
}  // namespace tutti::nn
