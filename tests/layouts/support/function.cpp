#include "tests/layouts/support/function.h"

#include <algorithm>

#include "tutti/ops/cast.h"

namespace tutti::layouts {
namespace {

struct FunctionNode final : autograd::Node {
  FunctionNode(const char* name, Backward backward) : name_(name), backward_(std::move(backward)) {}
  const char* name() const override { return name_; }
  void run(std::span<const Tensor> grads, std::span<Tensor> input_grads, uint32_t) override {
    if (!grads[0].defined()) return;
    const std::vector<Tensor> result = backward_(grads[0]);
    for (size_t i = 0; i < result.size(); ++i) input_grads[i] = result[i];
  }
  void release_saved() override { backward_ = nullptr; }

 private:
  const char* name_;
  Backward backward_;
};

}  // namespace

Tensor function(const char* name, const std::vector<Tensor>& inputs, const std::function<Tensor()>& forward,
                Backward backward) {
  const bool recorded =
      is_grad_enabled() && std::ranges::any_of(inputs, [](const Tensor& t) { return requires_grad(t); });
  if (!recorded) return detach(forward());
  auto node = std::make_shared<FunctionNode>(name, std::move(backward));
  node->order = autograd::next_order();
  for (const Tensor& t : inputs) node->edges.push_back(autograd::edge_of(t));
  Tensor result;
  {
    NoGradScope no_grad;
    result = detach(forward());
  }
  autograd::set_history(result, node, 0);
  return result;
}

Tensor with_cotangent(const Tensor& x, std::function<Tensor(const Tensor&)> change) {
  return function(
      "with_cotangent", {x}, [&] { return x; },
      [change = std::move(change)](const Tensor& g) -> std::vector<Tensor> { return {change(g)}; });
}

Tensor with_rounded_cotangent(const Tensor& x) {
  return with_cotangent(x, [dtype = x.dtype()](const Tensor& g) { return cast(g, dtype); });
}

}  // namespace tutti::layouts
