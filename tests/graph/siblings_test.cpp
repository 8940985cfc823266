// Calls that share their first inputs become one call, with the same bits.
#include <gtest/gtest.h>

#include <random>

#include "tests/graph/support/same.h"
#include "tutti/core/block_format.h"
#include "tutti/graph/compile.h"
#include "tutti/ops.h"
#include "tutti/ops/quantized/blocks.h"
#include "tutti/runtime/rank_context.h"

namespace tutti {
namespace {

using graph_test::expect_same;
using graph_test::values;

Tensor number(double value) { return full({1}, value); }
Tensor integer(int value) { return full({1}, value, DType::i32); }
Tensor codes(uint64_t seed, const Extents& sizes, DType dtype) {
  if (dtype == DType::f8e4m3fn) return facets::sample_tensor(seed, sizes, dtype, -4, 4);
  return facets::sample_tensor(seed, sizes, dtype, dtype == DType::u8 ? 0 : -127, dtype == DType::u8 ? 256 : 128);
}

// Query, key and value projections with scales and zero points of their own, and attention over their codes.
struct SelfAttention {
  int64_t dim = 32, heads = 4, kv_heads = 2;
  bool is_fp8 = false;
  std::vector<ScaledWeight> w = {};
  std::vector<AffineScale> out = {};

