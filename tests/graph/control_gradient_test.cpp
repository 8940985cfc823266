// Gradients through cond and switch_ in compiled functions are those of an eager run, bit for bit.
#include "tutti/graph/control.h"

#include <gtest/gtest.h>

#include "tests/graph/support/control_support.h"
#include "tutti/autograd/backward.h"
#include "tutti/autograd/checkpoint.h"
#include "tutti/graph/compile.h"
#include "tutti/ops.h"

namespace tutti {
namespace {

using namespace graph_test;

// Gradients of two leaves with fn(p, x, w), eager and compiled, for both predicates.
template <class Fn>
void expect_same_gradients(const Fn& fn) {
  const auto f = compile(fn);
  for (const bool p : {true, false, true}) {
    const auto run = [&](auto&& call) {
      const Tensor x = values({4, 5}, 1), w = values({5}, 2);
      requires_grad_(x), requires_grad_(w);
      const Tensor y = call(scalar(p), x, w);
      backward(sum(mul(y, y)));
      return std::vector<Tensor>{detach(y), grad_of(x), grad_of(w)};
    };
    const auto got = run(f), expected = run(fn);
    for (size_t i = 0; i < got.size(); ++i) expect_same(got[i], expected[i]);
  }
}

TEST(CondGradient, OfOperandsAndHeldTensors) {
  expect_same_gradients([](const Tensor& p, const Tensor& x, const Tensor& w) {
    const Tensor h = mul(x, w);
    return cond(p, [&](Span in) { return mul(exp(in[0]), w); }, [&](Span in) { return add(tanh(in[0]), h); }, {x})[0];
  });
}

TEST(CondGradient, EveryUseIsAddedInForwardOrder) {
  expect_same_gradients([](const Tensor& p, const Tensor& x, const Tensor& w) {
    const Tensor before = mul(x, w);
    const Tensor y = cond(
        p, [&](Span in) { return add(mul(mul(in[0], w), w), mul(exp(w), w)); }, [&](Span in) { return mul(in[0], w); },
        {x})[0];
    return add(add(y, mul(before, y)), mul(sin(x), w));
  });
}

TEST(CondGradient, ResultsThatAreUsedInsideTheBranchToo) {
  expect_same_gradients([](const Tensor& p, const Tensor& x, const Tensor& w) {
    const auto y = cond(
        p,
        [&](Span in) {
          const Tensor a = mul(in[0], w);
          return std::vector<Tensor>{a, mul(sin(a), cos(a)), in[0]};
        },
        [&](Span in) { return std::vector<Tensor>{in[0], mul(in[0], w), mul(w, in[0])}; }, {x});
    return add(add(mul(y[0], y[1]), mul(y[0], x)), y[2]);
  });
}

TEST(CondGradient, OfNestedBranchesAndCheckpointedRegions) {
  expect_same_gradients([](const Tensor& p, const Tensor& x, const Tensor& w) {
    return cond(
        p,
        [&](Span in) {
          const Tensor h = mul(in[0], w);
          return cond(
              gt(sum(h), 0.0), [&](Span deep) { return mul(deep[0], exp(w)); }, [&](Span) { return mul(h, x); }, {h});
        },
        [&](Span in) { return checkpoint([w](Span r) { return mul(mul(exp(r[0]), w), w); }, std::span(&in[0], 1)); },
        {x})[0];
  });
}

TEST(CondGradient, InsideACheckpointedRegion) {
  expect_same_gradients([](const Tensor& p, const Tensor& x, const Tensor& w) {
    const Tensor h = mul(x, w);
    return checkpoint(
        [p, w](Span r) {
          return cond(
              p, [w](Span in) { return mul(exp(in[0]), w); }, [w](Span in) { return mul(mul(in[0], w), w); },
              {r[0]})[0];
        },
        std::span(&h, 1));
  });
}

TEST(CondGradient, SeveralBackwardsOfOneForward) {
  const auto fn = [](const Tensor& p, const Tensor& x) {
    requires_grad_(x);
    const auto y = cond(
        p, [](Span in) { return std::vector<Tensor>{mul(in[0], in[0]), exp(in[0])}; },
        [](Span in) { return std::vector<Tensor>{sin(in[0]), detach(in[0])}; }, {x});
    backward(sum(y[0]), {}, {.retain_graph = true});
    backward(sum(add(y[0], y[1])));
    return grad_of(x);
  };
  const auto f = compile(fn);
  for (const bool p : {true, false}) expect_same(f(scalar(p), values({4}, 1)), fn(scalar(p), values({4}, 1)));
}

TEST(CondGradient, BackwardInsideTheFunction) {
  const auto body = [](const Tensor& p, const Tensor& x, const Tensor& w) {
    const Tensor y =
        cond(p, [&](Span in) { return mul(in[0], w); }, [&](Span in) { return mul(exp(w), in[0]); }, {x})[0];
    const Tensor loss = sum(mul(y, y));
    backward(loss);
    return detach(loss);
  };
  const Tensor w = values({5}, 2), w2 = values({5}, 2);
  requires_grad_(w), requires_grad_(w2);
  const auto f = compile([&](const Tensor& p, const Tensor& x) { return body(p, x, w); });
  for (int step = 0; step < 4; ++step) {
    const Tensor x = values({4, 5}, static_cast<uint64_t>(10 + step));
    expect_same(f(scalar(step % 2), x), body(scalar(step % 2), x, w2));
    expect_same(grad_of(w), grad_of(w2));
  }
}

TEST(CondGradient, OfSwitchInNarrowFloats) {
  const auto fn = [](const Tensor& i, const Tensor& x, const Tensor& w) {
    return switch_(i,
                   {[&](Span in) { return matmul(in[0], w); }, [&](Span in) { return silu(matmul(in[0], w)); },
                    [&](Span in) { return add(matmul(in[0], w), matmul(exp(in[0]), w)); }},
                   {x})[0];
  };
  const auto f = compile(fn);
  for (int64_t i = 0; i < 3; ++i) {
    const auto run = [&](auto&& call) {
      const Tensor x = cast(values({4, 5}, 1), DType::bf16), w = cast(values({5, 6}, 2), DType::bf16);
      requires_grad_(x), requires_grad_(w);
      const Tensor y = call(Tensor::scalar(i), x, w);
      backward(sum(y));
      return std::vector<Tensor>{detach(y), grad_of(x), grad_of(w)};
    };
    const auto got = run(f), expected = run(fn);
    for (size_t k = 0; k < got.size(); ++k) expect_same(got[k], expected[k]);
  }
}

}  // namespace
}  // namespace tutti
