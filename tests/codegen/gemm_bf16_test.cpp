// Products of two bf16 operands against the chain that the numerics contract defines (N3), on every instruction set
// that this processor has.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/codegen/support/gemm_definition.h"
#include "tutti/codegen/cpu_target.h"
#include "tutti/codegen/gemm/gemm.h"
#include "tutti/codegen/gemm/tile_product.h"
#include "tutti/core/error.h"
#include "tutti/runtime/fp_environment.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::codegen {
namespace {

using gemm_test::Matrix;
using gemm_test::wrong_elements;

std::vector<CpuTarget> targets() {
  std::vector<CpuTarget> all;
  for (int target = 0; target <= static_cast<int>(cpu_target()); ++target)
    all.push_back(static_cast<CpuTarget>(target));
  return all;
}

enum class Values { usual, any_bits, near_underflow, negative_zeros };

// Draws the bits of a matrix.
void draw(Matrix& m, Values values, uint64_t seed) {
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (size_t i = 0; i + 1 < m.bytes.size(); i += 2) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const uint64_t bits = state >> 24;
    uint16_t word = static_cast<uint16_t>(bits);
    if (values == Values::usual) word = static_cast<uint16_t>((word & 0x807f) | (120 + bits / 65536 % 12) << 7);
    if (values == Values::any_bits && bits / 65536 % 8 != 0)
      word = static_cast<uint16_t>((word & 0x80ff) | (bits / 524288 % 250) << 7);  // fewer NaNs
    if (values == Values::near_underflow) word = static_cast<uint16_t>((word & 0x807f) | (bits / 65536 % 80 + 20) << 7);
    if (values == Values::negative_zeros) word = bits % 3 == 0 ? 0x0000 : 0x8000;
    std::memcpy(m.bytes.data() + i, &word, 2);
  }
}

struct Layout {
  bool a_transposed, b_transposed;
  int64_t gap;
};
constexpr Layout kLayouts[] = {{false, false, 0}, {true, false, 0}, {false, true, 0},
                               {true, true, 0},   {false, true, 3}, {true, false, 1}};

int64_t wrong(int64_t m, int64_t n, int64_t k, const Layout& layout, Values values, CpuTarget target,
              DType c_dtype = DType::f32) {
  Matrix a(m, k, DType::bf16, 1, layout.a_transposed, layout.gap),
      b(k, n, DType::bf16, 2, layout.b_transposed, layout.gap), c(m, n, c_dtype, 3, false, layout.gap);
  draw(a, values, static_cast<uint64_t>(m * 7919 + n * 31 + k));
  draw(b, values, static_cast<uint64_t>(m + n * 131 + k * 17));
  const ContractionTree tree = ContractionTree::halving(k);
  gemm(m, n, k, a.operand(), b.operand(), c.result(), tree, {.target = target});
  return wrong_elements(a, b, c, tree);
}

TEST(GemmOfBf16, HasTheChainOfPairs) {
  for (const CpuTarget target : targets())
    for (const Layout& layout : kLayouts)
      for (const int64_t k : {1, 2, 3, 7, 16, 17, 33, 128, 129, 130, 250, 257, 1000, 1022})
        for (const int64_t m : {1, 2, 5, 19})
          EXPECT_EQ(wrong(m, 37, k, layout, Values::usual, target), 0)
              << name_of(target) << " " << m << " x " << k << " " << layout.a_transposed << layout.b_transposed
              << layout.gap;
}

TEST(GemmOfBf16, FlushesDenormalsInChainsOnly) {
  for (const CpuTarget target : targets())
    for (const Values values : {Values::any_bits, Values::near_underflow, Values::negative_zeros})
      for (const Layout& layout : kLayouts)
        for (const int64_t k : {1, 2, 5, 64, 127, 300, 514})
          for (const int64_t m : {1, 3, 9})
            EXPECT_EQ(wrong(m, 50, k, layout, values, target), 0)
                << name_of(target) << " " << static_cast<int>(values) << " " << m << " x " << k << " "
                << layout.a_transposed << layout.b_transposed << layout.gap;
}

// Leaves whose sums are normal, and a sum of them that is not: it stays, in tiles and (n = 1030) in streams.
TEST(GemmOfBf16, KeepsDenormalsWhereLeavesMeet) {
  for (const CpuTarget target : targets()) {
    for (const int64_t n : {40, 1030}) {
      for (const int64_t m : {1, 2, 3, 20}) {
        for (const bool transposed : {false, true}) {
          Matrix a(m, 256, DType::bf16, 1), b(256, n, DType::bf16, 2, transposed), c(m, n, DType::f32, 3);
          for (int64_t i = 0; i < m * 256; ++i)
            store_from_double(a.at(i), DType::bf16, i % 128 != 0 ? 0 : i % 256 == 0 ? 0x1.8p-63 : -0x1p-63);
          for (int64_t i = 0; i < 256 * n; ++i) store_from_double(b.at(i), DType::bf16, 0x1p-63);
          gemm(m, n, 256, a.operand(), b.operand(), c.result(), ContractionTree::halving(256), {.target = target});
          int64_t wrong = 0;
          for (int64_t i = 0; i < m; ++i)
            for (int64_t j = 0; j < n; ++j) wrong += c(i, j) != 0x1p-127;
          EXPECT_EQ(wrong, 0) << name_of(target) << " " << m << " x " << n << " " << transposed;
        }
      }
    }
  }
}

