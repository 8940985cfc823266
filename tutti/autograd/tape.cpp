#include "tutti/autograd/tape.h"

#include <algorithm>
#include <atomic>
#include <unordered_set>
#include <utility>

#include "tutti/autograd/anomaly.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/runtime/trace/trace_context.h"

namespace tutti {
namespace autograd {
namespace {

constexpr ExtensionKind kAutograd{"autograd"};

// Places outside of recomputed regions, shared by the threads of a rank.
struct Places {
  std::atomic<uint64_t> last{0};
};

// The region that this thread recomputes: places below it are this thread's own.
struct Region {
  Order next;
  int level = 0;  // 0: outside of any
};
thread_local Region region_here;

// A tensor kept for backward, with the version it had.
struct Saved {
  Tensor tensor;
  uint32_t version = 0;
  bool is_output = false;
};

struct OpNode final : Node {
  explicit OpNode(const OpCall& call) : op(call.op), attrs(call.attrs) {}
  const char* name() const override { return op.name; }

  Tensor unpack(const Saved& saved, int index, const char* kind) {
    if (!saved.tensor.defined()) return {};
    TUTTI_CHECK(saved.tensor.version() == saved.version,
                "backward of {}: its {} {} ({}) was changed in place after the forward (version {} then, {} now); "
                "write to a clone() instead",
                op.name, kind, index, describe(saved.tensor), saved.version, saved.tensor.version());
    if (!saved.is_output || !is_grad_enabled()) return saved.tensor;
    Tensor output = detached(saved.tensor);
    set_history(output, shared_from_this(), index);
    return output;
  }

  void run(std::span<const Tensor> grads, std::span<Tensor> input_grads, uint32_t needed) override {
    TUTTI_CHECK(!released,
                "backward of {}: the graph was used before and its saved tensors are gone; "
                "pass retain_graph = true to the first backward",
                op.name);
    TUTTI_CHECK(op.gradient.vjp != nullptr, "{} has no gradient: {}", op.name,
                op.gradient.none ? op.gradient.none : "none is defined");
    std::vector<Tensor> saved_inputs, saved_outputs;
    for (size_t i = 0; i < inputs.size(); ++i) saved_inputs.push_back(unpack(inputs[i], static_cast<int>(i), "input"));
    for (size_t k = 0; k < outputs.size(); ++k)
      saved_outputs.push_back(unpack(outputs[k], static_cast<int>(k), "output"));
    op.gradient.vjp({op, saved_inputs, saved_outputs, grads, attrs, metas, needed}, input_grads);
  }

  void release_saved() override {
    inputs.clear();
    outputs.clear();
    released = true;
  }

