#include "tutti/codegen/gemm/decoded.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "tutti/codegen/gemm/gemm.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::codegen {
namespace {

std::vector<float> values(int64_t count, uint32_t state) {
  std::vector<float> v(static_cast<size_t>(count));
  for (float& x : v) x = static_cast<float>(static_cast<int32_t>(state = state * 1664525u + 1013904223u)) * 0x1p-31f;
  return v;
}

// B is asked for in parts of any k and column, with memory for whole registers.
void expect_bits_of_gemm(int64_t m, int64_t n, int64_t k, ThreadPool& pool) {
  const std::vector<float> a = values(m * k, 1), b = values(n * k, 2);  // b [n][k]
  const ContractionTree tree = ContractionTree::halving(k);
  std::vector<float> expected(static_cast<size_t>(m * n)), c(expected.size());
  gemm(m, n, k, {a.data(), DType::f32, k, 1}, {b.data(), DType::f32, 1, k}, {expected.data(), DType::f32, n}, tree);
  std::vector<int> times(expected.size());
  const auto decode = [&](const GemmDecodedBlock& block) {
    for (int64_t p = 0; p < block.length; ++p)
      for (int64_t j = 0; j < block.width; ++j) {
        const int64_t column = std::min(block.first_column + j, n - 1);
        block.to[p * block.width + j] = b[static_cast<size_t>(column * k + block.first_k + p)];
      }
  };
  const auto finish = [&](const GemmBlock& block) {
    for (int64_t i = 0; i < block.rows; ++i)
      for (int64_t j = 0; j < block.columns; ++j) {
        const auto at = static_cast<size_t>((block.first_row + i) * n + block.first_column + j);
        c[at] = static_cast<const float*>(block.data)[i * block.row_stride + j];
        ++times[at];
      }
  };
  decoded_gemm({m, n, k, {a.data(), DType::f32, k, 1}, tree}, decode, finish, pool);
  EXPECT_EQ(std::memcmp(c.data(), expected.data(), c.size() * 4), 0) << m << "x" << n << "x" << k;
  EXPECT_TRUE(std::ranges::all_of(times, [](int t) { return t == 1; })) << m << "x" << n << "x" << k;
}

TEST(DecodedGemm, HasTheBitsOfGemmAndHandsOnEveryElementOnce) {
  ThreadPool three(3);
  for (const int64_t m : {1, 5, 8, 20, 70}) {
    for (const int64_t n : {1, 7, 16, 49, 130}) {
      for (const int64_t k : {1, 9, 300, 1500}) expect_bits_of_gemm(m, n, k, three);
    }
  }
}

TEST(DecodedGemm, TakesBlocksOfRowsAndOfK) {
  ThreadPool three(3);
  expect_bits_of_gemm(3003, 50, 1000, three);
  expect_bits_of_gemm(900, 50, 5000, three);
}

}  // namespace
}  // namespace tutti::codegen
