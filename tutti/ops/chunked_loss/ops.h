// The ops of linear cross entropy.
#pragma once

#include "tutti/ops/chunked_loss/call.h"

namespace tutti::chunked_loss {

// Inputs and outputs as in call.h.
extern const OpDef kLoss;
// Maximum, rest and target of each row over a shard of the classes.
extern const OpDef kShardStatistics;
// Gradients of x, weight and bias; those not needed are empty.
extern const OpDef kGradients;

// Inputs as in in_forward.h. Losses [N, 1] and gradients of x, weight and bias for guessed cotangents; those not needed
// are empty.
extern const OpDef kLossWithGradients;
// The gradients, taken from there or computed.
extern const OpDef kTakenGradients;

}  // namespace tutti::chunked_loss
