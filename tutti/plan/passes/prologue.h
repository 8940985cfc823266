// Pass: attaches kernels to matrix products as prologues, which compute an operand block by block while it is packed.
#pragma once

namespace tutti::graph {

struct PassState;

// Afterwards, a pointwise kernel whose only output is operand 0 of an op with `kernel_in_blocks`, and is read by no
// other, is the prologue of that call: its output is never stored as a whole, which saves its write and the call's
// read. Runs after the pass that attaches epilogues.
void attach_prologues(PassState& state);

}  // namespace tutti::graph
