// Pass: which kernels run on the blocks of a matrix product's output as they become final.
#pragma once

#include <cstdint>

#include "tutti/graph/passes/attach.h"

namespace tutti::graph {

enum class Epilogues : uint8_t {
  off,     // kernels run after the products they follow
  saving,  // those join that read no other operand of the product's size: as epilogues they would read it in pieces of a
           // block's row
  all,     // whatever they save
};

// Afterwards a pointwise kernel that reads the output of an op with `kernel_in_blocks` at the output's own points is the
// epilogue of that call, unless a step between them would have to run inside the call, or the kernel writes memory that the
// call reads. Of several outputs that a kernel reads so it joins the one that saves most. A kernel joins whole or not at all.
// Saved: the output's write when nobody else reads it, and the kernel's read.
AttachPlan attach_epilogues(const Graph& graph, std::vector<Group> groups, Epilogues which);

}  // namespace tutti::graph
