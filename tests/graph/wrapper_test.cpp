// Wrapper types: inner tensors with metadata beside them, taken apart and put together by Fields.
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "tests/graph/support/control_support.h"
#include "tutti/autograd/backward.h"
#include "tutti/graph/compile.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/inplace.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/slice.h"

namespace tutti {
namespace {

// Rows of small integers and what each of them stands for. `outer` is how the rows lie for a reader.
struct Quantized {
  enum class Layout : uint8_t { rows, columns };
  Tensor values, scale;
  Layout layout = Layout::rows;
  std::string format = "int8";
  std::optional<Tensor> zero_point = {};

  SymInt size(int dim) const { return values.size(layout == Layout::rows ? dim : 1 - dim); }
  Tensor dequantized() const {
    Tensor x = cast(values, DType::f32);
    if (zero_point) x = sub(x, *zero_point);
    return layout == Layout::rows ? mul(x, scale) : transpose(mul(x, scale), 0, 1);
  }
};

}  // namespace
}  // namespace tutti

template <>
struct tutti::graph::Fields<tutti::Quantized> {
  static void visit(auto& q, auto&& visit) {
    visit(q.values), visit(q.scale), visit(q.layout), visit(q.format), visit(q.zero_point);
  }
};

namespace tutti {
namespace {

using namespace graph_test;

Quantized quantized(int64_t rows, int64_t columns, uint64_t seed = 1) {
  return {cast(mul(values({rows, columns}, seed), 20.0), DType::i8), values({rows, 1}, seed + 1)};
}

Quantized transposed(Quantized q) {
  q.layout = q.layout == Quantized::Layout::rows ? Quantized::Layout::columns : Quantized::Layout::rows;
  return q;
}

TEST(WrapperMetadata, SurvivesACallThatChangesIt) {
  const auto fn = [](const Quantized& q) {
    Quantized r = transposed(q);
    r.scale = mul(q.scale, 2.0);
    r.format = q.format + " doubled";
    return r;
  };
  const auto f = compile(fn);
  for (const Quantized& q : {quantized(3, 4), transposed(quantized(3, 4)), quantized(3, 4, 7)}) {
    const Quantized got = f(q), expected = fn(q);
    EXPECT_EQ(got.layout, expected.layout);
    EXPECT_EQ(got.format, "int8 doubled");
    EXPECT_TRUE(got.values.is_same(q.values));
    EXPECT_FALSE(got.zero_point.has_value());
    expect_same(got.dequantized(), expected.dequantized());
  }
  EXPECT_EQ(f.statistics().compiles, 2);  // one per layout
}

TEST(WrapperMetadata, IsAGuardAndSoIsAnInnerTensorThatAppears) {
  const auto f = compile([](const Quantized& q) { return q.dequantized(); });
  Quantized q = quantized(3, 4);
  expect_same(f(q), q.dequantized());
  q.zero_point = values({3, 1}, 9);
  expect_same(f(q), q.dequantized());
  q.layout = Quantized::Layout::columns;
  expect_same(f(q), q.dequantized());
  q.format = "other";
  expect_same(f(q), q.dequantized());
  EXPECT_EQ(f.statistics().compiles, 4);
}

// The outer geometry is a function of the inner tensors of each call, never that of the trace.
TEST(WrapperMetadata, OuterSizesFollowTheInnerTensors) {
  const auto fn = [](const Quantized& q, const Tensor& x) {
    return mul(matmul(x, q.dequantized()), truediv(SymInt(1), q.size(0)));
  };
  const auto f = compile(fn);
  for (int64_t n = 3; n < 9; ++n) {
    for (const bool columns : {false, true}) {
      const Quantized q = columns ? transposed(quantized(4, n)) : quantized(n, 4);
      const Tensor x = values({2, n}, 3);
      expect_same(f(q, x), fn(q, x));
    }
  }
  EXPECT_EQ(f.statistics().compiles, 4) << f.explain();  // a first size and a family per layout

  // The same inner sizes with other strides.
  const auto g = compile([](const Quantized& q) { return q.dequantized(); });
  const Quantized q = quantized(4, 4);
  const Quantized turned{transpose(q.values, 0, 1), q.scale};
  expect_same(g(q), q.dequantized());
  expect_same(g(turned), turned.dequantized());
}

TEST(WrapperMetadata, SurvivesWritesViewsAndSharedMemory) {
  const auto fn = [](const Quantized& q) {
    mul_(q.scale, 3.0);
    Quantized part = q;
    part.values = slice(q.values, 0, 1, q.values.size(0));
    part.scale = slice(q.scale, 0, 1, q.scale.size(0));
    return std::pair(q, part);
  };
  const auto f = compile(fn);
  for (int64_t n = 3; n < 7; ++n) {
    const Quantized a = transposed(quantized(n, 4)), b = transposed(quantized(n, 4));
    const auto [same, part] = f(a);
    const auto [same_b, part_b] = fn(b);
    EXPECT_TRUE(same.values.is_same(a.values));
    EXPECT_EQ(same.layout, Quantized::Layout::columns);
    EXPECT_EQ(part.values.storage().get(), a.values.storage().get());
    expect_same(a.scale, b.scale);
    expect_same(part.dequantized(), part_b.dequantized());
  }
}

TEST(WrapperMetadata, GradientsReachInnerTensors) {
  const auto loss = [](const Quantized& q) { return sum(mul(q.dequantized(), q.dequantized())); };
  const auto f = compile(loss);
  const Quantized q = transposed(quantized(3, 4));
  requires_grad_(q.scale);
  const Tensor leaves[] = {q.scale}, got[] = {f(q)}, expected[] = {loss(q)};
  expect_same(grad(got, leaves)[0], grad(expected, leaves)[0]);
}

}  // namespace
}  // namespace tutti
