#include "tutti/autograd/backward.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tutti/autograd/checkpoint.h"
#include "tutti/ops.h"
#include "tutti/tensor/tensor.h"

namespace tutti {
namespace {

Tensor leaf(std::vector<float> values) {
  const Tensor t = Tensor::of<float>(values);
  requires_grad_(t);
  return t;
}

std::vector<float> values(const Tensor& t) {
  const Tensor dense = to_contiguous(t);
  return {dense.data<float>(), dense.data<float>() + dense.numel()};
}

TEST(Backward, GivesTheGradientOfAProduct) {
  const Tensor a = leaf({2, 3}), b = leaf({5, 7});
  backward(sum(mul(a, b)));
  EXPECT_EQ(values(grad_of(a)), (std::vector<float>{5, 7}));
  EXPECT_EQ(values(grad_of(b)), (std::vector<float>{2, 3}));
}

TEST(Backward, AddsToAnExistingGradient) {
  const Tensor a = leaf({2});
  backward(sum(mul(a, 3.0)));
  backward(sum(mul(a, 4.0)));
  EXPECT_EQ(values(grad_of(a)), (std::vector<float>{7}));
}

// 1e8 - 1e8 + 1 is 1, any other order of these cotangents loses the 1.
TEST(Backward, SumsCotangentsInForwardConsumerOrder) {
  const Tensor a = leaf({1});
  const Tensor x = mul(a, 1.0);
  const Tensor first = mul(x, 1e8), second = mul(x, -1e8), third = mul(x, 1.0);
  backward(sum(add(third, add(second, first))));
  EXPECT_EQ(values(grad_of(a)), (std::vector<float>{1}));
}

TEST(Backward, KeepsUsesOfALeafApartInForwardOrder) {
  const Tensor a = leaf({2});
  const Tensor first = mul(a, 3.0), second = mul(a, 5.0);
  backward(sum(add(second, first)), {}, {.per_use = true});
  const std::vector<Tensor> uses = take_uses(a);
  ASSERT_EQ(uses.size(), 2u);
  EXPECT_EQ(values(uses[0]), (std::vector<float>{3}));
  EXPECT_EQ(values(uses[1]), (std::vector<float>{5}));
  EXPECT_TRUE(take_uses(a).empty());
  EXPECT_FALSE(grad_of(a).defined());
}

// The gradient of a bf16 leaf is the sum of its uses: it may not be rounded to bf16 on the way, where 512 + 1 is 512.
TEST(Backward, AndGradAddTheUsesOfABf16LeafInF32) {
  constexpr int kUses = 1000;
  const Tensor w = requires_grad_(cast(Tensor::of<float>({1.0f, -2.0f, 0.5f}), DType::bf16));
  Tensor total;
  double expected = 0;
  for (int i = 0; i < kUses; ++i) {
    const double factor = 1.0 + (i % 7) / 8.0;  // exact in bf16
    expected += factor;
    const Tensor term = cast(mul(w, factor), DType::f32);
    total = total.defined() ? add(total, term) : term;
  }
  const Tensor outputs[] = {sum(total)}, inputs[] = {w};
  const Tensor by_grad = grad(outputs, inputs, {}, {.retain_graph = true})[0];
  backward(outputs[0]);
  EXPECT_EQ(by_grad.dtype(), DType::f32);
  EXPECT_EQ(values(by_grad), std::vector<float>(3, static_cast<float>(expected)))
      << "every partial sum is exact in f32";
  EXPECT_EQ(values(grad_of(w)), values(by_grad));
}

TEST(Backward, RunsTwiceOnARetainedGraphOnly) {
  const Tensor a = leaf({2});
  const Tensor y = sum(mul(a, a));
  backward(y, {}, {.retain_graph = true});
  backward(y);
  EXPECT_EQ(values(grad_of(a)), (std::vector<float>{8}));
  try {
    backward(y);
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("retain_graph"), std::string::npos) << e.what();
  }
}

TEST(Backward, RefusesASavedTensorThatWasWritten) {
  const Tensor a = leaf({2}), b = Tensor::of<float>({3});
  const Tensor y = sum(mul(a, b));
  copy_(b, Tensor::of<float>({4}));
  try {
    backward(y);
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("mul"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("changed in place"), std::string::npos) << e.what();
  }
}

TEST(Backward, RefusesWritingInPlaceToARecordedTensor) {
  const Tensor a = leaf({2});
  EXPECT_THROW(copy_(mul(a, 2.0), Tensor::of<float>({4})), UsageError);
}

TEST(Backward, RefusesAGradientIntoMemoryThatOthersShare) {
  const Tensor buffer = Tensor::of<float>({0, 0}), part = buffer.view_as({1}, {1}, 0);
  EXPECT_THROW(copy_(part, leaf({2})), UsageError);
  EXPECT_EQ(buffer.data<float>()[0], 0.0f);
}

TEST(Backward, NeedsACotangentForManyElements) { EXPECT_THROW(backward(mul(leaf({1, 2}), 2.0)), UsageError); }

TEST(Backward, RefusesATensorWithoutHistory) { EXPECT_THROW(backward(Tensor::scalar(1.0f)), UsageError); }

TEST(Backward, RecordsNothingUnderNoGrad) {
  const Tensor a = leaf({2});
  NoGradScope no_grad;
  EXPECT_FALSE(requires_grad(mul(a, 2.0)));
  EnableGradScope enable;
  EXPECT_TRUE(requires_grad(mul(a, 2.0)));
}

TEST(Backward, HooksSeeAndReplaceTheCompleteCotangent) {
  const Tensor a = leaf({2});
  const Tensor x = mul(a, 1.0);
  std::vector<float> seen;
  register_hook(x, [&](const Tensor& g) {
    seen = values(g);
    return mul(g, 10.0);
  });
  backward(sum(add(mul(x, 3.0), mul(x, 4.0))));
  EXPECT_EQ(seen, (std::vector<float>{7}));
  EXPECT_EQ(values(grad_of(a)), (std::vector<float>{70}));
}

TEST(Backward, GivesGradientsOfGradients) {
  const Tensor x = leaf({3});
  const Tensor outputs[] = {sum(mul(mul(x, x), x))}, inputs[] = {x};
  const Tensor first = grad(outputs, inputs, {}, {.create_graph = true})[0];  // 3 x^2
  const Tensor again[] = {sum(first)};
  EXPECT_EQ(values(first), (std::vector<float>{27}));
  EXPECT_EQ(values(grad(again, inputs)[0]), (std::vector<float>{18}));  // 6 x
}

TEST(Backward, SaysWhichOpHasNoGradientOfItsGradient) {
  const Tensor x = leaf({1, 2}), w = leaf({1, 1});
  const Tensor y = rms_norm(reshape(x, {1, 2}), w);
  const Tensor outputs[] = {sum(y)}, inputs[] = {x};
  const Tensor first = grad(outputs, inputs, {}, {.create_graph = true})[0];
  const Tensor again[] = {sum(first)};
  try {
    grad(again, inputs);
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("rms_norm_backward"), std::string::npos) << e.what();
  }
}

