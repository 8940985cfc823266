// Numbers of several distributions for encoders of blocks. block_encode_reference.py generates the same.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

namespace tutti::test {

// The i-th number of SplitMix64.
inline uint64_t mixed(uint64_t i) {
  uint64_t z = (i + 1) * 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

// A whole number of about the normal distribution: the sum of four numbers of 16 bits, less their mean.
inline int64_t bell(uint64_t i) {
  const uint64_t z = mixed(i);
  int64_t sum = -131070;
  for (int k = 0; k < 4; ++k) sum += static_cast<int64_t>(z >> (16 * k) & 0xFFFF);
  return sum;
}

inline float scaled(int64_t number, int exponent) { return std::ldexp(static_cast<float>(number), exponent); }
inline int zeros_after(uint64_t i) { return std::countr_zero(mixed(i + (uint64_t{1} << 40)) | uint64_t{1} << 24); }
inline bool is_outlier(uint64_t i) { return (mixed((i >> 8) + (uint64_t{1} << 41)) & 255) == (i & 255); }
inline int scale_of(uint64_t i) { return static_cast<int>(mixed((i >> 4) + (uint64_t{1} << 42)) % 12); }
inline int64_t residue(int64_t number, int64_t n) { return (number % n + n) % n; }

struct BlockInput {
  std::string_view name;
  float (*element)(uint64_t i);
};
inline constexpr BlockInput kBlockInputs[] = {
    {"normal", [](uint64_t i) { return scaled(bell(i), -20); }},
    {"heavy_tails", [](uint64_t i) { return scaled(bell(i), -20 + zeros_after(i)); }},
    {"mixed_scales", [](uint64_t i) { return scaled(bell(i), -16 - scale_of(i)); }},
    {"outliers", [](uint64_t i) { return scaled(bell(i), is_outlier(i) ? -10 : -20); }},
    {"constants", [](uint64_t i) { return scaled(bell(i >> 8), -18); }},
    {"zeros", [](uint64_t i) { return (mixed(i) & 1) != 0 ? -0.0F : 0.0F; }},
    {"positive", [](uint64_t i) { return scaled(std::abs(bell(i)), -20); }},
    {"negative", [](uint64_t i) { return scaled(-std::abs(bell(i)), -20); }},
    {"far_from_zero", [](uint64_t i) { return 3.0F + scaled(bell(i), -24); }},
    {"ties", [](uint64_t i) { return scaled(residue(bell(i), 33) - 16, -4); }},
    {"large", [](uint64_t i) { return scaled(bell(i), -2); }},
    {"scales_below_f16", [](uint64_t i) { return scaled(bell(i), -38); }},
    {"squares_below_f32", [](uint64_t i) { return scaled(bell(i), -88); }},
    {"reciprocals_infinite", [](uint64_t i) { return scaled(bell(i), -142); }},
    {"subnormal", [](uint64_t i) { return scaled(bell(i), -149); }},
};

inline std::vector<float> elements_of(const BlockInput& input, uint64_t count, uint64_t first = 0) {
  std::vector<float> values;
  for (uint64_t i = first; i < first + count; ++i) values.push_back(input.element(i));
  return values;
}

}  // namespace tutti::test
