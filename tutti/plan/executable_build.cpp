// How an Executable is made: the passes, in order.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <thread>

#include "tutti/ops/engine/dispatch.h"
#include "tutti/plan/block_check.h"
#include "tutti/plan/control_step.h"
#include "tutti/plan/dump.h"
#include "tutti/plan/executable_frame.h"
#include "tutti/plan/node_call.h"
#include "tutti/plan/passes/batch.h"
#include "tutti/plan/passes/bucket_collectives.h"
#include "tutti/plan/passes/join_products.h"
#include "tutti/plan/passes/merge_equal.h"
#include "tutti/plan/passes/prologue.h"
#include "tutti/plan/passes/remove_unused.h"
#include "tutti/plan/passes/schedule_collectives.h"
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

}  // namespace

Executable::Executable(Graph graph, const BuildOptions& options) : graph_(std::move(graph)) {
  const auto begin = std::chrono::steady_clock::now();
  statistics_.nodes = static_cast<int64_t>(graph_.nodes.size());
  check(graph_);
  dump_stage(options.name, "captured", [&] { return graph::to_string(graph_); });
  statistics_.merged = merge_equal(graph_);
  statistics_.unused = remove_unused(graph_);
  statistics_.partition = partition(graph_, options.partition);
  if (statistics_.partition.recomputed > 0) statistics_.unused += remove_unused(graph_);  // only the backward read them
  statistics_.bucketed = bucket_collectives(graph_, options.collectives.bucket_bytes);
  if (options.collectives.join_products) statistics_.joined = join_products(graph_);
  statistics_.started_early = schedule_collectives(graph_, options.collectives.under_way_bytes);
  dump_stage(options.name, "simplified", [&] { return graph::to_string(graph_); });
  graph_key_ = graph_key_of(graph_, options.name);
  name_lines(graph_);
  check_epilogues_ = options.check_epilogues || BlockCheck::is_on();
  std::vector<Group> groups = fuse(graph_, options.fuse);
  if (options.fuse.fuse) attach_kernels(groups, options);
  add_steps(groups, options);
  if (options.batch) steps_ = batch(std::move(steps_), graph_, graph_key_);
  statistics_.launches = std::count_if(steps_.begin(), steps_.end(),
                                       [](const Step& step) { return !std::holds_alternative<CallStep>(step); });
  dump_stage(options.name, "steps", [&] { return to_string(); });
  resizes_ = std::any_of(graph_.nodes.begin(), graph_.nodes.end(), [](const Node& n) { return n.op->resizes; });
  plan_waits();
  plan_buffers();
  plan_uses();
  compile_kernels(options.jobs);
  statistics_.compile_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

void Executable::add_call(const Node& node, bool check_only, const BuildOptions& options) {
  if (!check_only) ++statistics_.calls;
  steps_.push_back(CallStep{node.op,
                            node.attrs,
                            node.inputs,
                            node.outputs,
                            tangled_inputs(node, graph_),
                            check_only,
                            node.origin,
                            node.control ? std::make_shared<const ControlStep>(*node.control, options) : nullptr,
                            {},
                            {},
                            nullptr,
                            node.keys});
}

void Executable::attach_kernels(std::vector<Group>& groups, const BuildOptions& options) {
  const auto take = [&](AttachPlan plan, double& saved_bytes) {
    groups = std::move(plan.groups);
    saved_bytes = plan.saved_bytes;
    statistics_.apart.insert(statistics_.apart.end(), plan.apart.begin(), plan.apart.end());
  };
  if (options.epilogues != Epilogues::off)
    take(attach_epilogues(graph_, std::move(groups), options.epilogues), statistics_.epilogue_saved_bytes);
  if (options.prologues) take(attach_prologues(graph_, std::move(groups)), statistics_.prologue_saved_bytes);
}

// The kernels that are attached to the call of the last step.
void Executable::add_blocks(const Group& call, const std::vector<bool>& escapes) {
  const Node& node = graph_.nodes[static_cast<size_t>(call.nodes[0])];
  CallStep& step = std::get<CallStep>(steps_.back());
  const auto add = [&](const Group& kernel, std::optional<BlockStep>& place, int64_t& count, auto make,
                       const Value& operand) {
    auto made = make(kernel, graph_, escapes, operand);
    TUTTI_ASSERT(std::holds_alternative<BlockStep>(made), "{} has a kernel on its blocks, but {}", node.op->name,
                 std::get<const char*>(made));
    place = std::move(std::get<BlockStep>(made));
    ++count;
    statistics_.fused_nodes += static_cast<int64_t>(kernel.nodes.size());
    statistics_.kernel_bytes += place->kernel.bytes;
  };
  for (const Group& kernel : call.prologue)
    add(kernel, step.prologue, statistics_.prologues, make_prologue, node.inputs[0]);
  for (const Group& kernel : call.epilogue)
    add(kernel, step.epilogue, statistics_.epilogues, make_epilogue, node.outputs[0]);
  if (step.prologue || step.epilogue)
    step.trace = &provenance_of(step.prologue, step.epilogue, call, graph_, graph_key_);
}

void Executable::add_steps(const std::vector<Group>& groups, const BuildOptions& options) {
  const std::vector<bool> escapes = escapes_of(groups, graph_);
  for (const Group& group : groups) {
    const Node& first = graph_.nodes[static_cast<size_t>(group.nodes[0])];
    std::optional<KernelStep> step;
    if (group.is_kernel && tangled_inputs(first, graph_).empty()) step = make_kernel_step(group, graph_, escapes);
    if (!step) {
      for (const int32_t n : group.nodes) add_call(graph_.nodes[static_cast<size_t>(n)], false, options);
      if (!group.is_kernel) add_blocks(group, escapes);
      continue;
    }
    if (first.op->check) add_call(first, true, options);
    if (step->operands.empty()) continue;
    ++statistics_.kernels;
    statistics_.fused_nodes += static_cast<int64_t>(group.nodes.size());
    statistics_.kernel_bytes += step->bytes;
    step->trace = &provenance_of(*step, group, graph_, graph_key_);
    steps_.push_back(std::move(*step));
  }
}

// Jobs take kernels in turn; the cache sees to it that one that several want is compiled once.
void Executable::compile_kernels(int jobs) {
  std::vector<KernelStep*> kernels;
  for (Step& step : steps_) {
    if (auto* kernel = std::get_if<KernelStep>(&step)) kernels.push_back(kernel);
    if (auto* batch = std::get_if<BatchStep>(&step)) {
      for (KernelStep& kernel : batch->kernels) kernels.push_back(&kernel);
    }
    if (auto* call = std::get_if<CallStep>(&step)) {
      for (auto* block : {&call->prologue, &call->epilogue}) {
        if (*block) kernels.push_back(&(*block)->kernel);
      }
    }
  }
  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::exception_ptr problem;
  const auto work = [&] {
    for (size_t i = next++; i < kernels.size(); i = next++) {
      try {
        kernels[i]->kernel = &codegen::kernel_for(kernels[i]->spec);
      } catch (...) {
        std::lock_guard lock(mutex);
        if (!problem) problem = std::current_exception();
        next = kernels.size();
      }
    }
  };
  std::vector<std::thread> threads;
  for (int j = 1; j < std::min<int>(jobs, static_cast<int>(kernels.size())); ++j) threads.emplace_back(work);
  work();
  for (std::thread& t : threads) t.join();
  if (problem) std::rethrow_exception(problem);
}

}  // namespace tutti::graph