// Sizes at which rows are streamed: both orders of B, one row to four, as A and as B.
TEST(GemmOfBf16, HasTheChainWhereRowsAreStreamed) {
  for (const CpuTarget target : targets())
    for (const Values values : {Values::usual, Values::near_underflow})
      for (const bool transposed : {false, true})
        for (const int64_t k : {512, 500, 1000, 1024, 1026, 2047})
          for (const int64_t m : {1, 2, 3, 4}) {
            EXPECT_EQ(wrong(m, 531, k, {false, transposed, 0}, values, target), 0)
                << name_of(target) << " " << m << " x " << k << " " << transposed;
            EXPECT_EQ(wrong(531, m, k, {transposed, false, 0}, values, target), 0)
                << name_of(target) << " " << m << " columns, k = " << k << " " << transposed;
          }
}

TEST(GemmOfBf16, StreamsRowsThatMeetInTheCache) {
  for (const CpuTarget target : targets())
    for (const int64_t m : {3, 4, 5, 7, 16})
      EXPECT_EQ(wrong(m, 2048, 131, {false, false, 0}, Values::usual, target), 0) << name_of(target) << " " << m;
}

TEST(GemmOfBf16, RoundsOnceToEveryDtype) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16})
    for (const CpuTarget target : targets())
      EXPECT_EQ(wrong(20, 70, 300, {false, true, 0}, Values::usual, target, dtype), 0) << name_of(dtype);
}

TEST(GemmOfBf16, DoesNotDependOnThreadsOrOnTheMode) {
  ThreadPool one(1), three(3);
  const Matrix a(150, 700, DType::bf16, 1), b(700, 300, DType::bf16, 2, true);
  const ContractionTree tree = ContractionTree::halving(700);
  Matrix first(150, 300, DType::f32, 3), second = first;
  gemm(150, 300, 700, a.operand(), b.operand(), first.result(), tree, {.pool = &one});
  for (const CpuTarget target : targets()) {
    gemm(150, 300, 700, a.operand(), b.operand(), second.result(), tree, {.target = target, .pool = &three});
    EXPECT_TRUE(gemm_test::same_bits(first, second)) << name_of(target);
  }
  // What was computed with denormals as zero leaves the thread as it was.
  volatile float smallest = 0x1p-126f;
  EXPECT_EQ(smallest / 2, 0x1p-127f);
}

