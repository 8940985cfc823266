#include "tutti/package/traced_plan.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "tutti/autograd/tape.h"
#include "tutti/deploy/plan_words.h"
#include "tutti/graph/trace.h"
#include "tutti/ops/cast.h"
#include "tutti/package/refusals.h"
#include "tutti/plan/control_body.h"
#include "tutti/plan/failure.h"
#include "tutti/plan/passes/pipeline.h"
#include "tutti/tensor/lent_memory.h"
#include "tutti/tensor/wrapper.h"

namespace tutti::package_detail {
namespace {

using graph::Trace;

// What the function did to gradients of tensors that it holds is that of a trace: they get back what they had.
class GradRestorer {
 public:
  explicit GradRestorer(const Trace& trace) : trace_(trace) {}
  ~GradRestorer() {
    for (const graph::Captured& c : trace_.captured()) {
      if (has_other_grad(c)) set_grad(c.tensor, c.grad_before);
    }
  }
  GradRestorer(const GradRestorer&) = delete;
  GradRestorer& operator=(const GradRestorer&) = delete;
  static bool has_other_grad(const graph::Captured& c) {
    if (autograd::meta_of(c.tensor) == nullptr) return false;
    const Tensor now = grad_of(c.tensor);
    return now.defined() != c.grad_before.defined() || (now.defined() && !now.is_same(c.grad_before));
  }
  void refuse_gradients_that_stay(const std::string& function) const {
    for (const graph::Captured& c : trace_.captured()) {
      TUTTI_CHECK(!has_other_grad(c),
                  "package: '{}' cannot be packaged: it leaves a gradient in {}, which it holds; forget it before the "
                  "function returns, as Optimizer::zero_grad() does, or use grad()",
                  function, describe(c.tensor));
    }
  }

