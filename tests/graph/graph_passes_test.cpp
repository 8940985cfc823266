// The passes one by one: merging, leaving out, fusing, planning memory.
#include <gtest/gtest.h>

#include <random>

#include "tests/graph/support/same.h"
#include "tutti/autograd/backward.h"
#include "tutti/autograd/checkpoint.h"
#include "tutti/core/hash.h"
#include "tutti/graph/compile.h"
#include "tutti/ops.h"
#include "tutti/plan/access.h"
#include "tutti/plan/passes/plan_memory.h"
#include "tutti/plan/recipe_facts.h"

namespace tutti {
namespace {

using graph::Space;
using graph_test::values;

TEST(CommonSpace, RefinesWhatFactorsAlike) {
  EXPECT_EQ(graph::common_space({{6, 32}, {}}, {{6, 4, 8}, {}})->sizes, (Extents{6, 4, 8}));
  EXPECT_EQ(graph::common_space({{6, 4}, {}}, {{3, 8}, {}})->sizes, (Extents{3, 2, 4}));
  EXPECT_EQ(graph::common_space({{1, 5}, {}}, {{5}, {}})->sizes, (Extents{5}));
  EXPECT_FALSE(graph::common_space({{6, 4}, {}}, {{4, 6}, {}}).has_value());
  EXPECT_FALSE(graph::common_space({{6}, {}}, {{7}, {}}).has_value());
}

TEST(CommonSpace, RowsMustBeTheSame) {
  const auto both = graph::common_space({{6, 32}, {1}}, {{6, 4, 8}, {1, 2}});
  ASSERT_TRUE(both.has_value());
  EXPECT_EQ(both->row, (Dims{1, 2}));
  EXPECT_FALSE(graph::common_space({{6, 4, 8}, {2}}, {{6, 4, 8}, {1, 2}}).has_value());
  EXPECT_EQ(graph::common_space({{6, 4, 8}, {}}, {{6, 32}, {1}})->row, (Dims{1, 2}));
}

// A list that was longer once keeps the elements behind its end.
TEST(MergeEqual, DoesNotLookBehindTheEndOfAList) {
  const auto f = compile([](const Tensor& x) {
    Shape sizes = {3, 4};
    sizes.pop_back();
    return add(mul(x, exp(full(sizes, 2.0))), exp(full({3}, 2.0)));
  });
  const Tensor x = values({3}, 1);
  graph_test::expect_same(f(x), add(mul(x, exp(full({3}, 2.0))), exp(full({3}, 2.0))));
  EXPECT_EQ(f.statistics().last.merged, 2) << f.explain();
}

struct DumpAttrs {
  int64_t dim;
  double eps;
  static constexpr auto fields() {
    return field_list(field::number<&DumpAttrs::dim>("dim"), field::number<&DumpAttrs::eps>("eps"));
  }
};

TEST(Dump, ShowsTheAttrsOfEachCall) {
  graph::Graph g;
  const graph::Value x{.buffer = 0, .dtype = DType::f32, .sizes = {3}, .strides = {1}},
      y{.buffer = 1, .dtype = DType::f32, .sizes = {3}, .strides = {1}};
  g.nodes.push_back({.op = &find_op("exp"), .attrs = Attrs::of(DumpAttrs{2, 0.5}), .inputs = {x}, .outputs = {y}});
  g.nodes.push_back({.op = &find_op("exp"), .inputs = {x}, .outputs = {y}});
  const std::string text = graph::to_string(g);
  EXPECT_NE(text.find("exp(b0:f32[3]) {dim: 2, eps: 0.5}\n"), std::string::npos) << text;
  EXPECT_NE(text.find("exp(b0:f32[3])\n"), std::string::npos) << text;
}

TEST(Dump, ExplainsCallsWithTheirAttrs) {
  const auto f = compile([](const Tensor& x) { return matmul(x, x); });
  f(values({5, 5}, 1));
  EXPECT_NE(f.explain().find("{out_dtype: f32, axis: 0, is_broadcast: [false, false]}"), std::string::npos)
      << f.explain();
}

TEST(PlanMemory, WhatLivesTogetherDoesNotOverlap) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<graph::Lifetime> lifetimes;
    const size_t count = random() % 30;
    for (size_t i = 0; i < count; ++i) {
      const auto first = static_cast<int32_t>(random() % 20);
      lifetimes.push_back({static_cast<int64_t>(random() % 5 == 0 ? 0 : random() % 1000), first,
                           first + static_cast<int32_t>(random() % 5)});
    }
    const graph::MemoryPlan plan = graph::plan_memory(lifetimes);
    EXPECT_LE(plan.total, plan.unplanned);
    for (size_t i = 0; i < count; ++i) {
      EXPECT_EQ(plan.offsets[i] % 64, 0);
      EXPECT_LE(plan.offsets[i] + lifetimes[i].nbytes, plan.total);
      for (size_t j = 0; j < i; ++j) {
        const bool together = lifetimes[i].first <= lifetimes[j].last && lifetimes[j].first <= lifetimes[i].last;
        const bool apart = plan.offsets[i] + lifetimes[i].nbytes <= plan.offsets[j] ||
                           plan.offsets[j] + lifetimes[j].nbytes <= plan.offsets[i];
        EXPECT_TRUE(!together || apart);
      }
    }
  }
}

