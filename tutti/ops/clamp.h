// Keeping values inside bounds.
#pragma once

#include <optional>

#include "tutti/ops/scalar.h"
#include "tutti/tensor/tensor.h"

namespace tutti {

struct ClampOptions {
  std::optional<Scalar> min, max;  // at least one
};

// min(max(x, options.min), options.max): NaN stays NaN, and with min > max the result is max.
// Shapes: that of x. Dtypes: a bound never widens x within its kind (tutti/ops/scalar.h). The gradient passes where
// min <= x <= max. Error: no bound at all.
Tensor clamp(const Tensor& x, const ClampOptions& options);

}  // namespace tutti
