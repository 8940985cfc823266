#include "tutti/autograd/backward.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "tutti/autograd/anomaly.h"
#include "tutti/autograd/split_grad.h"
#include "tutti/autograd/use_sink.h"
#include "tutti/ops/add_in_order.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/creation.h"
#include "tutti/runtime/trace/trace_context.h"
#include "tutti/tensor/wrapper.h"

namespace tutti {
namespace {

using autograd::Edge;
using autograd::Hook;
using autograd::HookList;
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

// The sum in forward order. An op of its own for many of one kind: each addition then neither reads nor writes memory.
Tensor combine(std::vector<Contribution>& parts) {
  std::sort(parts.begin(), parts.end(), comes_before);
  const auto alike = [&](const Contribution& part) {
    return part.grad.dtype() == parts[0].grad.dtype() && part.grad.sizes() == parts[0].grad.sizes();
  };
  if (parts.size() >= 3 && std::all_of(parts.begin(), parts.end(), alike)) {
    std::vector<Tensor> grads;
    for (Contribution& part : parts) grads.push_back(std::move(part.grad));
    return add_in_order(grads);
  }
  Tensor sum;
  for (Contribution& part : parts) sum = sum.defined() ? add(sum, part.grad) : part.grad;
  return sum;
}

Tensor run_hooks(const HookList<Hook>& hooks, Tensor grad) {
  hooks.for_each([&](const Hook& hook) {
    Tensor replaced = hook(grad);
    if (!replaced.defined()) return;
    TUTTI_CHECK(replaced.sizes() == grad.sizes() && replaced.dtype() == grad.dtype(),
                "a gradient hook got {} and returned {}; the gradient that it puts in place must keep sizes and dtype",
                describe(grad), describe(replaced));
    grad = std::move(replaced);
  });
  return grad;
}

// The fate of the gradients of leaves.
enum class Purpose : uint8_t {
  accumulate,  // they are added to the leaves' grads, or go where the options say
  captures,    // those that were asked for are returned
  parts,       // the same as they came, for a backward around this one, which knows what they are gradients of
};

class Engine {
 public:
  Engine(const BackwardOptions& options, Purpose purpose)
      : options_(options), purpose_(purpose), parent_(std::exchange(running, this)) {}
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

  static bool is_running() { return running != nullptr; }
  static Engine& innermost() {
    TUTTI_ASSERT(is_running(), "a node sends cotangents outside of a backward");
    return *running;
  }

  void seed(const Tensor& output, Tensor cotangent) {
    TUTTI_CHECK(requires_grad(output), "backward: the tensor {} does not depend on any leaf that requires grad",
                describe(output));
    if (!cotangent.defined()) {
      TUTTI_CHECK(output.numel() == 1, "backward: the output {} has {} elements; give a cotangent of its shape",
                  describe(output), output.numel());
      cotangent = full_like(output, 1.0);
    }
    TUTTI_CHECK(cotangent.sizes() == output.sizes(), "backward: the cotangent is {}, the output {}; shapes must agree",
                describe(cotangent), describe(output));
    TUTTI_CHECK(wrapper_of(cotangent) == nullptr || wrapper_of(output) != nullptr,
                "backward: the cotangent {} is distributed, and the output {} is a plain tensor; give the part of the "
                "cotangent (to_local()) or the whole (full_tensor())",
                describe(cotangent), describe(output));
    seeds_.emplace_back(autograd::edge_of(output),
                        Contribution{seeds_place_, static_cast<int>(seeds_.size()), std::move(cotangent)});
  }
  // The cotangents of seeds are added behind all others. `added_to` gets, per seed, the number of cotangents of its
  // value that are no seeds, or 0 where it is not the only seed of the value.
  void seed_behind(std::vector<int32_t>* added_to) {
    seeds_place_.place.fill(std::numeric_limits<uint64_t>::max());
    added_to_ = added_to;
  }

