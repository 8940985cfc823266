#include <algorithm>
#include <cmath>
#include <vector>

#include "tutti/ops/engine/eager.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/tables/gradients.h"
#include "tutti/ops/tables/row_formulas.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::facets {

std::vector<float> row_numbers(const TableStep& o) {
  const double n = static_cast<double>(o.step);
  const double numbers[kRowNumbers] = {o.lr,
                                       o.eps,
                                       o.beta1,
                                       1 - o.beta1,
                                       o.beta2,
                                       1 - o.beta2,
                                       1 - std::pow(o.beta1, n),
                                       1 - std::pow(o.beta2, n),
                                       o.weight_decay,
                                       static_cast<double>(o.decay),
                                       o.least_decay,
                                       o.max_norm};
  std::vector<float> in_f32(kRowNumbers);
  std::transform(std::begin(numbers), std::end(numbers), in_f32.begin(),
                 [](double x) { return static_cast<float>(x); });
  return in_f32;
}

namespace {

// square(i, row, its gradient, room for its values) for each row, f32 [rows].
template <class Square>
Tensor squares_of_rows(const char* op, const Tensor& table, const RowGradients& gradients, Square square) {
  const Tensor rows = to_contiguous(gradients.rows), values = to_contiguous(gradients.values);
  const int64_t n = rows.numel(), columns = table.extent(1);
  TUTTI_CHECK(
      values.dtype() == DType::f32 && values.ndim() == 2 && values.extent(0) == n && values.extent(1) == columns,
      "{}: the gradients are {} of {} rows; expected f32 [{}, {}]", op, describe(values), n, n, columns);
  const Tensor squares = Tensor::empty({n}, DType::f32);
  const int64_t grain = std::max<int64_t>(kParallelGrain / (columns + 1), 1);
  ThreadPool::current().parallel_for(n, grain, [&](int64_t begin, int64_t end) {
    std::vector<float> w(static_cast<size_t>(columns));
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = rows.data<int64_t>()[i];
      TUTTI_CHECK(row >= 0 && row < table.extent(0), "{}: row {} of a table of {}", op, row, table.extent(0));
      squares.data<float>()[i] = square(i, row, values.data<float>() + i * columns, w.data());
    }
  });
  return squares;
}

void read_row(const Tensor& table, int64_t row, float* w) {
  for (int64_t d = 0; d < table.extent(1); ++d)
    w[d] = static_cast<float>(read_double(table, offset_at(table, {row, d})));
}

}  // namespace

Tensor table_row_squares(const Tensor& table, const RowGradients& gradients, const TableStep& o) {
  const bool decays = o.optimizer == TableOptimizer::rowwise_adagrad && o.decay == TableDecay::l2;
  const std::vector<float> numbers = row_numbers(o);
  return squares_of_rows("table_row_squares", table, gradients, [&](int64_t, int64_t row, const float* g, float* w) {
    if (decays) read_row(table, row, w);
    const RowOfTable<float> r{.n = numbers.data(), .columns = table.extent(1), .all_columns = 1, .w = w, .g = g};
    return decays ? r.mean_square_with_decay() : r.mean_square();
  });
}

Tensor table_new_row_squares(const Tensor& table, const TableState& state, const RowGradients& gradients,
                             const TableStep& o, const Tensor& squares, int64_t all_columns) {
  TUTTI_CHECK(o.optimizer == TableOptimizer::rowwise_adagrad && squares.ndim() == 1 &&
                  squares.extent(0) == gradients.rows.numel() && state.first.defined(),
              "table_new_row_squares: the sums of squares are {} for {} rows of row-wise Adagrad", describe(squares),
              gradients.rows.numel());
  const std::vector<float> numbers = row_numbers(o);
  return squares_of_rows(
      "table_new_row_squares", table, gradients, [&](int64_t i, int64_t row, const float* g, float* w) {
        read_row(table, row, w);
        float h = static_cast<float>(read_double(state.first, offset_at(state.first, {row})));
        const int64_t seen = state.seen.defined() ? read_int64(state.seen, offset_at(state.seen, {row})) : 0;
        const float of_row = static_cast<float>(read_double(squares, offset_at(squares, {i})));
        const RowOfTable<float> r{.n = numbers.data(),
                                  .columns = table.extent(1),
                                  .all_columns = all_columns,
                                  .w = w,
                                  .g = g,
                                  .first = &h,
                                  .idle = seen > 0 ? o.step - seen - 1 : -1,
                                  .squares = &of_row};
        RowwiseAdagrad::update(r);
        return r.sum([&](int64_t d) { return w[d] * w[d]; });
      });
}

}  // namespace tutti::facets
