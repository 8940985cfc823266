// Pass: attaches kernels to matrix products as epilogues, which run on each block of the output as soon as it is final.
#pragma once

#include <cstdint>

namespace tutti::graph {

struct PassState;

enum class Epilogues : uint8_t {
  off,     // kernels run after the whole product
  saving,  // only kernels that read no other operand of the size of the output, since an epilogue reads it in short
           // pieces, one row of a block at a time
  all,     // all kernels that can
};

// Afterwards a pointwise kernel that reads the output of an op with `kernel_in_blocks` at the output's own points is
// the epilogue of that call, unless a step between them would have to run inside the call, or the kernel writes memory
// that the call reads. Of several outputs that a kernel reads so it joins the one that saves most. A kernel joins whole
// or not at all. Saved: the output's write when nobody else reads it, and the kernel's read.
void attach_epilogues(PassState& state);

}  // namespace tutti::graph
