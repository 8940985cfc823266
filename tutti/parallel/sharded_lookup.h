// What ShardedTables keeps of a lookup, from send_indices() over backward() to step(). For sharded_tables*.cpp.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "tutti/parallel/sharded_tables.h"

namespace tutti::parallel {

struct ShardedTables::Lookup {
  bool is_of_step = false;
  std::vector<CheckedBatch> batches;
  std::vector<BagList> asked;                // of each rank: pieces of its tables by Route::pooled
  BagList here;                              // of all other tables
  std::vector<std::vector<int64_t>> needed;  // of each table by Route::rows: the rows that `here` looks up, ascending
  std::optional<ParcelExchange> requests;
  std::vector<BagList> received;   // of each rank: what this rank pools
  std::vector<uint32_t> versions;  // of the parts held here
};

struct ShardedTables::Reached {
  std::mutex mutex;
  int64_t lookup = 0;             // of which gradients count
  std::vector<Tensor> gradients;  // of each batch, f32; undefined where no backward() came
};

// What the ranks have sent for a step.
struct ShardedTables::Gradients {
  // A batch of another rank has a shard, -1 where no backward() came, and the gradients of its bags here.
  struct Batch {
    int64_t shard;
    std::vector<Tensor> of_pieces;  // f32, flat
  };
  std::vector<std::vector<Batch>> batches;  // of each rank
  // The sums of rows of tables that are not pooled elsewhere, at the first shard of the node that they are the sum of.
  std::vector<std::vector<TableUse>> rows;  // of each table
};

// One row for each index.
TableUse use_of_rows(const Tensor& rows, const Tensor& values);
// The bags of the pieces [begin, end) of a list, all of one table, and their gradients one after another.
TableUse use_of_pieces(const BagList& list, size_t begin, size_t end, std::span<const Tensor> gradients, int64_t width,
                       TablePooling pooling);
// Where the pieces of a batch and a table end that begin at `begin`.
size_t end_of_table(const BagList& list, size_t begin);

// Copies rows of elements of `size` bytes, columns [begin, end) of each, between the result of a batch and a block that
// has these columns one row after another.
enum class BlockCopy : uint8_t { to_result, from_result };
void copy_block(BlockCopy direction, char* result, const CheckedBatch::Rows& rows, int64_t begin, int64_t end,
                int64_t size, char* block);

template <class Is, class Visit>
void ShardedTables::each_feature(size_t batches, Is is, Visit visit) const {
  for (size_t b = 0; b < batches; ++b)
    for (size_t t = 0; t < tables_.size(); ++t)
      for (const size_t f : features_[t])
        if (is(t)) visit(b, t, f);
}

}  // namespace tutti::parallel
