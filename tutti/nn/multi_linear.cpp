#include "tutti/nn/multi_linear.h"

#include <optional>
#include <string>
#include <utility>

#include "tutti/autograd/function.h"
#include "tutti/core/error.h"
#include "tutti/nn/module_call.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/matmul_sum.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reshape.h"
#include "tutti/runtime/trace/trace_context.h"

namespace tutti::nn {
namespace {

// What runs in the place of a layer is seen under its name.
class LayerScope {
 public:
  explicit LayerScope(const std::string& name) {
    if (!name.empty()) scope_.emplace(name, std::source_location());
  }

 private:
  std::optional<ModuleScope> scope_;
};

Tensor as_matrix(const Tensor& t) { return t.ndim() == 2 ? t : reshape(t, {-1, t.size(-1)}); }

// Inputs: x, then the weights.
std::vector<Tensor> products(autograd::FunctionContext& context, std::span<const Tensor> inputs, const std::vector<std::string>& names) {
  context.save(inputs);
  std::vector<Tensor> results;
  for (size_t i = 1; i < inputs.size(); ++i) {
    const LayerScope layer(names[i - 1]);
    results.push_back(linear(inputs[0], inputs[i]));
  }
  return results;
}

std::vector<Tensor> gradients(const autograd::FunctionContext& context, std::span<const Tensor> grads, const std::vector<std::string>& names) {
  const std::vector<Tensor>& inputs = context.saved();
  const Tensor& x = inputs[0];
  std::vector<Tensor> result(inputs.size()), cotangents, weights;
  for (size_t i = 1; i < inputs.size(); ++i) {
    if (!grads[i - 1].defined()) continue;
    cotangents.push_back(as_matrix(grads[i - 1]));
    weights.push_back(inputs[i]);
  }
  if (cotangents.empty()) return result;
  if (context.needs(0)) result[0] = reshape(matmul_sum(cotangents, weights, {.out_dtype = x.dtype()}), x.sizes());
  const Tensor x_TI = as_matrix(x);
  for (size_t i = 1, at = 0; i < inputs.size(); ++i) {
    if (!grads[i - 1].defined()) continue;
    const LayerScope layer(names[i - 1]);
    const DType dtype = inputs[i].dtype() == DType::f64 ? DType::f64 : DType::f32;
    if (context.needs(i)) result[i] = matmul(transpose(cotangents[at], 0, 1), x_TI, {.out_dtype = dtype, .axis = ContractionAxis::tokens});
    ++at;
  }
  return result;
}

std::vector<Tensor> apply_together(const Tensor& x, std::span<const Linear* const> layers) {
  std::vector<Tensor> inputs{x};
  std::vector<std::string> names;
  for (const Linear* layer : layers) inputs.push_back(layer->weight), names.push_back(layer->call_name());
  const autograd::Function function(
      "multi_linear", [names](autograd::FunctionContext& context, std::span<const Tensor> in) { return products(context, in, names); },
      [names](const autograd::FunctionContext& context, std::span<const Tensor> grads) { return gradients(context, grads, names); });
  return function.apply(inputs);
}

}  // namespace

std::vector<Tensor> multi_linear(const Tensor& x, std::span<const Linear* const> layers) {
  std::vector<Tensor> inputs(layers.size(), x), results(layers.size());
  for (size_t i = 0; i < layers.size(); ++i) {
    const ForwardHooks* hooks = layers[i]->forward_hooks_if_any();
    if (hooks == nullptr || !hooks->has_before()) continue;
    const LayerScope scope(layers[i]->call_name());
    std::vector<Tensor> input{x};
    hooks->run_before(*layers[i], input);
    inputs[i] = input[0];
  }
  for (size_t first = 0; first < layers.size(); ++first) {
    if (results[first].defined()) continue;
    const Tensor& input = inputs[first];
    std::vector<const Linear*> group;
    std::vector<size_t> places;
    for (size_t i = first; i < layers.size(); ++i) {
      if (!inputs[i].is_same(input)) continue;
      TUTTI_CHECK(input.ndim() >= 1 && input.size(-1) == layers[i]->weight.sizes()[1], "multi_linear: x is {}, the weight of layer {} has sizes {}; expected [out, in] with in == {}",
                  describe(input), i, layers[i]->weight.sizes(), input.ndim() ? input.size(-1) : SymInt(0));
      group.push_back(layers[i]);
      places.push_back(i);
    }
    const std::vector<Tensor> made = apply_together(input, group);
    for (size_t g = 0; g < group.size(); ++g) results[places[g]] = made[g];
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    const LayerScope scope(layers[i]->call_name());
    if (layers[i]->bias.defined()) results[i] = add(results[i], layers[i]->bias);
    if (const ForwardHooks* hooks = layers[i]->forward_hooks_if_any()) results[i] = hooks->run_after(*layers[i], std::move(results[i]));
  }
  return results;
}

}  // namespace tutti::nn
