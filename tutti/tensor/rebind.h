// A tensor that becomes another one: all handles on it see the other's memory from then on.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// `target` takes storage, sizes, strides and offset of `source`; both stay two tensors. Views that were made of `target`
// keep the old memory. UsageError: dtypes or devices differ, or `target` takes part in autograd. Exclusion is the caller's.
void rebind(const Tensor& target, const Tensor& source);

// Whether both are the same view of the same memory.
bool is_same_view(const Tensor& a, const Tensor& b);

}  // namespace tutti
