// Attention and its gradients by the words of the numerics contract (N3, N3t, N10), one element after the other: the
// bits that the kernels must give. exp and log are those of the ops.
#pragma once

#include "tutti/ops/attention.h"

namespace tutti::testing {

SdpaResult attention(const Tensor& q, const Tensor& k, const Tensor& v, const SdpaOptions& options);
// Not rounded to the dtype of q, k and v.
SdpaGradients attention_gradients(const Tensor& g, const Tensor& q, const Tensor& k, const Tensor& v,
                                  const SdpaResult& result, const SdpaOptions& options);

}  // namespace tutti::testing
