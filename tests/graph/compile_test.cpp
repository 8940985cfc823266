// compile(): results, gradients and writes are those of an eager run, bit for bit.
#include "tutti/graph/compile.h"

#include <gtest/gtest.h>

#include "tests/graph/support/same.h"
#include "tutti/autograd/backward.h"
#include "tutti/autograd/checkpoint.h"
#include "tutti/ops.h"

namespace tutti {
namespace {

using graph_test::expect_same;
using graph_test::values;

Tensor chain(const Tensor& a, const Tensor& b, const Tensor& c) { return gelu(add(mul(a, b), c)); }

TEST(Compile, PointwiseChainIsOneKernel) {
  const Tensor a = values({37, 19}, 1), b = values({37, 19}, 2), c = values({19}, 3);
  const auto f = compile(chain, {.name = "chain"});
  expect_same(f(a, b, c), chain(a, b, c));
  const CompileStatistics s = f.statistics();
  EXPECT_EQ(s.last.kernels, 1) << f.explain();
  EXPECT_EQ(s.last.calls, 0);
  expect_same(f(b, a, c), chain(b, a, c));
  EXPECT_EQ(f.statistics().compiles, 1);
}

TEST(Compile, NarrowFloatsRoundWhereEagerOpsStore) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Tensor a = cast(values({64, 33}, 1), dtype), b = cast(values({64, 33}, 2), dtype),
                 c = cast(values({33}, 3), dtype);
    expect_same(compile(chain)(a, b, c), chain(a, b, c));
  }
}

TEST(Compile, RowsFuseWithWhatFeedsAndFollowsThem) {
  const auto fn = [](const Tensor& x, const Tensor& r, const Tensor& w) { return silu(rms_norm(add(x, r), w, 1e-6)); };
  const Tensor x = values({5, 7, 96}, 1), r = values({5, 7, 96}, 2), w = values({96}, 3);
  const auto f = compile(fn);
  expect_same(f(x, r, w), fn(x, r, w));
  EXPECT_EQ(f.statistics().last.kernels, 1) << f.explain();
}

TEST(Compile, StatisticsOfRowsStayInTheKernel) {
  const auto fn = [](const Tensor& x) {
    const Tensor centered = sub(x, mean(x, {.dims = {-1}, .keepdim = true}));
    return truediv(centered, sqrt(add(mean(mul(centered, centered), {.dims = {-1}, .keepdim = true}), 1e-5)));
  };
  const Tensor x = values({33, 257}, 1);
  const auto f = compile(fn);
  expect_same(f(x), fn(x));
  EXPECT_EQ(f.statistics().last.kernels, 1) << f.explain();
}

TEST(Compile, ReshapesDoNotPartKernels) {
  const auto fn = [](const Tensor& x, const Tensor& y) {
    const Tensor a = reshape(mul(x, y), {6, 4, 8});
    return softmax(add(a, 1.0), -1);
  };
  const Tensor x = values({6, 32}, 1), y = values({6, 32}, 2);
  const auto f = compile(fn);
  expect_same(f(x, y), fn(x, y));
  EXPECT_EQ(f.statistics().last.kernels, 1) << f.explain();
}

TEST(Compile, RowsAcrossMemoryHaveTheBitsOfEagerOnes) {
  const auto fn = [](const Tensor& x) {
    return std::vector{softmax(x, 0), log_softmax(mul(x, 2.0), 0), softmax(reshape(x, {6, 100, 37}), 1)};
  };
  const Tensor x = values({600, 37}, 1);
  const auto f = compile(fn);
  const std::vector<Tensor> compiled = f(x), eager = fn(x);
  for (size_t i = 0; i < eager.size(); ++i) expect_same(compiled[i], eager[i]);
}

TEST(Compile, InPlaceWritesReachTheArgument) {
  const auto fn = [](const Tensor& x, const Tensor& y) {
    add_(x, y);
    mul_(slice(x, 0, 1, 3), 2.0);
    return mul(x, y);
  };
  Tensor x = values({4, 5}, 1), y = values({4, 5}, 2), x2 = clone(x);
  const auto f = compile(fn);
  const uint32_t version = x.version();
  const Tensor got = f(x, y), expected = fn(x2, y);
  expect_same(got, expected);
  expect_same(x, x2);
  EXPECT_GT(x.version(), version);
}

