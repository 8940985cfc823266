#include "tutti/plan/passes/make_steps.h"

#include "tutti/ops/engine/dispatch.h"
#include "tutti/plan/control_step.h"
#include "tutti/plan/node_call.h"
#include "tutti/plan/passes/pass_state.h"
#include "tutti/plan/provenance.h"

namespace tutti::graph {
namespace {

// The buffers that something outside of the group which makes them reads, or that exist outside of the call.
std::vector<bool> escapes_of(const std::vector<Group>& groups, const Graph& graph) {
  std::vector<bool> outside(graph.buffers.size(), false);
  for (size_t b = 0; b < outside.size(); ++b) outside[b] = graph.buffers[b].kind == Buffer::Kind::given;
  for (const Value& v : graph.results) {
    if (v.buffer >= 0) outside[static_cast<size_t>(v.buffer)] = true;
  }
  std::vector<int32_t> touched_by(graph.buffers.size(), -1);
  for (size_t g = 0; g < groups.size(); ++g) {
    for_each_node(groups[g], [&](int32_t n) {
      const Node& node = graph.nodes[static_cast<size_t>(n)];
      for (const auto* values : {&node.inputs, &node.outputs}) {
        for (const Value& v : *values) {
          int32_t& who = touched_by[static_cast<size_t>(v.buffer)];
          if (who >= 0 && who != static_cast<int32_t>(g)) outside[static_cast<size_t>(v.buffer)] = true;
          who = static_cast<int32_t>(g);
        }
      }
    });
  }
  return outside;
}

// Which inputs the node's writes would change before they are read; empty when none.
std::vector<bool> tangled_inputs(const Node& node, const Graph& graph) {
  std::vector<bool> tangled;
  for (const int8_t written : node.op->writes) {
    if (written < 0) continue;
    const Value& target = node.inputs[static_cast<size_t>(written)];
    const Tensor whole = stand_ins({&target, 1}, graph)[0];
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const Value& v = node.inputs[i];
      if (static_cast<int>(i) == written || v.buffer != target.buffer) continue;
      if (!is_tangled(whole, Tensor::over(whole.storage(), v.sizes, v.strides, v.offset, v.dtype))) continue;
      tangled.resize(node.inputs.size(), false);
      tangled[i] = true;
    }
  }
  return tangled;
}

class StepMaker {
 public:
  explicit StepMaker(PassState& state)
      : state_(state),
        graph_(state.graph),
        options_(state.options),
        steps_(state.steps),
        statistics_(state.statistics),
        escapes_(escapes_of(state.groups, state.graph)) {}

  void run() {
    for (const Group& group : state_.groups) {
      const Node& first = graph_.nodes[static_cast<size_t>(group.nodes[0])];
      std::optional<KernelStep> step;
      if (group.is_kernel && tangled_inputs(first, graph_).empty()) step = make_kernel_step(group, graph_, escapes_);
      if (!step) {
        for (const int32_t n : group.nodes) add_call(n, false);
        if (!group.is_kernel) add_blocks(group);
        continue;
      }
      if (first.op->check) add_call(group.nodes[0], true);
      if (step->operands.empty()) continue;
      ++statistics_.kernels;
      statistics_.fused_nodes += static_cast<int64_t>(group.nodes.size());
      statistics_.kernel_bytes += step->bytes;
      step->nodes = group.nodes;
      step->trace = &provenance_of(*step, group, graph_, state_.graph_key);
      steps_.push_back(std::move(*step));
    }
  }

 private:
  void add_call(int32_t n, bool check_only) {
    const Node& node = graph_.nodes[static_cast<size_t>(n)];
    if (!check_only) ++statistics_.calls;
    steps_.push_back(
        CallStep{.node = n,
                 .op = node.op,
                 .attrs = node.attrs,
                 .inputs = node.inputs,
                 .outputs = node.outputs,
                 .copy_first = tangled_inputs(node, graph_),
                 .check_only = check_only,
                 .origin = node.origin,
                 .control = node.control ? std::make_shared<const ControlStep>(*node.control, options_) : nullptr,
                 .keys = node.keys});
  }

  // The kernels that are attached to the call of the last step.
  void add_blocks(const Group& call) {
    const Node& node = graph_.nodes[static_cast<size_t>(call.nodes[0])];
    CallStep& step = std::get<CallStep>(steps_.back());
    const auto add = [&](const Group& kernel, std::optional<BlockStep>& place, int64_t& count, auto make,
                         const Value& operand) {
      auto made = make(kernel, graph_, escapes_, operand);
      TUTTI_ASSERT(std::holds_alternative<BlockStep>(made), "{} has a kernel on its blocks, but {}", node.op->name,
                   std::get<const char*>(made));
      place = std::move(std::get<BlockStep>(made));
      place->kernel.nodes = kernel.nodes;
      ++count;
      statistics_.fused_nodes += static_cast<int64_t>(kernel.nodes.size());
      statistics_.kernel_bytes += place->kernel.bytes;
    };
    for (const Group& kernel : call.prologue)
      add(kernel, step.prologue, statistics_.prologues, make_prologue, node.inputs[0]);
    for (const Group& kernel : call.epilogue)
      add(kernel, step.epilogue, statistics_.epilogues, make_epilogue, node.outputs[0]);
    if (step.prologue || step.epilogue)
      step.trace = &provenance_of(step.prologue, step.epilogue, call, graph_, state_.graph_key);
  }

  const PassState& state_;
  const Graph& graph_;
  const BuildOptions& options_;
  std::vector<Step>& steps_;
  ExecutableStatistics& statistics_;
  const std::vector<bool> escapes_;
};

}  // namespace

void make_steps(PassState& state) { StepMaker(state).run(); }

}  // namespace tutti::graph
