// Linear: an affine map of the last dim.
#pragma once

#include <memory>

#include "tutti/nn/module.h"

namespace tutti::nn {

class LinearOperand;

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

  // W, which is `weight` as it is unless it has been replaced.
  const LinearOperand& operand() const { return *operand_; }
  std::shared_ptr<const LinearOperand> operand_ptr() const { return operand_; }
  // From now on `operand` takes the place of `weight`, which remains a parameter of the layer. Parameters of the
  // operand that are not parameters of the layer yet become so under their names. UsageError for null, and for other
  // sizes.
  void set_operand(std::shared_ptr<const LinearOperand> operand);

  Parameter weight, bias;  // bias is undefined without LinearOptions::bias

 private:
  std::shared_ptr<const LinearOperand> operand_;
};

// What the hooks before a layer make of x, for code that takes the product of its operand without calling it.
Tensor hooked_input(const Linear& layer, const Tensor& x);

}  // namespace tutti::nn
