// Pass: groups nodes into kernels and orders the kernels.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tutti/plan/access.h"

namespace tutti::graph {

struct PassState;

// Nodes that run as one step, in program order.
struct Group {
  std::vector<int32_t> nodes;
  bool is_kernel = false;  // a kernel made of recipes; otherwise a single node that is called individually
  Space space;             // iteration space of the kernel
  int64_t leaf = 512;      // leaf size of its reduction trees
  uint64_t region = 0;
  // For a call: at most one kernel each that computes its operand 0 or runs on blocks of its output; see prologue.h,
  // epilogue.h.
  std::vector<Group> prologue = {}, epilogue = {};
};

// Calls visit(node) for the nodes of the group and of attached kernels, in the order in which they process an element.
template <class Visit>
void for_each_node(const Group& group, Visit visit) {
  for (const Group& kernel : group.prologue) for_each_node(kernel, visit);
  for (const int32_t n : group.nodes) visit(n);
  for (const Group& kernel : group.epilogue) for_each_node(kernel, visit);
}

struct FuseOptions {
  bool fuse = true;    // false: one group per node
  int max_nodes = 64;  // of a group
  int max_operands = 28;
};

// A readable list with one line per group.
std::string to_string(std::span<const Group> groups, const Graph& graph);

// Makes the groups, in an order in which they can run. A node joins the kernel of a node whose elements it reads at the
// same points, or of one that reads the same elements, unless a step between them would have to run inside the kernel.
// Reductions over rows that are not the innermost dims of their space get separate kernels, which are vectorized across
// rows. A kernel has at most one node that fails while it writes, and does not write memory of the caller after it.
void fuse(PassState& state);

// Whether the op's recipe can be part of a fused kernel; other ops are called individually.
bool has_kernel_recipe(const OpDef& op);

// The points that `node`'s kernel visits; nothing when the op has no recipe that kernels can be made of.
struct NodeSpace {
  Space space;
  int64_t leaf = 0;      // 0: it reduces nothing
  uint32_t per_row = 0;  // outputs with one element per row
};
std::optional<NodeSpace> space_of(const Node& node, const Graph& graph);

// The accesses of a node over the space of its group: inputs, then outputs.
std::vector<Access> accesses_over(const Node& node, const NodeSpace& own, const Space& group);
// Whether `node` visits one point per row of the group: its sizes are those of the group without the row.
bool is_per_row(const NodeSpace& own, const Space& group);

}  // namespace tutti::graph
