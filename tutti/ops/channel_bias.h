// The bias of convolutions, one value per output channel.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// y [N, C, ...] with bias [C] added, or y itself when `bias` is undefined. UsageError, naming `where`, when the sizes
// differ.
Tensor add_channel_bias(const char* where, const Tensor& y, const Tensor& bias);

}  // namespace tutti
