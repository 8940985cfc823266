#include "tutti/core/ulps.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tutti {
namespace {

template <class T>
uint64_t between(T a, T b, DType dtype) {
  EXPECT_EQ(ulps_between(&a, &b, dtype), ulps_between(&b, &a, dtype));
  return ulps_between(&a, &b, dtype);
}

TEST(Ulps, CountTheValuesOfFloatsBetween) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(between(1.0f, 1.0f, DType::f32), 0u);
  EXPECT_EQ(between(1.0f, std::nextafter(1.0f, 2.0f), DType::f32), 1u);
  EXPECT_EQ(between(1.0f, 2.0f, DType::f32), uint64_t{1} << 23);
  EXPECT_EQ(between(-0.0f, 0.0f, DType::f32), 1u);
  EXPECT_EQ(between(std::nextafter(0.0f, -1.0f), std::nextafter(0.0f, 1.0f), DType::f32), 3u);
  EXPECT_EQ(between(std::numeric_limits<float>::max(), inf, DType::f32), 1u);
  EXPECT_EQ(between(-inf, inf, DType::f32), (uint64_t{0x7f800000} << 1) + 1);
  EXPECT_EQ(between(-1.0, std::nextafter(-1.0, -2.0), DType::f64), 1u);
  EXPECT_EQ(between(-std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity(), DType::f64),
            (uint64_t{0x7ff0000000000000} << 1) + 1);
  EXPECT_EQ(between(uint16_t{0x3f80}, uint16_t{0x3f81}, DType::bf16), 1u);
  EXPECT_EQ(between(uint8_t{0x38}, uint8_t{0xb8}, DType::f8e4m3fn), 2u * 0x38 + 1);
}

TEST(Ulps, AreTheDifferenceOfIntegers) {
  EXPECT_EQ(between(int64_t{-3}, int64_t{4}, DType::i64), 7u);
  EXPECT_EQ(between(std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max(), DType::i64), UINT64_MAX);
  EXPECT_EQ(between(uint8_t{250}, uint8_t{5}, DType::u8), 245u);
  EXPECT_EQ(between(true, false, DType::boolean), 1u);
}

}  // namespace
}  // namespace tutti