  SelfAttention(int64_t kv_heads, bool is_fp8) : kv_heads(kv_heads), is_fp8(is_fp8) {
    for (uint64_t i = 0; i < 3; ++i) {
      const int64_t features = (i == 0 ? heads : kv_heads) * (dim / heads);
      w.push_back({codes(10 + i, {features, dim}, is_fp8 ? DType::f8e4m3fn : DType::i8),
                   facets::sample_tensor(20 + i, {i == 1 ? 1 : features}, DType::f32, 0.01, 0.02),
                   i == 2 ? Tensor() : values({features}, 30 + i)});
      const double unit = is_fp8 ? 0.2 : 0.05;
      out.push_back(
          {number(unit + 0.01 * static_cast<double>(i)), is_fp8 ? Tensor() : integer(100 + 10 * static_cast<int>(i))});
    }
  }
  Tensor operator()(const Tensor& x, const AffineScale& of_x) const {
    const SymInt B = x.size(0), S = x.size(1);
    std::vector<CodedTensor> heads_of;
    for (size_t i = 0; i < 3; ++i) {
      const Tensor y = scaled_linear(x, w[i],
                                     {.x = of_x,
                                      .x_codes = is_fp8 ? DType::i8 : DType::u8,
                                      .out = out[i],
                                      .out_dtype = is_fp8 ? DType::f8e4m3fn : DType::u8});
      heads_of.push_back({reshape(y, {B, S, i == 0 ? heads : kv_heads, dim / heads}), out[i]});
    }
    const Tensor attended = quantized_sdpa(heads_of[0], heads_of[1], heads_of[2], {.causal = true, .out = out[0]});
    return reshape(attended, {B, S, dim});
  }
};

TEST(Siblings, QueriesKeysAndValuesAreOneProductBeforeOneAttention) {
  for (const int64_t kv_heads : {4, 2, 1})
    for (const bool is_fp8 : {false, true})
      for (const DType dtype : {DType::f32, is_fp8 ? DType::f8e4m3fn : DType::u8}) {
        const SelfAttention layer(kv_heads, is_fp8);
        const AffineScale of_x{number(0.03), is_fp8 ? Tensor() : integer(120)};
        const Tensor x = dtype == DType::f32 ? values({2, 9, 32}, 1) : codes(1, {2, 9, 32}, dtype);
        const auto f = compile([&](const Tensor& v) { return layer(v, of_x); });
        const auto apart = compile([&](const Tensor& v) { return layer(v, of_x); }, {.siblings = false});
        const Tensor eager = layer(x, of_x);
        expect_same(f(x), eager);
        expect_same(apart(x), eager);
        const auto& s = f.statistics().last;
        EXPECT_EQ(s.calls, 2) << f.explain();
        EXPECT_EQ(s.kernels, 0) << f.explain();
        EXPECT_EQ(s.siblings, 2);
        EXPECT_EQ(apart.statistics().last.calls, 4);
        EXPECT_NE(f.explain().find("scaled_linear_3"), std::string::npos) << f.explain();
      }
}

std::vector<ScaledWeight> weights(size_t count, int64_t k) {
  std::vector<ScaledWeight> all;
  for (size_t i = 0; i < count; ++i)
    all.push_back({codes(i + 1, {5 + static_cast<int64_t>(i), k}, DType::i8), number(0.02)});
  return all;
}

TEST(Siblings, ManyAreTakenFourAtATime) {
  const std::vector<ScaledWeight> w = weights(9, 16);
  const auto all = [&](const Tensor& x) {
    Tensor sum = zeros({});
    for (const ScaledWeight& one : w) sum = add(sum, tutti::sum(scaled_linear(x, one)));
    return sum;
  };
  const auto f = compile(all);
  const Tensor x = values({3, 16}, 2);
  expect_same(f(x), all(x));
  EXPECT_EQ(f.statistics().last.siblings, 6) << f.explain();  // 4 + 4 + 1
  EXPECT_NE(f.explain().find("no op takes so many calls"), std::string::npos) << f.explain();
}

TEST(Siblings, StayApartWithAReason) {
  const std::vector<ScaledWeight> w = weights(2, 16);
  const Tensor x = values({3, 16}, 2);
  const auto expect_apart = [&](const auto& function, const char* reason) {
    const auto f = compile(function);
    expect_same(f(x), function(x));
    EXPECT_EQ(f.statistics().last.siblings, 0);
    EXPECT_NE(f.explain().find(reason), std::string::npos) << f.explain();
  };
  expect_apart(
      [&](const Tensor& v) {
        return add(sum(scaled_linear(v, w[0])),
                   sum(cast(scaled_linear(v, w[1], {.out_dtype = DType::bf16}), DType::f32)));
      },
      "their attrs differ");
  const ScaledWeight fp8{codes(7, {4, 16}, DType::f8e4m3fn), number(0.1)};
  expect_apart([&](const Tensor& v) { return add(sum(scaled_linear(v, w[0])), sum(scaled_linear(v, fp8))); },
               "their attrs differ");
  expect_apart(
      [&](const Tensor& v) {
        const Tensor y = scaled_linear(v, w[0]);
        return scaled_linear(v, {w[1].codes, w[1].scale, narrow(reshape(y, {-1}), 0, 0, 6)});
      },
      "it reads what is computed between them");
}

// The second product reads a weight, or an x, that is written between the two.
TEST(Siblings, WritesBetweenThemCount) {
  const std::vector<ScaledWeight> w = weights(2, 16);
  const auto rewritten = [&](const Tensor& x, const Tensor& scale) {
    const Tensor first = scaled_linear(x, w[0]);
    mul_(scale, 2.0);
    return add(sum(first), sum(scaled_linear(x, {w[1].codes, scale})));
  };
  const auto moved = [&](const Tensor& x, const Tensor& scale) {
    const Tensor first = scaled_linear(x, w[0]);
    add_(x, 1.0);
    return add(sum(first), sum(scaled_linear(x, {w[1].codes, scale})));
  };
  const auto f = compile(rewritten);
  const auto g = compile(moved);
  for (int round = 0; round < 3; ++round) {
    const Tensor x = values({3, 16}, 2), scale = number(0.1), other_x = clone(x), other_scale = clone(scale);
    expect_same(f(x, scale), rewritten(other_x, other_scale));
    expect_same(scale, other_scale);
    expect_same(g(x, scale), moved(other_x, other_scale));
    expect_same(x, other_x);
  }
  EXPECT_EQ(f.statistics().last.siblings, 0) << f.explain();
  EXPECT_EQ(g.statistics().last.siblings, 0) << g.explain();
}

// A scale that is wrong is told as in an eager run, and before anything is written.
TEST(Siblings, ErrorsAreThoseOfAnEagerRun) {
  const std::vector<ScaledWeight> w = weights(2, 16);
  const auto function = [&](const Tensor& x, const Tensor& total, const Tensor& scale) {
    const ScaledLinearOptions options{.x = {number(0.1)}, .out = {scale}};
    const Tensor first = scaled_linear(x, w[0], options);
    add_(total, 1.0);
    return add(sum(cast(first, DType::f32)), sum(cast(scaled_linear(x, w[1], options), DType::f32)));
  };
  const auto f = compile(function);
  const Tensor x = values({3, 16}, 2), total = zeros({});
  expect_same(f(x, total, number(0.5)), function(x, zeros({}), number(0.5)));
  EXPECT_EQ(total.item(), 1);
  EXPECT_THROW(f(x, total, number(-1)), UsageError);
  EXPECT_EQ(total.item(), 1);
}

TEST(Siblings, RandomFamiliesHaveTheBitsOfAnEagerRun) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    const auto program = [seed](const Tensor& x, const Tensor& y) {
      std::mt19937 random(seed);
      std::vector<Tensor> sources{x, y};
      Tensor total = zeros({});
      for (int i = 0; i < 8; ++i) {
        const Tensor& source = sources[random() % sources.size()];
        const int64_t n = 16;
        const ScaledWeight w{codes(random() % 4 + 1, {n, 16}, random() % 5 == 0 ? DType::f8e4m3fn : DType::i8),
                             number(0.01)};
        const Tensor made = scaled_linear(source, w, {.x = random() % 3 ? AffineScale{} : AffineScale{number(0.02)}});
        total = add(total, sum(made));
        if (random() % 3 == 0) sources.push_back(made);
        if (random() % 6 == 0) mul_(sources[0], 0.5);
      }
      return total;
    };
    const auto f = compile(program);
    const Tensor x = values({4, 16}, seed), y = values({4, 16}, seed + 100), other = clone(x);
    expect_same(f(x, y), program(other, y));
    expect_same(x, other);
  }
}

