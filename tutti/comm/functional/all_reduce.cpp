#include "tutti/comm/call_checks.h"
#include "tutti/comm/functional/functional.h"
#include "tutti/comm/functional/op_words.h"
#include "tutti/comm/functional/reference.h"
#include "tutti/ops/engine/index_loops.h"

namespace tutti::comm::functional {
namespace {

void infer(const OpCall& call, OutputMetas& out) {
  checks::reducible("all_reduce", attrs_of(call).reduce, call[0].dtype());
  out.add(call[0].dtype(), call[0].sizes());
}

void run(const OpCall& call, std::span<const Tensor> outputs) {
  facets::raw_copy(outputs[0], call[0]);
  attach(outputs[0], group_of(call)->all_reduce(target_of(outputs[0]), attrs_of(call).reduce, kStart));
}

// Every result depends on x by the same factor, so the cotangents of all ranks are summed.
void linear_vjp(const VjpCall& c, std::span<Tensor> grads) {
  const ReduceOp& op = attrs_of(c).reduce;
  if (!is_linear(op.kind())) throw_no_gradient("all_reduce", op);
  const Tensor grad = widened(c.grads[0]);
  if (op.kind() != ReduceKind::premul_sum) grads[0] = wait_tensor(all_reduce(grad, op, group_of(c)));
  // The factor of this rank, which may differ from the others'.
  else grads[0] = scaled_cotangent(all_reduce(grad, ReduceKind::sum, group_of(c)), op, attrs_of(c).group.ranks);
}

void extremum_vjp(const VjpCall& c, std::span<Tensor> grads) {
  const Tensor sum = all_reduce(widened(c.grads[0]), ReduceKind::sum, group_of(c));
  grads[0] = masked_cotangent(sum, c.inputs[0], c.outputs[0]);
}

// Reduce-scatter and all-gather of a ring.
Cost cost(const OpCall& call) {
  const double ranks = attrs_of(call).group.ranks, share = (ranks - 1) / ranks;
  return wire_cost(2 * share * static_cast<double>(call[0].nbytes()), share * static_cast<double>(call[0].numel()));
}

}  // namespace

// No samples here and below: a call needs a group, which a table cannot hold. tests/comm/functional_test.cpp has them.
const OpDef kAllReduce{
    .name = "all_reduce",
    .num_inputs = 1,
    .infer = infer,
    .reference = all_reduce_reference,
    .gradient = {.vjp = linear_vjp},
    .ordered = true,
    .transfer = {.starts_early = true, .coalesced = &kAllReduceCoalesced, .offsets = part_offsets},
    .kernel = run,
    .cost = cost,
};

// An op of its own because its gradient keeps x and the result, which a sum does not need.
const OpDef kAllReduceExtremum{
    .name = "all_reduce_extremum",
    .num_inputs = 1,
    .infer = infer,
    .reference = all_reduce_reference,
    .gradient = {.vjp = extremum_vjp, .saves_inputs = 1, .saves_outputs = 1},
    .ordered = true,
    .transfer = {.starts_early = true, .coalesced = &kAllReduceCoalesced, .offsets = part_offsets},
    .kernel = run,
    .cost = cost,
};

Tensor all_reduce(const Tensor& x, const ReduceArgument& op, const GroupArgument& group) {
  return group->checked(CollectiveKind::all_reduce, [&] {
    return call_op(is_extremum((*op).kind()) ? kAllReduceExtremum : kAllReduce, Attrs::of(CallAttrs{.group = GroupRef::of(group), .reduce = *op}), x);
  });
}

}  // namespace tutti::comm::functional
