#include "tutti/graph/control_choice.h"

#include <algorithm>

#include "tutti/graph/control_trace.h"

namespace tutti::graph {
namespace {

using autograd::Edge;
using Parts = std::vector<std::unique_ptr<PartTrace>>;

std::vector<Tensor> append_choice(Trace& outer, const char* what, NodeInputs& inputs,
                                  std::vector<ControlBody::Part> parts, std::span<const Tensor> results,
                                  Device device) {
  auto body = std::make_shared<ControlBody>(
      ControlBody{.kind = ControlBody::Kind::choose, .text = what, .parts = std::move(parts)});
  body->ordered = any_ordered(body->parts);
  Node node = control_node(std::move(body));
  node.inputs = std::move(inputs.values);
  return outer.append(std::move(node), metas_of(results), device);
}

// A value outside that a branch sends a cotangent to: its `number`-th use there.
struct Use {
  Edge to;
  int number;
  std::vector<Tensor> grads;  // per branch; undefined where it has fewer uses
  bool is(const Edge& edge, int n) const {
    return number == n && to.node == edge.node && to.index == edge.index && to.leaf.defined() == edge.leaf.defined() &&
           (!edge.leaf.defined() || to.leaf.is_same(edge.leaf));
  }
};

// Backward chooses as the forward did. Every use of a value in the branch that ran sends its own cotangent, as it would
// have without the node; the sum over uses is the caller's, in forward order.
struct ChoiceNode final : autograd::Node {
  const char* name() const override { return what; }

  void run(std::span<const Tensor> grads, std::span<Tensor>, uint32_t) override {
    TUTTI_CHECK(
        !parts.empty(),
        "backward of {}: it ran before and what it needs is gone; pass retain_graph = true to the first backward",
        what);
    TUTTI_CHECK(
        !is_grad_enabled(),
        "backward of {}: gradients of gradients (create_graph) are not recorded through it in a compiled function; "
        "call it outside of compile() where they are wanted",
        what);
    Trace* trace = Trace::current();
    if (trace == nullptr || trace->state() != outer) {
      throw CaptureError(
          29,
          fmt::format(
              "backward of a {} in '{}' was called outside of that trace; call backward() there, or return the result "
              "and call it on what the compiled function gives",
              what, outer->name));
    }
    const bool changed = selector.version() != selector_version ||
                         std::any_of(parts.begin(), parts.end(), [](const auto& p) { return p->inputs_changed(); });
    TUTTI_CHECK(!changed,
                "backward of {} in '{}': its predicate, an operand or a tensor that a branch reads was changed in "
                "place after the "
                "forward, and backward computes the branch again; write to a clone() instead",
                what, outer->name);
    std::vector<Use> uses = collect(grads);
    if (uses.empty()) return;
    NodeInputs inputs(*trace);
    inputs.add(selector, true);
    std::vector<ControlBody::Part> bodies;
    std::vector<Tensor> like;
    for (size_t b = 0; b < parts.size(); ++b) {
      std::vector<Tensor> wanted;
      for (Use& use : uses) {
        const Tensor& any =
            *std::find_if(use.grads.begin(), use.grads.end(), [](const Tensor& t) { return t.defined(); });
        wanted.push_back(use.grads[b].defined() ? use.grads[b] : parts[b]->nothing(any));
        if (b == 0) like.push_back(any);
      }
      bodies.push_back(parts[b]->backward(inputs, wanted));
    }
    const std::vector<Tensor> sent = append_choice(*trace, what, inputs, std::move(bodies), like, selector.device());
    for (size_t i = 0; i < uses.size(); ++i) autograd::send_from(*this, static_cast<int>(i), uses[i].to, sent[i]);
  }

  // Branches are matched use by use. A branch with fewer uses of a value adds -0.0 for the missing ones, which changes
  // no sum.
  std::vector<Use> collect(std::span<const Tensor> grads) {
    std::vector<Use> uses;
    for (size_t b = 0; b < parts.size(); ++b) {
      std::vector<Edge> met;
      for (autograd::Outgoing& out : parts[b]->send_back(order, grads)) {
        if (!out.to.wanted()) continue;
        int number = 0;
        for (const Edge& e : met) number += Use{e, 0, {}}.is(out.to, 0);
        met.push_back(out.to);
        auto use = std::find_if(uses.begin(), uses.end(), [&](const Use& u) { return u.is(out.to, number); });
        if (use == uses.end()) use = uses.insert(uses.end(), {out.to, number, std::vector<Tensor>(parts.size())});
        for (const Tensor& other : use->grads) {
          TUTTI_CHECK(!other.defined() || (other.dtype() == out.grad.dtype() && other.extents() == out.grad.extents()),
                      "backward of {}: branches send one tensor cotangents of different kinds, {} and {}, and a graph "
                      "knows one; make every branch use "
                      "the tensor by ops of one kind, or give each branch its own cast of it as an operand",
                      what, describe(other), describe(out.grad));
        }
        use->grads[b] = std::move(out.grad);
      }
    }
    return uses;
  }

  void release_saved() override { parts.clear(); }

  const char* what = "";
  std::shared_ptr<TraceState> outer;
  Tensor selector;
  uint32_t selector_version = 0;
  Parts parts;
};

}  // namespace

std::vector<Tensor> trace_choice(Trace& outer, const char* what, const Tensor& selector,
                                 std::span<const Branch> branches, const std::vector<Tensor>& operands) {
  auto node = std::make_shared<ChoiceNode>();
  node->order = autograd::next_order();  // before the branches' own
  Parts parts;
  for (const Branch& branch : branches)
    parts.push_back(
        std::make_unique<PartTrace>(outer, fmt::format("{} of {}", branch.name, what), operands, 0, *branch.fn));
  check_agreement(what, outer, parts);
  NodeInputs inputs(outer);
  inputs.add(selector, true);
  std::vector<ControlBody::Part> bodies;
  for (const auto& part : parts)
    bodies.push_back(part->forward(inputs, [&](int32_t i) { return inputs.add(operands[static_cast<size_t>(i)]); }));
  const std::vector<Tensor> outputs =
      append_choice(outer, what, inputs, std::move(bodies), parts[0]->results(), selector.device());
  for (size_t k = 0; k < outputs.size(); ++k) {
    const bool differentiable =
        std::any_of(parts.begin(), parts.end(), [&](const auto& p) { return requires_grad(p->results()[k]); });
    if (differentiable) autograd::set_history(outputs[k], node, static_cast<int>(k));
  }
  node->num_outputs = static_cast<int>(outputs.size());
  for (const auto& part : parts) {
    for (autograd::Edge& edge : part->captured()) node->captured.push_back(std::move(edge));
  }
  node->what = what;
  node->outer = outer.state();
  node->selector = selector;
  node->selector_version = selector.version();
  node->parts = std::move(parts);
  return outputs;
}

}  // namespace tutti::graph
