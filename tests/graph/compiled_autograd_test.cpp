// What autograd promises, kept by compiled functions: uses one by one, sinks, functions of the user, checkpointed
// regions.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tutti/autograd/backward.h"
#include "tutti/autograd/checkpoint.h"
#include "tutti/autograd/function.h"
#include "tutti/autograd/use_sink.h"
#include "tutti/graph/compile.h"
#include "tutti/graph/fused.h"
#include "tutti/ops.h"
#include "tutti/runtime/rank_context.h"

namespace tutti {
namespace {

Tensor leaf(std::vector<float> values) {
  const Tensor t = Tensor::of<float>(values);
  requires_grad_(t);
  return t;
}

// Keeps every gradient that it gets, as it got it.
struct Collected final : UseSink {
  explicit Collected(std::vector<Tensor> l) : leaves(std::move(l)) {}
  int32_t index_of(const Tensor& t) const override {
    const auto it = std::find_if(leaves.begin(), leaves.end(), [&](const Tensor& l) { return l.is_same(t); });
    return it == leaves.end() ? -1 : static_cast<int32_t>(it - leaves.begin());
  }
  void use(int32_t i, int32_t position, Tensor grad) override {
    order.push_back(i * 10 + position);
    grads.push_back(std::move(grad));
  }
  void finished(int32_t i) override { order.push_back(-1 - i); }
  std::vector<std::string> text() const {
    std::vector<std::string> list;
    for (const Tensor& g : grads) list.push_back(to_string(g));
    return list;
  }
  std::vector<Tensor> leaves, grads;
  std::vector<int> order;
};

// w is used three times and v once; x is an argument.
Tensor some_loss(const Tensor& x, const Tensor& w, const Tensor& v) {
  const Tensor hidden = silu(mul(x, w));
  const Tensor inputs[] = {hidden};
  const Tensor region = checkpoint([w](std::span<const Tensor> in) { return mul(exp(in[0]), w); }, inputs);
  return sum(mul(add(region, mul(hidden, w)), v));
}

TEST(CompiledSink, HearsWhatAnEagerOneHears) {
  const Tensor w = leaf({0.5f, -1.25f}), v = leaf({2, 3});
  Collected eager({w, v}), compiled({w, v});
  const auto step = [&](Collected& sink) {
    return [&w, &v, &sink](const Tensor& x) {
      const Tensor loss = some_loss(x, w, v);
      backward(loss, {}, {.sink = &sink});
      return detach(loss);
    };
  };
  const auto eager_step = step(eager);
  const auto compiled_step = compile(step(compiled), {.name = "step"});
  for (int i = 0; i < 4; ++i) {
    const Tensor x = Tensor::of<float>({0.1f * static_cast<float>(i + 1), 0.7f});
    EXPECT_EQ(to_string(eager_step(x)), to_string(compiled_step(x)));
    EXPECT_EQ(eager.order, compiled.order);
  }
  // What was delivered earlier keeps its values while later calls run.
  EXPECT_EQ(eager.text(), compiled.text());
  EXPECT_EQ(compiled_step.statistics().compiles, 1);
  EXPECT_FALSE(grad_of(w).defined());
}

// The cotangent itself is the gradient, and its memory is the caller's.
TEST(CompiledSink, KeepsCopiesOfMemoryThatOthersWrite) {
  const Tensor w = leaf({1, 2});
  Collected sink({w});
  const auto step = compile(
      [&](const Tensor& cotangent) {
        backward(add(w, 1.0), cotangent, {.sink = &sink});
        return mul(cotangent, 1.0);
      },
      {.name = "step"});
  const Tensor cotangent = Tensor::of<float>({5, 6});
  step(cotangent);
  fill_(cotangent, 0.0);
  EXPECT_EQ(sink.text(), (std::vector<std::string>{"[5.0, 6.0]"}));
}

// Two uses share one cotangent, and so memory; both are kept as long as somebody holds them.
TEST(CompiledSink, KeepsMemoryAsLongAsGradientsAreHeld) {
  const Tensor w = leaf({1, 2});
  Collected sink({w});
  const auto step = compile(
      [&](const Tensor& x) {
        const Tensor y = mul(add(w, w), x);
        backward(sum(y), {}, {.sink = &sink});
        return detach(sum(y));
      },
      {.name = "step"});
  for (float i = 1; i < 5; ++i) step(Tensor::of<float>({i, -i}));
  EXPECT_EQ(sink.text(), (std::vector<std::string>{"[ 1.0, -1.0]", "[ 1.0, -1.0]", "[ 2.0, -2.0]", "[ 2.0, -2.0]",
                                                   "[ 3.0, -3.0]", "[ 3.0, -3.0]", "[ 4.0, -4.0]", "[ 4.0, -4.0]"}));
}

// A gradient that nobody keeps lives only until it was delivered: the whole set is never there at once.
TEST(CompiledSink, HoldsNoSetOfGradients) {
  struct Dropping final : UseSink {
    int32_t index_of(const Tensor&) const override { return 0; }
    void use(int32_t, int32_t, Tensor) override {
      const MemoryStatistics now = RankContext::current().allocator().statistics();
      most = std::max(most, now.current_bytes);
    }
    void finished(int32_t) override {}
    int64_t most = 0;
  } sink;
  constexpr int64_t kLayers = 24, kSize = 64;  // small enough that activations are in the arena, which is there before
  std::vector<Tensor> weights;
  for (int64_t i = 0; i < kLayers; ++i) weights.push_back(requires_grad_(full({kSize, kSize}, 0.01)));
  const auto step = compile(
      [&](const Tensor& x) {
        Tensor y = x;
        for (const Tensor& w : weights) y = matmul(y, w);
        backward(sum(y), {}, {.sink = &sink});
        return detach(y);
      },
      {.name = "step"});
  const Tensor x = full({kSize, kSize}, 0.5);
  step(x);
  sink.most = 0;
  const int64_t before = RankContext::current().allocator().statistics().current_bytes;
  step(x);
  EXPECT_LT(sink.most - before, 6 * kSize * kSize * 4) << "24 gradients were alive";
}

// A sum of several cotangents has only those that are there: with a zero for a missing one, -0 would become 0.
TEST(CompiledAutograd, ASumOfManyCotangentsLeavesOutThoseOfUnusedResults) {
  const auto products = [](const Tensor& x) {
    return std::vector<Tensor>{mul(x, -1.0), mul(x, -2.0), mul(x, -3.0), mul(x, -4.0)};
  };
  const auto compiled = compile(products, {.name = "products"});
  for (const std::vector<size_t>& used : {std::vector<size_t>{0, 1, 2, 3}, {0, 2, 3}, {1, 3}, {2}}) {
    const auto gradient = [&](const auto& f) {
      const Tensor x = leaf({1, 2});
      const std::vector<Tensor> results = f(x);
      std::vector<Tensor> outputs, cotangents;
      for (const size_t i : used) outputs.push_back(results[i]), cotangents.push_back(Tensor::of<float>({0, 1}));
      return grad(outputs, std::vector<Tensor>{x}, cotangents)[0];
    };
    const Tensor eager = gradient(products), got = gradient(compiled);
    EXPECT_TRUE(std::signbit(eager.data<float>()[0]));
    EXPECT_EQ(std::memcmp(eager.raw_data(), got.raw_data(), 8), 0) << to_string(got) << " of " << used.size();
  }
}

// (1e8 + 3) - 1e8 in forward order; a sum inside the compiled call would be added to the rest as one.
TEST(CompiledCall, SendsTheUsesOfAHeldLeafOneByOne) {
  const auto run = [](bool compiles) {
    const Tensor w = leaf({1});
    const auto f = [w](const Tensor& x) { return add(mul(w, 1e8), mul(w, x)); };
    const Tensor x = Tensor::of<float>({3});
    const Tensor y = compiles ? compile(f, {.name = "f"})(x) : f(x);
    backward(add(y, mul(w, -1e8)), {}, {.per_use = true});
    return take_uses(w).size();
  };
  EXPECT_EQ(run(false), 3u);
  EXPECT_EQ(run(true), 3u);
}

TEST(CompiledCall, AddsTheUsesOfAnArgumentInForwardOrder) {
  const auto run = [](bool compiles) {
    const Tensor a = leaf({1});
    const Tensor x = mul(a, 1.0);
    const auto f = [](const Tensor& t) {
      const Tensor second = mul(t, -1e8), third = mul(t, 1.0);
      return add(second, third);
    };
    const Tensor first = mul(x, 1e8);
    const Tensor y = compiles ? compile(f, {.name = "f"})(x) : f(x);
    backward(add(first, y));
    return grad_of(a).item();
  };
  EXPECT_EQ(run(false), 1.0) << "(1e8 - 1e8) + 1";
  EXPECT_EQ(run(true), 1.0);
}

// The cached call runs no op in the forward of the region, and the leaf has a later use outside: it must not be
// finished there.
TEST(CompiledCall, InACheckpointedRegionNamesTheLeavesItReads) {
  const auto gradient = [](bool compiles, UseSink* sink, const Tensor& w, bool as_argument) {
    const auto product = [](const Tensor& x, const Tensor& y) { return mul(x, y); };
    const auto held = [w](const Tensor& x) { return mul(x, w); };
    const Tensor x = leaf({5});
    const Tensor inputs[] = {x};
    const auto region = [&](auto&& f) {
      const NoGradScope no_grad;
      f(x), f(x);  // compiles, and looks at what it holds, so that the forward of the region only replays
      const EnableGradScope enable;
      const Tensor y = checkpoint([f](std::span<const Tensor> in) { return f(in[0]); }, inputs);
      backward(mul(y, w), {}, {.sink = sink});
    };
    if (as_argument) {
      if (compiles)
        region([f = std::make_shared<Compiled<std::decay_t<decltype(product)>>>(product, CompileOptions{.name = "f"}),
                w](const Tensor& t) { return (*f)(t, w); });
      else region([product, w](const Tensor& t) { return product(t, w); });
    } else {
      if (compiles)
        region([f = std::make_shared<Compiled<std::decay_t<decltype(held)>>>(held, CompileOptions{.name = "f"})](
                   const Tensor& t) { return (*f)(t); });
      else region(held);
    }
    return grad_of(x).item();
  };
  for (const bool as_argument : {false, true}) {
    for (const bool compiles : {false, true}) {
      SCOPED_TRACE(fmt::format("as_argument {} compiles {}", as_argument, compiles));
      const Tensor w = leaf({3});
      EXPECT_EQ(gradient(compiles, nullptr, w, as_argument), 9.0);
      EXPECT_EQ(grad_of(w).item(), 30.0) << "5 w^2 has the derivative 10 w";
      const Tensor v = leaf({3});
      Collected sink({v});
      gradient(compiles, &sink, v, as_argument);
      EXPECT_EQ(sink.order, (std::vector<int>{0, 0, -1}))
          << "the use outside, that of the region before it, and the end";
    }
  }
}

// Library losses run as fused functions, which are compiled functions that all callers share.
TEST(CompiledCall, FusedFunctionsInACheckpointedRegionNameTheLeavesTheyRead) {
  static const auto& squares =
      fused("squares", [](const Tensor& x, const Tensor& t) { return sum(mul(sub(x, t), sub(x, t))); });
  const auto gradient = [](bool in_region) {
    const Tensor w = leaf({3, 4}), target = leaf({1, 1});
    const auto loss = [&](std::span<const Tensor> in) { return squares(in[0], w); };
    for (int i = 0; i < 3; ++i) {
      set_grad(w, {});
      const Tensor inputs[] = {target};
      const Tensor y = in_region ? checkpoint(loss, inputs) : loss(inputs);
      backward(sum(mul(y, w)));
    }
    return to_string(grad_of(w));
  };
  EXPECT_EQ(gradient(true), gradient(false));
}

TEST(CompiledCall, LeavesHooksOfHeldLeavesToTheBackwardAround) {
  const Tensor w = leaf({2});
  int calls = 0;
  register_hook(w, [&](const Tensor& g) {
    ++calls;
    return mul(g, 10.0);
  });
  const auto f = compile([w](const Tensor& x) { return mul(mul(w, w), x); }, {.name = "f"});
  for (int i = 1; i < 4; ++i) {
    set_grad(w, {});
    backward(f(Tensor::of<float>({3})));
    EXPECT_EQ(grad_of(w).item(), 120.0);
    EXPECT_EQ(calls, i);
  }
}

TEST(CompiledFunction, OfTheUserHasTheBitsOfAnEagerOne) {
  const autograd::Function square(
      "square",
      [](autograd::FunctionContext& context, std::span<const Tensor> in) -> std::vector<Tensor> {
        context.save(in);
        return {mul(in[0], in[0])};
      },
      [](const autograd::FunctionContext& context, std::span<const Tensor> grads) -> std::vector<Tensor> {
        return {mul(grads[0], mul(context.saved()[0], 2.5))};  // not the derivative, so that it shows
      });
  const Tensor w = leaf({3});
  const auto f = compile([&](const Tensor& x) { return sum(mul(square(mul(x, w)), x)); }, {.name = "f"});
  const Tensor x = leaf({2});
  backward(f(x));
  EXPECT_EQ(grad_of(w).item(), 2.0 * (2.0 * 3.0 * 2.5) * 2.0);
  const auto step = compile(
      [&](const Tensor& t) {
        const Tensor outputs[] = {square(mul(t, w))}, inputs[] = {w};
        return grad(outputs, inputs)[0];
      },
      {.name = "step"});
  EXPECT_EQ(step(Tensor::of<float>({2})).item(), 2.0 * 3.0 * 2.5 * 2.0);
}

}  // namespace
}  // namespace tutti
