// Pass: which kernels run inside the matrix products that read what they make, part by part as it is packed.
#pragma once

#include "tutti/graph/passes/attach.h"

namespace tutti::graph {

// Afterwards a pointwise kernel whose only output is operand 0 of an op with `kernel_in_blocks`, and nothing else's, is the
// prologue of that call: its output is in memory nowhere as a whole. Saved: its write and the call's read. Comes after the
// epilogues, which take what they can.
AttachPlan attach_prologues(const Graph& graph, std::vector<Group> groups);

}  // namespace tutti::graph
