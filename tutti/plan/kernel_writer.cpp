#include "tutti/plan/kernel_writer.h"

#include <algorithm>

#include "tutti/core/expr_walk.h"
#include "tutti/plan/node_call.h"

namespace tutti::graph {

using codegen::LoopKind;

KernelWriter::KernelWriter(const Group& group, const Graph& graph, const std::vector<bool>& escapes)
    : group_(group), graph_(graph), escapes_(escapes) {
  for (const int32_t n : group.nodes) write(graph.nodes[static_cast<size_t>(n)]);
  keep_report();
}

void KernelWriter::keep_report() {
  const bool has_report =
      std::any_of(reported_.begin(), reported_.end(), [&](const Output& out) { return !is_used(out.value.id()); });
  if (!has_report) return;
  for (const Output& out : reported_) {
    const bool is_stored =
        std::any_of(outputs.begin(), outputs.end(), [&](const Output& o) { return o.access.same_place(out.access); });
    if (!is_stored) outputs.push_back(out);
  }
}

bool KernelWriter::is_used(int32_t expr) const {
  std::vector<int32_t> roots;
  for (const Output& out : outputs) roots.push_back(out.value.id());
  for (const codegen::Reduction& r : body.reductions) roots.push_back(r.value);
  return needed_by(roots, body.pool.nodes())[static_cast<size_t>(expr)];
}

Expr KernelWriter::element(const Access& access) {
  for (const Known& k : known_) {
    if (k.access == access) return k.value;
  }
  const auto it = std::find(inputs.begin(), inputs.end(), access);
  const auto index = static_cast<int>(it - inputs.begin());
  if (it == inputs.end()) inputs.push_back(access);
  return body.pool.arg(index, access.dtype);
}

void KernelWriter::write(const Node& node) {
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
    if (!node.keys.empty())
      keyed.push_back({static_cast<int32_t>(&node - graph_.nodes.data()), static_cast<int32_t>(params.size())});
    codegen::ParamValue values[16];
    const int count = node.op->recipe.params(call.call, values);
    params.insert(params.end(), values, values + count);
  }
  const bool reports = node.fails == Fails::while_writing;
  if (reports) reporter = static_cast<int32_t>(&node - graph_.nodes.data());
  const bool per_row = is_per_row(own, group_.space);
  for (size_t k = 0; k < node.outputs.size(); ++k) {
    const DType dtype = node.outputs[k].dtype;
    const Access& access = accesses[node.inputs.size() + k];
    const Expr value = cast(builder.results[k], compute_dtype(dtype));
    // Readers in this kernel see what they would load.
    std::erase_if(known_, [&](const Known& old) { return old.access.same_place(access); });
    known_.push_back({access, is_floating(dtype) ? stored(value, dtype) : value});
    std::erase_if(outputs, [&](const Output& old) { return old.access.same_place(access); });
    const Output out{access, per_row || (own.per_row >> k & 1), value};
    if (escapes_[static_cast<size_t>(access.buffer)]) outputs.push_back(out);
    if (reports) reported_.push_back(out);
  }
  ops += (ops.empty() ? "" : "+") + std::string(node.op->name);
}

LoopPlan KernelWriter::plan() const {
  LoopPlan plan;
  plan.nest.sizes = group_.space.sizes;
  plan.nest.logical = contiguous_strides(plan.nest.sizes);
  plan.kind = group_.space.row.empty() ? LoopKind::pointwise : LoopKind::row;
  plan.run.leaf = group_.leaf;
  plan.inputs = inputs.size();
  const auto add = [&](const Access& a) { plan.nest.operands.push_back({nullptr, itemsize(a.dtype), a.strides}); };
  for (const Access& a : inputs) add(a);
  for (size_t k = 0; k < outputs.size(); ++k) {
    add(outputs[k].access);
    plan.per_row |= static_cast<uint32_t>(outputs[k].per_row) << k;
  }
  return plan;
}

void KernelWriter::finish(KernelStep& step) {
  step.ops = ops;
  step.reporter = reporter;
  step.params = std::move(params);
  step.keyed = std::move(keyed);
  step.spec.kind = step.plan.kind;
  for (size_t i = 0; i < inputs.size(); ++i) step.spec.inputs.push_back(step.plan.operand(i, inputs[i].dtype));
  for (size_t k = 0; k < outputs.size(); ++k) {
    step.spec.outputs.push_back(step.plan.operand(inputs.size() + k, outputs[k].access.dtype));
    step.spec.results.push_back(outputs[k].value.id());
  }
  step.spec.nodes = body.pool.nodes();
  step.spec.reductions = std::move(body.reductions);
  step.spec.name = step.ops.substr(0, 80);
  const auto place = [&](const Access& a) {
    step.operands.push_back({a.buffer, a.offset * itemsize(a.dtype)});
    int64_t elements = itemsize(a.dtype);
    for (size_t d = 0; d < a.strides.size(); ++d) {
      if (a.strides[d] != 0) elements *= group_.space.sizes[d];
    }
    step.bytes += static_cast<double>(elements);
  };
  for (const Access& a : inputs) place(a);
  for (const Output& o : outputs) place(o.access);
}

}  // namespace tutti::graph