struct Blocks {
  BlockFormat format;
  Tensor values;
};
std::vector<Blocks> blocks(std::initializer_list<BlockFormat> formats, int64_t elements) {
  std::vector<Blocks> all;
  for (const BlockFormat format : formats) {
    const auto i = static_cast<int64_t>(all.size());
    all.push_back({format, quantized::sample_blocks(static_cast<uint64_t>(i + 5), format, 21 - 6 * i, elements)});
  }
  return all;
}

// Projections of queries, keys and values whose weights are quantized blocks round x once. Formats may differ, as those
// of Q4_K_M files do, where their blocks have as many elements.
TEST(Siblings, ProductsWithBlocksQuantizeXOnce) {
  using enum BlockFormat;
  for (const auto& [w, calls] : {std::pair{blocks({q4_k, q4_k, q6_k}, 2560), 1},
                                 {blocks({q5_k, q6_k, q4_k, q5_k}, 256), 1},
                                 {blocks({q4_1, q8_0}, 288), 1},
                                 {blocks({q4_0, q5_0, q5_1}, 64), 1},
                                 {blocks({q4_k, q8_0, q6_k, q4_0}, 512), 2},
                                 {blocks({q4_k, q4_0}, 512), 2}}) {
    const auto function = [&w = w](const Tensor& x) {
      Tensor total = zeros({});
      for (const Blocks& one : w) total = add(total, sum(quantized_linear(x, one.values, one.format)));
      return total;
    };
    const auto products = [&w = w](const Tensor& x) {
      std::vector<Tensor> results;
      for (const Blocks& one : w) results.push_back(quantized_linear(x, one.values, one.format));
      return results;
    };
    const int64_t k = quantized::elements_of_row(w[0].values.size(1), w[0].format).value();
    const auto f = compile(function);
    const auto g = compile(products);
    const auto apart = compile(products, {.siblings = false});
    for (const int64_t rows : {1, 3, 4, 5, 0, 530})
      for (const int threads : {1, 2, 4}) {
        const Tensor x = values({2, rows, k}, static_cast<uint64_t>(rows));
        const std::vector<Tensor> expected = products(x);
        RankContext::current().set_threads(threads);
        const std::vector<Tensor> merged = g(x), single = apart(x);
        expect_same(f(x), function(x));
        RankContext::current().set_threads(0);
        for (size_t i = 0; i < w.size(); ++i) {
          expect_same(merged[i], expected[i]);
          expect_same(single[i], expected[i]);
        }
      }
    EXPECT_EQ(g.statistics().last.calls, calls) << g.explain();
    EXPECT_EQ(apart.statistics().last.calls, static_cast<int64_t>(w.size())) << apart.explain();
    EXPECT_EQ(g.statistics().last.siblings, static_cast<int64_t>(w.size()) - calls) << g.explain();
  }
}

TEST(Siblings, ProductsWithBlocksStayApartWithAReason) {
  const std::vector<Blocks> w = blocks({BlockFormat::q4_k, BlockFormat::q6_k}, 256);
  const auto function = [&](const Tensor& x) {
    return add(sum(quantized_linear(x, w[0].values, w[0].format)),
               sum(cast(quantized_linear(x, w[1].values, w[1].format, DType::bf16), DType::f32)));
  };
  const auto f = compile(function);
  const Tensor x = values({3, 256}, 2);
  expect_same(f(x), function(x));
  EXPECT_EQ(f.statistics().last.siblings, 0);
  EXPECT_NE(f.explain().find("their attrs differ"), std::string::npos) << f.explain();
}

// One trace serves every number of rows.
TEST(Siblings, RowsMayBeSymbols) {
  const std::vector<ScaledWeight> w = weights(3, 16);
  const auto function = [&](const Tensor& x) {
    Tensor total = sum(scaled_linear(x, w[0]), -1);
    for (size_t i = 1; i < w.size(); ++i) total = add(total, sum(scaled_linear(x, w[i]), -1));
    return total;
  };
  const auto f = compile(function, {.dynamic = {{.tensor = 0, .dim = 0}}});
  for (const int64_t rows : {5, 2, 9, 33, 6}) {
    const Tensor x = values({rows, 16}, static_cast<uint64_t>(rows));
    expect_same(f(x), function(x));
  }
  EXPECT_EQ(f.statistics().compiles, 1) << f.explain();
  EXPECT_EQ(f.statistics().last.siblings, 2) << f.explain();
}

}  // namespace
}  // namespace tutti
