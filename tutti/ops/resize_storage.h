// Memory that is given back while its tensors stay.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// Gives the memory under `t` and all its views back (nbytes = 0), or takes memory of the size that it had (any other nbytes
// is a UsageError), uninitialised. Reading released elements is a UsageError. For parameters that are whole only while they
// are used. Any dtype, host memory that tensors allocated.
Tensor resize_storage_(const Tensor& t, int64_t nbytes);

}  // namespace tutti
