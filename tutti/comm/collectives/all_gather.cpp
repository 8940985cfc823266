// all_gather: the tensors of all ranks on every rank, in a list. Their sizes may differ, which a record names
// all_gather_v.
#include "tutti/comm/call_checks.h"
#include "tutti/comm/collective_def.h"
#include "tutti/comm/exchanges/move.h"

TUTTI_COLLECTIVE(all_gather){
    .name = "all_gather",
    .former_names = {"allgather"},
    .outputs = Given::list,
    .inputs = Given::share,
    .evenness = Evenness::listed,
    .uneven = &all_gather_v,
    .sizes =
        [](const char* op, const CallPart& part) {
          checks::same_numel(op, "input", part.input(), "own output", part.output(part.rank()));
        },
    .flow = Flow::gathers,
    .move =
        [](Move& m, const CallPart& part) {
          m.offer(DenseInput(part.input()));
          m.take_list(dense_list<DenseOutput>(part.call.outputs));
        },
    .source = [](int64_t i, int64_t n, const Seat&,
                 int) { return Source{static_cast<int>(i / n), static_cast<int>(i / n) + 1, i % n}; },
    .wire = [](double ranks) { return (ranks - 1) / ranks; },
};

TUTTI_COLLECTIVE(all_gather_v){
    .name = "all_gather_v",
    .outputs = Given::list,
    .inputs = Given::share,
    .evenness = Evenness::listed,
    .uneven_of = &all_gather,
    .flow = Flow::gathers,
};

TUTTI_COLLECTIVE(all_gather_coalesced){
    .name = "all_gather_coalesced",
    .outputs = Given::list,
    .inputs = Given::share,
    .evenness = Evenness::listed,
    .each = &all_gather,
    .flow = Flow::gathers,
};
