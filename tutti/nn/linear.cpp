#include "tutti/nn/linear.h"

#include <algorithm>
#include <cmath>

#include "tutti/core/error.h"
#include "tutti/nn/linear_operand.h"
#include "tutti/nn/module_call.h"
#include "tutti/ops/binary.h"

namespace tutti::nn {

Linear::Linear(int64_t in_features, int64_t out_features, const LinearOptions& options) {
  TUTTI_CHECK(in_features >= 0 && out_features >= 0, "Linear: {} inputs and {} outputs; expected 0 or more of each",
              in_features, out_features);
  const Init by_fan_in = Init::uniform(1.0 / std::sqrt(static_cast<double>(std::max<int64_t>(in_features, 1))));
  weight = register_parameter("weight", {out_features, in_features}, options.init.value_or(by_fan_in));
  weight.allow_blocks();
  operand_ = std::make_shared<DenseOperand>(weight);
  if (options.bias) bias = register_parameter("bias", {out_features}, options.init ? Init::zeros() : by_fan_in);
}

Tensor Linear::forward(const Tensor& x) const {
  const Tensor product = operand_->product(x);
  return bias.defined() ? add(product, bias) : product;
}

Tensor hooked_input(const Linear& layer, const Tensor& x) {
  const ForwardHooks* hooks = layer.forward_hooks_if_any();
  if (hooks == nullptr || !hooks->has_before()) return x;
  std::vector<Tensor> input{x};
  hooks->run_before(layer, input);
  return input[0];
}

void Linear::set_operand(std::shared_ptr<const LinearOperand> operand) {
  TUTTI_CHECK(operand != nullptr, "Linear::set_operand: the operand of '{}' is null; give one of sizes {}", call_name(),
              weight.sizes());
  const Extents sizes{operand->out_features(), operand->in_features()};
  TUTTI_CHECK(sizes == weight.sizes(), "Linear::set_operand: the {} operand for '{}' is {}, and the layer {}",
              operand->kind(), call_name(), sizes, weight.sizes());
  const std::vector<NamedParameter> own = named_parameters();
  for (const Parameter& parameter : operand->parameters()) {
    const auto is_own = [&](const NamedParameter& known) { return known.parameter.is_same(parameter); };
    if (std::none_of(own.begin(), own.end(), is_own)) register_parameter(parameter.name(), parameter);
  }
  operand_ = std::move(operand);
}

}  // namespace tutti::nn
