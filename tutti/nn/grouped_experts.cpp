#include "tutti/nn/grouped_experts.h"

#include "tutti/core/error.h"
#include "tutti/nn/own_part.h"
#include "tutti/ops/activation.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/grouped_mm.h"
#include "tutti/ops/permute.h"

namespace tutti::nn {

GroupedExperts::GroupedExperts(int64_t num_experts, int64_t dim, int64_t hidden_dim, const Init& init,
                               ExpertActivation activation)
    : activation_(activation) {
  TUTTI_CHECK(num_experts >= 1 && dim >= 0 && hidden_dim >= 0,
              "GroupedExperts: {} experts of {} to {} features; expected at least 1 expert, and sizes of 0 or more",
              num_experts, dim, hidden_dim);
  w1 = register_parameter("w1", {num_experts, hidden_dim, dim}, init);
  w2 = register_parameter("w2", {num_experts, dim, hidden_dim}, init);
  w3 = register_parameter("w3", {num_experts, hidden_dim, dim}, init);
}

Tensor GroupedExperts::forward(const ExpertRows& rows) const {
  GroupedMmOptions options;
  if (rows.position_count != 0) options = {.positions = rows.positions_N, .position_count = rows.position_count};
  const auto weights_of = [](const Parameter& weights) { return transpose(own_part(weights), 1, 2); };
  const auto product = [&](const Parameter& weights) {
    return rows.multiply ? rows.multiply(rows.rows_ND, weights_of(weights))
                         : grouped_mm(rows.rows_ND, weights_of(weights), rows.offsets_E, options);
  };
  // Statements of their own: cotangents are summed in forward order.
  const Tensor gate_NF = product(w1);
  const Tensor up_NF = product(w3);
  const Tensor active_NF =
      activation_ == ExpertActivation::silu ? swiglu(gate_NF, up_NF) : mul(gelu(gate_NF, GeluForm::tanh), up_NF);
  return grouped_mm(active_NF, weights_of(w2), rows.offsets_E, options);
}

}  // namespace tutti::nn
