// Sizes that are symbols: one trace, many shapes.
#include <gtest/gtest.h>

#include "tests/graph/support/control_support.h"
#include "tutti/autograd/backward.h"
#include "tutti/graph/compile.h"
#include "tutti/graph/control.h"
#include "tutti/ops/activation.h"
#include "tutti/ops/attention.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/cat.h"
#include "tutti/ops/comparison.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/expand.h"
#include "tutti/ops/inplace.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/rms_norm.h"
#include "tutti/ops/slice.h"
#include "tutti/ops/softmax.h"
#include "tutti/ops/statistics.h"
#include "tutti/ops/unary.h"

namespace tutti {
namespace {

using namespace graph_test;

TEST(Symbolic, ASecondSizeMakesAFamilyAndFurtherOnesAreItsMembers) {
  int runs = 0;
  const auto f = compile([&](const Tensor& x) {
    ++runs;
    return exp(add(x, 1.0));
  });
  for (int64_t n = 2; n < 20; ++n) expect_same(f(values({n, 3}, 1)), exp(add(values({n, 3}, 1), 1.0)));
  EXPECT_EQ(runs, 2 + f.statistics().looks) << f.explain();
  EXPECT_EQ(f.statistics().looks, 4);  // at calls 2, 4, 8, 16 of the family
  EXPECT_EQ(f.statistics().compiles, 2);
  EXPECT_EQ(f.statistics().members, 16);
}

// A transformer block's worth of ops.
struct Layer {
  Tensor wq = values({8, 8}, 11), wk = values({8, 4}, 12), wv = values({8, 4}, 13), wo = values({8, 8}, 14),
         norm = values({8}, 15);
  Tensor operator()(const Tensor& x) const {
    const SymInt B = x.size(0), T = x.size(1);
    const Tensor n = rms_norm(x, norm, 1e-6);
    const Tensor q = reshape(matmul(n, wq), {B, T, 2, 4}), k = reshape(matmul(n, wk), {B, T, 1, 4}),
                 v = reshape(matmul(n, wv), {B, T, 1, 4});
    const Tensor a = reshape(sdpa(q, k, v, {.causal = true}), {B * T, 8});
    return add(x, reshape(matmul(a, wo), {B, T, 8}));
  }
};

TEST(Symbolic, ABlockWithGradientsInAnyBatchAndLength) {
  Layer layer;
  for (Tensor* t : {&layer.wq, &layer.wk, &layer.wv, &layer.wo, &layer.norm}) requires_grad_(*t);
  const std::vector<Tensor> leaves = {layer.wq, layer.wk, layer.wv, layer.wo, layer.norm};
  int runs = 0;
  const auto loss = [&](const Tensor& x) {
    ++runs;
    return mean(silu(layer(x)));
  };
  const auto f = compile(loss, {.name = "block"});
  for (const auto& [b, t] : {std::pair<int64_t, int64_t>{2, 5}, {3, 7}, {3, 9}, {6, 7}, {2, 130}, {7, 3}}) {
    const Tensor x = values({b, t, 8}, static_cast<uint64_t>(b * 100 + t));
    const Tensor got[] = {f(x)}, expected[] = {loss(x)};
    expect_same(got[0], expected[0]);
    const std::vector<Tensor> g = grad(got, leaves), e = grad(expected, leaves);
    for (size_t i = 0; i < leaves.size(); ++i) expect_same(g[i], e[i]);
  }
  EXPECT_EQ(f.statistics().compiles, 2) << f.explain();
  EXPECT_EQ(f.statistics().members, 4);
  EXPECT_EQ(runs, 2 + f.statistics().looks + 6);
}

TEST(Symbolic, GradientsThatTheFunctionSets) {
  Tensor w = values({4, 3}, 1);
  requires_grad_(w);
  const auto step = [&](const Tensor& x) {
    const Tensor loss = sum(matmul(x, w));
    backward(loss);
    return detach(loss);
  };
  const auto f = compile(step);
  for (int64_t n = 2; n < 7; ++n) {
    const Tensor x = values({n, 4}, static_cast<uint64_t>(n));
    set_grad(w, {});
    const Tensor got = f(x), g = grad_of(w);
    set_grad(w, {});
    expect_same(got, step(x));
    expect_same(g, grad_of(w));
  }
  EXPECT_EQ(f.statistics().compiles, 2) << f.explain();
}

TEST(Symbolic, SizesAsNumbersMasksAndPositions) {
  const auto fn = [](const Tensor& x) {
    const SymInt T = x.size(1);
    const Tensor mask = tril_mask(T, T), positions = arange(T);
    const Tensor scores = add(x, cast(positions, DType::f32));
    const Tensor half = slice(scores, 1, 0, floordiv(T, 2));
    return std::tuple(mul(scores, T), sum(half, {.dims = {1}}), cat({half, half}, 1),
                      truediv(cast(mask, DType::f32), T));
  };
  const auto f = compile(fn);
  for (int64_t t = 3; t < 10; ++t) {
    const Tensor x = values({2, t}, static_cast<uint64_t>(t));
    const auto got = f(x), expected = fn(x);
    expect_same(std::get<0>(got), std::get<0>(expected));
    expect_same(std::get<1>(got), std::get<1>(expected));
    expect_same(std::get<2>(got), std::get<2>(expected));
    expect_same(std::get<3>(got), std::get<3>(expected));
  }
  EXPECT_EQ(f.statistics().compiles, 2) << f.explain();
}

TEST(Symbolic, ABranchOnASizeIsAGuard) {
  const auto fn = [](const Tensor& x) { return x.size(0) > 8 ? exp(x) : tanh(x); };
  const auto f = compile(fn);
  for (const int64_t n : {4, 5, 6, 9, 12, 8, 7, 30, 2}) expect_same(f(values({n}, 1)), fn(values({n}, 1)));
  EXPECT_EQ(f.statistics().compiles, 3) << f.explain();
  expect_part(f.explain(), "guard (s0 > 8) does not hold");
}

TEST(Symbolic, EqualSizesAreSeparateSymbolsUntilAnOpNeedsThemEqual) {
  const auto outer = [](const Tensor& a, const Tensor& b) { return mul(reshape(a, {-1, 1}), b); };
  const auto f = compile(outer, {.dynamic = {dynamic(0, 0), dynamic(1, 0)}});
  for (const auto& [m, n] : {std::pair<int64_t, int64_t>{4, 4}, {4, 7}, {9, 3}})
    expect_same(f(values({m}, 1), values({n}, 2)), outer(values({m}, 1), values({n}, 2)));
  EXPECT_EQ(f.statistics().compiles, 1) << f.explain();

  const auto g =
      compile([](const Tensor& a, const Tensor& b) { return add(a, b); }, {.dynamic = {dynamic(0, 0), dynamic(1, 0)}});
  g(values({4}, 1), values({4}, 2)), g(values({5}, 1), values({5}, 2));
  EXPECT_EQ(g.statistics().compiles, 1) << g.explain();
  EXPECT_THROW(g(values({4}, 1), values({5}, 2)), UsageError);
}

TEST(Symbolic, WritesIntoViewsOfArguments) {
  const auto fn = [](const Tensor& x) {
    const Tensor tail = slice(x, 0, 1, x.size(0));
    mul_(tail, 2.0);
    return add(x, 1.0);
  };
  const auto f = compile(fn);
  for (int64_t n = 2; n < 8; ++n) {
    const Tensor a = values({n, 3}, 1), b = values({n, 3}, 1);
    expect_same(f(a), fn(b));
    expect_same(a, b);
  }
  EXPECT_EQ(f.statistics().compiles, 2) << f.explain();
}

TEST(Symbolic, StridesThatLeadToOtherCallsAreTracedAgain) {
  const auto fn = [](const Tensor& x) { return reshape(mul(x, 2.0), {-1}); };
  const auto direct = [](const Tensor& x) { return exp(reshape(x, {-1})); };
  const auto f = compile(fn);
  const auto g = compile(direct);
  for (int64_t n = 2; n < 6; ++n) {
    for (const Tensor& x : {values({n, 4}, 1), transpose(values({4, n}, 1), 0, 1)}) {
      expect_same(f(x), fn(x));
      expect_same(g(x), direct(x));
    }
  }
}

TEST(Symbolic, ASizeThatIsAnArgument) {
  const auto fn = [](const Tensor& x, SymInt rows) { return mul(reshape(x, {rows, -1}), truediv(SymInt(1), rows)); };
  const auto f = compile(fn);
  for (const int64_t rows : {2, 3, 4, 6, 12}) expect_same(f(values({24}, 1), SymInt(rows)), fn(values({24}, 1), rows));
  EXPECT_EQ(f.statistics().compiles, 2) << f.explain();
  const auto g = compile(fn, {.name = "rows", .dynamic = {dynamic(-1, 0, 2, 8)}});
  g(values({24}, 1), SymInt(2)), g(values({24}, 1), SymInt(8));
  EXPECT_EQ(g.statistics().compiles, 1);
  expect_part(error_of<UsageError>([&] { g(values({24}, 1), SymInt(12)); }),
              "'rows': size argument 0 is 12, declared as dynamic from 2 to 8");
}

TEST(Symbolic, NumbersThatDependOnSizes) {
  const auto fn = [](const Tensor& x) {
    const SymFloat scale = SymFloat(1.0) / sqrt(SymFloat(x.size(1)));
    return std::pair(mul(x, scale), var(x, {.dims = {1}}));
  };
  const auto f = compile(fn);
  for (int64_t n = 3; n < 9; ++n) {
    const auto got = f(values({2, n}, 1)), expected = fn(values({2, n}, 1));
    expect_same(got.first, expected.first);
    expect_same(got.second, expected.second);
  }
  EXPECT_EQ(f.statistics().compiles, 2) << f.explain();
}

TEST(Symbolic, ZeroAndOneStayWhatTheyAre) {
  const auto fn = [](const Tensor& x, const Tensor& y) { return sum(add(x, y), {.dims = {0}}); };
  const auto f = compile(fn);
  for (const auto& [m, n] :
       {std::pair<int64_t, int64_t>{2, 2}, {3, 3}, {1, 5}, {1, 6}, {4, 4}, {0, 0}, {5, 1}, {1, 1}, {7, 7}})
    expect_same(f(values({m, 3}, 1), values({n, 3}, 2)), fn(values({m, 3}, 1), values({n, 3}, 2)));
}

TEST(Symbolic, AnotherThatIsHeldInAViewOfSymbolicSize) {
  Tensor w = values({4}, 3);
  requires_grad_(w);
  const auto fn = [&](const Tensor& x) { return sum(mul(x, expand(w, {x.size(0), 4}))); };
  const auto f = compile(fn);
  for (int64_t n = 2; n < 7; ++n) {
    const Tensor x = values({n, 4}, 1), leaves[] = {w}, got[] = {f(x)}, expected[] = {fn(x)};
    expect_same(got[0], expected[0]);
    expect_same(grad(got, leaves)[0], grad(expected, leaves)[0]);
  }
  EXPECT_EQ(f.statistics().compiles, 2) << f.explain();
}

TEST(Symbolic, ADeclaredRangeMayIncludeZeroAndOne) {
  const auto fn = [](const Tensor& x) { return add(mean(exp(x), {.dims = {0}}), sum(expand(x, {x.size(0), 6}))); };
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{5, 1, 0, 3, 1, 9}, {1, 5, 0, 7, 0}, {0, 1, 2, 3}}) {
    const auto f = compile(fn, {.dynamic = {dynamic(0, 0, 0, 64)}});
    for (const int64_t n : sizes) expect_same(f(values({n, 6}, 1)), fn(values({n, 6}, 1)));
    EXPECT_LE(f.statistics().compiles, 3) << f.explain();
  }
}

