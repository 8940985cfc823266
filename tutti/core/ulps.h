// The distance of two values of one dtype, in units of its last place.
#pragma once

#include <cstdint>

#include "tutti/core/dtype.h"

namespace tutti {

// How many values of the dtype lie between the elements at `a` and `b`, counting one of them: 0 exactly when their bits are
// equal, 1 for neighbors, among them -0 and +0. NaNs lie beyond the infinities, in the order of their bits. For integers
// and booleans, the absolute difference.
uint64_t ulps_between(const void* a, const void* b, DType dtype);

}  // namespace tutti
