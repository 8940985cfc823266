#include "tutti/ops/binary.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tutti/ops/bitwise.h"
#include "tutti/ops/comparison.h"
#include "tutti/ops/tensor_operators.h"

namespace tutti {
namespace {

Tensor one(DType dtype) {
  Tensor t = Tensor::empty({1}, dtype);
  store_from_int64(t.raw_data(), dtype, 1);
  return t;
}

std::string message_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}

TEST(BinaryTypes, ANumberNeverWidensWithinItsKind) {
  EXPECT_EQ(add(one(DType::bf16), 1e300).dtype(), DType::bf16);
  EXPECT_EQ(add(one(DType::f16), 2).dtype(), DType::f16);
  EXPECT_EQ(add(one(DType::i8), 100).dtype(), DType::i8);
  EXPECT_EQ(mul(one(DType::u8), true).dtype(), DType::u8);
}

TEST(BinaryTypes, ANumberOfAHigherKindGivesItsDefaultType) {
  EXPECT_EQ(add(one(DType::i64), 0.5).dtype(), DType::f32);
  EXPECT_EQ(add(one(DType::boolean), 0.5).dtype(), DType::f32);
  EXPECT_EQ(add(one(DType::boolean), 2).dtype(), DType::i64);
  EXPECT_EQ(pow(one(DType::i32), 0.5).dtype(), DType::f32);
}

TEST(BinaryTypes, TrueDivisionOfIntegersIsF32) {
  const Tensor quotient = truediv(Tensor::of<int64_t>({7}), Tensor::of<int32_t>({2}));
  EXPECT_EQ(quotient.dtype(), DType::f32);
  EXPECT_EQ(quotient.item(), 3.5);
  EXPECT_EQ(truediv(one(DType::i8), 2).item(), 0.5);
}

TEST(BinaryTypes, BooleansDivideAsI64) {
  EXPECT_EQ(floordiv(one(DType::boolean), one(DType::boolean)).dtype(), DType::i64);
  EXPECT_EQ(remainder(one(DType::boolean), 2).dtype(), DType::i64);
}

TEST(BinaryTypes, ComparisonsAreBoolean) {
  EXPECT_EQ((one(DType::i64) < one(DType::f32)).dtype(), DType::boolean);
  EXPECT_EQ(ge(one(DType::u8), 0.5).item_int(), 1);
}

TEST(BinaryErrors, NegativeIntegerPowersAreNotAllowed) {
  const std::string message = message_of([] { pow(one(DType::i64), -1); });
  EXPECT_NE(message.find("Integers to negative integer powers are not allowed."), std::string::npos) << message;
  EXPECT_NO_THROW(pow(one(DType::f32), -1));
}

TEST(BinaryErrors, AnIntegerNumberThatDoesNotFitIsRefused) {
  const std::string message = message_of([] { eq(one(DType::u8), 300); });
  EXPECT_NE(message.find("300 does not fit in u8"), std::string::npos) << message;
}

TEST(BinaryErrors, DividingIntegersByTheNumberZeroThrowsEvenForNothing) {
  const Tensor none = Tensor::empty({0}, DType::i32);
  EXPECT_NE(message_of([&] { floordiv(none, 0); }).find("ZeroDivisionError"), std::string::npos);
  EXPECT_NO_THROW(floordiv(one(DType::f32), 0));
}

TEST(BinaryErrors, BooleansAreNotSubtracted) {
  EXPECT_NE(message_of([] { sub(one(DType::boolean), one(DType::boolean)); }).find("bit_xor"), std::string::npos);
}

TEST(BinaryErrors, FloatsHaveNoBits) {
  EXPECT_NE(message_of([] { bit_and(one(DType::f32), 1); }).find("expected integers or booleans"), std::string::npos);
}

TEST(BinaryErrors, SizesThatDoNotBroadcastAreNamed) {
  const std::string message = message_of([] { add(Tensor::empty({2, 3}), Tensor::empty({4})); });
  EXPECT_NE(message.find("[2, 3]"), std::string::npos) << message;
  EXPECT_NE(message.find("[4]"), std::string::npos) << message;
}

TEST(BinaryValues, FloatRemainderIsExactForLargeQuotients) {
  EXPECT_EQ(remainder(Tensor::of<double>({1e17}), Tensor::of<double>({3.0})).item(), 1.0);
  EXPECT_EQ(remainder(Tensor::of<float>({-1.0f}), Tensor::of<float>({INFINITY})).item(), INFINITY);
  EXPECT_EQ(remainder(Tensor::of<float>({1.0f}), Tensor::of<float>({INFINITY})).item(), 1.0);
}

TEST(BinaryValues, FloatFloordivOfZeroDivisorsIsIeee) {
  const Tensor q = floordiv(Tensor::of<float>({1.0f, -1.0f, 0.0f}), Tensor::of<float>({0.0f, 0.0f, 0.0f}));
  EXPECT_EQ(q.data<float>()[0], INFINITY);
  EXPECT_EQ(q.data<float>()[1], -INFINITY);
  EXPECT_TRUE(std::isnan(q.data<float>()[2]));
}

TEST(BinaryValues, AnythingToTheZeroIsOne) {
  const Tensor y = pow(Tensor::of<float>({0.0f, NAN, INFINITY, -2.0f}), 0.0);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(y.data<float>()[i], 1.0f) << i;
  EXPECT_EQ(pow(Tensor::of<int64_t>({0}), 0).item_int(), 1);
}

TEST(BinaryValues, AShiftBeyondTheWidthLeavesNothing) {
  const Tensor x = Tensor::of<int8_t>({-3, 3});
  EXPECT_EQ(shl(x, 8).data<int8_t>()[1], 0);
  EXPECT_EQ(shr(x, 100).data<int8_t>()[0], -1);
  EXPECT_EQ(shr(x, 100).data<int8_t>()[1], 0);
}

}  // namespace
}  // namespace tutti
