// Tensors for the tests of the compiler, and their comparison bit for bit.
#pragma once

#include <gtest/gtest.h>

#include <cstring>

#include "tutti/ops/engine/facets.h"

namespace tutti::graph_test {

inline Tensor values(const Extents& sizes, uint64_t seed, DType dtype = DType::f32) { return facets::sample_tensor(seed, sizes, dtype); }

inline void expect_same(const Tensor& got, const Tensor& expected) {
  ASSERT_EQ(got.defined(), expected.defined());
  if (!got.defined()) return;
  ASSERT_EQ(got.dtype(), expected.dtype());
  ASSERT_EQ(got.extents(), expected.extents());
  const Tensor a = to_contiguous(got), b = to_contiguous(expected);
  if (a.nbytes() == 0) return;
  EXPECT_EQ(std::memcmp(a.raw_data(), b.raw_data(), static_cast<size_t>(a.nbytes())), 0)
      << to_string(got) << "\nexpected\n" << to_string(expected);
}

}  // namespace tutti::graph_test
