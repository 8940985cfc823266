// The kernel of a group that runs on blocks of a call's output: the epilogue of a matrix product.
//
// It is the group's pointwise kernel with its loops cut where the output's rows end. A block is then a part of its nest, and
// each element is computed as the kernel alone would.
#pragma once

#include <variant>

#include "tutti/graph/kernel_step.h"

namespace tutti::graph {

struct BlockStep {
  KernelStep kernel;        // its nest: positions in the output's rows, then one dim of columns
  size_t block_operand = 0; // which of its operands is the output of the call
  bool keeps_output = true; // the output is in memory too; otherwise in its blocks only
};

// The step of `group`, which reads `output`; or why its points do not follow the rows and columns of `output`.
// escapes: per buffer, whether anything but the group and the call reads it.
std::variant<BlockStep, const char*> make_block_step(const Group& group, const Graph& graph, const std::vector<bool>& escapes,
                                                     const Value& output);

// Runs the call with the step on its blocks. outputs[0] is not used unless the step keeps it. data: where the operands of
// the step's kernel begin. Returns what the kernel reported.
[[nodiscard]] uint32_t run_block_step(const BlockStep& step, const OpCall& call, std::span<const Tensor> outputs, char* const* data);

}  // namespace tutti::graph
