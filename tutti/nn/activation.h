// Activation functions as modules, for Sequential.
#pragma once

#include "tutti/nn/module.h"
#include "tutti/ops/activation.h"
#include "tutti/ops/softmax.h"
#include "tutti/ops/unary.h"

namespace tutti::nn {

struct ReLU : Module {
  Tensor forward(const Tensor& x) const { return relu(x); }
};
struct SiLU : Module {
  Tensor forward(const Tensor& x) const { return silu(x); }
};
struct GELU : Module {
  explicit GELU(GeluForm form = GeluForm::erf) : form(form) {}
  Tensor forward(const Tensor& x) const { return gelu(x, form); }
  const GeluForm form;
};
struct Sigmoid : Module {
  Tensor forward(const Tensor& x) const { return sigmoid(x); }
};
struct Tanh : Module {
  Tensor forward(const Tensor& x) const { return tanh(x); }
};
struct Softmax : Module {
  explicit Softmax(int64_t dim = -1) : dim(dim) {}
  Tensor forward(const Tensor& x) const { return softmax(x, dim); }
  const int64_t dim;
};
// Returns its input. For places that may hold a module or none.
struct Identity : Module {
  Tensor forward(const Tensor& x) const { return x; }
};

}  // namespace tutti::nn
