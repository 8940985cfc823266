// barrier: returns when all ranks have called it.
#include "tutti/comm/collective_def.h"
#include "tutti/comm/exchanges/move.h"

TUTTI_COLLECTIVE(barrier){
    .name = "barrier",
    .evenness = Evenness::pairwise,
    .move = [](Move&, const CallPart&) {},
};