  const OpDef& op;
  Attrs attrs;
  std::vector<Saved> inputs, outputs;
  std::vector<OutputMeta> metas;
};

class AutogradStage final : public Stage {
 public:
  void handle(const OpCall& call, std::span<Tensor> outputs) override {
    const OpDef& op = call.op;
    for (const int8_t written : op.writes) {
      if (written < 0) continue;
      TUTTI_CHECK(
          !requires_grad(call.inputs[static_cast<size_t>(written)]),
          "{}: writes in place to a tensor that autograd records ({}); use the out-of-place form, or NoGradScope",
          op.name, describe(call.inputs[static_cast<size_t>(written)]));
    }
    for (const int8_t written : op.writes) {
      if (written < 0) continue;
      // The gradient of the written values belongs to every tensor on this memory, and only the one named here gets it.
      const Tensor& target = call.inputs[static_cast<size_t>(written)];
      TUTTI_CHECK(target.storage()->use_count() == 1,
                  "{}: writes a value with a gradient into {}, whose memory other tensors share (it is a view, or has "
                  "views): they "
                  "would lose the gradient; use the out-of-place form (cat, where, scatter), or NoGradScope",
                  op.name, describe(target));
    }
    const Order order = next_order();
    {
      NoGradScope no_grad;
      const SequenceScope sequence(static_cast<int64_t>(order.place[0]));
      apply(op, call.inputs, call.attrs, outputs);
    }
    auto node = std::make_shared<OpNode>(call);
    node->order = order;
    node->place = TraceContext::current().place;
    node->site = site_in_anomaly_mode();
    node->num_outputs = op.num_outputs;
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      const Tensor& t = call.inputs[i];
      node->edges.push_back(edge_of(t));
      node->metas.push_back({t.dtype(), t.sizes()});
      const bool keep = op.gradient.saves_inputs >> std::min<size_t>(i, 31) & 1;
      node->inputs.push_back(keep ? Saved{t, t.version(), false} : Saved{});
    }
    for (int k = 0; k < op.num_outputs; ++k) {
      const Tensor& t = outputs[static_cast<size_t>(k)];
      const bool keep = op.gradient.saves_outputs >> k & 1;
      node->outputs.push_back(keep ? Saved{detached(t), t.version(), true} : Saved{});
      if (is_floating(t.dtype())) set_history(t, node, k);
    }
  }
};

thread_local std::vector<Edge>* captured_here = nullptr;

class CapturedStage final : public Stage {
 public:
  static StageMask mask() {
    static CapturedStage stage;
    static const StageMask registered = register_stage("captured leaves", StagePlace::autograd, &stage);
    return registered;
  }
  void handle(const OpCall& call, std::span<Tensor> outputs) override {
    for (const Tensor& t : call.inputs) note_captured(t);
    const StageScope off(0, mask());
    apply(call.op, call.inputs, call.attrs, outputs);
  }
};

}  // namespace

// A function, so that tensors made while the program is loaded find it registered.
StageMask stage() {
  static AutogradStage instance;
  static const StageMask mask = register_stage("autograd", StagePlace::autograd, &instance);
  return mask;
}

CapturedScope::CapturedScope(std::vector<Edge>& into)
    : previous_(std::exchange(captured_here, &into)), stage_(CapturedStage::mask(), 0) {}
CapturedScope::~CapturedScope() { captured_here = previous_; }

void note_captured(const Tensor& t) {
  if (captured_here == nullptr) return;
  Edge edge = edge_of(t);
  const auto same = [&](const Edge& e) {
    return e.node == edge.node && e.index == edge.index && e.leaf.is_same(edge.leaf);
  };
  if (edge.wanted() && std::none_of(captured_here->begin(), captured_here->end(), same))
    captured_here->push_back(std::move(edge));
}

NoCapturedScope::NoCapturedScope() : previous_(std::exchange(captured_here, nullptr)) {}
NoCapturedScope::~NoCapturedScope() { captured_here = previous_; }

Order next_order() {
  if (region_here.level == 0) {
    Order order;
    order.place[0] = ++RankContext::current().slot<Places>().last;
    return order;
  }
  ++region_here.next.place[static_cast<size_t>(region_here.level)];
  return region_here.next;
}

uint64_t current_region() {
  uint64_t id = 0;
  for (int level = 0; level < region_here.level; ++level)
    id = id * 0x9E3779B97F4A7C15ull + region_here.next.place[static_cast<size_t>(level)];
  return id;
}

RegionScope::RegionScope(const Order& region) : saved_(region_here.next), saved_level_(region_here.level) {
  int level = Order::kLevels - 1;
  while (level > 0 && region.place[static_cast<size_t>(level)] == 0) --level;
  TUTTI_CHECK(level + 1 < Order::kLevels, "checkpointed regions are nested more than {} deep", Order::kLevels - 1);
  region_here = {region, level + 1};
}

RegionScope::~RegionScope() { region_here = {saved_, saved_level_}; }

// A long chain of nodes would recurse once per node while it is freed; take it apart in a loop instead.
Node::~Node() {
  std::vector<std::shared_ptr<Node>> pending;
  for (Edge& e : edges) {
    if (e.node) pending.push_back(std::move(e.node));
  }
  while (!pending.empty()) {
    std::shared_ptr<Node> node = std::move(pending.back());
    pending.pop_back();
    if (node.use_count() != 1) continue;
    node->release_saved();
    for (Edge& e : node->edges) {
      if (e.node) pending.push_back(std::move(e.node));
    }
  }
}

Meta* meta_of(const Tensor& t) {
  if (!t.defined()) throw_undefined_tensor();
  return t.extensions().find<Meta>(kAutograd);
}

Meta& ensure_meta(const Tensor& t) {
  if (!t.defined()) throw_undefined_tensor();
  if (Meta* meta = meta_of(t)) return *meta;
  return static_cast<Meta&>(t.extensions().put(kAutograd, std::make_unique<Meta>()));
}

// Other rooms' stages stay: the elements are as much theirs as before.
Tensor detached(const Tensor& t) {
  Tensor result = t.alias();
  result.impl()->stages = static_cast<StageMask>(t.stages() & ~stage());
  return result;
}

void set_history(const Tensor& t, std::shared_ptr<Node> node, int index) {
  Meta& meta = ensure_meta(t);
  meta.node = std::move(node);
  meta.index = index;
  t.impl()->stages |= stage();
}

bool is_used_up(const Tensor& t) {
  const Meta* meta = meta_of(t);
  if (meta == nullptr || meta->node == nullptr) return false;
  std::unordered_set<const Node*> seen{meta->node.get()};
  std::vector<const Node*> open{meta->node.get()};
  while (!open.empty()) {
    const Node* node = open.back();
    open.pop_back();
    if (node->released) return true;
    for (const Edge& e : node->edges) {
      if (e.node && seen.insert(e.node.get()).second) open.push_back(e.node.get());
    }
  }
  return false;
}

Edge edge_of(const Tensor& t) {
  const Meta* meta = meta_of(t);
  if (meta == nullptr) return {};
  if (meta->node) return {meta->node, meta->index, {}};
  return meta->requires_grad ? Edge{nullptr, 0, t} : Edge{};
}

}  // namespace autograd

