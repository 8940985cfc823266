// The header of an npy file: a Python dict literal after a magic number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tutti/core/dtype.h"
#include "tutti/core/shape.h"

namespace tutti::io {

struct NpyHeader {
  DType dtype = DType::f32;
  bool swapped = false;  // the byte order is not this machine's
  bool fortran_order = false;
  Extents shape;
  int64_t data_start = 0;  // bytes from the start of the file
};

// EnvironmentError, naming `name` and the fault, when the header is invalid or the data after it does not have the
// length that the shape implies.
NpyHeader parse_npy_header(std::span<const std::byte> file, std::string_view name);

// The first bytes of a version 1.0 file in C order; data starts at a multiple of 64. UsageError for bf16 and fp8.
std::string npy_header_bytes(DType dtype, const Extents& shape);

}  // namespace tutti::io
