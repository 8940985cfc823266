// Sums over the entries of each row of a table, in the order of the numerics contract, N5 (ragged contractions).
//
// Every entry takes its term from a row of `terms`, its source: a token, or the bag it lies in. The sources are cut
// into ranges of `grain`; the entries of a row in one range are added in a chain in their order; ranges are combined by
// halving their number; a range without the row, and a row without an entry, is -0.0. So neither threads nor what other
// rows there are changes a bit.
#pragma once

#include <cstdint>

#include "tutti/ops/indexing/row_runs.h"
#include "tutti/tensor/tensor.h"

namespace tutti::facets {

struct RowSums {
  const RowRuns& runs;
  Tensor terms;                        // [sources, columns], dense floats
  int64_t grain;                       // sources of a range
  const int64_t* source_of = nullptr;  // of an entry, not descending; null: entry e has source e
  const void* factors = nullptr;       // by which an entry's term is multiplied first, in the compute dtype of `terms`
  const int64_t* chosen = nullptr;  // [sources, columns]: the entry that alone takes part there; others count as -0.0

  // out[v] is the sum of row v. Dense, of the compute dtype of `terms`.
  void write_rows(const Tensor& out) const;
  // out[i] is the sum of run i; behind the last run stands -0.0.
  void write_runs(const Tensor& out) const;
};

// `grad` as a dense matrix with a row for each source: all dims but the last are one.
Tensor term_rows(const Tensor& grad);

}  // namespace tutti::facets
