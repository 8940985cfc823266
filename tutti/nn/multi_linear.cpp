#include "tutti/nn/multi_linear.h"

#include <optional>
#include <string>
#include <utility>

#include "tutti/autograd/function.h"
#include "tutti/core/error.h"
#include "tutti/nn/linear_operand.h"
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
std::vector<Tensor> products(autograd::FunctionContext& context, std::span<const Tensor> inputs,
                             const std::vector<std::string>& names) {
  context.save(inputs);
  std::vector<Tensor> results;
  for (size_t i = 1; i < inputs.size(); ++i) {
    const LayerScope layer(names[i - 1]);
    results.push_back(linear(inputs[0], inputs[i]));
  }
  return results;
}

std::vector<Tensor> gradients(const autograd::FunctionContext& context, std::span<const Tensor> grads,
                              const std::vector<std::string>& names) {
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
    if (context.needs(i))
      result[i] = matmul(transpose(cotangents[at], 0, 1), x_TI, {.out_dtype = dtype, .axis = ContractionAxis::tokens});
    ++at;
  }
  return result;
}

// The products with all operands that are one matrix, in one function; the places of the others are left undefined.
std::vector<Tensor> apply_together(const Tensor& x, std::span<const Linear* const> layers) {
  std::vector<Tensor> inputs{x};
  std::vector<std::string> names;
  std::vector<size_t> places;
  for (size_t i = 0; i < layers.size(); ++i) {
    Tensor matrix = layers[i]->operand().matrix();
    if (!matrix.defined()) continue;
    inputs.push_back(std::move(matrix)), names.push_back(layers[i]->call_name()), places.push_back(i);
  }
  if (places.empty()) return std::vector<Tensor>(layers.size());
  const autograd::Function function(
      "multi_linear",
      [names](autograd::FunctionContext& context, std::span<const Tensor> in) { return products(context, in, names); },
      [names](const autograd::FunctionContext& context, std::span<const Tensor> grads) {
        return gradients(context, grads, names);
      });
  std::vector<Tensor> products = function.apply(inputs);
  if (places.size() == layers.size()) return products;
  std::vector<Tensor> results(layers.size());
  for (size_t i = 0; i < places.size(); ++i) results[places[i]] = std::move(products[i]);
  return results;
}

}  // namespace

std::vector<Tensor> multi_linear(const Tensor& x, std::span<const Linear* const> layers) {
  TUTTI_CHECK(!layers.empty() && layers.size() <= kMaxProducts, "multi_linear: {} layers; expected 1 to {}",
              layers.size(), kMaxProducts);
  Tensor input;
  for (size_t i = 0; i < layers.size(); ++i) {
    const Tensor given = [&] {
      const LayerScope scope(layers[i]->call_name());
      return hooked_input(*layers[i], x);
    }();
    if (i == 0) input = given;
    TUTTI_CHECK(given.is_same(input),
                "multi_linear: hooks of '{}' and '{}' give them different inputs, {} and {}, and the gradient of the "
                "input is one sum over all layers; prepare the input once, "
                "before the call (PrepareModuleInput of the module around), or call the layers one by one",
                layers[0]->call_name(), layers[i]->call_name(), describe(input), describe(given));
    TUTTI_CHECK(input.ndim() >= 1 && input.size(-1) == layers[i]->operand().in_features(),
                "multi_linear: x is {}, the weight of layer {} has sizes {}; expected [out, in] with in == {}",
                describe(input), i, layers[i]->weight.sizes(), input.ndim() ? input.size(-1) : SymInt(0));
  }
  std::vector<Tensor> results = apply_together(input, layers);
  for (size_t i = 0; i < layers.size(); ++i) {
    const LayerScope scope(layers[i]->call_name());
    if (!results[i].defined()) results[i] = layers[i]->operand().product(input);
    if (layers[i]->bias.defined()) results[i] = add(results[i], layers[i]->bias);
    if (const ForwardHooks* hooks = layers[i]->forward_hooks_if_any())
      results[i] = hooks->run_after(*layers[i], std::move(results[i]));
  }
  return results;
}

}  // namespace tutti::nn
