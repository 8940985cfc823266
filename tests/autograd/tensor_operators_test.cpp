// Operators on tensors that autograd records.
#include "tutti/ops/tensor_operators.h"

#include <gtest/gtest.h>

#include "tests/support/message_of.h"
#include "tests/support/same_bits.h"
#include "tutti/autograd/backward.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/expand.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/slice.h"
#include "tutti/ops/statistics.h"

namespace tutti {
namespace {

Tensor leaf(const std::vector<float>& values, const Extents& sizes) {
  return requires_grad_(Tensor::of<float>(values, sizes));
}

void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(RecordedOperators, TheGradientReachesTheElementThatWasTaken) {
  const Tensor x = leaf({1, 2, 3, 4, 5, 6}, {3, 2});
  const Tensor last = x[-1], one = x[1][0];
  backward(sum(last * last) + one * last[1]);
  expect_same_bits(grad_of(x) + 0.0, Tensor::of<float>({0, 0, 6, 0, 10, 12 + 3}, {3, 2}), "the gradient of x");
}

TEST(RecordedOperators, GradientsOfEveryElementAddUp) {
  const Tensor x = leaf({1, 2, 3, 4}, {2, 2});
  Tensor loss = zeros({});
  for (int64_t i = 0; i < x.extent(0); ++i) loss = loss + sum(x[i], 0) * static_cast<double>(i + 1);
  backward(loss);
  expect_same_bits(grad_of(x) + 0.0, Tensor::of<float>({1, 1, 2, 2}, {2, 2}), "the gradient of x");
}

TEST(RecordedOperators, WritingALeafIsAnErrorOutsideOfNoGrad) {
  const Tensor w = leaf({1, 2}, {2}), y = Tensor::of<float>({3, 4});
  const std::string part = "writes in place to a tensor that autograd records ([2] f32 cpu); use the out-of-place form";
  expect_part(message_of([&] { w += y; }), "add_: " + part);
  expect_part(message_of([&] { w -= 1; }), "sub_scalar_: " + part);
  expect_part(message_of([&] { w *= y; }), "mul_: " + part);
  expect_part(message_of([&] { w /= 2; }), "truediv_scalar_: " + part);
  expect_part(message_of([&] { w[0] += 1; }), "writes in place to a tensor that autograd records");
  backward(sum(w * w));
  {
    const NoGradScope no_grad;
    w -= grad_of(w) * 0.25;
    w[1] += 10;
  }
  expect_same_bits(detach(w), Tensor::of<float>({0.5f, 11}), "the step");
  EXPECT_TRUE(requires_grad(w));
}

TEST(RecordedOperators, WritingAResultIsAnErrorAndWritingWhatWasSavedToo) {
  const Tensor x = leaf({1, 2}, {2}), factor = Tensor::of<float>({3, 4});
  Tensor y = x * factor;
  expect_part(message_of([&] { y += 1; }), "add_scalar_: writes in place to a tensor that autograd records");
  expect_part(message_of([&] { y[0] *= 2; }), "writes in place to a tensor that autograd records");
  y = y + 1;  // the form that is recorded
  factor[1] -= 1;
  expect_part(message_of([&] { backward(sum(y)); }), "in place");
}

TEST(RecordedOperators, AddingToATotalIsAnErrorThatNamesTheFormToUse) {
  const Tensor x = leaf({1, 2}, {2});
  Tensor total = zeros({});
  total += sum(x);
  expect_part(message_of([&] { total += sum(x); }), "add_: writes in place to a tensor that autograd records");
  expect_part(message_of([&] { backward(total); }), "use the form without underscore where a gradient is wanted");
  total = zeros({});
  for (int i = 0; i < 2; ++i) total = total + sum(x);
  backward(total);
  expect_same_bits(grad_of(x), Tensor::of<float>({2, 2}), "the gradient of x");
}

TEST(RecordedOperators, ReductionsOverOneDimHaveTheGradientOfTheOptionsForm) {
  const Tensor a = leaf({1, 2, 3, 4, 5, 6}, {2, 3}), b = leaf({1, 2, 3, 4, 5, 6}, {2, 3});
  backward(sum(mean(a, 1, true) * a + sum(a, -1, true)));
  backward(sum(mean(b, {.dims = {1}, .keepdim = true}) * b + sum(b, {.dims = {1}, .keepdim = true})));
  expect_same_bits(grad_of(a), grad_of(b), "sum(x, dim) and sum(x, {.dims})");
}

}  // namespace
}  // namespace tutti