TEST(Grad, GivesNothingForAnInputOutsideTheGraph) {
  const Tensor a = leaf({2}), b = leaf({3});
  const Tensor outputs[] = {sum(mul(a, 2.0))}, inputs[] = {a, b};
  const std::vector<Tensor> grads = grad(outputs, inputs);
  EXPECT_TRUE(grads[0].defined());
  EXPECT_FALSE(grads[1].defined());
  EXPECT_FALSE(grad_of(a).defined());
}

TEST(Checkpoint, GivesTheBitsOfTheUncheckedRegion) {
  const auto run = [](bool checked) {
    const Tensor w = leaf({0.3f, -1.7f, 2.2f}), x = leaf({1.1f, 0.4f, -0.9f});
    const auto region = [w](std::span<const Tensor> in) { return silu(mul(add(in[0], w), w)); };
    const Tensor before = mul(w, 2.0);
    const Tensor inputs[] = {mul(x, before)};
    const Tensor y = checked ? checkpoint(region, inputs) : region(inputs);
    backward(sum(mul(y, w)), {}, {.per_use = true});
    std::vector<std::vector<float>> grads;
    for (const Tensor& use : take_uses(w)) grads.push_back(values(use));
    for (const Tensor& use : take_uses(x)) grads.push_back(values(use));
    return grads;
  };
  EXPECT_EQ(run(false), run(true));
}

