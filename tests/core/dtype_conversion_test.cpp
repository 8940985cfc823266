// The narrow float formats against a second implementation: a table of all values of a format, built from its
// definition in double precision, and a search for the nearest one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tutti/core/dtype.h"

namespace tutti {
namespace {

struct Format {
  const char* name;
  int exponent_bits, mantissa_bits;
  bool has_infinity;  // else the top code is NaN and the exponent above holds numbers
  uint32_t (*encode)(float);
  float (*decode)(uint32_t);
};

const Format kFormats[] = {
    {"bf16", 8, 7, true, [](float v) -> uint32_t { return to_bfloat16(v).bits; },
     [](uint32_t b) { return to_float(bfloat16{static_cast<uint16_t>(b)}); }},
    {"f16", 5, 10, true, [](float v) -> uint32_t { return to_float16(v).bits; },
     [](uint32_t b) { return to_float(float16{static_cast<uint16_t>(b)}); }},
    {"f8e4m3fn", 4, 3, false, [](float v) -> uint32_t { return to_float8_e4m3fn(v).bits; },
     [](uint32_t b) { return to_float(float8_e4m3fn{static_cast<uint8_t>(b)}); }},
    {"f8e5m2", 5, 2, true, [](float v) -> uint32_t { return to_float8_e5m2(v).bits; },
     [](uint32_t b) { return to_float(float8_e5m2{static_cast<uint8_t>(b)}); }},
};

uint32_t sign_bit(const Format& f) { return 1u << (f.exponent_bits + f.mantissa_bits); }

// The first code without a sign that is not a finite number.
uint32_t finite_codes(const Format& f) {
  return f.has_infinity ? ((1u << f.exponent_bits) - 1) << f.mantissa_bits : sign_bit(f) - 1;
}

// The value of a finite code without a sign, by definition of the format.
double value_of(const Format& f, uint32_t code) {
  const int bias = (1 << (f.exponent_bits - 1)) - 1;
  const int exponent = static_cast<int>(code >> f.mantissa_bits);
  const double fraction = (code & ((1u << f.mantissa_bits) - 1)) / std::exp2(f.mantissa_bits);
  return exponent == 0 ? fraction * std::exp2(1 - bias) : (1 + fraction) * std::exp2(exponent - bias);
}

class NarrowFloat : public ::testing::TestWithParam<Format> {
 protected:
  void SetUp() override {
    // One more value than there are: what the next code would be worth decides where overflow begins.
    for (uint32_t code = 0; code <= finite_codes(GetParam()); ++code) values_.push_back(value_of(GetParam(), code));
  }

  // The code nearest to |x|, ties to the even code; values_.size() - 1 means overflow.
  uint32_t nearest(double x) const {
    const auto above = std::lower_bound(values_.begin(), values_.end(), x);
    if (above == values_.end()) return static_cast<uint32_t>(values_.size()) - 1;
    const auto upper = static_cast<uint32_t>(above - values_.begin());
    if (upper == 0 || *above == x) return upper;
    const double to_upper = *above - x, to_lower = x - values_[upper - 1];
    if (to_upper != to_lower) return to_upper < to_lower ? upper : upper - 1;
    return upper % 2 == 0 ? upper : upper - 1;
  }

  void expect_nearest(float x) const {
    const Format& f = GetParam();
    uint32_t expected = nearest(std::fabs(static_cast<double>(x)));
    if (std::signbit(x)) expected |= sign_bit(f);
    ASSERT_EQ(f.encode(x), expected) << f.name << " of " << x;
  }

