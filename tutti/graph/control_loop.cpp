#include "tutti/graph/control_loop.h"

#include <algorithm>

#include "tutti/graph/control_trace.h"
#include "tutti/ops/slice.h"

namespace tutti::graph {
namespace {

// Says what to do instead when backward reaches a loop.
struct LoopNode final : autograd::Node {
  LoopNode(const char* what, const std::string& function, const char* remedy)
      : what(what),
        text(fmt::format("{} in '{}' has no gradient: its steps run in a loop that keeps nothing for backward. {}; "
                         "where no gradient is "
                         "wanted, detach() what goes in and open a NoGradScope around it",
                         what, function, remedy)) {}
  const char* name() const override { return what; }
  void run(std::span<const Tensor>, std::span<Tensor>, uint32_t) override { throw CaptureError(28, text); }
  void release_saved() override {}
  const char* const what;
  const std::string text;
};

std::vector<Tensor> append_loop(Trace& outer, ControlBody body, NodeInputs inputs, std::span<const Tensor> results) {
  body.ordered = any_ordered(body.parts);
  std::vector<OutputMeta> metas = metas_of(results);
  for (size_t k = static_cast<size_t>(body.carried); k < metas.size(); ++k) metas[k].sizes.insert(0, body.steps);
  Node node = control_node(std::make_shared<const ControlBody>(std::move(body)));
  node.inputs = std::move(inputs.values);
  return outer.append(std::move(node), metas, kCpu);
}

// Every float result, when one of them or of what goes in at the start requires grad.
void refuse_backward(std::span<const Tensor> outputs, std::span<const Tensor> results, std::span<const Tensor> given,
                     std::shared_ptr<LoopNode> node) {
  if (!is_grad_enabled() || !(std::any_of(results.begin(), results.end(), requires_grad) ||
                              std::any_of(given.begin(), given.end(), requires_grad)))
    return;
  node->order = autograd::next_order();
  node->num_outputs = static_cast<int>(outputs.size());
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (is_floating(outputs[k].dtype())) autograd::set_history(outputs[k], node, static_cast<int>(k));
  }
}

constexpr auto same_place = [](int32_t operand) { return operand; };

}  // namespace

void check_predicate(const char* what, const char* name, const Tensor& t) {
  TUTTI_CHECK(t.defined() && t.dtype() == DType::boolean && t.ndim() == 0,
              "{}: {} is {}; expected a boolean without dims, e.g. gt(sum(x), 0.0), "
              "all(mask) or any(mask)",
              what, name, describe(t));
}

void check_carried(const char* what, std::span<const Tensor> before, std::span<const Tensor> after) {
  TUTTI_CHECK(before.size() == after.size(),
              "{}: the body gives {} carried tensors, it was given {}; expected the same number", what, after.size(),
              before.size());
  for (size_t i = 0; i < before.size(); ++i) {
    TUTTI_CHECK(
        after[i].defined() && after[i].dtype() == before[i].dtype() && after[i].extents() == before[i].extents(),
        "{}: the body turns carried tensor {} from {} into {}; shape and dtype must stay the same from step to step "
        "(cast or reshape it)",
        what, i, describe(before[i]), describe(after[i]));
  }
}

std::vector<Tensor> trace_while(Trace& outer, const TensorFn& again, const TensorFn& body,
                                const std::vector<Tensor>& carried) {
  PartTrace condition(outer, "condition of while_loop", carried, carried.size(), [&](std::span<const Tensor> x) {
    const NoGradScope no_grad;
    std::vector<Tensor> results = again(x);
    TUTTI_CHECK(results.size() == 1, "while_loop: the condition gives {} tensors; expected one boolean",
                results.size());
    check_predicate("while_loop", "the condition", results[0]);
    return results;
  });
  PartTrace step(outer, "body of while_loop", carried, carried.size(), [&](std::span<const Tensor> x) {
    std::vector<Tensor> results = body(x);
    check_carried("while_loop", x, results);
    return results;
  });
  NodeInputs inputs(outer);
  for (const Tensor& t : carried) inputs.add(t, true);
  ControlBody node{
      .kind = ControlBody::Kind::repeat, .text = "while_loop", .carried = static_cast<int32_t>(carried.size())};
  node.parts.push_back(condition.forward(inputs, same_place));
  node.parts.push_back(step.forward(inputs, same_place));
  const std::vector<Tensor> outputs = append_loop(outer, std::move(node), std::move(inputs), step.results());
  refuse_backward(
      outputs, step.results(), carried,
      std::make_shared<LoopNode>("while_loop", outer.name(),
                                 "Call it outside of compile(), or use scan over a known number of steps, up to 16"));
  return outputs;
}

ScanStep trace_scan(Trace& outer, const ScanFn& f, const std::vector<Tensor>& init, const std::vector<Tensor>& xs,
                    int64_t steps) {
  std::vector<Tensor> operands = init;
  for (const Tensor& x : xs) operands.push_back(select(x, 0, 0));
  PartTrace step(outer, "body of scan", operands, init.size(), [&](std::span<const Tensor> x) {
    ScanStep made = f(x.first(init.size()), x.subspan(init.size()));
    check_carried("scan", x.first(init.size()), made.carried);
    made.carried.insert(made.carried.end(), made.outputs.begin(), made.outputs.end());
    return std::move(made.carried);
  });
  NodeInputs inputs(outer);
  for (const Tensor& t : init) inputs.add(t, true);
  for (const Tensor& x : xs) inputs.add(x, true);
  ControlBody node{.kind = ControlBody::Kind::walk,
                   .text = "scan",
                   .carried = static_cast<int32_t>(init.size()),
                   .walked = static_cast<int32_t>(xs.size()),
                   .steps = steps};
  node.parts.push_back(step.forward(inputs, same_place));
  const std::vector<Tensor> outputs = append_loop(outer, std::move(node), std::move(inputs), step.results());
  refuse_backward(outputs, step.results(), operands,
                  std::make_shared<LoopNode>("scan", outer.name(),
                                             "Scan at most 16 steps, which are written out one by one, write the loop "
                                             "in C++, or call it outside of compile()"));
  const auto split = outputs.begin() + static_cast<std::ptrdiff_t>(init.size());
  return {{outputs.begin(), split}, {split, outputs.end()}};
}

}  // namespace tutti::graph
