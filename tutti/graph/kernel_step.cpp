#include "tutti/graph/kernel_step.h"

#include <algorithm>

#include "tutti/graph/node_call.h"

namespace tutti::graph {
namespace {

using codegen::LoopKind;
using codegen::StrideClass;

// The recipes of a group, written into one kernel.
class Writer {
 public:
  Writer(const Group& group, const Graph& graph, const std::vector<bool>& escapes) : group_(group), graph_(graph), escapes_(escapes) {
    for (const int32_t n : group.nodes) write(graph.nodes[static_cast<size_t>(n)]);
  }

  struct Output {
    Access access;
    bool per_row;
    Expr value;
  };
  KernelBody body;
  std::vector<Access> inputs;
  std::vector<Output> outputs;
  std::vector<codegen::ParamValue> params;
  std::string ops;

 private:
  struct Known {
    Access access;
    Expr value;
  };

  Expr element(const Access& access) {
    for (const Known& k : known_) {
      if (k.access == access) return k.value;
    }
    const auto it = std::find(inputs.begin(), inputs.end(), access);
    const auto index = static_cast<int>(it - inputs.begin());
    if (it == inputs.end()) inputs.push_back(access);
    return body.pool.arg(index, access.dtype);
  }

  void write(const Node& node) {
    const NodeSpace own = *space_of(node, graph_);
    const std::vector<Access> accesses = accesses_over(node, own, group_.space);
    std::vector<Expr> elements;
    for (size_t i = 0; i < node.inputs.size(); ++i) elements.push_back(element(accesses[i]));
    InlineDims<DType> dtypes;
    for (const Value& v : node.outputs) dtypes.push_back(v.dtype);
    const NodeCall call(node, graph_);
    RecipeBuilder builder(call.call, dtypes, body, elements, static_cast<int>(params.size()));
    node.op->recipe.build(builder);
    if (node.op->recipe.params) {
      codegen::ParamValue values[16];
      const int count = node.op->recipe.params(call.call, values);
      params.insert(params.end(), values, values + count);
    }
    const bool per_row = is_per_row(own, group_.space);
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      const DType dtype = node.outputs[k].dtype;
      const Access& access = accesses[node.inputs.size() + k];
      const Expr value = cast(builder.results[k], compute_dtype(dtype));
      // Readers in this kernel see what they would load.
      std::erase_if(known_, [&](const Known& old) { return old.access.same_place(access); });
      known_.push_back({access, is_floating(dtype) ? stored(value, dtype) : value});
      std::erase_if(outputs, [&](const Output& old) { return old.access.same_place(access); });
      if (escapes_[static_cast<size_t>(access.buffer)]) outputs.push_back({access, per_row || (own.per_row >> k & 1), value});
    }
    ops += (ops.empty() ? "" : "+") + std::string(node.op->name);
  }

