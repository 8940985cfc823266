// reduce_scatter: the reduction of all ranks' lists, of which each rank gets its tensor. The tensors of a list may
// differ in size, which a record names reduce_scatter_v.
#include "tutti/comm/call_checks.h"
#include "tutti/comm/collective_def.h"
#include "tutti/comm/exchanges/reduction.h"

TUTTI_COLLECTIVE(reduce_scatter){
    .name = "reduce_scatter",
    .outputs = Given::share,
    .inputs = Given::list,
    .reduces = true,
    .evenness = Evenness::listed,
    .uneven = &reduce_scatter_v,
    .sizes =
        [](const char* op, const CallPart& part) {
          checks::same_numel(op, "own input", part.input(part.rank()), "output", part.output());
        },
    .described = TensorSide::output,
    .flow = Flow::scatters,
    .reduction =
        [](Reduction& r, const CallRecord& record, const CallPart& part, const TransportTraits&) {
          r.begin_scatter(record, part.seat.rank, part.seat.ranks, part.output(),
                          dense_list<DenseInput>(part.call.inputs), part.call.reduce);
        },
    .source = [](int64_t i, int64_t n, const Seat& seat, int) { return Source{0, seat.ranks, seat.rank * n + i}; },
    .wire = [](double ranks) { return (ranks - 1) / ranks; },
};

TUTTI_COLLECTIVE(reduce_scatter_v){
    .name = "reduce_scatter_v",
    .outputs = Given::share,
    .inputs = Given::list,
    .reduces = true,
    .evenness = Evenness::listed,
    .uneven_of = &reduce_scatter,
    .described = TensorSide::output,
    .flow = Flow::scatters,
};
