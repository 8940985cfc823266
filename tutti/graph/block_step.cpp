#include "tutti/graph/block_step.h"

#include <algorithm>
#include <atomic>
#include <numeric>

#include "tutti/graph/kernel_writer.h"

namespace tutti::graph {
namespace {

// The dims of the space from the slowest to the fastest in `output`, which must be dense; nothing when the points of the
// space are not its elements, each once. Dims of one element stay where they are, at the front when others move.
std::optional<Dims> order_in(const Value& output, const Access& access, const Space& space) {
  if (access.offset != output.offset || output.strides != contiguous_strides(output.sizes)) return std::nullopt;
  std::vector<int64_t> dims(space.sizes.size());
  std::iota(dims.begin(), dims.end(), 0);
  const auto is_one = [&](int64_t d) { return space.sizes[static_cast<size_t>(d)] == 1; };
  const auto stride = [&](int64_t d) { return access.strides[static_cast<size_t>(d)]; };
  const auto falls = [&](int64_t a, int64_t b) { return !is_one(a) && !is_one(b) && stride(a) < stride(b); };
  bool moves = false;
  for (size_t i = 0; i < dims.size(); ++i) {
    for (size_t j = 0; j < i; ++j) moves = moves || falls(static_cast<int64_t>(j), static_cast<int64_t>(i));
  }
  if (moves) {
    std::stable_partition(dims.begin(), dims.end(), is_one);
    std::stable_sort(std::find_if_not(dims.begin(), dims.end(), is_one), dims.end(), [&](int64_t a, int64_t b) { return stride(a) > stride(b); });
  }
  int64_t expected = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    if (is_one(dims[i])) continue;
    if (stride(dims[i]) != expected) return std::nullopt;
    expected *= space.sizes[static_cast<size_t>(dims[i])];
  }
  if (expected != numel_of(output.sizes)) return std::nullopt;
  return Dims(std::span<const int64_t>(dims));
}

// The dims of `sizes`, in order, that make up the rows; the others are the columns. -1: no border falls there.
int end_of_rows(const Extents& sizes, int64_t columns) {
  int end = sizes.ndim();
  for (int64_t n = 1; n != columns; n *= sizes[static_cast<size_t>(end)]) {
    if (n > columns || end == 0) return -1;
    --end;
  }
  return end;
}

bool writes_elsewhere(const KernelWriter& writer) {
  const auto meets = [](const Access& write, const Access& other) { return write.buffer == other.buffer && !write.same_place(other); };
  return std::any_of(writer.outputs.begin(), writer.outputs.end(), [&](const KernelWriter::Output& out) {
    return std::any_of(writer.inputs.begin(), writer.inputs.end(), [&](const Access& in) { return meets(out.access, in); }) ||
           std::any_of(writer.outputs.begin(), writer.outputs.end(), [&](const KernelWriter::Output& o) { return meets(out.access, o.access); });
  });
}

// Cuts the loops where the output's rows end. What is wrong with them, or nullptr.
const char* shape(KernelStep& step, const Dims& order, int64_t columns, const ExprPool& pool) {
  LoopNest& nest = step.nest;
  nest.permute(order);
  const int rows = end_of_rows(nest.sizes, columns);
  if (rows < 0) return "its loops do not part where the rows end";
  const int ends = nest.collapse(rows, nest.sizes.ndim());
  if (ends - rows > 1) return "an operand does not move evenly along the columns";
  if (ends == rows) nest.append_dim(1);
  step.outer_end = nest.collapse(0, rows);
  const int inner = nest.sizes.ndim() - 1;
  const auto counts = [](const ExprNode& node) { return node.op == ScalarOp::linear_index || node.op == ScalarOp::inner_index; };
  if (nest.sizes[static_cast<size_t>(inner)] > 1 && nest.logical[static_cast<size_t>(inner)] != 1 &&
      std::any_of(pool.nodes().begin(), pool.nodes().end(), counts))
    return "it counts its elements in another order";
  step.spec.kind = codegen::LoopKind::pointwise;
  step.run.n_inner = nest.sizes[static_cast<size_t>(inner)];
  step.run.inner_dim = inner;
  step.run.split_inner = true;
  return nullptr;
}

}  // namespace

std::variant<BlockStep, const char*> make_block_step(const Group& group, const Graph& graph, const std::vector<bool>& escapes,
                                                     const Value& output) {
  if (!group.space.row.empty()) return "it reduces rows";
  for (const int32_t n : group.nodes) {
    if (!graph.nodes[static_cast<size_t>(n)].keys.empty()) return "it draws random numbers";
  }
  Group own = group;
  const auto access = [&](const KernelWriter& writer) -> const Access* {
    const auto reads = [&](const Access& a) { return a.buffer == output.buffer && a.version == output.version; };
    const auto it = std::find_if(writer.inputs.begin(), writer.inputs.end(), reads);
    return it == writer.inputs.end() || std::find_if(it + 1, writer.inputs.end(), reads) != writer.inputs.end() ? nullptr : &*it;
  };
  // The group may have joined the dims of rows and columns.
  const auto split = common_space(own.space, {output.sizes, {}});
  {
    const KernelWriter writer(own, graph, escapes);
    const Access* whole = access(writer);
    if (whole == nullptr) return "it reads the output at several places";
    const auto order = order_in(output, *whole, own.space);
    if (!order) return "its points are not the elements of the output";
    if (split && std::is_sorted(order->begin(), order->end())) own.space = *split;
  }
  KernelWriter writer(own, graph, escapes);
  const Access* whole = access(writer);
  if (writer.outputs.empty()) return "it stores nothing";
  if (writes_elsewhere(writer)) return "it reads at other points what it writes";
  BlockStep step;
  step.block_operand = static_cast<size_t>(whole - writer.inputs.data());
  step.keeps_output = escapes[static_cast<size_t>(output.buffer)];
  step.kernel.nest = writer.nest();
  if (const char* problem = shape(step.kernel, *order_in(output, *whole, own.space), output.sizes.back(), writer.body.pool)) return problem;
  writer.finish(step.kernel);
  step.kernel.bytes -= static_cast<double>(numel_of(output.sizes) * itemsize(output.dtype));
  return step;
}

uint32_t run_block_step(const BlockStep& step, const OpCall& call, std::span<const Tensor> outputs, char* const* data) {
  const KernelStep& kernel = step.kernel;
  KernelRun run = kernel.run;
  run.entry = kernel.kernel->entry;
  run.params = kernel.params.data();
  run.data = data;
  std::atomic<uint32_t> errors{0};
  const auto take = [&](const OutputBlock& block) {
    const MovedOperand moved{step.block_operand, static_cast<char*>(block.data), block.row_stride};
    const NestPart part{block.first_row, block.first_row + block.rows, block.first_column, block.first_column + block.columns};
    const uint32_t error = run_nest_part(kernel.nest, kernel.outer_end, run, part, step.keeps_output ? nullptr : &moved);
    if (error) errors |= error;
  };
  call.op.kernel_in_blocks(call, outputs, take);
  return errors;
}

}  // namespace tutti::graph
