#include "tutti/ops/table_batched_step.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <map>

#include "tests/support/message_of.h"
#include "tests/support/same_bits.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/slice.h"
#include "tutti/ops/sum_to.h"
#include "tutti/ops/table_batched_weights_backward.h"
#include "tutti/runtime/rank_context.h"

namespace tutti {
namespace {

constexpr int64_t kRows = 12, kColumns = 21, kBags = 9;

std::vector<double> doubles(const Tensor& t) {
  std::vector<double> list(static_cast<size_t>(t.numel()));
  for (size_t i = 0; i < list.size(); ++i) list[i] = facets::read_double(t, static_cast<int64_t>(i));
  return list;
}

// Table 0 of kColumns columns is looked up by features 0 and 2, table 1 of 3 columns by feature 1.
TableUse use_of_step(uint64_t seed, int64_t bags = kBags, int64_t rows = kRows) {
  const Tensor lengths = facets::sample_tensor(seed, {3 * bags}, DType::i64, 0, 5);
  std::vector<int64_t> offsets = {0};
  for (int64_t k = 0; k < 3 * bags; ++k) offsets.push_back(offsets.back() + lengths.data<int64_t>()[k]);
  return {
      .grad = facets::sample_tensor(seed + 1, {bags, 2 * kColumns + 3}),
      .batch = {.indices = facets::sample_tensor(seed + 2, {offsets.back()}, DType::i64, 0, static_cast<double>(rows)),
                .offsets = Tensor::of<int64_t>(offsets),
                .features = {0, 1, 0}}};
}
TableOfBatch first_table(int64_t rows = kRows) { return {0, {kColumns, 3}, rows}; }

// The gradient of each row that has one: the definition, without an order.
std::map<int64_t, std::vector<double>> gradients(const TableUse& use, TablePooling pooling) {
  std::map<int64_t, std::vector<double>> rows;
  const int64_t* offsets = use.batch.offsets.data<int64_t>();
  for (const int64_t feature : {0, 2}) {
    for (int64_t b = 0; b < kBags; ++b) {
      const int64_t begin = offsets[feature * kBags + b], end = offsets[feature * kBags + b + 1];
      for (int64_t p = begin; p < end; ++p) {
        std::vector<double>& g = rows[use.batch.indices.data<int64_t>()[p]];
        g.resize(kColumns);
        const double factor =
            use.batch.per_sample_weights.defined() ? use.batch.per_sample_weights.data<float>()[p] : 1.0;
        for (int64_t d = 0; d < kColumns; ++d)
          g[static_cast<size_t>(d)] +=
              factor * use.grad.data<float>()[b * (2 * kColumns + 3) + (feature == 0 ? 0 : kColumns + 3) + d] /
              (pooling == TablePooling::mean ? static_cast<double>(end - begin) : 1.0);
      }
    }
  }
  return rows;
}

double mean_of_squares(const std::vector<double>& v) {
  double sum = 0;
  for (const double x : v) sum += x * x;
  return sum / static_cast<double>(v.size());
}

// The optimizers in double, as spec and header have them.
struct Definition {
  TableStep options;
  std::vector<double> w, first, second;
  std::vector<int64_t> seen;

