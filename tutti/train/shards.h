// Virtual shards: the unit in which forward and backward run (numerics contract, N5).
//
// The rows of a step are V shards of equal size, in order. Rank r of R (both powers of two) owns shards
// [r V/R, (r+1) V/R): a subtree of the tree over shards. Gradients are kept per use of a parameter and combined by that
// tree, first inside the rank, then over ranks; the uses of a parameter are added last, in forward order.
#pragma once

#include <span>
#include <vector>

#include "tutti/comm/process_group.h"
#include "tutti/io/token_stream.h"
#include "tutti/models/qwen3.h"

namespace tutti::train {

struct ShardRange {
  int64_t begin, end;
};
// The shards of `rank`. UsageError unless `ranks` is a power of two that divides `shards`; it names the legal counts.
ShardRange shards_of_rank(int64_t shards, int rank, int ranks);

// Tensors of some rows: tokens, positions and where each token's document begins in its row.
models::TokenBatch to_batch(const TokenRows& rows);
// i32 [rows * sequence_length].
Tensor labels_of(const TokenRows& rows);
int64_t count_valid(const TokenRows& rows);

// Adds the gradients of shards in the order of the binary tree, like a binary counter: at most log2(V) + 1 partial sums
// live at a time.
class GradientTree {
 public:
  // The gradients of the next shard: per parameter, per use.
  void push(std::vector<std::vector<Tensor>> uses);
  // Finishes the tree over ranks (`group` may be null for one rank) and adds the uses: one f32 gradient per parameter.
  // The tree is empty afterwards.
  std::vector<Tensor> finish(comm::ProcessGroup* group);

 private:
  struct Level {
    int64_t shards;
    std::vector<std::vector<Tensor>> uses;
  };
  std::vector<Level> stack_;
};

}  // namespace tutti::train
