// The gradients of the rows of one table, summed over all entries of all virtual shards of a step, in the order that
// table_batched_backward.h states.
#pragma once

#include <mutex>
#include <utility>
#include <vector>

#include "tutti/ops/tables/table_entries.h"
#include "tutti/runtime/function_ref.h"

namespace tutti::facets {

// Sum: float, or double where the gradients are f64.
template <class Sum>
class TableSums {
 public:
  // UsageError for batches that the ops refuse. Reads the indices and, while it lives, the gradients.
  TableSums(const OpCall& call, const TableAttrs& a, size_t first);

  // A row's run is the number of rows with an entry before it. numbers[place] is the run of the row whose first entry,
  // in the order of rows, is number `place`; other places hold what they held. Writes the rows and returns how many.
  int64_t number_runs(int64_t* numbers, int64_t* rows) const;
  int64_t entries() const { return entries_.count(); }

  // Calls use(place, row, sums) once for every row, on any thread; and ask(row) some rows before that.
  void each(FunctionRef<void(int64_t place, int64_t row, const Sum* sums)> use,
            FunctionRef<void(int64_t row)> ask) const;

 private:
  using Part = typename TableEntries<Sum>::Part;
  // Sums of neighbouring nodes of the tree, first to last. depths[i] is the depth at which node i and the one before it
  // meet: a node is added to its neighbour with which it meets at the greater depth.
  struct Nodes {
    Nodes(int64_t columns, int64_t most)
        : values(static_cast<size_t>(columns * most)), depths(static_cast<size_t>(most)) {}
    std::vector<Sum> values;
    std::vector<int> depths;
    int64_t base = 0, count = 0;  // those before `base` are added to nodes that are not here
  };

  template <class Key>
  void each_run(FunctionRef<void(int64_t, int64_t, const Sum*)> use, FunctionRef<void(int64_t)> ask) const;
  template <class Key>
  const Sum* sum_of_run(const Key* first, const Key* last, Nodes& nodes) const;
  template <class Key>
  void add_leaves(const Key* first, const Key* last, uint64_t path_before, Nodes& nodes) const;
  template <class Key>
  void sum_long_run(const Key* first, const Key* last, Nodes& nodes) const;
  void open(Nodes& nodes, int depth) const;
  void close(Nodes& nodes, int depth) const;
  template <class Key>
  void add_chain(const Key* first, const Key* last, const Part& part, Sum* out) const;
  template <int64_t kWidth, class Key>
  void chain(const Key* first, const Key* last, const Part& part, int64_t column, int64_t n, Sum* out) const;
  template <int kVectors, class Key>
  void wide_chain(const Key* first, const Key* last, const Part& part, int64_t column, float* out) const;
  template <class Key>
  int64_t source_of(Key key) const {
    return static_cast<int64_t>(key & static_cast<Key>((Key{1} << entries_.source_bits()) - 1));
  }
  template <class Key>
  int64_t row_of(Key key) const {
    return static_cast<int64_t>(key >> entries_.source_bits());
  }

  int64_t columns_;
  bool wide_;  // whether wide_chain() can run
  int64_t ahead_;
  TableEntries<Sum> entries_;
  int64_t levels_ = 0;
};

}  // namespace tutti::facets
