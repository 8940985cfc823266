// Selections, scans and pooling inside compiled functions, with their gradients and in several sizes: the bits of an
// eager run.
#include <gtest/gtest.h>

#include <functional>

#include "tests/graph/support/same.h"
#include "tutti/autograd/backward.h"
#include "tutti/graph/compile.h"
#include "tutti/ops.h"

namespace tutti {
namespace {

using graph_test::expect_same;
using graph_test::values;

// fn and the gradient of the sum of squares of its result, compiled and eager, for tensors of growing rows.
void expect_compiled(const char* name, const std::function<Tensor(const Tensor&)>& fn,
                     const std::function<Extents(int64_t)>& sizes) {
  SCOPED_TRACE(name);
  const auto both = [&](const Tensor& x) {
    const Tensor y = fn(mul(x, 1.5)), inputs[] = {x}, outputs[] = {sum(mul(y, y))};
    return std::vector<Tensor>{y, grad(outputs, inputs)[0]};
  };
  const auto f = compile(both);
  for (int64_t n = 2; n < 7; ++n) {
    const Tensor x = values(sizes(n), static_cast<uint64_t>(n));
    requires_grad_(x);
    const std::vector<Tensor> got = f(x), expected = both(x);
    for (size_t i = 0; i < got.size(); ++i) expect_same(got[i], expected[i]);
  }
}

TEST(CompiledSelections, HaveTheBitsOfEagerOnes) {
  const auto matrix = [](int64_t n) { return Extents{n, 5}; };
  expect_compiled("median", [](const Tensor& x) { return median(x); }, matrix);
  expect_compiled("nanmedian", [](const Tensor& x) { return nanmedian(x); }, matrix);
  for (const int64_t dim : {0, 1}) {
    expect_compiled("median of lines", [=](const Tensor& x) { return median(x, dim).values; }, matrix);
    expect_compiled("nanmedian of lines", [=](const Tensor& x) { return nanmedian(x, dim, true).values; }, matrix);
    expect_compiled("kthvalue", [=](const Tensor& x) { return kthvalue(x, 2, dim).values; }, matrix);
    expect_compiled("mode", [=](const Tensor& x) { return mode(x, dim, true).values; }, matrix);
    expect_compiled(
        "index", [=](const Tensor& x) { return add(sum(x), cast(median(x, dim).indices, DType::f32)); }, matrix);
  }
}

TEST(CompiledScans, HaveTheBitsOfEagerOnes) {
  const auto matrix = [](int64_t n) { return Extents{n, 5}; };
  for (const int64_t dim : {0, 1}) {
    expect_compiled("logcumsumexp", [=](const Tensor& x) { return logcumsumexp(x, dim); }, matrix);
    expect_compiled(
        "decayed_cumsum", [=](const Tensor& x) { return decayed_cumsum(x, sigmoid(x), dim, dim == 1); }, matrix);
    expect_compiled("cumprod", [=](const Tensor& x) { return cumprod(x, dim); }, matrix);
    expect_compiled("cummax", [=](const Tensor& x) { return cummax(x, dim).first; }, matrix);
  }
}

TEST(CompiledPooling, HasTheBitsOfEagerPooling) {
  const auto images = [](int64_t n) { return Extents{n, 2, 7, 6}; };
  expect_compiled(
      "max_pool2d", [](const Tensor& x) { return max_pool2d(x, {.kernel = {3}, .stride = {2}, .padding = {1}}); },
      images);
  expect_compiled(
      "avg_pool2d", [](const Tensor& x) { return avg_pool2d(x, {.kernel = {5}, .stride = {1}, .padding = {2}}); },
      images);
  expect_compiled("adaptive_max_pool2d", [](const Tensor& x) { return adaptive_max_pool2d(x, {3}); }, images);
  expect_compiled("adaptive_avg_pool2d", [](const Tensor& x) { return adaptive_avg_pool2d(x, {-1, 4}); }, images);
}

}  // namespace
}  // namespace tutti
