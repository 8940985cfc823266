// Tensors with given contents: constants, ranges, masks.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// A tensor filled with `value`, converted to `dtype` (truncated for integers; since `value` is a double, exact up to
// 2^53). Shapes: any, including zero sizes. Dtypes: all.
Tensor full(const Shape& sizes, double value, DType dtype = DType::f32);
Tensor zeros(const Shape& sizes, DType dtype = DType::f32);
Tensor ones(const Shape& sizes, DType dtype = DType::f32);

// The same with the sizes and dtype of `x`.
Tensor full_like(const Tensor& x, double value);
Tensor zeros_like(const Tensor& x);
Tensor ones_like(const Tensor& x);

// full(sizes, value, dtype) as an operand beside `operand`: distributed, without memory of that size, where that is.
Tensor full_beside(const Tensor& operand, const Shape& sizes, double value, DType dtype);

// start, start + step, ... up to but excluding `end`, computed in int64 and converted to `dtype`. `step` may be
// negative but not 0. Shape: [ceil((end - start) / step)], empty when no step leads from `start` to `end`.
Tensor arange(SymInt start, SymInt end, int64_t step = 1, DType dtype = DType::i64);
Tensor arange(SymInt end);  // 0, 1, ..., end - 1 in i64

// The identity matrix: ones where column == row, zeros elsewhere. Shape: [rows, columns]; columns < 0 means columns =
// rows.
Tensor eye(SymInt rows, SymInt columns = -1, DType dtype = DType::f32);
// True where column - row <= diagonal: the lower triangle, for example a causal attention mask. Shape: [rows, columns].
Tensor tril_mask(SymInt rows, SymInt columns, int64_t diagonal = 0);
// True where column - row >= diagonal: the upper triangle. Shape: [rows, columns].
Tensor triu_mask(SymInt rows, SymInt columns, int64_t diagonal = 0);

}  // namespace tutti
