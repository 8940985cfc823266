#include "tutti/autograd/function.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "tutti/autograd/anomaly.h"
#include "tutti/runtime/trace/trace_context.h"

namespace tutti::autograd {

struct FunctionNode final : Node {
  explicit FunctionNode(std::shared_ptr<const Function::Definition> d) : definition(std::move(d)) {}
  const char* name() const override { return definition->name.c_str(); }

  void run(std::span<const Tensor> grads, std::span<Tensor> input_grads, uint32_t) override {
    TUTTI_CHECK(!released,
                "backward of {}: the graph was used before and its saved tensors are gone; pass retain_graph = true to "
                "the first backward",
                name());
    for (size_t i = 0; i < context.saved_.size(); ++i) {
      TUTTI_CHECK(
          context.saved_[i].version() == versions[i],
          "backward of {}: saved tensor {} ({}) was changed in place after the forward (version {} then, {} now); "
          "write to a clone() instead",
          name(), i, describe(context.saved_[i]), versions[i], context.saved_[i].version());
    }
    FunctionContext now = context;
    if (is_grad_enabled()) {
      for (size_t i = 0; i < now.saved_.size(); ++i) {
        if (output_of[i] < 0) continue;
        now.saved_[i] = detached(now.saved_[i]);
        set_history(now.saved_[i], shared_from_this(), output_of[i]);
      }
    }
    std::vector<Tensor> found = definition->backward(now, grads);
    TUTTI_CHECK_EQ(found.size(), edges.size(),
                   "backward of {}: it returned {} gradients for {} inputs; return one each, undefined for zero",
                   name(), found.size(), edges.size());
    for (size_t i = 0; i < found.size(); ++i) {
      if (!found[i].defined()) continue;
      TUTTI_CHECK(is_floating(found[i].dtype()) && found[i].sizes() == metas[i].sizes,
                  "backward of {}: the gradient of input {} is {}; expected a float tensor of its sizes {}", name(), i,
                  describe(found[i]), metas[i].sizes);
      if (edges[i].wanted()) input_grads[i] = std::move(found[i]);
    }
  }

  void release_saved() override {
    context.saved_.clear();
    released = true;
  }

  const std::shared_ptr<const Function::Definition> definition;
  FunctionContext context;
  std::vector<uint32_t> versions;  // of the saved tensors
  std::vector<int> output_of;      // per saved tensor: which result it is; -1: none
  std::vector<OutputMeta> metas;   // of the inputs
};

void FunctionContext::save(std::span<const Tensor> tensors) {
  saved_.insert(saved_.end(), tensors.begin(), tensors.end());
}

Function::Function(std::string name, Forward forward, Backward backward)
    : definition_(
          std::make_shared<const Definition>(Definition{std::move(name), std::move(forward), std::move(backward)})) {
  TUTTI_CHECK(definition_->forward != nullptr && definition_->backward != nullptr,
              "autograd::Function '{}': forward and backward must both be given", definition_->name);
}

std::vector<Tensor> Function::apply(std::span<const Tensor> inputs) const {
  const std::string& name = definition_->name;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (!inputs[i].defined())
      throw UndefinedTensorError(
          fmt::format("{}: input {} of {} is an undefined tensor; ask defined() first", name, i, inputs.size()));
  const bool records =
      is_grad_enabled() && std::any_of(inputs.begin(), inputs.end(), [](const Tensor& t) { return requires_grad(t); });
  auto node = std::make_shared<FunctionNode>(definition_);
  if (records) node->order = next_order();
  FunctionContext& context = node->context;
  for (const Tensor& t : inputs) note_captured(t);  // the forward may return one as it came
  for (const Tensor& t : inputs) context.needs_.push_back(records && edge_of(t).wanted());
  std::vector<Tensor> results;
  {
    const NoGradScope no_grad;
    // Kernels of the backward name the lines of the forward, as those of ops do.
    std::optional<SequenceScope> sequence;
    if (records) sequence.emplace(static_cast<int64_t>(node->order.place[0]));
    results = definition_->forward(context, inputs);
  }
  for (size_t k = 0; k < results.size(); ++k)
    TUTTI_CHECK(results[k].defined(), "{}: result {} of {} is undefined; return tensors only", name, k, results.size());
  const auto index_of = [&](const Tensor& t) {
    const auto it =
        std::find_if(results.begin(), results.end(), [&](const Tensor& result) { return result.is_same(t); });
    return it == results.end() ? -1 : static_cast<int>(it - results.begin());
  };
  std::vector<bool> is_constant(results.size(), false);
  for (const Tensor& t : std::exchange(context.constant_, {})) {
    const int k = index_of(t);
    TUTTI_CHECK(k >= 0, "{}: mark_non_differentiable() names a tensor that is no result", name);
    is_constant[static_cast<size_t>(k)] = true;
  }
  if (!records) return results;
  for (const Tensor& t : context.saved_) {
    TUTTI_CHECK(t.defined(), "{}: save() got an undefined tensor", name);
    node->versions.push_back(t.version());
    node->output_of.push_back(index_of(t));
  }
  // A saved result would keep the node alive through its own history.
  for (size_t i = 0; i < context.saved_.size(); ++i) {
    if (node->output_of[i] >= 0) context.saved_[i] = detached(context.saved_[i]);
  }
  node->place = TraceContext::current().place;
  node->site = site_in_anomaly_mode();
  node->num_outputs = static_cast<int>(results.size());
  for (const Tensor& t : inputs) {
    node->edges.push_back(edge_of(t));
    node->metas.push_back({t.dtype(), t.sizes()});
  }
  for (size_t k = 0; k < results.size(); ++k) {
    // A result that is an input, or has a history of its own, becomes another tensor here.
    const bool is_input =
        std::any_of(inputs.begin(), inputs.end(), [&](const Tensor& t) { return t.is_same(results[k]); });
    if (is_input || requires_grad(results[k])) results[k] = detached(results[k]);
    if (is_floating(results[k].dtype()) && !is_constant[k]) set_history(results[k], node, static_cast<int>(k));
  }
  return results;
}

Tensor Function::one_result(std::vector<Tensor> results) const {
  TUTTI_CHECK_EQ(results.size(), size_t{1}, "{}: it has {} results, and one is expected here; call apply()",
                 definition_->name, results.size());
  return std::move(results[0]);
}

}  // namespace tutti::autograd
