#include "tutti/plan/block_step.h"

#include <algorithm>
#include <atomic>
#include <numeric>

#include "tutti/ops/engine/launch.h"
#include "tutti/plan/kernel_writer.h"

namespace tutti::graph {
namespace {

// The dims of the space from the slowest to the fastest in `value`, which must be dense; nothing when the points of the
// space are not its elements, each once. Dims of one element stay where they are, at the front when others move.
std::optional<Dims> order_in(const Value& value, const Access& access, const Space& space) {
  if (access.offset != value.offset || value.strides != contiguous_strides(value.sizes)) return std::nullopt;
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
    std::stable_sort(std::find_if_not(dims.begin(), dims.end(), is_one), dims.end(),
                     [&](int64_t a, int64_t b) { return stride(a) > stride(b); });
  }
  int64_t expected = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    if (is_one(dims[i])) continue;
    if (stride(dims[i]) != expected) return std::nullopt;
    expected *= space.sizes[static_cast<size_t>(dims[i])];
  }
  if (expected != numel_of(value.sizes)) return std::nullopt;
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
  const auto meets = [](const Access& write, const Access& other) {
    return write.buffer == other.buffer && !write.same_place(other);
  };
  return std::any_of(writer.outputs.begin(), writer.outputs.end(), [&](const KernelWriter::Output& out) {
    return std::any_of(writer.inputs.begin(), writer.inputs.end(),
                       [&](const Access& in) { return meets(out.access, in); }) ||
           std::any_of(writer.outputs.begin(), writer.outputs.end(),
                       [&](const KernelWriter::Output& o) { return meets(out.access, o.access); });
  });
}

// Cuts the loops where the operand's rows end. What is wrong with them, or nullptr.
const char* shape(KernelStep& step, const Dims& order, int64_t columns, const ExprPool& pool) {
  LoopNest& nest = step.plan.nest;
  nest.permute(order);
  const int rows = end_of_rows(nest.sizes, columns);
  if (rows < 0) return "its loops do not part where the rows end";
  const int ends = nest.collapse(rows, nest.sizes.ndim());
  if (ends - rows > 1) return "an operand does not move evenly along the columns";
  if (ends == rows) nest.append_dim(1);
  step.plan.outer_end = nest.collapse(0, rows);
  const int inner = nest.sizes.ndim() - 1;
  const auto counts = [](const ExprNode& node) {
    return node.op == ScalarOp::linear_index || node.op == ScalarOp::inner_index;
  };
  if (nest.sizes[static_cast<size_t>(inner)] > 1 && nest.logical[static_cast<size_t>(inner)] != 1 &&
      std::any_of(pool.nodes().begin(), pool.nodes().end(), counts))
    return "it counts its elements in another order";
  step.plan.run.n_inner = nest.sizes[static_cast<size_t>(inner)];
  step.plan.run.inner_dim = inner;
  step.plan.run.split_inner = true;
  return nullptr;
}

// The one operand of the kernel that is `value`; -1: none, or several.
int64_t find_operand(const KernelWriter& writer, const Value& value) {
  int64_t found = -1, k = 0;
  bool is_alone = true;
  const auto look = [&](const Access& a) {
    if (a.buffer == value.buffer && a.version == value.version) {
      is_alone = found < 0;
      found = k;
    }
    ++k;
  };
  for (const Access& in : writer.inputs) look(in);
  for (const KernelWriter::Output& out : writer.outputs) look(out.access);
  return is_alone ? found : -1;
}

const Access& access_to(const KernelWriter& writer, int64_t operand) {
  const auto k = static_cast<size_t>(operand), inputs = writer.inputs.size();
  return k < inputs ? writer.inputs[k] : writer.outputs[k - inputs].access;
}

