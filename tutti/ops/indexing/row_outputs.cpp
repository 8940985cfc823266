#include "tutti/ops/indexing/row_outputs.h"

#include <algorithm>

#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"

namespace tutti::facets {

void infer_row_outputs(OutputMetas& out, DType dtype, const SymInt& entries, int64_t vocab, const SymInt& columns) {
  const SymInt most = entries > vocab ? SymInt(vocab) : entries;
  out.add(dtype, {most, columns});
  out.add(DType::i64, {most});
  out.add(DType::i64, {});
}

void write_row_outputs(const RowSums& sums, std::span<const Tensor> outputs) {
  sums.write_runs(outputs[0]);
  int64_t* rows = outputs[1].data<int64_t>();
  const int64_t count = sums.runs.count();
  for (int64_t i = 0; i < count; ++i) rows[i] = sums.runs.row(i);
  std::fill(rows + count, rows + outputs[1].numel(), int64_t{-1});
  *outputs[2].data<int64_t>() = count;
}

void reference_row_outputs(std::vector<int64_t> rows, int64_t skipped, std::span<const Tensor> outputs,
                           const std::function<double(int64_t row, int64_t column)>& sum) {
  std::erase(rows, skipped);
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  const int64_t count = static_cast<int64_t>(rows.size()), columns = outputs[0].extents()[1];
  for (int64_t i = 0; i < outputs[1].numel(); ++i) {
    const bool there = i < count;
    write_int64(outputs[1], i, there ? rows[static_cast<size_t>(i)] : -1);
    for (int64_t d = 0; d < columns; ++d)
      write_double(outputs[0], i * columns + d, there ? sum(rows[static_cast<size_t>(i)], d) : kSumIdentity);
  }
  write_int64(outputs[2], 0, count);
}

}  // namespace tutti::facets