TEST(Checkpoint, CountsCapturedResultsInForwardOrder) {
  const auto run = [](bool checked) {
    const Tensor a = leaf({1});
    const Tensor x = mul(a, 1.0);
    const Tensor inputs[] = {x};
    const auto region = [x](std::span<const Tensor> in) { return add(mul(in[0], 1e8), mul(x, -1e8)); };
    const Tensor y = checked ? checkpoint(region, inputs) : region(inputs);
    backward(sum(add(y, mul(x, 1.0))));
    return values(grad_of(a));
  };
  EXPECT_EQ(run(false), run(true));
}

TEST(Checkpoint, MayBeNested) {
  const Tensor w = leaf({2});
  const Tensor inputs[] = {leaf({3})};
  const auto inner = [w](std::span<const Tensor> in) { return mul(in[0], w); };
  const auto outer = [&](std::span<const Tensor> in) { return mul(checkpoint(inner, in), w); };
  backward(sum(checkpoint(outer, inputs)));
  EXPECT_EQ(values(grad_of(w)), (std::vector<float>{12}));
  EXPECT_EQ(values(grad_of(inputs[0])), (std::vector<float>{4}));
}

TEST(Checkpoint, DrawsAnonymousNumbersOnceAndRefusesMore) {
  const Tensor inputs[] = {leaf({1, 2, 3, 4, 5, 6, 7, 8})};
  int runs = 0;
  const auto region = [&](std::span<const Tensor> in) {
    return ++runs == 1 ? dropout(in[0], 0.5) : dropout(dropout(in[0], 0.5), 0.5);
  };
  const Tensor y = checkpoint(region, inputs);
  try {
    backward(sum(y));
    FAIL() << "the region drew more than in its forward";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what())
                  .find("backward of checkpoint: the region drew 1 anonymous random keys, and draws more"),
              std::string::npos)
        << error.what();
  }
  // Its forward's mask again, and afterwards the rank's own keys.
  const auto once = [](std::span<const Tensor> in) { return dropout(in[0], 0.5); };
  const Tensor z = checkpoint(once, inputs);
  set_grad(inputs[0], {});
  backward(sum(z));
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(values(grad_of(inputs[0]))[i] != 0, values(z)[i] != 0);
}

// Which inputs need a gradient is a mask of 32 bits; one of 70 inputs must not be taken for one 32 or 64 places away.
TEST(Backward, ReachesEachOfSeventyInputs) {
  for (int needing = 0; needing < 70; ++needing) {
    std::vector<Tensor> inputs;
    for (int i = 0; i < 70; ++i) {
      const Tensor x = Tensor::of(std::vector<float>{static_cast<float>(i)});
      inputs.push_back(i == needing ? requires_grad_(x) : x);
    }
    std::vector<float> weights(70);
    std::iota(weights.begin(), weights.end(), 1.0F);
    const Tensor of_cat[] = {sum(mul(cat(inputs, 0), Tensor::of(weights)))},
                 leaf[] = {inputs[static_cast<size_t>(needing)]};
    EXPECT_EQ(values(grad(of_cat, leaf)[0]), std::vector<float>{weights[static_cast<size_t>(needing)]}) << needing;
  }
}

}  // namespace
}  // namespace tutti
