// The places where a hand-placed split meets communication, each a function with its gradient.
//
// Partial sums stay f32 until the ranks have added them by halving, and are rounded once (N4). Gradients of a value
// that several column-parallel products read are reduced product by product (N9).
#pragma once

#include <vector>

#include "tests/layouts/support/place.h"

namespace tutti::layouts {

// All tokens of the context part, gathered over the sequence parts; without history.
Tensor all_tokens(const Place& place, const Tensor& x_TD);

// x w^T with the rows of w cut over tp. `x_all` are all_tokens of x. Result: all tokens, this rank's columns.
Tensor column_parallel(const Place& place, const Tensor& x_TD, const Tensor& x_all, const Tensor& w_FD, DType out);
// x w^T with the columns of w, as of x, cut over tp. Result: this rank's tokens, all columns.
Tensor row_parallel(const Place& place, const Tensor& x_TF, const Tensor& w_DF);

// Rows of a table whose rows [part) this rank holds, for all tokens; result: this rank's tokens.
Tensor vocabulary_parallel_embedding(const Place& place, const Tensor& table_VD, const std::vector<int32_t>& tokens,
                                     const TreeCut& part);
// Loss of all tokens from this rank's columns [part) of the logits.
Tensor vocabulary_parallel_loss(const Place& place, const Tensor& logits_TV, const std::vector<int32_t>& labels,
                                const TreeCut& part);

// Causal attention of this rank's queries over the keys of all context parallel ranks; everything in canonical order.
// `positions` are those of all tokens of the shard. Shapes: q [T, H, E], k and v [T, K, E] -> [T, H, E].
Tensor context_parallel_attention(const Place& place, const Tensor& q_THE, const Tensor& k_TKE, const Tensor& v_TKE,
                                  const std::vector<int64_t>& positions);

}  // namespace tutti::layouts
