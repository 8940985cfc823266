#include "tutti/comm/call_checks.h"
#include "tutti/comm/functional/functional.h"
#include "tutti/comm/functional/op_words.h"
#include "tutti/comm/functional/reference.h"

namespace tutti::comm::functional {

const OpDef kReduceScatterSingle{
    .name = "reduce_scatter_single",
    .num_inputs = 1,
    .infer =
        [](const OpCall& call, OutputMetas& out) {
          checks::reducible(call.op.name, attrs_of(call).reduce, call[0].dtype());
          out.add(call[0].dtype(), scattered_sizes(call.op.name, call[0], attrs_of(call).group.ranks));
        },
    .reference = reduce_scatter_reference,
    .gradient = {.vjp =
                     [](const VjpCall& c, std::span<Tensor> grads) {
                       const ReduceOp& op = attrs_of(c).reduce;
                       if (!is_linear(op.kind())) throw_no_gradient("reduce_scatter_single", op);
                       const Tensor whole = wait_tensor(all_gather_single(c.grads[0], 0, group_of(c)));
                       grads[0] = scaled_cotangent(whole, op, attrs_of(c).group.ranks);
                     }},
    .ordered = true,
    .transfer = {.starts_early = true, .coalesced = &kReduceScatterSingleCoalesced, .offsets = part_offsets},
    .kernel =
        [](const OpCall& call, std::span<const Tensor> outputs) {
          attach(outputs[0], group_of(call)->reduce_scatter_single(target_of(outputs[0]), snapshot(call[0]), attrs_of(call).reduce, kStart));
        },
    .cost =
        [](const OpCall& call) {
          const double ranks = attrs_of(call).group.ranks, share = (ranks - 1) / ranks;
          return wire_cost(share * static_cast<double>(call[0].nbytes()), share * static_cast<double>(call[0].numel()));
        },
};

Tensor reduce_scatter_single(const Tensor& x, const ReduceArgument& op, int64_t scatter_dim, const GroupArgument& group) {
  return group->checked(CollectiveKind::reduce_scatter_single, [&] {
    const Tensor input = before_scatter("reduce_scatter_single", x, scatter_dim, group->size());
    const Tensor part = call_op(kReduceScatterSingle, Attrs::of(CallAttrs{.group = GroupRef::of(group), .reduce = *op}), input);
    return after_scatter("reduce_scatter_single", part, x, scatter_dim);
  });
}

}  // namespace tutti::comm::functional
