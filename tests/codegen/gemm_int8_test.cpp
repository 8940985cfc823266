// int8 products: what the op over them (tests/ops/int_mm_test.cpp) cannot reach.
#include "tutti/codegen/gemm/int8.h"

#include <gtest/gtest.h>

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

TEST(Int8Gemm, WritesOnlyItsElements) {
  const std::vector<int8_t> a(3 * 4, 2), b(4 * 5, -3);
  std::vector<int32_t> c(3 * 7, 99);
  int8_gemm(3, 5, 4, {a.data(), DType::i8, 4, 1}, {b.data(), DType::i8, 5, 1}, {c.data(), DType::i32, 7});
  for (int64_t i = 0; i < 21; ++i) EXPECT_EQ(c[static_cast<size_t>(i)], i % 7 < 5 ? -24 : 99) << i;
}

TEST(Int8Gemm, SaysWhatIsWrong) {
  const int8_t a[2] = {};
  int32_t c = 0;
  const GemmConsumer nobody([](const GemmBlock&) {});
  const GemmOperand good{a, DType::i8, 2, 1};
  EXPECT_EQ(message_of(1, good, {&c, DType::i32, 1}), "no error");
  EXPECT_EQ(message_of(-1, good, {&c, DType::i32, 1}), "int8_gemm: m = -1, n = 1, k = 2; sizes must not be negative");
  EXPECT_EQ(message_of(1, {a, DType::u8, 2, 1}, {&c, DType::i32, 1}),
            "int8_gemm: a is u8, b is i8, c is i32; expected i8, i8 and i32");
  EXPECT_EQ(message_of(1, good, {nullptr, DType::i32, 1}),
            "int8_gemm: c needs memory, and nobody else takes its blocks");
  EXPECT_EQ(message_of(1, good, {&c, DType::i32, 1}, {.consumer = &nobody}),
            "int8_gemm: c needs memory, and nobody else takes its blocks");
}

}  // namespace
}  // namespace tutti::codegen
