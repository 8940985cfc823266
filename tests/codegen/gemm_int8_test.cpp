// int8 products: what the op over them (tests/ops/int_mm_test.cpp) cannot reach.
#include "tutti/codegen/gemm/int8.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tutti/core/error.h"

namespace tutti::codegen {
namespace {

std::string message_of(int64_t m, const GemmOperand& a, const GemmResult& c, const GemmOptions& options = {}) {
  const int8_t b[2] = {};
  try {
    int8_gemm(m, 1, 2, a, {b, DType::i8, 1, 1}, c, options);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

// Column j of row i, in 64 bits, modulo 2^32.
std::vector<int32_t> product(int64_t m, int64_t n, int64_t k, const GemmOperand& a, const GemmOperand& b) {
  const auto at = [](const GemmOperand& t, int64_t i, int64_t j) {
    return int64_t{static_cast<const int8_t*>(t.data)[i * t.row_stride + j * t.column_stride]};
  };
  std::vector<int32_t> c;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      int64_t sum = 0;
      for (int64_t p = 0; p < k; ++p) sum += at(a, i, p) * at(b, p, j);
      c.push_back(static_cast<int32_t>(static_cast<uint32_t>(sum)));
    }
  return c;
}

// Multiplied by processors with dot units, and here step by step.
TEST(Int8Gemm, QuadruplesAreAsExactAsPairs) {
  uint64_t state = 1;
  const auto bytes = [&](int64_t count) {
    std::vector<int8_t> all(static_cast<size_t>(count));
    for (int8_t& b : all) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      const auto drawn = static_cast<int8_t>(state >> 56);
      b = drawn > 100 ? int8_t{127} : drawn < -100 ? int8_t{-128} : drawn;
    }
    return all;
  };
  for (const int64_t m : {1, 2, 7, 8, 33, 70})
    for (const int64_t n : {1, 3, 8, 17, 40, 100})
      for (const int64_t k : {0, 1, 2, 3, 4, 5, 31, 32, 130, 515, 2050, 4500}) {
        if (m * n * k > 5'000'000) continue;
        const std::vector<int8_t> a = bytes(m * k * 2), b = bytes(k * n * 2);
        for (const GemmOperand& left :
             {GemmOperand{a.data(), DType::i8, k, 1}, {a.data(), DType::i8, 1, m}, {a.data(), DType::i8, 2 * k, 2}})
          for (const GemmOperand& right :
               {GemmOperand{b.data(), DType::i8, n, 1}, {b.data(), DType::i8, 1, k}, {b.data(), DType::i8, 2 * n, 2}}) {
            const std::vector<int32_t> expected = product(m, n, k, left, right);
            for (const Int8Items items : {Int8Items::pairs, Int8Items::quads}) {
              std::vector<int32_t> c(static_cast<size_t>(m * n), 99), taken(c);
              int8_gemm_over(items, m, n, k, left, right, {c.data(), DType::i32, n});
              ASSERT_EQ(c, expected) << m << " " << n << " " << k << " " << static_cast<int>(items);
              const auto take = [&](const GemmBlock& block) {
                for (int64_t i = 0; i < block.rows; ++i)
                  std::copy_n(static_cast<const int32_t*>(block.data) + i * block.row_stride, block.columns,
                              taken.data() + (block.first_row + i) * n + block.first_column);
              };
              const GemmConsumer consumer(take);
              int8_gemm_over(items, m, n, k, left, right, {nullptr, DType::i32, n}, {.consumer = &consumer});
              ASSERT_EQ(taken, expected) << m << " " << n << " " << k << " " << static_cast<int>(items);
            }
          }
      }
}

TEST(Int8Gemm, WritesOnlyItsElements) {
  const std::vector<int8_t> a(3 * 4, 2), b(4 * 5, -3);
  std::vector<int32_t> c(3 * 7, 99);
  int8_gemm(3, 5, 4, {a.data(), DType::i8, 4, 1}, {b.data(), DType::i8, 5, 1}, {c.data(), DType::i32, 7});
  for (int64_t i = 0; i < 21; ++i) EXPECT_EQ(c[static_cast<size_t>(i)], i % 7 < 5 ? -24 : 99) << i;
}

TEST(Int8Gemm, SaysWhatIsWrong) {
  const int8_t a[2] = {};
  int32_t c = 0;
  const auto nothing = [](const GemmOperandBlock&) {};
  const GemmProducer nobody(nothing);
  const GemmOperand good{a, DType::i8, 2, 1};
  EXPECT_EQ(message_of(1, good, {&c, DType::i32, 1}), "no error");
  EXPECT_EQ(message_of(-1, good, {&c, DType::i32, 1}), "int8_gemm: m = -1, n = 1, k = 2; sizes must not be negative");
  EXPECT_EQ(message_of(1, {a, DType::u8, 2, 1}, {&c, DType::i32, 1}),
            "int8_gemm: a is u8, b is i8, c is i32; expected i8, i8 and i32");
  EXPECT_EQ(message_of(1, good, {nullptr, DType::i32, 1}),
            "int8_gemm: c needs memory, or a consumer that takes its blocks");
  EXPECT_EQ(message_of(1, good, {&c, DType::i32, 1}, {.producer = &nobody}),
            "int8_gemm: its operands are not produced");
}

}  // namespace
}  // namespace tutti::codegen
