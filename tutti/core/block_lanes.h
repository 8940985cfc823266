// Eight sub-blocks of a super-block side by side: lane j of a vector belongs to sub-block j.
//
// Encoders search the scale of each sub-block by sums in a fixed order. Lanes keep the order of each sum and still use
// whole vectors.
#pragma once

#include <bit>
#include <cstdint>

namespace tutti {

typedef float FloatLanes __attribute__((vector_size(32)));
typedef int32_t IntLanes __attribute__((vector_size(32)));
inline constexpr int kLanes = 8;

inline FloatLanes as_floats(IntLanes x) { return __builtin_convertvector(x, FloatLanes); }
inline FloatLanes magnitude(FloatLanes x) { return std::bit_cast<FloatLanes>(std::bit_cast<IntLanes>(x) & 0x7fffffff); }
inline IntLanes clamped(IntLanes x, int low, int high) {
  const IntLanes least = IntLanes{} + low, most = IntLanes{} + high;
  x = x < least ? least : x;
  return x > most ? most : x;
}

// The nearest whole number, the even one of two: adding 1.5 * 2^23 leaves it in the mantissa. Beyond 2^22, and for
// infinities and NaN, it is what the mantissa holds then, as in ggml.
inline IntLanes nearest(FloatLanes x) { return (std::bit_cast<IntLanes>(x + 12582912.0F) & 0x007fffff) - 0x00400000; }
inline int nearest(float x) { return (std::bit_cast<int32_t>(x + 12582912.0F) & 0x007fffff) - 0x00400000; }

// Element l of each of eight sub-blocks that are `kLength` elements long.
template <int kLength>
void load_sub_blocks(const float* values, FloatLanes (&x)[kLength]) {
  for (int l = 0; l < kLength; ++l)
    for (int j = 0; j < kLanes; ++j) x[l][j] = values[kLength * j + l];
}

}  // namespace tutti