  // Also collects the cotangent of `value`; filled when the engine has run.
  void capture(const Tensor& value, Tensor* into) {
    const Edge edge = autograd::edge_of(value);
    if (edge.node) captured_values_[{edge.node.get(), edge.index}].push_back(into);
    else if (edge.leaf.defined()) captured_leaves_[value.impl()].whole.push_back(into);
  }
  // The same, use by use.
  void capture_uses(const Tensor& leaf, std::vector<autograd::LeafUse>* into) {
    captured_leaves_[leaf.impl()].uses = into;
  }

  void run() {
    for (const auto& [edge, part] : seeds_) expect(edge);
    walk();
    for (auto& [edge, part] : seeds_) send(edge, std::move(part));
    for (const auto& [edge, part] : seeds_) arrived(edge);
    // Highest place first: every consumer of a node comes before the node itself.
    while (!work_.empty()) {
      const auto it = std::prev(work_.end());
      const Work work = std::move(it->second);
      work_.erase(it);
      run_node(*work.node, work.parts);
    }
    // Leaves that a node sent a gradient to without having named them.
    for (TensorImpl* const impl : met_) finish(leaves_.at(impl));
  }

  void send(const Edge& edge, Contribution part) {
    if (leads_out(edge)) {
      parent_->send(edge, std::move(part));
      return;
    }
    if (is_outgoing(edge)) {
      outgoing_->push_back({edge, std::move(part)});
      return;
    }
    if (edge.node) {
      Work& work = work_of(edge.node);
      work.parts.resize(static_cast<size_t>(edge.node->num_outputs));
      work.parts[static_cast<size_t>(edge.index)].push_back(std::move(part));
    } else if (edge.leaf.defined()) {
      add_use(leaf_of(edge.leaf), std::move(part));
    }
  }

 private:
  // A node, and the cotangents that have arrived per output.
  struct Work {
    std::shared_ptr<Node> node;
    std::vector<std::vector<Contribution>> parts;
  };
  struct Leaf {
    Tensor tensor;
    int64_t expected = 0;  // edges that may still bring a gradient
    std::vector<Contribution> parts;
    int32_t in_sink = -1;
    std::vector<std::pair<Order, int>> delivered;  // places of the uses that the sink has
    bool finished = false;
  };
  struct Captures {
    std::vector<Tensor*> whole;
    std::vector<autograd::LeafUse>* uses = nullptr;
  };

  bool leads_out(const Edge& edge) const {
    if (!region_) return false;
    if (edge.node) return edge.node->order < *region_;
    return edge.leaf.defined() &&
           std::find(region_inputs_.begin(), region_inputs_.end(), edge.leaf.impl()) == region_inputs_.end();
  }
  bool is_outgoing(const Edge& edge) const {
    return outgoing_ != nullptr && (edge.node ? edge.node->order < start_ : edge.leaf.defined());
  }

  Work& work_of(const std::shared_ptr<Node>& node) {
    Work& work = work_[{node->order, node.get()}];
    work.node = node;
    return work;
  }

  Leaf& leaf_of(const Tensor& tensor) {
    const auto [it, is_new] = leaves_.try_emplace(tensor.impl());
    Leaf& leaf = it->second;
    if (!is_new) return leaf;
    met_.push_back(tensor.impl());
    leaf.tensor = tensor;
    if (purpose_ == Purpose::accumulate && options_.sink != nullptr) leaf.in_sink = options_.sink->index_of(tensor);
    return leaf;
  }

  // ---- how many gradients each leaf gets ----

  // Counts an edge to a leaf, or adds the node to what will run.
  void expect(const Edge& edge) {
    if (!edge.wanted() || leads_out(edge) || is_outgoing(edge)) return;
    if (!edge.node) {
      ++leaf_of(edge.leaf).expected;
      return;
    }
    if (const auto [it, is_new] = work_.try_emplace({edge.node->order, edge.node.get()}); is_new) {
      it->second.node = edge.node;
      unwalked_.push_back(edge.node.get());
    }
  }

  void walk() {
    while (!unwalked_.empty()) {
      const Node* const node = unwalked_.back();
      unwalked_.pop_back();
      for (const Edge& edge : node->edges) expect(edge);
      for (const Edge& edge : node->captured) expect(edge);
    }
  }

