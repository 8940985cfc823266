// Ops that move rows between the ranks that divide experts, by storing them in the symmetric memory of other ranks or
// reading them there.
//
// Each op writes a receive buffer in place, on all ranks at once; all ranks make the same calls in the same order. It
// is over when the rows of all ranks have arrived. Deadlines and dead ranks are those of symm/handle.h. A rank may
// store into a buffer of another one only when that one reads it no more, and nobody waits for that: an op also names
// the buffer that the next one fills as written (`freed`), so whatever reads it comes before the op on this rank, and
// the barrier inside the op says so to all others. The order is in the operands, so it holds for a compiled step as
// well.
//
// Where buffers are poisoned, an op fills `freed` with NaN, and the receive buffer itself when nobody may have stored
// into it yet.
#pragma once

#include "tutti/comm/functional/arguments.h"
#include "tutti/tensor/tensor.h"

namespace tutti::parallel::expert_rows {

// W ranks, E experts in all, e = E / W of each rank, T tokens of this rank with K slots each, N = T K rows, R: rows for
// which a rank has room.
struct Exchange {
  comm::functional::GroupRef group;
  int64_t max_tokens = 0;         // of a rank
  int64_t stride = 0, grain = 1;  // of the places of a rank's tokens (token_places.h), which are their positions
  int64_t slots_per_token = 1;
  bool poisons = false;
};

// The counts that the ranks share of a dispatch, in one i64 list of symmetric memory: [ends of the own experts e |
// counts W E | positions R | places of tokens N].
struct Lists {
  int64_t experts, ranks, capacity, slots;
  int64_t counts_at() const { return experts / ranks; }
  int64_t positions_at() const { return counts_at() + ranks * experts; }
  int64_t places_at() const { return positions_at() + capacity; }
  int64_t size() const { return places_at() + slots; }
};

// Stores the row of each slot's token at its final place on the rank of its expert. Two barriers: for the counts, and
// for the rows. Shapes: rows [R, D], lists as above, freed [any, D], mailbox i64 [W, E + 1], x [T, D], slot_of_row i64
// [N], tokens_per_expert i64 [E]. Writes the first four; rows behind the last expert's stay as they are. UsageError on
// all ranks when they have other grains.
void store_tokens(const Exchange& exchange, const Tensor& rows_RD, const Tensor& lists, const Tensor& freed,
                  const Tensor& mailbox_WE, const Tensor& x_TD, const Tensor& slot_of_row_N,
                  const Tensor& tokens_per_expert_E);
// Copies x to `tokens` [max_tokens, D], where the other ranks read it, and finds out which of their tokens the own
// experts take. Otherwise like store_tokens().
void publish_tokens(const Exchange& exchange, const Tensor& tokens, const Tensor& lists, const Tensor& freed,
                    const Tensor& mailbox_WE, const Tensor& x_TD, const Tensor& slot_of_row_N,
                    const Tensor& tokens_per_expert_E);
// Rows [N, D] of the own tokens, by expert, go where store_tokens() brought these; one barrier. `counts` is that part
// of the lists.
void store_at_experts(const Exchange& exchange, const Tensor& target_RD, const Tensor& freed, const Tensor& rows_ND,
                      const Tensor& counts_WE);
// Rows [R, D] of the own experts go back to where their tokens are; one barrier.
void store_at_tokens(const Exchange& exchange, const Tensor& target_ND, const Tensor& freed, const Tensor& rows_RD,
                     const Tensor& counts_WE);

// a[i] w[g] for the rows i of each group g, where row i is the token at positions[i] among those that the ranks have
// published; they are read while the product packs them. Shapes: tokens [max_tokens, D] (this rank's), positions i64
// [R], ends i64 [e], w [e, D, F], counts [W, E] as above -> [R, F]. Bits are those of grouped_mm().
Tensor multiply_published(const Exchange& exchange, const Tensor& tokens, const Tensor& positions_R, const Tensor& ends,
                          const Tensor& w, const Tensor& counts_WE, int64_t rows);
// The gradient of w: the sum over the rows of each group of a[i]^T g[i], [e, D, F] in f32 or f64.
Tensor multiply_published_transposed(const Exchange& exchange, const Tensor& tokens, const Tensor& positions_R,
                                     const Tensor& ends, const Tensor& g_RF, const Tensor& counts_WE, DType out);

}  // namespace tutti::parallel::expert_rows