// Calls that differ in one thing only, in turns, with an error between them, from threads that begin at different ones:
// kernels, packing and the floating-point mode are shared.
TEST(GemmOfBf16, CallsInTurnsDoNotTakeEachOtherForTheSame) {
  struct Call {
    DType a, b;
    int64_t m, n, k;
    bool b_transposed;
    CpuTarget target;
  };
  std::vector<Call> calls;
  for (const CpuTarget target : targets())
    for (const auto& [a, b] : {std::pair(DType::bf16, DType::bf16), std::pair(DType::bf16, DType::f32),
                               std::pair(DType::f32, DType::bf16), std::pair(DType::f16, DType::bf16)})
      for (const int64_t k : {0, 1, 2, 129, 130})
        for (const int64_t m : {0, 1, 9})
          for (const bool transposed : {false, true}) calls.push_back({a, b, m, 33, k, transposed, target});
  std::atomic<int64_t> wrong = 0;
  const auto run = [&](size_t first) {
    ThreadPool pool(1);
    for (size_t i = 0; i < calls.size(); ++i) {
      const Call& p = calls[(first + i * 7) % calls.size()];  // 7 does not divide their number
      Matrix a(p.m, p.k, p.a, 1), b(p.k, p.n, p.b, 2, p.b_transposed), c(p.m, p.n, DType::f32, 3);
      if (p.a == DType::bf16) draw(a, Values::near_underflow, i);
      const ContractionTree tree = ContractionTree::halving(p.k);
      EXPECT_THROW(
          gemm(p.m, p.n, p.k + 1, a.operand(), b.operand(), c.result(), tree, {.target = p.target, .pool = &pool}),
          UsageError);
      gemm(p.m, p.n, p.k, a.operand(), b.operand(), c.result(), tree, {.target = p.target, .pool = &pool});
      wrong += wrong_elements(a, b, c, tree);
      // A view of C, written over by the next product.
      if (p.m == 9) {
        const Matrix before = c;
        gemm(4, p.n, p.k, {a.at(5 * p.k), p.a, p.k, 1}, b.operand(), {c.at(5 * p.n), DType::f32, p.n}, tree,
             {.target = p.target, .pool = &pool});
        wrong += !gemm_test::same_bits(before, c);
      }
    }
    wrong += !has_fp_environment();
  };
  std::vector<std::thread> threads;
  for (const size_t first : {0, 11, 40})
    threads.emplace_back([&, first] {
      set_fp_environment();
      run(first);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(GemmOfBf16, CutAtABorderOfTheTreeAddsToTheWhole) {
  const int64_t m = 9, n = 40, k = 1000;  // leaves of 125
  const Matrix a(m, k, DType::bf16, 1), b(k, n, DType::bf16, 2);
  for (const CpuTarget target : targets()) {
    Matrix whole(m, n, DType::f32, 3), left = whole, right = whole;
    gemm(m, n, k, a.operand(), b.operand(), whole.result(), ContractionTree::halving(k), {.target = target});
    gemm(m, n, k / 2, {a.at(0), DType::bf16, k, 1}, {b.at(0), DType::bf16, n, 1}, left.result(),
         ContractionTree::halving(k / 2), {.target = target});
    gemm(m, n, k / 2, {a.at(k / 2), DType::bf16, k, 1}, {b.at(k / 2 * n), DType::bf16, n, 1}, right.result(),
         ContractionTree::halving(k / 2), {.target = target});
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j)
        EXPECT_EQ(static_cast<float>(left(i, j)) + static_cast<float>(right(i, j)), static_cast<float>(whole(i, j)));
  }
}

TEST(GemmOfBf16, OfRaggedRangesBeginsPairsWithEachRange) {
  const std::vector<int32_t> counts{3, 0, 17, 128, 0, 1, 64, 5, 90, 2, 0, 33};
  const ContractionTree tree = ContractionTree::ranges(counts);
  const int64_t m = 11, n = 35, k = tree.k();
  const Matrix a(m, k, DType::bf16, 1, true), b(k, n, DType::bf16, 2);
  for (const CpuTarget target : targets()) {
    Matrix c(m, n, DType::f32, 3);
    gemm(m, n, k, a.operand(), b.operand(), c.result(), tree, {.target = target});
    EXPECT_EQ(wrong_elements(a, b, c, tree), 0) << name_of(target);
  }
}

// A producer makes A in parts, which may not be cut inside a pair.
TEST(GemmOfBf16, TakesWhatAProducerMakes) {
  for (const bool transposed : {false, true})
    for (const int64_t k : {200, 1000, 1001})
      for (const CpuTarget target : targets()) {
        const Matrix a(70, k, DType::bf16, 1, transposed), b(k, 50, DType::bf16, 2);
        Matrix c(70, 50, DType::f32, 3);
        const auto make = [&](const GemmOperandBlock& block) {
          for (int64_t i = 0; i < block.rows; ++i)
            for (int64_t p = 0; p < block.length; ++p)
              std::memcpy(static_cast<std::byte*>(block.data) + 2 * (i * block.row_stride + p * block.column_stride),
                          a.at((block.first_row + i) * a.row_stride + (block.first_k + p) * a.column_stride), 2);
        };
        const GemmProducer producer(make);
        const ContractionTree tree = ContractionTree::halving(k);
        gemm(70, 50, k, a.operand(), b.operand(), c.result(), tree, {.target = target, .producer = &producer});
        EXPECT_EQ(wrong_elements(a, b, c, tree), 0) << transposed << " " << k << " " << name_of(target);
      }
}

TEST(GemmOfBf16, OfTilesHasTheSameBits) {
  for (const CpuTarget target : targets())
    for (const int64_t k : {1, 33, 64, 250, 300}) {
      const int64_t rows = 21, columns = 48;
      const Matrix a(rows, k, DType::bf16, 1), b(k, columns, DType::bf16, 2);
      Matrix c(rows, columns, DType::f32, 3), from_rows = c;
      const ContractionTree tree = ContractionTree::halving(k);
      const TileProduct product(DType::bf16, rows, target);
      std::vector<float> packed(static_cast<size_t>(product.packed_size(k + 8))),
          packed_b(static_cast<size_t>((k + 8) * columns) + kPackSlack),
          pending(static_cast<size_t>(tree.depth() * rows * columns));
      product.pack({a.at(0), DType::bf16, 1, k}, tree.leaf_lengths, packed.data());
      pack_leaves({b.at(0), DType::bf16, columns, 1}, tree.leaf_lengths, columns, product.kind(), PackSide::b,
                  packed_b.data(), columns);
      TileProductCall call{.a = packed.data(),
                           .b = packed_b.data(),
                           .b_stride = columns,
                           .c = c.at(0),
                           .c_stride = columns,
                           .columns = columns,
                           .leaf_lengths = tree.leaf_lengths.data(),
                           .merges = tree.merges.data(),
                           .leaves = static_cast<int64_t>(tree.leaf_lengths.size()),
                           .stack = pending.data(),
                           .depth = tree.depth()};
      product.run(call);
      EXPECT_EQ(wrong_elements(a, b, c, tree), 0) << name_of(target) << " " << k;
      call.b = b.at(0);
      call.c = from_rows.at(0);
      product.run(call, DType::bf16);
      EXPECT_EQ(wrong_elements(a, b, from_rows, tree), 0) << name_of(target) << " in place, " << k;
    }
}

}  // namespace
}  // namespace tutti::codegen
