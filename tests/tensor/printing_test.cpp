#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <sstream>

#include "tutti/devices/mock/mock_device.h"
#include "tutti/tensor/device_copy.h"
#include "tutti/tensor/tensor.h"

namespace tutti {
namespace {

Tensor floats(const std::vector<float>& values) { return Tensor::of(values); }

TEST(Printing, AVectorOfWholeFloats) { EXPECT_EQ(to_string(floats({1, 2, -3})), "[ 1.0,  2.0, -3.0]"); }

TEST(Printing, ColumnsAlignAndTheDigitsAreThoseNeeded) {
  EXPECT_EQ(to_string(Tensor::of<float>({1, -2.5f, 10, 0.25f}, {2, 2})), "[[ 1.00, -2.50],\n [10.00,  0.25]]");
}

TEST(Printing, AtMostFourDecimals) { EXPECT_EQ(to_string(floats({1.0f / 3, 2})), "[0.3333, 2.0000]"); }

TEST(Printing, FarMagnitudesAreScientific) {
  EXPECT_EQ(to_string(floats({1e-6f, 1})), "[1.0e-06, 1.0e+00]");
  EXPECT_EQ(to_string(floats({1.5e20f, -2})), "[ 1.5e+20, -2.0e+00]");
}

TEST(Printing, NanAndInfinityAlign) {
  EXPECT_EQ(to_string(floats({NAN, INFINITY, -INFINITY, 0.5f})), "[ nan,  inf, -inf,  0.5]");
  EXPECT_EQ(to_string(floats({NAN, NAN})), "[nan, nan]");
}

TEST(Printing, ZerosAndNegativeZero) { EXPECT_EQ(to_string(floats({0.0f, -0.0f})), "[ 0.0, -0.0]"); }

TEST(Printing, AScalarHasNoBrackets) {
  EXPECT_EQ(to_string(Tensor::scalar(2.5f)), "2.5");
  EXPECT_EQ(to_string(Tensor::scalar(int64_t{-7})), "-7, i64");
}

TEST(Printing, NoElementsTellTheirSizes) {
  EXPECT_EQ(to_string(Tensor::empty({0})), "[], size [0]");
  EXPECT_EQ(to_string(Tensor::empty({3, 0}, DType::i32)), "[], size [3, 0], i32");
}

TEST(Printing, AnUndefinedTensor) { EXPECT_EQ(to_string(Tensor()), "<undefined>"); }

TEST(Printing, IntegersAndBooleans) {
  EXPECT_EQ(to_string(Tensor::of<int32_t>({1, -20, 300})), "[  1, -20, 300], i32");
  EXPECT_EQ(to_string(Tensor::of<uint8_t>({0, 255})), "[  0, 255], u8");
  EXPECT_EQ(to_string(Tensor::of<bool>({true, false})), "[ true, false], bool");
  EXPECT_EQ(to_string(Tensor::scalar(std::numeric_limits<int64_t>::min())), "-9223372036854775808, i64");
}

TEST(Printing, NarrowFloats) {
  EXPECT_EQ(to_string(Tensor::of<bfloat16>({to_bfloat16(1.5f), to_bfloat16(-0.1f)})), "[ 1.5000, -0.1001], bf16");
  EXPECT_EQ(to_string(Tensor::of<float8_e4m3fn>({to_float8_e4m3fn(448), to_float8_e4m3fn(NAN)})),
            "[448.0,   nan], f8e4m3fn");
  EXPECT_EQ(to_string(Tensor::of<float8_e5m2>({to_float8_e5m2(INFINITY), to_float8_e5m2(0.25f)})),
            "[ inf, 0.25], f8e5m2");
  EXPECT_EQ(to_string(Tensor::scalar(0.1)), "0.1, f64");
}

TEST(Printing, ThreeDimsAreSeparatedByABlankLine) {
  EXPECT_EQ(to_string(Tensor::of<int64_t>({1, 2, 3, 4, 5, 6, 7, 8}, {2, 2, 2})),
            "[[[1, 2],\n  [3, 4]],\n\n [[5, 6],\n  [7, 8]]], i64");
}

TEST(Printing, AViewPrintsItsOwnElements) {
  const Tensor base = Tensor::of<int64_t>({0, 1, 2, 3, 4, 5}, {2, 3});
  EXPECT_EQ(to_string(base.view_as({3, 2}, {1, 3}, 0)), "[[0, 3],\n [1, 4],\n [2, 5]], i64");
  EXPECT_EQ(to_string(base.view_as({2, 2}, {0, -2}, 4)), "[[4, 2],\n [4, 2]], i64");
}

TEST(Printing, LongDimsAreElided) {
  std::vector<int64_t> values(2000);
  std::iota(values.begin(), values.end(), 0);
  EXPECT_EQ(to_string(Tensor::of(values)), "[   0,    1,    2, ..., 1997, 1998, 1999], i64");
  EXPECT_EQ(
      to_string(Tensor::of(values, {1000, 2})),
      "[[   0,    1],\n [   2,    3],\n [   4,    5],\n ...,\n [1994, 1995],\n [1996, 1997],\n [1998, 1999]], i64");
}

TEST(Printing, ElidedElementsDoNotChooseTheFormat) {
  std::vector<float> values(2000, 1.0f);
  values[1000] = 1e-20f;
  EXPECT_EQ(to_string(Tensor::of(values)), "[1.0, 1.0, 1.0, ..., 1.0, 1.0, 1.0]");
}

TEST(Printing, ALongRowContinuesOnTheNextLine) {
  const std::string text = to_string(Tensor::of(std::vector<int32_t>(40, 12345)));
  const size_t end_of_line = text.find('\n');
  ASSERT_NE(end_of_line, std::string::npos);
  EXPECT_LE(end_of_line, 100u);
  EXPECT_EQ(text.substr(end_of_line - 1, 8), ",\n 12345");
}

TEST(Printing, ADeviceTensorNamesItsDevice) {
  MockDevice mock;
  EXPECT_EQ(to_string(to_device(floats({1, 2}), {DeviceKind::mock, 1})), "[1.0, 2.0], mock:1");
  EXPECT_EQ(to_string(to_device(Tensor::of<int8_t>({1}), {DeviceKind::mock, 0})), "[1], i8, mock:0");
}

TEST(Printing, AStreamGetsTheSameText) {
  std::ostringstream text;
  const Tensor x = Tensor::of<int32_t>({1, -20, 300});
  text << x << '\n' << Tensor() << '\n' << Tensor::empty({3, 0}, DType::bf16) << '\n';
  text << x.sizes() << ' ' << x.extents() << ' ' << x.size(0) << ' ' << x.dtype() << ' ' << x.device() << ' '
       << Device{DeviceKind::mock, 1};
  EXPECT_EQ(text.str(), "[  1, -20, 300], i32\n<undefined>\n[], size [3, 0], bf16\n[3] [3] 3 i32 cpu mock:1");
}

}  // namespace
}  // namespace tutti
