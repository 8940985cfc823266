// Conversions of the element type.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// `x` with every element converted to `dtype`; `x` itself when it already has that dtype.
// Shapes: any. Dtypes: all 12. Float to float rounds to nearest even (f64 to a narrow float goes through f32). Float to
// integer truncates toward zero; a value outside the range of int64 becomes INT64_MIN, and narrower integers keep the
// low bits. To boolean gives x != 0, so NaN is true. The gradient is cast back to the dtype of x.
Tensor cast(const Tensor& x, DType dtype);

// A view of the same bytes as `dtype`. UsageError when the item sizes of the two dtypes differ. Not differentiable.
Tensor bitcast(const Tensor& x, DType dtype);

}  // namespace tutti
