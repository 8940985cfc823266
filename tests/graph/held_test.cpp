// What of the tensors that a function holds must be as it was for a call to be replayed.
#include <gtest/gtest.h>

#include "tests/graph/support/control_support.h"
#include "tutti/autograd/backward.h"
#include "tutti/graph/compile.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/inplace.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/slice.h"

namespace tutti {
namespace {

using namespace graph_test;

TEST(Held, AMemberOfAFamilyAddsToGradientsThatThereWereNoneOfInItsTrace) {
  Tensor w = values({4, 3}, 1);
  requires_grad_(w);
  const auto step = [&](const Tensor& x) {
    const Tensor loss = sum(matmul(x, w));
    backward(loss);
    return detach(loss);
  };
  const auto f = compile(step);
  for (int64_t n = 2; n < 6; ++n) {
    set_grad(w, {});
    f(values({n, 4}, 1));
  }
  for (int64_t n = 6; n < 9; ++n) {
    set_grad(w, values({4, 3}, 9));
    f(values({n, 4}, 1));
    const Tensor got = grad_of(w);
    set_grad(w, values({4, 3}, 9));
    step(values({n, 4}, 1));
    expect_same(got, grad_of(w));
  }
}

TEST(Held, WhetherItRequiresGradIsAGuard) {
  Tensor w = values({4}, 1);
  const auto f = compile([&](const Tensor& x) { return sum(mul(x, w)); });
  f(values({2, 4}, 1));
  requires_grad_(w);
  EXPECT_TRUE(requires_grad(f(values({2, 4}, 1))));
  expect_part(f.explain(), "a tensor that the function holds has another shape, requires_grad or gradient");
  f(values({3, 4}, 1));  // makes a family
  for (const bool trains : {false, true, false}) {
    requires_grad_(w, trains);
    for (const int64_t n : {2, 3, 5, 6}) EXPECT_EQ(requires_grad(f(values({n, 4}, 1))), trains) << n;
  }
}

TEST(Held, ItsPlaceAmongTheArgumentsIsAGuard) {
  Tensor w = values({64}, 5), w_eager = values({64}, 5);
  Tensor* held = &w;
  const auto fn = [&](const Tensor& a) {
    const Tensor head = slice(*held, 0, 0, 8);
    add_(a, add(head, 1.0));
    return add(head, a);
  };
  const auto f = compile(fn);
  for (const int64_t k : {0, 4, 0, 2}) {
    held = &w;
    const Tensor got = f(slice(w, 0, k, k + 8));
    held = &w_eager;
    expect_same(got, fn(slice(w_eager, 0, k, k + 8)));
    expect_same(w, w_eager);
  }
  EXPECT_EQ(f.statistics().compiles, 3);
}

TEST(Held, ItMayReachFurtherThanTheArgumentsOnItsMemory) {
  Tensor w = values({64}, 5), w_eager = values({64}, 5);
  Tensor* held = &w;
  const auto fn = [&](const Tensor& a) {
    add_(*held, 1.0);
    add_(a, 2.0);
    return mul(a, sum(*held));
  };
  const auto f = compile(fn);
  for (int64_t n = 2; n < 8; ++n) {
    for (const bool inside : {false, true}) {
      const Tensor x = values({64}, 1), y = values({64}, 1);
      held = &w;
      const Tensor got = f(slice(inside ? w : x, 0, n, 2 * n));
      held = &w_eager;
      expect_same(got, fn(slice(inside ? w_eager : y, 0, n, 2 * n)));
      expect_same(w, w_eager);
      expect_same(x, y);
    }
  }
}

// One leaf as both arguments: its gradient grows by the sum of what both uses give, as eagerly.
TEST(Arguments, OneTensorGivenTwice) {
  const auto step = [](const Tensor& a, const Tensor& b) {
    const Tensor loss = sum(mul(a, mul(b, b)));
    backward(loss);
    return detach(loss);
  };
  const auto f = compile(step, {.verify = 2});
  const auto outside = compile([](const Tensor& a, const Tensor& b) { return sum(mul(a, mul(b, b))); });
  for (int64_t n = 3; n < 8; ++n) {
    const Tensor x = values({n}, 1), y = values({n}, 1), other = values({n}, 2);
    requires_grad_(x), requires_grad_(y);
    for (int call = 0; call < 3; ++call) {
      expect_same(f(x, x), step(y, y));
      expect_same(grad_of(x), grad_of(y));
    }
    expect_same(f(x, other), step(y, other));
    expect_same(grad_of(x), grad_of(y));
    const Tensor got[] = {outside(x, x)}, expected[] = {sum(mul(y, mul(y, y)))}, of_x[] = {x}, of_y[] = {y};
    expect_same(grad(got, of_x)[0], grad(expected, of_y)[0]);
  }
}

}  // namespace
}  // namespace tutti
