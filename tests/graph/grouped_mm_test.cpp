// Grouped products in compiled functions: groups change from call to call without compiling again.
#include "tutti/ops/grouped_mm.h"

#include <gtest/gtest.h>

#include "tests/graph/support/same.h"
#include "tutti/autograd/backward.h"
#include "tutti/graph/compile.h"
#include "tutti/ops.h"

namespace tutti {
namespace {

using graph_test::expect_same;
using graph_test::values;

Tensor experts(const Tensor& x, const Tensor& gate, const Tensor& up, const Tensor& down, const Tensor& offsets) {
  return grouped_mm(mul(silu(grouped_mm(x, gate, offsets)), grouped_mm(x, up, offsets)), down, offsets);
}

TEST(CompiledGroupedMm, HasTheBitsOfEagerForAnyGroups) {
  const Tensor x = values({20, 24}, 1), gate = values({3, 24, 40}, 2), up = values({3, 24, 40}, 3),
               down = values({3, 40, 24}, 4);
  const auto f = compile(experts);
  for (const std::vector<int64_t>& ends : {std::vector<int64_t>{7, 12, 20}, {0, 0, 20}, {3, 3, 5}, {0, 0, 0}})
    expect_same(f(x, gate, up, down, Tensor::of(ends)), experts(x, gate, up, down, Tensor::of(ends)));
  EXPECT_EQ(f.statistics().compiles, 1);
  EXPECT_THROW(f(x, gate, up, down, Tensor::of<int64_t>({7, 6, 20})), UsageError);
}

TEST(CompiledGroupedMm, HasTheGradientsOfEager) {
  const auto step = [](const Tensor& x, const Tensor& w, const Tensor& offsets, const Tensor& positions) {
    const Tensor y = grouped_mm(x, transpose(w, -1, -2), offsets, {.positions = positions, .position_count = 64});
    const Tensor loss[] = {sum(mul(y, y))}, inputs[] = {x, w};
    return grad(loss, inputs);
  };
  const Tensor x = values({9, 16}, 1), w = values({2, 12, 16}, 2), offsets = Tensor::of<int64_t>({4, 9});
  const Tensor positions = Tensor::of<int64_t>({0, 9, 40, 63, 1, 2, 3, 4, 60});
  requires_grad_(x);
  requires_grad_(w);
  const auto expected = step(x, w, offsets, positions), got = compile(step)(x, w, offsets, positions);
  for (size_t i = 0; i < 2; ++i) expect_same(got[i], expected[i]);
}

}  // namespace
}  // namespace tutti
