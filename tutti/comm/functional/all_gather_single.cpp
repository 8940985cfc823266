#include "tutti/comm/functional/functional.h"
#include "tutti/comm/functional/op_words.h"
#include "tutti/comm/functional/reference.h"
#include "tutti/ops/engine/index_loops.h"

namespace tutti::comm::functional {
namespace {

// The own part is copied to where it belongs and sent from there, so the input needs no copy of its own.
void run(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor& x = call[0];
  const Tensor target = target_of(outputs[0]);
  const Tensor own = target.view_as(x.extents(), contiguous_strides(x.extents()), rank_of(call) * x.numel());
  facets::raw_copy(own, x);
  attach(outputs[0], group_of(call)->all_gather_single(target, own, kStart));
}

}  // namespace

const OpDef kAllGatherSingle{
    .name = "all_gather_single",
    .num_inputs = 1,
    .infer =
        [](const OpCall& call, OutputMetas& out) {
          out.add(call[0].dtype(), gathered_sizes(call.op.name, call[0], attrs_of(call).group.ranks));
        },
    .reference = all_gather_reference,
    .gradient = {.vjp =
                     [](const VjpCall& c, std::span<Tensor> grads) {
                       grads[0] = wait_tensor(reduce_scatter_single(widened(c.grads[0]), ReduceKind::sum, 0, group_of(c)));
                     }},
    .ordered = true,
    .transfer = {.starts_early = true, .coalesced = &kAllGatherSingleCoalesced, .offsets = part_offsets},
    .kernel = run,
    .cost = [](const OpCall& call) { return wire_cost((attrs_of(call).group.ranks - 1) * static_cast<double>(call[0].nbytes())); },
};

Tensor all_gather_single(const Tensor& x, int64_t gather_dim, const GroupArgument& group) {
  return group->checked(CollectiveKind::all_gather_single, [&] {
    const Tensor input = before_gather("all_gather_single", x, gather_dim);
    const Tensor gathered = call_op(kAllGatherSingle, Attrs::of(CallAttrs{.group = GroupRef::of(group)}), input);
    return after_gather("all_gather_single", gathered, x, gather_dim, group->size());
  });
}

}  // namespace tutti::comm::functional
