// Packing of int8 operands as pairs of 16-bit integers, or four at a time as they are. Private to pack.cpp.
#pragma once

#include "tutti/codegen/gemm/pack.h"

namespace tutti::codegen {

// As pack() of `k` pairs: packed[p * width + lane] = elements 2p and 2p + 1 of the lane, the first in the lower half.
// source.k_stride is the distance between pairs; the two elements of a pair are half of it apart.
void pack_int8_pairs(const PackSource& source, int64_t k, int64_t lanes, int32_t* packed, int64_t width);

// As pack() of `k` quadruples: packed[p * width + lane] = elements 4p to 4p + 3 of the lane, the first in the lowest
// byte, on side A larger by 128. source.k_stride is the distance between quadruples, whose elements are a quarter of it
// apart.
void pack_int8_quads(const PackSource& source, int64_t k, int64_t lanes, PackSide side, int32_t* packed, int64_t width);

}  // namespace tutti::codegen
