// reduce_scatter_single: the reduction of all ranks' tensors, of which each rank gets its slice.
#include "tutti/comm/call_checks.h"
#include "tutti/comm/collective_def.h"
#include "tutti/comm/exchanges/over_hosts.h"
#include "tutti/comm/exchanges/reduction.h"
#include "tutti/comm/functional/functional.h"
#include "tutti/comm/functional/op_words.h"

TUTTI_COLLECTIVE(reduce_scatter_single){
    .name = "reduce_scatter_single",
    .former_names = {"_reduce_scatter_base", "reduce_scatter_tensor"},
    .outputs = Given::share,
    .inputs = Given::whole,
    .reduces = true,
    .sizes =
        [](const char* op, const CallPart& part) {
          checks::numel_times(op, "input", part.input(), "output", part.output(), part.seat.ranks);
        },
    .described = TensorSide::output,
    .flow = Flow::scatters,
    .reduction =
        [](Reduction& r, const CallRecord& record, const CallPart& part, const TransportTraits&) {
          r.begin_scatter_parts(record, part.seat.rank, part.seat.ranks, part.output(), part.input(), part.call.reduce);
        },
    .over_hosts = [](const CallRecord& record, const CallPart& part,
                     const HostLayout& hosts) -> std::unique_ptr<Collective> {
      if (!hosts.are_nodes()) return nullptr;
      return reduce_scatter_over_hosts(record, part.seat, hosts, part.output(), part.input(), part.call.reduce);
    },
    .functional = {&functional::kReduceScatterSingle},
    .source = [](int64_t i, int64_t n, const Seat& seat, int) { return Source{0, seat.ranks, seat.rank * n + i}; },
    .wire = [](double ranks) { return (ranks - 1) / ranks; },
};

TUTTI_COLLECTIVE(reduce_scatter_single_coalesced){
    .name = "reduce_scatter_single_coalesced",
    .former_names = {"reduce_scatter_tensor_coalesced"},
    .outputs = Given::share,
    .inputs = Given::whole,
    .reduces = true,
    .each = &reduce_scatter_single,
    .described = TensorSide::output,
    .flow = Flow::scatters,
    .functional = {&functional::kReduceScatterSingleCoalesced},
};

// ---- functional -----------------------------------------------------------------------------------------------------

namespace tutti::comm::functional {

const OpDef kReduceScatterSingle = op_of_row(
    "reduce_scatter_single",
    [](const VjpCall& c, std::span<Tensor> grads) {
      const ReduceOp& op = attrs_of(c).reduce;
      if (!is_linear(op.kind())) throw_no_gradient("reduce_scatter_single", op);
      grads[0] =
          scaled_cotangent(wait_tensor(all_gather_single(c.grads[0], 0, group_of(c))), op, attrs_of(c).group.ranks);
    },
    samples_of<kReduceScatterSingle>, &kReduceScatterSingleCoalesced, 0, {.with_producer = &kScatterOfProduct});

Tensor reduce_scatter_single(const Tensor& x, const ReduceArgument& op, int64_t scatter_dim,
                             const GroupArgument& group) {
  return group->checked(CollectiveKind::reduce_scatter_single, [&] {
    const Tensor input = before_scatter("reduce_scatter_single", x, scatter_dim, group->size());
    const Tensor part =
        call_op(kReduceScatterSingle, Attrs::of(CallAttrs{.group = GroupRef::of(group), .reduce = *op}), input);
    return after_scatter("reduce_scatter_single", part, x, scatter_dim);
  });
}

}  // namespace tutti::comm::functional