  // Nothing more comes along `edge`.
  void arrived(const Edge& edge) {
    if (edge.node || !edge.leaf.defined() || leads_out(edge) || is_outgoing(edge)) return;
    Leaf& leaf = leaf_of(edge.leaf);
    if (--leaf.expected == 0) finish(leaf);
  }

  // ---- one node ----

  void run_node(Node& node, std::vector<std::vector<Contribution>> parts) {
    std::vector<Tensor> input_grads(node.edges.size());
    const bool is_reached =
        std::any_of(parts.begin(), parts.end(), [](const auto& of_output) { return !of_output.empty(); });
    if (is_reached) compute(node, parts, input_grads);
    for (size_t i = 0; i < input_grads.size(); ++i) {
      if (input_grads[i].defined() && node.edges[i].wanted())
        send(node.edges[i], {node.order, static_cast<int>(i), std::move(input_grads[i])});
      arrived(node.edges[i]);
    }
    for (const Edge& edge : node.captured) arrived(edge);
  }

  void compute(Node& node, std::vector<std::vector<Contribution>>& parts, std::vector<Tensor>& input_grads) {
    TraceContext context = TraceContext::current();
    context.place = node.place;
    context.sequence = static_cast<int64_t>(node.order.place[0]);
    const TraceContextScope trace(context);
    const autograd::NodeScope anomaly(node);
    std::vector<Tensor> grads(static_cast<size_t>(node.num_outputs));
    for (size_t k = 0; k < parts.size(); ++k) {
      if (added_to_ != nullptr) note_consumers(parts[k]);
      if (is_taken(node, static_cast<int>(k), parts)) continue;
      grads[k] = combine(parts[k]);
      parts[k].clear();
      if (k < node.hooks.size() && grads[k].defined()) grads[k] = run_hooks(node.hooks[k], grads[k]);
      if (const auto it = captured_values_.find({&node, static_cast<int>(k)}); it != captured_values_.end()) {
        for (Tensor* into : it->second) *into = grads[k];
      }
    }
    uint32_t needed = 0;
    for (size_t i = 0; i < node.edges.size(); ++i)
      needed |= static_cast<uint32_t>(node.edges[i].wanted()) << std::min<size_t>(i, 31);
    node.run(grads, input_grads, needed);
    if (!options_.retain_graph && !options_.create_graph) node.release_saved();
  }

  void note_consumers(const std::vector<Contribution>& parts) {
    const auto is_seed = [&](const Contribution& part) { return part.consumer == seeds_place_; };
    if (std::count_if(parts.begin(), parts.end(), is_seed) != 1) return;
    (*added_to_)[static_cast<size_t>(std::find_if(parts.begin(), parts.end(), is_seed)->input)] =
        static_cast<int32_t>(parts.size()) - 1;
  }

  // Whether the node keeps the cotangents of its output k, because there are others of consumers inside it.
  bool is_taken(Node& node, int k, std::vector<std::vector<Contribution>>& parts) {
    std::vector<Contribution>& own = parts[static_cast<size_t>(k)];
    if (own.empty() || !node.consumes(k)) return false;
    const bool is_seen = (static_cast<size_t>(k) < node.hooks.size() && !node.hooks[static_cast<size_t>(k)].empty()) ||
                         captured_values_.count({&node, k}) != 0;
    const bool others = std::any_of(parts.begin(), parts.end(),
                                    [&](const auto& of_output) { return &of_output != &own && !of_output.empty(); });
    TUTTI_CHECK(!is_seen || !others,
                "backward of a {}: result {} is also used inside it, so its complete cotangent is not known outside, "
                "and a hook or grad() asks for it; "
                "return a clone() of the result, or call the function without compile()",
                node.name(), k);
    std::sort(own.begin(), own.end(), comes_before);
    std::vector<Tensor> cotangents;
    size_t given = 0;
    for (const Contribution& part : own) {
      given += part.consumer == Order{};
      cotangents.push_back(part.grad);
    }
    if (!node.take(k, cotangents, given)) return false;
    own.clear();
    return true;
  }

