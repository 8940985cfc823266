// Dropout.
#pragma once

#include "tutti/ops/random_key.h"
#include "tutti/tensor/tensor.h"

namespace tutti {

// Each element becomes zero with probability p (to within 2^-32), else x / (1 - p). The mask is drawn from `key`, in
// the forward and once more in the backward, and is never stored. Dtypes: floats. UsageError for p outside [0, 1].
// Source: Srivastava et al., "Dropout: a simple way to prevent neural networks from overfitting" (2014), scaled in
// training.
Tensor dropout(const Tensor& x, double p, const RandomKey& key);
// The same with the rank's next anonymous key (tutti/ops/random_key.h).
Tensor dropout(const Tensor& x, double p);

}  // namespace tutti