 private:
  const Trace& trace_;
};

Tensor held_at(const Trace& trace, const Trace::Source& source) {
  return inside_of(trace.captured()[static_cast<size_t>(source.index)].tensor);
}

// Forward reads copies of the masters of parameters in another dtype, which the program makes between calls. Copies of
// state are made by the graph instead, before its first node. The trace runs.
void make_copies(Trace& trace, const HeldState& state) {
  graph::Graph& graph = trace.graph();
  std::vector<graph::Node> casts;
  const NoGradScope no_grad;
  for (const graph::SlotRead& slot : trace.slots()) {
    const Tensor master = slot.slot->copied_from();
    if (!master.defined() || state.number_of(master) < 0 || wrapper_of(slot.found) != nullptr) continue;
    const graph::Value copy = trace.value_of(slot.found);
    if (copy.version > 0 || copy.offset != 0) continue;  // the function writes it: it is refused as held memory
    cast(master, copy.dtype);
    casts.push_back(std::move(graph.nodes.back()));
    graph.nodes.pop_back();
    casts.back().inputs[0].version = 0;
    casts.back().outputs = {copy};
    graph::Buffer& buffer = graph.buffers[static_cast<size_t>(copy.buffer)];
    buffer.kind = graph::Buffer::Kind::made;
  }
  graph.nodes.insert(graph.nodes.begin(), std::make_move_iterator(casts.begin()), std::make_move_iterator(casts.end()));
}

graph::Graph traced(Trace& trace, std::span<const Tensor> arguments, graph::TraceFn fn, bool gradients,
                    const HeldState& state, const std::string& function) {
  const autograd::NoCapturedScope stand_ins_are_nobodys;
  std::optional<NoGradScope> inference;
  if (!gradients) inference.emplace();
  const GradRestorer restorer(trace);
  std::vector<Tensor> stand_ins, results;
  trace.add_arguments(arguments, stand_ins, graph::Reach::arguments);
  {
    const Trace::Scope scope(trace);
    fn({.tensors = stand_ins}, results);
    make_copies(trace, state);
  }
  TUTTI_CHECK(!results.empty(), "package: '{}' returns no tensor", function);
  for (const Tensor& t : results) {
    TUTTI_CHECK(wrapper_of(t) == nullptr, "package: '{}' cannot be packaged: it returns {}, which is no plain tensor",
                function, describe(t));
    trace.graph().results.push_back(trace.value_of(t));
  }
  restorer.refuse_gradients_that_stay(function);
  TUTTI_CHECK(trace.rebound().empty(), "package: '{}' cannot be packaged: an op makes a tensor another one", function);
  return trace.graph();
}

// Which of the trace's sources the function may write.
std::vector<bool> may_write(const Trace& trace, const HeldState& state) {
  std::vector<bool> may;
  for (const Trace::Source& source : trace.sources())
    may.push_back(source.kind != Trace::Source::Kind::captured || state.number_of(held_at(trace, source)) >= 0);
  return may;
}

// The memory of the sources of `buffers`, which then count those of the plan.
void add_sources(const Trace& trace, const std::string& function, const HeldState& state, TracedPlan& made) {
  using Kind = deploy::PlanSource::Kind;
  std::vector<bool> is_used(trace.sources().size(), false);
  std::vector<int32_t> places(trace.sources().size(), -1);
  for (const graph::Buffer& b : made.plan.buffers) {
    if (b.kind == graph::Buffer::Kind::given) is_used[static_cast<size_t>(b.source)] = true;
  }
  for (size_t i = 0; i < is_used.size(); ++i) {
    const Trace::Source& source = trace.sources()[i];
    if (!is_used[i]) continue;
    places[i] = static_cast<int32_t>(made.plan.sources.size());
    const bool is_held = source.kind == Trace::Source::Kind::captured;
    TUTTI_ASSERT(is_held || source.kind == Trace::Source::Kind::argument, "a source of '{}' is made later", function);
    if (!is_held) {
      made.plan.sources.push_back({Kind::argument, source.index});
      continue;
    }
    const Tensor held = held_at(trace, source);
    if (const int32_t number = state.number_of(held); number >= 0) {
      made.plan.sources.push_back({Kind::state, number});
      continue;
    }
    TUTTI_CHECK(lender_of(held) == nullptr && held.device() == kCpu,
                "package: '{}' cannot be packaged: it holds {}, whose memory is lent or on another device", function,
                describe(held));
    made.plan.sources.push_back({Kind::constant, static_cast<int32_t>(made.held.size())});
    made.held.push_back(held);
  }
  for (graph::Buffer& b : made.plan.buffers) {
    if (b.kind == graph::Buffer::Kind::given) b.source = places[static_cast<size_t>(b.source)];
  }
}

deploy::Plan plan_of(graph::PassState& state, std::vector<const OpDef*>& ops);

deploy::PlanControl control_of(const graph::ControlBody& body, const graph::BuildOptions& options,
                               std::vector<const OpDef*>& ops) {
  deploy::PlanControl made{.kind = body.kind,
                           .text = body.text,
                           .carried = body.carried,
                           .walked = body.walked,
                           .steps = body.steps,
                           .parts = {},
                           .plans = {}};
  for (const graph::ControlBody::Part& part : body.parts) {
    const graph::BuildOptions own{.name = fmt::format("{}: {}", options.name, part.name)};
    graph::PassState state{.graph = part.graph, .options = own};
    run_passes(state);
    made.parts.push_back({part.name, part.feeds});
    made.plans.push_back(plan_of(state, ops));
    for (size_t f = 0; f < part.feeds.size(); ++f)
      made.plans.back().sources.push_back({deploy::PlanSource::Kind::argument, static_cast<int32_t>(f)});
  }
  return made;
}

// The steps as a plan, with kernels, without sources. Adds the ops that they call to `ops`.
deploy::Plan plan_of(graph::PassState& state, std::vector<const OpDef*>& ops) {
  deploy::Plan plan;
  plan.buffers = state.graph.buffers;
  plan.results = state.graph.results;
  plan.steps = std::move(state.steps);
  for_each_kernel(plan, [&](graph::KernelStep& kernel) {
    TUTTI_ASSERT(kernel.keyed.empty(), "{} draws random numbers", kernel.ops);
    kernel.kernel = &codegen::kernel_for(kernel.spec);
    if (kernel.trace == nullptr)
      kernel.trace = &intern_kernel({.kernel_id = kernel.spec.name, .graph_key = state.graph_key});
    if (kernel.reporter < 0) return;
    const graph::Node& node = state.graph.nodes[static_cast<size_t>(kernel.reporter)];
    kernel.reporter = static_cast<int32_t>(plan.reporters.size());
    plan.reporters.push_back(with_place(node.op->name, node.origin));
  });
  for (graph::Step& step : plan.steps) {
    auto* call = std::get_if<graph::CallStep>(&step);
    if (call == nullptr) continue;
    if (call->control == nullptr) {
      ops.push_back(call->op);
      call->node = -1;
      continue;
    }
    const graph::ControlBody& body = *state.graph.nodes[static_cast<size_t>(call->node)].control;
    call->node = static_cast<int32_t>(plan.controls.size());
    call->control = nullptr;
    plan.controls.push_back(control_of(body, state.options, ops));
  }
  return plan;
}

}  // namespace

TracedPlan trace_plan(const std::string& function, std::span<const Tensor> arguments, graph::TraceFn fn, bool gradients,
                      const HeldState& held, const deploy::BoundGroups& groups) {
  Trace trace(function);
  const graph::BuildOptions options{.name = function};
  graph::PassState state{.graph = traced(trace, arguments, fn, gradients, held, function), .options = options};
  refuse_what_does_not_fit(state.graph, may_write(trace, held), groups, function);
  run_passes(state);
  TracedPlan made;
  made.steps = to_string(state.steps);
  made.plan = plan_of(state, made.ops);
  add_sources(trace, function, held, made);
  return made;
}

}  // namespace tutti::package_detail
