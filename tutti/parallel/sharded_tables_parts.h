// What ShardedTables keeps from send_indices() over backward() to step(), and moves between results and parcels. For
// sharded_tables*.cpp.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "tutti/parallel/sharded_tables.h"

namespace tutti::parallel {

struct ShardedTables::Lookup {
  bool is_of_step = false;
  bool wants_gradients = false;  // of per_sample_weights
  std::vector<CheckedBatch> batches;
  // The bags of each batch in tables that other ranks do not pool; none where there are no such tables. An index into a
  // table by Route::rows is a place among the rows that are needed of it.
  std::vector<TableBatch> own;
  bool own_is_all = false;                   // of all features, with the results of the batches
  std::vector<Tensor> weights;               // of each batch, where they want a gradient
  std::vector<std::vector<int64_t>> needed;  // of each table by Route::rows: the rows that `own` looks up, ascending
  std::optional<ParcelExchange> requests;
  std::vector<BagList> received;   // of each rank: what this rank pools
  std::vector<uint32_t> versions;  // of the parts held here
};

struct ShardedTables::Reached {
  std::mutex mutex;
  int64_t lookup = 0;             // of which gradients count
  std::vector<Tensor> gradients;  // of each batch, f32; undefined where no backward() came
};

// What the ranks have sent for a step. Reads their parcels.
struct ShardedTables::Gradients {
  // The pieces [begin, end) that rank `rank` has sent, of one table in one shard, and the gradient of each, f32.
  struct Run {
    size_t rank, begin, end;
    int64_t shard;
    std::vector<std::string_view> of_pieces;
  };
  std::vector<std::vector<Run>> pooled;  // of each table
  // The sums of rows of tables that are not pooled elsewhere, at the first shard of the node that they are the sum of.
  std::vector<std::vector<TableUse>> rows;  // of each table
  bool any = false;                         // whether backward() has reached a lookup of any rank
};

// What a step of one table takes from all shards.
struct ShardedTables::UsesOfTable {
  std::vector<TableUse> list;
  TableOfBatch which;
  TableBatchOptions batch;
};

// A step of a table of which this rank has some columns, while the optimizer takes means over whole rows.
struct ShardedTables::DividedStep {
  size_t table;
  TableUse rows;
  Tensor squares;      // of these columns, and then of all
  Tensor new_squares;  // the same of the new values, with max_norm
};

inline int64_t row_nbytes(const Tensor& table) { return table.extent(1) * itemsize(table.dtype()); }

// One row for each index.
TableUse use_of_rows(const Tensor& rows, const Tensor& values);
// The bags of the pieces [begin, end) of a list, all of one table of this width, with room for their gradients one
// after another.
TableUse use_of_pieces(const BagList& list, size_t begin, size_t end, int64_t width, TablePooling pooling);
// Where the pieces of a batch and a table end that begin at `begin`.
size_t end_of_table(const BagList& list, size_t begin);

// Columns [begin, end) of rows of elements of `size` bytes, from a block that has them one row after another to the
// result of a batch, and back.
void place_block(char* result, const CheckedBatch::Rows& rows, int64_t begin, int64_t end, int64_t size,
                 const char* block);
void take_block(const char* result, const CheckedBatch::Rows& rows, int64_t begin, int64_t end, int64_t size,
                char* block);

template <class Is, class Visit>
void ShardedTables::each_feature(size_t batches, Is is, Visit visit) const {
  for (size_t b = 0; b < batches; ++b)
    for (size_t t = 0; t < tables_.size(); ++t)
      for (const size_t f : features_[t])
        if (is(t)) visit(b, t, f);
}

}  // namespace tutti::parallel
