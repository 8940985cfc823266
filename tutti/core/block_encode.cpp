#include "tutti/core/block_encode.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "tutti/core/error.h"

namespace tutti {
namespace {

constexpr int kElements = 32;
using Codes = std::array<uint8_t, kElements>;

// The reciprocal of a scale; 0 for none.
float inverse_of(float scale) { return scale != 0 ? 1.0F / scale : 0.0F; }

// Codes of `kBits` bits: those of `scaled` elements, truncated. A scale so small that its reciprocal is infinite has
// the f16 0, and all its codes are 0.
template <int kBits>
Codes truncated(float inverse, auto&& scaled) {
  Codes codes{};
  if (!std::isfinite(inverse)) return codes;
  for (int j = 0; j < kElements; ++j)
    codes[j] = static_cast<uint8_t>(std::min((1 << kBits) - 1, static_cast<int>(scaled(j))));
  return codes;
}

// The fifth bits, bit e of element e, where there are such; then element j in the low and element j + 16 in the high
// half of byte j.
template <int kBits>
void pack(const Codes& codes, std::byte* out) {
  if constexpr (kBits == 5) {
    uint32_t fifth = 0;
    for (int j = 0; j < kElements; ++j) fifth |= static_cast<uint32_t>(codes[j] >> 4) << j;
    std::memcpy(out, &fifth, sizeof(fifth));
    out += sizeof(fifth);
  }
  for (int j = 0; j < kElements / 2; ++j)
    out[j] = static_cast<std::byte>((codes[j] & 15) | (codes[j + kElements / 2] & 15) << 4);
}

void store(float16 scale, std::byte* out) { std::memcpy(out, &scale, sizeof(scale)); }

// The first element of the largest magnitude has the lowest code, which has no counterpart of the other sign.
template <BlockFormat kFormat, int kBits>
void encode_around_zero(const float* values, std::byte* block) {
  constexpr int half = 1 << (kBits - 1);
  check_finite(kFormat, values);
  float peak = 0;
  for (int j = 0; j < kElements; ++j)
    if (std::abs(values[j]) > std::abs(peak)) peak = values[j];
  const float scale = peak / -half, inverse = inverse_of(scale);
  store(scale_as_f16(kFormat, scale, values), block);
  pack<kBits>(truncated<kBits>(inverse, [&](int j) { return values[j] * inverse + (half + 0.5F); }), block + 2);
}

// The smallest element has code 0, the largest the highest.
template <BlockFormat kFormat, int kBits>
void encode_above_minimum(const float* values, std::byte* block) {
  check_finite(kFormat, values);
  float low = values[0], high = values[0];  // of zeros of both signs, the first
  for (int j = 1; j < kElements; ++j) {
    if (values[j] < low) low = values[j];
    if (values[j] > high) high = values[j];
  }
  const float scale = (high - low) / ((1 << kBits) - 1), inverse = inverse_of(scale);
  store(scale_as_f16(kFormat, scale, values), block);
  store(scale_as_f16(kFormat, low, values), block + 2);
  pack<kBits>(truncated<kBits>(inverse, [&](int j) { return (values[j] - low) * inverse + 0.5F; }), block + 4);
}

}  // namespace

void check_finite(BlockFormat format, const float* values) {
  const BlockFormatRow& row = row_of(format);
  TUTTI_CHECK(std::all_of(values, values + row.elements, [](float value) { return std::isfinite(value); }),
              "{} holds finite numbers only, and a block of {} has one that is not; write F32, F16 or BF16", row.name,
              row.elements);
}

float16 scale_as_f16(BlockFormat format, float scale, const float* values) {
  const float16 half = to_float16(scale);
  if (std::isfinite(to_float(half))) return half;
  const BlockFormatRow& row = row_of(format);
  float largest = 0;
  for (int j = 0; j < row.elements; ++j) largest = std::max(largest, std::abs(values[j]));
  throw UsageError(
      fmt::format("{} holds scales up to 65504, and a block of {} with a number of magnitude {} needs larger ones; "
                  "write F32 or BF16",
                  row.name, row.elements, largest));
}

void encode_q4_0(const float* values, std::byte* block) { encode_around_zero<BlockFormat::q4_0, 4>(values, block); }
void encode_q4_1(const float* values, std::byte* block) { encode_above_minimum<BlockFormat::q4_1, 4>(values, block); }
void encode_q5_0(const float* values, std::byte* block) { encode_around_zero<BlockFormat::q5_0, 5>(values, block); }
void encode_q5_1(const float* values, std::byte* block) { encode_above_minimum<BlockFormat::q5_1, 5>(values, block); }

void encode_q8_0(const float* values, std::byte* block) {
  check_finite(BlockFormat::q8_0, values);
  float largest = 0;
  for (int j = 0; j < kElements; ++j) largest = std::max(largest, std::abs(values[j]));
  const float scale = largest / 127.0F, inverse = inverse_of(scale);
  store(scale_as_f16(BlockFormat::q8_0, scale, values), block);
  for (int j = 0; j < kElements; ++j)
    block[2 + j] = std::isfinite(inverse) ? static_cast<std::byte>(static_cast<int8_t>(std::round(values[j] * inverse)))
                                          : std::byte{0};
}

}  // namespace tutti
