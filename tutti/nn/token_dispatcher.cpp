#include "tutti/nn/token_dispatcher.h"

#include "tutti/ops/binary.h"
#include "tutti/ops/scan.h"

namespace tutti::nn {

Dispatched LocalDispatcher::dispatch(const Tensor& x_TD, const Routing& routing, SymInt /*most_tokens*/) const {
  Dispatched result{.order = sort_slots(routing.expert_ids_TK)};
  result.experts = {.rows_ND = dispatch_rows(x_TD, result.order),
                    .offsets_E = cumsum(routing.tokens_per_expert_E, 0),
                    .positions_N = floordiv(result.order.slot_of_row, result.order.slots_per_token),
                    .position_count = x_TD.size(0)};
  return result;
}

Tensor LocalDispatcher::combine(const Tensor& outputs_ND, const Dispatched& dispatched, const Routing& routing) const {
  return combine_rows(outputs_ND, dispatched.order, routing.weights_TK);
}

}  // namespace tutti::nn
