// Conversions of the element type.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// `x` with every element converted to `dtype`; `x` itself when it already is.
// Shapes: any. Dtypes: all 12. Float to float rounds to nearest even (f64 to a narrow float by way of f32); float to
// integer truncates toward zero, and what does not fit in int64 becomes its smallest value before the width is cut;
// to boolean is x != 0, so NaN is true. The gradient is converted back.
Tensor cast(const Tensor& x, DType dtype);

// The same bytes read as `dtype`, on the same storage. Dtypes: any two of equal item size.
// Error: the item sizes differ. Not differentiable.
Tensor bitcast(const Tensor& x, DType dtype);

}  // namespace tutti
