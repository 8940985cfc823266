// all_reduce: the reduction of all ranks' tensors, in place on every rank.
#include "tutti/comm/collective_def.h"
#include "tutti/comm/exchanges/over_hosts.h"
#include "tutti/comm/exchanges/reduction.h"
#include "tutti/comm/functional/functional.h"
#include "tutti/comm/functional/op_words.h"

TUTTI_COLLECTIVE(all_reduce){
    .name = "all_reduce",
    .former_names = {"allreduce"},
    .outputs = Given::share,
    .in_place = InPlace::all_ranks,
    .reduces = true,
    .described = TensorSide::output,
    .reduction =
        [](Reduction& r, const CallRecord& record, const CallPart& part, const TransportTraits& traits) {
          r.begin_reduce(record, traits, part.seat.rank, part.seat.ranks, part.output(), part.call.reduce, -1);
        },
    .over_hosts = [](const CallRecord& record, const CallPart& part,
                     const HostLayout& hosts) -> std::unique_ptr<Collective> {
      if (!hosts.are_nodes()) return nullptr;
      return all_reduce_over_hosts(record, part.seat, hosts, part.output(), part.call.reduce);
    },
    .functional = {&functional::kAllReduce, &functional::kAllReduceExtremum},
    .source = [](int64_t i, int64_t, const Seat& seat, int) { return Source{0, seat.ranks, i}; },
    // A reduce_scatter and an all_gather.
    .wire = [](double ranks) { return 2 * (ranks - 1) / ranks; },
};

TUTTI_COLLECTIVE(all_reduce_coalesced){
    .name = "all_reduce_coalesced",
    .former_names = {"allreduce_coalesced"},
    .outputs = Given::share,
    .in_place = InPlace::all_ranks,
    .reduces = true,
    .each = &all_reduce,
    .described = TensorSide::output,
    .functional = {&functional::kAllReduceCoalesced},
};

// ---- functional -----------------------------------------------------------------------------------------------------

namespace tutti::comm::functional {
namespace {

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

}  // namespace

const OpDef kAllReduce = op_of_row("all_reduce", linear_vjp, samples_of<kAllReduce>, &kAllReduceCoalesced);

// An op of its own because its gradient keeps x and the result, which a sum does not need.
const OpDef kAllReduceExtremum = op_of_row("all_reduce_extremum", extremum_vjp,
                                           samples_of<kAllReduceExtremum, ReduceKind::max>, &kAllReduceCoalesced, 1);

Tensor all_reduce(const Tensor& x, const ReduceArgument& op, const GroupArgument& group) {
  return group->checked(CollectiveKind::all_reduce, [&] {
    return call_op(is_extremum((*op).kind()) ? kAllReduceExtremum : kAllReduce,
                   Attrs::of(CallAttrs{.group = GroupRef::of(group), .reduce = *op}), x);
  });
}

}  // namespace tutti::comm::functional
