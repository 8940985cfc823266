// What a compiled backward keeps of its forward, and what it computes again: bits, bytes, and what never runs again.
#include "tutti/plan/passes/partition.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "tests/graph/support/compare_programs.h"
#include "tests/graph/support/same.h"
#include "tutti/autograd/backward.h"
#include "tutti/graph/compile.h"
#include "tutti/ops.h"
#include "tutti/plan/passes/min_cut.h"

namespace tutti {
namespace {

using graph::MinCut;
using graph_test::expect_same;
using graph_test::values;

constexpr double kBudgets[] = {0.0, 0.2, 0.5, 0.8, 1.0};

// The cheapest set of vertices that leaves no path from a source to a sink, by trying all.
int64_t cheapest(const std::vector<int64_t>& costs, const std::vector<std::pair<size_t, size_t>>& edges,
                 uint32_t sources, uint32_t sinks) {
  int64_t best = std::numeric_limits<int64_t>::max();
  for (uint32_t cut = 0; cut < 1u << costs.size(); ++cut) {
    int64_t cost = 0;
    for (size_t v = 0; v < costs.size(); ++v) cost += cut >> v & 1 ? costs[v] : 0;
    uint32_t reached = sources & ~cut;
    for (const auto& [from, to] : edges) {  // edges lead to higher numbers and are sorted
      if (reached >> from & 1 && !(cut >> to & 1)) reached |= 1u << to;
    }
    if ((reached & sinks) == 0) best = std::min(best, cost);
  }
  return best;
}

TEST(MinCut, IsTheCheapestOfAll) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const size_t count = 2 + random() % 7;
    std::vector<int64_t> costs;
    std::vector<std::pair<size_t, size_t>> edges;
    MinCut cut(count);
    for (size_t v = 0; v < count; ++v) {
      costs.push_back(static_cast<int64_t>(random() % 5));
      cut.set_cost(v, costs[v]);
    }
    for (size_t a = 0; a < count; ++a) {
      for (size_t b = a + 1; b < count; ++b) {
        if (random() % 3 != 0) continue;
        edges.push_back({a, b});
        cut.add_edge(a, b);
      }
    }
    const uint32_t sources = random() & ((1u << count) - 1), sinks = random() & ((1u << count) - 1);
    for (size_t v = 0; v < count; ++v) {
      if (sources >> v & 1) cut.add_source(v);
      if (sinks >> v & 1) cut.add_sink(v);
    }
    const std::vector<MinCut::Side> sides = cut.run();
    EXPECT_EQ(cut.cost(), cheapest(costs, edges, sources, sinks)) << "round " << round;
    int64_t cost = 0;
    for (size_t v = 0; v < count; ++v) cost += sides[v] == MinCut::Side::cut ? costs[v] : 0;
    EXPECT_EQ(cost, cut.cost()) << "round " << round;
    for (const auto& [a, b] : edges)
      EXPECT_FALSE(sides[a] == MinCut::Side::source && sides[b] == MinCut::Side::sink) << "round " << round;
  }
}

TEST(MinCut, OfSeveralTheOneNearestTheSink) {
  MinCut cut(3);
  for (size_t v = 0; v < 3; ++v) cut.set_cost(v, 7);
  cut.add_source(0), cut.add_edge(0, 1), cut.add_edge(1, 2), cut.add_sink(2);
  EXPECT_EQ(cut.run()[2], MinCut::Side::cut);
}

// Two layers of norm, gated product, residual.
Tensor layers(const Tensor& input, std::span<const Tensor> weights) {
  Tensor x = input;
  for (int layer = 0; layer < 2; ++layer) {
    const Tensor y = rms_norm(x, weights[0], 1e-6);
    x = add(x, matmul(mul(silu(matmul(y, weights[1])), matmul(y, weights[2])), weights[3]));
  }
  return x;
}

std::vector<Tensor> layer_arguments() {
  std::vector<Tensor> list = {values({24, 32}, 1), values({32}, 2), values({32, 48}, 3), values({32, 48}, 4),
                              values({48, 32}, 5)};
  for (const Tensor& t : list) requires_grad_(t);
  return list;
}

// Loss and gradients; the backward inside of the function, or of its result.
std::vector<Tensor> step(const std::vector<Tensor>& a) {
  const Tensor y = layers(a[0], std::span(a).subspan(1));
  std::vector<Tensor> out = {sum(mul(y, y))};
  for (const Tensor& g : grad(out, a)) out.push_back(g);
  return {detach(out[0]), out[1], out[2], out[3], out[4], out[5]};
}
Tensor loss(const std::vector<Tensor>& a) {
  const Tensor y = layers(a[0], std::span(a).subspan(1));
  return sum(mul(y, y));
}

