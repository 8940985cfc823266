// Whether two elements of a strided view share memory.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// True when two positions of a view with these sizes and strides refer to the same element. Such a view can be read but
// not written, because the result would depend on the order of the writes. Strides may be arbitrary, including negative
// and zero.
//
// The answer is exact unless the search takes more than 2^16 steps, in which case the view counts as overlapping. That
// needs at least four dims with interleaved strides, which slices, windows and diagonals of an array never produce.
bool overlaps_itself(const Extents& sizes, const Extents& strides);

// UsageError, naming the op `what`, when the tensor `target` that it is about to write overlaps itself.
void refuse_overlap(const char* what, const Tensor& target);

}  // namespace tutti
