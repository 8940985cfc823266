// Steps on parts of a table: rows and slices of columns have the bits of the whole table.
#include <gtest/gtest.h>

#include "tests/support/message_of.h"
#include "tests/support/same_bits.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/slice.h"
#include "tutti/ops/table_batched_step.h"
#include "tutti/ops/tables/gradients.h"

namespace tutti {
namespace {

constexpr int64_t kRows = 40, kColumns = 67, kBags = 30;  // halves of 34 and 33 columns, quarters of 17, 17, 17 and 16

// A bag of one row each; rows come several times.
TableUse use_of(int64_t step, int64_t first_row = 0, int64_t last_row = kRows, int64_t column = 0,
                int64_t columns = kColumns) {
  const Tensor grad = facets::sample_tensor(static_cast<uint64_t>(step), {kBags, kColumns});
  std::vector<int64_t> indices, offsets = {0};
  for (int64_t b = 0; b < kBags; ++b) {
    const int64_t row = (b * 7 + step * 3) % kRows;
    if (row >= first_row && row < last_row) indices.push_back(row - first_row);
    offsets.push_back(static_cast<int64_t>(indices.size()));
  }
  return {clone(narrow(grad, 1, column, columns)),
          {.indices = Tensor::of<int64_t>(indices), .offsets = Tensor::of<int64_t>(offsets)}};
}

const TableStep kSteps[] = {
    {.optimizer = TableOptimizer::sgd, .lr = 0.1},
    {.optimizer = TableOptimizer::adagrad, .lr = 0.1},
    {.lr = 0.1},
    {.lr = 0.1, .weight_decay = 0.1, .decay = TableDecay::l2},
    {.lr = 0.1, .weight_decay = 0.1, .decay = TableDecay::global, .least_decay = 0.5},
    {.lr = 0.1, .max_norm = 3},
    {.lr = 0.1, .weight_decay = 0.1, .decay = TableDecay::global, .least_decay = 0.5, .max_norm = 3},
    {.optimizer = TableOptimizer::adam, .lr = 0.1, .weight_decay = 0.1},
    {.optimizer = TableOptimizer::partial_rowwise_adam, .lr = 0.1},
};

// The sums of four slices, by halving.
Tensor added(const std::vector<Tensor>& slices) {
  const Tensor all = clone(slices[0]);
  for (int64_t i = 0; i < all.numel(); ++i) {
    const auto at = [&](size_t s) { return slices[s].data<float>()[i]; };
    all.data<float>()[i] = (at(0) + at(1)) + (at(2) + at(3));
  }
  return all;
}

TEST(TableParts, RowsAndColumnsAreSteppedAsThoseOfTheWhole) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const TableStep& kind : kSteps) {
      const Tensor start = facets::sample_tensor(9, {kRows, kColumns}, dtype), whole = clone(start);
      const TableState state = table_state(kind, kRows, kColumns);
      const int64_t border = 13;
      std::vector<Tensor> rows = {clone(narrow(start, 0, 0, border)), clone(narrow(start, 0, border, kRows - border))};
      const TableState of_rows[] = {table_state(kind, border, kColumns), table_state(kind, kRows - border, kColumns)};
      const int64_t widths[] = {17, 17, 17, 16};
      std::vector<Tensor> slices;
      std::vector<TableState> of_slices;
      int64_t column = 0;
      for (const int64_t width : widths) {
        slices.push_back(clone(narrow(start, 1, column, width)));
        of_slices.push_back(table_state(kind, kRows, width));
        column += width;
      }
      for (int64_t step = 1; step <= 3; ++step) {
        TableStep options = kind;
        options.step = step;
        options.seed = 77;
        table_batched_step_(whole, state, std::vector{use_of(step)}, {0, {kColumns}, kRows}, options);
        for (const size_t part : {0, 1}) {
          const int64_t first = part == 0 ? 0 : border, last = part == 0 ? border : kRows;
          table_batched_step_(rows[part], of_rows[part], std::vector{use_of(step, first, last)},
                              {0, {kColumns}, last - first}, options, {}, {.first_row = first});
        }
        // The sums of squares of the slices, added by halving.
        std::vector<TableUse> uses;
        std::vector<RowGradients> gradients;
        std::vector<Tensor> squares, new_squares;
        column = 0;
        for (size_t s = 0; s < slices.size(); ++s) {
          uses.push_back(use_of(step, 0, kRows, column, widths[s]));
          gradients.push_back(table_batched_row_gradients({&uses[s], 1}, {0, {widths[s]}, kRows}).trimmed());
          squares.push_back(facets::table_row_squares(slices[s], gradients[s], options));
          column += widths[s];
        }
        const Tensor all = added(squares);
        for (size_t s = 0; s < slices.size() && kind.max_norm > 0; ++s)
          new_squares.push_back(
              facets::table_new_row_squares(slices[s], of_slices[s], gradients[s], options, all, kColumns));
        column = 0;
        for (size_t s = 0; s < slices.size(); ++s) {
          table_batched_step_(slices[s], of_slices[s], {&uses[s], 1}, {0, {widths[s]}, kRows}, options, {},
                              {.first_column = column,
                               .all_columns = kColumns,
                               .squares = takes_row_means(kind.optimizer) ? all : Tensor(),
                               .new_squares = kind.max_norm > 0 ? added(new_squares) : Tensor()});
          column += widths[s];
        }
      }
      const std::string what = fmt::format("optimizer {}", static_cast<int>(kind.optimizer));
      expect_same_bits(rows[0], clone(narrow(whole, 0, 0, border)), what);
      expect_same_bits(rows[1], clone(narrow(whole, 0, border, kRows - border)), what);
      column = 0;
      for (size_t s = 0; s < slices.size(); ++s) {
        expect_same_bits(slices[s], clone(narrow(whole, 1, column, widths[s])), what);
        if (state.first.defined() && state.first.ndim() == 1) expect_same_bits(of_slices[s].first, state.first, what);
        column += widths[s];
      }
    }
  }
}

TEST(TableParts, RefuseWhatNeedsWholeRows) {
  const Tensor slice = facets::sample_tensor(1, {kRows, 34});
  const std::vector<TableUse> uses = {use_of(1, 0, kRows, 0, 34)};
  const auto refused = [&](const TableStep& options, const PartOfTable& part) {
    return message_of([&] {
      table_batched_step_(slice, table_state(options, kRows, 34), uses, {0, {34}, kRows}, options, {}, part);
    });
  };
  EXPECT_NE(refused({.lr = 0.1}, {.all_columns = kColumns}).find("give it the sums of squares of whole rows"),
            std::string::npos);
  EXPECT_NE(refused({.lr = 0.1, .max_norm = 1}, {.all_columns = kColumns, .squares = Tensor::of<float>({1})})
                .find("the table has 34 of 67 columns, and max_norm is the norm of whole rows"),
            std::string::npos);
  EXPECT_NE(refused({.lr = 0.1}, {.all_columns = kColumns, .squares = Tensor::of<float>({1, 2})})
                .find("sums of squares of 2 rows"),
            std::string::npos);
  EXPECT_NE(refused({.optimizer = TableOptimizer::sgd}, {.first_column = 40, .all_columns = kColumns})
                .find("a part of 34 columns from column 40 and row 0 on, of a table of 67 columns"),
            std::string::npos);
  EXPECT_EQ(
      message_of([&] { table_batched_step_(slice, {}, uses, {1, {34}, kRows}, {.optimizer = TableOptimizer::sgd}); }),
      "table_batched_sgd_: table number 1 of the 1 tables whose columns are given");
}

}  // namespace
}  // namespace tutti
