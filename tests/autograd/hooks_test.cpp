// Hooks of leaves and values, their order and their handles.
#include "tutti/autograd/hooks.h"

#include <gtest/gtest.h>

#include "tests/support/message_of.h"
#include "tutti/autograd/backward.h"
#include "tutti/ops.h"

namespace tutti {
namespace {

Tensor leaf(std::vector<float> values) {
  const Tensor t = Tensor::of<float>(values);
  requires_grad_(t);
  return t;
}

TEST(Hooks, RunInTheOrderOfTheirRegistration) {
  const Tensor a = leaf({3});
  register_hook(a, [](const Tensor& g) { return add(g, 1.0); });
  register_hook(a, [](const Tensor& g) { return mul(g, 10.0); });
  backward(mul(a, 4.0));
  EXPECT_EQ(grad_of(a).item(), 50.0);
}

TEST(Hooks, OfALeafSeeTheFinishedGradientOnce) {
  const Tensor a = leaf({3});
  int calls = 0;
  double seen = 0;
  register_hook(a, [&](const Tensor& g) {
    ++calls;
    seen = g.item();
    return Tensor{};
  });
  backward(add(mul(a, 4.0), mul(a, 5.0)));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(seen, 9.0);
}

TEST(Hooks, WaitForTheFinishedGradientInPerUseMode) {
  const Tensor a = leaf({3});
  int calls = 0;
  register_hook(a, [&](const Tensor& g) {
    ++calls;
    return mul(g, 2.0);
  });
  backward(add(mul(a, 4.0), mul(a, 5.0)), {}, {.per_use = true});
  EXPECT_EQ(calls, 0);
  const std::vector<Tensor> uses = take_uses(a);
  EXPECT_EQ(autograd::apply_leaf_hooks(a, add(uses[0], uses[1])).item(), 18.0);
  EXPECT_EQ(calls, 1);
}

TEST(Hooks, AreRemovedByTheirHandleAndNotByItsEnd) {
  const Tensor a = leaf({1});
  int kept = 0, removed = 0;
  register_hook(a, [&](const Tensor&) {
    ++kept;
    return Tensor{};
  });
  HookHandle handle = register_hook(a, [&](const Tensor&) {
    ++removed;
    return Tensor{};
  });
  backward(mul(a, 2.0));
  handle.remove();
  handle.remove();
  backward(mul(a, 2.0));
  EXPECT_EQ(kept, 2);
  EXPECT_EQ(removed, 1);
  HookHandle{}.remove();
}

TEST(Hooks, HandlesMayOutliveWhatTheyAreRegisteredWith) {
  HookHandle handle;
  {
    const Tensor y = mul(leaf({1}), 2.0);
    handle = register_hook(y, [](const Tensor&) { return Tensor{}; });
  }
  handle.remove();
}

TEST(Hooks, MayRegisterAndRemoveHooks) {
  const Tensor a = leaf({1});
  int late = 0;
  HookHandle self;
  self = register_hook(a, [&](const Tensor&) {
    register_hook(a, [&](const Tensor&) {
      ++late;
      return Tensor{};
    });
    self.remove();
    return Tensor{};
  });
  backward(mul(a, 2.0));
  EXPECT_EQ(late, 0);
  backward(mul(a, 2.0));
  EXPECT_EQ(late, 1);
}

TEST(Hooks, AfterAccumulationSeeTheLeafWithItsGrad) {
  const Tensor a = leaf({1}), b = leaf({1});
  std::vector<std::string> seen;
  HookHandle handle = register_post_accumulate_grad_hook(
      a, [&](const Tensor& t) { seen.push_back(fmt::format("a {}", grad_of(t).item())); });
  register_post_accumulate_grad_hook(b, [&](const Tensor& t) {
    seen.push_back(fmt::format("b {}", grad_of(t).item()));
    set_grad(t, {});
  });
  backward(mul(mul(a, 3.0), b));
  backward(mul(mul(a, 3.0), b));
  EXPECT_EQ(seen, (std::vector<std::string>{"b 3", "a 3", "b 3", "a 6"}));
  handle.remove();
  backward(mul(a, 1.0));
  EXPECT_EQ(seen.size(), 4u);
}

TEST(Hooks, OfLeavesAndValuesMustKeepSizesAndDtype) {
  for (const bool of_leaf : {true, false}) {
    for (const bool other_dtype : {true, false}) {
      const Tensor a = leaf({1, 2}), b = mul(a, 2.0);
      register_hook(of_leaf ? a : b, [&](const Tensor& g) { return other_dtype ? cast(g, DType::f64) : sum(g); });
      EXPECT_NE(message_of([&] { backward(sum(mul(b, b))); }).find("must keep sizes and dtype"), std::string::npos);
    }
  }
}

TEST(Hooks, NeedAGradient) {
  const Tensor plain = Tensor::of<float>({1}), a = leaf({1});
  EXPECT_NE(message_of([&] { register_hook(plain, {}); }).find("has no gradient"), std::string::npos);
  EXPECT_NE(message_of([&] { register_post_accumulate_grad_hook(plain, {}); }).find("does not require grad"),
            std::string::npos);
  EXPECT_NE(
      message_of([&] { register_post_accumulate_grad_hook(mul(a, 2.0), {}); }).find("is the result of mul_scalar"),
      std::string::npos);
}

}  // namespace
}  // namespace tutti
