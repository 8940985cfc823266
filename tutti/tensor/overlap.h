// Whether two elements of a strided view are the same memory.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// True when two positions of a view with these sizes and strides are one element: such a view can be read and not written,
// because which of its values stays would depend on the order of the writes. Strides may be negative, zero, or those of
// no array at all.
//
// The answer is exact unless it takes more than 2^16 trials. That needs at least four dims whose strides interleave, as no
// sequence of slices, windows and diagonals of an array has them; such a view counts as overlapping.
bool overlaps_itself(const Extents& sizes, const Extents& strides);

// UsageError when `target`, which `what` is about to write, overlaps itself.
void refuse_overlap(const char* what, const Tensor& target);

}  // namespace tutti