  std::vector<double> values_;
};

TEST_P(NarrowFloat, DecodesEveryFiniteCodeExactly) {
  const Format& f = GetParam();
  for (uint32_t code = 0; code < finite_codes(f); ++code) {
    ASSERT_EQ(f.decode(code), values_[code]) << "code " << code;
    const float negative = f.decode(code | sign_bit(f));
    ASSERT_EQ(negative, -values_[code]) << "code " << code;
    ASSERT_TRUE(std::signbit(negative)) << "code " << code;
  }
}

TEST_P(NarrowFloat, ReturnsEveryFiniteCodeUnchanged) {
  const Format& f = GetParam();
  for (uint32_t code = 0; code < finite_codes(f); ++code) {
    ASSERT_EQ(f.encode(f.decode(code)), code);
    ASSERT_EQ(f.encode(f.decode(code | sign_bit(f))), code | sign_bit(f));
  }
}

TEST_P(NarrowFloat, RoundsToNearestAroundEveryMidpoint) {
  for (size_t i = 0; i + 1 < values_.size(); ++i) {
    const float middle = static_cast<float>((values_[i] + values_[i + 1]) / 2);
    if (static_cast<double>(middle) != (values_[i] + values_[i + 1]) / 2) continue;  // below the f32 denormals
    for (float x : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, INFINITY)}) {
      expect_nearest(x);
      expect_nearest(-x);
    }
  }
}

TEST_P(NarrowFloat, RoundsRandomBitPatternsToNearest) {
  std::mt19937 random(7);
  for (int i = 0; i < 200000; ++i) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (!std::isnan(x)) expect_nearest(x);
  }
}

TEST_P(NarrowFloat, KeepsNanAsNan) {
  const Format& f = GetParam();
  for (uint32_t bits : {0x7f800001u, 0x7fc00000u, 0xff800001u, 0x7fffffffu})
    EXPECT_TRUE(std::isnan(f.decode(f.encode(std::bit_cast<float>(bits))))) << std::hex << bits;
}

TEST_P(NarrowFloat, OverflowsToInfinityOrNan) {
  const Format& f = GetParam();
  for (float x : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::max()}) {
    EXPECT_EQ(f.decode(f.encode(x)) == INFINITY, f.has_infinity);
    EXPECT_EQ(f.decode(f.encode(-x)) == -INFINITY, f.has_infinity);
    EXPECT_EQ(std::isnan(f.decode(f.encode(x))), !f.has_infinity);
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, NarrowFloat, ::testing::ValuesIn(kFormats),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Float8E4m3fn, KeepsItsUpperBinadeBelow448) {
  EXPECT_EQ(to_float(to_float8_e4m3fn(448.0f)), 448.0f);
  EXPECT_EQ(to_float(to_float8_e4m3fn(300.0f)), 288.0f);
}

TEST(StoreFromDouble, TruncatesIntegersTowardZero) {
  int32_t value = 0;
  store_from_double(&value, DType::i32, -2.9);
  EXPECT_EQ(value, -2);
  store_from_double(&value, DType::i32, 2.9);
  EXPECT_EQ(value, 2);
}

TEST(StoreFromDouble, GivesTheSmallestInt64ForNanAndValuesOutOfRange) {
  for (double x : {std::nan(""), 1e300, -1e300, 0x1p63}) {
    int64_t value = 0;
    store_from_double(&value, DType::i64, x);
    EXPECT_EQ(value, std::numeric_limits<int64_t>::min()) << x;
  }
}

TEST(LoadAsInt64, IsDefinedForFloatsOutOfRange) {
  const float huge = 1e30f;
  EXPECT_EQ(load_as_int64(&huge, DType::f32), std::numeric_limits<int64_t>::min());
}

TEST(StoreFromInt64, WrapsToTheWidthAndRoundsOnceToF32) {
  uint8_t byte = 0;
  store_from_int64(&byte, DType::u8, 257);
  EXPECT_EQ(byte, 1);
  float single = 0;
  store_from_int64(&single, DType::f32, (int64_t{1} << 60) + (int64_t{1} << 36) + 1);  // just above a tie
  EXPECT_EQ(single, 0x1p60f + 0x1p37f);
  bool truth = false;
  store_from_int64(&truth, DType::boolean, 256);
  EXPECT_TRUE(truth);
}

TEST(LoadAsDouble, ReadsBackWhatStoreWroteInEveryDType) {
  for (int d = 0; d < kNumDTypes; ++d) {
    const DType dtype = static_cast<DType>(d);
    uint64_t element = 0;
    store_from_double(&element, dtype, 1.0);
    EXPECT_EQ(load_as_double(&element, dtype), 1.0) << name_of(dtype);
    EXPECT_EQ(load_as_int64(&element, dtype), 1) << name_of(dtype);
  }
}

}  // namespace
}  // namespace tutti
