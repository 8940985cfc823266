// Messages from one rank to another, which backends carry out by methods of their own.
#include "tutti/comm/collective_def.h"

TUTTI_COLLECTIVE(send) {.name = "send", .inputs = Given::share, .is_message = true, .evenness = Evenness::pairwise, .flow = Flow::sends};

TUTTI_COLLECTIVE(recv) {.name = "recv", .outputs = Given::share, .is_message = true, .evenness = Evenness::pairwise, .flow = Flow::receives};
