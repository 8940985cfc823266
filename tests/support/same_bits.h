// Tensors bit for bit.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "tutti/tensor/tensor.h"

namespace tutti {

// Both undefined, or the same sizes, dtype and elements in any strides; the first difference is told as hex floats.
inline void expect_same_bits(const Tensor& a, const Tensor& b, const std::string& what = "") {
  ASSERT_EQ(a.defined(), b.defined()) << what;
  if (!a.defined()) return;
  ASSERT_EQ(a.extents(), b.extents()) << what;
  ASSERT_EQ(a.dtype(), b.dtype()) << what;
  const Tensor x = to_contiguous(a), y = to_contiguous(b);
  const int64_t item = itemsize(a.dtype());
  for (int64_t i = 0; i < x.numel(); ++i) {
    const char *p = static_cast<const char*>(x.raw_data()) + i * item,
               *q = static_cast<const char*>(y.raw_data()) + i * item;
    ASSERT_EQ(std::memcmp(p, q, static_cast<size_t>(item)), 0)
        << what << ": element " << i << " is "
        << fmt::format("{:a}, not {:a}", load_as_double(p, a.dtype()), load_as_double(q, a.dtype()));
  }
}

}  // namespace tutti
