// Cross entropy of logits with other strides than dense rows.
#include "tutti/ops/cross_entropy.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tutti/ops/cross_entropy_shard.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/permute.h"

namespace tutti {
namespace {

void expect_same_bits(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.extents(), b.extents());
  EXPECT_EQ(std::memcmp(to_contiguous(a).raw_data(), to_contiguous(b).raw_data(), static_cast<size_t>(a.nbytes())), 0);
}

TEST(CrossEntropy, RowsThatLieSideBySideHaveTheSameBits) {
  for (const int64_t classes : {1, 7, 1300}) {
    const Tensor dense = facets::sample_tensor(1, {9, classes}),
                 labels = facets::sample_tensor(2, {9}, DType::i64, 0, static_cast<double>(classes));
    const Tensor turned = transpose(to_contiguous(transpose(dense, 0, 1)), 0, 1);
    expect_same_bits(cross_entropy(turned, labels), cross_entropy(dense, labels));
    expect_same_bits(class_statistics(turned, labels, 3).target, class_statistics(dense, labels, 3).target);
  }
}

TEST(CrossEntropy, OneClassHasNoLoss) {
  const Tensor losses =
      cross_entropy(facets::sample_tensor(1, {9, 1}), facets::sample_tensor(2, {9}, DType::i64, 0, 1));
  for (int64_t t = 0; t < 9; ++t) EXPECT_EQ(losses.data<float>()[t], 0);
}

}  // namespace
}  // namespace tutti
