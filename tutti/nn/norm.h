// Normalizations as modules.
#pragma once

#include "tutti/nn/module.h"
#include "tutti/ops/layer_norm.h"
#include "tutti/ops/rms_norm.h"

namespace tutti::nn {

struct LayerNormOptions {
  double eps = 1e-5;
  bool elementwise_affine = true;  // false: neither weight nor bias
  bool bias = true;
};

// layer_norm over the last dim. Shapes: x [..., dim]; weight and bias [dim] start as ones and zeros.
class LayerNorm : public Module {
 public:
  explicit LayerNorm(int64_t dim, const LayerNormOptions& options = {}) : eps_(options.eps) {
    if (options.elementwise_affine) weight = register_parameter("weight", {dim}, Init::ones());
    if (options.elementwise_affine && options.bias) bias = register_parameter("bias", {dim}, Init::zeros());
  }
  Tensor forward(const Tensor& x) const { return layer_norm(x, weight, bias, eps_); }

  Parameter weight, bias;

 private:
  double eps_;
};

struct RMSNormOptions {
  double eps = 1e-6;
  bool elementwise_affine = true;
  NormWeight form = NormWeight::factor;  // zero_centered: the weight starts as zeros
};

// rms_norm over the last dim. Shapes: x [..., dim]; weight [dim] starts as ones, or as zeros where 1 is added to it.
class RMSNorm : public Module {
 public:
  explicit RMSNorm(int64_t dim, const RMSNormOptions& options = {}) : eps_(options.eps), form_(options.form) {
    if (options.elementwise_affine)
      weight = register_parameter("weight", {dim}, form_ == NormWeight::factor ? Init::ones() : Init::zeros());
  }
  Tensor forward(const Tensor& x) const { return rms_norm(x, weight, eps_, weight ? form_ : NormWeight::factor); }
  double eps() const { return eps_; }
  NormWeight form() const { return form_; }

  Parameter weight;

 private:
  double eps_;
  NormWeight form_;
};

}  // namespace tutti::nn
