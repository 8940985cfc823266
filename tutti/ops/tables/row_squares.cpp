#include <algorithm>
#include <vector>

#include "tutti/ops/engine/eager.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/tables/gradients.h"
#include "tutti/ops/tables/row_formulas.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::facets {

Tensor table_row_squares(const Tensor& table, const RowGradients& gradients, const TableStep& o) {
  const Tensor rows = to_contiguous(gradients.rows), values = to_contiguous(gradients.values);
  const int64_t n = rows.numel(), columns = table.extent(1);
  TUTTI_CHECK(
      values.dtype() == DType::f32 && values.ndim() == 2 && values.extent(0) == n && values.extent(1) == columns,
      "table_row_squares: the gradients are {} of {} rows; expected f32 [{}, {}]", describe(values), n, n, columns);
  const bool decays = o.optimizer == TableOptimizer::rowwise_adagrad && o.decay == TableDecay::l2;
  const Tensor squares = Tensor::empty({n}, DType::f32);
  float numbers[kRowNumbers] = {};
  numbers[kWeightDecay] = static_cast<float>(o.weight_decay);
  const int64_t grain = std::max<int64_t>(kParallelGrain / (columns + 1), 1);
  ThreadPool::current().parallel_for(n, grain, [&](int64_t begin, int64_t end) {
    std::vector<float> w(static_cast<size_t>(columns));
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = rows.data<int64_t>()[i];
      TUTTI_CHECK(row >= 0 && row < table.extent(0), "table_row_squares: row {} of a table of {}", row,
                  table.extent(0));
      for (int64_t d = 0; decays && d < columns; ++d)
        w[static_cast<size_t>(d)] = static_cast<float>(read_double(table, offset_at(table, {row, d})));
      const RowOfTable<float> r{numbers, columns, 1,  w.data(), values.data<float>() + i * columns,
                                nullptr, nullptr, -1, nullptr};
      squares.data<float>()[i] = decays ? r.mean_square_with_decay() : r.mean_square();
    }
  });
  return squares;
}

}  // namespace tutti::facets
