#include "tutti/graph/control_result.h"

#include "tutti/ops/copy.h"

namespace tutti::graph {
namespace {

struct ResultNode final : autograd::Node {
  const char* name() const override { return "result of a branch"; }
  void run(std::span<const Tensor> grads, std::span<Tensor> input_grads, uint32_t) override {
    input_grads[0] = grads[0];
  }
  void release_saved() override {}
};

}  // namespace

Tensor as_result(Tensor&& t, bool unshared) {
  const bool is_shared = unshared && (t.impl()->references.load() > 1 || t.storage()->use_count() > 1);
  if (!requires_grad(t)) return is_shared ? clone(t) : std::move(t);
  if (!is_grad_enabled()) return is_shared ? clone(t) : detach(t);
  auto node = std::make_shared<ResultNode>();
  node->order = autograd::next_order();
  node->edges.push_back(autograd::edge_of(t));
  const NoGradScope no_grad;
  Tensor result = is_shared ? clone(t) : autograd::detached(t);
  autograd::set_history(result, std::move(node), 0);
  return result;
}

}  // namespace tutti::graph
