// Messages from one rank to another, which backends carry out by methods of their own.
#include "tutti/comm/collective_def.h"
#include "tutti/comm/functional/op_words.h"

TUTTI_COLLECTIVE(send){.name = "send",
                       .inputs = Given::share,
                       .is_message = true,
                       .evenness = Evenness::pairwise,
                       .flow = Flow::sends,
                       .functional = {&functional::kIsend}};

TUTTI_COLLECTIVE(recv){.name = "recv",
                       .outputs = Given::share,
                       .is_message = true,
                       .evenness = Evenness::pairwise,
                       .flow = Flow::receives,
                       .functional = {&functional::kIrecv, &functional::kBatchIsendIrecv}};
