#include "tutti/ops/convolution.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/message_of.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/sum_to.h"
#include "tutti/runtime/rank_context.h"

namespace tutti {
namespace {

bool same_bits(const Tensor& a, const Tensor& b) {
  const Tensor x = to_contiguous(a), y = to_contiguous(b);
  return x.extents() == y.extents() && x.dtype() == y.dtype() &&
         std::memcmp(x.raw_data(), y.raw_data(), static_cast<size_t>(x.nbytes())) == 0;
}

std::vector<float> floats(const Tensor& t) { return {t.data<float>(), t.data<float>() + t.numel()}; }

// Columns [C * K * K, N * P * P] of x [N, C, S, S], element by element.
Tensor columns_of(const Tensor& x, int64_t k, int64_t stride, int64_t padding) {
  const int64_t n = x.extent(0), c = x.extent(1), s = x.extent(2), p = (s + 2 * padding - k) / stride + 1;
  const Tensor columns = zeros({c * k * k, n * p * p});
  for (int64_t row = 0; row < c * k * k; ++row) {
    for (int64_t at = 0; at < n * p * p; ++at) {
      const int64_t y = at / p % p * stride - padding + row / k % k, z = at % p * stride - padding + row % k;
      if (y < 0 || y >= s || z < 0 || z >= s) continue;
      columns.data<float>()[row * n * p * p + at] = x.data<float>()[((at / p / p * c + row / k / k) * s + y) * s + z];
    }
  }
  return columns;
}

TEST(Conv1d, SlidesTheKernel) {
  const Tensor x = Tensor::of<float>({1, 2, 3, 4, 5}, {1, 1, 5}), w = Tensor::of<float>({1, 10}, {1, 1, 2});
  EXPECT_EQ(floats(conv1d(x, w)), (std::vector<float>{21, 32, 43, 54}));
  EXPECT_EQ(floats(conv1d(x, w, {}, {.stride = {2}, .padding = {1}})), (std::vector<float>{10, 32, 54}));
  EXPECT_EQ(floats(conv1d(x, w, {}, {.dilation = {3}})), (std::vector<float>{41, 52}));
  EXPECT_EQ(floats(conv1d(x, w, {}, {.mode = ConvPadding::same})), (std::vector<float>{21, 32, 43, 54, 5}));
  EXPECT_EQ(floats(conv1d(x, w, Tensor::of<float>({100}), {.padding = {7}, .mode = ConvPadding::valid})),
            (std::vector<float>{121, 132, 143, 154}));
  EXPECT_EQ(conv1d(reshape(x, {1, 5}), w).extents(), (Extents{1, 4}));
}

TEST(Conv2d, KeepsGroupsApart) {
  const Tensor x = Tensor::of<float>({1, 2, 3, 4}, {1, 4, 1, 1}),
               w = Tensor::of<float>({1, 10, 100, 1000}, {2, 2, 1, 1});
  EXPECT_EQ(floats(conv2d(x, w, {}, {.groups = 2})), (std::vector<float>{21, 4300}));
}

// y is a product over (c, k), the gradient of the weight one over tokens (n, p): the bits of matmul.
TEST(Conv2d, SumsInTheTreesOfMatmul) {
  const Tensor x = facets::sample_tensor(1, {2, 40, 11, 11}), w = facets::sample_tensor(2, {6, 40, 3, 3});
  const ConvOptions options{.stride = {2}, .padding = {1}};
  const Tensor columns = columns_of(x, 3, 2, 1), matrix = reshape(w, {6, 360});
  const Tensor y = conv2d(x, w, {}, options);
  EXPECT_TRUE(same_bits(permute(reshape(y, {2, 6, 36}), {1, 0, 2}), reshape(matmul(matrix, columns), {6, 2, 36})));
  const TokenGrainScope grain(16);
  const Tensor g = facets::sample_tensor(3, {2, 6, 6, 6});
  const Tensor dw = convolution_weight_gradient(g, x, {3, 3}, options);
  const Tensor tokens = to_contiguous(reshape(permute(reshape(g, {2, 6, 36}), {1, 0, 2}), {6, 72}));
  EXPECT_TRUE(
      same_bits(reshape(dw, {6, 360}), matmul(tokens, transpose(columns, 0, 1), {.axis = ContractionAxis::tokens})));
}

TEST(Conv2d, HasTheSameBitsOnAnyNumberOfThreads) {
  const Tensor x = facets::sample_tensor(1, {3, 8, 30, 41}), w = facets::sample_tensor(2, {12, 4, 3, 5});
  const ConvOptions options{.padding = {1, 2}, .groups = 2};
  RankContext& context = RankContext::current();
  const auto run = [&](int threads) {
    context.set_threads(threads);
    const Tensor y = conv2d(x, w, {}, options);
    return std::vector<Tensor>{y, convolution_input_gradient(y, w, {30, 41}, options),
                               convolution_weight_gradient(y, x, {3, 5}, options)};
  };
  const std::vector<Tensor> one = run(1), four = run(4);
  context.set_threads(0);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(same_bits(one[i], four[i])) << i;
}

TEST(Conv2d, SumsNarrowFloatsInF32) {
  const Tensor x = full({1, 300, 1, 1}, 1.0, DType::bf16), w = full({1, 300, 1, 1}, 1.0, DType::bf16);
  EXPECT_EQ(conv2d(x, w).item(), 300.0);
  const Tensor dw = convolution_weight_gradient(full({1, 1, 1, 300}, 1.0, DType::bf16),
                                                full({1, 1, 1, 300}, 1.0, DType::bf16), {1, 1});
  EXPECT_EQ(dw.dtype(), DType::f32);
  EXPECT_EQ(dw.item(), 300.0);
}

TEST(Convolution, NamesTheFormula) {
  const Tensor x = zeros({1, 2, 3, 9}), w = zeros({4, 2, 5, 3});
  EXPECT_EQ(message_of([&] { conv2d(x, w, {}, {.stride = {2}}); }),
            "conv2d: no output along spatial dim 0: its size would be floor((size + padding - dilation * (kernel - 1) "
            "- 1) / stride) + 1 = "
            "floor((3 + 0 - 1 * (5 - 1) - 1) / 2) + 1 = 0; the kernel reaches over 5 elements");
  EXPECT_EQ(message_of([&] { conv2d(x, w, {}, {.stride = {2}, .mode = ConvPadding::same}); }),
            "conv2d: padding 'same' needs stride 1; it is 2 along spatial dim 0");
  EXPECT_EQ(message_of([&] { conv2d(x, w, {}, {.stride = {1, 2, 3}}); }),
            "conv2d: stride has 3 numbers; expected 1 or 2, one for each spatial dim");
  EXPECT_EQ(message_of([&] { conv2d(x, w, {}, {.padding = {-1}}); }),
            "conv2d: the padding is -1 along spatial dim 0; expected 0 or more");
  EXPECT_EQ(message_of([&] { conv2d(x, w, {}, {.dilation = {0}}); }),
            "conv2d: kernel size 5, stride 1, dilation 0 along spatial dim 0; expected 1 or more of each");
  EXPECT_EQ(message_of([&] { conv2d(zeros({1, 3, 9, 9}), w); }),
            "conv2d: x has 3 channels, the weight is [4, 2, 5, 3] f32 cpu, groups 1; expected 2 * groups channels, and "
            "groups that divide "
            "the 4 outputs");
  EXPECT_EQ(message_of([&] { conv1d(x, w); }),
            "conv1d: x is [1, 2, 3, 9] f32 cpu, weight [4, 2, 5, 3] f32 cpu; expected x [N, C, 1 spatial dims] or "
            "without N, weight [O, C "
            "/ groups, 1 spatial dims]");
  EXPECT_EQ(message_of([&] { conv2d(zeros({1, 2, 9, 9}), w, zeros({3})); }),
            "conv2d: the bias is [3] f32 cpu; expected one element for each of 4 outputs");
  EXPECT_THROW(conv2d(zeros({1, 2, 9, 9}, DType::i64), w), UsageError);
  EXPECT_EQ(message_of([&] { convolution_input_gradient(zeros({1, 4, 4, 7}), w, {9, 9}); }),
            "convolution_input_gradient: the gradient is [1, 4, 4, 7] f32 cpu; a convolution with these options gives "
            "[1, 4, 5, 7]");
}

}  // namespace
}  // namespace tutti
