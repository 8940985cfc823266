// Shared by the files of the functional collectives: attrs, small shape helpers, the list of their ops.
#pragma once

#include "tutti/comm/functional/arguments.h"
#include "tutti/comm/functional/async_result.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/engine/op_def.h"

namespace tutti::comm {
struct CollectiveDef;
}  // namespace tutti::comm

namespace tutti::comm::functional {

inline const CallAttrs& attrs_of(const OpCall& call) { return call.attrs.as<CallAttrs>(); }
inline const CallAttrs& attrs_of(const VjpCall& call) { return call.attrs.as<CallAttrs>(); }
inline GroupArgument group_of(const OpCall& call) { return attrs_of(call).group.resolve(call.op.name); }
// Asked for at the call, because ranks that are threads may share a graph.
inline int rank_of(const OpCall& call) { return group_of(call)->rank(); }
inline GroupArgument group_of(const VjpCall& call) { return attrs_of(call).group.resolve(call.op.name); }

inline const CallOptions kStart{.async = true};

// A cotangent as it is reduced or sent to a rank that may hold another dtype: numerics contract, N4.
inline Tensor widened(const Tensor& grad) { return cast(grad, compute_dtype(grad.dtype())); }
// The sum over ranks as the gradient of premul_sum with this rank's factor, the average's, or as it is.
Tensor scaled_cotangent(const Tensor& sum, const ReduceOp& op, int ranks);
// `grad` where `input` is the result of a min or max, zero elsewhere.
Tensor masked_cotangent(const Tensor& grad, const Tensor& input, const Tensor& result);
[[noreturn]] void throw_no_gradient(const char* op, const ReduceOp& reduce);
inline bool is_linear(ReduceKind kind) {
  return kind == ReduceKind::sum || kind == ReduceKind::avg || kind == ReduceKind::premul_sum;
}
inline bool is_extremum(ReduceKind kind) { return kind == ReduceKind::min || kind == ReduceKind::max; }
// A tensor of these sizes without memory of that size, for what looks at sizes only.
Tensor placeholder(const Shape& sizes, DType dtype);
// Zeros for the gradient of a tensor whose elements are not looked at.
Tensor no_cotangent(const OutputMeta& meta);

// ---- dims -----------------------------------------------------------------------------------------------------------

// The shape after all ranks' tensors stand one after another along dim 0. UsageError for a tensor without dims.
Shape gathered_sizes(const char* op, const Tensor& x, int ranks);
// The shape of one of `ranks` equal parts of dim 0. UsageError when there are none.
Shape scattered_sizes(const char* op, const Tensor& x, int ranks);

// An all_gather_single along `dim` gathers the tensor of before_gather() along dim 0; after_gather() makes its result
// of the gathered one.
Tensor before_gather(const char* op, const Tensor& x, int64_t dim);
Tensor after_gather(const char* op, const Tensor& gathered, const Tensor& x, int64_t dim, int ranks);
// A reduce_scatter_single along `dim` scatters the tensor of before_scatter() along dim 0; after_scatter() makes its
// result of this rank's part.
Tensor before_scatter(const char* op, const Tensor& x, int64_t dim, int ranks);
Tensor after_scatter(const char* op, const Tensor& part, const Tensor& x, int64_t dim);

// ---- results of several tensors -------------------------------------------------------------------------------------

// Calls with any number of results of any dtypes write one block of bytes, an arena; the results are views of it.
struct Arena {
  std::vector<int64_t> offsets;  // bytes
  int64_t bytes = 0;
  // A part for tensors of these sizes and dtypes, at a multiple of 64 bytes each.
  static Arena of(std::span<const OutputMeta> parts);
};
// Where the results of a coalesced call lie in its arena: see OpDef::transfer.
std::vector<int64_t> part_offsets(const OpCall& call);
// The part at `offset` as a tensor; a view op.
Tensor part_of(const Tensor& arena, int64_t offset, const OutputMeta& meta);
// The same on the memory of target_of(arena), for kernels.
Tensor part_target(const Tensor& target, int64_t offset, const OutputMeta& meta);

// ---- ops ------------------------------------------------------------------------------------------------------------

extern const OpDef kAllReduce, kAllReduceExtremum, kReduceScatterSingle, kAllGatherSingle, kAllToAllSingle,
    kAllToAllVSingle, kAllToAllVPaddedSingle, kBroadcast, kReduceToRoot, kIsend, kIrecv, kWaitTensor, kPart,
    kAllReduceCoalesced, kAllGatherSingleCoalesced, kReduceScatterSingleCoalesced, kBatchIsendIrecv;
extern const JoinedOp kGatherWithProducts, kScatterOfProduct;  // products.cpp

// The row whose functional form `op` is.
const CollectiveDef& row_of(const OpDef& op);
// The bytes that a rank sends by the row, and its share of the additions.
Cost wire_cost(const OpCall& call);
// Dtype and sizes of the result of input `i`, by the row; checks root, reduction and sizes.
OutputMeta row_result(const OpCall& call, size_t i);
void row_infer(const OpCall& call, OutputMetas& out);
// Starts the row's collective from the inputs to `targets`, one for each; `result` is complete when it has ended.
void run_row(const OpCall& call, std::span<const Tensor> targets, const Tensor& result);
void row_kernel(const OpCall& call, std::span<const Tensor> outputs);
// The rule of a call of one tensor along a mesh axis other than the group's: ranks hold dim 0 whole where the row cuts
// it into shares. `partial` says which Partial inputs are legal; row_sharding() takes it from the row and the
// reduction.
std::string rule_by_row(const OpCall& call, std::string_view partial);
std::string row_sharding(const OpCall& call);
// Calls in the world's group, which must exist on this rank.
std::vector<Sample> row_samples(const OpDef& op, ReduceKind reduce);
template <const OpDef& op, ReduceKind reduce = ReduceKind::sum>
std::vector<Sample> samples_of() {
  return row_samples(op, reduce);
}

// Computes by the row's source of each element, as a reference; for all ranks at once.
void source_reference(const OpCall& call, std::span<const Tensor> outputs);

// The op for a collective of one tensor, of which only the gradient does not follow from the row.
constexpr OpDef op_of_row(const char* name, void (*vjp)(const VjpCall&, std::span<Tensor>),
                          std::vector<Sample> (*samples)(), const OpDef* coalesced = nullptr, uint32_t saves = 0,
                          Transfer joined = {}) {
  return {.name = name,
          .num_inputs = 1,
          .infer = row_infer,
          .reference = source_reference,
          .gradient = {.vjp = vjp, .saves_inputs = saves, .saves_outputs = saves},
          .ordered = true,
          .transfer = {.starts_early = true,
                       .coalesced = coalesced,
                       .offsets = coalesced == nullptr ? nullptr : part_offsets,
                       .with_readers = joined.with_readers,
                       .with_producer = joined.with_producer},
          .kernel = row_kernel,
          .sharding = row_sharding,
          .cost = wire_cost,
          .samples = samples};
}

}  // namespace tutti::comm::functional
