// Products of pairs against the batched product that they are elements of.
#include "tutti/ops/pairwise_dots.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/message_of.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/permute.h"
#include "tutti/runtime/rank_context.h"

namespace tutti {
namespace {

int64_t pair_of(int64_t i, int64_t j) { return i > j ? i * (i - 1) / 2 + j : j * (j - 1) / 2 + i; }

template <class Real>
void expect_elements_of_products(int64_t B, int64_t F, int64_t D) {
  const Tensor x = facets::sample_tensor(static_cast<uint64_t>(F * D), {B, F, D}, dtype_of<Real>);
  const Tensor dots = pairwise_dots(x), products = bmm(x, transpose(x, 1, 2));
  ASSERT_EQ(dots.extents(), (Extents{B, F * (F - 1) / 2}));
  for (int64_t b = 0; b < B; ++b)
    for (int64_t i = 1; i < F; ++i)
      for (int64_t j = 0; j < i; ++j)
        ASSERT_EQ(std::memcmp(dots.data<Real>() + b * dots.extent(1) + pair_of(i, j),
                              products.data<Real>() + (b * F + i) * F + j, sizeof(Real)),
                  0)
            << B << " x " << F << " x " << D << ": " << i << ", " << j;
  // The gradient is a product with a symmetric matrix that has zeros in its diagonal.
  const Tensor grad = facets::sample_tensor(9, dots.extents(), dtype_of<Real>);
  const Tensor whole = Tensor::empty({B, F, F}, dtype_of<Real>);
  for (int64_t b = 0; b < B; ++b)
    for (int64_t i = 0; i < F; ++i)
      for (int64_t j = 0; j < F; ++j)
        whole.data<Real>()[(b * F + i) * F + j] =
            i == j ? Real{0} : grad.data<Real>()[b * dots.extent(1) + pair_of(i, j)];
  const Tensor dx = pairwise_dots_backward(grad, x), expected = bmm(whole, x);
  for (int64_t k = 0; k < dx.numel(); ++k)
    ASSERT_EQ(dx.data<Real>()[k], expected.data<Real>()[k]) << B << " x " << F << " x " << D << ": " << k;
}

TEST(PairwiseDots, AreElementsOfABatchedProduct) {
  for (const int64_t F : {1, 2, 3, 27, 130, 260})
    for (const int64_t D : {1, 8, 16, 127, 129, 300}) {
      if (F * D > 20000) continue;
      expect_elements_of_products<float>(3, F, D);
      expect_elements_of_products<double>(2, F, D);
    }
}

TEST(PairwiseDots, HaveTheSameBitsOnAnyThreads) {
  const Tensor x = facets::sample_tensor(3, {301, 27, 16}), grad = facets::sample_tensor(4, {301, 351});
  RankContext::current().set_threads(1);
  const Tensor dots = pairwise_dots(x), dx = pairwise_dots_backward(grad, x);
  for (const int threads : {2, 3, 4}) {
    RankContext::current().set_threads(threads);
    EXPECT_EQ(std::memcmp(pairwise_dots(x).raw_data(), dots.raw_data(), static_cast<size_t>(dots.nbytes())), 0);
    EXPECT_EQ(std::memcmp(pairwise_dots_backward(grad, x).raw_data(), dx.raw_data(), static_cast<size_t>(dx.nbytes())),
              0);
  }
}

TEST(PairwiseDots, RefuseOtherOperands) {
  const Tensor x = facets::sample_tensor(1, {2, 3, 4});
  EXPECT_EQ(message_of([&] { pairwise_dots(facets::sample_tensor(1, {3, 4})); }),
            "pairwise_dots: x is [3, 4] f32 cpu; expected floats [batch, features, columns]");
  EXPECT_EQ(message_of([&] { pairwise_dots(Tensor::empty({2, 3, 4}, DType::i32)); }),
            "pairwise_dots: x is [2, 3, 4] i32 cpu; expected floats [batch, features, columns]");
  EXPECT_EQ(message_of([&] { pairwise_dots_backward(facets::sample_tensor(1, {2, 4}), x); }),
            "pairwise_dots_backward: the gradient is [2, 4] f32 cpu and x [2, 3, 4] f32 cpu; expected floats [batch, "
            "features (features - 1) / 2]");
}

}  // namespace
}  // namespace tutti
