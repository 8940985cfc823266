// Products with few rows and large B, which stream B: the bits of the definition, whichever way they take.
#include <gtest/gtest.h>

#include "tests/codegen/support/gemm_definition.h"
#include "tutti/codegen/cpu_target.h"
#include "tutti/core/error.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::codegen {
namespace {

using gemm_test::Matrix;
using gemm_test::same_bits;
using gemm_test::wrong_elements;

struct Case {
  int64_t m, n, k;
  bool b_transposed = false;
  DType a = DType::f32, b = DType::f32, c = DType::f32;
  int64_t gap = 0;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << fmt::format("{}x{}x{}{} {} {} {} gap {}", c.m, c.n, c.k, c.b_transposed ? " B^T" : "", name_of(c.a),
                      name_of(c.b), name_of(c.c), c.gap);
}

class GemmStream : public ::testing::TestWithParam<Case> {
 public:
  Case p = GetParam();
  Matrix a{p.m, p.k, p.a, 1, false, p.gap}, b{p.k, p.n, p.b, 2, p.b_transposed, p.gap};
  ContractionTree tree = ContractionTree::halving(p.k);
};

constexpr DType f64 = DType::f64, f32 = DType::f32, bf16 = DType::bf16, f16 = DType::f16;
INSTANTIATE_TEST_SUITE_P(
    , GemmStream,
    ::testing::Values(Case{1, 1024, 300}, Case{2, 1031, 1001}, Case{1, 2050, 130, false, bf16, bf16, bf16, 3},
                      Case{1, 600, 515, false, f64, f64, f64}, Case{2, 901, 300, false, f32, f16, f16},
                      // rows of B a page apart
                      Case{3, 1024, 300}, Case{5, 1024, 259}, Case{8, 2048, 130}, Case{11, 1024, 257},
                      Case{16, 2048, 129}, Case{7, 2048, 130, false, bf16, bf16, f32},
                      // leaves: 1 of 127, 1 of 128, 2, 4, 8 of 125 and 126, 16, 32 of 64 and 65
                      Case{1, 2100, 127, true}, Case{2, 2049, 128, true}, Case{1, 2019, 130, true},
                      Case{2, 901, 300, true}, Case{1, 263, 1001, true}, Case{2, 131, 2048, true},
                      Case{1, 131, 2043, true}, Case{1, 71, 8000, true, bf16, bf16, bf16, 5},
                      Case{2, 300, 1000, true, f32, bf16, f32}, Case{1, 270, 1000, true, f16, f16, f16},
                      Case{2, 263, 1003, true, f64, f64, f64, 1}, Case{1, 700, 512, true, f16, f16, f32},
                      Case{2, 700, 768, true, f64, f64, f64}, Case{3, 1031, 300, true},
                      Case{3, 263, 1000, true, bf16, bf16, bf16}, Case{3, 301, 1003, true, f64, f64, f64, 1},
                      Case{1, 1, 300000, true},
                      // blocks of rows; odd leaves of pairs; columns that share a group, apart in memory
                      Case{4, 1031, 300, true}, Case{4, 901, 2048, true, f16, f16, f16},
                      Case{5, 263, 1024, true, bf16, bf16, bf16}, Case{6, 601, 520, true, bf16, bf16, f32},
                      Case{3, 1501, 260, true, f32, f32, f32, 3}, Case{6, 2100, 126, true, bf16, bf16, bf16, 5},
                      Case{4, 4099, 65, true, f64, f64, f64, 1}));

TEST_P(GemmStream, FollowsTheTree) {
  Matrix c(p.m, p.n, p.c, 3, false, p.gap);
  // Wide registers and dot units are worth copying B for fewer rows.
  EXPECT_NE(describe_gemm(p.m, p.n, p.k, a.operand(), b.operand(), c.result(), tree, {.target = CpuTarget::avx2})
                .find("b streamed"),
            std::string::npos);
  for (const CpuTarget target : {cpu_target(), without_dots(cpu_target()), CpuTarget::avx2}) {
    gemm(p.m, p.n, p.k, a.operand(), b.operand(), c.result(), tree, {.target = target});
    EXPECT_EQ(wrong_elements(a, b, c, tree), 0) << name_of(target);
  }
}

TEST_P(GemmStream, DoesNotDependOnThreads) {
  ThreadPool one(1), three(3);
  Matrix c(p.m, p.n, p.c, 3), d(p.m, p.n, p.c, 4);
  gemm(p.m, p.n, p.k, a.operand(), b.operand(), c.result(), tree, {.pool = &one});
  gemm(p.m, p.n, p.k, a.operand(), b.operand(), d.result(), tree, {.pool = &three});
  EXPECT_TRUE(same_bits(c, d));
}

// C^T = B^T A^T: many rows and few columns.
TEST_P(GemmStream, OfTheTransposedProblemHasTheSameBits) {
  Matrix c(p.m, p.n, p.c, 3), d(p.n, p.m, p.c, 4), turned(p.m, p.n, p.c, 5);
  gemm(p.m, p.n, p.k, a.operand(), b.operand(), c.result(), tree);
  const auto transposed = [](const GemmOperand& x) {
    return GemmOperand{x.data, x.dtype, x.column_stride, x.row_stride};
  };
  gemm(p.n, p.m, p.k, transposed(b.operand()), transposed(a.operand()), d.result(), tree);
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t j = 0; j < p.n; ++j)
      std::memcpy(turned.at(i * p.n + j), d.at(j * p.m + i), static_cast<size_t>(itemsize(p.c)));
  EXPECT_TRUE(same_bits(c, turned));
}

