// Lookups, bags and their sparse gradients inside compiled functions: the bits of an eager run.
#include <gtest/gtest.h>

#include "tests/graph/support/same.h"
#include "tutti/autograd/backward.h"
#include "tutti/graph/compile.h"
#include "tutti/ops.h"

namespace tutti {
namespace {

using graph_test::expect_same;
using graph_test::values;

Tensor picks(const Shape& sizes, int64_t end, uint64_t seed) { return randint(0, end, sizes, RandomKey{.key = seed}); }

TEST(CompiledLookups, BagsAndTheirGradients) {
  for (const BagMode mode : {BagMode::sum, BagMode::mean, BagMode::max}) {
    const auto fn = [mode](const Tensor& table, const Tensor& indices, const Tensor& offsets) {
      const Tensor y = embedding_bag(table, indices, offsets, {.mode = mode, .padding_idx = 2});
      const Tensor inputs[] = {table}, outputs[] = {sum(mul(y, y))};
      return grad(outputs, inputs)[0];
    };
    const auto f = compile(fn);
    for (const int64_t entries : {30, 17}) {
      const Tensor table = values({20, 9}, 1), indices = picks({entries}, 20, 5),
                   offsets = Tensor::of<int64_t>({0, 4, 4, 16});
      requires_grad_(table);
      expect_same(f(table, indices, offsets), fn(table, indices, offsets));
    }
  }
}

TEST(CompiledLookups, TablesOfABatchTheirGradientsAndTheirStep) {
  const auto fn = [](const Tensor& a, const Tensor& b, const Tensor& indices, const Tensor& offsets) {
    const TableBatch batch{.indices = indices, .offsets = offsets, .features = {0, 1, 0}};
    const Tensor y = table_batched_embedding_bags(std::vector{a, b}, batch, {.pooling = TablePooling::mean}).values;
    const Tensor inputs[] = {y}, outputs[] = {sum(mul(y, y))};
    const TableUse use{grad(outputs, inputs)[0], batch};
    table_batched_step_(a, {}, std::vector{use}, {0, {6, 3}, 20}, {.optimizer = TableOptimizer::sgd, .lr = 0.1},
                        {.pooling = TablePooling::mean});
    return y;
  };
  const auto f = compile(fn);
  for (const int64_t bags : {2, 4}) {
    std::vector<int64_t> offsets = {0};
    for (int64_t k = 0; k < 3 * bags; ++k) offsets.push_back(offsets.back() + k % 3);
    const Tensor a = values({20, 6}, 1), copy = clone(a), b = values({9, 3}, 2),
                 indices = picks({offsets.back()}, 9, 5);
    requires_grad_(b);
    expect_same(f(a, b, indices, Tensor::of<int64_t>(offsets)), fn(copy, b, indices, Tensor::of<int64_t>(offsets)));
    expect_same(a, copy);
  }
}

TEST(CompiledLookups, GradientsInRowsAndTheirStep) {
  const auto fn = [](const Tensor& table, const Tensor& h, const Tensor& tokens) {
    const Tensor x = embedding(detach(table), tokens);
    requires_grad_(x);
    const Tensor inputs[] = {x}, outputs[] = {sum(exp(x))};
    const RowGradients g = embedding_row_gradients(grad(outputs, inputs)[0], tokens, 50);
    adagrad_rows_step_(table, h, g, {.lr = 0.1});
    return g.rows;
  };
  const Tensor a = values({50, 6}, 1), b = clone(a), ha = zeros({50}), hb = zeros({50});
  const auto f = compile(fn);
  for (uint64_t step = 0; step < 3; ++step) {
    const Tensor tokens = picks({11}, 50, step);
    expect_same(f(a, ha, tokens), fn(b, hb, tokens));
    expect_same(a, b);
    expect_same(ha, hb);
  }
}

TEST(CompiledDraws, OfSeveralKeysInOneKernelHaveTheirOwnBlocks) {
  for (const int64_t shift : {0, 4, 1, 6}) {
    const RandomKey a{.key = 1, .first_index = 2}, b{.key = 2, .first_index = 2 + shift};
    const auto fn = [=](const Tensor& x) {
      return mul(dropout(x, 0.3, a), add(dropout(x, 0.5, b), normal(x.sizes(), a)));
    };
    const auto f = compile(fn);
    const Tensor x = values({13, 77}, 1);
    expect_same(f(x), fn(x));
  }
}

}  // namespace
}  // namespace tutti
