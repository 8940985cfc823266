// Linear cross entropy as plain loops in double precision, and calls to compare by.
#pragma once

#include "tutti/ops/chunked_loss/call.h"

namespace tutti::chunked_loss {

void reference_loss(const OpCall& call, std::span<const Tensor> outputs);
void reference_shard_statistics(const OpCall& call, std::span<const Tensor> outputs);
void reference_gradients(const OpCall& call, std::span<const Tensor> outputs);

enum class SampleOf : uint8_t { loss, shard, gradients };
std::vector<Sample> samples(SampleOf what);

}  // namespace tutti::chunked_loss
