// One step of an optimizer on one parameter, in place and in one kernel.
#pragma once

#include <cstdint>

#include "tutti/tensor/tensor.h"

namespace tutti {

struct AdamWStep {
  double lr;
  double beta1 = 0.9, beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  int64_t step;             // counted from 1
  double grad_scale = 1.0;  // the gradient is multiplied by this first (clipping)
};

// The hyperparameters that change from step to step, as 0-dim f32 tensors that the kernel reads: a compiled step is
// captured once, and each call uses the current values of these tensors.
struct AdamWNumbers {
  AdamWNumbers();
  // UsageError when options.step is below 1.
  void set(const AdamWStep& options);
  Tensor grad_scale, decay, step_size, inv_correction2;
};

// g = grad * grad_scale; param -= lr * weight_decay * param; m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2)
// g^2; param -= lr * (m / (1 - beta1^step)) / (sqrt(v / (1 - beta2^step)) + eps). All in f32. Shapes: four equal, f32.
// Source: Loshchilov and Hutter 2019, algorithm 2.
void adamw_step_(const Tensor& param, const Tensor& grad, const Tensor& m, const Tensor& v, const AdamWStep& options);
// The same with `numbers` set beforehand; of `options` only the betas and eps are used.
void adamw_step_(const Tensor& param, const Tensor& grad, const Tensor& m, const Tensor& v, const AdamWNumbers& numbers,
                 const AdamWStep& options);

struct SgdStep {
  double lr;
  double momentum = 0.0;
  double weight_decay = 0.0;
  double grad_scale = 1.0;
};

struct SgdNumbers {
  SgdNumbers();
  void set(const SgdStep& options);
  Tensor grad_scale, lr;
};

// g = grad * grad_scale + weight_decay * param; buffer = momentum * buffer + g; param -= lr * buffer. All in f32.
// Shapes: three equal, f32.
void sgd_step_(const Tensor& param, const Tensor& grad, const Tensor& buffer, const SgdStep& options);
// The same with `numbers` set beforehand; of `options` only momentum and weight_decay are used.
void sgd_step_(const Tensor& param, const Tensor& grad, const Tensor& buffer, const SgdNumbers& numbers,
               const SgdStep& options);

}  // namespace tutti
