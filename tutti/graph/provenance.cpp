#include "tutti/graph/provenance.h"

#include <algorithm>

#include "tutti/core/hash.h"
#include "tutti/graph/node_call.h"
#include "tutti/runtime/trace/trace_event.h"

namespace tutti::graph {
namespace {

// The innermost module that both stand in: "model.layers.0" of "model.layers.0.mlp" and "model.layers.0.self_attn".
std::string common_module(const std::string& a, const std::string& b) {
  size_t end = 0;
  for (size_t i = 0;; ++i) {
    const bool a_ends = i == a.size() || a[i] == '.', b_ends = i == b.size() || b[i] == '.';
    if (a_ends && b_ends) end = i;
    if (i == a.size() || i == b.size() || a[i] != b[i]) return a.substr(0, end);
  }
}

}  // namespace

void name_lines(Graph& graph) {
  for (Node& node : graph.nodes) {
    if (node.origin.site) node.origin.place = place_with_line(node.origin.place, user_line(*node.origin.site));
  }
}

const char* graph_key_of(const Graph& graph, const std::string& name) {
  return intern_trace_name(fmt::format("{}_{:012x}", name, hash64(to_string(graph)) >> 16));
}

const TraceKernel& provenance_of(const KernelStep& step, const Group& group, const Graph& graph, const char* graph_key) {
  KernelInfo info{.kernel_id = fmt::format("{}_{:012x}", step.spec.name, hash64(step.spec.key()) >> 16), .graph_key = graph_key, .bytes = step.bytes,
                  .choice = fmt::format("generated {}", codegen::name_of(codegen::cpu_target())),
                  .specialization = fmt::format("sizes={}", group.space.sizes)};
  bool first = true;
  for (const int32_t n : group.nodes) {
    const Node& node = graph.nodes[static_cast<size_t>(n)];
    info.ops.push_back({node.op->name, n});
    info.flops += cost_of(NodeCall(node, graph).call).flops;
    const std::string module = node.origin.place ? node.origin.place->module_path : "";
    info.module_path = first ? module : common_module(info.module_path, module);
    if (first) info.phase = node.origin.phase;
    first = false;
    if (node.origin.place == nullptr) continue;
    for (const std::string& line : node.origin.place->stack) {
      if (std::find(info.stack.begin(), info.stack.end(), line) == info.stack.end()) info.stack.push_back(line);
    }
  }
  return intern_kernel(info);
}

}  // namespace tutti::graph
