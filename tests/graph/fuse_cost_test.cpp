// Which nodes over rows share a kernel: arithmetic that several walks along a row would repeat, against memory that is
// written and read again.
#include <gtest/gtest.h>

#include "tests/graph/support/same.h"
#include "tutti/autograd/backward.h"
#include "tutti/graph/compile.h"
#include "tutti/ops/activation.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/layer_norm.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/softmax.h"
#include "tutti/ops/unary.h"

namespace tutti {
namespace {

using graph_test::expect_same;
using graph_test::values;

using Function = std::function<Tensor(const Tensor&)>;

// How many kernels the compiled function has, whose results are those of `fn`.
int64_t kernels_of(const Function& fn, const Extents& sizes) {
  const auto f = compile(fn);
  const Tensor x = values(sizes, 1);
  expect_same(f(x), fn(x));
  return f.statistics().last.kernels;
}

Function repeated(int times, const Function& turn) {
  return [times, turn](const Tensor& x) {
    Tensor y = x;
    for (int i = 0; i < times; ++i) y = turn(y);
    return y;
  };
}

const Function kSoftmax = [](const Tensor& x) { return softmax(x, -1); };

// Joined, each softmax would compute those before it three times. Only starting a kernel for a few elements costs more.
TEST(FuseCost, RepeatedArithmeticKeepsKernelsApart) {
  EXPECT_EQ(kernels_of(repeated(3, kSoftmax), {64, 256}), 3);
  EXPECT_EQ(kernels_of(repeated(3, kSoftmax), {600, 1024}), 3);
  EXPECT_EQ(kernels_of(repeated(3, kSoftmax), {1, 8}), 1);
  EXPECT_EQ(kernels_of(repeated(3, kSoftmax), {0, 8}), 0);
}

// A softmax reads its elements at each of three walks; what follows it is computed at the last one only.
TEST(FuseCost, WhatIsCheapIsComputedAgain) {
  const auto around = [](const Function& before, const Function& after) {
    return kernels_of([&](const Tensor& x) { return after(softmax(before(x), -1)); }, {256, 512});
  };
  const Function cheap = [](const Tensor& x) { return neg(x); }, dear = [](const Tensor& x) { return erfinv(x); };
  EXPECT_EQ(around(cheap, cheap), 1);
  EXPECT_EQ(around(cheap, dear), 1);
  EXPECT_EQ(around(dear, cheap), 2);
  EXPECT_EQ(around(dear, dear), 2);
}

TEST(FuseCost, ReadersOfWhatTheLastWalkComputesJoin) {
  const auto fn = [](const Tensor& x) {
    const Tensor y = abs(x), z = softmax(y, -1);
    return std::pair(add(z, y), mul(z, 2.0));
  };
  const auto f = compile(fn);
  const Tensor x = values({256, 512}, 1);
  const auto [a, b] = f(x);
  const auto [c, d] = fn(x);
  expect_same(a, c);
  expect_same(b, d);
  EXPECT_EQ(f.statistics().last.kernels, 1);
}

// The same function in several sizes: each has its own choice, and one bit pattern.
TEST(FuseCost, SizesOfOneFunctionChooseForThemselves) {
  const Function fn = repeated(4, [](const Tensor& x) { return softmax(gelu(x), -1); });
  const auto f = compile(fn);
  for (const int64_t rows : {1, 64, 2, 300, 64, 1, 0, 7}) {
    const Tensor x = values({rows, 96}, static_cast<uint64_t>(rows));
    expect_same(f(x), fn(x));
  }
}

TEST(FuseCost, GradientsHaveTheBitsOfEagerOnes) {
  const auto fn = [](const Tensor& x) {
    const Tensor y = softmax(layer_norm(gelu(softmax(x, -1))), -1);
    const Tensor results[] = {sum(mul(y, y))}, leaves[] = {x};
    return grad(results, leaves)[0];
  };
  const auto f = compile(fn);
  for (const Extents& sizes : {Extents{64, 256}, Extents{1, 5}, Extents{33, 100}}) {
    const Tensor x = values(sizes, 3);
    requires_grad_(x);
    expect_same(f(x), fn(x));
  }
}

}  // namespace
}  // namespace tutti
