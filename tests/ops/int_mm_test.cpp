#include "tutti/ops/int_mm.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reshape.h"
#include "tutti/runtime/rank_context.h"

namespace tutti {
namespace {

Tensor integers(uint64_t seed, const Extents& sizes) {
  return facets::sample_tensor(seed, sizes, DType::i8, -128, 128);
}

// The sum in 64 bits, taken modulo 2^32.
int32_t element(const Tensor& a, const Tensor& b, int64_t i, int64_t j) {
  int64_t sum = 0;
  for (int64_t p = 0; p < a.extents()[1]; ++p)
    sum += int64_t{a.data<int8_t>()[i * a.strides()[0] + p * a.strides()[1]]} *
           b.data<int8_t>()[p * b.strides()[0] + j * b.strides()[1]];
  return static_cast<int32_t>(static_cast<uint32_t>(sum));
}

void expect_product(const Tensor& a, const Tensor& b) {
  const Tensor c = int_mm(a, b);
  ASSERT_EQ(c.dtype(), DType::i32);
  ASSERT_EQ(c.extents(), (Extents{a.extents()[0], b.extents()[1]}));
  for (int64_t i = 0; i < c.extents()[0]; ++i)
    for (int64_t j = 0; j < c.extents()[1]; ++j)
      ASSERT_EQ(c.data<int32_t>()[i * c.extents()[1] + j], element(a, b, i, j))
          << describe(a) << describe(b) << " at " << i << ", " << j;
}

TEST(IntMm, IsExactForEverySizeAndLayout) {
  for (const int64_t m : {1, 2, 5, 17, 64})
    for (const int64_t n : {1, 7, 8, 33, 70})
      for (const int64_t k : {1, 2, 3, 15, 16, 17, 129, 300, 515}) {
        const Tensor a = integers(1, {m, k}), b = integers(2, {k, n}), at = integers(3, {k, m}),
                     bt = integers(4, {n, k});
        expect_product(a, b);
        expect_product(a, transpose(bt, 0, 1));
        expect_product(transpose(at, 0, 1), b);
        expect_product(transpose(at, 0, 1), transpose(bt, 0, 1));
      }
}

TEST(IntMm, TakesAnyStridesAndLeadingDims) {
  expect_product(facets::strided_copy(integers(1, {9, 31})), facets::strided_copy(integers(2, {31, 12})));
  const Tensor a = integers(3, {2, 3, 10}), b = integers(4, {10, 5}), c = int_mm(a, b);
  EXPECT_EQ(c.extents(), (Extents{2, 3, 5}));
  const Tensor flat = int_mm(reshape(a, {6, 10}), b);
  EXPECT_EQ(std::memcmp(c.raw_data(), flat.raw_data(), static_cast<size_t>(c.nbytes())), 0);
}

// Every pair of the 65536 products, alone and beside each other: an instruction that adds two products in 16 bits, or
// takes one operand as unsigned, is wrong for some.
TEST(IntMm, IsExactForAllProducts) {
  Tensor column = Tensor::empty({256, 1}, DType::i8);
  for (int64_t i = 0; i < 256; ++i) column.data<int8_t>()[i] = static_cast<int8_t>(i - 128);
  const Tensor c = int_mm(column, reshape(column, {1, 256}));
  for (int64_t i = 0; i < 256; ++i)
    for (int64_t j = 0; j < 256; ++j) ASSERT_EQ(c.data<int32_t>()[i * 256 + j], (i - 128) * (j - 128));
  for (const int64_t x : {-128, -127, -1, 0, 1, 127})
    for (const int64_t y : {-128, -127, -1, 0, 1, 127})
      for (const int64_t k : {2, 3, 64, 1001}) {
        const Tensor sums =
            int_mm(full({7, k}, static_cast<double>(x), DType::i8), full({k, 19}, static_cast<double>(y), DType::i8));
        for (int64_t i = 0; i < sums.numel(); ++i)
          ASSERT_EQ(sums.data<int32_t>()[i], x * y * k) << x << " * " << y << ", " << k << " times";
      }
}

TEST(IntMm, WrapsModulo2To32) {
  const auto square = [](int64_t k) {
    return int_mm(full({1, k}, -128, DType::i8), full({k, 1}, -128, DType::i8)).item_int();
  };
  EXPECT_EQ(square(131071), 131071 * int64_t{16384});
  EXPECT_EQ(square(131072), std::numeric_limits<int32_t>::min());
  EXPECT_EQ(square(262144), 0);
}

TEST(IntMm, TakesSizesOfZero) {
  EXPECT_EQ(int_mm(integers(1, {0, 3}), integers(2, {3, 4})).extents(), (Extents{0, 4}));
  EXPECT_EQ(int_mm(integers(1, {3, 2}), integers(2, {2, 0})).extents(), (Extents{3, 0}));
  const Tensor none = int_mm(integers(1, {3, 0}), integers(2, {0, 4}));
  for (int64_t i = 0; i < 12; ++i) EXPECT_EQ(none.data<int32_t>()[i], 0);
}

TEST(IntMm, IsTheSameOnAnyNumberOfThreads) {
  const Tensor a = integers(1, {300, 500}), b = integers(2, {500, 400});
  RankContext& context = RankContext::current();
  context.set_threads(3);
  const Tensor c = int_mm(a, b);
  context.set_threads(0);
  for (int64_t i = 0; i < 300; i += 7)
    for (int64_t j = 0; j < 400; ++j) ASSERT_EQ(c.data<int32_t>()[i * 400 + j], element(a, b, i, j));
}

TEST(IntMm, SaysWhatIsWrong) {
  const auto message_of = [](const Tensor& a, const Tensor& b) {
    try {
      int_mm(a, b);
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(message_of(zeros({2, 3}), integers(1, {3, 2})),
            "int_mm: a is [2, 3] f32 cpu, b is [3, 2] i8 cpu; both must be i8");
  EXPECT_EQ(message_of(integers(1, {2, 3}), integers(1, {2, 3})),
            "int_mm: inner sizes differ: a is [2, 3], b is [2, 3]; expected b.size(0) == 3");
  EXPECT_EQ(message_of(integers(1, {2, 3}), integers(1, {1, 3, 2})),
            "int_mm: a is [2, 3], b is [1, 3, 2]; expected [..., m, k] and [k, n]");
}

}  // namespace
}  // namespace tutti
