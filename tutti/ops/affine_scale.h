// Scales of quantized codes.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// What turns codes into numbers: (code - zero_point) * scale for i8 and u8, and code * scale for f8e4m3fn.
struct AffineScale {
  Tensor scale;            // f32, positive; one number, or one for each row
  Tensor zero_point = {};  // i32, one number; undefined: 0. Codes of f8e4m3fn have none.
  bool defined() const { return scale.defined(); }
};

}  // namespace tutti
