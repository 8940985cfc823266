// GEMM against the definition of its bits: a scalar walk over the contraction tree.
#include "tutti/codegen/gemm/gemm.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

#include "tests/codegen/support/gemm_definition.h"
#include "tutti/core/error.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::codegen {
namespace {

using gemm_test::Matrix;
using gemm_test::same_bits;
using gemm_test::wrong_elements;

void multiply(const Matrix& a, const Matrix& b, Matrix& c, const ContractionTree& tree,
              const GemmOptions& options = {}) {
  gemm(a.rows, b.columns, a.columns, a.operand(), b.operand(), c.result(), tree, options);
}

struct Case {
  DType a = DType::f32, b = DType::f32, c = DType::f32;
  bool a_transposed = false, b_transposed = false;
  int64_t gap = 0;
};

int64_t wrong_elements(int64_t m, int64_t n, int64_t k, const Case& with = {}, const GemmOptions& options = {}) {
  const Matrix a(m, k, with.a, 1, with.a_transposed, with.gap), b(k, n, with.b, 2, with.b_transposed, with.gap);
  Matrix c(m, n, with.c, 3, false, with.gap);
  const ContractionTree tree = ContractionTree::halving(k);
  multiply(a, b, c, tree, options);
  return wrong_elements(a, b, c, tree);
}

constexpr int64_t kOddSizes[] = {1, 2, 3, 5, 7, 17, 33, 65, 127, 129};

TEST(Gemm, FollowsTheTreeForOddRowsAndColumns) {
  for (const int64_t m : kOddSizes)
    for (const int64_t n : kOddSizes) EXPECT_EQ(wrong_elements(m, n, 33), 0) << m << " x " << n;
}

TEST(Gemm, FollowsTheTreeForOddContractions) {
  for (const int64_t k : {1, 2, 3, 5, 7, 17, 33, 65, 127, 128, 129, 300, 1000, 1025})
    for (const int64_t m : {1, 3, 20}) EXPECT_EQ(wrong_elements(m, 50, k), 0) << m << " rows, k = " << k;
}

TEST(Gemm, FollowsTheTreeAtLargerSizes) { EXPECT_EQ(wrong_elements(129, 300, 1000), 0); }

TEST(Gemm, TakesEveryTranspose) {
  for (const bool a : {false, true})
    for (const bool b : {false, true})
      for (const int64_t m : {1, 5, 33, 70})
        for (const int64_t k : {3, 19, 129})
          EXPECT_EQ(wrong_elements(m, 65, k, {.a_transposed = a, .b_transposed = b}), 0)
              << a << b << " " << m << " " << k;
}

TEST(Gemm, TakesRowsWithGaps) {
  for (const bool transposed : {false, true})
    for (const int64_t m : {1, 2, 40})
      EXPECT_EQ(wrong_elements(m, 37, 150, {.a_transposed = transposed, .b_transposed = transposed, .gap = 3}), 0) << m;
}

TEST(Gemm, TakesAnyStrides) {
  // Every second row and third column of larger matrices.
  const Matrix a(80, 300, DType::f32, 1), b(200, 150, DType::f32, 2);
  Matrix c(40, 50, DType::f32, 3), packed_a(40, 100, DType::f32, 4), packed_b(100, 50, DType::f32, 5);
  for (int64_t i = 0; i < 40; ++i)
    for (int64_t p = 0; p < 100; ++p) std::memcpy(packed_a.at(i * 100 + p), a.at(2 * i * 300 + 3 * p), 4);
  for (int64_t p = 0; p < 100; ++p)
    for (int64_t j = 0; j < 50; ++j) std::memcpy(packed_b.at(p * 50 + j), b.at(2 * p * 150 + 3 * j), 4);
  const ContractionTree tree = ContractionTree::halving(100, 32);
  gemm(40, 50, 100, {a.bytes.data(), DType::f32, 600, 3}, {b.bytes.data(), DType::f32, 300, 3}, c.result(), tree);
  EXPECT_EQ(wrong_elements(packed_a, packed_b, c, tree), 0);
}

TEST(Gemm, RepeatsAnOperandOfStrideZero) {
  const Matrix row(1, 20, DType::f32, 1), b(20, 33, DType::f32, 2);
  Matrix c(9, 33, DType::f32, 3), repeated(9, 20, DType::f32, 4);
  for (int64_t i = 0; i < 9; ++i) std::memcpy(repeated.at(i * 20), row.at(0), 80);
  const ContractionTree tree = ContractionTree::halving(20);
  gemm(9, 33, 20, {row.bytes.data(), DType::f32, 0, 1}, b.operand(), c.result(), tree);
  EXPECT_EQ(wrong_elements(repeated, b, c, tree), 0);
}

TEST(Gemm, TakesEveryMixOfDtypes) {
  const DType all[] = {DType::f64, DType::f32, DType::bf16, DType::f16};
  for (const DType a : all)
    for (const DType b : all)
      for (const DType c : all)
        for (const bool transposed : {false, true})
          for (const int64_t m : {3, 18}) {
            const Case with{a, b, c, transposed, transposed, 0};
            EXPECT_EQ(wrong_elements(m, 35, 140, with), 0) << name_of(a) << name_of(b) << name_of(c) << transposed << m;
          }
}

TEST(Gemm, OfNoElementsIsTheIdentityOfASum) {
  Matrix c(3, 5, DType::f32, 1);
  const Matrix a(3, 0, DType::f32, 2), b(0, 5, DType::f32, 3);
  multiply(a, b, c, ContractionTree::halving(0));
  for (int64_t i = 0; i < 15; ++i) EXPECT_EQ(std::bit_cast<uint32_t>(static_cast<float>(c(i / 5, i % 5))), 0x80000000u);
}

TEST(Gemm, OfNoRowsOrColumnsTouchesNothing) {
  Matrix c(2, 2, DType::f32, 1);
  const std::vector<std::byte> before = c.bytes;
  const Matrix a(2, 4, DType::f32, 2), b(4, 2, DType::f32, 3);
  gemm(0, 2, 4, a.operand(), b.operand(), c.result(), ContractionTree::halving(4));
  gemm(2, 0, 4, a.operand(), b.operand(), c.result(), ContractionTree::halving(4));
  EXPECT_EQ(c.bytes, before);
}

TEST(Gemm, WritesOnlyItsElements) {
  Matrix c(19, 21, DType::f32, 1, false, 4);
  const Matrix before = c, a(19, 30, DType::f32, 2), b(30, 21, DType::f32, 3);
  multiply(a, b, c, ContractionTree::halving(30));
  for (int64_t i = 0; i < 19; ++i)
    for (int64_t j = 21; j < 25; ++j) EXPECT_EQ(std::memcmp(c.at(i * 25 + j), before.at(i * 25 + j), 4), 0);
}

TEST(Gemm, KeepsNegativeZeroAndDenormals) {
  Matrix a(1, 1, DType::f32, 1), b(1, 20, DType::f32, 2), c(1, 20, DType::f32, 3);
  store_from_double(a.at(0), DType::f32, 0x1p-126);
  for (int64_t j = 0; j < 20; ++j) store_from_double(b.at(j), DType::f32, j == 0 ? -0.0 : -0x1p-10);
  multiply(a, b, c, ContractionTree::halving(1));
  EXPECT_TRUE(std::signbit(c(0, 0)));
  for (int64_t j = 1; j < 20; ++j) EXPECT_EQ(c(0, j), -0x1p-136);
}

TEST(Gemm, InABatchEqualsOneByOne) {
  const int64_t m = 21, n = 40, k = 70, count = 5;
  for (const bool shared : {false, true}) {
    const Matrix a(count * m, k, DType::f32, 1), b(count * k, n, DType::f32, 2);
    Matrix c(count * m, n, DType::f32, 3), one(m, n, DType::f32, 4);
    const ContractionTree tree = ContractionTree::halving(k, 32);
    const GemmBatch batch{count, m * k, shared ? 0 : k * n, m * n};
    batched_gemm(batch, m, n, k, a.operand(), b.operand(), c.result(), tree);
    for (int64_t x = 0; x < count; ++x) {
      gemm(m, n, k, {a.at(x * batch.a_stride), DType::f32, k, 1}, {b.at(x * batch.b_stride), DType::f32, n, 1},
           one.result(), tree);
      EXPECT_EQ(std::memcmp(c.at(x * m * n), one.at(0), static_cast<size_t>(m * n * 4)), 0) << shared << x;
    }
  }
}

TEST(Gemm, InABatchOfNarrowProblemsEqualsOneByOne) {
  const int64_t m = 50, n = 3, k = 40, count = 4;
  const Matrix a(count * m, k, DType::f32, 1), b(count * k, n, DType::f32, 2);
  Matrix c(count * m, n, DType::f32, 3), one(m, n, DType::f32, 4);
  const ContractionTree tree = ContractionTree::halving(k);
  batched_gemm({count, m * k, k * n, m * n}, m, n, k, a.operand(), b.operand(), c.result(), tree);
  for (int64_t x = 0; x < count; ++x) {
    gemm(m, n, k, {a.at(x * m * k), DType::f32, k, 1}, {b.at(x * k * n), DType::f32, n, 1}, one.result(), tree);
    EXPECT_EQ(std::memcmp(c.at(x * m * n), one.at(0), static_cast<size_t>(m * n * 4)), 0) << x;
  }
}

// f32 partial results of neighbouring parts of k, added by halving.
Matrix combined(std::span<const Matrix> parts) {
  if (parts.size() == 1) return parts[0];
  const size_t half = parts.size() - parts.size() / 2;
  Matrix left = combined(parts.first(half));
  const Matrix right = combined(parts.subspan(half));
  for (int64_t i = 0; i < left.rows * left.columns; ++i) {
    const float sum = static_cast<float>(load_as_double(left.at(i), DType::f32)) +
                      static_cast<float>(load_as_double(right.at(i), DType::f32));
    std::memcpy(left.at(i), &sum, 4);
  }
  return left;
}

TEST(Gemm, CutAtABorderOfTheTreeAddsToTheWhole) {
  const int64_t m = 20, n = 50, k = 2048;
  const Matrix a(m, k, DType::bf16, 1), b(k, n, DType::bf16, 2);
  Matrix whole(m, n, DType::f32, 3);
  multiply(a, b, whole, ContractionTree::halving(k));
  for (const int64_t degree : {2, 4, 16}) {
    std::vector<Matrix> parts(static_cast<size_t>(degree), Matrix(m, n, DType::f32, 4));
    const int64_t length = k / degree;
    for (int64_t r = 0; r < degree; ++r)
      gemm(m, n, length, {a.at(r * length), DType::bf16, k, 1}, {b.at(r * length * n), DType::bf16, n, 1},
           parts[static_cast<size_t>(r)].result(), ContractionTree::halving(length));
    EXPECT_TRUE(same_bits(combined(parts), whole)) << degree;
  }
}

TEST(Gemm, OfRaggedRangesCutByRangesAddsToTheWhole) {
  const std::vector<int32_t> counts{3, 0, 17, 128, 0, 0, 0, 0, 1, 64, 0, 5, 90, 2, 0, 33};
  const std::span<const int32_t> all(counts);
  const int64_t m = 11, n = 35, k = std::accumulate(counts.begin(), counts.end(), 0);
  const Matrix a(m, k, DType::f32, 1, true), b(k, n, DType::f32, 2);
  Matrix whole(m, n, DType::f32, 3);
  multiply(a, b, whole, ContractionTree::ranges(all));
  EXPECT_EQ(wrong_elements(a, b, whole, ContractionTree::ranges(all)), 0);
  for (const size_t degree : {2u, 4u, 8u}) {
    std::vector<Matrix> parts(degree, Matrix(m, n, DType::f32, 4));
    int64_t first = 0;
    for (size_t r = 0; r < degree; ++r) {
      const ContractionTree tree = ContractionTree::ranges(all.subspan(r * 16 / degree, 16 / degree));
      gemm(m, n, tree.k(), {a.at(first * m), DType::f32, 1, m}, {b.at(first * n), DType::f32, n, 1}, parts[r].result(),
           tree);
      first += tree.k();
    }
    EXPECT_TRUE(same_bits(combined(parts), whole)) << degree;
  }
}

TEST(Gemm, ElementsDoNotDependOnTheirNeighbours) {
  const int64_t m = 30, n = 100, k = 700;
  const Matrix a(m, k, DType::f32, 1), b(k, n, DType::f32, 2);
  Matrix whole(m, n, DType::f32, 3);
  const ContractionTree tree = ContractionTree::halving(k);
  multiply(a, b, whole, tree);
  for (const int64_t rows : {1, 7}) {
    for (const int64_t columns : {1, 13}) {
      Matrix part(rows, columns, DType::f32, 4);
      gemm(rows, columns, k, {a.at(3 * k), DType::f32, k, 1}, {b.at(5), DType::f32, n, 1}, part.result(), tree);
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < columns; ++j) EXPECT_EQ(part(i, j), whole(3 + i, 5 + j)) << i << " " << j;
    }
  }
}

