// Branches and loop bodies in a trace: each is traced by itself, and becomes a part of a control node.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tutti/autograd/backward.h"
#include "tutti/graph/trace.h"
#include "tutti/plan/control_body.h"
#include "tutti/runtime/function_ref.h"

namespace tutti::graph {

// The inputs of a control node while it is put together.
class NodeInputs {
 public:
  explicit NodeInputs(Trace& outer) : outer_(outer) {}
  // The number of the input that holds `t` as it lies; equal ones are one. `alone`: a place that nothing else shares.
  int32_t add(const Tensor& t, bool alone = false);
  // The input that holds the whole buffer under `t`, and how far before its first byte the storage of `t` begins.
  ControlBody::Feed add_storage(const Tensor& t);

  std::vector<Value> values;

 private:
  int32_t add_value(const Value& v);
  Trace& outer_;
  size_t first_shared_ = 0;
};

// A function of tensors, traced inside a running trace. It keeps what it recorded for autograd, so its backward can be
// traced behind it later.
class PartTrace {
 public:
  using Fn = FunctionRef<std::vector<Tensor>(std::span<const Tensor>)>;
  // Runs `fn` on stand-ins for `operands`: with their strides, or dense. CaptureError for what a part may not do: write
  // what exists outside, set gradients of it.
  PartTrace(Trace& outer, const std::string& name, std::vector<Tensor> operands, size_t num_dense, Fn fn);

  const std::vector<Tensor>& results() const { return results_; }
  const std::string& name() const { return name_; }
  // Whether storages that it read have been written since.
  bool inputs_changed() const;

  // Leaves and values of the enclosing traces that require grad and are read here.
  std::vector<autograd::Edge> captured() const;

  // The part that computes the results. input_of: the node's input for an operand.
  ControlBody::Part forward(NodeInputs& inputs, FunctionRef<int32_t(int32_t operand)> input_of);

  // The cotangents of values outside that follow from those of the results (tensors of the outer trace, undefined for
  // zero), use by use in forward order. Traced behind the forward; `start`: a place before it.
  std::vector<autograd::Outgoing> send_back(const autograd::Order& start, std::span<const Tensor> cotangents);
  // Minus zeros of the shape of `like`: a use of a value that this part does not have.
  Tensor nothing(const Tensor& like);
  // The part that computes `grads`, with what it needs of the forward computed again.
  ControlBody::Part backward(NodeInputs& inputs, std::span<const Tensor> grads);

 private:
  ControlBody::Part extract(Graph graph, NodeInputs& inputs, FunctionRef<int32_t(int32_t)> input_of);
  void refuse_gradients();

  std::string name_;
  Trace trace_;
  std::vector<Tensor> later_;      // outer tensors of the trace's later sources: operands, then cotangents
  std::vector<Tensor> stand_ins_;  // for the operands
  std::vector<Tensor> results_;
  std::vector<Value> result_values_;
  size_t forward_nodes_ = 0;
  std::vector<std::pair<StorageRef, uint32_t>> versions_;  // of storages outside, after the forward
};

// Throws CaptureError unless the parts give results of the same number, dtypes and shapes.
void check_agreement(const char* what, const Trace& outer, std::span<const std::unique_ptr<PartTrace>> parts);
// Whether a node over `parts` must keep its place.
bool any_ordered(std::span<const ControlBody::Part> parts);
// One per result.
std::vector<OutputMeta> metas_of(std::span<const Tensor> results);

}  // namespace tutti::graph