  void step(int64_t row, const std::vector<double>& g) {
    const TableStep& o = options;
    const size_t at = static_cast<size_t>(row) * kColumns, one = static_cast<size_t>(row);
    const double t = static_cast<double>(o.step);
    switch (o.optimizer) {
      case TableOptimizer::sgd:
        for (size_t d = 0; d < kColumns; ++d) w[at + d] -= o.lr * g[d];
        return;
      case TableOptimizer::adagrad:
        for (size_t d = 0; d < kColumns; ++d) {
          first[at + d] += g[d] * g[d];
          w[at + d] -= o.lr * g[d] / (std::sqrt(first[at + d]) + o.eps);
        }
        return;
      case TableOptimizer::rowwise_adagrad: {
        if (o.decay == TableDecay::global) {
          if (seen[one] > 0)
            for (size_t d = 0; d < kColumns; ++d)
              w[at + d] *=
                  std::max(o.least_decay, std::pow(1 - o.lr * o.weight_decay, t - static_cast<double>(seen[one]) - 1));
          seen[one] = o.step;
        }
        std::vector<double> decayed = g;
        for (size_t d = 0; o.decay == TableDecay::l2 && d < kColumns; ++d) decayed[d] += o.weight_decay * w[at + d];
        first[one] += mean_of_squares(decayed);
        const double mu = o.lr / (std::sqrt(first[one]) + o.eps);
        const double keep = o.decay == TableDecay::none ? 1
                            : o.decay == TableDecay::l2 ? 1 - mu * o.weight_decay
                                                        : 1 - o.lr * o.weight_decay;
        double squares = 0;
        for (size_t d = 0; d < kColumns; ++d) {
          w[at + d] = keep * w[at + d] - mu * g[d];
          squares += w[at + d] * w[at + d];
        }
        if (o.max_norm > 0 && std::sqrt(squares) > o.max_norm)
          for (size_t d = 0; d < kColumns; ++d) w[at + d] *= o.max_norm / std::sqrt(squares);
        return;
      }
      case TableOptimizer::adam:
      case TableOptimizer::partial_rowwise_adam: {
        const bool rowwise = o.optimizer == TableOptimizer::partial_rowwise_adam;
        if (rowwise) second[one] = o.beta2 * second[one] + (1 - o.beta2) * mean_of_squares(g);
        for (size_t d = 0; d < kColumns; ++d) {
          first[at + d] = o.beta1 * first[at + d] + (1 - o.beta1) * g[d];
          double& v = rowwise ? second[one] : second[at + d];
          if (!rowwise) v = o.beta2 * v + (1 - o.beta2) * g[d] * g[d];
          w[at + d] -=
              o.lr * (first[at + d] / (1 - std::pow(o.beta1, t)) / (std::sqrt(v / (1 - std::pow(o.beta2, t))) + o.eps) +
                      o.weight_decay * w[at + d]);
        }
      }
    }
  }
};

std::vector<TableStep> all_steps() {
  using enum TableOptimizer;
  std::vector<TableStep> list;
  for (const TableOptimizer optimizer : {sgd, adagrad, rowwise_adagrad, adam, partial_rowwise_adam})
    list.push_back({.optimizer = optimizer, .lr = 0.05});
  for (const size_t adam_like : {size_t{3}, size_t{4}}) list[adam_like].weight_decay = 0.1;
  for (const TableDecay decay : {TableDecay::l2, TableDecay::decoupled, TableDecay::global})
    list.push_back({.optimizer = rowwise_adagrad, .lr = 0.05, .weight_decay = 0.3, .decay = decay});
  list.push_back(
      {.optimizer = rowwise_adagrad, .lr = 0.05, .weight_decay = 0.3, .decay = TableDecay::l2, .max_norm = 4});
  list.push_back(
      {.optimizer = rowwise_adagrad, .lr = 0.3, .weight_decay = 0.3, .decay = TableDecay::global, .least_decay = 0.9});
  return list;
}

void expect_near(const std::vector<double>& actual, const std::vector<double>& expected, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i)
    ASSERT_NEAR(actual[i], expected[i], 2e-5 * (1 + std::fabs(expected[i]))) << what << " " << i;
}

TEST(TableBatchedStep, FollowsTheDefinitionForTwentySteps) {
  for (TableStep options : all_steps()) {
    for (const TablePooling pooling : {TablePooling::sum, TablePooling::mean}) {
      for (const bool weighted : {false, true}) {
        const std::string what =
            fmt::format("optimizer {} decay {} pooling {} weighted {}", static_cast<int>(options.optimizer),
                        static_cast<int>(options.decay), static_cast<int>(pooling), weighted);
        const Tensor table = facets::sample_tensor(1, {kRows, kColumns});
        const TableState state = table_state(options, kRows, kColumns);
        Definition expected{options, doubles(table), std::vector<double>(kRows * kColumns),
                            std::vector<double>(kRows * kColumns), std::vector<int64_t>(kRows)};
        for (int64_t step = 1; step <= 20; ++step) {
          TableUse use = use_of_step(static_cast<uint64_t>(10 * step));
          // Some rows rest for steps.
          for (int64_t p = 0; p < use.batch.indices.numel(); ++p) {
            int64_t& row = use.batch.indices.data<int64_t>()[p];
            if (row % 4 == step % 4) row = 0;
          }
          if (weighted) use.batch.per_sample_weights = facets::sample_tensor(9, use.batch.indices.extents());
          options.step = expected.options.step = step;
          table_batched_step_(table, state, std::vector{use}, first_table(), options, {.pooling = pooling});
          for (const auto& [row, g] : gradients(use, pooling)) expected.step(row, g);
          expect_near(doubles(table), expected.w, what + " weights");
        }
        const auto expect_state = [&](const Tensor& t, std::vector<double> e) {
          if (!t.defined()) return;
          e.resize(static_cast<size_t>(t.numel()));
          expect_near(doubles(t), e, what + " state");
        };
        expect_state(state.first, expected.first);
        expect_state(state.second, expected.second);
        if (state.seen.defined()) {
          for (size_t i = 0; i < kRows; ++i) EXPECT_EQ(state.seen.data<int64_t>()[i], expected.seen[i]) << what;
        }
      }
    }
  }
}

TEST(TableBatchedStep, HasTheBitsOfStepsOnTheDenseGradient) {
  const TableUse use = use_of_step(3, 500, 40);
  const Tensor start = facets::sample_tensor(1, {40, kColumns}), table = clone(start);
  table_batched_step_(table, {}, std::vector{use}, first_table(40), {.optimizer = TableOptimizer::sgd, .lr = 0.1});
  const Tensor dense = table_batched_backward(std::vector{use}, first_table(40));
  for (int64_t i = 0; i < start.numel(); ++i)
    ASSERT_EQ(table.data<float>()[i], start.data<float>()[i] - 0.1f * dense.data<float>()[i]) << i;
  const RowGradients rows = table_batched_row_gradients(std::vector{use}, first_table(40)).trimmed();
  for (int64_t i = 0; i < rows.rows.numel(); ++i)
    expect_same_bits(clone(narrow(rows.values, 0, i, 1)), clone(narrow(dense, 0, rows.rows.data<int64_t>()[i], 1)));
}

TEST(TableBatchedStep, LeavesRowsWithoutAnEntryAlone) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor table = full({4, 2}, nan), h = full({4}, nan);
  for (int64_t d = 0; d < 2; ++d) table.data<float>()[2 + d] = 1;
  h.data<float>()[1] = 0;
  const TableUse use{.grad = Tensor::of<float>({3, 4}, {1, 2}),
                     .batch = {.indices = Tensor::of<int32_t>({1}), .offsets = Tensor::of<int32_t>({0, 1})}};
  table_batched_step_(table, {.first = h}, std::vector{use}, {0, {2}, 4}, {.lr = 0.5, .eps = 0});
  const float mu = 0.5f / std::sqrt(12.5f);
  EXPECT_EQ(table.data<float>()[2], 1 - mu * 3);
  EXPECT_EQ(table.data<float>()[3], 1 - mu * 4);
  for (const int64_t row : {0, 2, 3})
    EXPECT_TRUE(std::isnan(table.data<float>()[2 * row]) && std::isnan(h.data<float>()[row]));
  // NaN of a row, or of its gradient, stays in that row.
  const TableUse poisoned{.grad = Tensor::of<float>({nan, 1}, {1, 2}), .batch = use.batch};
  table_batched_step_(table, {.first = h}, std::vector{poisoned}, {0, {2}, 4}, {.lr = 0.5});
  EXPECT_TRUE(std::isnan(table.data<float>()[2]) && std::isnan(h.data<float>()[1]));
}

