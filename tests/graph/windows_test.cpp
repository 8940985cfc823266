// Convolutions and pooling with their gradients inside compiled functions: the bits of an eager run.
#include <gtest/gtest.h>

#include "tests/graph/support/same.h"
#include "tutti/autograd/backward.h"
#include "tutti/graph/compile.h"
#include "tutti/ops.h"

namespace tutti {
namespace {

using graph_test::expect_same;
using graph_test::values;

TEST(CompiledWindows, ConvolutionsPoolingAndTheirGradients) {
  const auto fn = [](const Tensor& x, const Tensor& w, const Tensor& bias) {
    const Tensor y = silu(conv2d(x, w, bias, {.padding = {1}}));
    const Tensor z = add(max_pool2d(y, {.kernel = {3}, .stride = {2}, .padding = {1}}),
                         avg_pool2d(y, {.kernel = {2}, .ceil_mode = true}));
    const Tensor inputs[] = {x, w, bias}, outputs[] = {sum(mul(z, adaptive_avg_pool2d(z, {1})))};
    return grad(outputs, inputs);
  };
  const auto f = compile(fn);
  for (const int64_t images : {2, 3}) {
    const Tensor x = values({images, 3, 9, 7}, 1), w = values({4, 3, 3, 3}, 2), bias = values({4}, 3);
    for (const Tensor& t : {x, w, bias}) requires_grad_(t);
    const std::vector<Tensor> got = f(x, w, bias), expected = fn(x, w, bias);
    for (size_t i = 0; i < 3; ++i) expect_same(got[i], expected[i]);
  }
}

}  // namespace
}  // namespace tutti
