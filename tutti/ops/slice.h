// Views of parts of a dim.
#pragma once

#include <vector>

#include "tutti/tensor/tensor.h"

namespace tutti {

// Elements start, start + step, ... of dim `dim`, up to but excluding `end`. As in Python, negative positions count
// from the end and positions outside the dim are clamped to it. UsageError for step < 1.
Tensor slice(const Tensor& x, int64_t dim, SymInt start, SymInt end, int64_t step = 1);

// `length` elements from `start`, which counts from the end when negative. UsageError when the range exceeds the dim.
Tensor narrow(const Tensor& x, int64_t dim, SymInt start, SymInt length);

// Element `index` of dim `dim`; the dim is removed. UsageError when the index is outside [-size, size).
Tensor select(const Tensor& x, int64_t dim, SymInt index);

// Pieces of `size` elements along `dim`; the last one may be shorter. An empty dim gives one empty piece.
std::vector<Tensor> split(const Tensor& x, int64_t size, int64_t dim = 0);
// Pieces of the given sizes. UsageError when they do not add up to the size of the dim.
std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& sizes, int64_t dim = 0);
// At most `count` pieces of ceil(size / count) elements each; the last one may be shorter.
std::vector<Tensor> chunk(const Tensor& x, int64_t count, int64_t dim = 0);

// The gradient of slice: `grad` at its place in a tensor whose dim `dim` has `size` elements. All other elements are
// -0.0, the identity of addition, since the gradients of other slices of the same tensor are added.
Tensor slice_backward(const Tensor& grad, int64_t dim, SymInt size, SymInt start, int64_t step = 1);

}  // namespace tutti
