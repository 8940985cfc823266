// Steps that give the memory of a buffer back, or take it again: where the buffer lies is known anew after each of
// them.
#include <algorithm>

#include "tutti/plan/executable_frame.h"

namespace tutti::graph {

void Executable::find_memory(size_t buffer, Frame& frame) const {
  const GivenMemory& memory = frame.memory[buffer];
  frame.bases[buffer] =
      memory.storage->has_memory() ? static_cast<char*>(memory.storage->data()) + memory.first_byte : nullptr;
}

void Executable::refuse_released(const Step& step, const Frame& frame) const {
  const auto look = [&](const KernelStep& kernel) {
    for (const auto& operand : kernel.operands) {
      const auto b = static_cast<size_t>(operand.buffer);
      const StorageRef& storage = frame.memory[b].storage;     // null: a block of a product, which lies nowhere else
      if (storage && !storage->has_memory()) storage->data();  // throws
    }
  };
  if (const auto* kernel = std::get_if<KernelStep>(&step)) look(*kernel);
  if (const auto* batch = std::get_if<BatchStep>(&step))
    std::for_each(batch->kernels.begin(), batch->kernels.end(), look);
  if (const auto* call = std::get_if<CallStep>(&step)) {
    for (const auto* block : {&call->prologue, &call->epilogue}) {
      if (*block) look((*block)->kernel);
    }
  }
}

void Executable::find_resized(const Step& step, Frame& frame) const {
  const auto* call = std::get_if<CallStep>(&step);
  if (call == nullptr || !call->op->resizes || is_inside(*call)) return;
  for (const Value& v : call->outputs) find_memory(static_cast<size_t>(v.buffer), frame);
}

// Memory of the arena is nobody's to give back.
bool Executable::is_inside(const CallStep& step) const {
  return arena_offsets_[static_cast<size_t>(step.outputs[0].buffer)] >= 0;
}

}  // namespace tutti::graph
