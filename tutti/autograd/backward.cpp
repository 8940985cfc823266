#include "tutti/autograd/backward.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "tutti/ops/binary.h"
#include "tutti/ops/creation.h"
#include "tutti/runtime/trace/trace_context.h"

namespace tutti {
namespace {

using autograd::Edge;
using autograd::Hook;
using autograd::Meta;
using autograd::Node;
using autograd::Order;

// A cotangent on its way to a value, with the place of the consumer that sent it.
struct Contribution {
  Order consumer;
  int input = 0;
  Tensor grad;
};

// Forward consumer order; a value used twice by one op counts its inputs in order.
bool comes_before(const Contribution& a, const Contribution& b) {
  return a.consumer != b.consumer ? a.consumer < b.consumer : a.input < b.input;
}

Tensor combine(std::vector<Contribution>& parts) {
  std::sort(parts.begin(), parts.end(), comes_before);
  Tensor sum;
  for (Contribution& part : parts) sum = sum.defined() ? add(sum, part.grad) : part.grad;
  return sum;
}

Tensor run_hooks(const std::vector<Hook>& hooks, Tensor grad) {
  for (const Hook& hook : hooks) {
    if (Tensor replaced = hook(grad); replaced.defined()) grad = replaced;
  }
  return grad;
}

class Engine {
 public:
  explicit Engine(const BackwardOptions& options) : options_(options), parent_(std::exchange(running, this)) {}
  ~Engine() { running = parent_; }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Walks only the recomputed region that stands at `region`; what leads out of it goes to the engine around.
  void stay_inside(const Order& region, std::span<const Tensor> inputs) {
    TUTTI_ASSERT(parent_ != nullptr, "a region runs inside a backward");
    region_ = region;
    for (const Tensor& t : inputs) region_inputs_.push_back(t.impl());
  }

  // Walks only the nodes since `start`; what leads out of them is kept in `into`.
  void stop_before(const Order& start, std::vector<std::pair<Edge, Contribution>>* into) {
    start_ = start;
    outgoing_ = into;
  }

  static Engine& innermost() {
    TUTTI_ASSERT(running != nullptr, "a node sends cotangents outside of a backward");
    return *running;
  }

  void seed(const Tensor& output, Tensor cotangent) {
    TUTTI_CHECK(requires_grad(output), "backward: the tensor {} does not depend on any leaf that requires grad",
                describe(output));
    if (!cotangent.defined()) {
      TUTTI_CHECK(output.numel() == 1, "backward: the output {} has {} elements; give a cotangent of its shape", describe(output),
                  output.numel());
      cotangent = full_like(output, 1.0);
    }
    TUTTI_CHECK(cotangent.sizes() == output.sizes(), "backward: the cotangent is {}, the output {}; shapes must agree",
                describe(cotangent), describe(output));
    send(autograd::edge_of(output), {Order{}, 0, cotangent});
  }

  // Also collects the cotangent of `value`; filled when the engine has run.
  void capture(const Tensor& value, Tensor* into) {
    const Edge edge = autograd::edge_of(value);
    if (edge.node) captured_values_[{edge.node.get(), edge.index}].push_back(into);
    else if (edge.leaf.defined()) captured_leaves_[value.impl()].push_back(into);
  }

  void run(bool accumulate_into_leaves) {
    // Highest place first: every consumer of a node comes before the node itself.
    while (!pending_.empty()) {
      auto it = std::prev(pending_.end());
      const std::shared_ptr<Node> node = it->second.node;
      std::vector<std::vector<Contribution>> parts = std::move(it->second.parts);
      pending_.erase(it);
      run_node(*node, parts);
    }
    for (auto& [impl, leaf] : leaves_) finish_leaf(leaf.tensor, leaf.parts, accumulate_into_leaves);
  }

  void send(const Edge& edge, Contribution part) {
    if (leads_out(edge)) {
      parent_->send(edge, std::move(part));
      return;
    }
    if (outgoing_ != nullptr && (edge.node ? edge.node->order < start_ : edge.leaf.defined())) {
      outgoing_->push_back({edge, std::move(part)});
      return;
    }
    if (edge.node) {
      Pending& pending = pending_[{edge.node->order, edge.node.get()}];
      pending.node = edge.node;
      pending.parts.resize(static_cast<size_t>(edge.node->num_outputs));
      pending.parts[static_cast<size_t>(edge.index)].push_back(std::move(part));
    } else if (edge.leaf.defined()) {
      Leaf& leaf = leaves_[edge.leaf.impl()];
      leaf.tensor = edge.leaf;
      leaf.parts.push_back(std::move(part));
    }
  }

 private:
  struct Pending {
    std::shared_ptr<Node> node;
    std::vector<std::vector<Contribution>> parts;  // per output
  };
  struct Leaf {
    Tensor tensor;
    std::vector<Contribution> parts;
  };

  bool leads_out(const Edge& edge) const {
    if (!region_) return false;
    if (edge.node) return edge.node->order < *region_;
    return edge.leaf.defined() &&
           std::find(region_inputs_.begin(), region_inputs_.end(), edge.leaf.impl()) == region_inputs_.end();
  }

