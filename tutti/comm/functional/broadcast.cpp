#include "tutti/comm/call_checks.h"
#include "tutti/comm/functional/functional.h"
#include "tutti/comm/functional/op_words.h"
#include "tutti/comm/functional/reference.h"
#include "tutti/ops/engine/index_loops.h"

namespace tutti::comm::functional {
namespace {

bool is_root(const OpCall& call) { return rank_of(call) == attrs_of(call).peer; }

void infer(const OpCall& call, OutputMetas& out) {
  checks::root(call.op.name, attrs_of(call).peer, attrs_of(call).group.ranks);
  out.add(call[0].dtype(), call[0].sizes());
}

Cost cost(const OpCall& call) { return wire_cost(static_cast<double>(call[0].nbytes())); }

}  // namespace

const OpDef kBroadcast{
    .name = "broadcast",
    .num_inputs = 1,
    .infer = infer,
    .reference = broadcast_reference,
    .gradient = {.vjp =
                     [](const VjpCall& c, std::span<Tensor> grads) {
                       grads[0] = wait_tensor(call_op(kReduceToRoot, c.attrs, widened(c.grads[0])));
                     }},
    .ordered = true,
    .transfer = {.starts_early = true},
    .kernel =
        [](const OpCall& call, std::span<const Tensor> outputs) {
          if (is_root(call)) facets::raw_copy(outputs[0], call[0]);
          attach(outputs[0], group_of(call)->broadcast(target_of(outputs[0]), attrs_of(call).peer, kStart));
        },
    .cost = cost,
};

// The sum of all ranks' tensors on the root, zeros elsewhere: the transpose of broadcast.
const OpDef kReduceToRoot{
    .name = "reduce_to_root",
    .num_inputs = 1,
    .infer = infer,
    .reference = reduce_to_root_reference,
    .gradient = {.vjp =
                     [](const VjpCall& c, std::span<Tensor> grads) {
                       grads[0] = wait_tensor(call_op(kBroadcast, c.attrs, widened(c.grads[0])));
                     }},
    .ordered = true,
    .transfer = {.starts_early = true},
    .kernel =
        [](const OpCall& call, std::span<const Tensor> outputs) {
          if (is_root(call)) facets::raw_copy(outputs[0], call[0]);
          else facets::raw_fill(outputs[0], facets::kSumIdentity);
          const Tensor addend = is_root(call) ? target_of(outputs[0]) : snapshot(call[0]);
          attach(outputs[0], group_of(call)->reduce(addend, attrs_of(call).peer, ReduceKind::sum, kStart));
        },
    .cost = cost,
};

Tensor broadcast(const Tensor& x, int src, const GroupArgument& group) {
  return group->checked(CollectiveKind::broadcast, [&] {
    return call_op(kBroadcast, Attrs::of(CallAttrs{.group = GroupRef::of(group), .peer = src}), x);
  });
}

}  // namespace tutti::comm::functional
