// The chain of a leaf of two bf16 operands (numerics contract, N3), written from its definition alone.
#pragma once

#include <cmath>
#include <cstdint>

namespace tutti::testing {

// x, or a zero of its sign when it is denormal in f32 and bf16.
inline float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }

// a b + sum, rounded once to nearest even; zero when that is below the smallest normal number, as a number of 24 bits
// with any exponent.
inline float flushed_fma(float a, float b, float sum) {
  a = flushed(a), b = flushed(b), sum = flushed(sum);
  const float result = std::fma(a, b, sum);
  if (result == 0 || !(std::fabs(result) < 0x1p-125f)) return result;
  // Where such a result comes from, powers of two reach the range in which denormals play no part.
  const float larger = std::fma(a * 0x1p50f, b * 0x1p50f, sum * 0x1p100f);
  return std::fabs(larger) < 0x1p-26f ? std::copysign(0.0f, result) : result;
}

// `sum` and the `length` products of a leaf, or of a piece of it that pairs begin with: term(i) gives the two elements
// at i.
template <class Term>
float bf16_leaf(int64_t length, Term term, float sum = -0.0f) {
  for (int64_t i = 0; i < length; i += 2) {
    if (i + 1 < length) {
      const auto [a, b] = term(i + 1);
      sum = flushed_fma(static_cast<float>(a), static_cast<float>(b), sum);
    }
    const auto [a, b] = term(i);
    sum = flushed_fma(static_cast<float>(a), static_cast<float>(b), sum);
  }
  return sum;
}

}  // namespace tutti::testing