TEST(SymbolicErrors, DeclaredRangesAreHeld) {
  const auto f =
      compile([](const Tensor& x) { return exp(x); }, {.name = "ranged", .dynamic = {dynamic(0, 0, 4, 64, 4)}});
  f(values({8}, 1)), f(values({64}, 1));
  expect_part(error_of<UsageError>([&] { f(values({68}, 1)); }),
              "'ranged': dim 0 of tensor 0 is 68, declared as dynamic from 4 to 64 in multiples of 4");
  EXPECT_THROW(f(values({10}, 1)), UsageError);
  EXPECT_EQ(f.statistics().compiles, 1);
  const auto none = compile([](const Tensor& x) { return exp(x); }, {.dynamic = {dynamic(1, 0)}});
  expect_part(error_of<UsageError>([&] { none(values({8}, 1)); }), "dynamic() names tensor 1, the arguments hold 1");
  const auto deep = compile([](const Tensor& x) { return exp(x); }, {.dynamic = {dynamic(0, 2)}});
  expect_part(error_of<UsageError>([&] { deep(values({8}, 1)); }), "dynamic() names dim 2 of tensor 0");
  const auto odd = compile([](const Tensor& x) { return exp(x); }, {.dynamic = {dynamic(0, 0, 9, 3)}});
  expect_part(error_of<UsageError>([&] { odd(values({8}, 1)); }), "sizes from 9 to 3");
}

