#include "tutti/ops/chunked_loss/in_forward.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "tutti/ops/chunked_loss/backward.h"
#include "tutti/ops/chunked_loss/forward.h"
#include "tutti/ops/chunked_loss/gradient_sums.h"
#include "tutti/ops/chunked_loss/plan.h"
#include "tutti/ops/engine/kernel_trace.h"
#include "tutti/runtime/allocator.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::chunked_loss {
namespace {

bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype()) return false;
  const int64_t size = itemsize(a.dtype());
  const auto at = [&](const Tensor& t, int64_t n) {
    return static_cast<const char*>(t.raw_data()) + n * t.strides()[0] * size;
  };
  for (int64_t n = 0; n < a.extents()[0]; ++n) {
    if (std::memcmp(at(a, n), at(b, n), static_cast<size_t>(size)) != 0) return false;
  }
  return true;
}

// Whether all that is needed is there, for the cotangent that came.
bool is_given(const OpCall& call, std::span<const Tensor> outputs) {
  for (size_t k = 0; k < 3; ++k) {
    if (call[kGivenX + k].extents() != outputs[k].extents()) return false;
  }
  return same_bits(call[kGuess], call[kCotangent]);
}

}  // namespace

std::vector<Tensor> inputs_of_gradients(const OpCall& call, const Tensor& statistics, const Tensor& loss) {
  std::vector<Tensor> inputs(call.inputs.begin(), call.inputs.begin() + kForwardInputs);
  const Tensor none = Tensor::empty({0, 1}, computes_in(call));
  inputs.insert(inputs.end(), {statistics, loss, none, none});
  return inputs;
}

std::vector<Tensor> rows_of_loss(const OpCall& call) {
  std::vector<Tensor> rows;
  for (const int64_t columns : {1, 1, 0, 2}) rows.push_back(Tensor::empty({rows_of(call), columns}, computes_in(call)));
  return rows;
}

// All classes of a chunk of rows are there at once, so that their statistics are known while the logits are.
void kernel_loss_with_gradients(const OpCall& call, std::span<const Tensor> outputs) {
  const std::vector<Tensor> of_rows = rows_of_loss(call);
  const MemoryCategoryScope category(MemoryCategory::workspace);
  plan_statistics(call),
      plan_gradients(call);  // a backward that computes them from the start and cannot fit is an error now
  const ChunkPlan plan = plan_in_forward(call);
  KernelTrace::note_extern(call.op, [&] { return plan.describe(); });
  const std::vector<Tensor> inputs = inputs_of_gradients(call, of_rows[kRowStatistics], call[kGuess]);
  const OpCall gradients{call.op, inputs, call.attrs};
  LogitChunk chunk(gradients, plan.chunk_rows(), plan.chunk_classes());
  const Tensor room = Tensor::empty({kPlainColumns * plan.chunk_rows()}, computes_in(call));
  const ParameterGradients parameters(gradients, outputs[2], outputs[3], plan.chunk_classes(), plan.rows);
  std::optional<InputGradient> input;
  if (needs(call, kNeedX)) input.emplace(gradients, outputs[1], plan.chunk_rows(), plan.classes);
  const TreePart& classes = plan.classes.front();
  for (const TreePart& rows : plan.rows) {
    const Tensor d = chunk.compute(rows, classes);
    std::vector<Tensor> columns;
    for (int k = 0; k < kPlainColumns; ++k) columns.push_back(room.view_as({rows.count, 1}, {1, 1}, k * rows.count));
    chunk.statistics(columns);
    keep_statistics(columns, rows_of(of_rows[kRowStatistics], rows));
    columns.push_back(rows_of(call[kLabels], rows));
    const Tensor results[] = {rows_of(outputs[0], rows), rows_of(of_rows[kRowLse], rows)};
    run_step(kFinishStatistics, step_attrs(call, 0), columns, results);
    chunk.to_gradient();
    if (input) input->add(d, rows, classes, 0);
    parameters.add(d, rows, classes);
  }
}

// Without a kernel: which one a package needs must not depend on elements.
static void copy_bytes(const Tensor& target, const Tensor& source) {
  const Tensor dense = to_contiguous(source);
  auto* const to = static_cast<std::byte*>(target.raw_data());
  const auto* const from = static_cast<const std::byte*>(dense.raw_data());
  ThreadPool::current().parallel_for(target.nbytes(), int64_t{1} << 18, [&](int64_t begin, int64_t end) {
    std::copy(from + begin, from + end, to + begin);
  });
}

void kernel_taken_gradients(const OpCall& call, std::span<const Tensor> outputs) {
  if (is_given(call, outputs)) {
    KernelTrace::note_extern(call.op, [] { return std::string("those of the forward"); });
    for (size_t k = 0; k < 3; ++k) copy_bytes(outputs[k], call[kGivenX + k]);
    return;
  }
  const std::vector<Tensor> rows = rows_of_loss(call);
  kernel_loss({call.op, call.inputs, call.attrs}, rows);
  kernel_gradients({call.op, inputs_of_gradients(call, rows[kRowStatistics], call[kCotangent]), call.attrs}, outputs);
}

}  // namespace tutti::chunked_loss