TEST(Compile, OverlappingArgumentsAreAKindOfTheirOwn) {
  const auto fn = [](const Tensor& x, const Tensor& y) {
    add_(x, 1.0);
    return add(x, y);
  };
  const auto f = compile(fn);
  const auto eager = [&](bool overlap) {
    Tensor base = values({10}, 1);
    return fn(slice(base, 0, 0, 4), overlap ? slice(base, 0, 2, 6) : slice(base, 0, 6, 10));
  };
  const auto compiled = [&](bool overlap) {
    Tensor base = values({10}, 1);
    return f(slice(base, 0, 0, 4), overlap ? slice(base, 0, 2, 6) : slice(base, 0, 6, 10));
  };
  expect_same(f(values({4}, 1), values({4}, 2)), fn(values({4}, 1), values({4}, 2)));
  expect_same(compiled(false), eager(false));
  expect_same(compiled(true), eager(true));
  EXPECT_EQ(f.statistics().compiles, 3);
}

// Which arguments share memory decides between programs where there are hundreds of them, as where there are two.
TEST(Compile, ManyArgumentsThatShareMemoryAreAKindOfTheirOwn) {
  const auto fn = [](const std::vector<Tensor>& all) {
    for (size_t i = 0; i < all.size(); ++i) add_(all[i], static_cast<double>(i));
    Tensor sum = all[0];
    for (size_t i = 1; i < all.size(); ++i) sum = add(sum, all[i]);
    return sum;
  };
  const auto f = compile(fn);
  // shared: the places of arguments that are one tensor, or views of one that overlap.
  const auto arguments = [](int count, std::pair<int, int> shared, bool is_view) {
    std::vector<Tensor> all;
    for (int i = 0; i < count; ++i) all.push_back(values({5}, static_cast<uint64_t>(i)));
    if (shared.first < 0) return all;
    const Tensor base = values({7}, 99);
    all[static_cast<size_t>(shared.first)] = slice(base, 0, 0, 5);
    all[static_cast<size_t>(shared.second)] = is_view ? slice(base, 0, 2, 7) : all[static_cast<size_t>(shared.first)];
    return all;
  };
  const auto check = [&](int count, std::pair<int, int> shared, bool is_view) {
    expect_same(f(arguments(count, shared, is_view)), fn(arguments(count, shared, is_view)));
  };
  for (int round = 0; round < 2; ++round) {
    check(300, {-1, -1}, false);
    check(300, {0, 299}, false);
    check(300, {0, 299}, true);
    check(300, {17, 18}, true);
    check(40, {-1, -1}, false);
    check(40, {38, 39}, false);
  }
  EXPECT_EQ(f.statistics().compiles, 6);
}

// Views of one tensor at one place are a kind of their own when they are one object, and another when they are two.
TEST(Compile, ManyViewsOfOneTensorAreAKindOfTheirOwn) {
  constexpr int64_t kViews = 300;
  const auto fn = [](const std::vector<Tensor>& all) {
    for (size_t i = 0; i < all.size(); ++i) add_(all[i], static_cast<double>(i));
    Tensor sum = all[0];
    for (size_t i = 1; i < all.size(); ++i) sum = add(sum, all[i]);
    return sum;
  };
  const auto f = compile(fn);
  enum class Twins { none, two_objects, one_object };
  const auto arguments = [](Twins twins, uint64_t seed) {
    const Tensor base = values({5 * kViews}, seed);
    std::vector<Tensor> all;
    for (int64_t i = 0; i < kViews; ++i) all.push_back(slice(base, 0, 5 * i, 5 * i + 5));
    if (twins != Twins::none) all[200] = twins == Twins::one_object ? all[100] : slice(base, 0, 500, 505);
    return all;
  };
  for (uint64_t round = 0; round < 2; ++round) {
    for (const Twins twins : {Twins::none, Twins::two_objects, Twins::one_object}) {
      const std::vector<Tensor> given = arguments(twins, round), like = arguments(twins, round);
      expect_same(f(given), fn(like));
      for (size_t i = 0; i < given.size(); ++i) ASSERT_TRUE(graph_test::same_bits(given[i], like[i])) << i;
    }
  }
  EXPECT_EQ(f.statistics().compiles, 3);
}

