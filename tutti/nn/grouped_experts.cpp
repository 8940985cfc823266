#include "tutti/nn/grouped_experts.h"

#include "tutti/core/error.h"
#include "tutti/nn/own_part.h"
#include "tutti/ops/activation.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/grouped_mm.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/quantized_grouped_mm.h"

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
  for (const Parameter& weights : {w1, w2, w3}) weights.allow_blocks();
}

Tensor GroupedExperts::forward(const ExpertRows& rows) const {
  GroupedMmOptions options;
  if (rows.position_count != 0) options = {.positions = rows.positions_N, .position_count = rows.position_count};
  const auto weights_of = [](const Parameter& weights) { return transpose(own_part(weights), 1, 2); };
  // These rows are in one tensor.
  const auto product_of = [&](const Tensor& rows_ND, const Parameter& weights) {
    return weights.holds_blocks()
               ? quantized_grouped_mm(rows_ND, own_part(weights.blocks()), rows.offsets_E, weights.block_format())
               : grouped_mm(rows_ND, weights_of(weights), rows.offsets_E, options);
  };
  const auto product = [&](const Parameter& weights) {
    if (!rows.multiply) return product_of(rows.rows_ND, weights);
    TUTTI_CHECK(!weights.holds_blocks(),
                "GroupedExperts: '{}' is held as quantized blocks, whose rows must be in one tensor; exchange them by "
                "another backend than gather_on_read",
                weights.name());
    return rows.multiply(rows.rows_ND, weights_of(weights));
  };
  // Statements of their own: cotangents are summed in forward order.
  const Tensor gate_NF = product(w1);
  const Tensor up_NF = product(w3);
  const Tensor active_NF =
      activation_ == ExpertActivation::silu ? swiglu(gate_NF, up_NF) : mul(gelu(gate_NF, GeluForm::tanh), up_NF);
  return product_of(active_NF, w2);
}

}  // namespace tutti::nn
