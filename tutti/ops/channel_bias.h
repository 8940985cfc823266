// What convolutions add to each channel of their output.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// y [N, C, ...] with bias [C] added; y itself when there is no bias. UsageError naming `where` when the sizes differ.
Tensor add_channel_bias(const char* where, const Tensor& y, const Tensor& bias);

}  // namespace tutti
