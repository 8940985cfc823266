// Differentiable functions with a hand-written gradient, between segments that autograd records by itself.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tutti/autograd/tape.h"

namespace tutti::layouts {

// The cotangents of the inputs; an undefined one means zero.
using Backward = std::function<std::vector<Tensor>(const Tensor& cotangent)>;

// Calls `forward` unrecorded and marks its result as a function of `inputs`, whose cotangents `backward` gives.
Tensor function(const char* name, const std::vector<Tensor>& inputs, const std::function<Tensor()>& forward,
                Backward backward);

// x itself, whose cotangent passes through `change`, which may give it other sizes and another dtype.
Tensor with_cotangent(const Tensor& x, std::function<Tensor(const Tensor&)> change);
// x itself, whose cotangent is rounded to its dtype.
Tensor with_rounded_cotangent(const Tensor& x);

}  // namespace tutti::layouts
