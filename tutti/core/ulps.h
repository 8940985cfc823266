// The distance of two values of one dtype in units in the last place (ULP).
#pragma once

#include <cstdint>

#include "tutti/core/dtype.h"

namespace tutti {

// The number of steps from one value of the dtype to the next between the elements at `a` and `b`: 0 exactly when their
// bits are equal, 1 for neighbors, which -0 and +0 are as well. NaNs follow the infinities, in the order of their bits.
// For integers and booleans, the absolute difference.
uint64_t ulps_between(const void* a, const void* b, DType dtype);

}  // namespace tutti
