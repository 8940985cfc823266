// Graphs made by hand, of dense f32 values that are each the whole of a buffer.
#pragma once

#include <string>
#include <vector>

#include "tutti/plan/graph.h"

namespace tutti::plan_test {

class GraphBuilder {
 public:
  // Memory that the caller has; its source is the number of those before it.
  graph::Value given(const Extents& sizes) {
    graph_.buffers.push_back({.kind = graph::Buffer::Kind::given, .source = sources_++, .nbytes = bytes_of(sizes)});
    return value_of(sizes);
  }
  // A new value of the op.
  graph::Value call(const OpDef& op, std::vector<graph::Value> inputs, const Extents& sizes, const Attrs& attrs = {}) {
    graph_.buffers.push_back({.kind = graph::Buffer::Kind::made, .nbytes = bytes_of(sizes)});
    const graph::Value made = value_of(sizes);
    add({.op = &op, .attrs = attrs, .inputs = std::move(inputs), .outputs = {made}, .origin = {.phase = phase}});
    return made;
  }
  graph::Value call(const char* op, std::vector<graph::Value> inputs, const Extents& sizes, const Attrs& attrs = {}) {
    return call(find_op(op), std::move(inputs), sizes, attrs);
  }
  // The next version of input 0, which the op writes in place.
  graph::Value write(const char* op, std::vector<graph::Value> inputs) {
    graph::Value next = inputs[0];
    ++next.version;
    graph_.buffers[static_cast<size_t>(next.buffer)].versions = next.version + 1;
    add({.op = &find_op(op), .inputs = std::move(inputs), .outputs = {next}, .origin = {.phase = phase}});
    return next;
  }
  graph::Graph with_results(std::vector<graph::Value> results) {
    graph_.results = std::move(results);
    return graph_;
  }

  TracePhase phase = TracePhase::forward;  // of the nodes that follow

 private:
  static int64_t bytes_of(const Extents& sizes) { return numel_of(sizes) * itemsize(DType::f32); }
  graph::Value value_of(const Extents& sizes) const {
    return {.buffer = static_cast<int32_t>(graph_.buffers.size()) - 1,
            .dtype = DType::f32,
            .sizes = sizes,
            .strides = contiguous_strides(sizes)};
  }
  void add(graph::Node node) { graph_.nodes.push_back(std::move(node)); }

  graph::Graph graph_;
  int32_t sources_ = 0;
};

}  // namespace tutti::plan_test
