#include "tutti/autograd/checkpoint.h"

#include "tutti/autograd/anomaly.h"
#include "tutti/autograd/backward.h"
#include "tutti/ops/keys_again.h"
#include "tutti/runtime/trace/trace_context.h"

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

struct CheckpointNode final : autograd::Node {
  const char* name() const override { return "checkpoint"; }

  void run(std::span<const Tensor> grads, std::span<Tensor> input_grads, uint32_t needed) override {
    TUTTI_CHECK(!released, "backward of checkpoint: the graph was used before; pass retain_graph = true to the first backward");
    TUTTI_CHECK(!is_grad_enabled(), "backward of checkpoint: gradients of gradients through a checkpointed region are not "
                "supported; leave this region unchecked");
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
      const KeysAgain same_keys(keys, "backward of checkpoint: the region");
      output = fn(leaves);
    }
    if (requires_grad(output)) autograd::backward_region(output, grads[0], order, leaves, input_grads);
  }

  void release_saved() override {
    inputs.clear();
    fn = nullptr;
    released = true;
  }

  std::function<Tensor(std::span<const Tensor>)> fn;
  std::vector<Tensor> inputs;
  std::vector<RandomKey> keys;
};

}  // namespace

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
    output = detach(fn(inputs));
  }
  node->fn = std::move(fn);
  autograd::set_history(output, node, 0);
  return output;
}

}  // namespace tutti
