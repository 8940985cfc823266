// Parts of a dim, on the same storage.
#pragma once

#include <vector>

#include "tutti/tensor/tensor.h"

namespace tutti {

// Elements start, start + step, ... before `end` of dim `dim`. As in Python, negative positions count from behind and
// positions outside the dim are moved to its ends. Error: step < 1.
Tensor slice(const Tensor& x, int64_t dim, SymInt start, SymInt end, int64_t step = 1);

// `length` elements from `start` (negative: from behind). Error: the range leaves the dim.
Tensor narrow(const Tensor& x, int64_t dim, SymInt start, SymInt length);

// Element `index` of dim `dim`, which goes. Error: the index is outside [-size, size).
Tensor select(const Tensor& x, int64_t dim, SymInt index);

// Pieces of `size` elements along `dim`, the last one maybe shorter. An empty dim gives one empty piece.
std::vector<Tensor> split(const Tensor& x, int64_t size, int64_t dim = 0);
// Pieces of the given sizes. Error: they do not add up to the dim.
std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& sizes, int64_t dim = 0);
// Pieces of ceil(size / count) elements: at most `count` of them, the last one maybe shorter.
std::vector<Tensor> chunk(const Tensor& x, int64_t count, int64_t dim = 0);

// The gradient of slice: `grad` in its place in a tensor whose dim `dim` has `size` elements, -0.0 elsewhere (the
// identity of the sum that other slices of the same tensor are added by).
Tensor slice_backward(const Tensor& grad, int64_t dim, SymInt size, SymInt start, int64_t step = 1);

}  // namespace tutti
