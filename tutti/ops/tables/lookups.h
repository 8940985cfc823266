// The lookups of a call over many tables: its operands, and where the bags of every feature and their results lie.
#pragma once

#include <span>
#include <vector>

#include "tutti/ops/engine/attr_enums.h"
#include "tutti/ops/engine/op_def.h"
#include "tutti/ops/table_batched_embedding.h"
#include "tutti/runtime/function_ref.h"

namespace tutti::facets {

// The operands of one batch, among the inputs of a call: the layout i64 [features, 4], which has for each feature its
// table, its number of bags (-1: all features have equally many), where its results begin, and its width; then the
// indices, the offsets, and the weights of the entries, if there are any.
struct LookupOperands {
  const Tensor &layout, &indices, &offsets;
  const Tensor* weights;
  // The batch whose layout is input `first`.
  static LookupOperands at(const OpCall& call, size_t first, bool weighted) {
    return {call[first], call[first + 1], call[first + 2], weighted ? &call[first + 3] : nullptr};
  }
};

// The layout of a batch over tables with so many columns, and the columns, or elements, of its result. UsageError,
// naming `op`, for tables that are not there and widths that do not fit.
struct TableLayout {
  Tensor features;
  int64_t columns;   // of all features together, or of each without pooling
  int64_t elements;  // of a batch with bags of its own for every feature, else -1
};
TableLayout table_layout(const char* op, const TableBatch& batch, const std::vector<int64_t>& columns,
                         TablePooling pooling);

// Dims and dtypes of the operands of a batch; UsageError. Returns the number of bags of each feature, where all have
// equally many.
SymInt check_lookup_operands(const OpCall& call, const LookupOperands& batch, TablePooling pooling, bool equal_bags);

// One feature of a batch, and the batch as a whole.
struct FeatureBags {
  int64_t table, width;
  int64_t first_bag, bags;  // among those of all features
  int64_t base, stride;     // of the result of bag b: elements from `base` + b * `stride` on
};
struct Lookups {
  std::vector<FeatureBags> features;
  std::span<const int64_t> offsets;  // the elements of `dense_offsets`
  Tensor indices, dense_offsets;
  bool equal_bags;  // whether all features have equally many, so that results lie side by side

  int64_t entries(size_t feature) const {
    const FeatureBags& f = features[feature];
    return offsets[static_cast<size_t>(f.first_bag + f.bags)] - offsets[static_cast<size_t>(f.first_bag)];
  }
  // Where what entry p of bag `bag` (of feature f) looks up goes, or its gradient comes from.
  int64_t place(const FeatureBags& f, int64_t bag, int64_t p, TablePooling pooling) const {
    return pooling == TablePooling::none ? p * f.width : f.base + (bag - f.first_bag) * f.stride;
  }
};
// Reads the operands of a batch. UsageError for offsets that the header of the op refuses. With `table`, not -1, only
// the features of that table are looked at: an op for each of many tables shall not read the offsets of all.
Lookups read_lookups(const OpCall& call, const LookupOperands& batch, int64_t columns, int64_t table = -1);

// UsageError unless `result`, or its gradient, has the sizes that the batch gives it, and the places of all bags.
void check_places(const OpCall& call, const Lookups& lookups, const Tensor& result, TablePooling pooling);

// Looks for indices outside the tables; rows[t] is the number of rows of table t, -1 for tables of no interest.
// `pruned`: -1 is the index of a row that was left out, and none of them.
IndexReport find_bad_indices(const Lookups& lookups, const std::vector<int64_t>& rows, bool pruned = false);
// As `mode` says: throws the UsageError of the call, or writes a line to the log.
void tell_bad_indices(const OpCall& call, const IndexReport& report, BoundsCheck mode);
// The same, and writes what IndexReport::of() reads.
void report_bad_indices(const OpCall& call, const IndexReport& found, BoundsCheck mode, const Tensor& report);

// Calls fn(feature, first, last) for bags [first, last) of all bags, all of that feature, on any thread: all bags of
// all features once.
void each_part(const Lookups& lookups, FunctionRef<void(const FeatureBags& feature, int64_t first, int64_t last)> fn);

}  // namespace tutti::facets
