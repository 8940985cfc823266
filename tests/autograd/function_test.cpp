// Differentiable functions with gradients of the user's own.
#include "tutti/autograd/function.h"

#include <gtest/gtest.h>

#include "tutti/autograd/backward.h"
#include "tutti/ops.h"

namespace tutti {
namespace {

using autograd::Function;
using autograd::FunctionContext;
using Tensors = std::vector<Tensor>;

Tensor leaf(std::vector<float> values) {
  const Tensor t = Tensor::of<float>(values);
  requires_grad_(t);
  return t;
}

template <class Fn>
std::string message(Fn fn) {
  try {
    fn();
  } catch (const UsageError& e) {
    return e.what();
  }
  return "nothing was thrown";
}

// x^3, whose backward reads x.
const Function& cube() {
  static const Function function(
      "cube",
      [](FunctionContext& context, std::span<const Tensor> in) -> Tensors {
        context.save(in);
        return {mul(mul(in[0], in[0]), in[0])};
      },
      [](const FunctionContext& context, std::span<const Tensor> grads) -> Tensors {
        const Tensor& x = context.saved()[0];
        return {mul(grads[0], mul(mul(x, x), 3.0))};
      });
  return function;
}

// exp, whose backward reads its own result.
const Function& own_exp() {
  static const Function function(
      "own_exp",
      [](FunctionContext& context, std::span<const Tensor> in) -> Tensors {
        Tensor y = exp(in[0]);
        context.save({y});
        return {y};
      },
      [](const FunctionContext& context, std::span<const Tensor> grads) -> Tensors {
        return {mul(grads[0], context.saved()[0])};
      });
  return function;
}

TEST(Function, HasTheGradientThatItsUserWrote) {
  const Tensor x = leaf({2, -3});
  const Tensor y = cube()(x);
  EXPECT_EQ(to_string(y), "[  8.0, -27.0]");
  backward(sum(y));
  EXPECT_EQ(to_string(grad_of(x)), "[12.0, 27.0]");
}

TEST(Function, RecordsNothingWhereNothingIsWanted) {
  EXPECT_FALSE(requires_grad(cube()(Tensor::of<float>({2}))));
  const Tensor x = leaf({2});
  const NoGradScope no_grad;
  EXPECT_FALSE(requires_grad(cube()(x)));
}

TEST(Function, MayBeDifferentiatedTwice) {
  const Tensor x = leaf({2});
  const auto second = [&](const Function& function) {
    const Tensor outputs[] = {function(x)}, inputs[] = {x};
    const Tensor first[] = {grad(outputs, inputs, {}, {.create_graph = true})[0]};
    return grad(first, inputs)[0].item();
  };
  EXPECT_EQ(second(cube()), 12.0);
  EXPECT_EQ(second(own_exp()), static_cast<double>(exp(Tensor::of<float>({2})).item())) << "through a saved result";
}

TEST(Function, HasManyInputsAndResults) {
  const Function both(
      "sum and difference",
      [](FunctionContext&, std::span<const Tensor> in) -> Tensors { return {add(in[0], in[1]), sub(in[0], in[1])}; },
      [](const FunctionContext& context, std::span<const Tensor> g) -> Tensors {
        EXPECT_TRUE(context.needs(0));
        EXPECT_FALSE(context.needs(1));
        EXPECT_FALSE(g[1].defined()) << "nobody used the difference";
        return {g[0], g[0]};
      });
  const Tensor x = leaf({2}), other = Tensor::of<float>({5});
  const Tensors results = both.apply(std::vector{x, other});
  backward(mul(results[0], 3.0));
  EXPECT_EQ(grad_of(x).item(), 3.0);
  EXPECT_NE(message([&] { both(x, other); }).find("it has 2 results, and one is expected here; call apply()"),
            std::string::npos);
}

TEST(Function, ReturnsConstantsWithoutHistory) {
  const Function clipped(
      "clip",
      [](FunctionContext& context, std::span<const Tensor> in) -> Tensors {
        const Tensor mask = cast(gt(in[0], 0.0), DType::f32);
        context.save({mask});
        context.mark_non_differentiable(mask);
        return {mul(in[0], mask), mask};
      },
      [](const FunctionContext& context, std::span<const Tensor> g) -> Tensors {
        return {mul(g[0], context.saved()[0])};
      });
  const Tensor x = leaf({2, -2});
  const Tensors results = clipped.apply(std::vector{x});
  EXPECT_TRUE(requires_grad(results[0]));
  EXPECT_FALSE(requires_grad(results[1]));
  backward(sum(results[0]));
  EXPECT_EQ(to_string(grad_of(x)), "[1.0, 0.0]");
}

TEST(Function, ReturnsAnInputAsAnotherTensor) {
  const Function scaled_back(
      "identity", [](FunctionContext&, std::span<const Tensor> in) -> Tensors { return {in[0]}; },
      [](const FunctionContext&, std::span<const Tensor> g) -> Tensors { return {neg(g[0])}; });
  const Tensor x = leaf({2});
  const Tensor y = scaled_back(x);
  EXPECT_FALSE(y.is_same(x));
  backward(y);
  EXPECT_EQ(grad_of(x).item(), -1.0);
}

TEST(Function, SaysWhatIsWrong) {
  const Tensor x = leaf({2});
  const auto with = [](Function::Backward backward) {
    return Function(
        "mine",
        [](FunctionContext& c, std::span<const Tensor> in) -> Tensors {
          c.save(in);
          return {mul(in[0], 2.0)};
        },
        std::move(backward));
  };
  EXPECT_NE(message([&] {
              backward(with([](const FunctionContext&, std::span<const Tensor>) -> Tensors { return {}; })(x));
            }).find("backward of mine: it returned 0 gradients for 1 inputs"),
            std::string::npos);
  EXPECT_NE(
      message([&] {
        backward(with([](const FunctionContext&, std::span<const Tensor>) -> Tensors { return {zeros({3})}; })(x));
      }).find("backward of mine: the gradient of input 0 is [3] f32 cpu; expected a float tensor of its sizes [1]"),
      std::string::npos);
  EXPECT_NE(message([&] { Function("half", {}, {}); }).find("'half': forward and backward must both be given"),
            std::string::npos);
  EXPECT_NE(message([&] { cube()(Tensor{}); }).find("cube: input 0 of 1 is an undefined tensor"), std::string::npos);
  const Tensor y = cube()(x);
  backward(y);
  EXPECT_NE(message([&] { backward(y); }).find("pass retain_graph = true"), std::string::npos);
  const Tensor w = leaf({2});
  const Tensor z = cube()(w);
  {
    const NoGradScope no_grad;
    add_(w, 1.0);
  }
  EXPECT_NE(message([&] { backward(z); }).find("backward of cube: saved tensor 0 ([1] f32 cpu) was changed in place"),
            std::string::npos);
}

}  // namespace
}  // namespace tutti
