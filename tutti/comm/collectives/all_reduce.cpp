// all_reduce: the reduction of all ranks' tensors, in place on every rank.
#include "tutti/comm/collective_def.h"
#include "tutti/comm/exchanges/reduction.h"

TUTTI_COLLECTIVE(all_reduce) {
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
    .source = [](int64_t i, int64_t, const Seat& seat, int) { return Source{0, seat.ranks, i}; },
    // A reduce_scatter and an all_gather.
    .wire = [](double ranks) { return 2 * (ranks - 1) / ranks; },
};

TUTTI_COLLECTIVE(all_reduce_coalesced) {
    .name = "all_reduce_coalesced",
    .former_names = {"allreduce_coalesced"},
    .outputs = Given::share,
    .in_place = InPlace::all_ranks,
    .reduces = true,
    .each = &all_reduce,
    .described = TensorSide::output,
};
