// all_gather_single: the tensors of all ranks on every rank, one after another in one tensor. The input may be this
// rank's slice of the output.
#include "tutti/comm/call_checks.h"
#include "tutti/comm/collective_def.h"
#include "tutti/comm/exchanges/move.h"
#include "tutti/comm/exchanges/over_hosts.h"
#include "tutti/comm/functional/functional.h"
#include "tutti/comm/functional/op_words.h"

TUTTI_COLLECTIVE(all_gather_single){
    .name = "all_gather_single",
    .former_names = {"_allgather_base", "_all_gather_base", "all_gather_into_tensor"},
    .outputs = Given::whole,
    .inputs = Given::share,
    .sizes =
        [](const char* op, const CallPart& part) {
          checks::numel_times(op, "output", part.output(), "input", part.input(), part.seat.ranks);
          checks::own_slice(op, part.output(), part.input(), part.seat.rank, part.seat.ranks);
        },
    .flow = Flow::gathers,
    .move =
        [](Move& m, const CallPart& part) {
          m.offer(DenseInput(part.input()));
          m.take_parts(DenseOutput(part.output()), part.input().nbytes());
        },
    .over_hosts =
        [](const CallRecord& record, const CallPart& part, const HostLayout& hosts) {
          return all_gather_over_hosts(record, part.seat, hosts, part.output(), part.input());
        },
    .functional = {&functional::kAllGatherSingle},
    .source = [](int64_t i, int64_t n, const Seat&,
                 int) { return Source{static_cast<int>(i / n), static_cast<int>(i / n) + 1, i % n}; },
    .wire = [](double ranks) { return (ranks - 1) / ranks; },
};

TUTTI_COLLECTIVE(all_gather_single_coalesced){
    .name = "all_gather_single_coalesced",
    .former_names = {"allgather_into_tensor_coalesced"},
    .outputs = Given::whole,
    .inputs = Given::share,
    .each = &all_gather_single,
    .flow = Flow::gathers,
    .functional = {&functional::kAllGatherSingleCoalesced},
};

// ---- functional -----------------------------------------------------------------------------------------------------

namespace tutti::comm::functional {

const OpDef kAllGatherSingle =
    op_of_row("all_gather_single",
              [](const VjpCall& c, std::span<Tensor> grads) {
                grads[0] = wait_tensor(reduce_scatter_single(widened(c.grads[0]), ReduceKind::sum, 0, group_of(c)));
              },
              samples_of<kAllGatherSingle>, &kAllGatherSingleCoalesced, 0, {.with_readers = &kGatherWithProducts});

Tensor all_gather_single(const Tensor& x, int64_t gather_dim, const GroupArgument& group) {
  return group->checked(CollectiveKind::all_gather_single, [&] {
    const Tensor input = before_gather("all_gather_single", x, gather_dim);
    const Tensor gathered = call_op(kAllGatherSingle, Attrs::of(CallAttrs{.group = GroupRef::of(group)}), input);
    return after_gather("all_gather_single", gathered, x, gather_dim, group->size());
  });
}

}  // namespace tutti::comm::functional