TEST(Compile, OffsetsOfArgumentsDoNotMatter) {
  const auto f = compile([](const Tensor& x) { return exp(x); });
  const Tensor base = values({8, 16}, 1);
  for (int64_t i = 0; i < 8; ++i) expect_same(f(select(base, 0, i)), exp(select(base, 0, i)));
  EXPECT_EQ(f.statistics().compiles, 1);
}

TEST(Compile, OutputsThatAliasArguments) {
  const auto f = compile([](const Tensor& x) { return std::pair(x, transpose(x, 0, 1)); });
  const Tensor x = values({3, 4}, 1);
  const auto [same, view] = f(x);
  EXPECT_TRUE(same.is_same(x));
  EXPECT_EQ(view.storage().get(), x.storage().get());
  EXPECT_EQ(view.strides(), (Extents{1, 4}));
}

TEST(Compile, OutputsThatAliasEachOther) {
  const auto f = compile([](const Tensor& x) {
    const Tensor y = exp(x);
    return std::vector<Tensor>{y, slice(y, 0, 1, 2)};
  });
  const auto out = f(values({3, 4}, 1));
  EXPECT_EQ(out[0].storage().get(), out[1].storage().get());
  fill_(out[1], 7.0);
  EXPECT_EQ(select(select(out[0], 0, 1), 0, 2).item(), 7.0);
}

TEST(Compile, HeldTensorsAreReadAtEveryCall) {
  Tensor w = values({5}, 1);
  const auto f = compile([w](const Tensor& x) { return mul(x, w); });
  const Tensor x = values({3, 5}, 2);
  expect_same(f(x), mul(x, w));
  fill_(w, 3.0);
  expect_same(f(x), mul(x, w));
  EXPECT_EQ(f.statistics().compiles, 1);
}

TEST(Compile, GradientsThroughACompiledFunction) {
  const auto fn = [](const Tensor& x, const Tensor& w) { return silu(matmul(x, w)); };
  const auto f = compile(fn);
  const auto run = [&](auto&& call) {
    const Tensor x = values({6, 8}, 1), w = values({8, 4}, 2);
    requires_grad_(x), requires_grad_(w);
    const Tensor y = call(mul(x, 2.0), w);
    backward(sum(mul(y, y)));
    return std::vector<Tensor>{detach(y), grad_of(x), grad_of(w)};
  };
  const auto got = run(f), expected = run(fn);
  for (size_t i = 0; i < got.size(); ++i) expect_same(got[i], expected[i]);
}

TEST(Compile, BackwardInsideSetsGradientsOfHeldLeaves) {
  const auto make = [] {
    Tensor w = values({8, 4}, 2);
    requires_grad_(w);
    return w;
  };
  const Tensor w = make(), w2 = make();
  const auto body = [](const Tensor& w, const Tensor& x) {
    const Tensor loss = sum(exp(matmul(x, w)));
    backward(loss);
    return detach(loss);
  };
  const auto f = compile([&](const Tensor& x) { return body(w, x); });
  for (int step = 0; step < 3; ++step) {
    const Tensor x = values({3, 8}, static_cast<uint64_t>(10 + step));
    expect_same(f(x), body(w2, x));
    expect_same(grad_of(w), grad_of(w2));
    if (step == 1) set_grad(w, {}), set_grad(w2, {});
  }
}

