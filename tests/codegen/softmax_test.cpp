#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/codegen/support/harness.h"
#include "tests/codegen/support/reference_tree.h"

#include "tutti/codegen/cpu_target.h"

namespace tutti::codegen {
namespace {

using testing::Buffer;
using testing::Recipe;
using testing::ReferenceTree;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// exp as kernels compute it.
float kernel_exp(float x) {
  Recipe recipe;
  recipe.output(apply_scalar(ScalarOp::exp, recipe.input(DType::f32)), DType::f32);
  static const KernelSpec spec = recipe.finish("exp");
  Buffer in(DType::f32, 1), out(DType::f32, 1);
  in.set(0, x);
  testing::run(spec, testing::targets().front(), {{&in}, {&out}}, {1, 1});
  return static_cast<float>(out.value(0).f);
}

struct Pair {
  float m = -kInfinity, l = 0;
};

float larger(float a, float b) { return std::isnan(a) ? a : a > b ? a : b; }
float origin(float m) { return m == -kInfinity ? 0.0f : m; }

Pair combine(const Pair& a, const Pair& b) {
  const float m = larger(a.m, b.m);
  return {m, std::fma(a.l, kernel_exp(a.m - origin(m)), b.l * kernel_exp(b.m - origin(m)))};
}

Pair reference(int64_t n, int64_t leaf, const std::function<float(int64_t)>& x) {
  ReferenceTree<Pair> tree;
  tree.combine = combine;
  tree.leaf = leaf;
  return tree.reduce(TreeKind::aligned, n, [&](int64_t start, int64_t count) {
    const auto at = [&](int64_t i) { return x(start + i); };
    const ReferenceTree<float> largest{-kInfinity, larger, at};
    const float m = largest.leaf_of(0, count);
    const ReferenceTree<float> sum{0.0f, std::plus<float>(), [&](int64_t i) { return kernel_exp(at(i) - origin(m)); }};
    return Pair{m, sum.leaf_of(0, count)};
  });
}

void expect_equal(const Buffer& m, const Buffer& l, int64_t k, const Pair& expected) {
  EXPECT_TRUE(testing::same_value(m.value(k), {.dtype = DType::f32, .f = expected.m}))
      << m.value(k).f << " " << expected.m;
  EXPECT_TRUE(testing::same_value(l.value(k), {.dtype = DType::f32, .f = expected.l}))
      << l.value(k).f << " " << expected.l;
}

// (m, r): the sum without the first maximum.
Pair combine_rests(const Pair& a, const Pair& b) {
  const Pair &lead = a.m >= b.m ? a : b, &other = a.m >= b.m ? b : a;
  const float distance = a.m == b.m ? (a.m == -kInfinity ? -kInfinity : 0.0f) : other.m - origin(lead.m);
  return {larger(a.m, b.m), std::fma(kernel_exp(distance), 1 + other.l, lead.l)};
}

Pair reference_rest(int64_t n, int64_t leaf, const std::function<float(int64_t)>& x) {
  ReferenceTree<Pair> tree;
  tree.combine = combine_rests;
  tree.leaf = leaf;
  return tree.reduce(TreeKind::aligned, n, [&](int64_t start, int64_t count) {
    const auto at = [&](int64_t i) { return x(start + i); };
    const ReferenceTree<float> largest{-kInfinity, larger, at};
    const float m = largest.leaf_of(0, count);
    int64_t maxima = 0;
    for (int64_t i = 0; i < count; ++i) maxima += at(i) == m;
    const ReferenceTree<float> sum{0.0f, std::plus<float>(),
                                   [&](int64_t i) { return at(i) == m ? 0.0f : kernel_exp(at(i) - origin(m)); }};
    return Pair{m, m == -kInfinity ? 0.0f : sum.leaf_of(0, count) + static_cast<float>(maxima - 1)};
  });
}

struct Statistics {
  Recipe recipe;
  explicit Statistics(LoopKind kind, DType dtype = DType::f32, ReduceOp second = ReduceOp::softmax_sum) : recipe(kind) {
    const StrideClass out = kind == LoopKind::row ? StrideClass::broadcast : StrideClass::contiguous;
    const Expr x = recipe.input(dtype);
    const Expr m = recipe.reduce(ReduceOp::softmax_max, x, TreeKind::aligned);
    const Expr l = recipe.reduce(second, x, TreeKind::aligned);
    recipe.output(m, DType::f32, out);
    recipe.output(l, DType::f32, out);
    recipe.finish("softmax statistics");
  }
};

TEST(Softmax, StatisticsFollowTheAlignedTreeAlongRows) {
  const Statistics statistics(LoopKind::row);
  for (const CpuTarget target : testing::targets()) {
    for (const int64_t n : {1, 7, 16, 17, 48, 100}) {
      for (const int64_t leaf : {16, 32, 512}) {
        Buffer in(DType::f32, n), m(DType::f32, 1), l(DType::f32, 1);
        testing::fill_moderate(in, static_cast<uint64_t>(n));
        testing::run(statistics.recipe.spec, target, {{&in}, {&m}, {&l}}, {1, n, 0, leaf});
        expect_equal(m, l, 0, reference(n, leaf, [&](int64_t i) { return static_cast<float>(in.value(i).f); }));
      }
    }
  }
}

TEST(Softmax, StatisticsFollowTheAlignedTreeDownColumns) {
  const Statistics statistics(LoopKind::column);
  for (const CpuTarget target : testing::targets()) {
    const int64_t n = 50, columns = 5, leaf = 16;
    Buffer in(DType::f32, n * columns), m(DType::f32, columns), l(DType::f32, columns);
    testing::fill_moderate(in, 1);
    testing::run(statistics.recipe.spec, target, {{&in, 0, 1, columns}, {&m}, {&l}}, {1, columns, n, leaf});
    for (int64_t c = 0; c < columns; ++c)
      expect_equal(m, l, c,
                   reference(n, leaf, [&](int64_t i) { return static_cast<float>(in.value(i * columns + c).f); }));
  }
}

// Ties within a leaf, between leaves, and rows that begin with -inf.
float element_with_ties(int64_t i) { return i < 3 ? -kInfinity : static_cast<float>((i * 37) % 11) * 0.75f - 40; }

TEST(SoftmaxRest, FollowsTheAlignedTreeAlongRows) {
  const Statistics statistics(LoopKind::row, DType::f32, ReduceOp::softmax_rest);
  for (const CpuTarget target : testing::targets()) {
    for (const int64_t n : {1, 2, 7, 16, 17, 48, 100, 700}) {
      for (const int64_t leaf : {16, 32, 512}) {
        Buffer in(DType::f32, n), m(DType::f32, 1), r(DType::f32, 1);
        for (int64_t i = 0; i < n; ++i) in.set(i, element_with_ties(i));
        testing::run(statistics.recipe.spec, target, {{&in}, {&m}, {&r}}, {1, n, 0, leaf});
        expect_equal(m, r, 0, reference_rest(n, leaf, element_with_ties));
      }
    }
  }
}

TEST(SoftmaxRest, FollowsTheAlignedTreeDownColumns) {
  const Statistics statistics(LoopKind::column, DType::f32, ReduceOp::softmax_rest);
  for (const CpuTarget target : testing::targets()) {
    const int64_t n = 50, columns = 5, leaf = 16;
    Buffer in(DType::f32, n * columns), m(DType::f32, columns), r(DType::f32, columns);
    for (int64_t i = 0; i < n * columns; ++i) in.set(i, element_with_ties(i));
    testing::run(statistics.recipe.spec, target, {{&in, 0, 1, columns}, {&m}, {&r}}, {1, columns, n, leaf});
    for (int64_t c = 0; c < columns; ++c)
      expect_equal(m, r, c, reference_rest(n, leaf, [&](int64_t i) { return element_with_ties(i * columns + c); }));
  }
}

TEST(SoftmaxRest, ScanCombinesElementByElement) {
  const Statistics statistics(LoopKind::scan, DType::f32, ReduceOp::softmax_rest);
  for (const CpuTarget target : testing::targets()) {
    const int64_t n = 40;
    Buffer in(DType::f32, n), m(DType::f32, n), r(DType::f32, n);
    for (int64_t i = 0; i < n; ++i) in.set(i, element_with_ties(i));
    testing::run(statistics.recipe.spec, target, {{&in}, {&m}, {&r}}, {1, n});
    Pair running;
    for (int64_t i = 0; i < n; ++i) {
      running = combine_rests(running, {element_with_ties(i), 0.0f});
      expect_equal(m, r, i, running);
    }
  }
}

TEST(SoftmaxRest, KeepsWhatASumWouldRoundOff) {
  const Statistics statistics(LoopKind::row, DType::f32, ReduceOp::softmax_rest);
  for (const CpuTarget target : testing::targets()) {
    for (const int maximum : {0, 20, 39}) {  // in either leaf
      Buffer in(DType::f32, 40), m(DType::f32, 1), r(DType::f32, 1);
      for (int i = 0; i < 40; ++i) in.set(i, i == maximum ? 50 : -kInfinity);
      in.set(5, 10);
      testing::run(statistics.recipe.spec, target, {{&in}, {&m}, {&r}}, {1, 40, 0, 16});
      EXPECT_EQ(r.value(0).f, kernel_exp(-40));
    }
  }
}

TEST(Softmax, ScanCombinesElementByElement) {
  const Statistics statistics(LoopKind::scan);
  for (const CpuTarget target : testing::targets()) {
    const int64_t n = 40;
    Buffer in(DType::f32, n), m(DType::f32, n), l(DType::f32, n);
    testing::fill_moderate(in, 2);
    testing::run(statistics.recipe.spec, target, {{&in}, {&m}, {&l}}, {1, n});
    Pair running;
    for (int64_t i = 0; i < n; ++i) {
      running = combine(running, {static_cast<float>(in.value(i).f), 1.0f});
      expect_equal(m, l, i, running);
    }
  }
}

TEST(Softmax, ARowOfMinusInfinityHasNoMass) {
  const Statistics statistics(LoopKind::row);
  for (const CpuTarget target : testing::targets()) {
    Buffer in(DType::f32, 40), m(DType::f32, 1), l(DType::f32, 1);
    for (int i = 0; i < 40; ++i) in.set(i, -kInfinity);
    testing::run(statistics.recipe.spec, target, {{&in}, {&m}, {&l}}, {1, 40, 0, 16});
    EXPECT_EQ(m.value(0).f, -kInfinity);
    EXPECT_EQ(l.value(0).f, 0.0);
    // One finite element in another leaf takes over.
    in.set(35, 2.0);
    testing::run(statistics.recipe.spec, target, {{&in}, {&m}, {&l}}, {1, 40, 0, 16});
    EXPECT_EQ(m.value(0).f, 2.0);
    EXPECT_EQ(l.value(0).f, 1.0);
  }
}

TEST(Softmax, NanReachesBothStatistics) {
  const Statistics statistics(LoopKind::row);
  for (const CpuTarget target : testing::targets()) {
    Buffer in(DType::f32, 40), m(DType::f32, 1), l(DType::f32, 1);
    in.set(20, NAN);
    testing::run(statistics.recipe.spec, target, {{&in}, {&m}, {&l}}, {1, 40, 0, 16});
    EXPECT_TRUE(std::isnan(m.value(0).f) && std::isnan(l.value(0).f));
  }
}

TEST(Softmax, DoesNotDependOnWhatFollowsTheRow) {
  // Padding with minus infinity leaves m and l as they are, to the bit.
  const Statistics statistics(LoopKind::row, DType::bf16);
  for (const CpuTarget target : testing::targets()) {
    Buffer in(DType::bf16, 200), m(DType::f32, 2), l(DType::f32, 2);
    testing::fill_moderate(in, 3);
    for (int i = 70; i < 200; ++i) in.set(i, -kInfinity);
    testing::run(statistics.recipe.spec, target, {{&in}, {&m}, {&l}}, {1, 70, 0, 32});
    const ScalarValue m70 = m.value(0), l70 = l.value(0);
    testing::run(statistics.recipe.spec, target, {{&in}, {&m}, {&l}}, {1, 200, 0, 32});
    EXPECT_TRUE(testing::same_value(m.value(0), m70) && testing::same_value(l.value(0), l70));
  }
}

TEST(Softmax, RowsSumToOne) {
  Recipe recipe(LoopKind::row);
  const Expr x = recipe.input(DType::f32);
  const Expr m = recipe.reduce(ReduceOp::softmax_max, x, TreeKind::aligned);
  const Expr l = recipe.reduce(ReduceOp::softmax_sum, x, TreeKind::aligned);
  recipe.output(apply_scalar(ScalarOp::exp, x - m) / l, DType::f32);
  const KernelSpec& spec = recipe.finish("softmax");
  for (const CpuTarget target : testing::targets()) {
    Buffer in(DType::f32, 3 * 1000), out(DType::f32, 3 * 1000);
    testing::fill_moderate(in, 4);
    testing::run(spec, target, {{&in, 1000}, {&out, 1000}}, {3, 1000});
    for (int o = 0; o < 3; ++o) {
      double sum = 0;
      for (int i = 0; i < 1000; ++i) sum += out.value(o * 1000 + i).f;
      EXPECT_NEAR(sum, 1.0, 1e-6);
    }
  }
}

// exp(x - m) / l for every element, and l.
struct Normalized {
  Recipe recipe;
  Normalized(LoopKind kind, DType dtype) : recipe(kind) {
    const bool column = kind == LoopKind::column;
    const Expr x = recipe.input(dtype, column ? StrideClass::contiguous : StrideClass::strided);
    const Expr m = recipe.reduce(ReduceOp::softmax_max, x, TreeKind::aligned);
    const Expr l = recipe.reduce(ReduceOp::softmax_sum, x, TreeKind::aligned);
    recipe.output(apply_scalar(ScalarOp::exp, x - m) / l, dtype,
                  column ? StrideClass::contiguous : StrideClass::strided);
    recipe.output(l, DType::f32, column ? StrideClass::contiguous : StrideClass::broadcast);
    recipe.spec.outputs[0].along_reduced = column;
    recipe.finish("normalized");
  }
};

TEST(Softmax, ElementsDownColumnsHaveTheBitsOfThoseAlongRows) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Normalized rows(LoopKind::row, dtype), columns(LoopKind::column, dtype);
    for (const CpuTarget target : testing::targets()) {
      for (const int64_t width : {1, 5, 16, 37, 2201}) {
        for (const int64_t n : {1, 15, 70}) {
          const int64_t outer = 2, count = outer * n * width;
          Buffer in(dtype, count), out(dtype, count), l(DType::f32, outer * width);
          testing::fill_moderate(in, static_cast<uint64_t>(width));
          in.set(0, -kInfinity);
          in.set(count - 1, kInfinity);
          if (width > 4) in.set(3, NAN);
          testing::run(columns.recipe.spec, target,
                       {{&in, n * width, 1, width}, {&out, n * width, 1, width}, {&l, width, 1}},
                       {outer, width, n, 16});
          EXPECT_TRUE(out.guards_intact() && l.guards_intact());
          for (int64_t o = 0; o < outer; ++o) {
            Buffer part(dtype, n * width), expected(dtype, n * width), sums(DType::f32, width);
            for (int64_t i = 0; i < n * width; ++i) part.set_bits(i, in.bits(o * n * width + i));
            testing::run(rows.recipe.spec, target, {{&part, 1, width}, {&expected, 1, width}, {&sums, 1}},
                         {width, n, 0, 16});
            for (int64_t i = 0; i < n * width; ++i)
              ASSERT_TRUE(testing::same_value(out.value(o * n * width + i), expected.value(i)))
                  << width << " " << n << " at " << i;
            for (int64_t c = 0; c < width; ++c)
              ASSERT_TRUE(testing::same_value(l.value(o * width + c), sums.value(c))) << c;
          }
        }
      }
    }
  }
}

TEST(Softmax, ElementsDownColumnsMayBeWrittenOverWhatTheyWereMadeOf) {
  const Normalized columns(LoopKind::column, DType::f32);
  for (const CpuTarget target : testing::targets()) {
    const int64_t n = 600, width = 70;
    Buffer in(DType::f32, n * width), out(DType::f32, n * width), l(DType::f32, width);
    testing::fill_moderate(in, 9);
    testing::run(columns.recipe.spec, target, {{&in, 0, 1, width}, {&out, 0, 1, width}, {&l}}, {1, width, n});
    testing::run(columns.recipe.spec, target, {{&in, 0, 1, width}, {&in, 0, 1, width}, {&l}}, {1, width, n});
    for (int64_t i = 0; i < n * width; ++i) ASSERT_EQ(in.bits(i), out.bits(i)) << i;
  }
}

}  // namespace
}  // namespace tutti::codegen
