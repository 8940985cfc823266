// Stochastic rounding: a number becomes one of its two neighbours in a narrow float, each as likely as it is near.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "tutti/core/dtype.h"
#include "tutti/core/philox.h"

namespace tutti::facets {

// The words of an element depend on the seed, the step and the element only (numerics contract, N6).
struct RoundingWords {
  PhiloxKey key;
  uint32_t step;
  // Element i of a table takes word i % 4 of block i / 4.
  uint32_t of(int64_t element) const {
    const uint64_t block = static_cast<uint64_t>(element) / 4;
    return philox4x32({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), step, 0},
                      key)[static_cast<size_t>(element) % 4];
  }
};

// NaN, infinities and what lies beyond the largest finite number are rounded to nearest.
inline void round_at_random(float x, uint32_t word, bfloat16& out) {
  constexpr uint32_t kExponent = 0x7f800000u;
  const uint32_t bits = std::bit_cast<uint32_t>(x), moved = bits + (word >> 16);
  // A NaN of many ones would be carried beyond the exponent, where numbers begin again.
  const bool nearest = (bits & kExponent) == kExponent || (moved & kExponent) == kExponent;
  out = nearest ? to_bfloat16(x) : bfloat16{static_cast<uint16_t>(moved >> 16)};
}

inline void round_at_random(float x, uint32_t word, float16& out) {
  constexpr float kLeastNormal = 0x1p-14f, kLargest = 65504.0f;
  const float size = std::fabs(x);
  if (!(size < kLargest)) {
    out = to_float16(x);
  } else if (size >= kLeastNormal) {
    // f16 keeps 10 of the 23 bits behind the point.
    const uint32_t moved = (std::bit_cast<uint32_t>(size) + (word >> 19)) & ~0x1fffu;
    out = to_float16(std::copysign(std::bit_cast<float>(moved), x));
  } else {
    // Below, all numbers are multiples of 2^-24.
    const float steps = size * 0x1p24f, whole = std::floor(steps);
    const float rounded = whole + (static_cast<float>(word >> 8) * 0x1p-24f < steps - whole ? 1.0f : 0.0f);
    out = to_float16(std::copysign(rounded * 0x1p-24f, x));
  }
}

}  // namespace tutti::facets