// A training step gives back its loss: the backward inside used up its graph, and a second one is an error, compiled or
// not.
TEST(Compile, ALossWhoseBackwardRanInsideComesOutDetached) {
  const Tensor w = values({5, 4}, 2), x = values({8, 5}, 1);
  requires_grad_(w);
  const auto step = [&](const Tensor& a) {
    const Tensor y = matmul(a, w), loss = sum(mul(y, y));
    backward(loss);
    return std::vector<Tensor>{loss, y, mul(w, 3.0)};
  };
  const std::vector<Tensor> expected = step(x);
  const Tensor gradient = clone(grad_of(w));
  set_grad(w, {});
  const auto f = compile(step);
  for (int call = 0; call < 2; ++call) {
    set_grad(w, {});
    const std::vector<Tensor> got = f(x);
    for (size_t i = 0; i < got.size(); ++i) expect_same(detach(got[i]), detach(expected[i]));
    expect_same(grad_of(w), gradient);
    EXPECT_FALSE(requires_grad(got[0]));
    EXPECT_FALSE(requires_grad(got[1]));
    EXPECT_TRUE(requires_grad(got[2]));  // of a graph of its own
    EXPECT_THROW(backward(got[0]), UsageError);
    set_grad(w, {});
    backward(sum(got[2]));
    expect_same(grad_of(w), full({5, 4}, 3.0));
  }
  EXPECT_THROW(backward(expected[0]), UsageError);
  // With retain_graph it is still there.
  const auto retained = compile([&](const Tensor& a) {
    const Tensor y = matmul(a, w), loss = sum(mul(y, y));
    backward(loss, {}, {.retain_graph = true});
    return loss;
  });
  set_grad(w, {});
  const Tensor loss = retained(x);
  ASSERT_TRUE(requires_grad(loss));
  backward(loss);
  expect_same(grad_of(w), mul(gradient, 2.0));
}

TEST(Compile, CheckpointedRegionsAreRecomputed) {
  const auto fn = [](const Tensor& x) {
    return checkpoint([](std::span<const Tensor> in) { return mul(exp(in[0]), in[0]); }, std::span(&x, 1));
  };
  const auto run = [&](auto&& call) {
    const Tensor x = values({6, 8}, 1);
    requires_grad_(x);
    backward(sum(call(x)));
    return grad_of(x);
  };
  expect_same(run(compile(fn)), run(fn));
}

TEST(CompileErrors, ReadingAValueNamesTheFunctionAndTheRemedy) {
  const auto f = compile([](const Tensor& x) { return sum(x).item() > 0 ? exp(x) : x; }, {.name = "branchy"});
  try {
    f(values({3}, 1));
    FAIL() << "no error";
  } catch (const CaptureError& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find("TUTTI-CAPTURE-012"), std::string::npos) << text;
    EXPECT_NE(text.find("'branchy'"), std::string::npos) << text;
  }
}

TEST(CompileErrors, ATensorThatLeavesItsTrace) {
  Tensor leaked;
  const auto f = compile([&](const Tensor& x) { return leaked = exp(x); }, {.name = "leaky"});
  f(values({3}, 1));
  EXPECT_THROW(add(leaked, leaked), CaptureError);
}

TEST(CompileErrors, TensorsThatWereComputedOutsideAndRequireGrad) {
  const Tensor w = values({3, 2}, 1);
  requires_grad_(w);
  const Tensor outside = exp(w);
  const auto uses = compile([&](const Tensor& x) { return mul(x, outside); });
  EXPECT_THROW(uses(values({3, 2}, 2)), CaptureError);
  const auto returns = compile([&](const Tensor&) { return transpose(w, 0, 1); });
  EXPECT_THROW(returns(values({3, 2}, 2)), CaptureError);
}

TEST(CompileErrors, WhatTheBackwardReadsMustNotBeChanged) {
  const auto f = compile([](const Tensor& x) { return exp(x); });
  const Tensor x = values({4}, 1), y = values({4}, 2);
  requires_grad_(x), requires_grad_(y);
  const Tensor result = f(x);
  {
    const NoGradScope no_grad;
    add_(detach(result), 1.0);  // exp keeps its result
  }
  EXPECT_THROW(backward(sum(result)), UsageError);
  const Tensor loss = sum(f(y));
  backward(loss);
  EXPECT_THROW(backward(loss), UsageError);
}

