// Rows of numbers as 8-bit codes, by the definitions of the formats, for tests of the ops that keep them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "tutti/core/dtype.h"
#include "tutti/ops/cast.h"
#include "tutti/tensor/tensor.h"

namespace tutti {

// The value of a code in e4m3fn: four bits of exponent, biased by 7, and three of mantissa; 0x7f is no number.
inline double value_of_e4m3fn(uint8_t bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  if ((bits & 0x7f) == 0x7f) return std::nan("");
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(1 + mantissa / 8.0, exponent - 7);
  return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

inline double value_of_code(uint8_t bits, DType code) {
  return code == DType::i8 ? static_cast<double>(static_cast<int8_t>(bits)) : value_of_e4m3fn(bits);
}

// The code whose value is nearest; of two, the even one.
inline uint8_t nearest_code(float x, DType code) {
  const double magnitude = std::fabs(static_cast<double>(x));
  const auto distance = [&](int bits) {
    return std::fabs(magnitude - value_of_code(static_cast<uint8_t>(bits), code));
  };
  // Finds the first of the codes without a sign, which are in the order of their values, that is not below.
  int above = 0;
  for (int step = 64; step > 0; step /= 2)
    if (value_of_code(static_cast<uint8_t>(above + step - 1), code) < magnitude) above += step;
  const int below = std::max(above - 1, 0);
  const bool is_above = distance(above) < distance(below) || (distance(above) == distance(below) && above % 2 == 0);
  const int best = is_above ? above : below;
  if (code == DType::i8) return static_cast<uint8_t>(std::signbit(x) ? -best : best);
  return static_cast<uint8_t>(best | (std::signbit(x) ? 0x80 : 0));
}

struct CodedRow {
  float scale;
  std::vector<uint8_t> codes;
};
inline CodedRow coded_row(std::span<const float> x, DType code) {
  CodedRow row{0, std::vector<uint8_t>(x.size(), 0)};
  float largest = 0;
  for (const float v : x) {
    if (!std::isfinite(v)) row.scale = std::numeric_limits<float>::quiet_NaN();
    largest = std::max(largest, std::fabs(v));
  }
  const float scale = largest / (code == DType::i8 ? 127.0F : 448.0F);
  if (std::isnan(row.scale) || scale < std::numeric_limits<float>::min()) return row;
  row.scale = scale;
  const float inverse = 1.0F / scale;
  for (size_t i = 0; i < x.size(); ++i) row.codes[i] = nearest_code(x[i] * inverse, code);
  return row;
}

// One rounding, of an exact product.
inline float decoded(uint8_t bits, DType code, float scale) {
  return static_cast<float>(value_of_code(bits, code) * static_cast<double>(scale));
}

// The numbers that the rows of a tensor, its last dim, become as codes, in f32.
inline Tensor through_codes(const Tensor& rows, DType code) {
  const Tensor x = to_contiguous(cast(rows, DType::f32)), numbers = Tensor::empty(x.extents(), DType::f32);
  const int64_t D = x.extents().back();
  for (int64_t at = 0; at < x.numel(); at += D) {
    const CodedRow row = coded_row({x.data<float>() + at, static_cast<size_t>(D)}, code);
    for (int64_t d = 0; d < D; ++d)
      numbers.data<float>()[at + d] = decoded(row.codes[static_cast<size_t>(d)], code, row.scale);
  }
  return numbers;
}

// Draws of a test: the n-th is a mix of n and the seed.
struct Draws {
  uint64_t state;
  uint32_t operator()() {
    uint64_t x = state += 0x9e3779b97f4a7c15U;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return static_cast<uint32_t>(x >> 32);
  }
  float within(float low, float high) {
    return low + (high - low) * std::ldexp(static_cast<float>((*this)() >> 8), -24);
  }
};

// Evenly drawn numbers.
inline Tensor drawn(uint64_t seed, const Extents& sizes, DType dtype, float low = -2, float high = 2) {
  const Tensor x = Tensor::empty(sizes, DType::f32);
  Draws draws{seed};
  for (int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] = draws.within(low, high);
  return cast(x, dtype);
}

}  // namespace tutti
