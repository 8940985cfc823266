// The kernel of a group: one specification for the code generator, and the loops around it.
#pragma once

#include <optional>

#include "tutti/ops/engine/loop_plan.h"
#include "tutti/plan/passes/fuse.h"
#include "tutti/runtime/trace/kernel_info.h"

namespace tutti::graph {

// Where the kernel's operands lie: bytes from the start of a buffer.
struct OperandPlace {
  int32_t buffer;
  int64_t byte_offset;
};

// Parameters of a node that draws random numbers: others in each call.
struct KeyedParams {
  int32_t node;   // of the graph
  int32_t first;  // of the parameters
};

struct KernelStep {
  codegen::KernelSpec spec;
  const codegen::Kernel* kernel = nullptr;  // of `spec`, once compiled
  LoopPlan plan;                            // the data pointers of its nest are unused
  std::vector<OperandPlace> operands;       // inputs, then outputs
  std::vector<codegen::ParamValue> params;
  std::vector<KeyedParams> keyed;
  // The nodes of the graph, in the order in which they process an element.
  std::vector<int32_t> nodes;
  std::string ops;        // names of the ops inside, for traces
  int32_t reporter = -1;  // the node of the graph that fails when the kernel reports an error; -1: none can
  double bytes = 0;       // moved by one run
  const TraceKernel* trace = nullptr;  // where it comes from
};

// The step of `group`. Nothing when its rows cannot be walked as one dim: then its nodes must run one by one, where the
// eager engine packs what it needs. A step whose kernel would visit no point has no operands.
// escapes: per buffer, whether anything outside of the group reads it.
std::optional<KernelStep> make_kernel_step(const Group& group, const Graph& graph, const std::vector<bool>& escapes);

}  // namespace tutti::graph