TEST(TableBatchedStep, MakesRowsZeroWhoseNormOverflows) {
  const Tensor table = Tensor::of<float>({1e19f, 1e19f, 2e19f, 1}, {2, 2});
  const TableUse use{.grad = zeros({2, 2}),
                     .batch = {.indices = Tensor::of<int64_t>({0, 1}), .offsets = Tensor::of<int64_t>({0, 1, 2})}};
  const TableStep options{.max_norm = 2};
  table_batched_step_(table, table_state(options, 2, 2), std::vector{use}, {0, {2}, 2}, options);
  EXPECT_NEAR(table.data<float>()[0], std::sqrt(2.0f), 1e-5f);
  EXPECT_EQ(table.data<float>()[2], 0.0f);
  EXPECT_EQ(table.data<float>()[3], 0.0f);
}

// ---- the order of sums ----------------------------------------------------------------------------------------------

// One feature whose bags hold row 0 once each, and gradients g.
TableUse bags_of_one(const std::vector<float>& g) {
  std::vector<int64_t> offsets(g.size() + 1);
  for (size_t b = 0; b < offsets.size(); ++b) offsets[b] = static_cast<int64_t>(b);
  const int64_t n = static_cast<int64_t>(g.size());
  return {.grad = Tensor::of<float>(g, {n, 1}),
          .batch = {.indices = zeros({n}, DType::i64), .offsets = Tensor::of<int64_t>(offsets)}};
}
float sum_of(std::vector<TableUse> uses) { return *table_batched_backward(uses, {0, {1}, 1}).data<float>(); }

