// The steps of a call, one by one.
#include "tutti/ops/engine/launch.h"
#include "tutti/plan/block_check.h"
#include "tutti/plan/control_step.h"
#include "tutti/plan/executable_frame.h"
#include "tutti/plan/failure.h"
#include "tutti/plan/node_call.h"
#include "tutti/runtime/trace/trace_span.h"
#include "tutti/tensor/device_copy.h"

namespace tutti::graph {

void Executable::run_kernel(const KernelStep& step, const Frame& frame) const {
  if (step.operands.empty()) return;
  const TraceSpan span(TraceCategory::kernel, *step.trace);
  char* data[kMaxNestOperands];
  for (size_t k = 0; k < step.operands.size(); ++k)
    data[k] = frame.bases[static_cast<size_t>(step.operands[k].buffer)] + step.operands[k].byte_offset;
  std::vector<codegen::ParamValue> params;  // with the keys of this call
  if (!step.keyed.empty()) {
    params = step.params;
    for (const KeyedParams& k : step.keyed) {
      Node node = graph_.nodes[static_cast<size_t>(k.node)];
      node.attrs = with_keys(node.attrs, node.keys, frame.keys);
      const NodeCall call(node, graph_);
      node.op->recipe.params(call.call, params.data() + k.first);
    }
  }
  const codegen::ParamValue* values = step.keyed.empty() ? step.params.data() : params.data();
  if (launch(step.plan, *step.kernel, values, data) != 0) refuse_zero(step);
}

void Executable::refuse_zero(const KernelStep& kernel) const {
  TUTTI_ASSERT(kernel.reporter >= 0, "the kernel {} reports an error, and no op in it can fail", kernel.ops);
  const Node& node = graph_.nodes[static_cast<size_t>(kernel.reporter)];
  throw IntegerDivideByZero(with_place(node.op->name, node.origin));
}

// What is about to be written counts as changed, as it does for each op of an eager run.
void Executable::begin_writes(size_t step, const Frame& frame) const {
  for (const int32_t b : first_writes_[step]) frame.memory[static_cast<size_t>(b)].storage->bump_version();
}

void Executable::run_call(size_t index, const CallStep& step, Frame& frame) const {
  if (step.op->resizes && is_inside(step)) return;
  Frame::Call& call = frame.calls[index];
  const auto fill = [&](const std::vector<Value>& values, const std::vector<Tensor>& kept,
                        std::vector<Tensor>& tensors) {
    for (size_t i = 0; i < values.size(); ++i)
      tensors.push_back(kept[i].defined() ? kept[i] : tensor_of(values[i], frame));
  };
  fill(step.inputs, call.kept_inputs, call.inputs);
  for (size_t i = 0; i < step.copy_first.size(); ++i) {
    if (step.copy_first[i]) call.inputs[i] = clone_to(call.inputs[i], call.inputs[i].device());
  }
  const std::optional<Attrs> keyed =
      step.keys.empty() ? std::nullopt : std::optional(with_keys(step.attrs, step.keys, frame.keys));
  const OpCall op_call{*step.op, call.inputs, keyed ? *keyed : step.attrs};
  try {
    if (step.op->check) step.op->check(op_call);
    if (step.control) step.control->check(call.inputs);
  } catch (...) {
    rethrow_with_place(step.control ? step.control->name() : step.op->name, step.origin);
  }
  if (step.check_only) return;
  begin_writes(index, frame);
  TraceContext context = TraceContext::current();
  context.phase = step.origin.phase;
  context.place = step.origin.place;
  const TraceContextScope scope(context);
  if (step.epilogue && !step.epilogue->keeps_operand) call.outputs.resize(step.outputs.size());
  else fill(step.outputs, call.kept_outputs, call.outputs);
  if (step.control) {
    step.control->run(call.inputs, call.outputs);
    return;
  }
  if (step.prologue || step.epilogue) {
    launch_call(op_call, step.trace, [&] { run_with_blocks(step, op_call, call.outputs, frame); });
    return;
  }
  try {
    launch_call(op_call, call.outputs, step.trace);
  } catch (...) {
    rethrow_with_place(step.op->name, step.origin);
  }
}

void Executable::run_step(size_t index, Frame& frame) const {
  if (const auto* call = std::get_if<CallStep>(&steps_[index])) {
    run_call(index, *call, frame);
    frame.calls[index].inputs.clear();
    std::vector<Tensor>& outputs = frame.calls[index].outputs;
    if (!call->op->ordered) outputs.clear();
    for (Tensor& output : outputs) {  // a collective may still write what is pending
      if (output.defined() && output.storage()->state() != StorageState::pending) output = {};
    }
    return;
  }
  begin_writes(index, frame);
  if (const auto* kernel = std::get_if<KernelStep>(&steps_[index])) run_kernel(*kernel, frame);
  else if (const KernelStep* failed = run_batch(std::get<BatchStep>(steps_[index]), frame.bases)) refuse_zero(*failed);
}

void Executable::run_with_blocks(const CallStep& step, const OpCall& call, std::span<const Tensor> outputs,
                                 const Frame& frame) const {
  const auto at = [](const std::optional<BlockStep>& s) { return s ? &*s : nullptr; };
  const BlockStep *prologue = at(step.prologue), *epilogue = at(step.epilogue);
  std::optional<BlockCheck> check;
  if (check_epilogues_) check.emplace(prologue, epilogue, call, step.inputs, step.outputs, graph_, frame.bases);
  char* data[2][kMaxNestOperands];
  const auto find = [&](const BlockStep* block, char** list) {
    for (size_t k = 0; block != nullptr && k < block->kernel.operands.size(); ++k) {
      const OperandPlace& place = block->kernel.operands[k];
      char* base = frame.bases[static_cast<size_t>(place.buffer)];
      list[k] = base ? base + place.byte_offset : nullptr;  // none of an operand that is not kept
    }
    return BlockRun{block, list};
  };
  const BlockErrors errors = run_in_blocks(call, outputs, find(prologue, data[0]), find(epilogue, data[1]));
  if (errors.prologue != 0) refuse_zero(prologue->kernel);
  if (errors.epilogue != 0) refuse_zero(epilogue->kernel);
  if (check) check->finish(frame.bases);
}

}  // namespace tutti::graph