TEST(Gemm, DoesNotDependOnThreads) {
  ThreadPool one(1), three(3);
  for (const int64_t m : {1, 40, 300}) {
    const Matrix a(m, 260, DType::f32, 1), b(260, 400, DType::f32, 2);
    Matrix c1(m, 400, DType::f32, 3), c3(m, 400, DType::f32, 4);
    multiply(a, b, c1, ContractionTree::halving(260), {.pool = &one});
    multiply(a, b, c3, ContractionTree::halving(260), {.pool = &three});
    EXPECT_TRUE(same_bits(c1, c3)) << m;
  }
}

TEST(Gemm, DoesNotDependOnTheInstructionSet) {
  std::vector<CpuTarget> targets = {CpuTarget::avx2};
  if (cpu_target() != CpuTarget::avx2) targets.push_back(cpu_target());  // what this processor can run
  for (const CpuTarget target : targets)
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16})
      for (const int64_t m : {1, 3, 6, 17, 50})
        EXPECT_EQ(wrong_elements(m, 77, 310, {.a = dtype, .b = dtype}, {.target = target}), 0)
            << name_of(target) << " " << name_of(dtype) << " " << m;
}

TEST(Gemm, WalksLongContractionsInChunks) {
  const ContractionLeafForTests scope(16);
  for (const int64_t m : {2, 30}) EXPECT_EQ(wrong_elements(m, 70, 3000), 0) << m;
}

