// Sums over virtual shards, and what they must be, for the ranks of any transport.
#pragma once

#include <vector>

#include "tutti/comm/reduce_nodes.h"

namespace tutti::comm {

// The sums over `shards` shards by the definition of the tree, as plainly as possible.
std::vector<float> plain_tree_sums(int64_t shards, int64_t numel);
// The values of a node, added as a rank that runs its shards one after another adds them: by the same tree.
Tensor node_values(ShardNode node, int64_t numel);
NodePlan consecutive_nodes(int64_t shards, int ranks);
// The result of all_reduce_nodes() over the nodes of all ranks.
std::vector<float> reduced(ProcessGroup& group, const NodePlan& plan, int64_t numel);

// Collective over 3 ranks: the bits of the tree, and plans that differ between ranks. Throws what goes wrong.
void check_reduced_nodes(ProcessGroup& group);

}  // namespace tutti::comm