const Tensor& requires_grad_(const Tensor& t, bool on) {
  autograd::Meta& meta = autograd::ensure_meta(t);
  TUTTI_CHECK(is_floating(t.dtype()), "requires_grad_: only float tensors have gradients, this one is {}", describe(t));
  TUTTI_CHECK(!meta.node,
              "requires_grad_: the tensor is the result of {}; only leaves can be switched, detach() it first",
              meta.node->name());
  meta.requires_grad = on;
  if (on) t.impl()->stages |= autograd::stage();
  else t.impl()->stages &= static_cast<StageMask>(~autograd::stage());
  return t;
}

bool requires_grad(const Tensor& t) {
  const autograd::Meta* meta = autograd::meta_of(t);
  return meta != nullptr && (meta->requires_grad || meta->node != nullptr);
}

Tensor grad_of(const Tensor& leaf) {
  const autograd::Meta* meta = autograd::meta_of(leaf);
  return meta ? meta->grad : Tensor{};
}

void set_grad(const Tensor& leaf, Tensor grad) { autograd::ensure_meta(leaf).grad = std::move(grad); }

Tensor detach(const Tensor& t) { return autograd::detached(t); }

HookHandle register_hook(const Tensor& t, autograd::Hook hook) {
  TUTTI_CHECK(requires_grad(t), "register_hook: the tensor {} has no gradient", describe(t));
  autograd::Meta& meta = *autograd::meta_of(t);
  if (!meta.node) return meta.hooks.add(std::move(hook));
  meta.node->hooks.resize(static_cast<size_t>(meta.node->num_outputs));
  return meta.node->hooks[static_cast<size_t>(meta.index)].add(std::move(hook));
}

HookHandle register_post_accumulate_grad_hook(const Tensor& leaf, autograd::PostAccumulateHook hook) {
  const autograd::Meta* meta = autograd::meta_of(leaf);
  TUTTI_CHECK(meta != nullptr && meta->requires_grad && !meta->node,
              "register_post_accumulate_grad_hook: the tensor {} {}; only leaves that require grad accumulate one, use "
              "register_hook() for other values",
              describe(leaf),
              meta != nullptr && meta->node ? fmt::format("is the result of {}", meta->node->name())
                                            : std::string("does not require grad"));
  return autograd::ensure_meta(leaf).post_accumulate.add(std::move(hook));
}

bool is_grad_enabled() { return (removed_stages() & autograd::stage()) == 0; }

}  // namespace tutti