std::variant<BlockStep, const char*> make_step(const Group& group, const Graph& graph, const std::vector<bool>& escapes,
                                               const Value& value) {
  if (!group.space.row.empty()) return "it reduces rows";
  for (const int32_t n : group.nodes) {
    if (!graph.nodes[static_cast<size_t>(n)].keys.empty()) return "it draws random numbers";
  }
  Group own = group;
  // The group may have joined the dims of rows and columns.
  const auto split = common_space(own.space, {value.sizes, {}});
  {
    const KernelWriter writer(own, graph, escapes);
    const int64_t operand = find_operand(writer, value);
    if (operand < 0) return "it takes the operand at several places";
    const auto order = order_in(value, access_to(writer, operand), own.space);
    if (!order) return "its points are not the elements of the operand";
    if (split && std::is_sorted(order->begin(), order->end())) own.space = *split;
  }
  KernelWriter writer(own, graph, escapes);
  const int64_t operand = find_operand(writer, value);
  if (writer.outputs.empty()) return "it stores nothing";
  if (writes_elsewhere(writer)) return "it reads at other points what it writes";
  BlockStep step;
  step.block_operand = static_cast<size_t>(operand);
  step.keeps_operand = escapes[static_cast<size_t>(value.buffer)];
  step.kernel.plan = writer.plan();
  const auto order = order_in(value, access_to(writer, operand), own.space);
  if (const char* problem = shape(step.kernel, *order, value.sizes.back(), writer.body.pool)) return problem;
  writer.finish(step.kernel);
  step.kernel.bytes -= static_cast<double>(numel_of(value.sizes) * itemsize(value.dtype));
  return step;
}

// A run of parts of the kernel, from any thread.
class Parts {
 public:
  explicit Parts(const BlockRun& run) : kernel_(run.step->kernel), data_(run.data) {}
  void operator()(const NestPart& part, const MovedOperand* moved) {
    if (const uint32_t error = launch_part(kernel_.plan, *kernel_.kernel, kernel_.params.data(), data_, part, moved))
      errors_ |= error;
  }
  uint32_t errors() const { return errors_; }

 private:
  const KernelStep& kernel_;
  char* const* data_;
  std::atomic<uint32_t> errors_{0};
};

}  // namespace

std::variant<BlockStep, const char*> make_epilogue(const Group& group, const Graph& graph,
                                                   const std::vector<bool>& escapes, const Value& output) {
  return make_step(group, graph, escapes, output);
}

std::variant<BlockStep, const char*> make_prologue(const Group& group, const Graph& graph,
                                                   const std::vector<bool>& escapes, const Value& input) {
  Value dense = input;
  const bool is_transposed = input.strides != contiguous_strides(input.sizes) && input.sizes.ndim() == 2;
  if (is_transposed) {
    std::swap(dense.sizes[0], dense.sizes[1]);
    std::swap(dense.strides[0], dense.strides[1]);
  }
  std::vector<bool> stored = escapes;
  stored[static_cast<size_t>(input.buffer)] = true;
  auto made = make_step(group, graph, stored, dense);
  if (auto* step = std::get_if<BlockStep>(&made)) {
    if (step->block_operand < step->kernel.spec.inputs.size()) return "it reads the operand as well";
    step->keeps_operand = false;
    step->is_transposed = is_transposed;
  }
  return made;
}

BlockErrors run_in_blocks(const OpCall& call, std::span<const Tensor> outputs, const BlockRun& prologue,
                          const BlockRun& epilogue) {
  std::optional<Parts> make, take;
  if (prologue.step) make.emplace(prologue);
  if (epilogue.step) take.emplace(epilogue);
  const auto on_demand = [&](const InputBlock& b) {
    const size_t operand = prologue.step->block_operand;
    char* data = static_cast<char*>(b.data);
    if (prologue.step->is_transposed) {
      const MovedOperand moved{operand, data, b.column_stride};
      (*make)({b.first_column, b.first_column + b.columns, b.first_row, b.first_row + b.rows}, &moved);
    } else {
      const MovedOperand moved{operand, data, b.row_stride};
      (*make)({b.first_row, b.first_row + b.rows, b.first_column, b.first_column + b.columns}, &moved);
    }
  };
  const auto on_result = [&](const OutputBlock& b) {
    const MovedOperand moved{epilogue.step->block_operand, static_cast<char*>(b.data), b.row_stride};
    (*take)({b.first_row, b.first_row + b.rows, b.first_column, b.first_column + b.columns},
            epilogue.step->keeps_operand ? nullptr : &moved);
  };
  const BlockProducer producer(on_demand);
  const BlockConsumer consumer(on_result);
  call.op.kernel_in_blocks(call, outputs, {make ? &producer : nullptr, take ? &consumer : nullptr});
  return {make ? make->errors() : 0, take ? take->errors() : 0};
}

}  // namespace tutti::graph