TEST(Gemm, TakesMoreRowsThanArePackedAtOnce) {
  for (const bool transposed : {false, true})
    EXPECT_EQ(wrong_elements(3003, 16, 1000, {.a_transposed = transposed}), 0) << transposed;
  EXPECT_EQ(wrong_elements(1511, 9, 1000, {.a = DType::f64, .b = DType::f64, .c = DType::f64}), 0);
}

TEST(Gemm, CutsLongContractionsOfManyRows) {
  ThreadPool two(2);
  EXPECT_EQ(wrong_elements(900, 30, 5000), 0);
  EXPECT_EQ(wrong_elements(490, 45, 9001, {.c = DType::bf16, .a_transposed = true, .b_transposed = true, .gap = 1},
                           {.pool = &two}),
            0);
  EXPECT_EQ(wrong_elements(440, 20, 5011, {.a = DType::f64, .b = DType::f64, .c = DType::f64}), 0);
}

TEST(Gemm, TakesALeafLongerThanAChunk) {
  const Matrix a(9, 1500, DType::f32, 1), b(1500, 20, DType::f32, 2);
  Matrix c(9, 20, DType::f32, 3);
  const ContractionTree tree = ContractionTree::ranges(std::vector<int32_t>{700, 0, 800});
  multiply(a, b, c, tree);
  EXPECT_EQ(wrong_elements(a, b, c, tree), 0);
}

TEST(Gemm, RejectsWhatItCannotMultiply) {
  const Matrix a(2, 3, DType::f32, 1), b(3, 2, DType::f32, 2), integers(3, 2, DType::i32, 2);
  Matrix c(2, 2, DType::f32, 3);
  EXPECT_THROW(multiply(a, b, c, ContractionTree::halving(4)), UsageError);
  EXPECT_THROW(multiply(a, integers, c, ContractionTree::halving(3)), UsageError);
  EXPECT_THROW(gemm(-1, 2, 3, a.operand(), b.operand(), c.result(), ContractionTree::halving(3)), UsageError);
}

}  // namespace
}  // namespace tutti::codegen
