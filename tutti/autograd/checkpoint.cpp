#include "tutti/autograd/checkpoint.h"

#include <utility>

#include "tutti/autograd/anomaly.h"
#include "tutti/autograd/backward.h"
#include "tutti/autograd/recomputing.h"
#include "tutti/ops/keys_again.h"
#include "tutti/runtime/trace/trace_context.h"
#include "tutti/tensor/tensor_slot.h"

namespace tutti {
namespace {

// Notes the anonymous keys that a region draws, for what computes it again: draws of its own would be other masks.
class NotedKeys final : public KeySource {
 public:
  explicit NotedKeys(std::vector<RandomKey>& keys) : keys_(keys), previous_(KeySource::set_current(this)) {}
  ~NotedKeys() { KeySource::set_current(previous_); }
  NotedKeys(const NotedKeys&) = delete;
  NotedKeys& operator=(const NotedKeys&) = delete;

  RandomKey next_key(std::string_view module_path) override {
    keys_.push_back(KeySource::next_of(previous_, module_path));
    return keys_.back();
  }
  std::function<void()> mark() override {
    return [this, count = keys_.size(), back = KeySource::mark_of(previous_)] {
      keys_.resize(count);
      back();
    };
  }

 private:
  std::vector<RandomKey>& keys_;
  KeySource* previous_;
};

thread_local bool recomputing = false;

class RecomputeScope {
 public:
  RecomputeScope() : previous_(std::exchange(recomputing, true)) {}
  ~RecomputeScope() { recomputing = previous_; }
  RecomputeScope(const RecomputeScope&) = delete;
  RecomputeScope& operator=(const RecomputeScope&) = delete;

 private:
  const bool previous_;
};

// A slot that a region read in its forward, and what it held.
struct ReadSlot {
  std::shared_ptr<const TensorSlot> slot;
  Tensor held;
};

// Hands slot reads on to whoever observes them, and tells `notice` of each.
class ObservedSlots final : public SlotReads {
 public:
  using Notice = std::function<void(const std::shared_ptr<const TensorSlot>&, const Tensor&)>;
  explicit ObservedSlots(Notice notice) : notice_(std::move(notice)), previous_(SlotReads::set_current(this)) {}
  ~ObservedSlots() { SlotReads::set_current(previous_); }
  ObservedSlots(const ObservedSlots&) = delete;
  ObservedSlots& operator=(const ObservedSlots&) = delete;

  Tensor read(const std::shared_ptr<const TensorSlot>& slot) override {
    const Tensor held = previous_ == nullptr ? slot->held() : previous_->read(slot);
    notice_(slot, held);
    return held;
  }

 private:
  const Notice notice_;
  SlotReads* const previous_;
};

struct CheckpointNode final : autograd::Node {
  const char* name() const override { return "checkpoint"; }

  void run(std::span<const Tensor> grads, std::span<Tensor> input_grads, uint32_t needed) override {
    TUTTI_CHECK(!released,
                "backward of checkpoint: the graph was used before; pass retain_graph = true to the first backward");
    TUTTI_CHECK(!is_grad_enabled(),
                "backward of checkpoint: gradients of gradients through a checkpointed region are not "
                "supported; leave this region unchecked");
    check_versions();
    std::vector<Tensor> leaves;
    for (size_t i = 0; i < inputs.size(); ++i) {
      leaves.push_back(detach(inputs[i]));
      if (needed >> i & 1) requires_grad_(leaves.back());
    }
    Tensor output;
    {
      EnableGradScope enable;
      MemoryCategoryScope category(MemoryCategory::activations);
      autograd::RegionScope region(order);
      const RecomputeScope again;
      const KeysAgain same_keys(keys, "backward of checkpoint: the region");
      const ObservedSlots same_slots([this](const auto& slot, const Tensor& held) { check_slot(slot, held); });
      output = fn(leaves);
    }
    check_versions();  // reading a parameter may have renewed the copy that forward reads
    if (requires_grad(output)) autograd::backward_region(output, grads[0], order, leaves, input_grads);
  }

  // The region would be computed again from other values than those of its forward.
  void note_versions() {
    for (const Tensor& t : inputs) versions.emplace_back(t, t.version());
    for (const autograd::Edge& edge : captured) {
      if (edge.leaf.defined()) versions.emplace_back(edge.leaf, edge.leaf.version());
    }
  }
  void check_versions() const {
    for (const auto& [t, version] : versions)
      TUTTI_CHECK(t.version() == version,
                  "backward of checkpoint: a tensor {} that the region reads was changed in place after the forward "
                  "(version {} then, {} now); "
                  "call backward() before changing it, or leave this region unchecked",
                  describe(t), version, t.version());
  }
  void check_slot(const std::shared_ptr<const TensorSlot>& slot, const Tensor& held) const {
    for (const ReadSlot& r : slots)
      TUTTI_CHECK(r.slot != slot || r.held.is_same(held),
                  "backward of checkpoint: {} changed after the forward, so that the region would be computed "
                  "differently; call "
                  "backward() before changing it",
                  slot->description());
  }

  void release_saved() override {
    versions.clear();
    slots.clear();
    inputs.clear();
    fn = nullptr;
    released = true;
  }

  std::function<Tensor(std::span<const Tensor>)> fn;
  std::vector<Tensor> inputs;
  std::vector<RandomKey> keys;
  std::vector<std::pair<Tensor, uint32_t>> versions;  // of what the forward read, after it
  std::vector<ReadSlot> slots;
};

}  // namespace

bool is_recomputing() { return recomputing; }

Tensor checkpoint(std::function<Tensor(std::span<const Tensor>)> fn, std::span<const Tensor> inputs) {
  if (!is_grad_enabled()) return fn(inputs);
  TUTTI_CHECK(inputs.size() <= 32, "checkpoint: {} inputs were given; at most 32 are supported", inputs.size());
  auto node = std::make_shared<CheckpointNode>();
  node->order = autograd::next_order();
  node->place = TraceContext::current().place;
  node->site = autograd::site_in_anomaly_mode();
  for (const Tensor& t : inputs) {
    node->edges.push_back(autograd::edge_of(t));
    node->inputs.push_back(t);
  }
  Tensor output;
  {
    NoGradScope no_grad;
    const NotedKeys noted(node->keys);
    const autograd::CapturedScope captured(node->captured);
    const ObservedSlots observed([&](const auto& slot, const Tensor& held) { node->slots.push_back({slot, held}); });
    output = detach(fn(inputs));
  }
  node->note_versions();
  node->fn = std::move(fn);
  autograd::set_history(output, node, 0);
  return output;
}

}  // namespace tutti
