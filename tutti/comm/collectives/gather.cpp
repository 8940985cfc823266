// gather: the tensors of all ranks on the root, in a list.
#include "tutti/comm/call_checks.h"
#include "tutti/comm/collective_def.h"
#include "tutti/comm/exchanges/move.h"

TUTTI_COLLECTIVE(gather){
    .name = "gather",
    .outputs = Given::list_on_root,
    .inputs = Given::share,
    .is_rooted = true,
    .sizes =
        [](const char* op, const CallPart& part) {
          for (const Tensor& output : part.call.outputs)
            checks::same_numel(op, "input", part.input(), "output", output);
        },
    .flow = Flow::gathers,
    .move =
        [](Move& m, const CallPart& part) {
          m.offer_to(part.call.root, DenseInput(part.input()));
          if (part.is_root()) m.take_list(dense_list<DenseOutput>(part.call.outputs));
        },
    .source = [](int64_t i, int64_t n, const Seat&,
                 int) { return Source{static_cast<int>(i / n), static_cast<int>(i / n) + 1, i % n}; },
    .wire = [](double ranks) { return (ranks - 1) / ranks; },
};
