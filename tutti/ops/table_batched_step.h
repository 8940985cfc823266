// Backward of table-batched embedding bags with the optimizer fused in: the rows of a table that a step looked up are
// summed and stepped one by one, and the gradient of the table never exists.
#pragma once

#include <span>

#include "tutti/ops/table_batched_backward.h"

namespace tutti {

enum class TableOptimizer : uint8_t { sgd, adagrad, rowwise_adagrad, adam, partial_rowwise_adam };
// How row-wise Adagrad decays weights. l2: the decay is part of the gradient; decoupled: rows that are looked up shrink
// by 1 - lr * weight_decay; global: and so they do, once they are looked up again, for the steps since.
enum class TableDecay : uint8_t { none, l2, decoupled, global };

struct TableStep {
  TableOptimizer optimizer = TableOptimizer::rowwise_adagrad;
  double lr = 0.01;
  double eps = 1e-8;
  double beta1 = 0.9, beta2 = 0.999;
  double weight_decay = 0.0;  // of row-wise Adagrad as `decay` says, and of both Adams
  TableDecay decay = TableDecay::none;
  double least_decay = 0.0;  // of TableDecay::global: what a row is multiplied by is at least that
  // Row-wise Adagrad scales longer rows to it after the step; 0: none. A norm is the root of a sum of squares in f32,
  // so rows longer than about 1.8e19, whose squares overflow, become zeros.
  double max_norm = 0.0;
  int64_t step = 1;  // number of this step, the first is 1
  // For bf16 and f16 tables: a new value becomes one of its two neighbours at random, so that its mean is kept; a
  // function of `seed`, `step` and the element. false: the nearest.
  bool stochastic_rounding = true;
  uint64_t seed = 0;
};

// The state of a table of V rows and D columns. sgd: none. adagrad: first [V, D]. rowwise_adagrad: first [V], and for
// TableDecay::global seen [V] i64, the step that each row was last looked up in, 0 at first. adam: first and second
// [V, D]. partial_rowwise_adam: first [V, D], second [V]. f32, zeros at first.
struct TableState {
  Tensor first, second, seen;
};
// The names of `first` and `second` in checkpoints, as those of optimizers of tutti/optim: "h" of both Adagrads, "m"
// and "v" of both Adams; "" where there is none.
struct TableStateNames {
  const char *first = "", *second = "";
};
TableStateNames names_of(TableOptimizer optimizer);

// What `table` and the tensors of its state are of a table that ranks divide: rows from first_row and columns from
// first_column on. Numbers that are drawn for elements are those of the whole table.
struct PartOfTable {
  int64_t first_row = 0, first_column = 0;
  int64_t all_columns = -1;  // of the whole table; -1: those of `table`
  // Where the part has not all columns, for optimizers that take a mean over a row: the sum of the squares of each row
  // that is stepped, over all columns, f32 in ascending order of the rows; made by facets::table_row_squares() of every
  // part.
  Tensor squares = {};
  // The same for max_norm: the sum of the squares of the row's new values, before they are scaled, made by
  // facets::table_new_row_squares().
  Tensor new_squares = {};
};

// Zeros, of the sizes that the optimizer wants.
TableState table_state(const TableStep& options, int64_t rows, int64_t columns);

// One step on the rows of `table` that `uses` looked up, each once, in place. With g the gradient of a row, summed as
// table_batched_backward() does, and everything in f32:
//   sgd: w -= lr g.   adagrad: h += g^2, w -= lr g / (sqrt(h) + eps), per element.
//   rowwise_adagrad: h += mean of (g + weight_decay w)^2 for l2, of g^2 otherwise; mu = lr / (sqrt(h) + eps);
//     w = c w - mu g, where c is 1 - mu weight_decay for l2, 1 - lr weight_decay for decoupled and global.
//     global, before: w *= max(least_decay, (1 - lr weight_decay)^(step - seen - 1)) for a row that was seen.
//   adam: m = beta1 m + (1 - beta1) g, v = beta2 v + (1 - beta2) g^2,
//     w -= lr (m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + eps) + weight_decay w).
//   partial_rowwise_adam: the same with one v for a row, of the mean of g^2.
// Means and norms over a row are sums by halving with leaves of 16 elements, so that halves of the columns fall on its
// nodes. Dtypes: table f32, bf16 or f16. UsageError for an optimizer without the decay or norm that is asked for, for
// states that do not fit, for a part of the columns without `squares` or `new_squares` where the optimizer needs them,
// and as table_batched_embedding_bags(). Source: spec of FBGEMM's table-batched embeddings.
void table_batched_step_(const Tensor& table, const TableState& state, std::span<const TableUse> uses,
                         const TableOfBatch& which, const TableStep& options, const TableBatchOptions& batch = {},
                         const PartOfTable& part = {});

// Whether the optimizer takes a mean over the elements of a row.
bool takes_row_means(TableOptimizer optimizer);

}  // namespace tutti