  // ---- leaves ----

  void add_use(Leaf& leaf, Contribution part) {
    TUTTI_ASSERT(!leaf.finished,
                 "the leaf {} was finished, and then a gradient for it arrived from a node that had not named it",
                 describe(leaf.tensor));
    if (purpose_ != Purpose::accumulate && captured_leaves_.count(leaf.tensor.impl()) == 0) return;
    // The gradient of a parameter is f32 from here on, whatever its copy in use is (numerics contract, N4).
    if (purpose_ != Purpose::parts && itemsize(part.grad.dtype()) < itemsize(DType::f32))
      part.grad = cast(part.grad, DType::f32);
    leaf.tensor.extensions().any([&](const TensorExtension& e) {
      Tensor arriving = e.arriving(part.grad);
      if (arriving.defined()) part.grad = std::move(arriving);
      return false;
    });
    if (leaf.in_sink < 0) {
      leaf.parts.push_back(std::move(part));
      return;
    }
    const std::pair place{part.consumer, part.input};
    const auto before =
        std::count_if(leaf.delivered.begin(), leaf.delivered.end(), [&](const auto& other) { return other < place; });
    leaf.delivered.push_back(place);
    autograd::deliver_use(*options_.sink, leaf.in_sink, static_cast<int32_t>(before), part.grad);
  }

  void finish(Leaf& leaf) {
    if (std::exchange(leaf.finished, true)) return;
    if (leaf.in_sink >= 0) {
      if (!leaf.delivered.empty()) autograd::deliver_finished(*options_.sink, leaf.in_sink);
      return;
    }
    std::vector<Contribution> parts = std::exchange(leaf.parts, {});
    if (parts.empty()) return;
    Meta& meta = *autograd::meta_of(leaf.tensor);
    if (purpose_ == Purpose::accumulate && options_.per_use) {
      std::sort(parts.begin(), parts.end(), comes_before);
      for (Contribution& part : parts) meta.uses.push_back(std::move(part.grad));
      return;
    }
    if (purpose_ == Purpose::accumulate) {
      autograd::accumulate_grad(leaf.tensor, autograd::apply_leaf_hooks(leaf.tensor, combine(parts)));
      return;
    }
    const Captures& captures = captured_leaves_.at(leaf.tensor.impl());
    if (captures.uses != nullptr) {
      std::sort(parts.begin(), parts.end(), comes_before);
      for (Contribution& part : parts) captures.uses->push_back({std::move(part.grad), {part.consumer, part.input}});
      return;
    }
    const Tensor total = autograd::apply_leaf_hooks(leaf.tensor, combine(parts));
    for (Tensor* into : captures.whole) *into = total;
  }

  // The innermost engine of this thread.
  static thread_local Engine* running;

  const BackwardOptions options_;
  const Purpose purpose_;
  Engine* const parent_;
  std::vector<std::pair<Edge, Contribution>> seeds_;
  Order seeds_place_;
  std::vector<int32_t>* added_to_ = nullptr;
  std::optional<Order> region_;
  std::vector<TensorImpl*> region_inputs_;
  Order start_;
  std::vector<std::pair<Edge, Contribution>>* outgoing_ = nullptr;
  std::map<std::pair<Order, Node*>, Work> work_;
  std::vector<const Node*> unwalked_;
  std::unordered_map<TensorImpl*, Leaf> leaves_;
  std::vector<TensorImpl*> met_;  // leaves, in the order in which they were met
  std::map<std::pair<Node*, int>, std::vector<Tensor*>> captured_values_;
  std::unordered_map<TensorImpl*, Captures> captured_leaves_;
};

thread_local Engine* Engine::running = nullptr;

}  // namespace

namespace autograd {

bool is_backward_running() { return Engine::is_running(); }

void backward_region(const Tensor& output, const Tensor& cotangent, const Order& region, std::span<const Tensor> inputs,
                     std::span<Tensor> input_grads) {
  Engine engine({}, Purpose::parts);
  engine.stay_inside(region, inputs);
  for (size_t i = 0; i < inputs.size(); ++i) engine.capture(inputs[i], &input_grads[i]);
  engine.seed(output, cotangent);
  engine.run();
}

std::vector<Outgoing> backward_since(const Order& start, std::span<const Tensor> outputs,
                                     std::span<const Tensor> cotangents) {
  std::vector<std::pair<Edge, Contribution>> parts;
  Engine engine({.retain_graph = true}, Purpose::parts);
  engine.stop_before(start, &parts);
  for (size_t k = 0; k < outputs.size(); ++k) engine.seed(outputs[k], cotangents[k]);
  engine.run();
  std::sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return comes_before(a.second, b.second); });
  std::vector<Outgoing> outgoing;
  for (auto& [edge, part] : parts) outgoing.push_back({std::move(edge), std::move(part.grad)});
  return outgoing;
}

