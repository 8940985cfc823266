// The outputs of ops that give gradients in sparse form: values [K, D], rows [K], count [].
#pragma once

#include <vector>

#include "tutti/ops/engine/op_def.h"
#include "tutti/ops/indexing/row_sums.h"

namespace tutti::facets {

// K is the number of entries, but no more than there are rows.
void infer_row_outputs(OutputMetas& out, DType dtype, const SymInt& entries, int64_t vocab, const SymInt& columns);

void write_row_outputs(const RowSums& sums, std::span<const Tensor> outputs);

// For references: `sum(row, column)` for the rows that occur in `rows`, `skipped` left out.
void reference_row_outputs(std::vector<int64_t> rows, int64_t skipped, std::span<const Tensor> outputs,
                           const std::function<double(int64_t row, int64_t column)>& sum);

inline constexpr const char* kNoRowGradient =
    "a gradient in sparse form is a result, to be applied; take the dense form to differentiate it again";

}  // namespace tutti::facets
