// Pass: which nodes share a kernel, and in what order the kernels run.
#pragma once

#include <vector>

#include "tutti/graph/access.h"

namespace tutti::graph {

// Nodes that run as one step, in program order.
struct Group {
  std::vector<int32_t> nodes;
  bool is_kernel = false;  // of recipes; otherwise one node that is called by itself
  Space space;             // of a kernel
  int64_t leaf = 512;      // of its reduction trees
  uint64_t region = 0;
  // Of a call: the kernel, at most one each, that makes its operand 0, or runs on blocks of its output; see prologue.h, epilogue.h.
  std::vector<Group> prologue = {}, epilogue = {};
};

// Calls visit(node) for the nodes of the group and of what is attached to it, in the order in which each element meets them.
template <class Visit>
void for_each_node(const Group& group, Visit visit) {
  for (const Group& kernel : group.prologue) for_each_node(kernel, visit);
  for (const int32_t n : group.nodes) visit(n);
  for (const Group& kernel : group.epilogue) for_each_node(kernel, visit);
}

struct FuseOptions {
  bool fuse = true;        // false: one group per node
  int max_nodes = 64;      // of a group
  int max_operands = 28;
};

// Groups in an order in which they can run. A node joins the kernel of a node whose elements it reads at the same points,
// or one that reads the same elements, when no step between them would have to run inside the kernel. Rows that are not
// the innermost dims of their space keep a kernel of their own, which runs in vectors across rows. A kernel has at most one
// node that fails while it writes, and writes no memory of the caller behind it.
std::vector<Group> fuse(const Graph& graph, const FuseOptions& options);

// Whether kernels can be made of the op's recipe; others are called by themselves.
bool has_kernel_recipe(const OpDef& op);

// The points that `node`'s kernel visits; nothing when the op has no recipe that kernels can be made of.
struct NodeSpace {
  Space space;
  int64_t leaf = 0;       // 0: it reduces nothing
  uint32_t per_row = 0;   // outputs with one element per row
};
std::optional<NodeSpace> space_of(const Node& node, const Graph& graph);

// The accesses of a node over the space of its group: inputs, then outputs.
std::vector<Access> accesses_over(const Node& node, const NodeSpace& own, const Space& group);
// Whether `node` visits one point per row of the group: its sizes are those of the group without the row.
bool is_per_row(const NodeSpace& own, const Space& group);

}  // namespace tutti::graph