  const Group& group_;
  const Graph& graph_;
  const std::vector<bool>& escapes_;
  std::vector<Known> known_;
};

LoopNest nest_of(const Space& space, const Writer& writer) {
  LoopNest nest;
  nest.sizes = space.sizes;
  nest.logical = contiguous_strides(space.sizes);
  const auto add = [&](const Access& a) { nest.operands.push_back({nullptr, itemsize(a.dtype), a.strides}); };
  for (const Access& a : writer.inputs) add(a);
  for (const Writer::Output& o : writer.outputs) add(o.access);
  return nest;
}

void shape_pointwise(KernelStep& step) {
  int end = step.nest.collapse(0, step.nest.sizes.ndim());
  if (end == 0) step.nest.append_dim(1), end = 1;
  const int inner = end - 1;
  step.spec.kind = LoopKind::pointwise;
  step.outer_end = inner;
  step.run.n_inner = step.nest.sizes[static_cast<size_t>(inner)];
  step.run.inner_dim = inner;
  step.run.split_inner = true;
}

// False when the dims of the row cannot be walked as one.
bool shape_rows(KernelStep& step, const Space& space, bool all_per_row, bool one_node) {
  LoopNest& nest = step.nest;
  Dims order;
  for (int d = 0; d < space.sizes.ndim(); ++d) {
    if (std::find(space.row.begin(), space.row.end(), d) == space.row.end()) order.push_back(d);
  }
  const int kept = order.ndim();
  for (const int64_t d : space.row) order.push_back(d);
  nest.permute(order);
  nest.logical = contiguous_strides(nest.sizes);
  if (nest.collapse(kept, space.sizes.ndim()) - kept > 1) return false;
  step.outer_end = nest.collapse(0, kept);
  if (nest.sizes.ndim() == step.outer_end) nest.append_dim(1);
  const int reduce = nest.sizes.ndim() - 1;
  const bool column = one_node && all_per_row && step.outer_end > 0 && !nest.operands.empty() &&
                      nest.operands[0].strides[static_cast<size_t>(reduce)] != 1 &&
                      nest.operands[0].strides[static_cast<size_t>(step.outer_end - 1)] == 1 &&
                      nest.sizes[static_cast<size_t>(step.outer_end - 1)] >= 4;
  if (column) {
    const int inner = step.outer_end - 1;
    step.spec.kind = LoopKind::column;
    step.run.n_inner = nest.sizes[static_cast<size_t>(inner)];
    step.run.n_reduce = nest.sizes[static_cast<size_t>(reduce)];
    step.run.inner_dim = inner;
    step.run.reduce_dim = reduce;
    step.run.split_inner = true;
    step.outer_end = inner;
    return true;
  }
  step.spec.kind = LoopKind::row;
  step.run.n_inner = nest.sizes[static_cast<size_t>(reduce)];
  step.run.inner_dim = reduce;
  return true;
}

}  // namespace

std::optional<KernelStep> make_kernel_step(const Group& group, const Graph& graph, const std::vector<bool>& escapes) {
  Writer writer(group, graph, escapes);
  KernelStep step;
  step.ops = writer.ops;
  if (writer.outputs.empty()) return step;
  step.nest = nest_of(group.space, writer);
  const bool rows = !group.space.row.empty();
  const bool all_per_row = std::all_of(writer.outputs.begin(), writer.outputs.end(), [](const auto& o) { return o.per_row; });
  if (!rows) shape_pointwise(step);
  else if (!shape_rows(step, group.space, all_per_row, group.nodes.size() == 1)) return std::nullopt;
  step.run.leaf = group.leaf;
  step.params = std::move(writer.params);

  const int inner = step.run.inner_dim;
  const auto class_at = [&](size_t i, bool full_output) {
    const int64_t n = step.nest.sizes[static_cast<size_t>(inner)];
    return full_output && n == 1 ? StrideClass::contiguous : class_of(step.nest.operands[i].strides[static_cast<size_t>(inner)], n);
  };
  for (size_t i = 0; i < writer.inputs.size(); ++i) step.spec.inputs.push_back({writer.inputs[i].dtype, class_at(i, false)});
  for (size_t k = 0; k < writer.outputs.size(); ++k) {
    const bool per_row = step.spec.kind == LoopKind::row && writer.outputs[k].per_row;
    step.spec.outputs.push_back({writer.outputs[k].access.dtype, class_at(writer.inputs.size() + k, !per_row)});
    step.spec.results.push_back(writer.outputs[k].value.id());
  }
  step.spec.nodes = writer.body.pool.nodes();
  step.spec.reductions = std::move(writer.body.reductions);
  step.spec.name = step.ops.substr(0, 80);
  const auto place = [&](const Access& a) {
    step.operands.push_back({a.buffer, a.offset * itemsize(a.dtype)});
    int64_t elements = itemsize(a.dtype);
    for (size_t d = 0; d < a.strides.size(); ++d) {
      if (a.strides[d] != 0) elements *= group.space.sizes[d];
    }
    step.bytes += static_cast<double>(elements);
  };
  for (const Access& a : writer.inputs) place(a);
  for (const Writer::Output& o : writer.outputs) place(o.access);
  return step;
}

}  // namespace tutti::graph
