// The statistics of rows of logits that exist one chunk at a time.
#pragma once

#include "tutti/ops/chunked_loss/call.h"

namespace tutti::chunked_loss {

// loss, logsumexp[, weighted sum of logits] of the rows, [N, 1] each; 0 where the label is the ignored one.
void kernel_loss(const OpCall& call, std::span<const Tensor> outputs);
// maximum, sum, target of the rows over the classes of a shard (cross_entropy_shard.h).
void kernel_shard_statistics(const OpCall& call, std::span<const Tensor> outputs);

}  // namespace tutti::chunked_loss
