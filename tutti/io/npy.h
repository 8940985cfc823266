// NumPy array files (.npy).
// Source: NumPy Enhancement Proposal 1 and numpy.lib.format, versions 1.0, 2.0 and 3.0.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "tutti/tensor/tensor.h"

namespace tutti {

// Reads one array of type f64 f32 f16 i64 i32 i16 i8 u8 bool in either byte order. A Fortran-ordered array keeps its
// layout: its first stride is 1. EnvironmentError, naming the file, when it cannot be read, is truncated, too long, or
// has another type.
Tensor read_npy(const std::string& path);
// The same from memory; messages use `name` in place of the path.
Tensor parse_npy(std::span<const std::byte> bytes, std::string_view name);

// Writes format version 1.0 in C order, atomically. UsageError for bf16 and fp8, which the format cannot name (cast to
// f32 first), and for a tensor that is undefined or not on the host.
void write_npy(const std::string& path, const Tensor& tensor);

}  // namespace tutti
