// A batch of lookups in many embedding tables, and how it is pooled and checked.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/tensor/tensor.h"

namespace tutti {

// none: no pooling, a row of the result for every index.
enum class TablePooling : uint8_t { sum, mean, none };

// What is done with an index outside [0, rows of its table). It is never rewritten. fatal: UsageError that names the
// first one. warning, ignore: the entry contributes nothing, its weight gets the gradient 0, and a mean still divides
// by all entries of the bag; the report counts it, and warning writes one line to the log as well.
enum class BoundsCheck : uint8_t { fatal, warning, ignore };

// A feature is one kind of thing that is looked up. Features may share a table. Feature t has bags[t] bags; bag k of
// all bags, feature by feature, holds the entries offsets[k] to offsets[k + 1].
struct TableBatch {
  Tensor indices;                      // [P], i64 or i32
  Tensor offsets;                      // [number of bags of all features + 1], i64 or i32; T * B + 1 for T features
  Tensor per_sample_weights = {};      // [P] floats: a factor for each looked-up row; not without pooling
  std::vector<int64_t> features = {};  // the table of each feature; empty: feature t looks up table t
  std::vector<int64_t> bags = {};      // of each feature; empty: all features have equally many
};

// The indices that a call found out of range.
struct IndexReport {
  int64_t count = 0;
  // The first one, in the order of the indices; -1 where there is none. `bag` counts within the feature, `position`
  // within the indices.
  int64_t feature = -1, bag = -1, position = -1, value = -1;
  int64_t rows = -1;  // of the feature's table

  // "2 indices are out of range; the first is 7 of feature 1, bag 0 (position 3), whose table has 5 rows".
  std::string to_string() const;
  // From the tensor that an op returns.
  static IndexReport of(const Tensor& report);
};

}  // namespace tutti
