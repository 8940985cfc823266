// all_to_all: every rank sends each rank a tensor of its list. The sizes need to fit pair by pair only.
#include "tutti/comm/collective_def.h"
#include "tutti/comm/exchanges/move.h"

TUTTI_COLLECTIVE(all_to_all){
    .name = "all_to_all",
    .former_names = {"alltoall"},
    .outputs = Given::list,
    .inputs = Given::list,
    .evenness = Evenness::pairwise,
    .move =
        [](Move& m, const CallPart& part) {
          m.offer_list(dense_list<DenseInput>(part.call.inputs));
          m.take_list(dense_list<DenseOutput>(part.call.outputs));
        },
    .source = [](int64_t i, int64_t n, const Seat& seat,
                 int) { return Source{static_cast<int>(i / n), static_cast<int>(i / n) + 1, seat.rank * n + i % n}; },
    .wire = [](double ranks) { return (ranks - 1) / ranks; },
};