TEST(SymbolicErrors, ACallThatIsWrongInAnyCaseLeavesNothingBehind) {
  using OnLimit = CompileOptions::OnLimit;
  const auto fn = [](const Tensor& a, const Tensor& b) { return add(a, b); };
  const auto f = compile(fn);
  const auto g =
      compile(fn, {.recompile_limit = 1, .on_limit = OnLimit::generalize, .sizes = CompileOptions::Sizes::fixed});
  for (const auto& h : {f, g}) {
    h(values({4}, 1), values({4}, 2));
    EXPECT_THROW(h(values({4}, 1), values({5}, 2)), UsageError);
    EXPECT_THROW(h(values({5}, 1), values({4}, 2)), UsageError);
    for (int64_t n = 5; n < 30; ++n) expect_same(h(values({n}, 1), values({n}, 2)), fn(values({n}, 1), values({n}, 2)));
    EXPECT_EQ(h.statistics().compiles, 2) << h.explain();
  }
}

TEST(SymbolicErrors, SizesOfATraceInAnother) {
  SymInt kept;
  SymFloat kept_number;
  compile(
      [&](const Tensor& x) {
        kept = x.size(0) + 7;
        kept_number = SymFloat(kept) * 0.5;
        return exp(x);
      },
      {.dynamic = {dynamic(0, 0)}})(values({4}, 1));
  EXPECT_EQ(kept.to_string(), "<symbol of an ended trace>");
  for (const bool number : {false, true}) {
    const auto f = compile(
        [&](const Tensor& x) {
          return mul(add(x, SymFloat(x.size(0) * 2 + 1)), number ? kept_number : SymFloat(kept));
        },
        {.dynamic = {dynamic(0, 0)}});
    expect_part(error_of<UsageError>([&] { f(values({9}, 1)); }),
                "a symbolic size was used in another trace than its own");
  }
}