void send_from(const Node& node, int use, const Edge& to, Tensor grad) {
  Engine::innermost().send(to, {node.order, use, std::move(grad)});
}

SplitGradients split_grad(std::span<const Tensor> outputs, std::span<const Tensor> cotangents,
                          std::span<const Tensor> inputs, std::span<const Tensor> leaves) {
  const PhaseScope phase(TracePhase::backward);
  const MemoryCategoryScope category(MemoryCategory::gradients);
  const NoGradScope no_grad;
  Engine engine({}, Purpose::parts);
  SplitGradients split{std::vector<Tensor>(inputs.size()), std::vector<std::vector<LeafUse>>(leaves.size()),
                       std::vector<int32_t>(outputs.size(), 0)};
  engine.seed_behind(&split.consumers);
  for (size_t i = 0; i < inputs.size(); ++i) engine.capture(inputs[i], &split.inputs[i]);
  for (size_t i = 0; i < leaves.size(); ++i) engine.capture_uses(leaves[i], &split.leaves[i]);
  for (size_t k = 0; k < outputs.size(); ++k) engine.seed(outputs[k], cotangents[k]);
  engine.run();
  return split;
}

Tensor apply_leaf_hooks(const Tensor& leaf, Tensor grad) {
  const Meta* meta = meta_of(leaf);
  return meta == nullptr ? grad : run_hooks(meta->hooks, std::move(grad));
}

void accumulate_grad(const Tensor& leaf, const Tensor& grad) {
  Meta& meta = ensure_meta(leaf);
  meta.grad = meta.grad.defined() ? add(meta.grad, grad) : grad;
  meta.post_accumulate.for_each([&](const PostAccumulateHook& hook) { hook(leaf); });
}

}  // namespace autograd

void backward(const Tensor& output, const Tensor& cotangent, const BackwardOptions& options) {
  const PhaseScope phase(TracePhase::backward);
  MemoryCategoryScope category(MemoryCategory::gradients);
  std::optional<NoGradScope> no_grad;
  if (!options.create_graph) no_grad.emplace();
  TUTTI_CHECK(options.sink == nullptr || !options.per_use,
              "backward: both sink and per_use are set; a sink gets each use by itself");
  Engine engine(options, Purpose::accumulate);
  engine.seed(output, cotangent);
  engine.run();
}

std::vector<Tensor> grad(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                         std::span<const Tensor> cotangents, const BackwardOptions& options) {
  const PhaseScope phase(TracePhase::backward);
  MemoryCategoryScope category(MemoryCategory::gradients);
  std::optional<NoGradScope> no_grad;
  if (!options.create_graph) no_grad.emplace();
  Engine engine(options, Purpose::captures);
  std::vector<Tensor> result(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) engine.capture(inputs[i], &result[i]);
  for (size_t k = 0; k < outputs.size(); ++k) engine.seed(outputs[k], k < cotangents.size() ? cotangents[k] : Tensor{});
  engine.run();
  return result;
}

std::vector<Tensor> take_uses(const Tensor& leaf) {
  autograd::Meta* meta = autograd::meta_of(leaf);
  return meta ? std::exchange(meta->uses, {}) : std::vector<Tensor>{};
}

}  // namespace tutti
