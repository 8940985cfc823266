// Linear: an affine map of the last dim.
#pragma once

#include "tutti/nn/module.h"

namespace tutti::nn {

struct LinearOptions {
  bool bias = true;
  // Undefined: values lie uniformly in +-1 / sqrt(in_features), those of the bias too, as in PyTorch.
  std::optional<Init> init = {};
};

// x W^T + b. Shapes: x [..., in] -> [..., out]; weight [out, in], bias [out]. The gradient of the weight sums over
// tokens in the order of numerics contract N3t; the sum with the bias is rounded once more.
class Linear : public Module {
 public:
  Linear(int64_t in_features, int64_t out_features, const LinearOptions& options = {});
  Tensor forward(const Tensor& x) const;

  Parameter weight, bias;  // bias is undefined without LinearOptions::bias
};

}  // namespace tutti::nn
