// Forward and backward of a function whose results require grad: traced together, cut in two.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tutti/graph/specialization.h"

namespace tutti::graph {

// The sizes of a trace's lists when the function returned.
struct JointSplit {
  size_t nodes = 0, buffers = 0;
  std::ptrdiff_t sources = 0;
  std::vector<int32_t> versions;  // newest, per buffer

  static JointSplit at_end_of(Trace& trace);
  // The graph up to there.
  Graph forward(const Graph& whole) const;
};

// The backward of the differentiable results, as it was traced behind the forward.
struct JointTrace {
  // Per entry of `grads` whose it is, an argument or a held tensor: arguments, then held tensors. A tensor that the
  // function uses several times stands there once per use, in forward order, so that the caller's backward sums or
  // delivers the uses as it would without compile(); one with hooks of the function's own stands there once. The uses
  // of a held tensor that is an argument, too, stand among those of the argument.
  struct Leaf {
    int32_t argument = -1;
    Tensor held = {};
  };
  std::vector<Leaf> leaves;
  std::vector<DType> cotangent_dtypes;  // of the results
  std::vector<int32_t> consumers;       // of the results, inside the function: how many cotangents they send
  std::vector<std::shared_ptr<const WrapperForm>> cotangent_forms;
  std::vector<Tensor> grads;  // undefined: zero; insides in the place of wrappers
  std::vector<std::shared_ptr<const WrapperForm>> grad_forms;

  // Traces it. actual: what the stand-ins stand for. start: the place in forward order where the trace began.
  // CaptureError when the function used a tensor that was computed outside of it and requires grad.
  static JointTrace of(Trace& trace, const std::string& name, std::span<const Tensor> stand_ins,
                       std::span<const Tensor> actual, std::span<const Tensor> wanted, const autograd::Order& start);
  // Chooses what the backward reads of the forward; call it once, before the graph is cut.
  PartitionStatistics partition(const JointSplit& split, Trace& trace, const PartitionOptions& options) const;
  // Cuts the graph. `forward` gets what the backward reads as further results.
  std::unique_ptr<JointBackward> cut(const JointSplit& split, Trace& trace, Graph& forward,
                                     const BuildOptions& options) const;

 private:
  std::vector<Value> grad_values(Trace& trace) const;  // buffer -1: undefined
};

}  // namespace tutti::graph
