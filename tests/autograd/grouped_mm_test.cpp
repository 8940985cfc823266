#include "tutti/ops/grouped_mm.h"

#include <gtest/gtest.h>

#include "tests/support/same_bits.h"
#include "tutti/autograd/backward.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/slice.h"
#include "tutti/ops/squeeze.h"

namespace tutti {
namespace {

using facets::sample_tensor;

std::vector<Tensor> gradients(const Tensor& output, const Tensor& with, const Tensor& x, const Tensor& w) {
  const Tensor loss[] = {sum(mul(output, with))}, inputs[] = {x, w};
  return grad(loss, inputs);
}

// Experts are linear layers over their tokens: the gradients have the bits of theirs.
TEST(GroupedMmGradient, IsThatOfOneLinearLayerPerGroup) {
  const std::vector<int64_t> ends = {5, 5, 150, 152};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor x = sample_tensor(1, {160, 70}, dtype), w = sample_tensor(2, {4, 33, 70}, dtype),
                 with = sample_tensor(3, {160, 33}, dtype);
    requires_grad_(x);
    requires_grad_(w);
    const auto grouped = gradients(grouped_mm(x, transpose(w, -1, -2), Tensor::of(ends)), with, x, w);
    EXPECT_EQ(grouped[0].dtype(), DType::f32) << "gradients of leaves are f32";
    EXPECT_EQ(grouped[1].dtype(), DType::f32) << "parameter gradients stay f32";
    int64_t begin = 0;
    for (size_t g = 0; g < ends.size(); begin = ends[g++]) {
      const int64_t at = static_cast<int64_t>(g), size = ends[g] - begin;
      const Tensor rows = to_contiguous(narrow(x, 0, begin, size)).alias(),
                   expert = to_contiguous(select(w, 0, at)).alias();
      requires_grad_(rows);
      requires_grad_(expert);
      const auto one = gradients(linear(rows, expert), narrow(with, 0, begin, size), rows, expert);
      expect_same_bits(narrow(grouped[0], 0, begin, size), one[0], fmt::format("x of group {}", at));
      expect_same_bits(select(grouped[1], 0, at), one[1], fmt::format("w of group {}", at));
    }
    for (const Tensor& zero : {select(grouped[1], 0, 1), narrow(grouped[0], 0, 152, 8)}) {
      const Tensor dense = to_contiguous(zero);
      for (int64_t i = 0; i < dense.numel(); ++i) ASSERT_EQ(facets::read_double(dense, i), 0.0);
    }
  }
}

// Optimizers read weight and gradient together.
TEST(GroupedMmGradient, LiesAsTheWeightDoes) {
  const Tensor x = sample_tensor(1, {12, 7}), weight = sample_tensor(2, {3, 5, 7}),
               offsets = Tensor::of<int64_t>({4, 4, 12});
  requires_grad_(weight);
  const Tensor with = sample_tensor(3, {12, 5});
  for (const bool columns : {false, true}) {
    const Tensor y = columns ? grouped_mm(transpose(transpose(weight, 1, 2), 1, 2), transpose(x, 0, 1), offsets)
                             : grouped_mm(x, transpose(weight, 1, 2), offsets);
    const Tensor loss[] = {sum(mul(columns ? transpose(y, 0, 1) : y, with))}, inputs[] = {weight};
    EXPECT_TRUE(grad(loss, inputs)[0].is_contiguous()) << columns;
  }
}

TEST(GroupedMmGradient, TakesThePositionsOfTheCall) {
  const Tensor x = sample_tensor(1, {6, 4}), w = sample_tensor(2, {2, 4, 3}), with = sample_tensor(3, {6, 3});
  requires_grad_(x);
  requires_grad_(w);
  const Tensor offsets = Tensor::of<int64_t>({4, 6});
  const GroupedMmOptions options{.positions = Tensor::of<int64_t>({0, 130, 200, 300, 1, 1023}), .position_count = 1024};
  const auto found = gradients(grouped_mm(x, w, offsets, options), with, x, w);
  expect_same_bits(found[1], grouped_mm(transpose(x, 0, 1), with, offsets, options), "gradient of w");
}

}  // namespace
}  // namespace tutti
