// Forward and backward of a function whose results require grad: traced together, cut in two.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tutti/graph/specialization.h"

namespace tutti::graph {

// What a trace held when the function returned.
struct JointSplit {
  size_t nodes = 0, buffers = 0;
  std::ptrdiff_t sources = 0;
  std::vector<int32_t> versions;  // newest, per buffer

  static JointSplit at_end_of(Trace& trace);
  // The graph up to there.
  Graph forward(const Graph& whole) const;
};

// The backward of `wanted`, traced after the function has returned.
class JointTrace {
 public:
  // start: the place in forward order where the trace began. CaptureError when the function used a tensor that was
  // computed outside of it and requires grad.
  JointTrace(Trace& trace, const std::string& name, std::span<const Tensor> stand_ins, std::span<const Tensor> wanted, const autograd::Order& start);
  // Chooses what the backward reads of the forward; call it once, before the graph is cut.
  PartitionStatistics partition(const JointSplit& split, Trace& trace, const PartitionOptions& options) const;
  // Cuts the graph. `forward` gets what the backward reads as further results.
  std::unique_ptr<JointBackward> finish(const JointSplit& split, Trace& trace, Graph& forward, const BuildOptions& options);

 private:
  std::unique_ptr<JointBackward> made_;
  std::vector<Tensor> cotangents_;
  std::vector<Value> grads_;  // buffer -1: undefined
};

}  // namespace tutti::graph
