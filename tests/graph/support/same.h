// Tensors for the tests of the compiler, and their comparison bit for bit.
#pragma once

#include <gtest/gtest.h>

#include <cstring>

#include "tutti/ops/engine/facets.h"

namespace tutti::graph_test {

inline Tensor values(const Extents& sizes, uint64_t seed, DType dtype = DType::f32) {
  return facets::sample_tensor(seed, sizes, dtype);
}

inline bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || !(a.extents() == b.extents())) return false;
  const Tensor x = to_contiguous(a), y = to_contiguous(b);
  return x.nbytes() == 0 || std::memcmp(x.raw_data(), y.raw_data(), static_cast<size_t>(x.nbytes())) == 0;
}

inline void expect_same(const Tensor& got, const Tensor& expected) {
  ASSERT_EQ(got.defined(), expected.defined());
  if (!got.defined()) return;
  ASSERT_EQ(got.dtype(), expected.dtype());
  ASSERT_EQ(got.extents(), expected.extents());
  EXPECT_TRUE(same_bits(got, expected)) << to_string(got) << "\nexpected\n" << to_string(expected);
}

}  // namespace tutti::graph_test
