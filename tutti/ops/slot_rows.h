// Rows for experts: each token of a batch is taken by several experts, and their outputs are added up again.
//
// A slot is token * slots_per_token + k: the k-th choice of a token. `rows` are the slots in another order, by expert.
#pragma once

#include <optional>

#include "tutti/tensor/tensor.h"

namespace tutti {

// A permutation of the slots, with its inverse.
struct SlotOrder {
  Tensor slot_of_row;  // i64 [N]
  Tensor row_of_slot;  // i64 [N]: the inverse
  int64_t slots_per_token = 1;
};

// The order in which a stable sort of the experts of all slots puts them: by expert, then by token. Shapes: ids [T, K],
// i64 or i32.
SlotOrder sort_slots(const Tensor& expert_ids);

// The row of each slot's token: y[i] = x[slot_of_row[i] div K].
// Shapes: x [T, D] -> [T * K, D]. Dtypes: floats. UsageError unless both lists of `order` are permutations of the T * K
// slots, each the inverse of the other. Gradient: combine_rows() without weights.
Tensor dispatch_rows(const Tensor& x, const SlotOrder& order);

// The weighted sum of each token's rows: out[t] = weights[t, 0] * y[row of slot (t, 0)] + ..., in f32 in the order of
// slots, rounded once (numerics contract, N8). Without weights the rows themselves are added. Shapes: y [T * K, D],
// weights [T, K] -> [T, D]. Dtypes: y float, weights f32, or f64. Errors are those of dispatch_rows(). Gradients: of y
// the weighted cotangent of its token, rounded once to the dtype of y; of the weights the sum over D of y times the
// cotangent, in f32.
Tensor combine_rows(const Tensor& y, const SlotOrder& order, const Tensor& weights = {});

}  // namespace tutti
