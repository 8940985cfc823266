// LinearOperand: the matrix W [out, in] of a linear map x W^T, however its values are held.
//
// nn::Linear, nn::multi_linear and the heads of models ask it for products and do not look at the tensors behind it, so
// a weight of another kind, such as a dense matrix plus a low-rank term, takes the place of a dense one without a
// change of the layers around it (Linear::set_operand).
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "tutti/nn/parameter.h"

namespace tutti::nn {

// Immutable; may be called by any thread as its parameters may.
class LinearOperand {
 public:
  virtual ~LinearOperand() = default;

  virtual int64_t in_features() const = 0;
  virtual int64_t out_features() const = 0;
  // A word for messages, such as "dense".
  virtual std::string_view kind() const = 0;
  // The parameters that it computes with.
  virtual std::vector<Parameter> parameters() const = 0;
  // x W^T, differentiable in x and the parameters. Shapes: x [..., in] -> [..., out]. The result has the common dtype
  // of x and W, or `out_dtype`: f32 leaves the sums unrounded, as logits are.
  virtual Tensor product(const Tensor& x, std::optional<DType> out_dtype = {}) const = 0;
  // W as one tensor, for callers that contract several operands in one sum (multi_linear), or that never form the whole
  // product (linear_cross_entropy). Undefined where it is held otherwise: callers then ask for product().
  virtual Tensor matrix() const { return {}; }
};

// A parameter [out, in]. product() is linear(x, W), whose gradient of W sums over tokens in the order of numerics
// contract N3t, or with an `out_dtype` matmul(). While the parameter is frozen to quantized blocks, product() is
// quantized_linear(), which has no gradient, there is no matrix(), and the kind is the format, such as "Q4_K".
class DenseOperand final : public LinearOperand {
 public:
  explicit DenseOperand(Parameter weight) : weight_(std::move(weight)) {}
  int64_t in_features() const override { return weight_.sizes()[1]; }
  int64_t out_features() const override { return weight_.sizes()[0]; }
  std::string_view kind() const override;
  std::vector<Parameter> parameters() const override { return {weight_}; }
  Tensor product(const Tensor& x, std::optional<DType> out_dtype) const override;
  Tensor matrix() const override { return weight_.holds_blocks() ? Tensor() : weight_.use(); }

 private:
  Parameter weight_;
};

}  // namespace tutti::nn
