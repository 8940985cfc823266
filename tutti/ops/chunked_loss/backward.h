// The gradients of linear cross entropy: logits are computed again, chunk by chunk, and turned into their gradient in
// place.
#pragma once

#include "tutti/ops/chunked_loss/call.h"

namespace tutti::chunked_loss {

// Gradients of x [N, F], weight [V, F] and bias [V]; those that the attrs do not need are empty tensors.
void kernel_gradients(const OpCall& call, std::span<const Tensor> outputs);

}  // namespace tutti::chunked_loss