// Every element once, whether C has memory or not, of both problems.
TEST_P(GemmStream, HandsItsBlocksOn) {
  const auto transposed = [](const GemmOperand& x) {
    return GemmOperand{x.data, x.dtype, x.column_stride, x.row_stride};
  };
  for (const bool turned : {false, true}) {
    const int64_t m = turned ? p.n : p.m, n = turned ? p.m : p.n;
    const GemmOperand left = turned ? transposed(b.operand()) : a.operand(),
                      right = turned ? transposed(a.operand()) : b.operand();
    Matrix whole(m, n, p.c, 3);
    gemm(m, n, p.k, left, right, whole.result(), tree);
    for (const bool kept : {false, true}) {
      Matrix c(m, n, p.c, 4), seen(m, n, p.c, 5);
      std::vector<std::atomic<int>> times(static_cast<size_t>(m * n));
      const auto take = [&](const GemmBlock& block) {
        const int64_t size = itemsize(p.c);
        for (int64_t i = 0; i < block.rows; ++i) {
          const int64_t at = (block.first_row + i) * n + block.first_column;
          std::memcpy(seen.at(at), static_cast<std::byte*>(block.data) + i * block.row_stride * size,
                      static_cast<size_t>(block.columns * size));
          for (int64_t j = 0; j < block.columns; ++j) ++times[static_cast<size_t>(at + j)];
        }
      };
      const GemmConsumer consumer(take);
      GemmResult to = c.result();
      if (!kept) to.data = nullptr;
      gemm(m, n, p.k, left, right, to, tree, {.consumer = &consumer});
      EXPECT_TRUE(same_bits(seen, whole)) << turned << kept;
      for (const auto& count : times) ASSERT_EQ(count, 1);
    }
  }
}

// Up to eight rows in two blocks of them, of leaves that are even and uneven.
TEST(GemmStreamed, MoreRowsInWideRegisters) {
  if (!has_wide_registers(cpu_target())) GTEST_SKIP() << "needs AVX-512";
  for (const int64_t m : {7, 8})
    for (const auto& [k, dtype] :
         {std::pair{1003, f32}, {2048, f32}, {1000, f16}, {1024, bf16}, {776, bf16}, {260, bf16}}) {
      const int64_t n = 1027;
      const ContractionTree tree = ContractionTree::halving(k);
      const Matrix a(m, k, dtype, 1), b(k, n, dtype, 2, true);
      for (const CpuTarget target : {cpu_target(), without_dots(cpu_target())}) {
        Matrix c(m, n, f32, 3);
        EXPECT_NE(
            describe_gemm(m, n, k, a.operand(), b.operand(), c.result(), tree, {.target = target}).find("b streamed"),
            std::string::npos);
        gemm(m, n, k, a.operand(), b.operand(), c.result(), tree, {.target = target});
        EXPECT_EQ(wrong_elements(a, b, c, tree), 0) << m << " rows, " << k << ' ' << name_of(dtype);
      }
    }
}

