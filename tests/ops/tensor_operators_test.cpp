#include "tutti/ops/tensor_operators.h"

#include <gtest/gtest.h>

#include <sstream>
#include <type_traits>

#include "tests/support/message_of.h"
#include "tests/support/same_bits.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/expand.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/slice.h"

namespace tutti {
namespace {

void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

Tensor counted(const Extents& sizes) {
  Tensor t = Tensor::empty(sizes);
  for (int64_t i = 0; i < t.numel(); ++i) t.data<float>()[i] = static_cast<float>(i);
  return t;
}

std::string text_of(const Tensor& t) {
  std::ostringstream text;
  text << t;
  return text.str();
}

// Each of these would do something else than it says.
template <class A, class B>
concept Equates = requires(A a, B b) { a == b; };
template <class T>
concept AssignsToElement = requires(T t) { t[0] = t; };
static_assert(!Equates<Tensor, Tensor> && !Equates<Tensor, int>);
static_assert(!AssignsToElement<Tensor> && !std::is_convertible_v<Tensor, bool>);

TEST(TensorOperators, SpellTheFunctions) {
  const Tensor x = Tensor::of<float>({6.0f}), y = Tensor::of<float>({4.0f});
  EXPECT_EQ((x + y).item(), 10.0);
  EXPECT_EQ((x - 1).item(), 5.0);
  EXPECT_EQ((2 * x).item(), 12.0);
  EXPECT_EQ((x / y).item(), 1.5);
  EXPECT_EQ((-x).item(), -6.0);
  EXPECT_EQ((x > 5.5).item_int(), 1);
}

TEST(TensorOperators, ComparisonsAreMasksThatCombine) {
  const Tensor x = counted({6});
  EXPECT_EQ(text_of((x > 1) & (x <= 4)), "[false, false,  true,  true,  true, false], bool");
  EXPECT_EQ(text_of((x < 1) | (x >= 5)), "[ true, false, false, false, false,  true], bool");
  EXPECT_EQ(text_of(~(x < 1) ^ (2 < x)), "[false,  true,  true, false, false, false], bool");
  EXPECT_EQ(text_of(Tensor::of<int64_t>({12, 10}) & 6), "[4, 2], i64");
}

TEST(TensorOperators, WritingOnesWriteTheTensorOnTheLeft) {
  const Tensor x = Tensor::of<float>({1, 2, 3}), same = x;
  const StorageRef storage = x.storage();
  const uint32_t version = x.version();
  x += 1;
  x *= Tensor::of<float>({2, 3, 4});
  x -= 0.5;
  x /= Tensor::of<float>({0.5});
  EXPECT_EQ(text_of(same), "[ 7.0, 17.0, 31.0]");
  EXPECT_EQ(x.storage().get(), storage.get());
  EXPECT_EQ(x.version(), version + 4);
  (x += 1) -= x;
  EXPECT_EQ(text_of(same), "[0.0, 0.0, 0.0]");
}

TEST(TensorOperators, WritingOnesHaveTheBitsOfTheOthers) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    const Tensor x = cast(counted({37}) * 0.37 - 3.1, dtype), y = cast(counted({37}) * 0.011 + 0.7, dtype);
    const auto expect = [&](const char* what, auto write, const Tensor& wanted) {
      const Tensor target = clone(x), written = write(target);
      expect_same_bits(written, wanted, what);
      EXPECT_EQ(written.raw_data(), target.raw_data()) << what;
    };
    expect("+=", [&](const Tensor& t) { return t += y; }, x + y);
    expect("-=", [&](const Tensor& t) { return t -= y; }, x - y);
    expect("*=", [&](const Tensor& t) { return t *= y; }, x * y);
    expect("/=", [&](const Tensor& t) { return t /= y; }, x / y);
    expect("+= of a number", [](const Tensor& t) { return t += 0.3; }, x + 0.3);
    expect("-= of a number", [](const Tensor& t) { return t -= 0.3; }, x - 0.3);
    expect("*= of a number", [](const Tensor& t) { return t *= 0.3; }, x * 0.3);
    expect("/= of a number", [](const Tensor& t) { return t /= 0.3; }, x / 0.3);
  }
}

TEST(TensorOperators, WritingOnesKeepTheDtypeAndComputeInTheCommonOne) {
  Tensor x = Tensor::empty({1}, DType::bf16);
  *x.data<bfloat16>() = to_bfloat16(256.0f);
  x += Tensor::of<float>({1.5f});  // 257.5 becomes 258; 1.5 rounded first to a step of 2 would give 258 or 256
  EXPECT_EQ(x.item(), 258.0);
  x -= Tensor::of<float>({0.75f});  // 257.25
  EXPECT_EQ(x.item(), 258.0);
  EXPECT_EQ(x.dtype(), DType::bf16);
  const Tensor bytes = Tensor::of<uint8_t>({250, 3});
  bytes -= 4;
  bytes += Tensor::of<uint8_t>({1, 1});
  EXPECT_EQ(text_of(bytes), "[247,   0], u8");
  const Tensor wide = Tensor::of<int64_t>({0});
  wide -= Tensor::of<uint8_t>({255});
  EXPECT_EQ(wide.item_int(), -255);
}

