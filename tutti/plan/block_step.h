// Kernels that run on blocks of a call's operands: the epilogue of a matrix product on its output, the prologue on
// operand 0.
//
// Such a kernel is the group's pointwise kernel with its loops split at the ends of the operand's rows. A block is then
// a part of the loop nest, and each element is computed exactly as by the kernel alone.
#pragma once

#include <variant>

#include "tutti/plan/kernel_step.h"

namespace tutti::graph {

struct BlockStep {
  KernelStep kernel;           // its nest: positions in the operand's rows, then one dim of columns
  size_t block_operand = 0;    // which of its operands is the one of the call
  bool keeps_operand = true;   // the operand is also stored in memory; otherwise it exists only in blocks
  bool is_transposed = false;  // prologue: rows of the call's operand are columns of the nest
};

// The step of `group`, which reads `output` of a call, or the reason why its iteration space does not match the rows
// and columns of `output`. escapes: for each buffer, whether anything but the group and the call reads it.
std::variant<BlockStep, const char*> make_epilogue(const Group& group, const Graph& graph,
                                                   const std::vector<bool>& escapes, const Value& output);
// The step of `group`, which computes only `input`, operand 0 of a call, or the reason why it cannot be a prologue.
std::variant<BlockStep, const char*> make_prologue(const Group& group, const Graph& graph,
                                                   const std::vector<bool>& escapes, const Value& input);

// A step and the addresses of its kernel's operands.
struct BlockRun {
  const BlockStep* step = nullptr;  // null: there is none
  char* const* data = nullptr;
};

// The errors that the kernels reported.
struct BlockErrors {
  uint32_t prologue = 0, epilogue = 0;
};

// Runs the call with the steps on its blocks. inputs[0] has no memory beside a prologue; outputs[0] is not used unless
// the epilogue keeps it.
[[nodiscard]] BlockErrors run_in_blocks(const OpCall& call, std::span<const Tensor> outputs, const BlockRun& prologue,
                                        const BlockRun& epilogue);

}  // namespace tutti::graph
