// Functional collectives: collectives as ops, which take tensors and return new ones.
//
// They never write an argument, and arguments may be changed or freed as soon as the call returns. Tensors may have any
// strides. Autograd records them and differentiates through the whole group: gradients are those of the sum of the
// losses of all ranks. Therefore all ranks must run the same backward, and a tensor that requires grad on one rank must
// do so on all.
//
// A call starts its collective and returns. Ops, views, item(), to_string() and copies of the result may be used
// immediately: whatever reads elements waits first. data() and raw_data() do not wait: call wait_tensor() before
// accessing memory directly.
//
// W is the size of the group; all ranks must make the same calls in the same order. Dtypes: all for moving data, and
// for reductions those of ReduceOp. UsageError for invalid arguments, before anything is sent, and for calls of the
// ranks that do not match; PeerError and TimeoutError are thrown when the result is waited for. Integers and booleans
// have no gradient, nor do reductions other than those named below.
//
// Cotangents of narrow floats that are reduced are sent, and returned, in f32 (numerics contract, N4).
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "tutti/comm/functional/arguments.h"
#include "tutti/ops/engine/op_def.h"

namespace tutti::comm::functional {

// ---- reducing -------------------------------------------------------------------------------------------------------

// The reduction of x over all ranks, on every rank. Shape: that of x, equal on all ranks. Gradient of sum and avg: the
// same all_reduce of the cotangent; of premul_sum: the sum of the cotangents times this rank's factor; of min and max:
// the sum of the cotangents where x equals the result (where the result is NaN, on the ranks that hold a NaN), zero
// elsewhere.
Tensor all_reduce(const Tensor& x, const ReduceArgument& op, const GroupArgument& group);
// all_reduce of several tensors in one call, which may have different dtypes. For an empty list nothing is sent.
std::vector<Tensor> all_reduce_coalesced(std::span<const Tensor> inputs, const ReduceArgument& op,
                                         const GroupArgument& group);

// The reduction of x over all ranks, of which rank r gets the r-th of W equal parts along scatter_dim. UsageError when
// W does not divide the size of that dim. Gradient of sum: all_gather_single of the cotangent along scatter_dim; of
// avg: the same / W; of premul_sum: the same times this rank's factor.
Tensor reduce_scatter_single(const Tensor& x, const ReduceArgument& op, int64_t scatter_dim,
                             const GroupArgument& group);
// scatter_dims: one per tensor; empty: dim 0.
std::vector<Tensor> reduce_scatter_single_coalesced(std::span<const Tensor> inputs, const ReduceArgument& op,
                                                    const GroupArgument& group,
                                                    std::span<const int64_t> scatter_dims = {});

// ---- moving ---------------------------------------------------------------------------------------------------------

// The tensors of all ranks, concatenated along gather_dim in rank order; 0-dim tensors give [W]. Shapes: x is equal on
// all ranks. Gradient: reduce_scatter_single(sum) of the cotangent along gather_dim.
Tensor all_gather_single(const Tensor& x, int64_t gather_dim, const GroupArgument& group);
// gather_dims: one per tensor; empty: dim 0.
std::vector<Tensor> all_gather_single_coalesced(std::span<const Tensor> inputs, const GroupArgument& group,
                                                std::span<const int64_t> gather_dims = {});

// Dim 0 of x is divided into one part per rank; the result holds the parts that the ranks send to this one, in rank
// order. Splits count rows: input_splits[p] are sent to rank p, output_splits[p] received from it. Without splits the
// parts are equal. Gradient: the same with input and output splits exchanged.
Tensor all_to_all_single(const Tensor& x, const GroupArgument& group);
Tensor all_to_all_single(const Tensor& x, std::span<const int64_t> output_splits, std::span<const int64_t> input_splits,
                         const GroupArgument& group);
// The same with splits in tensors, i64 [W], which other ops may have computed. Their elements are read when the
// exchange starts, and never while a compiled function is traced: they may differ from call to call. `rows` is the sum
// of the output splits, which the result cannot wait for. UsageError on all ranks, from the call or from whatever waits
// for the result, when the splits are not right.
Tensor all_to_all_single(const Tensor& x, const Tensor& output_splits, const Tensor& input_splits, const SymInt& rows,
                         const GroupArgument& group);

// Where only the senders know how many rows go where: the first rows of x, as many as input_splits (i64 [W], read as
// above) add up to, are sent, and the result has room for `capacity` rows, which may differ between ranks.
struct PaddedRows {
  Tensor output;  // the rows from rank 0, then those from rank 1, ...; the rest is -0.0 (0 in integers), the identity
                  // of sums
  Tensor output_splits;  // i64 [W]: the number of rows from each rank
};
// UsageError on all ranks, naming one, when more rows go to it than its capacity; nothing is written then. Gradient:
// the same with the splits exchanged; rows of x that were not sent get -0.0, and cotangents of padding are not read.
PaddedRows all_to_all_v_padded_single(const Tensor& x, const Tensor& input_splits, const SymInt& capacity,
                                      const GroupArgument& group);

// The tensor of rank `src`, on all ranks. On the other ranks only shape and dtype of x are used, which must be equal.
// Gradient: the sum of the cotangents on src, zero on the other ranks.
Tensor broadcast(const Tensor& x, int src, const GroupArgument& group);

// Rank r gets the x of the rank p with destinations[p] == r. Shape: that of x, equal on all ranks. UsageError when
// `destinations` is not a permutation of the ranks. Gradient: the inverse permutation.
Tensor permute_tensor(const Tensor& x, std::span<const int64_t> destinations, const GroupArgument& group);

// ---- messages -------------------------------------------------------------------------------------------------------

// isend returns a token, a tensor [0] of the dtype of x that is complete when x has been sent. irecv returns a tensor
// with the shape and dtype of `like`, whose elements are not read. Peers are group ranks.
//
// Gradient: irecv sends the cotangent back to src and isend receives it from dst, with the same tag; cotangents of
// narrow floats are sent in f32. Either both ends take part or neither: the sender's x and the receiver's `like` must
// both require grad (the gradient of `like` is zero), and backward() must reach the token (add its sum to the loss, or
// call backward(token, zeros of [0])). The send of a cotangent completes when the gradient of `like` is waited for, or
// in any later wait of the rank.
Tensor isend(const Tensor& x, int dst, const GroupArgument& group, uint32_t tag = 0);
Tensor irecv(const Tensor& like, int src, const GroupArgument& group, uint32_t tag = 0);
// Starts all messages together, so that no order among them can cause a deadlock. The results are in the order of the
// operations: tokens and received tensors as above. The backward sends and receives the cotangents of all messages
// whose tensor requires grad, again together. An empty list gives no results.
std::vector<Tensor> batch_isend_irecv(std::span<const PointToPoint> operations, const GroupArgument& group);

// ---- waiting --------------------------------------------------------------------------------------------------------

// Waits for every collective that writes the storage of x: those started by this rank, or if there are none, those of
// any rank of the process. Returns the same elements in the same memory. Returns immediately when no collective writes
// x.
Tensor wait_tensor(const Tensor& x);
std::vector<Tensor> wait_tensors(std::span<const Tensor> tensors);

// The ops that implement these functions, for code that iterates over all ops.
std::span<const OpDef* const> ops();

}  // namespace tutti::comm::functional
