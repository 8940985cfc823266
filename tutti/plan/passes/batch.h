// Pass: adjacent kernels are merged into one launch.
#pragma once

namespace tutti::graph {

struct PassState;

// Afterwards, adjacent kernels that do not access memory written by another of them, and are small or write only given
// memory, form one BatchStep, in which no kernel writes given memory after one that can fail; the order of all other
// steps is unchanged. A kernel that reads memory that a collective may still write begins a new batch, so that the
// kernels before it need not wait. (Kernels with large temporaries are not batched, because a batch keeps the
// temporaries of all its kernels alive.)
void batch(PassState& state);

}  // namespace tutti::graph
