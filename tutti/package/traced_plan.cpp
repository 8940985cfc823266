#include "tutti/package/traced_plan.h"

#include <algorithm>

#include "tutti/autograd/tape.h"
#include "tutti/deploy/plan_words.h"
#include "tutti/graph/trace.h"
#include "tutti/package/refusals.h"
#include "tutti/plan/failure.h"
#include "tutti/plan/passes/pipeline.h"
#include "tutti/tensor/lent_memory.h"
#include "tutti/tensor/wrapper.h"

namespace tutti::package_detail {
namespace {

using graph::Trace;

graph::Graph traced(Trace& trace, std::span<const Tensor> arguments, graph::TraceFn fn, const std::string& function) {
  const autograd::NoCapturedScope stand_ins_are_nobodys;
  const NoGradScope inference;
  std::vector<Tensor> stand_ins, results;
  trace.add_arguments(arguments, stand_ins, graph::Reach::arguments);
  {
    const Trace::Scope scope(trace);
    fn({.tensors = stand_ins}, results);
  }
  TUTTI_CHECK(!results.empty(), "package: '{}' returns no tensor", function);
  for (const Tensor& t : results) {
    TUTTI_CHECK(wrapper_of(t) == nullptr, "package: '{}' cannot be packaged: it returns {}, which is no plain tensor",
                function, describe(t));
    refuse_dtype(t.dtype(), function, "a result");
    trace.graph().results.push_back(trace.value_of(t));
  }
  TUTTI_CHECK(trace.rebound().empty(), "package: '{}' cannot be packaged: an op makes a tensor another one", function);
  return trace.graph();
}

// The memory of the trace's sources.
void add_sources(const Trace& trace, const std::string& function, TracedPlan& made) {
  for (const Trace::Source& source : trace.sources()) {
    const bool is_constant = source.kind == Trace::Source::Kind::captured;
    TUTTI_ASSERT(is_constant || source.kind == Trace::Source::Kind::argument, "a source of '{}' is made later",
                 function);
    if (!is_constant) {
      made.plan.sources.push_back({false, source.index});
      continue;
    }
    const Tensor held = inside_of(trace.captured()[static_cast<size_t>(source.index)].tensor);
    refuse_dtype(held.dtype(), function, "a tensor that it holds");
    TUTTI_CHECK(lender_of(held) == nullptr && held.device() == kCpu,
                "package: '{}' cannot be packaged: it holds {}, whose memory is lent or on another device", function,
                describe(held));
    made.plan.sources.push_back({true, static_cast<int32_t>(made.held.size())});
    made.held.push_back(held);
  }
}

}  // namespace

TracedPlan trace_plan(const std::string& function, std::span<const Tensor> arguments, graph::TraceFn fn) {
  Trace trace(function);
  const graph::BuildOptions options{.name = function};
  graph::PassState state{.graph = traced(trace, arguments, fn, function), .options = options};
  refuse_what_does_not_fit(state.graph, function);
  run_passes(state);
  TracedPlan made;
  add_sources(trace, function, made);
  made.steps = to_string(state.steps);
  made.plan.buffers = state.graph.buffers;
  made.plan.results = state.graph.results;
  made.plan.steps = std::move(state.steps);
  for_each_kernel(made.plan, [&](graph::KernelStep& kernel) {
    TUTTI_ASSERT(kernel.keyed.empty(), "{} draws random numbers", kernel.ops);
    kernel.kernel = &codegen::kernel_for(kernel.spec);
    if (kernel.trace == nullptr)
      kernel.trace = &intern_kernel({.kernel_id = kernel.spec.name, .graph_key = state.graph_key});
    if (kernel.reporter < 0) return;
    const graph::Node& node = state.graph.nodes[static_cast<size_t>(kernel.reporter)];
    kernel.reporter = static_cast<int32_t>(made.plan.reporters.size());
    made.plan.reporters.push_back(with_place(node.op->name, node.origin));
  });
  for (const graph::Step& step : made.plan.steps) {
    if (const auto* call = std::get_if<graph::CallStep>(&step)) made.ops.push_back(call->op);
  }
  return made;
}

}  // namespace tutti::package_detail
