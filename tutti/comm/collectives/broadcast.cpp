// broadcast: the root's tensor, on every rank.
#include "tutti/comm/collective_def.h"
#include "tutti/comm/exchanges/move.h"

TUTTI_COLLECTIVE(broadcast) {
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
    .source = [](int64_t i, int64_t, const Seat&, int root) { return Source{root, root + 1, i}; },
    .wire = [](double) { return 1.0; },
};
