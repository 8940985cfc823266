// broadcast: the root's tensor, on every rank.
#include "tutti/comm/collective_def.h"
#include "tutti/comm/exchanges/move.h"
#include "tutti/comm/functional/functional.h"
#include "tutti/comm/functional/op_words.h"
#include "tutti/comm/functional/reference.h"
#include "tutti/ops/engine/index_loops.h"

TUTTI_COLLECTIVE(broadcast){
    .name = "broadcast",
    .outputs = Given::share,
    .in_place = InPlace::from_root,
    .is_rooted = true,
    .described = TensorSide::output,
    .move =
        [](Move& m, const CallPart& part) {
          if (part.is_root()) m.offer(DenseInput(part.output()));
          else m.take_from(part.call.root, DenseOutput(part.output()));
        },
    .functional = {&functional::kBroadcast, &functional::kReduceToRoot},
    .source = [](int64_t i, int64_t, const Seat&, int root) { return Source{root, root + 1, i}; },
    .wire = [](double) { return 1.0; },
};

// ---- functional -----------------------------------------------------------------------------------------------------

namespace tutti::comm::functional {
namespace {

bool is_root(const OpCall& call) { return rank_of(call) == attrs_of(call).peer; }

}  // namespace

const OpDef kBroadcast = op_of_row(
    "broadcast",
    [](const VjpCall& c, std::span<Tensor> grads) {
      grads[0] = wait_tensor(call_op(kReduceToRoot, c.attrs, widened(c.grads[0])));
    },
    samples_of<kBroadcast>);

// The sum of all ranks' tensors on the root, zeros elsewhere: the transpose of broadcast.
const OpDef kReduceToRoot{
    .name = "reduce_to_root",
    .num_inputs = 1,
    .infer = row_infer,
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
    .sharding = [](const OpCall& call) { return rule_by_row(call, "lin"); },
    .cost = wire_cost,
    .samples = samples_of<kReduceToRoot>,
};

Tensor broadcast(const Tensor& x, int src, const GroupArgument& group) {
  return group->checked(CollectiveKind::broadcast, [&] {
    return call_op(kBroadcast, Attrs::of(CallAttrs{.group = GroupRef::of(group), .peer = src}), x);
  });
}

}  // namespace tutti::comm::functional