TEST(Partition, EqualBitsAndFewerBytesAtEveryBudget) {
  const std::vector<Tensor> expected = step(layer_arguments());
  int64_t whole = std::numeric_limits<int64_t>::max(), cut = whole;
  for (const double budget : {1.0, 0.8, 0.5, 0.2, 0.0}) {
    const auto in_one = compile(step, {.name = "step", .activation_memory_budget = budget});
    const std::vector<Tensor> got = in_one(layer_arguments());
    for (size_t i = 0; i < got.size(); ++i) expect_same(got[i], expected[i]);
    EXPECT_LE(in_one.statistics().partition.kept_bytes, whole) << "budget " << budget;
    whole = in_one.statistics().partition.kept_bytes;

    const auto in_two = compile(loss, {.name = "loss", .activation_memory_budget = budget});
    const std::vector<Tensor> arguments = layer_arguments();
    const Tensor y = in_two(arguments);
    expect_same(detach(y), expected[0]);
    backward(y);
    for (size_t i = 0; i < arguments.size(); ++i) expect_same(grad_of(arguments[i]), expected[1 + i]);
    EXPECT_LE(in_two.statistics().partition.kept_bytes, cut) << "budget " << budget;
    cut = in_two.statistics().partition.kept_bytes;
    EXPECT_NE(in_two.explain().find("run again"), std::string::npos);
  }
  EXPECT_EQ(cut, 0);  // all of it comes from the arguments
}

TEST(Partition, TheBudgetIsKept) {
  const auto kept = [](double budget) {
    const auto f = compile(loss, {.activation_memory_budget = budget});
    f(layer_arguments());
    return f.statistics().partition.kept_bytes;
  };
  const auto most = static_cast<double>(kept(1.0));
  EXPECT_GT(most, 0);
  for (const double budget : kBudgets)
    EXPECT_LE(static_cast<double>(kept(budget)), budget * most + 1) << "budget " << budget;
}

// What is recomputed lives as well: a whole chain of layers that runs again at once would take what keeping it takes.
TEST(Partition, ASmallerBudgetNeedsNoMoreMemory) {
  const auto deep = [](const Tensor& x, const Tensor& w) {
    Tensor h = x;
    for (int i = 0; i < 12; ++i) h = tanh(matmul(h, w));
    const Tensor y = sum(mul(h, h));
    return std::pair(detach(y), grad(std::span(&y, 1), std::span(&w, 1))[0]);
  };
  const Tensor x = values({64, 32}, 1), w = values({32, 32}, 2);
  requires_grad_(w);
  const Tensor expected = deep(x, w).second;
  std::vector<int64_t> taken;
  for (const double budget : {0.0, 0.2, 0.5, 0.8, 1.0}) {
    const auto f = compile(deep, {.activation_memory_budget = budget});
    expect_same(f(x, w).second, expected);
    taken.push_back(f.statistics().last.arena_bytes);
  }
  EXPECT_TRUE(std::is_sorted(taken.begin(), taken.end())) << fmt::format("{}", fmt::join(taken, " "));
  EXPECT_LT(taken.front(), taken.back() * 4 / 5) << fmt::format("{}", fmt::join(taken, " "));
}

TEST(Partition, CheapOpsRunAgainInTheKernelThatReadsThem) {
  const auto fn = [](const Tensor& x, const Tensor& y) { return sum(mul(silu(x), y)); };
  const auto f = compile(fn);
  const Tensor x = values({64, 64}, 1), y = values({64, 64}, 2);
  requires_grad_(x), requires_grad_(y);
  backward(f(x, y));
  const CompileStatistics s = f.statistics();
  EXPECT_EQ(s.partition.read_bytes, 64 * 64 * 4) << f.explain();  // silu(x)
  EXPECT_EQ(s.partition.kept_bytes, 0);
  EXPECT_EQ(s.partition.recomputed, 1);
  EXPECT_EQ(s.last_backward.arena_bytes, 0) << f.explain();  // it stays in registers
}

