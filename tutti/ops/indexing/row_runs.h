// Entries sorted by the row of a table they belong to: what gradients of lookups add up, row by row.
#pragma once

#include <cstdint>

#include "tutti/tensor/tensor.h"

namespace tutti::facets {

// Entry e belongs to row indices[e]. Run i holds all entries of one row, ascending; rows ascend from run to run.
class RowRuns {
 public:
  // `indices`: i64 or i32, taken in row-major order. Entries of `skipped`, and of rows outside of [first, first +
  // rows), are left out, and rows are numbered from `first`. UsageError when rows and entries together are too many to
  // be sorted as 64-bit keys.
  RowRuns(const Tensor& indices, int64_t rows, int64_t skipped, int64_t first = 0);

  int64_t count() const { return count_; }
  int64_t row(int64_t run) const { return static_cast<int64_t>(keys()[starts()[run]] >> entry_bits_); }
  // The entries of a run, or of all runs one after the other, as keys: entry_of(key) is the entry.
  const uint64_t* first(int64_t run) const { return keys() + starts()[run]; }
  int64_t entry_of(uint64_t key) const { return static_cast<int64_t>(key & entry_mask_); }
  // The first run whose row is `row` or a later one.
  int64_t find(int64_t row) const;

 private:
  const uint64_t* keys() const { return sorted_; }
  const int64_t* starts() const { return begin_; }

  Tensor keys_;             // row << entry_bits | entry
  Tensor starts_;           // of each run in keys_, and their end
  const uint64_t* sorted_;  // the elements of the two
  const int64_t* begin_;
  int entry_bits_;
  uint64_t entry_mask_;
  int64_t count_ = 0;
};

}  // namespace tutti::facets
