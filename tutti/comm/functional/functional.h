// Functional collectives: collectives as ops, which take tensors and return new ones.
//
// They never write an argument, which may be changed or freed as soon as the call returns. Tensors may have any strides.
// Autograd records them and differentiates through the whole group: the gradients are those of the sum of the losses of
// all ranks. So the ranks run the same backward, and a tensor that wants its gradient on one rank wants it on all.
//
// A call starts its collective and returns. Ops, views, item(), to_string and copies of the result are safe at once:
// what reads waits first. data() and raw_data() do not wait: call wait_tensor() before reading memory directly.
//
// W is the size of the group; all ranks of it make the same calls in the same order. Dtypes: all that move, and for
// reductions those of ReduceOp. Errors: UsageError for arguments that cannot be, before anything is sent, and for calls
// of the ranks that do not fit together; PeerError and TimeoutError when the result is waited for. Integers and booleans
// have no gradient, nor has any reduction but those named below.
//
// Cotangents of narrow floats that are reduced travel and stay in f32 (numerics contract, N4).
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "tutti/comm/functional/arguments.h"
#include "tutti/ops/engine/op_def.h"

namespace tutti::comm::functional {

// ---- reducing -------------------------------------------------------------------------------------------------------

// Shape: as x, equal on all ranks. Gradient: sum, avg: the same all_reduce of the cotangent; premul_sum: the sum of the
// cotangents times this rank's factor; min, max: the sum of the cotangents where x is the result, zero elsewhere, and
// where the result is NaN to the ranks that hold a NaN.
Tensor all_reduce(const Tensor& x, const ReduceArgument& op, const GroupArgument& group);
// All tensors in one call, of any dtypes; each as by all_reduce. No tensors: none, and nothing is sent.
std::vector<Tensor> all_reduce_coalesced(std::span<const Tensor> inputs, const ReduceArgument& op, const GroupArgument& group);

// Shape: as x but for scatter_dim, of which rank r gets the r-th of W equal parts. Error: W does not divide its size.
// Gradient: sum: all_gather_single of the cotangent along scatter_dim; avg: the same / W; premul_sum: the same times this
// rank's factor.
Tensor reduce_scatter_single(const Tensor& x, const ReduceArgument& op, int64_t scatter_dim, const GroupArgument& group);
// scatter_dims: one per tensor; empty: dim 0.
std::vector<Tensor> reduce_scatter_single_coalesced(std::span<const Tensor> inputs, const ReduceArgument& op, const GroupArgument& group,
                                                    std::span<const int64_t> scatter_dims = {});

// ---- moving ---------------------------------------------------------------------------------------------------------

// Shape: as x but for gather_dim, which holds the ranks' tensors one after another; of tensors without dims [W].
// Gradient: reduce_scatter_single(sum) of the cotangent along gather_dim.
Tensor all_gather_single(const Tensor& x, int64_t gather_dim, const GroupArgument& group);
// gather_dims: one per tensor; empty: dim 0.
std::vector<Tensor> all_gather_single_coalesced(std::span<const Tensor> inputs, const GroupArgument& group,
                                                std::span<const int64_t> gather_dims = {});

// Dim 0 of x is cut into one part per rank; the result holds the parts that the ranks cut for this one, in rank order.
// Splits are in rows: input_splits[p] go to rank p, output_splits[p] come from it. Without splits the parts are equal.
// Gradient: the same with the splits exchanged.
Tensor all_to_all_single(const Tensor& x, const GroupArgument& group);
Tensor all_to_all_single(const Tensor& x, std::span<const int64_t> output_splits, std::span<const int64_t> input_splits,
                         const GroupArgument& group);

// The tensor of rank `src`, of the shape and dtype of x, on all ranks; other ranks' elements are not looked at.
// Gradient: the sum of the cotangents on src, zero elsewhere.
Tensor broadcast(const Tensor& x, int src, const GroupArgument& group);

// Rank r gets the x of the rank p with destinations[p] == r. Shape: as x, equal on all ranks. Error: destinations is no
// permutation of the ranks. Gradient: the inverse permutation.
Tensor permute_tensor(const Tensor& x, std::span<const int64_t> destinations, const GroupArgument& group);

// ---- messages -------------------------------------------------------------------------------------------------------

// isend returns a token, a tensor [0] of the dtype of x that is there when x has been taken. irecv returns a tensor of
// the shape and dtype of `like`, whose elements are not looked at. Peers are group ranks.
//
// Gradient: irecv sends the cotangent back to src and isend receives it from dst, with the same tag; cotangents of
// narrow floats travel in f32. Both ends take part or none: the sender's x requires grad and so does the receiver's
// `like`, whose own gradient is zero; and backward() passes through the token (its sum is part of the loss, or
// backward(token, zeros of [0])). The send of a cotangent ends when somebody waits for the gradient of `like`, or in any
// later wait of the rank.
Tensor isend(const Tensor& x, int dst, const GroupArgument& group, uint32_t tag = 0);
Tensor irecv(const Tensor& like, int src, const GroupArgument& group, uint32_t tag = 0);
// All at once: no order among the messages can make them wait for each other. Results in the order of the operations,
// tokens and received tensors as above. In backward the messages whose tensor requires grad go back, all at once. No
// operations: no results.
std::vector<Tensor> batch_isend_irecv(std::span<const PointToPoint> operations, const GroupArgument& group);

// ---- waiting --------------------------------------------------------------------------------------------------------

// Waits for every collective that writes the storage of x, started by this rank, else by any rank of the process.
// Returns the same elements in the same memory. A tensor that nothing writes is returned at once.
Tensor wait_tensor(const Tensor& x);
std::vector<Tensor> wait_tensors(std::span<const Tensor> tensors);

// The ops behind these functions, for what loops over ops.
std::span<const OpDef* const> ops();

}  // namespace tutti::comm::functional
