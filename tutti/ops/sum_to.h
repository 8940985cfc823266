// sum_to: the gradient of broadcasting.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// Elements per leaf of every reduction over tokens (numerics contract, N3t). Tests lower it to cut tiny models.
int64_t token_grain();
class TokenGrainScope {
 public:
  explicit TokenGrainScope(int64_t grain);  // process-wide while it lives
  ~TokenGrainScope();
  TokenGrainScope(const TokenGrainScope&) = delete;
  TokenGrainScope& operator=(const TokenGrainScope&) = delete;

 private:
  int64_t previous_;
};

// `x` summed over the dims in which `sizes` (right-aligned) is 1 or absent, so that the result has shape `sizes`.
// Leading absent dims are the token axis: its leaf is token_grain(). Dtype f32 for the narrow floats (N4: the sum is a
// parameter gradient and is rounded nowhere on its way), else that of x. `x` itself when it already has `sizes`.
Tensor sum_to(const Tensor& x, const Shape& sizes);

}  // namespace tutti
