// Rebinding: a tensor takes the memory of another one, which all handles on it then see.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// `target` takes storage, sizes, strides and offset of `source`; the two remain separate tensors. Existing views of
// `target` keep the old memory. UsageError when dtypes or devices differ, or `target` has extensions, such as
// autograd's. The caller must exclude concurrent use.
void rebind(const Tensor& target, const Tensor& source);

// Whether both are the same view of the same memory.
bool is_same_view(const Tensor& a, const Tensor& b);

}  // namespace tutti
