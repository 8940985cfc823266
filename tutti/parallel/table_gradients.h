// TableGradients: sparse gradients of embedding tables, added over virtual shards and ranks (numerics contract, N5).
//
// Each rank has the whole tables. A shard brings the rows that it used, and a row of a table is added over the shards
// by the tree that Shards has for other parameters, where a shard that did not use the row adds nothing: the sums have
// the bits of one rank for any number of ranks. They also have those of a dense gradient where each shard looks each
// table up once. N5 adds every lookup of a dense table over the shards before it adds lookups to each other; here the
// lookups of a shard come as one gradient, whose sum is taken first.
//
//   for (parallel::Shard& shard : shards.step(step)) {
//     shard.backward(losses, scale);
//     tables.add(shard.index(), model.take_row_gradients());
//   }
//   shards.finish_step(*optimizer);
//   model.step_tables(tables.finish(), options);
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/comm/process_group.h"
#include "tutti/ops/row_gradients.h"

namespace tutti::parallel {

// Belongs to one thread of a rank.
class TableGradients {
 public:
  // `count` shards over the ranks of `group`, as Shards has them, which must outlive this; null: one rank. Tables have
  // so many rows. UsageError unless `count` is a power of two.
  TableGradients(int64_t count, comm::ProcessGroup* group, std::vector<int64_t> table_rows);

  // The gradients of one shard, one for each table, f32; shards come in any order. UsageError for another number of
  // tables, for rows that are not ascending rows of their table, for another width than that of earlier shards, and for
  // a shard that came before in this step; then nothing of the shard was added.
  void add(int64_t shard, const std::vector<RowGradients>& tables);
  // The sums over all shards, the same on every rank: RowGradients without unused places. The next step begins.
  // UsageError, on all ranks, naming the first shard that no rank has added or that two have; EnvironmentError when a
  // rank has sent other bytes. Ranks send each other the rows that theirs used. Collective.
  std::vector<RowGradients> finish();
  // Drops what the shards of this step have brought, so that the step can be repeated. Call it with Shards::abandon(),
  // which a loop over Shards::step() does when it is left by an exception, and nn::Table::abandon_row_gradients(), on
  // every rank. Not collective.
  void abandon() { nodes_.clear(); }

 private:
  struct Node {
    int64_t first, count;  // its shards
    std::vector<RowGradients> tables;
  };
  void push(std::vector<Node>& nodes, Node node) const;
  std::string to_bytes() const;
  std::vector<Node> from_bytes(std::string_view bytes) const;

  const int64_t count_;
  comm::ProcessGroup* const group_;
  const std::vector<int64_t> table_rows_;
  std::vector<Node> nodes_;  // ascending: the maximal nodes of the shards that came
};

}  // namespace tutti::parallel
