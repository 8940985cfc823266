// Bags: runs of neighbouring indices, as offsets say. What the ops of embedding bags share.
#pragma once

#include <string>
#include <vector>

#include "tutti/ops/bag_mode.h"
#include "tutti/ops/engine/attr_enums.h"
#include "tutti/ops/engine/op_def.h"

namespace tutti::facets {

struct BagAttrs {
  int64_t vocab;  // rows of the table
  int64_t padding;
  BagMode mode;
  int64_t include_last;

  static constexpr auto fields() {
    return field_list(field::number<&BagAttrs::vocab>("vocab"), field::number<&BagAttrs::padding>("padding"),
                      field::rule<&BagAttrs::mode>("mode"), field::number<&BagAttrs::include_last>("include_last"));
  }
};
inline const BagAttrs& bag_attrs(const OpCall& call) { return call.attrs.as<BagAttrs>(); }

// The inputs of a call are a matrix, indices, offsets, and what the mode needs. UsageError for wrong dims and dtypes.
void check_bag_operands(const OpCall& call);
SymInt number_of_bags(const OpCall& call);

// Looks at the data: offsets start at 0, do not fall and stay within the indices; indices are rows. UsageError naming
// the bag, and its entry.
void check_bags(const OpCall& call);

// The places where the bags of a checked call begin, and the end of the last.
std::vector<int64_t> bag_borders(const OpCall& call);
// The bag of every entry.
Tensor bag_of_entry(const std::vector<int64_t>& borders);
// The entries of each bag that are not padding.
std::vector<int64_t> bag_lengths(const OpCall& call, const std::vector<int64_t>& borders);

// `x` dense and in another dtype of its kind: i64 for integers, f32 or f64 for floats; `x` itself when it is.
Tensor dense_as(const Tensor& x, DType dtype);

}  // namespace tutti::facets
