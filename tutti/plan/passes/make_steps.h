// Pass: makes the steps of the groups.
#pragma once

namespace tutti::graph {

struct PassState;

// Afterwards each group is a step, in the order of the groups: a kernel with its specification for the code generator,
// or a call with the kernels on its blocks. A kernel whose rows cannot be walked as one dim is a call per node. A
// kernel that stores nothing has no step, and one that begins with an op that checks its operands stands behind a step
// that only does this.
void make_steps(PassState& state);

}  // namespace tutti::graph