TEST(PlanMemory, AChainNeedsTwoBuffers) {
  std::vector<graph::Lifetime> chain;
  for (int32_t i = 0; i < 10; ++i) chain.push_back({1024, i, i + 1});
  EXPECT_EQ(graph::plan_memory(chain).total, 2048);
}

TEST(MergeEqual, EqualCallsBecomeOne) {
  const auto f = compile([](const Tensor& x) { return add(matmul(x, x), matmul(x, x)); });
  f(values({8, 8}, 1));
  EXPECT_EQ(f.statistics().last.merged, 1);
  EXPECT_EQ(f.statistics().last.calls, 1);
}

TEST(MergeEqual, CallsWhoseHashesCollideStayApart) {
  const auto fn = [](const Tensor& x) {
    const Tensor flipped = add(flip(x, {0}), add(flip(x, {0, 1}), flip(x, {1})));
    const Tensor sums = add(sum(x, {.dims = {0}}), add(sum(x, {.dims = {1}}), sum(x)));
    return add(mul(flipped, 2.0), add(mul(flipped, 3.0), add(mul(flipped, 2), sums)));
  };
  const Tensor x = values({4, 4}, 1), expected = fn(x);
  const CollidingHashesForTests colliding;
  const auto f = compile(fn);
  graph_test::expect_same(f(x), expected);
  EXPECT_EQ(f.statistics().last.merged, 0);
}

TEST(MergeEqual, AWriteBetweenKeepsThemApart) {
  const auto fn = [](const Tensor& x) {
    const Tensor a = exp(x);
    add_(x, 1.0);
    return add(a, exp(x));
  };
  const auto f = compile(fn);
  graph_test::expect_same(f(values({8}, 1)), fn(values({8}, 1)));
  EXPECT_EQ(f.statistics().last.merged, 0);
}

TEST(MergeEqual, RecomputedRegionsAreNotMergedWithTheirFirstRun) {
  const auto f = compile([](const Tensor& x) {
    return checkpoint([](std::span<const Tensor> in) { return matmul(exp(in[0]), in[0]); }, std::span(&x, 1));
  });
  const Tensor x = values({8, 8}, 1);
  requires_grad_(x);
  backward(sum(f(x)));
  EXPECT_EQ(f.statistics().last_backward.merged, 0) << f.explain();
  EXPECT_NE(f.explain().find("exp"), std::string::npos);
}

TEST(RemoveUnused, WhatNobodyReadsIsNotComputed) {
  const auto f = compile([](const Tensor& x) {
    matmul(x, x);
    return exp(x);
  });
  f(values({8, 8}, 1));
  EXPECT_EQ(f.statistics().last.unused, 1);
  EXPECT_EQ(f.statistics().last.calls, 0);
}

TEST(Fuse, AKernelNeverWaitsForItself) {
  // exp(x) and the last add could share a kernel, if the matmul between them did not have to run inside it.
  const auto fn = [](const Tensor& x) {
    const Tensor a = exp(x);
    return add(a, matmul(a, a));
  };
  const auto f = compile(fn, {.epilogues = graph::Epilogues::off});
  graph_test::expect_same(f(values({8, 8}, 1)), fn(values({8, 8}, 1)));
  EXPECT_EQ(f.statistics().last.kernels, 2) << f.explain();
}

// An op whose elements depend on where they stand does not share the kernel of the rows whose sums it reads: that
// counts the elements of the rows.
TEST(Fuse, OpsThatCountTheirElementsTakeSumsOfRows) {
  int ops = 0;
  for (const OpDef* op : op_table()) {
    if (op->samples == nullptr || op->num_inputs != 1 || op->recipe.build == nullptr ||
        op->recipe.kind != codegen::LoopKind::pointwise)
      continue;
    for (const Sample& sample : op->samples()) {
      const Tensor& like = sample.inputs[0];
      if (!is_floating(like.dtype()) || like.numel() < 2) continue;
      const DType dtype = like.dtype();
      if (!graph::RecipeFacts({*op, sample.inputs, sample.attrs}, {&dtype, 1}).counts()) break;
      Extents sizes = like.extents();
      sizes.push_back(7);
      const Tensor x = values(sizes, 1, dtype);
      const auto fn = [&](const Tensor& t) { return mul(call_op(*op, sample.attrs, sum(t, {.dims = {-1}})), 3.0); };
      graph_test::expect_same(compile(fn)(x), fn(x));
      ++ops;
      break;
    }
  }
  EXPECT_GE(ops, 1);
  const auto normed = [](const Tensor& t) {
    return mul(t, dropout(sum(t, {.dims = {-1}, .keepdim = true}), 0.5, {.key = 7}));
  };
  graph_test::expect_same(compile(normed)(values({12, 40}, 2)), normed(values({12, 40}, 2)));
}

TEST(Fuse, SiblingsThatReadTheSameShareAKernel) {
  const auto f = compile([](const Tensor& x) { return std::pair(exp(x), tanh(x)); });
  f(values({8, 8}, 1));
  EXPECT_EQ(f.statistics().last.kernels, 1) << f.explain();
}

}  // namespace
}  // namespace tutti
