// All ops that work along dims, as functions of a tensor and dims, for tests that try each on every shape.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tutti/tensor/tensor.h"

namespace tutti {

struct OpOverDims {
  std::string name;
  bool takes_several;  // dims; others take one
  std::function<std::vector<Tensor>(const Tensor& x, const Dims& dims)> run;
};
const std::vector<OpOverDims>& ops_over_dims();

// Shapes of `ndim` dims whose sizes are of `sizes`, all of them.
std::vector<Extents> shapes_of(const std::vector<int64_t>& sizes, int ndim);
// All sets of dims of a tensor, the empty one left out; single ones only unless `several`.
std::vector<Dims> sets_of_dims(int ndim, bool several);

}  // namespace tutti
