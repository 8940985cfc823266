#include "tutti/ops/engine/loop_plan.h"

#include <algorithm>

namespace tutti {

using codegen::LoopKind;
using codegen::StrideClass;

namespace {

constexpr int64_t kFewColumns = 4;  // fewer rows side by side than this do not fill a vector

// Whether neighbouring rows lie side by side in the operand.
bool is_across_rows(const NestOperand& operand, int reduce, int inner) {
  return operand.strides[static_cast<size_t>(reduce)] != 1 && operand.strides[static_cast<size_t>(inner)] == 1;
}

bool lies_in_columns(const LoopPlan& plan, int reduce, int inner) {
  const std::vector<NestOperand>& operands = plan.nest.operands;
  if (operands.empty() || !is_across_rows(operands[0], reduce, inner)) return false;
  if (plan.nest.sizes[static_cast<size_t>(inner)] < kFewColumns) return false;
  if (plan.per_row != 0) return true;  // outputs with one element per row have no direction along it
  return std::all_of(operands.begin() + static_cast<ptrdiff_t>(plan.inputs), operands.end(),
                     [&](const NestOperand& o) { return is_across_rows(o, reduce, inner); });
}

}  // namespace

StrideClass LoopPlan::stride_class(size_t k) const {
  const auto inner = static_cast<size_t>(run.inner_dim);
  const int64_t n = nest.sizes[inner];
  const bool is_whole_output = k >= inputs && !(kind == LoopKind::row && has_per_row(k - inputs));
  if (is_whole_output && n == 1) return StrideClass::contiguous;  // one element has no stride to tell
  return class_of(nest.operands[k].strides[inner], n);
}

codegen::OperandSpec LoopPlan::operand(size_t k, DType dtype) const {
  codegen::OperandSpec spec{dtype, stride_class(k)};
  spec.along_reduced = k >= inputs && is_along_reduced(kind, has_per_row(k - inputs));
  return spec;
}

void plan_pointwise(LoopPlan& plan) {
  LoopNest& nest = plan.nest;
  int end = nest.collapse(0, nest.sizes.ndim());
  if (end == 0) nest.append_dim(1), end = 1;
  plan.kind = LoopKind::pointwise;
  plan.outer_end = end - 1;
  plan.run.inner_dim = end - 1;
  plan.run.n_inner = nest.sizes[static_cast<size_t>(end - 1)];
  plan.run.split_inner = true;
}

bool may_be_columns(uint32_t per_row, size_t outputs) { return per_row == 0 || per_row + 1u == 1u << outputs; }

bool plan_rows(LoopPlan& plan, std::span<const int64_t> row, bool may_be_columns) {
  LoopNest& nest = plan.nest;
  const int ndim = nest.sizes.ndim();
  Dims order;
  for (int64_t d = 0; d < ndim; ++d) {
    if (std::find(row.begin(), row.end(), d) == row.end()) order.push_back(d);
  }
  const int kept = order.ndim();
  for (const int64_t d : row) order.push_back(d);
  nest.permute(order);
  // Rows are numbered in this order: row dims that others stand between merge all the same.
  nest.logical = contiguous_strides(nest.sizes);
  if (nest.collapse(kept, ndim) - kept > 1) return false;
  plan.outer_end = nest.collapse(0, kept);
  if (nest.sizes.ndim() == plan.outer_end) nest.append_dim(1);
  const int reduce = nest.sizes.ndim() - 1, inner = plan.outer_end - 1;
  KernelRun& run = plan.run;
  if (may_be_columns && plan.kind == LoopKind::row && inner >= 0 && lies_in_columns(plan, reduce, inner)) {
    plan.kind = LoopKind::column;
    plan.outer_end = inner;
    run.inner_dim = inner;
    run.n_inner = nest.sizes[static_cast<size_t>(inner)];
    run.reduce_dim = reduce;
    run.n_reduce = nest.sizes[static_cast<size_t>(reduce)];
    run.split_inner = true;
    return true;
  }
  run.inner_dim = reduce;
  run.n_inner = nest.sizes[static_cast<size_t>(reduce)];
  return true;
}

}  // namespace tutti
