// Q6_K: sixteen sub-blocks of 16 elements, each scale * (code - 32) with a scale of 8 bits and its sign.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "tutti/core/block_encode.h"
#include "tutti/core/block_lanes.h"

namespace tutti {
namespace {

constexpr int kSubBlock = 16, kHalf = 32, kSubBlocks = 16;
constexpr float kNothing = 1e-15F;  // smaller elements and scales count as 0

struct SignedFit {
  FloatLanes scale;
  IntLanes codes[kSubBlock];
};

// Maximizes the part of the elements that scale * (code - 32) explains, each element weighted by its square. The
// element of the largest magnitude is tried as -32 - 0.9, ..., -32 + 0.9. Sub-blocks of nothing have codes of 0.
SignedFit fit_signed(const FloatLanes (&x)[kSubBlock]) {
  FloatLanes peak{};
  for (const FloatLanes& element : x) peak = magnitude(element) > magnitude(peak) ? element : peak;
  const FloatLanes zero{};
  SignedFit best{.scale = zero, .codes = {}};
  FloatLanes explained{};
  const auto attempt = [&](float most, bool is_first) {
    const FloatLanes inverse = -most / peak;
    IntLanes codes[kSubBlock];
    FloatLanes sum_cx{}, sum_cc{};
    for (int l = 0; l < kSubBlock; ++l) {
      codes[l] = clamped(nearest(inverse * x[l]), -kHalf, kHalf - 1);
      const FloatLanes code = as_floats(codes[l]), weight = x[l] * x[l];
      sum_cx += weight * x[l] * code;
      sum_cc += weight * code * code;
    }
    const IntLanes is_better = is_first ? IntLanes{} - 1 : (sum_cc > zero) & (sum_cx * sum_cx > explained * sum_cc);
    const FloatLanes scale = sum_cc != zero ? sum_cx / sum_cc : zero;
    best.scale = is_better ? scale : best.scale;
    explained = is_better ? scale * sum_cx : explained;
    for (int l = 0; l < kSubBlock; ++l) best.codes[l] = is_better ? codes[l] + kHalf : best.codes[l];
  };
  attempt(kHalf, true);
  for (int k = -9; k <= 9; ++k)
    if (k != 0) attempt(kHalf + 0.1F * static_cast<float>(k), false);
  const IntLanes is_nothing = magnitude(peak) < kNothing;
  best.scale = is_nothing ? zero : best.scale;
  for (IntLanes& codes : best.codes) codes = is_nothing ? IntLanes{} : codes;
  return best;
}

// For each half h of 128 elements: bytes 64 h to 64 h + 63 are low nibbles, bytes 128 + 32 h on the upper two bits.
void pack_six_bits(const uint8_t* codes, std::byte* block) {
  for (int h = 0; h < 2; ++h) {
    for (int l = 0; l < 32; ++l) {
      const uint8_t* c = codes + 128 * h + l;
      block[64 * h + l] = static_cast<std::byte>((c[0] & 15) | (c[64] & 15) << 4);
      block[64 * h + 32 + l] = static_cast<std::byte>((c[32] & 15) | (c[96] & 15) << 4);
      block[128 + 32 * h + l] =
          static_cast<std::byte>(c[0] >> 4 | (c[32] >> 4) << 2 | (c[64] >> 4) << 4 | (c[96] >> 4) << 6);
    }
  }
}

}  // namespace

void encode_q6_k(const float* values, std::byte* block) {
  check_finite(BlockFormat::q6_k, values);
  FloatLanes x[2][kSubBlock];
  SignedFit fits[2];
  float scales[kSubBlocks], largest = 0;
  for (int g = 0; g < 2; ++g) {
    load_sub_blocks(values + 128 * g, x[g]);
    fits[g] = fit_signed(x[g]);
    for (int j = 0; j < kLanes; ++j) scales[kLanes * g + j] = fits[g].scale[j];
  }
  for (const float scale : scales) {
    if (!std::isfinite(scale)) scale_as_f16(BlockFormat::q6_k, scale, values);  // refuses it
    if (std::abs(scale) > std::abs(largest)) largest = scale;
  }
  if (std::abs(largest) < kNothing) {
    std::memset(block, 0, 210);
    return;
  }
  const float inverse = -128.0F / largest;
  const float16 unit = scale_as_f16(BlockFormat::q6_k, 1.0F / inverse, values);
  std::memcpy(block + 208, &unit, sizeof(unit));
  uint8_t codes[kSubBlock * kSubBlocks];
  for (int g = 0; g < 2; ++g) {
    FloatLanes d;
    for (int j = 0; j < kLanes; ++j) {
      const int scale = std::min(127, nearest(inverse * scales[kLanes * g + j]));
      block[192 + kLanes * g + j] = static_cast<std::byte>(scale);
      d[j] = to_float(unit) * static_cast<float>(scale);
    }
    const IntLanes has_scale = d != FloatLanes{};
    for (int l = 0; l < kSubBlock; ++l) {
      const IntLanes nearest_codes = clamped(nearest(x[g][l] / d), -kHalf, kHalf - 1) + kHalf;
      const IntLanes of_lanes = has_scale ? nearest_codes : fits[g].codes[l];
      for (int j = 0; j < kLanes; ++j) codes[kSubBlock * (kLanes * g + j) + l] = static_cast<uint8_t>(of_lanes[j]);
    }
  }
  pack_six_bits(codes, block);
}

}  // namespace tutti