TEST(TableBatchedBackward, ChainsInsideARangeHalvesOverRangesOfAllFeaturesThenOverShards) {
  const TokenGrainScope grain(2);
  const float a = 1.0f, b = 0x1p-24f, c = 0x1p-25f, d = 0x1p-24f, e = 0x1p-23f, f = 3.0f;
  EXPECT_EQ(sum_of({bags_of_one({a, b, c, d, e})}), ((a + b) + (c + d)) + e);
  // Values where other orders round otherwise: half a unit behind 1, and three eighths of one.
  const float half = 0x1p-24f, less = 0x1.8p-25f, above = 1.0f + 0x1p-23f;
  EXPECT_EQ(sum_of({bags_of_one({1, half, half, half, less})}), above);  // one chain: 1
  EXPECT_EQ(sum_of({bags_of_one({1, 0, half, 0, less})}), 1.0f);         // (first) (second third): above
  // Features of 5 bags and of 1, ranges (1 0) (0 0) (half) and (less): those of the table are halved as one row, the
  // first feature first. Each feature by itself, or the other one first: 1.
  EXPECT_EQ(sum_of({TableUse{.grad = Tensor::of<float>({1, 0, 0, 0, half, less}),
                             .batch = {.indices = zeros({6}, DType::i64),
                                       .offsets = Tensor::of<int64_t>({0, 1, 2, 3, 4, 5, 6}),
                                       .features = {0, 0},
                                       .bags = {5, 1}}}}),
            above);
  // Two features of one table with three bags each: ranges (a b) (c) (d e) (f), halved as one row of ranges.
  TableUse two{.grad = Tensor::of<float>({a, d, b, e, c, f}, {3, 2}),
               .batch = {.indices = zeros({6}, DType::i64),
                         .offsets = Tensor::of<int64_t>({0, 1, 2, 3, 4, 5, 6}),
                         .features = {0, 0}}};
  EXPECT_EQ(sum_of({two}), ((a + b) + c) + ((d + e) + f));
  // Shards at the places 0, 1 and 2: (0 + 1) + 2; at 1, 2 and 3: 1 + (2 + 3).
  EXPECT_EQ(sum_of({bags_of_one({a}), bags_of_one({b}), bags_of_one({c})}), (a + b) + c);
  EXPECT_EQ(sum_of({TableUse{}, bags_of_one({a}), bags_of_one({b}), bags_of_one({b})}), a + (b + b));
}

TEST(TableBatchedStep, HasTheSameBitsForAnyDivisionIntoEmptyBagsAndThreads) {
  RankContext& context = RankContext::current();
  const TableUse use = use_of_step(5, 700, 30);
  const std::vector<TableUse> shards = {use_of_step(5, 700, 30), use_of_step(6, 200, 30), TableUse{},
                                        use_of_step(7, 90, 30)};
  for (TableStep options : all_steps()) {
    std::vector<Tensor> tables;
    for (const int threads : {1, 2, 4}) {
      context.set_threads(threads);
      tables.push_back(facets::sample_tensor(1, {30, kColumns}));
      const TableState state = table_state(options, 30, kColumns);
      for (options.step = 1; options.step < 4; ++options.step)
        table_batched_step_(tables.back(), state, shards, first_table(30), options, {.pooling = TablePooling::mean});
    }
    context.set_threads(0);
    expect_same_bits(tables[1], tables[0]);
    expect_same_bits(tables[2], tables[0]);
  }
}

