// The first maximum of every window of a plane. NaN is above all numbers, -0 equal to +0; of equal elements the first
// one in row-major order counts.
#pragma once

#include <cstdint>

#include "tutti/ops/pooling/pool_windows.h"

namespace tutti::facets {

// indices[p * outputs + o]: the offset in plane p of the maximum of its window o, for all outputs. `planes` lie behind
// each other, dense; windows of one size, not adaptive ones. Value: float, double, bfloat16, float16.
template <class Value>
void find_window_maxima(const PoolWindows& w, const Value* planes, int64_t count, int64_t* indices);

}  // namespace tutti::facets
