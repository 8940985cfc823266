// What a trace inside a trace does differently, and nodes that are no calls of ops.
#include "tutti/graph/trace.h"

namespace tutti::graph {

Trace::Trace(const std::string& part, Trace& outer) : Trace(fmt::format("{}: {}", outer.name(), part)) { outer_ = &outer; }

bool Trace::reads_from(const TraceState& other) const {
  for (const Trace* t = outer_; t != nullptr; t = t->outer_) {
    if (t->state_.get() == &other) return true;
  }
  return false;
}

void Trace::refuse_outer_writes(const OpCall& call) {
  for (const int8_t written : call.op.writes) {
    if (written < 0) continue;
    const Tensor& target = call.inputs[static_cast<size_t>(written)];
    if (graph_.buffers[static_cast<size_t>(value_of(target).buffer)].kind != Buffer::Kind::given) continue;
    throw CaptureError(25, fmt::format("'{}': {} writes in place to {}, which exists outside of it; a branch or a loop body may read such "
                                       "tensors but not write them. Return the new value, or write to a clone()", name(), call.op.name,
                                       describe(target)));
  }
}

std::vector<Tensor> Trace::append(Node node, std::span<const OutputMeta> metas, Device device) {
  node.origin = origin();
  std::vector<Tensor> outputs;
  for (const OutputMeta& m : metas) outputs.push_back(add_output(node, m.dtype, concrete(m.sizes), device));
  graph_.nodes.push_back(std::move(node));
  return outputs;
}

}  // namespace tutti::graph
