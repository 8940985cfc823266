// The largest or smallest elements.
#pragma once

#include "tutti/ops/sort.h"

namespace tutti {

struct TopkOptions {
  int64_t dim = -1;
  bool largest = true;
};

// The k largest (or smallest) elements along a dim in descending (ascending) order, with their indices; among equal
// elements the lower index comes first. NaN is larger than every number. Shapes: `dim` has size k in both results.
// Dtypes: all. UsageError for k outside [0, size of dim].
SortResult topk(const Tensor& x, int64_t k, const TopkOptions& options = {});

}  // namespace tutti