TEST(TensorOperators, WritingOnesRefuseWhatTheTargetCannotHold) {
  const Tensor whole = Tensor::of<int64_t>({6}), mask = Tensor::of<bool>({true}), x = counted({2});
  expect_part(message_of([&] { whole /= 2; }), "truediv_scalar_: the target is [1] i64 cpu, the result would be f32");
  expect_part(message_of([&] { whole /= whole; }), "truediv_: the target is [1] i64 cpu, the result would be f32");
  expect_part(message_of([&] { whole += 0.5; }), "the result would be f32; cast() the target to a float type first");
  expect_part(message_of([&] { mask -= mask; }), "sub_: both operands are boolean; use bit_xor()");
  expect_part(message_of([&] { mask -= true; }), "sub_scalar_: both operands are boolean; use bit_xor()");
  expect_part(message_of([&] { x -= counted({3}); }), "sub_");
  expect_part(message_of([&] { x -= counted({2, 2}); }),
              "sub_: the operand [2, 2] f32 cpu does not broadcast to the target");
  EXPECT_EQ(whole.item_int(), 6);
  EXPECT_EQ(text_of(x), "[0.0, 1.0]");
}

TEST(TensorOperators, AnExpandedTargetIsAnError) {
  const Tensor x = counted({1, 2}), rows = expand(x, {3, 2});
  for (const std::string& said :
       {message_of([&] { rows += 1; }), message_of([&] { rows -= rows; }), message_of([&] { rows *= 2; }),
        message_of([&] { rows /= 2; }), message_of([&] { rows[0] += 1, transpose(rows, 0, 1)[1] += 1; })})
    expect_part(said, "expanded");
  x -= 1;  // what it was expanded from may be written
  EXPECT_EQ(text_of(rows[2]), "[0.0, 1.0]");
}

TEST(TensorOperators, ElementsAreViewsOfDim0) {
  const Tensor x = counted({2, 3, 2});
  EXPECT_EQ(x[1].extents(), (Extents{3, 2}));
  EXPECT_EQ(x[1].raw_data(), select(x, 0, 1).raw_data());
  EXPECT_EQ(x[1][2][0].item(), 10.0);
  EXPECT_EQ(x[-1][-3].raw_data(), x[size_t{1}][short{0}].raw_data());
  EXPECT_EQ(x[1][2][0].ndim(), 0);
  EXPECT_EQ(text_of(transpose(x, 0, 2)[1][0]), "[1.0, 7.0]");
}

TEST(TensorOperators, AnElementThatIsNotThereIsNamed) {
  const Tensor x = counted({2, 3});
  expect_part(message_of([&] { x[2]; }), "index 2 is out of range for dim 0 of [2, 3] f32 cpu, which has 2 elements");
  expect_part(message_of([&] { x[0][-4]; }), "index -4 is out of range for dim 0 of [3] f32 cpu, which has 3 elements");
  expect_part(message_of([&] { counted({0, 3})[0]; }), "index 0 is out of range for dim 0 of [0, 3] f32 cpu");
  expect_part(message_of([&] { x[0][0][0]; }), "select");
  expect_part(message_of([&] { x[size_t{0} - 1]; }), "18446744073709551615");
  EXPECT_THROW(Tensor()[0], UndefinedTensorError);
}

TEST(TensorOperators, WritesReachWhatTheViewsShare) {
  const Tensor x = counted({3, 4});
  const Tensor row = x[1], column = select(x, 1, -1);
  const uint32_t version = x.version();
  x[1] += 10;                     // 14 15 16 17
  x[-1][0] *= 3;                  // 24
  row /= 2;                       // 7 7.5 8 8.5
  column -= row[0];               // -4 1.5 4
  narrow(x, 0, 0, 2)[0] += x[2];  // 24 10 12 1
  x[0][slice(x, 1, 1, 3).extent(1)] *= x[0][0];
  EXPECT_EQ(text_of(x),
            "[[ 24.0,  10.0, 288.0,   0.0],\n [  7.0,   7.5,   8.0,   1.5],\n [ 24.0,   9.0,  10.0,   4.0]]");
  EXPECT_EQ(x.version(), version + 6);
  copy_(x[2], x[1]);
  EXPECT_EQ(text_of(x[2] - row), "[0.0, 0.0, 0.0, 0.0]");
}

TEST(TensorOperators, TakeTensorsWithoutElements) {
  const Tensor none = counted({2, 0});
  none += 1;
  none -= none;
  none *= counted({1, 1});
  none /= 2;
  none[1] += none[0];
  EXPECT_EQ(text_of(none[1]), "[], size [0]");
  EXPECT_EQ(text_of(~(none > 0)), "[], size [2, 0], bool");
}

TEST(TensorOperators, ANumberAboveInt64IsRefused) {
  expect_part(message_of([] { counted({1}) + (uint64_t{1} << 63); }),
              "the integer 9223372036854775808 exceeds 9223372036854775807");
}

}  // namespace
}  // namespace tutti
