// TokenDispatcher: how the rows of a batch come to the experts, and back. All dispatchers give the same bits.
#pragma once

#include <memory>

#include "tutti/nn/grouped_experts.h"
#include "tutti/nn/moe_router.h"
#include "tutti/ops/slot_rows.h"

namespace tutti::nn {

// The state of a dispatch that combine() needs.
struct Dispatched {
  ExpertRows experts;  // the rows that this rank's experts take
  SlotOrder order;     // of the slots of this rank's tokens
  // Where rows come from other ranks, too: the order in which the experts take what has arrived, one slot for each row,
  // and how many came from each rank.
  SlotOrder arrival = {};
  Tensor arrived = {};
  std::shared_ptr<const void> kept = {};  // what else its dispatcher knows of it
};

class TokenDispatcher {
 public:
  virtual ~TokenDispatcher() = default;
  // Brings each token of this rank to its experts. x [T, D]; `most_tokens`: the largest T of the tensor-parallel ranks
  // that divide the tokens of a batch.
  virtual Dispatched dispatch(const Tensor& x_TD, const Routing& routing, SymInt most_tokens) const = 0;
  // Brings the outputs of the experts back and adds those of each token, weighted, in f32 in the order of slots,
  // rounded once (numerics contract, N8).
  virtual Tensor combine(const Tensor& outputs_ND, const Dispatched& dispatched, const Routing& routing) const = 0;
};

// All experts are on this rank: rows are sorted by expert and then by token, and nothing moves between ranks.
class LocalDispatcher final : public TokenDispatcher {
 public:
  Dispatched dispatch(const Tensor& x_TD, const Routing& routing, SymInt most_tokens) const override;
  Tensor combine(const Tensor& outputs_ND, const Dispatched& dispatched, const Routing& routing) const override;
};

}  // namespace tutti::nn