TEST(SymbolicErrors, MoreDeclaredSizesThanSixtyFour) {
  std::vector<Tensor> tensors;
  std::vector<DynamicDim> dims;
  for (int i = 0; i < 70; ++i) {
    tensors.push_back(values({i + 2}, 1));
    dims.push_back(dynamic(i, 0));
  }
  const auto f = compile([](const std::vector<Tensor>& t) { return mul(t[69], static_cast<double>(t[69].extent(0))); },
                         {.dynamic = dims});
  expect_part(error_of<CaptureError>([&] { f(tensors); }), "s69 = dim 0 of tensor 69");
}

TEST(SymbolicErrors, AFunctionThatNeedsOneSizeSaysWhere) {
  const auto read = [](const Tensor& x) { return mul(x, static_cast<double>(x.extent(0))); };
  const auto f = compile(read, {.name = "reader", .dynamic = {dynamic(0, 0)}});
  const std::string text = error_of<CaptureError>([&] { f(values({8}, 1)); });
  expect_part(text, "TUTTI-CAPTURE-031 'reader'");
  expect_part(text, "what leads to mul");
  expect_part(text, "the integer s0 = 8");
  const auto g = compile(read);
  for (int64_t n = 2; n < 6; ++n) expect_same(g(values({n}, 1)), read(values({n}, 1)));
  EXPECT_EQ(g.statistics().compiles, 4);
  expect_part(g.explain(), "no symbols: s0 = dim 0 of tensor 0");
}

TEST(Symbolic, ChecksAreMadeForEverySize) {
  int runs = 0;
  const auto f = compile([&](const Tensor& x) {
    ++runs;
    check(gt(sum(x), 0.0), "the sum must be positive");
    return mul(x, 2.0);
  });
  for (int64_t n = 2; n < 9; ++n) {
    expect_same(f(full({n}, 1.0)), full({n}, 2.0));
    EXPECT_THROW(f(full({n}, -1.0)), UsageError) << n;
  }
  EXPECT_EQ(runs, 2 + f.statistics().looks);
}

}  // namespace
}  // namespace tutti
