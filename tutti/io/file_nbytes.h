// The bytes of a tensor that a file describes, before anything is allocated.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "tutti/core/dtype.h"
#include "tutti/core/shape.h"

namespace tutti::io {

// Nothing when the sizes do not fit: strides are products of sizes, with 1 for 0, so a tensor without elements has
// sizes that are too large as well.
inline std::optional<int64_t> file_nbytes(const Extents& sizes, DType dtype) {
  int64_t reach = itemsize(dtype);
  bool is_empty = false;
  for (const int64_t size : sizes) {
    is_empty = is_empty || size == 0;
    if (__builtin_mul_overflow(reach, std::max<int64_t>(size, 1), &reach)) return std::nullopt;
  }
  return is_empty ? 0 : reach;
}

}  // namespace tutti::io
