#include "tutti/ops/engine/picked.h"

#include "tutti/ops/engine/eager.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/engine/launch.h"
#include "tutti/ops/engine/recipe_kernel.h"

namespace tutti {
namespace {

using codegen::StrideClass;

NestOperand operand_of(const Tensor& t, const Extents& strides) {
  return {static_cast<char*>(t.raw_data()), itemsize(t.dtype()), strides};
}

// The picked operand stays in place along the loops of its index; the kernel adds index * pick.
LoopNest picked_nest(const OpCall& call, std::span<const Tensor> outputs, const Pick& pick) {
  const bool writes = pick.read < 0;
  const Tensor& table = writes ? outputs[0] : call[static_cast<size_t>(pick.read)];
  const Tensor& index = call[static_cast<size_t>(pick.index)];
  const size_t dim = static_cast<size_t>(pick.dim);
  Extents sizes, table_strides, index_strides;
  if (pick.loops == Pick::Loops::of_index) {
    sizes = index.extents();
    index_strides = index.strides();
    table_strides = table.strides();
    table_strides[dim] = 0;
  } else {
    const auto add = [&](int64_t size, int64_t in_table, int64_t in_index) {
      sizes.push_back(size), table_strides.push_back(in_table), index_strides.push_back(in_index);
    };
    for (size_t d = 0; d < dim; ++d) add(table.extents()[d], table.strides()[d], 0);
    for (size_t d = 0; d < index.extents().size(); ++d) add(index.extents()[d], 0, index.strides()[d]);
    for (size_t d = dim + 1; d < table.extents().size(); ++d) add(table.extents()[d], table.strides()[d], 0);
  }
  NestOperand picked = operand_of(table, table_strides);
  picked.pick = table.strides()[dim];
  picked.extent = table.extents()[dim];

  LoopNest nest;
  nest.sizes = sizes;
  nest.logical = contiguous_strides(sizes);
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const int at = static_cast<int>(i);
    if (at == pick.read) nest.operands.push_back(picked);
    else if (at == pick.index) nest.operands.push_back(operand_of(index, index_strides));
    else if (at == pick.start) nest.operands.push_back(operand_of(call[i], Extents(sizes.size(), 0)));  // not read
    else nest.add(call[i]);
  }
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (writes && k == 0) nest.operands.push_back(picked);
    else nest.add(outputs[k]);
  }
  return nest;
}

// Where several elements are written to one place, the last one in row-major order stays. They differ in their position
// along `dim` alone, so this loop is never shared out between threads nor reordered: it is the innermost of the outer
// loops and goes to one thread as a chain, or it is the inner loop itself, whose vectors are stored in lane order.
// Returns whether it is the inner loop; `chain` is its length when it is not.
bool order_writes(LoopNest& nest, int dim, int64_t* chain) {
  const int end = nest.collapse(dim + 1, nest.sizes.ndim());
  if (end == dim + 1) {
    nest.collapse(0, dim);
    return true;
  }
  Dims order;
  for (int d = 0; d < end; ++d) {
    if (d != dim && d != end - 1) order.push_back(d);
  }
  order.push_back(dim);
  order.push_back(end - 1);
  nest.permute(order);
  *chain = nest.sizes[end - 2];
  nest.collapse(0, end - 2);
  return false;
}

}  // namespace

void run_picked(const OpCall& call, std::span<const Tensor> outputs, const codegen::ParamValue* params) {
  const Pick pick = call.op.recipe.pick(call);
  const bool writes = pick.read < 0;
  if (writes) facets::raw_copy(outputs[0], call[static_cast<size_t>(pick.start)]);
  LoopPlan plan;
  plan.nest = picked_nest(call, outputs, pick);
  plan.inputs = call.inputs.size();
  LoopNest& nest = plan.nest;
  if (nest.count(0, nest.sizes.ndim()) == 0) {
    call.op.recipe.explain(call);  // indices of rows that have no elements are checked all the same
    return;
  }
  KernelRun& run = plan.run;
  run.split_inner = true;
  if (writes) run.split_inner = !order_writes(nest, static_cast<int>(pick.dim), &run.chain);
  else nest.collapse(0, nest.sizes.ndim());
  if (nest.sizes.empty()) nest.append_dim(1);
  plan.outer_end = nest.sizes.ndim() - 1;
  run.inner_dim = plan.outer_end;
  run.n_inner = nest.sizes[run.inner_dim];
  KernelKey key = key_of(call, outputs, plan);
  const size_t index = static_cast<size_t>(pick.index);
  // All elements of a row to one place: the kernel then goes from index to index, equal as they are.
  if (writes && key.stride_class(call.inputs.size()) == StrideClass::broadcast &&
      key.stride_class(index) == StrideClass::broadcast)
    key.set_stride_class(index, StrideClass::strided);
  const codegen::Kernel& kernel = find_kernel(call, outputs, key);
  if (const uint32_t error = launch(plan, kernel, params, nullptr, device_of(call, outputs)))
    throw_reported(error, call);
}

}  // namespace tutti
