#include <gtest/gtest.h>

#include <string>

#include "tests/codegen/support/harness.h"

#include "tutti/codegen/cpu_target.h"

namespace tutti::codegen {
namespace {

using testing::Buffer;
using testing::Recipe;

constexpr DType kAllDTypes[] = {DType::f64, DType::f32, DType::bf16, DType::f16, DType::f8e4m3fn, DType::f8e5m2,
                                DType::i64, DType::i32, DType::i16,  DType::i8,  DType::u8,       DType::boolean};
constexpr StrideClass kClasses[] = {StrideClass::broadcast, StrideClass::contiguous, StrideClass::strided};
constexpr int64_t kSizes[] = {0, 1, 2, 3, 5, 7, 15, 16, 17, 31, 33, 100};

int64_t inner_stride(StrideClass c) { return c == StrideClass::broadcast ? 0 : c == StrideClass::contiguous ? 1 : 3; }

// One buffer for rows of `n` elements; every row is n * stride long, and one element more keeps rows apart.
struct Rows {
  Buffer buffer;
  int64_t outer, inner;
  Rows(DType dtype, StrideClass c, int64_t n_outer, int64_t n)
      : buffer(dtype, n_outer * (n * 3 + 1) + 1), outer(n * 3 + 1), inner(inner_stride(c)) {}
  int64_t position(int64_t o, int64_t i) const { return o * outer + i * inner; }
  testing::Operand operand() { return {&buffer, outer, inner}; }
};

// Booleans add as "either".
ScalarValue sum_of(const ScalarValue& a, const ScalarValue& b) {
  const ScalarValue operands[] = {a, b};
  return a.dtype == DType::boolean ? ScalarValue{.dtype = a.dtype, .i = a.i | b.i}
                                   : *evaluate_scalar(ScalarOp::add, a.dtype, operands, 2);
}

void check_sum(DType dtype, StrideClass left, StrideClass right, StrideClass out) {
  Recipe recipe;
  const Expr a = recipe.input(dtype, left), b = recipe.input(dtype, right);
  recipe.output(a + b, dtype, out);
  const KernelSpec& spec = recipe.finish("sum");
  for (const CpuTarget target : testing::targets()) {
    for (const int64_t n_outer : {0, 1, 3}) {
      for (const int64_t n : kSizes) {
        Rows x(dtype, left, n_outer, n), y(dtype, right, n_outer, n), z(dtype, out, n_outer, n);
        testing::fill_with_variety(x.buffer, 1);
        testing::fill_with_variety(y.buffer, 2);
        testing::fill_with_variety(z.buffer, 3);
        Buffer expected = z.buffer;
        for (int64_t o = 0; o < n_outer; ++o) {
          for (int64_t i = 0; i < n; ++i) {
            expected.set(z.position(o, i), sum_of(x.buffer.value(x.position(o, i)), y.buffer.value(y.position(o, i))));
          }
        }
        ASSERT_EQ(testing::run(spec, target, {x.operand(), y.operand(), z.operand()}, {n_outer, n}), 0u);
        EXPECT_TRUE(z.buffer.guards_intact());
        for (int64_t k = 0; k < z.buffer.count(); ++k)
          ASSERT_TRUE(testing::same_value(z.buffer.value(k), expected.value(k)))
              << name_of(dtype) << " " << name_of(target) << " n_outer " << n_outer << " n " << n << " position " << k
              << ": " << std::hex << z.buffer.bits(k) << " expected " << expected.bits(k);
      }
    }
  }
}

class PointwiseOfDType : public ::testing::TestWithParam<DType> {};

TEST_P(PointwiseOfDType, AddsContiguousRows) {
  check_sum(GetParam(), StrideClass::contiguous, StrideClass::contiguous, StrideClass::contiguous);
}

TEST_P(PointwiseOfDType, AddsABroadcastOperand) {
  check_sum(GetParam(), StrideClass::contiguous, StrideClass::broadcast, StrideClass::contiguous);
}

TEST_P(PointwiseOfDType, ReadsAndWritesStridedRows) {
  check_sum(GetParam(), StrideClass::strided, StrideClass::contiguous, StrideClass::contiguous);
  check_sum(GetParam(), StrideClass::contiguous, StrideClass::contiguous, StrideClass::strided);
}

INSTANTIATE_TEST_SUITE_P(AllDTypes, PointwiseOfDType, ::testing::ValuesIn(kAllDTypes),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST(Pointwise, TakesEveryCombinationOfStrideClasses) {
  for (const StrideClass a : kClasses) {
    for (const StrideClass b : kClasses) check_sum(DType::f32, a, b, StrideClass::contiguous);
  }
}

TEST(Pointwise, UsesParamsAndConstants) {
  Recipe recipe;
  const Expr x = recipe.input(DType::f32);
  recipe.output(x * recipe.pool.param(0, DType::f32) + 0.25, DType::f32);
  recipe.output(cast(x, DType::i64) + recipe.pool.param(1, DType::i64), DType::i64);
  const KernelSpec& spec = recipe.finish("params");
  for (const CpuTarget target : testing::targets()) {
    Buffer in(DType::f32, 21), out(DType::f32, 21), ints(DType::i64, 21);
    for (int i = 0; i < 21; ++i) in.set(i, i * 0.5);
    testing::run(spec, target, {{&in}, {&out}, {&ints}}, {1, 21}, {{.f = 3.0}, {.i = -7}});
    for (int i = 0; i < 21; ++i) {
      EXPECT_EQ(out.value(i).f, i * 0.5 * 3.0 + 0.25);
      EXPECT_EQ(ints.value(i).i, i / 2 - 7);
    }
  }
}

TEST(Pointwise, KnowsThePositionInTheWholeOutput) {
  Recipe recipe;
  recipe.output(recipe.pool.leaf(ScalarOp::linear_index, DType::i64), DType::i64);
  recipe.output(recipe.pool.leaf(ScalarOp::inner_index, DType::i64), DType::i64);
  const KernelSpec& spec = recipe.finish("index");
  for (const CpuTarget target : testing::targets()) {
    Buffer linear(DType::i64, 3 * 19), inner(DType::i64, 3 * 19);
    testing::run(spec, target, {{&linear, 19}, {&inner, 19}}, {3, 19}, {}, 1000, 50);
    for (int o = 0; o < 3; ++o) {
      for (int i = 0; i < 19; ++i) {
        EXPECT_EQ(linear.value(o * 19 + i).i, 1000 + o * 50 + i);
        EXPECT_EQ(inner.value(o * 19 + i).i, i);
      }
    }
  }
}

TEST(Pointwise, WritesInPlace) {
  Recipe recipe;
  const Expr x = recipe.input(DType::f32);
  recipe.output(x + x, DType::f32);
  const KernelSpec& spec = recipe.finish("twice");
  for (const CpuTarget target : testing::targets()) {
    Buffer data(DType::f32, 100);
    for (int i = 0; i < 100; ++i) data.set(i, i);
    testing::run(spec, target, {{&data}, {&data}}, {1, 100});
    for (int i = 0; i < 100; ++i) EXPECT_EQ(data.value(i).f, 2.0 * i);
  }
}

TEST(Pointwise, FillsFromNothing) {
  Recipe recipe;
  recipe.output(recipe.pool.constant(1.5, DType::f64), DType::f64);
  recipe.output(recipe.pool.constant_int(1, DType::boolean), DType::boolean);
  const KernelSpec& spec = recipe.finish("fill");
  for (const CpuTarget target : testing::targets()) {
    Buffer numbers(DType::f64, 37), truths(DType::boolean, 37);
    testing::run(spec, target, {{&numbers}, {&truths}}, {1, 37});
    for (int i = 0; i < 37; ++i) EXPECT_TRUE(numbers.value(i).f == 1.5 && truths.bits(i) == 1);
    EXPECT_TRUE(numbers.guards_intact() && truths.guards_intact());
  }
}

}  // namespace
}  // namespace tutti::codegen
