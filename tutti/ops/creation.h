// Tensors made from nothing: constants, counting numbers, masks.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// Every element `value`, converted to `dtype` (integers truncate; exact up to 2^53).
// Shapes: any, zero sizes too. Dtypes: all.
Tensor full(const Shape& sizes, double value, DType dtype = DType::f32);
Tensor zeros(const Shape& sizes, DType dtype = DType::f32);
Tensor ones(const Shape& sizes, DType dtype = DType::f32);

// With the sizes and dtype of `x`.
Tensor full_like(const Tensor& x, double value);
Tensor zeros_like(const Tensor& x);
Tensor ones_like(const Tensor& x);

// start, start + step, ... before `end` (step may be negative, not 0), computed in int64 and converted to `dtype`.
// Shape: [ceil((end - start) / step)], empty when `end` lies behind `start`.
Tensor arange(SymInt start, SymInt end, int64_t step = 1, DType dtype = DType::i64);
Tensor arange(SymInt end);  // 0, 1, ..., end - 1 in i64

// Ones where column == row, zeros elsewhere. Shape: [rows, columns]; columns < 0 means rows.
Tensor eye(SymInt rows, SymInt columns = -1, DType dtype = DType::f32);
// True where column - row <= diagonal: the lower triangle, e.g. the keys a query may see. Shape: [rows, columns].
Tensor tril_mask(SymInt rows, SymInt columns, int64_t diagonal = 0);
// True where column - row >= diagonal: the upper triangle.
Tensor triu_mask(SymInt rows, SymInt columns, int64_t diagonal = 0);

}  // namespace tutti
