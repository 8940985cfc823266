// Facets that the ops of linear cross entropy have in common.
#pragma once

#include <string>

#include "tutti/ops/chunked_loss/call.h"

namespace tutti::chunked_loss {

// Labels outside [0, V) that are not the ignored one: UsageError with label and row.
void check_labels(const OpCall& call);
// UsageError when the target or what it is mixed by wants a gradient.
void check_constants(const VjpCall& call);
// The gradients that `call` asks for, as bits of Need.
uint8_t needs_of(const VjpCall& call);
// The inputs of the loss in a sharding rule: x [aF], weight [CF], labels [a1] and so on; what is absent has letters of
// its own.
std::string sharding_of_inputs(const OpCall& call);
// The gradients in a sharding rule, as outputs p, q, r whose rows are `rows`; those not needed are empty.
std::string sharding_of_results(const OpCall& call, char rows);
// So many products of N x F x V, every input read once.
Cost cost_of_products(const OpCall& call, double products);

// Dtypes and sizes of the gradients; what nobody needs has no elements.
void add_gradient_metas(const OpCall& call, OutputMetas& out);

// Why gradients have no gradient.
inline constexpr const char* kNoSecondGradient =
    "gradients of this gradient are not defined; write the loss with linear and log_softmax to have them";

}  // namespace tutti::chunked_loss
