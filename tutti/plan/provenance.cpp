#include "tutti/plan/provenance.h"

#include <algorithm>

#include "tutti/codegen/cpu_target.h"
#include "tutti/core/hash.h"
#include "tutti/plan/node_call.h"
#include "tutti/plan/passes/pass_state.h"
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

// What the nodes of a group and of what is attached to it add: ops, work, and where they come from.
void add_nodes(KernelInfo& info, const Group& group, const Graph& graph) {
  bool first = true;
  for_each_node(group, [&](int32_t n) {
    const Node& node = graph.nodes[static_cast<size_t>(n)];
    info.ops.push_back({node.op->name, n});
    info.flops += cost_of(NodeCall(node, graph).call).flops;
    const std::string module = node.origin.place ? node.origin.place->module_path : "";
    info.module_path = first ? module : common_module(info.module_path, module);
    if (first) info.phase = node.origin.phase;
    first = false;
    if (node.origin.place == nullptr) return;
    for (const std::string& line : node.origin.place->stack) {
      if (std::find(info.stack.begin(), info.stack.end(), line) == info.stack.end()) info.stack.push_back(line);
    }
  });
}

// Lives as long as the process.
const char* graph_key_of(const Graph& graph, const std::string& name) {
  return intern_trace_name(fmt::format("{}_{:012x}", name, hash64(to_string(graph)) >> 16));
}

}  // namespace

void name_lines(PassState& state) {
  state.graph_key = graph_key_of(state.graph, state.options.name);
  for (Node& node : state.graph.nodes) {
    if (node.origin.site) node.origin.place = place_with_line(node.origin.place, user_line(*node.origin.site));
  }
}

const TraceKernel& provenance_of(const KernelStep& step, const Group& group, const Graph& graph,
                                 const char* graph_key) {
  KernelInfo info{.kernel_id = fmt::format("{}_{:012x}", step.spec.name, hash64(step.spec.key()) >> 16),
                  .graph_key = graph_key,
                  .bytes = step.bytes,
                  .choice = fmt::format("generated {}", codegen::name_of(codegen::cpu_target())),
                  .specialization = fmt::format("sizes={}", group.space.sizes)};
  add_nodes(info, group, graph);
  return intern_kernel(info);
}

const TraceKernel& provenance_of(const std::optional<BlockStep>& prologue, const std::optional<BlockStep>& epilogue,
                                 const Group& call, const Graph& graph, const char* graph_key) {
  const Node& node = graph.nodes[static_cast<size_t>(call.nodes[0])];
  double bytes = 0;
  const auto add = [&](const Value& v) { bytes += static_cast<double>(numel_of(v.sizes) * itemsize(v.dtype)); };
  for (size_t i = prologue ? 1 : 0; i < node.inputs.size(); ++i) add(node.inputs[i]);
  if (!epilogue || epilogue->keeps_operand) add(node.outputs[0]);
  std::string id, keys, choice;
  if (prologue) {
    const codegen::KernelSpec& spec = prologue->kernel.spec;
    bytes += prologue->kernel.bytes;
    id = spec.name + "+";
    keys = spec.key();
    choice = fmt::format("its first operand from {}", prologue->kernel.ops);
  }
  id += node.op->name;
  if (epilogue) {
    const codegen::KernelSpec& spec = epilogue->kernel.spec;
    bytes += epilogue->kernel.bytes;
    id += "+" + spec.name;
    keys += spec.key();
    choice += fmt::format("{}{} on its blocks, output {}", prologue ? "; " : "", epilogue->kernel.ops,
                          epilogue->keeps_operand ? "kept" : "nowhere else");
  }
  KernelInfo info{.kernel_id = fmt::format("{}_{:012x}", id, hash64(keys) >> 16),
                  .graph_key = graph_key,
                  .bytes = bytes,
                  .choice = choice,
                  .specialization = fmt::format("sizes={}", node.outputs[0].sizes)};
  add_nodes(info, call, graph);
  return intern_kernel(info);
}

const TraceKernel& provenance_of(std::span<const KernelStep> kernels, const char* graph_key) {
  KernelInfo info = kernels[0].trace->info;
  std::string ids = info.kernel_id;
  for (const KernelStep& kernel : kernels.subspan(1)) {
    const KernelInfo& other = kernel.trace->info;
    ids += "," + other.kernel_id;
    info.ops.insert(info.ops.end(), other.ops.begin(), other.ops.end());
    info.module_path = common_module(info.module_path, other.module_path);
    info.bytes += other.bytes, info.flops += other.flops;
    for (const std::string& line : other.stack) {
      if (std::find(info.stack.begin(), info.stack.end(), line) == info.stack.end()) info.stack.push_back(line);
    }
  }
  info.kernel_id = fmt::format("{}_kernels_{}_{:012x}", kernels.size(), kernels[0].spec.name, hash64(ids) >> 16);
  info.graph_key = graph_key;
  info.specialization = fmt::format("kernels={}", kernels.size());
  return intern_kernel(info);
}

}  // namespace tutti::graph