TEST(TableBatchedStep, SumsOneRowHitAMillionTimesWithTheSameBitsOnAnyNumberOfThreads) {
  RankContext& context = RankContext::current();
  const int64_t bags = int64_t{1} << 20, columns = 4;
  TableUse use{.grad = facets::sample_tensor(1, {bags, columns}),
               .batch = {.indices = zeros({bags}, DType::i32), .offsets = Tensor::empty({bags + 1}, DType::i64)}};
  for (int64_t b = 0; b <= bags; ++b) use.batch.offsets.data<int64_t>()[b] = b;
  for (int64_t b = 0; b < bags; b += 20) use.batch.indices.data<int32_t>()[b] = static_cast<int32_t>(b % 7);
  std::vector<Tensor> tables;
  for (const int threads : {1, 2, 4}) {
    context.set_threads(threads);
    tables.push_back(zeros({8, columns}));
    table_batched_step_(tables.back(), {}, std::vector{use}, {0, {columns}, 8},
                        {.optimizer = TableOptimizer::sgd, .lr = 1});
  }
  context.set_threads(0);
  expect_same_bits(tables[1], tables[0]);
  expect_same_bits(tables[2], tables[0]);
  std::vector<double> exact(8 * columns);
  for (int64_t b = 0; b < bags; ++b)
    for (int64_t d = 0; d < columns; ++d)
      exact[static_cast<size_t>(use.batch.indices.data<int32_t>()[b] * columns + d)] -=
          use.grad.data<float>()[b * columns + d];
  for (size_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(tables[0].data<float>()[i], exact[i], 0.05) << i;
}

TEST(TableBatchedStep, LeavesOutIndicesOutOfRangeOnAnyNumberOfThreads) {
  RankContext& context = RankContext::current();
  const int64_t bags = 50000, rows = 30, columns = 3;
  TableUse use{.grad = facets::sample_tensor(1, {bags, columns}),
               .batch = {.indices = facets::sample_tensor(2, {4 * bags}, DType::i64, -3, 35),
                         .offsets = Tensor::empty({bags + 1}, DType::i32)}};
  for (int64_t b = 0; b <= bags; ++b) use.batch.offsets.data<int32_t>()[b] = static_cast<int32_t>(4 * b);
  std::vector<double> exact(rows * columns);
  for (int64_t p = 0; p < 4 * bags; ++p) {
    const int64_t row = use.batch.indices.data<int64_t>()[p];
    for (int64_t d = 0; row >= 0 && row < rows && d < columns; ++d)
      exact[static_cast<size_t>(row * columns + d)] -= use.grad.data<float>()[p / 4 * columns + d];
  }
  std::vector<Tensor> tables;
  for (const int threads : {1, 2, 4}) {
    context.set_threads(threads);
    tables.push_back(zeros({rows, columns}));
    table_batched_step_(tables.back(), {}, std::vector{use}, {0, {columns}, rows},
                        {.optimizer = TableOptimizer::sgd, .lr = 1}, {.bounds = BoundsCheck::ignore});
  }
  context.set_threads(0);
  expect_same_bits(tables[1], tables[0]);
  expect_same_bits(tables[2], tables[0]);
  for (size_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(tables[0].data<float>()[i], exact[i], 0.01) << i;
}

TEST(TableBatchedStep, WritesViewsOfTables) {
  const TableUse use = use_of_step(4);
  for (const TableStep& options : all_steps()) {
    const Tensor whole = facets::sample_tensor(2, {2 * kRows, 3 * kColumns}),
                 turned = facets::sample_tensor(3, {kColumns, kRows});
    for (const Tensor& view : {slice(narrow(whole, 1, 4, kColumns), 0, 0, 2 * kRows, 2), transpose(turned, 0, 1)}) {
      const Tensor dense = clone(view);
      const TableState a = table_state(options, kRows, kColumns), b = table_state(options, kRows, kColumns);
      table_batched_step_(dense, a, std::vector{use}, first_table(), options);
      table_batched_step_(view, b, std::vector{use}, first_table(), options);
      expect_same_bits(clone(view), dense);
    }
  }
}

// ---- narrow tables --------------------------------------------------------------------------------------------------

TEST(TableBatchedStep, RoundsAtRandomToNeighboursAndKeepsTheMean) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    // Values whose neighbours are 2^-7 (bf16) or 2^-10 (f16) apart, and for f16 one among its least.
    const double apart = dtype == DType::bf16 ? 0x1p-7 : 0x1p-10;
    for (const double lower : {1.0, -1.0, dtype == DType::f16 ? 0x1p-24 : 0x1p-100}) {
      const double spacing = std::fabs(lower) == 1 ? apart : dtype == DType::f16 ? 0x1p-24 : 0x1p-107;
      const int64_t columns = 40000;
      const Tensor table = cast(full({1, columns}, lower), dtype);
      const TableUse use{.grad = full({1, columns}, -0.25 * spacing * (lower < 0 ? -1 : 1)),
                         .batch = {.indices = zeros({1}, DType::i64), .offsets = Tensor::of<int64_t>({0, 1})}};
      TableStep options{.optimizer = TableOptimizer::sgd, .lr = 1, .seed = 5};
      const Tensor first = clone(table), again = clone(table), other = clone(table), nearest = clone(table);
      table_batched_step_(first, {}, std::vector{use}, {0, {columns}, 1}, options);
      table_batched_step_(again, {}, std::vector{use}, {0, {columns}, 1}, options);
      expect_same_bits(again, first);
      const Tensor seeded = clone(table);
      options.seed = 6;
      table_batched_step_(seeded, {}, std::vector{use}, {0, {columns}, 1}, options);
      options.seed = 5;
      options.step = 2;
      table_batched_step_(other, {}, std::vector{use}, {0, {columns}, 1}, options);
      int64_t moved = 0, differ = 0, differ_by_seed = 0;
      for (int64_t i = 0; i < columns; ++i) {
        const double x = facets::read_double(first, i), y = facets::read_double(other, i);
        ASSERT_TRUE(x == lower || x == lower + spacing * (lower < 0 ? -1 : 1)) << x;
        moved += x != lower;
        differ += x != y;
        differ_by_seed += x != facets::read_double(seeded, i);
      }
      EXPECT_NEAR(static_cast<double>(moved) / columns, 0.25, 0.01);
      EXPECT_NEAR(static_cast<double>(differ) / columns, 2 * 0.25 * 0.75, 0.015);  // another step draws anew
      EXPECT_NEAR(static_cast<double>(differ_by_seed) / columns, 2 * 0.25 * 0.75, 0.015);
      options.stochastic_rounding = false;
      table_batched_step_(nearest, {}, std::vector{use}, {0, {columns}, 1}, options);
      expect_same_bits(nearest, table);
    }
  }
}

