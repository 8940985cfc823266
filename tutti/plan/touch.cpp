#include "tutti/plan/touch.h"

namespace tutti::graph {

std::vector<Touch> touches_of(const KernelStep& step) {
  std::vector<Touch> touches;
  for (size_t k = 0; k < step.operands.size(); ++k) {
    const NestOperand& operand = step.plan.nest.operands[k];
    int64_t first = 0, last = 1;
    for (size_t d = 0; d < operand.strides.size(); ++d) {
      const int64_t way = (step.plan.nest.sizes[d] - 1) * operand.strides[d];
      (way < 0 ? first : last) += way;
    }
    const int64_t at = step.operands[k].byte_offset;
    touches.push_back({step.operands[k].buffer, at + first * operand.itemsize, at + last * operand.itemsize,
                       k >= step.spec.inputs.size()});
  }
  return touches;
}

}  // namespace tutti::graph
