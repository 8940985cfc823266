// scatter: each rank gets its tensor of the root's list.
#include "tutti/comm/call_checks.h"
#include "tutti/comm/collective_def.h"
#include "tutti/comm/exchanges/move.h"

TUTTI_COLLECTIVE(scatter){
    .name = "scatter",
    .outputs = Given::share,
    .inputs = Given::list_on_root,
    .is_rooted = true,
    .sizes =
        [](const char* op, const CallPart& part) {
          for (const Tensor& input : part.call.inputs) checks::same_numel(op, "input", input, "output", part.output());
        },
    .described = TensorSide::output,
    .flow = Flow::scatters,
    .move =
        [](Move& m, const CallPart& part) {
          if (part.is_root()) m.offer_list(dense_list<DenseInput>(part.call.inputs));
          m.take_from(part.call.root, DenseOutput(part.output()));
        },
    .source = [](int64_t i, int64_t n, const Seat& seat,
                 int root) { return Source{root, root + 1, seat.rank * n + i}; },
    .wire = [](double ranks) { return (ranks - 1) / ranks; },
};
