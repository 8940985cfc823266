#include "tutti/nn/linear.h"

#include <algorithm>
#include <cmath>

#include "tutti/core/error.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/matmul.h"

namespace tutti::nn {

Linear::Linear(int64_t in_features, int64_t out_features, const LinearOptions& options) {
  TUTTI_CHECK(in_features >= 0 && out_features >= 0, "Linear: {} inputs and {} outputs; expected 0 or more of each",
              in_features, out_features);
  const Init by_fan_in = Init::uniform(1.0 / std::sqrt(static_cast<double>(std::max<int64_t>(in_features, 1))));
  weight = register_parameter("weight", {out_features, in_features}, options.init.value_or(by_fan_in));
  if (options.bias) bias = register_parameter("bias", {out_features}, options.init ? Init::zeros() : by_fan_in);
}

Tensor Linear::forward(const Tensor& x) const {
  const Tensor product = linear(x, weight);
  return bias.defined() ? add(product, bias) : product;
}

}  // namespace tutti::nn
