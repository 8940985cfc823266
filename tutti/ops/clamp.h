// Clamping of values to bounds.
#pragma once

#include <optional>

#include "tutti/ops/scalar.h"
#include "tutti/tensor/tensor.h"

namespace tutti {

struct ClampOptions {
  std::optional<Scalar> min, max;  // at least one must be given
};

// min(max(x, options.min), options.max): NaN stays NaN, and with min > max the result is max.
// Shapes: the result has the shape of x. Dtypes: a bound never widens x within its kind (tutti/ops/scalar.h). The
// gradient passes where min <= x <= max and is 0 elsewhere. UsageError when no bound is given.
Tensor clamp(const Tensor& x, const ClampOptions& options);

}  // namespace tutti
