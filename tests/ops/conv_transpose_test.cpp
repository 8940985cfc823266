#include "tutti/ops/conv_transpose.h"

#include <gtest/gtest.h>

#include "tests/support/message_of.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"

namespace tutti {
namespace {

std::vector<float> floats(const Tensor& t) { return {t.data<float>(), t.data<float>() + t.numel()}; }

TEST(ConvTranspose1d, SpreadsTheKernel) {
  const Tensor x = Tensor::of<float>({1, 2, 3}, {1, 1, 3}), w = Tensor::of<float>({1, 10}, {1, 1, 2});
  EXPECT_EQ(floats(conv_transpose1d(x, w)), (std::vector<float>{1, 12, 23, 30}));
  EXPECT_EQ(floats(conv_transpose1d(x, w, Tensor::of<float>({100}), {.stride = {2}})),
            (std::vector<float>{101, 110, 102, 120, 103, 130}));
  EXPECT_EQ(floats(conv_transpose1d(x, w, {}, {.stride = {3}, .padding = {1}, .output_padding = {1}})),
            (std::vector<float>{10, 0, 2, 20, 0, 3, 30}));
}

// Every product added where it belongs, in double.
TEST(ConvTranspose2d, AgreesWithTheDefinition) {
  const Tensor x = facets::sample_tensor(1, {2, 4, 3, 5}), w = facets::sample_tensor(2, {4, 3, 2, 3});
  const Tensor y = conv_transpose2d(
      x, w, {}, {.stride = {2, 1}, .padding = {1, 0}, .output_padding = {1, 0}, .dilation = {1, 2}, .groups = 2});
  ASSERT_EQ(y.extents(), (Extents{2, 6, 5, 9}));
  std::vector<double> sums(static_cast<size_t>(y.numel()));
  facets::for_each_element({2, 4, 3, 5}, {&x, 1}, [&](int64_t i, const int64_t*) {
    const int64_t n = i / 60, o = i / 15 % 4, p = i / 5 % 3, q = i % 5;
    for (int64_t j = 0; j < 18; ++j) {
      const int64_t c = o / 2 * 3 + j / 6, r = p * 2 - 1 + j / 3 % 2, s = q + j % 3 * 2;
      if (r < 0 || r >= 5) continue;
      sums[static_cast<size_t>(((n * 6 + c) * 5 + r) * 9 + s)] +=
          static_cast<double>(x.data<float>()[i]) * w.data<float>()[o * 18 + j];
    }
  });
  for (int64_t i = 0; i < y.numel(); ++i) EXPECT_NEAR(y.data<float>()[i], sums[static_cast<size_t>(i)], 1e-5) << i;
}

TEST(ConvTranspose2d, NamesTheFormula) {
  const Tensor x = zeros({1, 2, 3, 3}), w = zeros({2, 4, 2, 2});
  EXPECT_EQ(message_of([&] { conv_transpose2d(x, w, {}, {.padding = {1, 2}}); }),
            "conv_transpose2d: no output along spatial dim 1: its size would be (size - 1) * stride - 2 * padding + "
            "dilation * (kernel - 1) + "
            "output_padding + 1 = (3 - 1) * 1 - 2 * 2 + 1 * (2 - 1) + 0 + 1 = 0");
  EXPECT_EQ(message_of([&] { conv_transpose2d(x, w, {}, {.output_padding = {1}}); }),
            "conv_transpose2d: output_padding is 1 along spatial dim 0; expected less than the stride, 1");
  EXPECT_EQ(message_of([&] { conv_transpose2d(zeros({1, 3, 3, 3}), w); }),
            "conv_transpose2d: x has 3 channels, the weight [2, 4, 2, 2] f32 cpu takes 2");
  EXPECT_EQ(message_of([&] { conv_transpose2d(x, w, zeros({3})); }),
            "conv_transpose2d: the bias is [3] f32 cpu; expected one element for each of 4 outputs");
  EXPECT_THROW(conv_transpose1d(x, w), UsageError);
}

}  // namespace
}  // namespace tutti