TEST(TableBatchedStep, RoundsInfinityAndNaNToThemselves) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Tensor table = cast(zeros({1, 3}), dtype);
    const TableUse use{.grad = Tensor::of<float>({-inf, nan, inf}, {1, 3}),
                       .batch = {.indices = zeros({1}, DType::i64), .offsets = Tensor::of<int64_t>({0, 1})}};
    table_batched_step_(table, {}, std::vector{use}, {0, {3}, 1}, {.optimizer = TableOptimizer::sgd, .lr = 1});
    EXPECT_EQ(facets::read_double(table, 0), inf);
    EXPECT_TRUE(std::isnan(facets::read_double(table, 1)));
    EXPECT_EQ(facets::read_double(table, 2), -inf);
  }
}

TEST(TableBatchedStep, KeepsEveryNaNOfManyElements) {
  const int64_t columns = 4000;
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const uint32_t bits : {0x7fffffffu, 0xffffffffu, 0x7fffe000u, 0xffffe000u, 0x7fc00000u}) {
      const Tensor table = cast(zeros({1, columns}), dtype), grad = zeros({1, columns});
      for (int64_t d = 0; d < columns; ++d) grad.data<float>()[d] = std::bit_cast<float>(bits);
      const TableUse use{.grad = grad,
                         .batch = {.indices = zeros({1}, DType::i64), .offsets = Tensor::of<int64_t>({0, 1})}};
      table_batched_step_(table, {}, std::vector{use}, {0, {columns}, 1}, {.optimizer = TableOptimizer::sgd, .lr = 1});
      for (int64_t d = 0; d < columns; ++d)
        ASSERT_TRUE(std::isnan(facets::read_double(table, d))) << fmt::format("{:#x} {}", bits, d);
    }
  }
}

// ---- what is refused ------------------------------------------------------------------------------------------------

TEST(TableBatchedStep, NamesWhatIsWrong) {
  const Tensor table = zeros({kRows, kColumns});
  const TableUse use = use_of_step(1);
  const auto with = [&](const TableStep& options, const TableState& state, const TableUse& u) {
    return message_of([&] { table_batched_step_(table, state, std::vector{u}, first_table(), options); });
  };
  const auto plain = [&](const TableStep& options) { return with(options, table_state({}, kRows, kColumns), use); };
  EXPECT_EQ(plain({.lr = -1}), "table_batched_step_: lr is -1; expected 0 or more");
  EXPECT_EQ(plain({.beta2 = 1}), "table_batched_step_: beta is 1; expected at least 0 and less than 1");
  EXPECT_EQ(plain({.step = 0}), "table_batched_step_: step is 0; the first step is 1");
  EXPECT_EQ(plain({.weight_decay = 0.1}),
            "table_batched_step_: weight_decay is 0.1, but decay is none; choose l2, decoupled or global");
  EXPECT_EQ(plain({.optimizer = TableOptimizer::sgd, .weight_decay = 0.1}),
            "table_batched_step_: weight_decay is 0.1, but SGD and Adagrad do not decay");
  EXPECT_EQ(plain({.optimizer = TableOptimizer::adam, .max_norm = 1}),
            "table_batched_step_: decay modes, least_decay and max_norm belong to row-wise Adagrad");
  EXPECT_EQ(plain({.optimizer = TableOptimizer::adagrad}),
            "table_batched_adagrad_: state 1 is [12] f32 cpu; expected what table_state() makes");
  EXPECT_EQ(with({}, {}, use),
            "table_batched_rowwise_adagrad_: state 1 is <undefined>; expected what table_state() makes");
  EXPECT_EQ(with({}, table_state({}, 5, 1), use),
            "table_batched_rowwise_adagrad_: state [5] f32 cpu beside the table [12, 21] f32 cpu; expected f32 of its "
            "sizes, or one element a row");
  EXPECT_EQ(with({}, table_state({}, kRows, kColumns), {}),
            "table_batched_rowwise_adagrad_: there is no gradient; give that of at least one shard");
  TableUse bad = use;
  bad.batch.indices = clone(use.batch.indices);
  bad.batch.indices.data<int64_t>()[0] = kRows;
  const int64_t bag = [&] {
    int64_t b = 0;
    while (bad.batch.offsets.data<int64_t>()[b + 1] == 0) ++b;
    return b;
  }();
  const Tensor before = clone(table);
  EXPECT_EQ(
      with({}, table_state({}, kRows, kColumns), bad),
      fmt::format("table_batched_rowwise_adagrad_: 1 of the indices is out of range; the first is 12 of feature 0, "
                  "bag {} (position 0), whose table has 12 rows; legal: 0 to 11",
                  bag));
  expect_same_bits(table, before);
  bad = use;
  bad.grad = zeros({kBags + 1, 2 * kColumns + 3});
  EXPECT_EQ(with({}, table_state({}, kRows, kColumns), bad),
            "table_batched_rowwise_adagrad_: the gradient is [10, 45] f32 cpu for 9 bags of each feature");
  for (const int64_t columns : {kColumns, 2 * kColumns + 4}) {
    bad.grad = zeros({kBags, columns});
    EXPECT_EQ(with({}, table_state({}, kRows, kColumns), bad),
              fmt::format("table_batched_rowwise_adagrad_: the gradient is [9, {}] f32 cpu; expected [9, 45], for 3 "
                          "features with 9 bags each and 45 columns together",
                          columns));
  }
  bad.grad = zeros({kBags * (2 * kColumns + 3)});
  EXPECT_EQ(with({}, table_state({}, kRows, kColumns), bad),
            "table_batched_rowwise_adagrad_: the gradient is [405] f32 cpu; expected [9, 45], for 3 features with 9 "
            "bags each and 45 columns together");
  expect_same_bits(table, before);
}

