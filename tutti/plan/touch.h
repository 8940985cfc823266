// The memory that the operands of a kernel reach.
#pragma once

#include <vector>

#include "tutti/plan/kernel_step.h"

namespace tutti::graph {

// Bytes of a buffer that an operand reaches, [first, last).
struct Touch {
  int32_t buffer;
  int64_t first, last;
  bool written;
  // Whether both reach a byte that one of them writes.
  bool meets(const Touch& o) const {
    return buffer == o.buffer && (written || o.written) && first < o.last && o.first < last;
  }
};

// One per operand of the kernel.
std::vector<Touch> touches_of(const KernelStep& step);

}  // namespace tutti::graph
