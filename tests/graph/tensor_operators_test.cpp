// Operators on tensors inside compiled functions: the bits of an eager run, what is written included.
#include "tutti/ops/tensor_operators.h"

#include <gtest/gtest.h>

#include "tests/graph/support/control_support.h"
#include "tutti/autograd/backward.h"
#include "tutti/graph/compile.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/expand.h"
#include "tutti/ops/extremes.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/slice.h"
#include "tutti/ops/statistics.h"
#include "tutti/ops/where.h"

namespace tutti {
namespace {

using namespace graph_test;

TEST(CompiledOperators, WriteArgumentsThroughTheirViews) {
  const auto fn = [](const Tensor& x, const Tensor& y) {
    x += y;
    x[1] -= x[-1] * 2;
    x[0][1] /= y[0][0];
    select(x, 1, 0) *= 3;
    const Tensor row = x[2];
    x *= where((x > 0) & ~(y > 0.5), 2.0, x);
    return row + sum(x, 0) - mean(x, -1, true)[0];
  };
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto f = compile(fn);
    for (const int64_t rows : {3, 4, 5}) {
      const Tensor x = values({rows, 4}, 1, dtype), y = values({rows, 4}, 2, dtype);
      const Tensor mine = clone(x);
      expect_same(f(mine, y), fn(x, y));
      expect_same(mine, x);
    }
  }
}

TEST(CompiledOperators, HaveTheGradientOfElementsThatWereTaken) {
  const auto fn = [](const Tensor& x) {
    const Tensor loss[] = {sum(x[-1] * x[0]) + amax(x[1], 0)}, leaves[] = {x};
    return grad(loss, leaves)[0];
  };
  const Tensor x = requires_grad_(values({3, 5}, 1));
  expect_same(compile(fn)(x), fn(x));
}

TEST(CompiledOperators, TakeSizesOfEveryIntegerType) {
  const std::vector<int> three(3);
  const auto fn = [&](const Tensor& x) {
    const SymInt rows = x.size(0);
    const Tensor y = full({rows * three.size(), short{2}}, 0.5) * rows;
    return y[rows - size_t{1}] + x[three.size() - 3][0];
  };
  const auto f = compile(fn);
  for (const int64_t rows : {2, 5, 9}) expect_same(f(values({rows, 2}, 1)), fn(values({rows, 2}, 1)));
}

TEST(CompiledOperators, RefuseWhatAnEagerRunRefuses) {
  const auto expanded = [](const Tensor& x) { return expand(x, {3, 2}) += 1; };
  const auto beyond = [](const Tensor& x) { return x[2] + 1; };
  const auto whole = [](const Tensor& x) { return cast(x, DType::i64) /= 2; };
  const Tensor x = values({1, 2}, 1);
  const auto expect_alike = [&](auto fn) {
    EXPECT_EQ(error_of<UsageError>([&] { compile(fn)(x); }), error_of<UsageError>([&] { fn(x); }));
  };
  expect_alike(expanded);
  expect_alike(beyond);
  expect_alike(whole);
}

}  // namespace
}  // namespace tutti
