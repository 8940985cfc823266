// sum_to: the gradient of broadcasting.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

class RankContext;

// Elements per leaf of every reduction over tokens (numerics contract, N3t). Tests lower it so that tiny batches can be
// divided.
int64_t token_grain();

// Applies to the rank (RankContext) that makes it while it lives; one made outside of ranks, also to the ranks of this
// process that make none.
class TokenGrainScope {
 public:
  explicit TokenGrainScope(int64_t grain);
  ~TokenGrainScope();
  TokenGrainScope(const TokenGrainScope&) = delete;
  TokenGrainScope& operator=(const TokenGrainScope&) = delete;

 private:
  RankContext* rank_;
  int64_t before_;
};

// `x` summed over the dims in which `sizes`, aligned at the right, is 1 or absent, so that the result has shape
// `sizes`; `x` itself when it already has that shape. Absent leading dims form the token axis, whose leaf is
// token_grain(). Dtypes: f32 for the narrow floats, since the sum is a parameter gradient and must not be rounded on
// its way (N4), else that of x.
Tensor sum_to(const Tensor& x, const Shape& sizes);

}  // namespace tutti
