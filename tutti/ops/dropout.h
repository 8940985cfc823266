// Dropout.
#pragma once

#include "tutti/ops/random_key.h"
#include "tutti/tensor/tensor.h"

namespace tutti {

// Zero with probability p (to within 2^-32), else x / (1 - p). The mask is drawn from `key`, again in the gradient: it
// is never stored. Dtypes: floats. Error: p outside [0, 1].
// Source: Srivastava et al., "Dropout: a simple way to prevent neural networks from overfitting" (2014), scaled in training.
Tensor dropout(const Tensor& x, double p, const RandomKey& key);
// With the rank's next anonymous key.
Tensor dropout(const Tensor& x, double p);

}  // namespace tutti
