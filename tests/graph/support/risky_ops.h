// Calls of ops that fail for what their operands hold, for random programs.
#pragma once

#include <cstdint>
#include <functional>

#include "tutti/tensor/tensor.h"

namespace tutti::graph_test {

// A call chosen by `op`: integers divided, elements picked by an index, a check of values, an op of the program's own
// that throws in its kernel. Most of them succeed. Throws UsageError where sizes or dtypes do not allow it; what the
// operands hold is looked at by the call alone.
std::function<Tensor()> risky_call(uint32_t op, const Tensor& x, const Tensor& y, uint32_t dim);

}  // namespace tutti::graph_test
