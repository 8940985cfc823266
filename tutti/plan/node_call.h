// An OpCall for a node: facets take tensors, a graph has values.
#pragma once

#include <vector>

#include "tutti/plan/graph.h"

namespace tutti::graph {

// Tensors of the shapes of `values`, without memory: facets that look at sizes, strides and dtypes work on them.
std::vector<Tensor> stand_ins(std::span<const Value> values, const Graph& graph);

// Keeps the tensors of one node's call alive. Not copied: `call` refers to them.
struct NodeCall {
  NodeCall(const Node& node, const Graph& graph)
      : inputs(stand_ins(node.inputs, graph)), call{*node.op, inputs, node.attrs} {}
  NodeCall(const NodeCall&) = delete;
  NodeCall& operator=(const NodeCall&) = delete;
  const std::vector<Tensor> inputs;
  const OpCall call;
};

}  // namespace tutti::graph
