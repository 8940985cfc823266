// Q4_K and Q5_K: eight sub-blocks of 32 elements, each scale * code - minimum with a scale and a minimum of 6 bits.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "tutti/core/block_encode.h"
#include "tutti/core/block_lanes.h"

namespace tutti {
namespace {

constexpr int kLength = 32, kLargest6 = 63;

// How many steps the spread of a sub-block is, in turn: the largest code, then that plus first, first + 0.1, ...
struct Trials {
  int largest;
  float first;
  int steps;
};

// An element is about scale * code + offset.
struct Fit {
  FloatLanes scale, offset;
  IntLanes codes[kLength];
};

FloatLanes square_root(FloatLanes x) {
  for (int j = 0; j < kLanes; ++j) x[j] = std::sqrt(x[j]);
  return x;
}

// Minimizes the weighted squared error: codes are those of a trial, scale and offset their least squares. Offsets are
// never positive, and each trial begins at the best one so far. Sub-blocks of equal elements have an infinite inverse,
// codes and scale 0, and no better trial.
Fit fit(const FloatLanes (&x)[kLength], const Trials& trials) {
  FloatLanes squares{};
  for (const FloatLanes& element : x) squares += element * element;
  const FloatLanes mean = square_root(squares / 32.0F);
  FloatLanes weights[kLength];
  for (int l = 0; l < kLength; ++l) weights[l] = mean + magnitude(x[l]);
  FloatLanes low = x[0], high = x[0], sum_w = weights[0], sum_wx = weights[0] * x[0];
  for (int l = 1; l < kLength; ++l) {
    low = x[l] < low ? x[l] : low;
    high = x[l] > high ? x[l] : high;
    sum_w += weights[l];
    sum_wx += weights[l] * x[l];
  }
  const FloatLanes zero{};
  low = low > zero ? zero : low;
  const float largest = static_cast<float>(trials.largest);
  const auto codes_for = [&](FloatLanes inverse, FloatLanes offset, IntLanes(&codes)[kLength]) {
    for (int l = 0; l < kLength; ++l) codes[l] = clamped(nearest(inverse * (x[l] - offset)), 0, trials.largest);
  };
  const auto error_of = [&](const IntLanes(&codes)[kLength], FloatLanes scale, FloatLanes offset) {
    FloatLanes sum{};
    for (int l = 0; l < kLength; ++l) {
      const FloatLanes difference = scale * as_floats(codes[l]) + offset - x[l];
      sum += weights[l] * (difference * difference);
    }
    return sum;
  };
  const FloatLanes plain = largest / (high - low);
  Fit best{.scale = 1.0F / plain, .offset = low, .codes = {}};
  codes_for(plain, low, best.codes);
  FloatLanes least = error_of(best.codes, best.scale, best.offset);
  for (int step = 0; step <= trials.steps; ++step) {
    IntLanes codes[kLength];
    codes_for((trials.first + 0.1F * static_cast<float>(step) + largest) / (high - best.offset), best.offset, codes);
    FloatLanes sum_c{}, sum_cc{}, sum_cx{};
    for (int l = 0; l < kLength; ++l) {
      const FloatLanes code = as_floats(codes[l]), weighted = weights[l] * code;
      sum_c += weighted;
      sum_cc += weighted * code;
      sum_cx += weighted * x[l];
    }
    const FloatLanes determinant = sum_w * sum_cc - sum_c * sum_c;
    FloatLanes scale = (sum_w * sum_cx - sum_wx * sum_c) / determinant;
    FloatLanes offset = (sum_cc * sum_wx - sum_c * sum_cx) / determinant;
    scale = offset > zero ? sum_cx / sum_cc : scale;
    offset = offset > zero ? zero : offset;
    const FloatLanes error = error_of(codes, scale, offset);
    const IntLanes is_better = (determinant > zero) & (error < least);
    least = is_better ? error : least;
    best.scale = is_better ? scale : best.scale;
    best.offset = is_better ? offset : best.offset;
    for (int l = 0; l < kLength; ++l) best.codes[l] = is_better ? codes[l] : best.codes[l];
  }
  return best;
}

// Numbers as codes of 6 bits, and what their f16 unit is: the largest over 63.
struct SixBits {
  uint8_t codes[kLanes];
  float16 unit;
};
SixBits six_bits(BlockFormat format, FloatLanes numbers, const float* values) {
  float largest = 0;
  for (int j = 0; j < kLanes; ++j)
    if (numbers[j] > largest) largest = numbers[j];
  SixBits result{.codes = {}, .unit = scale_as_f16(format, largest / kLargest6, values)};
  const float inverse = largest > 0 ? kLargest6 / largest : 0.0F;
  for (int j = 0; j < kLanes; ++j)
    result.codes[j] = std::min<uint8_t>(kLargest6, static_cast<uint8_t>(nearest(inverse * numbers[j])));
  return result;
}

// The reverse of scale_and_min() in block_codec.cpp.
void pack_scales(const uint8_t* scales, const uint8_t* minima, std::byte* out) {
  for (int j = 0; j < 4; ++j) {
    out[j] = static_cast<std::byte>(scales[j] | (scales[j + 4] >> 4) << 6);
    out[j + 4] = static_cast<std::byte>(minima[j] | (minima[j + 4] >> 4) << 6);
    out[j + 8] = static_cast<std::byte>((scales[j + 4] & 15) | (minima[j + 4] & 15) << 4);
  }
}

// The first 16 bytes of a block, and its codes: those nearest to the elements with the scales that the block holds.
// Where these are 0, those of the search stay.
Fit encode_scales(BlockFormat format, const float* values, const Trials& trials, std::byte* block) {
  check_finite(format, values);
  FloatLanes x[kLength];
  load_sub_blocks(values, x);
  Fit best = fit(x, trials);
  const SixBits scales = six_bits(format, best.scale, values), minima = six_bits(format, -best.offset, values);
  std::memcpy(block, &scales.unit, sizeof(scales.unit));
  std::memcpy(block + 2, &minima.unit, sizeof(minima.unit));
  pack_scales(scales.codes, minima.codes, block + 4);
  const float d = to_float(scales.unit), dmin = to_float(minima.unit);
  for (int j = 0; j < kLanes; ++j) {
    best.scale[j] = d * static_cast<float>(scales.codes[j]);
    best.offset[j] = dmin * static_cast<float>(minima.codes[j]);
  }
  const IntLanes has_scale = best.scale != FloatLanes{};
  for (int l = 0; l < kLength; ++l) {
    const IntLanes codes = clamped(nearest((x[l] + best.offset) / best.scale), 0, trials.largest);
    best.codes[l] = has_scale ? codes : best.codes[l];
  }
  return best;
}

// Sub-blocks 2 k and 2 k + 1 share 32 bytes.
void pack_nibbles(const Fit& fit, std::byte* out) {
  for (int k = 0; k < 4; ++k)
    for (int l = 0; l < kLength; ++l)
      out[32 * k + l] = static_cast<std::byte>((fit.codes[l][2 * k] & 15) | (fit.codes[l][2 * k + 1] & 15) << 4);
}

}  // namespace

void encode_q4_k(const float* values, std::byte* block) {
  const Fit best = encode_scales(BlockFormat::q4_k, values, {.largest = 15, .first = -1, .steps = 20}, block);
  pack_nibbles(best, block + 16);
}

void encode_q5_k(const float* values, std::byte* block) {
  const Fit best = encode_scales(BlockFormat::q5_k, values, {.largest = 31, .first = -0.5F, .steps = 15}, block);
  for (int l = 0; l < kLength; ++l) {
    int fifth = 0;
    for (int j = 0; j < kLanes; ++j) fifth |= (best.codes[l][j] >> 4) << j;
    block[16 + l] = static_cast<std::byte>(fifth);
  }
  pack_nibbles(best, block + 48);
}

}  // namespace tutti
