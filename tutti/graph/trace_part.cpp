// What a trace inside a trace does differently, and nodes that are no calls of ops.
#include "tutti/graph/trace.h"
#include "tutti/plan/control_body.h"
#include "tutti/plan/failure.h"

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
    throw CaptureError(
        25,
        fmt::format("'{}': {} {} {}, which exists outside of it; a branch or a loop body may read such tensors but not "
                    "change them. Return the new value, or write to a clone()",
                    name(), call.op.name, what, describe(target)));
  };
  for (const int8_t written : call.op.writes) refuse(written, "writes in place to");
  for (const int8_t input : call.op.becomes) refuse(input, "gives other memory to");
}

void Trace::refuse_outer_keys(const OpCall& call) const {
  for (const Trace* t = outer_; t != nullptr; t = t->outer_) {
    if (t->keys_.slots_in(call.op, call.attrs).empty()) continue;
    throw CaptureError(
        34, fmt::format("{}: '{}' draws random numbers with a key of the function around it; draw outside of it",
                        call.op.name, name()));
  }
}

void Trace::record_check(std::shared_ptr<const ControlBody> body, const Tensor& condition) {
  const Origin here = origin();
  if (program_ != nullptr) {
    if (is_traced(condition) && condition.impl()->traced < 0) program_->refuse("a check takes a view that no op made");
    program_->append(Program::Check{body, condition.alias(), here});
  }
  repeat_check(std::move(body), condition, here);
}

void Trace::repeat_check(std::shared_ptr<const ControlBody> body, const Tensor& condition, const Origin& origin) {
  Node node = control_node(std::move(body));
  node.inputs.push_back(value_of(condition));
  node.origin = origin;
  node.fails = fails_of(*node.control, node.inputs);
  graph_.nodes.push_back(std::move(node));
}

std::vector<Tensor> Trace::append(Node node, std::span<const OutputMeta> metas, Device device) {
  node.origin = origin();
  std::vector<Tensor> outputs;
  for (const OutputMeta& m : metas) outputs.push_back(add_output(node, m.dtype, concrete(m.sizes), device));
  if (node.control) node.fails = fails_of(*node.control, node.inputs);
  graph_.nodes.push_back(std::move(node));
  return outputs;
}

}  // namespace tutti::graph