  void run_node(Node& node, std::vector<std::vector<Contribution>>& parts) {
    TraceContext context = TraceContext::current();
    context.place = node.place;
    context.sequence = static_cast<int64_t>(node.order.place[0]);
    const TraceContextScope trace(context);
    std::vector<Tensor> grads(parts.size());
    for (size_t k = 0; k < parts.size(); ++k) {
      grads[k] = combine(parts[k]);
      parts[k].clear();
      if (k < node.hooks.size() && grads[k].defined()) grads[k] = run_hooks(node.hooks[k], grads[k]);
      if (const auto it = captured_values_.find({&node, static_cast<int>(k)}); it != captured_values_.end()) {
        for (Tensor* into : it->second) *into = grads[k];
      }
    }
    uint32_t needed = 0;
    for (size_t i = 0; i < node.edges.size(); ++i) needed |= static_cast<uint32_t>(node.edges[i].wanted()) << std::min<size_t>(i, 31);
    std::vector<Tensor> input_grads(node.edges.size());
    node.run(grads, input_grads, needed);
    if (!options_.retain_graph && !options_.create_graph) node.release_saved();
    for (size_t i = 0; i < input_grads.size(); ++i) {
      if (input_grads[i].defined() && node.edges[i].wanted())
        send(node.edges[i], {node.order, static_cast<int>(i), std::move(input_grads[i])});
    }
  }

  void finish_leaf(const Tensor& leaf, std::vector<Contribution>& parts, bool accumulate) {
    Meta& meta = *autograd::meta_of(leaf);
    if (accumulate && options_.per_use) {
      std::sort(parts.begin(), parts.end(), comes_before);
      for (Contribution& part : parts) meta.uses.push_back(std::move(part.grad));
      return;
    }
    Tensor total = run_hooks(meta.hooks, combine(parts));
    if (const auto it = captured_leaves_.find(leaf.impl()); it != captured_leaves_.end()) {
      for (Tensor* into : it->second) *into = total;
    }
    if (accumulate) meta.grad = meta.grad.defined() ? add(meta.grad, total) : total;
  }

  // The innermost engine of this thread.
  static thread_local Engine* running;

  BackwardOptions options_;
  Engine* parent_;
  std::optional<Order> region_;
  std::vector<TensorImpl*> region_inputs_;
  Order start_;
  std::vector<std::pair<Edge, Contribution>>* outgoing_ = nullptr;
  std::map<std::pair<Order, Node*>, Pending> pending_;
  std::map<TensorImpl*, Leaf> leaves_;
  std::map<std::pair<Node*, int>, std::vector<Tensor*>> captured_values_;
  std::map<TensorImpl*, std::vector<Tensor*>> captured_leaves_;
};

thread_local Engine* Engine::running = nullptr;

}  // namespace

namespace autograd {

void backward_region(const Tensor& output, const Tensor& cotangent, const Order& region, std::span<const Tensor> inputs,
                     std::span<Tensor> input_grads) {
  Engine engine({});
  engine.stay_inside(region, inputs);
  for (size_t i = 0; i < inputs.size(); ++i) engine.capture(inputs[i], &input_grads[i]);
  engine.seed(output, cotangent);
  engine.run(false);
}

std::vector<Outgoing> backward_since(const Order& start, std::span<const Tensor> outputs, std::span<const Tensor> cotangents) {
  std::vector<std::pair<Edge, Contribution>> parts;
  Engine engine({.retain_graph = true});
  engine.stop_before(start, &parts);
  for (size_t k = 0; k < outputs.size(); ++k) engine.seed(outputs[k], cotangents[k]);
  engine.run(false);
  std::sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return comes_before(a.second, b.second); });
  std::vector<Outgoing> outgoing;
  for (auto& [edge, part] : parts) outgoing.push_back({std::move(edge), std::move(part.grad)});
  return outgoing;
}

void send_from(const Node& node, int use, const Edge& to, Tensor grad) {
  Engine::innermost().send(to, {node.order, use, std::move(grad)});
}

}  // namespace autograd

void backward(const Tensor& output, const Tensor& cotangent, const BackwardOptions& options) {
  const PhaseScope phase(TracePhase::backward);
  MemoryCategoryScope category(MemoryCategory::gradients);
  std::optional<NoGradScope> no_grad;
  if (!options.create_graph) no_grad.emplace();
  Engine engine(options);
  engine.seed(output, cotangent);
  engine.run(true);
}

std::vector<Tensor> grad(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                         std::span<const Tensor> cotangents, const BackwardOptions& options) {
  const PhaseScope phase(TracePhase::backward);
  MemoryCategoryScope category(MemoryCategory::gradients);
  std::optional<NoGradScope> no_grad;
  if (!options.create_graph) no_grad.emplace();
  Engine engine(options);
  std::vector<Tensor> result(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) engine.capture(inputs[i], &result[i]);
  for (size_t k = 0; k < outputs.size(); ++k) engine.seed(outputs[k], k < cotangents.size() ? cotangents[k] : Tensor{});
  engine.run(false);
  return result;
}

std::vector<Tensor> take_uses(const Tensor& leaf) {
  autograd::Meta* meta = autograd::meta_of(leaf);
  return meta ? std::exchange(meta->uses, {}) : std::vector<Tensor>{};
}

}  // namespace tutti