TEST(TableBatchedBackward, WantsGradientsOfTheSizesOfTheBatch) {
  const std::vector<Tensor> tables = {zeros({kRows, kColumns}), zeros({kRows, 3})};
  TableUse use = use_of_step(1);
  const auto messages = [&](const TableUse& u, const TableOfBatch& which) {
    return std::vector{message_of([&] { table_batched_backward(std::vector{u}, which); }),
                       message_of([&] { table_batched_row_gradients(std::vector{u}, which); }),
                       message_of([&] { table_batched_weights_backward(tables, u); })};
  };
  const char* const ops[] = {"table_batched_backward", "table_batched_row_gradients", "table_batched_weights_backward"};
  const std::vector<std::string> fine = messages(use, first_table());
  for (const std::string& text : fine) EXPECT_EQ(text, message_of([] {}));
  // A flat gradient of bags that are equally many.
  TableUse flat = use;
  flat.grad = zeros({kBags * (2 * kColumns + 3)});
  for (size_t i = 0; i < 3; ++i)
    EXPECT_EQ(messages(flat, first_table())[i],
              fmt::format("{}: the gradient is [405] f32 cpu; expected [9, 45], for 3 features with 9 bags each and 45 "
                          "columns together",
                          ops[i]));
  // One of two dims for bags of each feature.
  TableUse own = use;
  own.batch.bags = {kBags, kBags, kBags};
  for (size_t i = 0; i < 3; ++i)
    EXPECT_EQ(
        messages(own, first_table())[i],
        fmt::format("{}: the gradient is [9, 45] f32 cpu; expected [405], one dim, for 3 features with numbers of "
                    "bags of their own",
                    ops[i]));
  own.grad = zeros({kBags * (2 * kColumns + 3)});
  for (const std::string& text : messages(own, first_table())) EXPECT_EQ(text, message_of([] {}));
  own.grad = zeros({kBags * (2 * kColumns + 3) + 1});
  EXPECT_EQ(messages(own, first_table())[0],
            "table_batched_backward: the gradient is [406] f32 cpu; expected [405], one dim, for 3 features with "
            "numbers of bags of their own");
  // Widths of tables that are not those of the forward.
  EXPECT_EQ(messages(use, {0, {kColumns - 1, 3}, kRows})[0],
            "table_batched_backward: the gradient is [9, 45] f32 cpu; expected [9, 43], for 3 features with 9 bags "
            "each and 43 columns together");
  // A wrong number of bags is refused before memory of its size is asked for.
  own.batch.bags = {1, 1, int64_t{1} << 40};
  EXPECT_EQ(messages(own, first_table())[0],
            "table_batched_backward: 28 offsets for 1099511627778 bags; expected the number of all bags + 1");
}

