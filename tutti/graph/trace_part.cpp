// What a trace inside a trace does differently, and nodes that are no calls of ops.
#include "tutti/graph/trace.h"

namespace tutti::graph {

Trace::Trace(const std::string& part, Trace& outer) : Trace(fmt::format("{}: {}", outer.name(), part)) {
  outer_ = &outer;
  keys_ = TraceKeys(name());
  if (outer.program_ != nullptr) outer.program_->refuse(fmt::format("'{}' runs by itself", name()));
}

bool Trace::reads_from(const TraceState& other) const {
  for (const Trace* t = outer_; t != nullptr; t = t->outer_) {
    if (t->state_.get() == &other) return true;
  }
  return false;
}

void Trace::refuse_outer_writes(const OpCall& call) {
  const auto refuse = [&](int8_t input, const char* what) {
    if (input < 0) return;
    const Tensor& target = call.inputs[static_cast<size_t>(input)];
    if (graph_.buffers[static_cast<size_t>(value_of(target).buffer)].kind != Buffer::Kind::given) return;
    throw CaptureError(25, fmt::format("'{}': {} {} {}, which exists outside of it; a branch or a loop body may read such tensors but not "
                                       "change them. Return the new value, or write to a clone()", name(), call.op.name, what, describe(target)));
  };
  for (const int8_t written : call.op.writes) refuse(written, "writes in place to");
  for (const int8_t input : call.op.becomes) refuse(input, "gives other memory to");
}

void Trace::refuse_outer_keys(const OpCall& call) const {
  for (const Trace* t = outer_; t != nullptr; t = t->outer_) {
    if (t->keys_.words_in(call.op, call.attrs).empty()) continue;
    throw CaptureError(34, fmt::format("{}: '{}' draws random numbers with a key of the function around it; draw outside of it", call.op.name, name()));
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
