// reduce_scatter_single: the reduction of all ranks' tensors, of which each rank gets its slice.
#include "tutti/comm/call_checks.h"
#include "tutti/comm/collective_def.h"
#include "tutti/comm/exchanges/reduction.h"

TUTTI_COLLECTIVE(reduce_scatter_single) {
    .name = "reduce_scatter_single",
    .former_names = {"_reduce_scatter_base", "reduce_scatter_tensor"},
    .outputs = Given::share,
    .inputs = Given::whole,
    .reduces = true,
    .sizes = [](const char* op, const CallPart& part) { checks::numel_times(op, "input", part.input(), "output", part.output(), part.seat.ranks); },
    .described = TensorSide::output,
    .flow = Flow::scatters,
    .reduction =
        [](Reduction& r, const CallRecord& record, const CallPart& part, const TransportTraits&) {
          r.begin_scatter_parts(record, part.seat.rank, part.seat.ranks, part.output(), part.input(), part.call.reduce);
        },
    .source = [](int64_t i, int64_t n, const Seat& seat, int) { return Source{0, seat.ranks, seat.rank * n + i}; },
    .wire = [](double ranks) { return (ranks - 1) / ranks; },
};

TUTTI_COLLECTIVE(reduce_scatter_single_coalesced) {
    .name = "reduce_scatter_single_coalesced",
    .former_names = {"reduce_scatter_tensor_coalesced"},
    .outputs = Given::share,
    .inputs = Given::whole,
    .reduces = true,
    .each = &reduce_scatter_single,
    .described = TensorSide::output,
    .flow = Flow::scatters,
};