TEST(TableBatchedBackward, LeavesOutTheExtremesOfIndices) {
  const int64_t lowest = std::numeric_limits<int64_t>::min(), highest = std::numeric_limits<int64_t>::max();
  const TableUse use{.grad = Tensor::of<float>({1, 2, 4}, {3, 1}),
                     .batch = {.indices = Tensor::of<int64_t>({lowest, 1, -1, highest, 2, 1, int64_t{1} << 32}),
                               .offsets = Tensor::of<int64_t>({0, 2, 5, 7})}};
  for (const BoundsCheck bounds : {BoundsCheck::ignore, BoundsCheck::warning}) {
    const RowGradients rows = table_batched_row_gradients(std::vector{use}, {0, {1}, 3}, {.bounds = bounds}).trimmed();
    expect_same_bits(rows.rows, Tensor::of<int64_t>({1, 2}));
    expect_same_bits(rows.values, Tensor::of<float>({5, 2}, {2, 1}));
  }
  const TableUse narrow{.grad = use.grad,
                        .batch = {.indices = Tensor::of<int32_t>({std::numeric_limits<int32_t>::min(), 1, -1,
                                                                  std::numeric_limits<int32_t>::max(), 2, 1, 3}),
                                  .offsets = use.batch.offsets}};
  const RowGradients rows =
      table_batched_row_gradients(std::vector{narrow}, {0, {1}, 3}, {.bounds = BoundsCheck::ignore}).trimmed();
  expect_same_bits(rows.rows, Tensor::of<int64_t>({1, 2}));
  expect_same_bits(rows.values, Tensor::of<float>({5, 2}, {2, 1}));
}

TEST(TableBatchedBackward, ReadsRowsOfViewsForTheWeightsOfSamples) {
  const TableUse use = use_of_step(4);
  const Tensor whole = facets::sample_tensor(2, {2 * kRows, 3 * kColumns}),
               other = facets::sample_tensor(3, {kRows, 3});
  const Tensor view = slice(narrow(whole, 1, 4, kColumns), 0, 0, 2 * kRows, 2);
  expect_same_bits(table_batched_weights_backward(std::vector{view, other}, use),
                   table_batched_weights_backward(std::vector{clone(view), other}, use));
}

// ---- rows with very many entries ------------------------------------------------------------------------------------

TEST(TableBatchedBackward, HasTheSameBitsForTwoLongWideRowsOfTwoFeaturesOnAnyNumberOfThreads) {
  RankContext& context = RankContext::current();
  const int64_t bags = 12000, columns = 70, rows = 9;
  const Tensor indices = Tensor::empty({4 * bags}, DType::i64), offsets = Tensor::empty({2 * bags + 1}, DType::i64);
  for (int64_t b = 0; b <= 2 * bags; ++b) offsets.data<int64_t>()[b] = 2 * b;
  // Rows 2 and 5 take nearly all entries, those of both features.
  for (int64_t p = 0; p < 4 * bags; ++p) indices.data<int64_t>()[p] = p % 31 == 0 ? p % rows : p % 3 == 0 ? 2 : 5;
  TableUse use{.grad = facets::sample_tensor(1, {bags, 2 * columns}),
               .batch = {.indices = indices,
                         .offsets = offsets,
                         .per_sample_weights = facets::sample_tensor(2, {4 * bags}),
                         .features = {0, 0}}};
  std::vector<Tensor> sums;
  for (const int threads : {1, 2, 4}) {
    context.set_threads(threads);
    sums.push_back(table_batched_backward(std::vector{use}, {0, {columns}, rows}, {.pooling = TablePooling::mean}));
  }
  context.set_threads(0);
  expect_same_bits(sums[1], sums[0]);
  expect_same_bits(sums[2], sums[0]);
  std::vector<double> exact(static_cast<size_t>(rows * columns));
  for (int64_t p = 0; p < 4 * bags; ++p) {
    const int64_t bag = p / 2, feature = bag / bags;
    const float* g = use.grad.data<float>() + (bag % bags) * 2 * columns + feature * columns;
    for (int64_t d = 0; d < columns; ++d)
      exact[static_cast<size_t>(indices.data<int64_t>()[p] * columns + d)] +=
          static_cast<double>(use.batch.per_sample_weights.data<float>()[p]) * g[d] / 2;
  }
  for (size_t i = 0; i < exact.size(); ++i) ASSERT_NEAR(sums[0].data<float>()[i], exact[i], 0.01) << i;
}

}  // namespace
}  // namespace tutti
