// The global gradient norm and clipping by it.
#pragma once

#include <span>

#include "tutti/core/exact_sum.h"
#include "tutti/tensor/tensor.h"

namespace tutti::optim {

// The sum of the squares of all elements. It does not depend on the order of terms (numerics contract, N7), so the bits
// are the same however the gradients are sharded.
ExactSum square_sum(std::span<const Tensor> grads);
// The gradient norm: the square root of the sum, as f32.
float norm_of(const ExactSum& squares);

// The norm of all gradients together, as terms that ranks add before the last rounding. For the order p it is the p-th
// root of the sum of |x|^p, each term rounded to f32 as pow() has it (for p = 2 squares are exact), and for infinity
// the largest |x|; a NaN anywhere makes it NaN. It does not depend on the order of terms. Source: PyTorch's
// clip_grad_norm_(norm_type).
class GradNorm {
 public:
  // UsageError unless `norm_type` is above 0; infinity is one of them.
  explicit GradNorm(double norm_type = 2.0);
  double norm_type() const { return norm_type_; }
  // f32 tensors.
  void add(std::span<const Tensor> grads);
  void add(const GradNorm& other);
  // Ranks add the sum and take the maximum of the largest to have the norm of all; the largest is a magnitude's bits.
  ExactSum& sum() { return sum_; }
  const ExactSum& sum() const { return sum_; }
  int64_t& largest() { return largest_; }
  bool is_largest() const;  // the norm is that of infinity, and the sum stays empty
  float value() const;

 private:
  double norm_type_;
  ExactSum sum_;
  int64_t largest_ = 0;
};
// The factor for the gradients that limits their norm to max_norm: min(1, max_norm / (norm + 1e-6)).
// max_norm <= 0 turns clipping off. Source: Pascanu et al. 2013, with PyTorch's epsilon.
double clip_scale(float norm, double max_norm);

}  // namespace tutti::optim
