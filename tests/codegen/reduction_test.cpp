#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "tests/codegen/support/harness.h"
#include "tests/codegen/support/reference_tree.h"

#include "tutti/codegen/cpu_target.h"

namespace tutti::codegen {
namespace {

using testing::Buffer;
using testing::Recipe;
using testing::ReferenceTree;

constexpr int64_t kLengths[] = {1, 2, 3, 5, 7, 15, 16, 17, 31, 33, 100, 129, 300, 1000};
constexpr int64_t kLeaves[] = {16, 24, 128, 512};
constexpr TreeKind kTrees[] = {TreeKind::halving, TreeKind::aligned};

struct Case {
  ReduceOp op;
  DType dtype;
  const char* name;
};

// A value and, for argmax and argmin, where it stands.
struct Partial {
  double f = 0;
  int64_t i = 0;
  int64_t index = std::numeric_limits<int64_t>::max();
};

double rounded(double v, DType dtype) { return dtype == DType::f64 ? v : static_cast<float>(v); }

int64_t wrapped(int64_t v, DType dtype) {
  Buffer b(dtype, 1);
  store_from_int64(b.at(0), dtype, v);
  return b.value(0).i;
}

double extreme(bool largest, double a, double b) {
  if (std::isnan(a)) return a;
  if (a == b) return std::signbit(a) == largest ? b : a;  // -0 is smaller than 0
  return (largest ? a > b : a < b) ? a : b;
}

// The element-wise meaning of each reduction, over compute values.
ReferenceTree<Partial> reference(const Case& c, const std::function<ScalarValue(int64_t)>& value) {
  const DType dtype = compute_dtype(c.dtype);
  const bool real = is_floating(dtype);
  ReferenceTree<Partial> tree;
  tree.element = [=](int64_t i) {
    const ScalarValue v = value(i);
    return Partial{v.f, v.i, i};
  };
  const bool largest = c.op == ReduceOp::max || c.op == ReduceOp::argmax;
  switch (c.op) {
    case ReduceOp::sum:
      tree.identity = {-0.0, 0};
      tree.combine = [=](const Partial& a, const Partial& b) {
        return Partial{rounded(a.f + b.f, dtype),
                       wrapped(static_cast<int64_t>(static_cast<uint64_t>(a.i) + static_cast<uint64_t>(b.i)), dtype)};
      };
      break;
    case ReduceOp::prod:
      tree.identity = {1.0, 1};
      tree.combine = [=](const Partial& a, const Partial& b) {
        return Partial{rounded(a.f * b.f, dtype),
                       wrapped(static_cast<int64_t>(static_cast<uint64_t>(a.i) * static_cast<uint64_t>(b.i)), dtype)};
      };
      break;
    case ReduceOp::any:
      tree.identity = {0, 0};
      tree.combine = [](const Partial& a, const Partial& b) { return Partial{0, a.i | b.i}; };
      break;
    case ReduceOp::all:
      tree.identity = {0, 1};
      tree.combine = [](const Partial& a, const Partial& b) { return Partial{0, a.i & b.i}; };
      break;
    default: {
      const double infinity = std::numeric_limits<double>::infinity();
      int64_t worst = largest ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int64_t>::max();
      if (dtype == DType::i32) worst = largest ? INT32_MIN : INT32_MAX;
      if (dtype == DType::u8) worst = largest ? 0 : 255;
      tree.identity = {largest ? -infinity : infinity, worst};
      const bool indexed = c.op == ReduceOp::argmax || c.op == ReduceOp::argmin;
      tree.combine = [=](const Partial& a, const Partial& b) {
        if (!indexed) return Partial{extreme(largest, a.f, b.f), largest ? std::max(a.i, b.i) : std::min(a.i, b.i)};
        const auto better = [&](const Partial& x, const Partial& y) {
          if (!real) return largest ? x.i > y.i : x.i < y.i;
          if (std::isnan(x.f) || std::isnan(y.f)) return std::isnan(x.f) && !std::isnan(y.f);
          return largest ? x.f > y.f : x.f < y.f;
        };
        if (better(a, b)) return a;
        if (better(b, a)) return b;
        return a.index <= b.index ? a : b;
      };
    }
  }
  return tree;
}

ScalarValue expected_result(const Case& c, const Partial& p) {
  if (c.op == ReduceOp::argmax || c.op == ReduceOp::argmin) return {.dtype = DType::i64, .i = p.index};
  const DType dtype = compute_dtype(c.dtype);
  return is_floating(dtype) ? ScalarValue{.dtype = dtype, .f = p.f} : ScalarValue{.dtype = dtype, .i = p.i};
}

DType result_dtype(const Case& c) {
  return c.op == ReduceOp::argmax || c.op == ReduceOp::argmin ? DType::i64 : compute_dtype(c.dtype);
}

constexpr Case kCases[] = {
    {ReduceOp::sum, DType::f32, "sum_f32"},       {ReduceOp::sum, DType::bf16, "sum_bf16"},
    {ReduceOp::sum, DType::f16, "sum_f16"},       {ReduceOp::sum, DType::f64, "sum_f64"},
    {ReduceOp::sum, DType::i64, "sum_i64"},       {ReduceOp::sum, DType::i32, "sum_i32"},
    {ReduceOp::prod, DType::f32, "prod_f32"},     {ReduceOp::prod, DType::i64, "prod_i64"},
    {ReduceOp::max, DType::f32, "max_f32"},       {ReduceOp::max, DType::bf16, "max_bf16"},
    {ReduceOp::max, DType::i32, "max_i32"},       {ReduceOp::max, DType::u8, "max_u8"},
    {ReduceOp::min, DType::f32, "min_f32"},       {ReduceOp::min, DType::f64, "min_f64"},
    {ReduceOp::min, DType::i64, "min_i64"},       {ReduceOp::argmax, DType::f32, "argmax_f32"},
    {ReduceOp::argmax, DType::i64, "argmax_i64"}, {ReduceOp::argmax, DType::bf16, "argmax_bf16"},
    {ReduceOp::argmin, DType::f32, "argmin_f32"}, {ReduceOp::argmin, DType::u8, "argmin_u8"},
    {ReduceOp::any, DType::boolean, "any"},       {ReduceOp::all, DType::boolean, "all"},
};

void fill(Buffer& buffer, const Case& c, int64_t seed) {
  if (c.op == ReduceOp::sum || c.op == ReduceOp::prod)
    return testing::fill_moderate(buffer, static_cast<uint64_t>(seed));
  testing::fill_with_variety(buffer, static_cast<uint64_t>(seed));
  // Rare answers for any and all; NaN only in some rows.
  if (c.op == ReduceOp::any || c.op == ReduceOp::all) {
    for (int64_t i = 0; i < buffer.count(); ++i)
      buffer.set_bits(i, (testing::mix(static_cast<uint64_t>(seed * 7919 + i)) % 40 == 0) == (c.op == ReduceOp::any));
  } else if (is_floating(c.dtype) && seed % 2 == 0) {
    for (int64_t i = 0; i < buffer.count(); ++i) {
      if (std::isnan(buffer.value(i).f)) buffer.set(i, 1.0);
    }
  }
}

class ReductionOf : public ::testing::TestWithParam<Case> {};

TEST_P(ReductionOf, FollowsTheTreeAlongRows) {
  const Case& c = GetParam();
  for (const TreeKind tree : kTrees) {
    Recipe recipe(LoopKind::row);
    recipe.output(recipe.reduce(c.op, recipe.input(c.dtype), tree), result_dtype(c), StrideClass::broadcast);
    const KernelSpec& spec = recipe.finish(c.name);
    for (const CpuTarget target : testing::targets()) {
      for (const int64_t n : kLengths) {
        const int64_t rows = 2;
        Buffer in(c.dtype, rows * n), out(result_dtype(c), rows);
        fill(in, c, n);
        for (const int64_t leaf : kLeaves) {
          testing::run(spec, target, {{&in, n}, {&out, 1}}, {rows, n, 0, leaf});
          for (int64_t o = 0; o < rows; ++o) {
            ReferenceTree<Partial> expected = reference(c, [&](int64_t i) { return in.value(o * n + i); });
            expected.leaf = leaf;
            ASSERT_TRUE(testing::same_value(out.value(o), expected_result(c, expected.reduce(tree, n))))
                << name_of(target) << " n " << n << " leaf " << leaf << " tree " << static_cast<int>(tree) << " row "
                << o;
          }
        }
      }
    }
  }
}

TEST_P(ReductionOf, FollowsTheTreeDownColumns) {
  const Case& c = GetParam();
  for (const TreeKind tree : kTrees) {
    Recipe recipe(LoopKind::column);
    recipe.output(recipe.reduce(c.op, recipe.input(c.dtype), tree), result_dtype(c));
    const KernelSpec& spec = recipe.finish(c.name);
    for (const CpuTarget target : testing::targets()) {
      for (const int64_t n : {1, 7, 16, 33, 129, 300}) {
        for (const int64_t columns : {1, 5, 37, 70}) {
          const int64_t outer = 2, leaf = 24;
          Buffer in(c.dtype, outer * n * columns), out(result_dtype(c), outer * columns);
          fill(in, c, n);
          testing::run(spec, target, {{&in, n * columns, 1, columns}, {&out, columns}}, {outer, columns, n, leaf});
          EXPECT_TRUE(out.guards_intact());
          for (int64_t k = 0; k < outer * columns; ++k) {
            const int64_t o = k / columns, column = k % columns;
            ReferenceTree<Partial> expected =
                reference(c, [&](int64_t r) { return in.value((o * n + r) * columns + column); });
            expected.leaf = leaf;
            ASSERT_TRUE(testing::same_value(out.value(k), expected_result(c, expected.reduce(tree, n))))
                << name_of(target) << " n " << n << " columns " << columns << " at " << k;
          }
        }
      }
    }
  }
}

TEST_P(ReductionOf, ScansFromLeftToRight) {
  const Case& c = GetParam();
  Recipe recipe(LoopKind::scan);
  recipe.output(recipe.reduce(c.op, recipe.input(c.dtype)), result_dtype(c));
  const KernelSpec& spec = recipe.finish(c.name);
  for (const CpuTarget target : testing::targets()) {
    for (const int64_t n : {0, 1, 2, 17, 100}) {
      Buffer in(c.dtype, 2 * n), out(result_dtype(c), 2 * n);
      fill(in, c, n);
      testing::run(spec, target, {{&in, n}, {&out, n}}, {2, n});
      for (int64_t o = 0; o < 2; ++o) {
        const ReferenceTree<Partial> expected = reference(c, [&](int64_t i) { return in.value(o * n + i); });
        Partial running = expected.identity;
        for (int64_t i = 0; i < n; ++i) {
          running = expected.combine(running, expected.element(i));
          ASSERT_TRUE(testing::same_value(out.value(o * n + i), expected_result(c, running)))
              << name_of(target) << " " << i;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ReductionOf, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Reduction, OfAnEmptyRowIsTheIdentity) {
  Recipe recipe(LoopKind::row);
  const Expr x = recipe.input(DType::f32);
  recipe.output(recipe.reduce(ReduceOp::sum, x), DType::f32, StrideClass::broadcast);
  recipe.output(recipe.reduce(ReduceOp::max, x), DType::f32, StrideClass::broadcast);
  const KernelSpec& spec = recipe.finish("empty");
  for (const CpuTarget target : testing::targets()) {
    Buffer in(DType::f32, 0), sum(DType::f32, 1), max(DType::f32, 1);
    testing::run(spec, target, {{&in}, {&sum}, {&max}}, {1, 0});
    EXPECT_TRUE(sum.value(0).f == 0 && std::signbit(sum.value(0).f));
    EXPECT_EQ(max.value(0).f, -std::numeric_limits<double>::infinity());
  }
}

TEST(Reduction, DownManyColumnsGoesBlockByBlock) {
  // Two groups: the second needs the first. More columns than one block holds, the last strip partial.
  Recipe recipe(LoopKind::column);
  const Expr x = recipe.input(DType::f32);
  const Expr largest = recipe.reduce(ReduceOp::max, x);
  recipe.output(recipe.reduce(ReduceOp::sum, x - largest), DType::f32);
  const KernelSpec& spec = recipe.finish("blocks");
  for (const CpuTarget target : testing::targets()) {
    const int64_t n = 40, columns = 2201;
    Buffer in(DType::f32, n * columns), out(DType::f32, columns);
    testing::fill_moderate(in, 6);
    testing::run(spec, target, {{&in, 0, 1, columns}, {&out}}, {1, columns, n, 16});
    EXPECT_TRUE(out.guards_intact());
    for (int64_t c = 0; c < columns; ++c) {
      const auto at = [&](int64_t r) { return static_cast<float>(in.value(r * columns + c).f); };
      float most = at(0);
      for (int64_t r = 1; r < n; ++r) most = std::max(most, at(r));
      const ReferenceTree<float> tree{-0.0f, std::plus<float>(), [&](int64_t r) { return at(r) - most; }, 16};
      ASSERT_EQ(out.value(c).f, tree.reduce(TreeKind::halving, n)) << c;
    }
  }
}

TEST(Reduction, DownColumnsReadsStridedAndBroadcastOperands) {
  // x is stored transposed; w has one number per element of the reduced dim; the position is that along it.
  Recipe recipe(LoopKind::column);
  const Expr x = recipe.input(DType::bf16, StrideClass::strided), w = recipe.input(DType::f32, StrideClass::broadcast);
  const Expr position = cast(recipe.pool.leaf(ScalarOp::inner_index, DType::i64), DType::f32);
  recipe.output(recipe.reduce(ReduceOp::sum, x * w + position), DType::f32);
  const KernelSpec& spec = recipe.finish("transposed");
  for (const CpuTarget target : testing::targets()) {
    const int64_t n = 21, columns = 45;
    Buffer in(DType::bf16, n * columns), weight(DType::f32, n), out(DType::f32, columns);
    testing::fill_moderate(in, 7);
    testing::fill_moderate(weight, 8);
    testing::run(spec, target, {{&in, 0, n, 1}, {&weight, 0, 0, 1}, {&out}}, {1, columns, n, 512});
    for (int64_t c = 0; c < columns; ++c) {
      const ReferenceTree<float> tree{-0.0f, std::plus<float>(), [&](int64_t r) {
                                        const float product = static_cast<float>(in.value(c * n + r).f) *
                                                              static_cast<float>(weight.value(r).f);
                                        return product + static_cast<float>(r);
                                      }};
      ASSERT_EQ(out.value(c).f, tree.reduce(TreeKind::halving, n)) << c;
    }
  }
}

TEST(Reduction, OfNothingDownColumnsIsTheIdentity) {
  Recipe recipe(LoopKind::column);
  recipe.output(recipe.reduce(ReduceOp::sum, recipe.input(DType::f32)), DType::f32);
  const KernelSpec& spec = recipe.finish("nothing");
  for (const CpuTarget target : testing::targets()) {
    Buffer in(DType::f32, 0), out(DType::f32, 40);
    testing::run(spec, target, {{&in, 0, 1, 40}, {&out}}, {1, 40, 0});
    for (int c = 0; c < 40; ++c) EXPECT_EQ(out.bits(c), 0x80000000u);
  }
}

TEST(Reduction, MayUseAnEarlierOne) {
  // Mean, then the mean of squared distances, then both in a value along the row.
  Recipe recipe(LoopKind::row);
  const Expr x = recipe.input(DType::f32);
  const Expr n = cast(recipe.pool.leaf(ScalarOp::row_length, DType::i64), DType::f32);
  const Expr mean = recipe.reduce(ReduceOp::sum, x) / n;
  const Expr variance = recipe.reduce(ReduceOp::sum, (x - mean) * (x - mean)) / n;
  recipe.output((x - mean) / apply_scalar(ScalarOp::sqrt, variance), DType::f32);
  recipe.output(variance, DType::f32, StrideClass::broadcast);
  const KernelSpec& spec = recipe.finish("normalize");
  for (const CpuTarget target : testing::targets()) {
    constexpr int64_t kN = 1000;
    Buffer in(DType::f32, kN), out(DType::f32, kN), spread(DType::f32, 1);
    testing::fill_moderate(in, 5);
    testing::run(spec, target, {{&in}, {&out}, {&spread}}, {1, kN});
    ReferenceTree<float> tree{-0.0f, std::plus<float>(), [&](int64_t i) { return static_cast<float>(in.value(i).f); }};
    const float expected_mean = tree.reduce(TreeKind::halving, kN) / kN;
    tree.element = [&](int64_t i) {
      const float d = static_cast<float>(in.value(i).f) - expected_mean;
      return d * d;
    };
    const float expected_variance = tree.reduce(TreeKind::halving, kN) / kN;
    EXPECT_EQ(spread.value(0).f, expected_variance);
    for (int64_t i = 0; i < kN; ++i)
      ASSERT_EQ(out.value(i).f, (static_cast<float>(in.value(i).f) - expected_mean) / std::sqrt(expected_variance));
  }
}

TEST(Reduction, ReadsStridedAndBroadcastOperands) {
  Recipe recipe(LoopKind::row);
  const Expr x = recipe.input(DType::bf16, StrideClass::strided), w = recipe.input(DType::f32, StrideClass::broadcast);
  recipe.output(recipe.reduce(ReduceOp::sum, x * w), DType::f32, StrideClass::broadcast);
  const KernelSpec& spec = recipe.finish("strided");
  for (const CpuTarget target : testing::targets()) {
    for (const int64_t n : {1, 15, 16, 17, 100}) {
      Buffer in(DType::bf16, 2 * 3 * n), weight(DType::f32, 2), out(DType::f32, 2);
      testing::fill_moderate(in, 1);
      testing::fill_moderate(weight, 2);
      testing::run(spec, target, {{&in, 3 * n, 3}, {&weight, 1}, {&out, 1}}, {2, n});
      for (int64_t o = 0; o < 2; ++o) {
        const float scale = static_cast<float>(weight.value(o).f);
        const ReferenceTree<float> tree{-0.0f, std::plus<float>(), [&](int64_t i) {
                                          return static_cast<float>(in.value(3 * n * o + 3 * i).f) * scale;
                                        }};
        EXPECT_EQ(out.value(o).f, tree.reduce(TreeKind::halving, n));
      }
    }
  }
}

}  // namespace
}  // namespace tutti::codegen