TEST(CompileErrors, GradientsOfGradientsThroughAFunctionThatWrites) {
  const auto f = compile([](const Tensor& x, const Tensor& count) {
    add_(count, 1.0);
    return exp(x);
  });
  const Tensor x = values({4}, 1), count = values({1}, 2);
  requires_grad_(x);
  const Tensor loss[] = {sum(f(x, count))}, leaves[] = {x};
  try {
    grad(loss, leaves, {}, {.create_graph = true});
    FAIL() << "no error";
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find(
                  "gradients of gradients (create_graph) are not recorded through one that writes memory"),
              std::string::npos)
        << e.what();
  }
}

// One result of several is used: the others add no zeros (0 * inf is no number), and what leads to them only stays
// undefined.
TEST(CompileBackward, ResultsThatAreNotUsedSendNothing) {
  using Pair = std::pair<Tensor, Tensor>;
  const auto fn = [](const Tensor& x, const Tensor& y) { return Pair(mul(exp(x), 2.0), add(mul(log(y), x), log(x))); };
  const auto f = compile(fn);
  const auto gradients = [&](const auto& function, bool first, bool second) {
    const Tensor x = full({3}, 0.0), y = full({3}, 2.0);
    requires_grad_(x), requires_grad_(y);
    const auto [a, b] = function(x, y);
    if (first && second) backward(add(sum(a), sum(b)));
    else backward(sum(first ? a : b));
    return Pair(grad_of(x), grad_of(y));
  };
  for (const auto& [first, second] :
       {std::pair(true, false), std::pair(false, true), std::pair(true, true), std::pair(true, false)}) {
    const Pair eager = gradients(fn, first, second), compiled = gradients(f, first, second);
    expect_same(compiled.first, eager.first);
    expect_same(compiled.second, eager.second);
    EXPECT_EQ(compiled.second.defined(), second);
  }
}

TEST(CompileErrors, IntegerDivisionByZeroInsideAKernel) {
  const auto f = compile([](const Tensor& a, const Tensor& b) { return add(floordiv(a, b), 1); });
  const Tensor a = Tensor::of<int64_t>({7, 8, 9}), b = Tensor::of<int64_t>({2, 0, 3});
  EXPECT_THROW(f(a, b), IntegerDivideByZero);
  EXPECT_EQ(f(a, Tensor::of<int64_t>({2, 4, 3})).data<int64_t>()[1], 3);
}

TEST(CompileErrors, RecompileLimitListsWhatDiffered) {
  const auto f = compile([](const Tensor& x) { return exp(x); },
                         {.name = "growing", .recompile_limit = 2, .sizes = CompileOptions::Sizes::fixed});
  f(values({2}, 1)), f(values({3}, 1));
  try {
    f(values({4}, 1));
    FAIL() << "no error";
  } catch (const RecompileLimit& e) {
    EXPECT_NE(std::string(e.what()).find("shape of tensor 0 is [3], was [2]"), std::string::npos) << e.what();
  }
  const auto h = compile(
      [](const Tensor& x) { return exp(x); },
      {.recompile_limit = 2, .on_limit = CompileOptions::OnLimit::forget, .sizes = CompileOptions::Sizes::fixed});
  for (int64_t n = 2; n < 9; ++n) expect_same(h(values({n}, 1)), exp(values({n}, 1)));
  EXPECT_EQ(h.statistics().compiles, 7);
  const auto g = compile([](const Tensor& x) { return exp(x); },
                         {.recompile_limit = 1, .on_limit = CompileOptions::OnLimit::eager});
  for (int64_t n = 2; n < 5; ++n) expect_same(g(values({n}, 1)), exp(values({n}, 1)));
  EXPECT_EQ(g.statistics().eager_calls, 2);
  const auto m = compile(
      [](const Tensor& x) { return exp(x); },
      {.recompile_limit = 2, .on_limit = CompileOptions::OnLimit::generalize, .sizes = CompileOptions::Sizes::fixed});
  for (int64_t n = 2; n < 9; ++n) expect_same(m(values({n}, 1)), exp(values({n}, 1)));
  EXPECT_EQ(m.statistics().compiles, 3);
  EXPECT_THROW(m(values({3, 3}, 1)), RecompileLimit);
}

}  // namespace
}  // namespace tutti
