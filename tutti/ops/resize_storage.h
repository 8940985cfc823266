// Releasing the memory of a storage while its tensors stay.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// With nbytes = 0, frees the memory of `t` and all its views; with nbytes = the original size of the storage, allocates
// it again, uninitialized. Meant for parameters that are unsharded only while they are in use. Any dtype; host memory
// allocated by a tensor. UsageError for any other nbytes, and when released elements are read.
Tensor resize_storage_(const Tensor& t, int64_t nbytes);

}  // namespace tutti
