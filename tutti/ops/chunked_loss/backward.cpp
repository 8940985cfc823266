#include "tutti/ops/chunked_loss/backward.h"

#include <optional>

#include "tutti/ops/chunked_loss/gradient_sums.h"
#include "tutti/ops/chunked_loss/plan.h"
#include "tutti/ops/engine/kernel_trace.h"
#include "tutti/runtime/allocator.h"

namespace tutti::chunked_loss {
namespace {

void with_classes_outside(const OpCall& call, std::span<const Tensor> outputs, const ChunkPlan& plan,
                          const Tensor& mix_sums, bool together) {
  LogitChunk chunk(call, plan.chunk_rows(), plan.chunk_classes(), mix_sums);
  const ParameterGradients parameters(call, outputs[1], outputs[2], plan.chunk_classes(), plan.rows);
  std::optional<InputGradient> input;
  if (together) input.emplace(call, outputs[0], rows_of(call), plan.classes);
  for (const TreePart& classes : plan.classes) {
    for (const TreePart& rows : plan.rows) {
      const Tensor d = chunk.compute(rows, classes);
      chunk.to_gradient();
      if (together) input->add(d, rows, classes, rows.begin);
      parameters.add(d, rows, classes);
    }
  }
}

void with_rows_outside(const OpCall& call, const Tensor& result, const ChunkPlan& plan, const Tensor& mix_sums) {
  LogitChunk chunk(call, plan.chunk_rows(), plan.chunk_classes(), mix_sums);
  const InputGradient input(call, result, plan.chunk_rows(), plan.classes);
  for (const TreePart& rows : plan.rows) {
    for (const TreePart& classes : plan.classes) {
      const Tensor d = chunk.compute(rows, classes);
      chunk.to_gradient();
      input.add(d, rows, classes, 0);
    }
  }
}

}  // namespace

void kernel_gradients(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor mix_sums = split_mix(call);  // three numbers per row, which max_bytes does not count
  const MemoryCategoryScope category(MemoryCategory::workspace);
  const GradientPlan plan = plan_gradients(call);
  KernelTrace::note_extern(call.op, [&] {
    std::string text = plan.together ? "all gradients: " : "";
    if (!plan.classes_outside.rows.empty()) text += plan.classes_outside.describe();
    if (!plan.rows_outside.rows.empty()) text += (text.empty() ? "" : "; input apart: ") + plan.rows_outside.describe();
    return text;
  });
  if (!plan.classes_outside.rows.empty())
    with_classes_outside(call, outputs, plan.classes_outside, mix_sums, plan.together);
  if (!plan.rows_outside.rows.empty()) with_rows_outside(call, outputs[0], plan.rows_outside, mix_sums);
}

}  // namespace tutti::chunked_loss
