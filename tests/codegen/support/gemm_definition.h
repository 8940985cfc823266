// Matrices in memory and the definition of the bits of a GEMM: a scalar walk over the contraction tree.
#pragma once

#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "tests/support/bf16_chain.h"
#include "tutti/codegen/gemm/gemm.h"

namespace tutti::codegen::gemm_test {

// A matrix in memory of a dtype, with gaps between rows when `gap` > 0.
struct Matrix {
  Matrix(int64_t rows, int64_t columns, DType dtype, uint64_t seed, bool transposed = false, int64_t gap = 0)
      : rows(rows), columns(columns), dtype(dtype) {
    row_stride = transposed ? 1 : columns + gap;
    column_stride = transposed ? rows + gap : 1;
    const int64_t elements = (rows + gap) * (columns + gap) + 1;
    bytes.resize(static_cast<size_t>(elements * itemsize(dtype)));
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    for (int64_t i = 0; i < elements; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      store_from_double(at(i), dtype, static_cast<double>(static_cast<int32_t>(state >> 32)) * 0x1p-31);
    }
  }
  std::byte* at(int64_t element) { return bytes.data() + element * itemsize(dtype); }
  const std::byte* at(int64_t element) const { return bytes.data() + element * itemsize(dtype); }
  double operator()(int64_t i, int64_t j) const {
    return load_as_double(at(i * row_stride + j * column_stride), dtype);
  }
  GemmOperand operand() const { return {bytes.data(), dtype, row_stride, column_stride}; }
  GemmResult result() { return {bytes.data(), dtype, row_stride}; }

  int64_t rows, columns;
  DType dtype;
  int64_t row_stride, column_stride;
  std::vector<std::byte> bytes;
};

// Element (i, j) of a b.
template <class T>
T tree_value(const Matrix& a, const Matrix& b, int64_t i, int64_t j, const ContractionTree& tree) {
  std::vector<T> pending;
  int64_t k = 0;
  const bool of_bf16 = a.dtype == DType::bf16 && b.dtype == DType::bf16;
  for (size_t leaf = 0; leaf < tree.leaf_lengths.size(); ++leaf) {
    T sum = T{-0.0};
    const int64_t begin = k, end = k + tree.leaf_lengths[leaf];
    if (of_bf16) {
      sum = testing::bf16_leaf(end - begin, [&](int64_t p) { return std::pair(a(i, begin + p), b(begin + p, j)); });
      k = end;
    }
    for (; k < end; ++k) sum = std::fma(static_cast<T>(a(i, k)), static_cast<T>(b(k, j)), sum);
    for (int merges = tree.merges[leaf]; merges > 0; --merges) {
      sum = pending.back() + sum;
      pending.pop_back();
    }
    pending.push_back(sum);
  }
  return pending.empty() ? T{-0.0} : pending.back();
}

// The number of elements of c whose bits are not those of the definition.
inline int64_t wrong_elements(const Matrix& a, const Matrix& b, const Matrix& c, const ContractionTree& tree) {
  int64_t wrong = 0;
  const bool wide = a.dtype == DType::f64 || b.dtype == DType::f64;
  for (int64_t i = 0; i < c.rows; ++i) {
    for (int64_t j = 0; j < c.columns; ++j) {
      std::byte expected[8], found[8] = {};
      std::memcpy(found, c.at(i * c.row_stride + j), static_cast<size_t>(itemsize(c.dtype)));
      const double value = wide ? tree_value<double>(a, b, i, j, tree) : tree_value<float>(a, b, i, j, tree);
      store_from_double(expected, c.dtype, value);
      // The payload of NaN is unspecified.
      const bool both_nan = std::isnan(value) && std::isnan(load_as_double(found, c.dtype));
      wrong += !both_nan && std::memcmp(expected, found, static_cast<size_t>(itemsize(c.dtype))) != 0;
    }
  }
  return wrong;
}

inline bool same_bits(const Matrix& x, const Matrix& y) {
  return std::memcmp(x.at(0), y.at(0), static_cast<size_t>(x.rows * x.columns * itemsize(x.dtype))) == 0;
}

}  // namespace tutti::codegen::gemm_test
