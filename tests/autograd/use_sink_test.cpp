// Gradients of leaves use by use, as they arrive, and when a leaf is finished.
#include "tutti/autograd/use_sink.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tutti/autograd/backward.h"
#include "tutti/autograd/checkpoint.h"
#include "tutti/ops.h"

namespace tutti {
namespace {

Tensor leaf(std::vector<float> values) {
  const Tensor t = Tensor::of<float>(values);
  requires_grad_(t);
  return t;
}

// Writes down what it hears, and keeps the uses of each leaf in forward order.
struct Notes final : UseSink {
  explicit Notes(std::vector<Tensor> l) : leaves(std::move(l)), uses(leaves.size()) {}
  int32_t index_of(const Tensor& t) const override {
    const auto it = std::find_if(leaves.begin(), leaves.end(), [&](const Tensor& l) { return l.is_same(t); });
    return it == leaves.end() ? -1 : static_cast<int32_t>(it - leaves.begin());
  }
  void use(int32_t i, int32_t position, Tensor grad) override {
    heard.push_back(fmt::format("{}@{}: {}", i, position, to_string(to_contiguous(grad))));
    auto& list = uses[static_cast<size_t>(i)];
    list.insert(list.begin() + position, static_cast<float>(reshape(grad, {grad.numel()}).view_as({}, {}, 0).item()));
    dtype = grad.dtype();
  }
  void finished(int32_t i) override { heard.push_back(fmt::format("{} finished", i)); }
  std::vector<Tensor> leaves;
  std::vector<std::vector<float>> uses;
  std::vector<std::string> heard;
  DType dtype = DType::f32;
};

TEST(UseSink, HearsUsesFromTheLastToTheFirstAndEachLeafOnceItIsFinished) {
  const Tensor a = leaf({2}), b = leaf({3});
  Notes notes({a, b});
  const Tensor x = mul(a, 5.0);  // first use of a
  const Tensor y = mul(x, b);    // the only use of b
  backward(mul(y, mul(a, a)), Tensor::of<float>({1}), {.sink = &notes});
  // y = 5 a b, and the result 5 a^3 b.
  EXPECT_EQ(notes.heard, (std::vector<std::string>{"0@0: [60.0]", "0@1: [60.0]", "1@0: [40.0]", "1 finished",
                                                   "0@0: [60.0]", "0 finished"}));
  EXPECT_EQ(notes.uses[0], (std::vector<float>{60, 60, 60}));
  EXPECT_FALSE(grad_of(a).defined());
  EXPECT_FALSE(grad_of(b).defined());
}

TEST(UseSink, LeavesOthersToTheirGrad) {
  const Tensor a = leaf({2}), b = leaf({3});
  Notes notes({b});
  backward(mul(a, b), Tensor::of<float>({1}), {.sink = &notes});
  EXPECT_EQ(notes.heard, (std::vector<std::string>{"0@0: [2.0]", "0 finished"}));
  EXPECT_EQ(grad_of(a).item(), 3.0);
}

TEST(UseSink, HearsTheUsesInsideACheckpointedRegionAtTheirPlaces) {
  const auto run = [](bool checked) {
    const Tensor w = leaf({2}), x = leaf({3});
    Notes notes({w, x});
    const auto region = [w](std::span<const Tensor> in) { return mul(mul(in[0], w), w); };
    const Tensor before = mul(x, w);
    const Tensor inputs[] = {before};
    const Tensor y = checked ? checkpoint(region, inputs) : region(inputs);
    backward(mul(y, mul(w, 7.0)), Tensor::of<float>({1}), {.sink = &notes});
    return notes.heard;
  };
  EXPECT_EQ(run(false), run(true));
  const std::vector<std::string> heard = run(true);
  EXPECT_EQ(std::count(heard.begin(), heard.end(), "0 finished"), 1);
  EXPECT_EQ(heard.back(), "0 finished") << "w is used first of all, beside x";
}

TEST(UseSink, GetsF32ForNarrowLeaves) {
  for (const DType dtype : {DType::bf16, DType::f16, DType::f64}) {
    const Tensor w = cast(Tensor::of<float>({1.5f}), dtype);
    requires_grad_(w);
    Notes notes({w});
    backward(mul(w, w), cast(Tensor::of<float>({1}), dtype), {.sink = &notes});
    EXPECT_EQ(notes.dtype, dtype == DType::f64 ? DType::f64 : DType::f32);
  }
}

TEST(UseSink, ExcludesPerUse) {
  const Tensor a = leaf({2});
  Notes notes({a});
  EXPECT_THROW(backward(mul(a, a), Tensor::of<float>({1}), {.per_use = true, .sink = &notes}), UsageError);
}

// The leaf of an unused branch counts on edges that no cotangent comes along.
TEST(Backward, FinishesLeavesThatGetNoGradientAlongSomeEdges) {
  const Tensor a = leaf({1, 2}), b = leaf({3, 4});
  const std::vector<Tensor> parts = split(mul(a, 2.0), {1, 1}, 0);
  const Tensor unused = mul(parts[1], narrow(b, 0, 0, 1));
  std::vector<std::string> order;
  register_hook(a, [&](const Tensor&) {
    order.push_back("a");
    return Tensor{};
  });
  register_hook(b, [&](const Tensor&) {
    order.push_back("b");
    return Tensor{};
  });
  backward(sum(add(mul(parts[0], narrow(b, 0, 1, 1)), mul(detach(unused), 0.0))));
  EXPECT_EQ(order, (std::vector<std::string>{"b", "a"}));
  EXPECT_EQ(grad_of(a).data<float>()[0], 8.0f);
  EXPECT_EQ(grad_of(b).data<float>()[1], 2.0f);
}

TEST(Backward, FinishesLeavesByTheirPlaceInTheProgram) {
  for (int attempt = 0; attempt < 8; ++attempt) {
    std::vector<Tensor> leaves(20);
    std::vector<int> order;
    // Created in another order than they are used, so that addresses and uses disagree.
    for (int i = 0; i < 20; ++i) leaves[static_cast<size_t>((i * 7 + attempt) % 20)] = leaf({1});
    Tensor x = leaf({1});
    for (int i = 0; i < 20; ++i) {
      register_hook(leaves[static_cast<size_t>(i)], [&order, i](const Tensor&) {
        order.push_back(i);
        return Tensor{};
      });
      x = add(x, leaves[static_cast<size_t>(i)]);
    }
    backward(x);
    std::vector<int> expected(20);
    for (int i = 0; i < 20; ++i) expected[static_cast<size_t>(i)] = 19 - i;
    EXPECT_EQ(order, expected);
  }
}

TEST(Backward, GradientsOfNarrowLeavesAreF32) {
  const Tensor w = cast(Tensor::of<float>({1.5f}), DType::bf16);
  requires_grad_(w);
  // 1 + 2^-9 needs more digits than bf16 has: the uses are added in f32.
  backward(add(mul(w, 1.0), mul(w, 0.001953125)), cast(Tensor::of<float>({1}), DType::bf16));
  EXPECT_EQ(grad_of(w).dtype(), DType::f32);
  EXPECT_EQ(grad_of(w).item(), 1.001953125);
}

}  // namespace
}  // namespace tutti
