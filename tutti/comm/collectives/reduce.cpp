// reduce: the reduction of all ranks' tensors on the root. The tensors of the other ranks are only read.
#include "tutti/comm/collective_def.h"
#include "tutti/comm/exchanges/reduction.h"

TUTTI_COLLECTIVE(reduce){
    .name = "reduce",
    .outputs = Given::share,
    .in_place = InPlace::to_root,
    .is_rooted = true,
    .reduces = true,
    .described = TensorSide::output,
    .reduction =
        [](Reduction& r, const CallRecord& record, const CallPart& part, const TransportTraits& traits) {
          r.begin_reduce(record, traits, part.seat.rank, part.seat.ranks, part.output(), part.call.reduce,
                         part.call.root);
        },
    .source =
        [](int64_t i, int64_t, const Seat& seat, int root) {
          return seat.rank == root ? Source{0, seat.ranks, i} : Source{seat.rank, seat.rank + 1, i};
        },
    .wire = [](double) { return 1.0; },
};
