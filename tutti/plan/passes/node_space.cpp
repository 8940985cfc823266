#include <algorithm>

#include "tutti/plan/node_call.h"
#include "tutti/plan/passes/fuse.h"

namespace tutti::graph {
namespace {

using codegen::LoopKind;

// The group's space without its row; the row must be the last dims.
Space kept_of(const Space& group) {
  Space kept;
  for (size_t d = 0; d + group.row.size() < group.sizes.size(); ++d) kept.sizes.push_back(group.sizes[d]);
  return kept;
}

int64_t product(const Extents& sizes) {
  int64_t n = 1;
  for (const int64_t s : sizes) n *= s;
  return n;
}

}  // namespace

bool has_kernel_recipe(const OpDef& op) {
  const Recipe& recipe = op.recipe;
  return recipe.build != nullptr && recipe.pick == nullptr && !recipe.moves_bits && recipe.kind != LoopKind::scan;
}

std::optional<NodeSpace> space_of(const Node& node, const Graph& graph) {
  const Recipe& recipe = node.op->recipe;
  if (!has_kernel_recipe(*node.op)) return std::nullopt;
  for (const Value& v : node.inputs) {
    if (graph.buffers[static_cast<size_t>(v.buffer)].device.kind != DeviceKind::cpu) return std::nullopt;
  }
  NodeSpace own;
  if (recipe.kind == LoopKind::pointwise) {
    own.space.sizes = node.outputs[0].sizes;
    return product(own.space.sizes) == 0 ? std::nullopt : std::optional(own);
  }
  Shape sizes = to_shape(node.inputs[0].sizes);
  for (const Value& v : node.inputs) sizes = broadcast_shapes(sizes, to_shape(v.sizes), node.op->name);
  own.space.sizes = concrete(sizes);
  if (product(own.space.sizes) == 0) return std::nullopt;  // what a row of nothing gives is the eager engine's to say
  const NodeCall call(node, graph);
  if (recipe.row_dims) own.space.row = recipe.row_dims(call.call);
  else if (own.space.sizes.ndim() > 0) own.space.row.push_back(own.space.sizes.ndim() - 1);
  if (own.space.row.empty()) return std::nullopt;
  own.leaf = recipe.leaf ? recipe.leaf(call.call) : 0;
  if (own.leaf <= 0) own.leaf = 512;
  own.per_row = recipe.per_row;
  return own;
}

bool is_per_row(const NodeSpace& own, const Space& group) {
  return own.space.row.empty() && !group.row.empty() && product(own.space.sizes) != product(group.sizes);
}

std::vector<Access> accesses_over(const Node& node, const NodeSpace& own, const Space& group) {
  std::vector<Access> accesses;
  const bool per_row = is_per_row(own, group);
  const Space target = per_row ? kept_of(group) : group;
  const auto add = [&](const Access& a) {
    Access over = refined(a, own.space, target);
    if (per_row) {
      for (size_t d = 0; d < group.row.size(); ++d) over.strides.push_back(0);
    }
    accesses.push_back(over);
  };
  for (const Value& v : node.inputs) add(access_of(v, own.space));
  for (size_t k = 0; k < node.outputs.size(); ++k)
    add(own.per_row >> k & 1 ? per_row_access_of(node.outputs[k], own.space) : access_of(node.outputs[k], own.space));
  return accesses;
}

}  // namespace tutti::graph