TEST(Partition, WhatIsWrittenLaterIsNotReadAgain) {
  // The product is made from x as it was before the write.
  const auto fn = [](const Tensor& x, const Tensor& w) {
    const Tensor y = mul(exp(x), w);
    const Tensor z = sum(mul(y, y));
    const std::vector<Tensor> g = grad(std::span(&z, 1), std::span(&w, 1));
    add_(x, 1.0);
    return std::pair(detach(z), g[0]);
  };
  const auto before = [](const Tensor& x, const Tensor& w) {
    const Tensor y = mul(exp(x), w);
    add_(x, 1.0);
    const Tensor z = sum(mul(y, y));
    return std::pair(detach(z), grad(std::span(&z, 1), std::span(&w, 1))[0]);
  };
  const auto check = [](const auto& function) {
    const auto f = compile(function, {.activation_memory_budget = 0});
    const auto arguments = [] {
      std::vector<Tensor> list = {values({40}, 1), values({40}, 2)};
      requires_grad_(list[1]);
      return list;
    };
    const std::vector<Tensor> a = arguments(), b = arguments();
    const auto got = f(a[0], a[1]), expected = function(b[0], b[1]);
    expect_same(got.first, expected.first);
    expect_same(got.second, expected.second);
    expect_same(a[0], b[0]);
    return f.statistics().partition;
  };
  EXPECT_EQ(check(fn).kept_bytes, 0);
  EXPECT_GT(check(before).kept_bytes, 0);
}

TEST(Partition, AnArgumentThatOnlyTheForwardReadsMayChangeBeforeTheBackward) {
  const auto fn = [](const Tensor& x, const Tensor& w) { return sum(mul(exp(x), w)); };
  const auto f = compile(fn, {.activation_memory_budget = 0});
  const auto gradient = [](const auto& call) {
    const Tensor x = values({40}, 1), w = values({40}, 2);
    requires_grad_(w);
    const Tensor y = call(x, w);
    fill_(x, 3.0);  // the gradient of w reads exp(x), not x
    backward(y);
    return grad_of(w);
  };
  expect_same(gradient(f), gradient(fn));
  EXPECT_EQ(f.statistics().partition.kept_bytes, 40 * 4);
}

int runs = 0;
// A kernel that nobody has promised anything about.
const OpDef kCounted{
    .name = "counted",
    .num_inputs = 1,
    .infer = [](const OpCall& call, OutputMetas& out) { out.add(call[0].dtype(), call[0].sizes()); },
    .gradient = {.vjp = [](const VjpCall& c, std::span<Tensor> grads) { grads[0] = mul(c.grads[0], c.outputs[0]); },
                 .saves_outputs = 1},
    .kernel = [](const OpCall& call,
                 std::span<const Tensor> outputs) { ++runs, copy_elements(outputs[0], to_contiguous(call[0])); }};

// Only the gradients are wanted: what the backward computes again, the forward computes for nobody.
TEST(Partition, AForwardThatNobodyReadsAnyMoreDoesNotRun) {
  const Tensor x = values({64, 32}, 1), w = values({24, 32}, 2), v = values({24, 10}, 3);
  for (const Tensor& t : {x, w, v}) requires_grad_(t);
  const auto fn = [](const Tensor& a, const Tensor& b, const Tensor& c) {
    const Tensor h = linear(mul(silu(a), a), b), leaves[] = {a, b, c};
    const Tensor loss[] = {add(sum(matmul(tanh(h), c)), sum(matmul(transpose(exp(h), 0, 1), add(h, 1.0))))};
    return grad(loss, leaves);
  };
  const std::vector<Tensor> expected = fn(x, w, v);
  int64_t calls = 0;
  for (const double budget : {1.0, 0.0}) {
    const auto f = compile(fn, {.activation_memory_budget = budget});
    const std::vector<Tensor> got = f(x, w, v);
    for (size_t i = 0; i < got.size(); ++i) expect_same(got[i], expected[i]);
    if (calls > 0) {
      EXPECT_EQ(f.statistics().last.calls, calls) << f.explain();
    }
    calls = f.statistics().last.calls;
  }
}

TEST(Partition, AKernelThatPromisesNothingRunsOnce) {
  const auto f =
      compile([](const Tensor& x) { return sum(call_op(kCounted, {}, mul(x, 2.0))); }, {.activation_memory_budget = 0});
  const Tensor x = values({16}, 1);
  requires_grad_(x);
  runs = 0;
  backward(f(x));
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(f.statistics().partition.kept_bytes, 16 * 4);
}

TEST(Partition, BudgetsOutsideOfZeroToOneAreRefused) {
  const auto refused = [](double budget) -> std::string {
    try {
      compile(loss, {.activation_memory_budget = budget});
    } catch (const UsageError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_NE(refused(1.5).find("activation_memory_budget is 1.5; expected 0"), std::string::npos) << refused(1.5);
  EXPECT_NE(refused(-0.25).find("-0.25"), std::string::npos);
  EXPECT_NE(refused(std::numeric_limits<double>::quiet_NaN()), "");
}

TEST(Partition, RandomProgramsHaveEqualGradientsAtEveryBudget) {
  for (const double budget : kBudgets)
    EXPECT_EQ(graph_test::first_gradient_difference(1, 60, budget), "") << "budget " << budget;
}

}  // namespace
}  // namespace tutti
