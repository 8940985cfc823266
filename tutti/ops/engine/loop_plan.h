// LoopPlan: how a kernel walks its operands, decided from their layouts alone. Eager calls and the steps of compiled
// functions make it by the same functions, and it says nothing about a device.
#pragma once

#include <cstdint>
#include <span>

#include "tutti/ops/engine/loop_nest.h"

namespace tutti {

struct LoopPlan {
  LoopNest nest;  // its operands are those of the kernel: inputs, then outputs
  codegen::LoopKind kind = codegen::LoopKind::pointwise;
  int outer_end = 0;     // the loops around the kernel are the dims [0, outer_end) of the nest
  KernelRun run;         // the loops of the kernel itself; its entry, params and data are those of a launch
  size_t inputs = 0;     // how many of the operands are read
  uint32_t per_row = 0;  // bit k: output k has one element per row

  bool has_per_row(size_t output) const { return (per_row >> output & 1) != 0; }
  // How operand k moves along the inner loop.
  codegen::StrideClass stride_class(size_t k) const;
  // Operand k, whose elements are `dtype`, as the code generator knows it.
  codegen::OperandSpec operand(size_t k, DType dtype) const;
};

// Whether a kernel of this kind writes an element for each of the reduced dim to an output that has one per row or not.
inline bool is_along_reduced(codegen::LoopKind kind, bool per_row) {
  return kind == codegen::LoopKind::column && !per_row;
}

// Every point by itself: dims that all operands cross evenly become one, and the last one is the kernel's own loop.
void plan_pointwise(LoopPlan& plan);

// Rows of the dims `row`: the other dims go to the front, and the row becomes one dim, the kernel's own loop. Where the
// operands lie across the rows, and `may_be_columns`, rows are taken side by side instead (LoopKind::column). False
// when an operand does not cross the dims of the row evenly; the plan is then of no use. plan.kind is row or scan.
[[nodiscard]] bool plan_rows(LoopPlan& plan, std::span<const int64_t> row, bool may_be_columns);

// Whether rows may be taken side by side, by what the `outputs` outputs have per row: all of them one element, or none.
bool may_be_columns(uint32_t per_row, size_t outputs);

}  // namespace tutti
