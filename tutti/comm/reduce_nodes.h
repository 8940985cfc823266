// Sums over virtual shards whose parts lie on several ranks: bytes move, and the owner of each slice adds them in the
// order of one binary tree over the shards, so that no bit depends on which rank held which shard (numerics contract,
// N5).
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "tutti/comm/process_group.h"

namespace tutti::comm {

class SymmetricBuffer;

// The sum over the shards [begin, end): their number is a power of two and `begin` a multiple of it. A node is the sum
// of its two halves; shards that nobody brings add nothing.
struct ShardNode {
  int64_t begin = 0, end = 0;
  auto operator<=>(const ShardNode&) const = default;
};

// The fewest nodes that make up the shards [begin, end), ascending: at most 2 log2(end - begin) of them.
std::vector<ShardNode> maximal_nodes(int64_t begin, int64_t end);

// nodes[r] are the nodes that rank r brings, ascending; none is brought twice.
using NodePlan = std::vector<std::vector<ShardNode>>;

// The elements [begin, end) of n that `rank` of `ranks` owns: equal slices, of which the last may be shorter.
struct NodeSlice {
  int64_t begin = 0, end = 0;
};
NodeSlice slice_of(int64_t numel, int rank, int ranks);

// The tree's sum in f32, written to out[0, count). values[i] are the elements of nodes[i], which are disjoint and
// ascending, and are overwritten. Any thread.
void sum_nodes(std::span<const ShardNode> nodes, std::span<float* const> values, int64_t count, float* out);

// Every member calls it with the same plan and the values of its own nodes: plan[rank()].size() tensors in f32,
// contiguous, of one number of elements. `output` is this rank's slice of the sum, 1-d. Each rank sends its nodes but
// for its own slice of them, (R - 1) / R of their bytes. `agreement` is as in CallOptions. UsageError naming what does
// not fit, before any byte moves; on all ranks, naming two of them, when their plans or keys differ, and when the
// arguments of one are wrong.
void reduce_nodes(ProcessGroup& group, const Tensor& output, Tensors nodes, const NodePlan& plan,
                  uint64_t agreement = 0);

// The same in two halves, between which the bytes move while the rank computes. All ranks make these calls in the same
// order.
class NodeReduction {
 public:
  // Starts. The group must live until finish(). slices[r] are the elements that rank r owns, and may be empty; without
  // them they are those of slice_of(). UsageError for slices that are not one per rank or reach beyond the elements.
  NodeReduction(ProcessGroup& group, const Tensor& output, Tensors nodes, const NodePlan& plan,
                const CallOptions& options, std::span<const NodeSlice> slices = {});
  bool is_done() const;
  // Waits and adds: then the output is complete. Local, but for the errors of what was started.
  void finish();

 private:
  Tensor output_;
  std::vector<std::pair<ShardNode, float*>> parts_;  // one node of some rank, and the owner's slice of it
  std::vector<Tensor> held_;
  std::vector<Work> works_;
};

// The same for nodes in symmetric memory, f32 and contiguous: node i of each rank is at the elements [i numel, (i + 1)
// numel) of `nodes`, which are overwritten. Where peers have access to each other's memory, the owners add in place
// between two barriers, and nothing is copied.
void reduce_nodes(ProcessGroup& group, const Tensor& output, const SymmetricBuffer& nodes, int64_t numel,
                  const NodePlan& plan, uint64_t agreement = 0);

// The same as the first with the whole sum on every rank: `output` has the elements of a node.
void all_reduce_nodes(ProcessGroup& group, const Tensor& output, Tensors nodes, const NodePlan& plan,
                      uint64_t agreement = 0);

}  // namespace tutti::comm
