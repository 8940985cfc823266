// A rank's part of a tensor that ranks may divide, for layers that work on the part of each rank.
#pragma once

#include <optional>

#include "tutti/core/placement.h"
#include "tutti/tensor/tensor.h"

namespace tutti::nn {

// This rank's part of a distributed tensor of a mesh of one dim, in the same memory; any other tensor as it is.
// `gradient` says what the ranks' gradients of their parts are of the whole, by default what the parts are
// (dist/dtensor.h).
Tensor own_part(const Tensor& t, std::optional<Placement> gradient = {});

}  // namespace tutti::nn