// Rows of B that meet in the cache are read in place by wide tiles, with columns left over and without.
TEST(GemmStreamed, WideTilesReadBInPlace) {
  if (!has_wide_registers(cpu_target())) GTEST_SKIP() << "needs AVX-512";
  for (const int64_t m : {2, 5, 8, 9, 30, 48})
    for (const auto& [n, stride, dtype] : {std::tuple{1024, 1024, f32}, {999, 1024, f32}, {530, 1024, f64}}) {
      const int64_t k = 259;
      const ContractionTree tree = ContractionTree::halving(k);
      const Matrix a(m, k, dtype, 1), b(k, n, dtype, 2, false, stride - n);
      Matrix c(m, n, dtype, 3);
      EXPECT_NE(describe_gemm(m, n, k, a.operand(), b.operand(), c.result(), tree).find("b in place"),
                std::string::npos);
      gemm(m, n, k, a.operand(), b.operand(), c.result(), tree);
      EXPECT_EQ(wrong_elements(a, b, c, tree), 0) << m << " rows, " << n << ' ' << name_of(dtype);
    }
}

// They are rare, and tiles compute them with the same bits.
TEST(GemmStreamed, ANarrowBIsNotStreamedIntoF64) {
  for (const DType narrow : {f32, bf16, f16}) {
    for (const bool transposed : {false, true}) {
      const ContractionTree tree = ContractionTree::halving(400);
      const Matrix a(1, 400, f64, 1), b(400, 700, narrow, 2, transposed);
      Matrix c(1, 700, f32, 3);
      EXPECT_EQ(describe_gemm(1, 700, 400, a.operand(), b.operand(), c.result(), tree).find("b streamed"),
                std::string::npos);
      gemm(1, 700, 400, a.operand(), b.operand(), c.result(), tree);
      EXPECT_EQ(wrong_elements(a, b, c, tree), 0) << name_of(narrow);
    }
  }
}

TEST(GemmStreamed, CutAtABorderOfTheTreeAddsToTheWhole) {
  const int64_t n = 530, k = 2048;
  for (const bool transposed : {false, true}) {
    const Matrix a(1, k, bf16, 1), b(k, n, bf16, 2, transposed);
    Matrix whole(1, n, f32, 3), left(1, n, f32, 4), right(1, n, f32, 5);
    gemm(1, n, k, a.operand(), b.operand(), whole.result(), ContractionTree::halving(k));
    const auto half = [&](int64_t first, Matrix& c) {
      gemm(1, n, k / 2, {a.at(first), bf16, k, 1}, {b.at(first * b.row_stride), bf16, b.row_stride, b.column_stride},
           c.result(), ContractionTree::halving(k / 2));
    };
    half(0, left);
    half(k / 2, right);
    for (int64_t j = 0; j < n; ++j)
      ASSERT_EQ(static_cast<float>(left(0, j)) + static_cast<float>(right(0, j)), static_cast<float>(whole(0, j))) << j;
  }
}

TEST(GemmStreamed, InABatchEqualsOneByOne) {
  const int64_t n = 300, k = 1000, count = 3;
  const Matrix a(count, k, f32, 1), b(count * k, n, f32, 2);
  Matrix c(count, n, f32, 3), one(1, n, f32, 4);
  const ContractionTree tree = ContractionTree::halving(k);
  batched_gemm({count, k, k * n, n}, 1, n, k, a.operand(), b.operand(), c.result(), tree);
  for (int64_t x = 0; x < count; ++x) {
    gemm(1, n, k, {a.at(x * k), f32, k, 1}, {b.at(x * k * n), f32, n, 1}, one.result(), tree);
    EXPECT_EQ(std::memcmp(c.at(x * n), one.at(0), static_cast<size_t>(n * 4)), 0) << x;
  }
}

}  // namespace
}  // namespace tutti::codegen
